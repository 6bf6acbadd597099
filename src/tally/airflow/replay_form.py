"""The form of a replay: the fields that Airflow draws, and reading them as a request."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from airflow.sdk import Param

from tally.config.pipeline import Pipeline
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

REASON_MAX: Final = 1000

CHOICES: Final = {
    "everything": "Everything that Kafka still holds",
    "offsets": "A range of offsets",
    "ranges": "Several ranges of offsets",
    "times": "Records of a span of time",
    "batch": "What a batch has counted",
    "minutes": "Minutes of the result",
}

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

_PARTITIONS: Final = re.compile(r"\s*\d+(\s*[,\s]\s*\d+)*\s*")

Parsed = TypeVar("Parsed")


def form(pipeline: Pipeline) -> dict[str, Param]:
    """The fields, by name; the defaults request a preview of everything, for a reason."""
    return {
        # Without a named section: Airflow shows these fields open, and closes the named sections.
        "what": Param(
            "everything",
            type="string",
            enum=list(CHOICES),
            values_display=CHOICES,
            title="What",
            description="Fill in the section of the same name, and no other.",
        ),
        "dry_run": Param(
            True,
            type="boolean",
            title="Dry run",
            description="On: show what would be done, and change nothing. Off: reprocess it.",
        ),
        # Without a default: Airflow accepts no run before it is filled in. It validates each field
        # by itself, so that it cannot be required for a real run alone.
        "reason": Param(
            type="string",
            pattern=r"\S",
            maxLength=REASON_MAX,
            title="Reason",
            description="Why it must be reprocessed. Kept in the ledger with your name, unless it "
            "is a dry run.",
        ),
        **_optional_fields(pipeline),
    }


def _optional_fields(pipeline: Pipeline) -> dict[str, Param]:
    where = "Topic and partitions"
    _, offsets, ranges, times, batch, minutes = CHOICES.values()
    clock = "As Kafka stamped the record. A time without a zone is UTC."
    return {
        "topic": _optional(
            "Topic",
            "For everything, a range of offsets or a span of time. Empty: all.",
            where,
            examples=list(pipeline.topics),
        ),
        "partitions": _optional(
            "Partitions", "For the same choices. Numbers, such as 0, 3. Empty: all.", where
        ),
        "from_offset": _number(
            "From offset", "First offset. Empty: the first offset that Kafka still holds.", offsets
        ),
        "until_offset": _number(
            "Until offset",
            "First offset after the range. Empty: the committed offset.",
            offsets,
        ),
        "ranges": _optional(
            "Ranges",
            f"One per line. {pipeline.topics[0]}/0:300-310 is partition 0, offsets 300 until 310; "
            "310 itself is not read.",
            ranges,
            format="multiline",
        ),
        "since": _optional(
            "Since",
            f"The range begins with the first record at or after it. {clock}",
            times,
            format="date-time",
        ),
        "before": _optional(
            "Before",
            f"The range ends before the first record at or after it. {clock}",
            times,
            format="date-time",
        ),
        "batch_id": _number(
            "Batch", "Its number, as on the page Browse > Tally or in a run's XCom.", batch, 1
        ),
        "first_minute": _optional(
            "First minute", "On the lines' own clock, such as 2026-11-20 14:05.", minutes
        ),
        "last_minute": _optional(
            "Last minute", "Inclusive. Empty: only the first minute.", minutes
        ),
        "shown": _optional(
            "What was shown",
            "Filled in by Tally's pages, with `digest`, `asked` and `plan` of a preview: exactly "
            "that is reprocessed, or nothing. Leave it empty here.",
            "From a preview",
            "object",
        ),
    }


def _number(title: str, description: str, section: str, minimum: int = 0) -> Param:
    return _optional(title, description, section, "integer", minimum=minimum)


def _optional(
    title: str, description: str, section: str, kind: str = "string", **schema: Any
) -> Param:
    return Param(
        None,
        type=["null", kind],
        title=title,
        description=description,
        section=section,
        **schema,
    )


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
    match what:
        case "ranges":
            return RangesAsked(ranges=_read(given, "ranges", parse_ranges))
        case "times":
            time = partial(parse_time, assume_utc=True)
            since, before = (_read(given, name, time) for name in ("since", "before"))
            return TimesAsked(since=since, before=before, **_where(given))
        case "batch":
            return BatchAsked(batch_id=_read(given, "batch_id", int))
        case "minutes":
            first = _read(given, "first_minute", str)
            return MinutesAsked(first=first, last=given.get("last_minute", first))
    offsets = {name: given[name] for name in ("from_offset", "until_offset") if name in given}
    if what == "offsets" and not offsets:
        raise ReplayRefusedError(
            "neither from_offset nor until_offset is given",
            next_step=f"fill one in, or choose {CHOICES['everything']!r}",
        )
    return BoundsAsked(**_where(given), **offsets)


def _where(given: Mapping[str, Any]) -> dict[str, Any]:
    """The topic and the partitions, both may be left empty."""
    text = str(given.get("partitions", ""))
    if text and not _PARTITIONS.fullmatch(text):
        raise ReplayRefusedError(
            f"partitions = {text!r} are not numbers", next_step="write them as 0, 3"
        )
    numbers = {int(number) for number in re.findall(r"\d+", text)}
    return {"topic": given.get("topic"), "partitions": tuple(sorted(numbers))}


def _read(given: Mapping[str, Any], name: str, parse: Callable[[str], Parsed]) -> Parsed:
    """The value of a field that must be filled in.

    Raises:
        ReplayRefusedError: It is empty, or as ``parse``, with the field's name.
    """
    if name not in given:
        raise ReplayRefusedError(f"{name} is not given", next_step=f"fill in the field {name}")
    try:
        return parse(str(given[name]))
    except ReplayRefusedError as error:
        raise ReplayRefusedError(f"{name}: {error.what}", next_step=error.next_step) from error
