"""The form of a replay, filled in: the request that it means."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from tally.airflow.replay_fields import CHOICES
from tally.errors import ReplayRefusedError
from tally.model import OffsetRange, TopicPartition
from tally.planning.replay_request import (
    BatchAsked,
    BoundsAsked,
    MinutesAsked,
    RangesAsked,
    Request,
    TimesAsked,
)

# Which fields belong to which choice; what is filled in beside them is a mistake, not ignored.
_WHERE: Final = ("topic", "partitions")
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "everything": _WHERE,
    "offsets": (*_WHERE, "from_offset", "until_offset"),
    "ranges": ("ranges",),
    "times": (*_WHERE, "since", "before"),
    "batch": ("batch_id",),
    "minutes": ("first_minute", "last_minute"),
}

_RANGE: Final = re.compile(r"(?P<topic>\S+)/(?P<partition>\d+)\s*:\s*(?P<a>\d+)\s*-\s*(?P<b>\d+)")
_PARTITIONS: Final = re.compile(r"\s*\d+(\s*[,\s]\s*\d+)*\s*")


def read_form(params: Mapping[str, Any]) -> Request:
    """What a filled-in form asks for.

    Raises:
        ReplayRefusedError: A field is missing, is not what it should be or does not belong to the
            choice; with its name.
    """
    what = params["what"]
    given = {name: value for name, value in params.items() if value not in (None, "", [])}
    for name in sorted({n for names in _FIELDS.values() for n in names} - set(_FIELDS[what])):
        if name in given:
            raise ReplayRefusedError(
                f"{name} = {given[name]!r} does not belong to the choice {CHOICES[what]!r}",
                next_step="empty it, or choose what it belongs to",
            )
    return _READERS[what](given)


def read_reason(params: Mapping[str, Any]) -> str:
    """Why it is asked for.

    Raises:
        ReplayRefusedError: No reason is given.
    """
    reason = str(params.get("reason") or "").strip()
    if not reason:
        raise ReplayRefusedError(
            "a replay needs a reason, which is kept in the ledger",
            next_step="fill in the field Reason",
        )
    return reason


def read_ranges(text: str) -> RangesAsked:
    """Ranges from lines ``alog/0:300-310``.

    Raises:
        ReplayRefusedError: A line is something else; with its number.
    """
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1)]
    return RangesAsked(ranges=tuple(_range(number, line) for number, line in lines if line))


def write_range(r: OffsetRange) -> str:
    """A range as :func:`read_ranges` reads it."""
    return f"{r.partition}:{r.from_offset}-{r.until_offset}"


def _range(number: int, line: str) -> OffsetRange:
    found = _RANGE.fullmatch(line)
    if found is None or int(found["a"]) >= int(found["b"]):
        raise ReplayRefusedError(
            f"ranges, line {number}: {line!r} is no range",
            next_step="write topic/partition:from-until, such as alog/0:300-310, from < until",
        )
    partition = TopicPartition(topic=found["topic"], partition=int(found["partition"]))
    return OffsetRange(
        partition=partition, from_offset=int(found["a"]), until_offset=int(found["b"])
    )


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
    "ranges": lambda given: read_ranges(_required(given, "ranges")),
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
            f"partitions = {text!r} are no numbers", next_step="write them as 0, 3"
        )
    return tuple(sorted({int(number) for number in re.findall(r"\d+", text)}))


def _moment(given: Mapping[str, Any], name: str) -> datetime:
    text = str(_required(given, name))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ReplayRefusedError(
            f"{name} = {text!r} is no time", next_step="write it as 2026-11-20T14:05:00Z"
        ) from None

    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
