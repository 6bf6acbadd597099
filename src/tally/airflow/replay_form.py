"""The form of a replay: the fields that Airflow draws, the request that they make, its preview."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from airflow.sdk import Param

from tally.config.pipeline import Pipeline
from tally.errors import PreviewOutdatedError, ReplayRefusedError
from tally.formatting import REASON_MAX, first_of, plural
from tally.planning import replay_request
from tally.planning.replay import join_ranges
from tally.planning.replay_request import BoundsAsked, Request, TimesAsked, format_range

if TYPE_CHECKING:  # DAG parsing must not import Kafka and MySQL
    from tally.context import Context
    from tally.replay.preview import Preview
    from tally.replay.trial import Trial

CHOICES: Final = {
    "everything": "Everything that Kafka still holds",
    "offsets": "A range of offsets",
    "ranges": "Several ranges of offsets",
    "times": "Records of a span of time",
    "batch": "What a batch has counted",
    "minutes": "Minutes of the result",
}

# The section of several choices; each other one is that of a choice. What is filled in in the
# section of another choice is an error, not ignored.
_WHERE: Final = "Topic and partitions"
_PLACED: Final = frozenset({"everything", "offsets", "times"})
_SHOWN: Final = "From a preview"
_OFFSET: Final = {"type": ["null", "integer"], "minimum": 0}
_BATCH: Final = {"type": ["null", "integer"], "minimum": 1, "title": "Batch"}
_TIME: Final = {"format": "date-time"}
_PREVIEW: Final = {
    "type": ["null", "object"],
    "title": "What was shown",
    "properties": {
        "digest": {"type": "string"},
        "asked": {"type": "array", "items": {"type": "string"}},
        "plan": {"type": "string"},
    },
    "required": ["digest", "asked", "plan"],
}

# By section and name what is said of each further field, and its schema where it is not a text.
_FIELDS: Final[Mapping[str, Mapping[str, tuple[str, Mapping[str, Any]]]]] = {
    _WHERE: {
        "topic": ("For everything, a range of offsets or a span of time. Empty: all.", {}),
        "partitions": ("For the same choices. Numbers, such as 0, 3. Empty: all.", {}),
    },
    CHOICES["offsets"]: {
        "from_offset": ("First offset. Empty: the first offset that Kafka still holds.", _OFFSET),
        "until_offset": ("First offset after the range. Empty: the committed offset.", _OFFSET),
    },
    CHOICES["ranges"]: {
        "ranges": (
            "One per line. {topic}/0:300-310 is partition 0, offsets 300 until 310, without 310.",
            {"format": "multiline"},
        ),
    },
    CHOICES["times"]: {
        "since": ("The range begins with the first record at or after it. {clock}", _TIME),
        "before": ("The range ends before the first record at or after it. {clock}", _TIME),
    },
    CHOICES["batch"]: {
        "batch_id": ("Its number, as on the page Browse > Tally or in a run's XCom.", _BATCH),
    },
    CHOICES["minutes"]: {
        "first_minute": ("On the lines' own clock, such as 2026-11-20 14:05.", {}),
        "last_minute": ("Inclusive. Empty: only the first minute.", {}),
    },
    _SHOWN: {
        "shown": (
            (
                "Filled in by Tally's pages, with `digest`, `asked` and `plan` of a preview: "
                "exactly that is reprocessed, or nothing. Leave it empty here."
            ),
            _PREVIEW,
        ),
    },
}

_PARTITIONS: Final = re.compile(r"\s*\d+(\s*[,\s]\s*\d+)*\s*")

COLUMNS: Final = ("partition", "reads", "offsets", "replaces", "never counted", "Kafka holds")

_RANGES_NAMED: Final = 3
_ROWS_SHOWN: Final = 50

Parsed = TypeVar("Parsed")


def form(pipeline: Pipeline) -> dict[str, Param]:
    """The fields, by name; the defaults request a preview of everything, for a reason."""
    fields = {
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
    }
    clock = "As Kafka stamped the record. A time without a zone is UTC."
    for section, its_fields in _FIELDS.items():
        for name, (text, schema) in its_fields.items():
            usual = {"type": ["null", "string"], "title": name.replace("_", " ").capitalize()}
            said = text.format(topic=pipeline.topics[0], clock=clock)
            fields[name] = Param(None, description=said, section=section, **(usual | dict(schema)))
    fields["topic"].schema["examples"] = list(pipeline.topics)
    return fields


def read_form(params: Mapping[str, Any]) -> Request:
    """The request of a filled-in form.

    Raises:
        ReplayRefusedError: A field is missing, has a wrong value or does not belong to the choice;
            names the field.
    """
    what = params["what"]
    given = {name: value for name, value in params.items() if value not in (None, "", [])}
    used = {CHOICES[what], _SHOWN} | ({_WHERE} if what in _PLACED else set())
    unused = [name for section in _FIELDS.keys() - used for name in _FIELDS[section]]
    for name in sorted(given.keys() & set(unused)):
        raise ReplayRefusedError(
            f"{name} = {given[name]!r} does not belong to the choice {CHOICES[what]!r}",
            next_step="empty the field, or choose what it belongs to",
        )
    match what:
        case "ranges":
            ranges = _read(given, "ranges", replay_request.parse_ranges)
            return replay_request.RangesAsked(ranges=ranges)
        case "times":
            time = partial(replay_request.parse_time, assume_utc=True)
            since, before = (_read(given, name, time) for name in ("since", "before"))
            return TimesAsked(since=since, before=before, **_where(given))
        case "batch":
            return replay_request.BatchAsked(batch_id=_read(given, "batch_id", int))
        case "minutes":
            first = _read(given, "first_minute", str)
            last = given.get("last_minute", first)
            return replay_request.MinutesAsked(first=first, last=last)
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


# --- what the request would do, as Airflow stores and shows it


def show(
    ctx: "Context",
    name: str,
    request: Request,
    *,
    batches_max: int,
    seen: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What a replay would do, and whether it can be done, in plain values.

    Args:
        ctx: What is needed from outside.
        name: The pipeline.
        request: The request.
        batches_max: The largest number of tasks that one task may be mapped to.
        seen: ``digest``, ``asked`` and ``plan`` of an earlier preview of the request: exactly its
            ranges are meant, and it is refused when they would be read, replaced or counted
            otherwise by now.

    Raises:
        ReplayRefusedError: ``seen`` is of a preview of another request.
    """
    from tally.replay.preview import preview
    from tally.replay.trial import Trial

    if seen and seen["digest"] != replay_request.request_digest(request):
        raise ReplayRefusedError(
            f"`shown` is of a preview of another request than {request}",
            next_step="leave it empty, or preview again",
        )
    ranges = tuple(map(replay_request.parse_range, seen["asked"])) if seen else ()
    view = preview(ctx, name, request, ranges)
    refused = _why_refused(view, batches_max)
    if seen and seen["plan"] != view.plan and not refused:
        refused = str(PreviewOutdatedError(name, next_step="preview it again"))
    return {
        "request": view.request,  # as text
        "digest": view.digest,  # of the request
        "plan": view.plan,  # a digest of what would be read and replaced, batch by batch
        # The requested ranges, ``alog/0:300-310``, as Kafka and the ledger resolved them.
        "asked": [format_range(r) for r in view.asked],
        # A table of the ranges to read, and further facts, one sentence each.
        "columns": list(COLUMNS),
        "rows": _rows(view),
        # What runs was tried when it was shown first.
        "says": _sentences(view, None if seen else Trial.of(ctx, view)),
        "refused": refused,  # None when it can be done
    }


