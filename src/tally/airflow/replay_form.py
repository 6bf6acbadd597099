"""Reading the filled-in form of a replay as a request."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

from tally.airflow.replay_fields import CHOICES
from tally.errors import ReplayRefusedError
from tally.planning.replay_request import (
    BatchAsked,
    BoundsAsked,
    MinutesAsked,
    RangesAsked,
    Request,
    TimesAsked,
    parse_ranges,
    parse_time,
)

# The fields that belong to each choice; any other filled-in field is an error, not ignored.
_WHERE: Final = ("topic", "partitions")
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "everything": _WHERE,
    "offsets": (*_WHERE, "from_offset", "until_offset"),
    "ranges": ("ranges",),
    "times": (*_WHERE, "since", "before"),
    "batch": ("batch_id",),
    "minutes": ("first_minute", "last_minute"),
}

Parsed = TypeVar("Parsed")

_PARTITIONS: Final = re.compile(r"\s*\d+(\s*[,\s]\s*\d+)*\s*")


def read_form(params: Mapping[str, Any]) -> Request:
    """The request of a filled-in form.

    Raises:
        ReplayRefusedError: A field is missing, has a wrong value or does not belong to the choice;
            names the field.
    """
    what = params["what"]
    given = {name: value for name, value in params.items() if value not in (None, "", [])}
    for name in sorted({n for names in _FIELDS.values() for n in names} - set(_FIELDS[what])):
        if name in given:
            raise ReplayRefusedError(
                f"{name} = {given[name]!r} does not belong to the choice {CHOICES[what]!r}",
                next_step="empty the field, or choose what it belongs to",
            )
    return _READERS[what](given)


def _everything(given: Mapping[str, Any]) -> Request:
    return BoundsAsked(topic=given.get("topic"), partitions=_numbers(given))


def _offsets(given: Mapping[str, Any]) -> Request:
    if not {"from_offset", "until_offset"} & given.keys():
        raise ReplayRefusedError(
            "neither from_offset nor until_offset is given",
            next_step=f"fill one in, or choose {CHOICES['everything']!r}",
        )
    return BoundsAsked(
        topic=given.get("topic"),
        partitions=_numbers(given),
        from_offset=given.get("from_offset"),
        until_offset=given.get("until_offset"),
    )


def _times(given: Mapping[str, Any]) -> Request:
    return TimesAsked(
        since=_moment(given, "since"),
        before=_moment(given, "before"),
        topic=given.get("topic"),
        partitions=_numbers(given),
    )


def _minutes(given: Mapping[str, Any]) -> Request:
    first = _required(given, "first_minute")
    return MinutesAsked(first=first, last=given.get("last_minute", first))


_READERS: Final[dict[str, Callable[[Mapping[str, Any]], Request]]] = {
    "everything": _everything,
    "offsets": _offsets,
    "ranges": lambda given: RangesAsked(
        ranges=_field("ranges", parse_ranges, _required(given, "ranges"))
    ),
    "times": _times,
    "batch": lambda given: BatchAsked(batch_id=int(_required(given, "batch_id"))),
    "minutes": _minutes,
}


def _required(given: Mapping[str, Any], name: str) -> Any:
    if name not in given:
        raise ReplayRefusedError(f"{name} is not given", next_step=f"fill in the field {name}")
    return given[name]


def _numbers(given: Mapping[str, Any]) -> tuple[int, ...]:
    text = str(given.get("partitions", ""))
    if text and not _PARTITIONS.fullmatch(text):
        raise ReplayRefusedError(
            f"partitions = {text!r} are not numbers", next_step="write them as 0, 3"
        )
    return tuple(sorted({int(number) for number in re.findall(r"\d+", text)}))


def _moment(given: Mapping[str, Any], name: str) -> datetime:
    return _field(name, partial(parse_time, assume_utc=True), _required(given, name))


def _field(name: str, parse: Callable[[str], Parsed], text: object) -> Parsed:
    """The value of a field.

    Raises:
        ReplayRefusedError: As ``parse``, with the field's name.
    """
    try:
        return parse(str(text))
    except ReplayRefusedError as error:
        raise ReplayRefusedError(f"{name}: {error.what}", next_step=error.next_step) from error
