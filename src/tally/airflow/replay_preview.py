"""What a replay would do, as Airflow stores and shows it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tally.airflow.replay_form import CHOICES
from tally.errors import PreviewOutdatedError, ReplayRefusedError
from tally.formatting import plural
from tally.model import OffsetRange
from tally.planning.replay import join_ranges
from tally.planning.replay_request import Request, format_range, parse_range, request_digest

if TYPE_CHECKING:  # DAG parsing must not import Kafka and MySQL
    from tally.context import Context
    from tally.replay.preview_view import PreviewView

COLUMNS: Final = ("partition", "reads", "offsets", "replaces", "never counted", "Kafka holds")
NUMBERS: Final = ("never counted", "offsets", "replaces")
"""Columns that hold numbers."""

_RANGES_NAMED: Final = 3
_ROWS_SHOWN: Final = 50


def show(
    ctx: "Context",
    name: str,
    request: Request,
    *,
    batches_max: int,
    seen: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What a replay would do, and whether it can be done, as :func:`shown_of`.

    Args:
        ctx: What is needed from outside.
        name: The pipeline.
        request: The request.
        batches_max: The largest number of tasks that one task may be mapped to.
        seen: ``digest``, ``asked`` and ``plan`` of an earlier preview of the request: exactly its
            ranges are meant, and it is refused when they would be read, replaced or counted
            otherwise by now.

    Raises:
        ReplayRefusedError: ``seen`` is not of a preview, or of one of another request.
    """
    from tally.replay.preview_view import preview

    ranges, plan = ((), None) if seen is None else _ranges_of(seen, request)
    view = preview(ctx, name, request, ranges)
    shown = shown_of(view, batches_max)
    if plan not in {None, shown["plan"]} and not shown["refused"]:
        shown["refused"] = str(PreviewOutdatedError(name, next_step="preview it again"))
    return shown


def _ranges_of(seen: Mapping[str, Any], request: Request) -> tuple[tuple[OffsetRange, ...], str]:
    """The ranges that an earlier preview of the request has shown, and its plan."""
    try:
        ranges = tuple(map(parse_range, seen["asked"]))
        plan, seen_digest = str(seen["plan"]), str(seen["digest"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ReplayRefusedError(
            "`shown` is not of a preview", next_step="leave it empty, or preview again"
        ) from error
    if seen_digest != request_digest(request):
        raise ReplayRefusedError(
            f"`shown` is of a preview of another request than {request}",
            next_step="leave it empty, or preview again",
        )
    return ranges, plan


def shown_of(view: "PreviewView", batches_max: int) -> dict[str, Any]:
    """A preview in plain values; everything but ``refused`` is empty when the form was refused.

    Args:
        view: What the replay would do.
        batches_max: The largest number of tasks that one task may be mapped to.
    """
    return {
        "request": view.request,  # as text
        "digest": view.digest,  # of the request
        "plan": view.plan,  # a digest of what would be read and replaced, batch by batch
        # The requested ranges, ``alog/0:300-310``, as Kafka and the ledger resolved them.
        "asked": [format_range(r) for r in view.asked],
        # A table of the ranges to read, and further facts, one sentence each.
        "columns": list(COLUMNS),
        "numbers": list(NUMBERS),
        "rows": _rows(view),
        "says": _sentences(view),
        "refused": _why_refused(view, batches_max),  # None when it can be done
    }


def refusal(why: str) -> dict[str, Any]:
    """The preview of a form that was refused."""
    empty: dict[str, Any] = dict.fromkeys(("request", "digest", "plan"), "")
    empty |= {key: [] for key in ("asked", "columns", "numbers", "rows", "says")}
    return {**empty, "refused": why}


def as_text(shown: Mapping[str, Any]) -> str:
    """A preview as text for the log, a line for each range."""
    ranges = [
        ", ".join(f"{heading} {cell}" for heading, cell in zip(COLUMNS, row, strict=True) if cell)
        for row in shown["rows"]
    ]
    refused = [shown["refused"]] if shown["refused"] else []
    return "\n".join([f"requested: {shown['request']}", *ranges, *shown["says"], *refused])


def _why_refused(view: "PreviewView", batches_max: int) -> str | None:
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
    return str(
        ReplayRefusedError(
            f"{len(view.batches):,} batches are more than the {batches_max:,} tasks "
            "that Airflow maps a task to",
            next_step="request less at a time, raise core.max_map_length, or: tally replay "
            f"{view.pipeline}",
        )
    )


def _rows(view: "PreviewView") -> list[list[str]]:
    more = len(view.read) - _ROWS_SHOWN
    rows = [
        [
            r.range.place,
            r.range.span,
            f"{r.range.offsets:,}",
            plural(r.segments_replaced, "segment"),
            f"{r.never_counted:,}",
            "nothing" if r.kafka_holds is None else r.kafka_holds.span,
        ]
        for r in view.read[:_ROWS_SHOWN]
    ]
    return rows + ([[f"and {more:,} more", "", "", "", "", ""]] if more > 0 else [])


def _sentences(view: "PreviewView") -> list[str]:
    """The facts of the preview; a widened request is shown as well."""
    facts = list(view.facts)
    if view.is_wider and view.batches:
        more = len(view.asked) - _RANGES_NAMED
        named = ", ".join(str(r) for r in view.asked[:_RANGES_NAMED])
        facts.append(("requested", named + (f" and {more} more" if more > 0 else "")))
    return [*(f"{name}: {fact}" if name else fact for name, fact in facts), *view.notes]