def as_text(shown: Mapping[str, Any]) -> str:
    """A preview as text for the log, a line for each range."""
    ranges = [
        ", ".join(f"{heading} {cell}" for heading, cell in zip(COLUMNS, row, strict=True) if cell)
        for row in shown["rows"]
    ]
    refused = [shown["refused"]] if shown["refused"] else []
    return "\n".join([f"requested: {shown['request']}", *ranges, *shown["says"], *refused])


def _why_refused(view: "Preview", batches_max: int) -> str | None:
    try:
        view.check_possible()
    except ReplayRefusedError as error:
        if view.possible:
            possible = join_ranges(view.possible, touching=True)
            ranges = "; ".join(map(format_range, possible))
            error.next_step = (
                f"for what can be reprocessed of it, choose {CHOICES['ranges']!r} and fill in the "
                f"field Ranges: {ranges}"
            )
        return str(error)
    if len(view.batches) <= batches_max:
        return None
    too_many = ReplayRefusedError(
        f"{len(view.batches):,} batches are more than the {batches_max:,} tasks that Airflow maps "
        "a task to",
        next_step="request less at a time, raise core.max_map_length, or: tally replay "
        f"{view.pipeline}",
    )
    return str(too_many)


def _rows(view: "Preview") -> list[list[str]]:
    more = len(view.read) - _ROWS_SHOWN
    rows = [
        [
            r.range.place,
            r.range.span,
            f"{r.range.offsets:,}",
            plural(r.segments_replaced, "segment"),
            f"{r.never_counted:,}",
            str(r.kafka_holds or "nothing"),
        ]
        for r in view.read[:_ROWS_SHOWN]
    ]
    return rows + ([[f"and {more:,} more", "", "", "", "", ""]] if more > 0 else [])


def _sentences(view: "Preview", trial: "Trial | None") -> list[str]:
    """The facts of the preview; a widened request is shown as well."""
    facts = list(view.facts)
    if trial is not None and view.batches:
        facts.append(("tried", str(trial)))
    if view.is_wider and view.batches:
        facts.append(("requested", first_of(view.asked, _RANGES_NAMED)))
    return [*(f"{name}: {fact}" if name else fact for name, fact in facts), *view.notes]
