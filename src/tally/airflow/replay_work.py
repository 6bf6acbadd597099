"""The work of a replay's tasks. Imports Kafka and MySQL: for running tasks only."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any, Final, Self

from tally.airflow.replay_fields import CHOICES
from tally.context import Context
from tally.errors import PreviewOutdatedError, ReplayRefusedError
from tally.formatting import continued, plural
from tally.ledger.batches import Requester
from tally.model import OffsetRange, TopicPartition
from tally.planning.replay import join_ranges
from tally.planning.replay_request import Request, format_range, parse_range, request_digest
from tally.replay.preview_view import PreviewView, ReadView, preview
from tally.replay.record import Requested, find_requested, request_shown
from tally.replay.run import ReplayOutcome
from tally.views import values_of

COLUMNS: Final = ("partition", "reads", "offsets", "replaces", "never counted", "Kafka holds")
NUMBERS: Final = ("never counted", "offsets", "replaces")
"""Columns that hold numbers."""

_NAME_MAX: Final = 60
_RANGES_NAMED: Final = 3
_ROWS_SHOWN: Final = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """A preview, as Airflow stores and shows it."""

    request: str
    """The request as text; empty when the form was refused."""
    digest: str
    """A digest of the request; empty when the form was refused."""
    asked: list[str]
    """The requested ranges, ``alog/0:300-310``, as Kafka and the ledger resolved them."""
    columns: list[str]
    """The table's headings."""
    numbers: list[str]
    """The headings of columns that hold numbers."""
    rows: list[list[str]]
    """The table: the ranges to read, one per line."""
    says: list[str]
    """Further facts, one sentence each."""
    refused: str | None
    """Why the replay cannot be done; None when it can."""
    plan: str
    """A digest of what would be read and replaced, batch by batch."""

    @classmethod
    def refusal(cls, why: str) -> Self:
        """A refused form, of which there is no preview."""
        nothing: dict[str, Any] = {key: [] for key in ("asked", "columns", "numbers", "rows")}
        return cls(request="", digest="", says=[], refused=why, plan="", **nothing)

    @classmethod
    def of(cls, view: PreviewView, *, batches_max: int) -> Self:
        """A preview in plain values.

        Args:
            view: What the replay would do.
            batches_max: The largest number of tasks that one task may be mapped to.
        """
        return cls(
            request=view.request,
            digest=view.digest,
            asked=[format_range(r) for r in view.asked],
            columns=list(COLUMNS),
            numbers=list(NUMBERS),
            rows=_rows(view.read),
            says=_sentences(view),
            refused=_why_refused(view, batches_max),
            plan=view.plan,
        )

    def to_xcom(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        """The preview as text for the log."""
        lines = [self.columns, *self.rows] if self.rows else []
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = [
            "  ".join(
                cell.rjust(width) if heading in self.numbers else cell.ljust(width)
                for heading, cell, width in zip(self.columns, line, widths, strict=True)
            ).rstrip()
            for line in lines
        ]
        refused = [self.refused] if self.refused else []
        return "\n".join([f"requested: {self.request}", *table, *self.says, *refused])


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """A replay that is recorded in the ledger."""

    replay_id: int
    """The ledger's key."""
    batches: list[dict[str, str]]
    """By batch: the id and the name of its task."""


def show(
    ctx: Context,
    name: str,
    request: Request,
    *,
    batches_max: int,
    seen: Mapping[str, Any] | None = None,
) -> Shown:
    """What a replay would do, and whether it can be done.

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
    if seen is None:
        view = preview(ctx, name, request)
        return Shown.of(view, batches_max=batches_max)
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
    view = preview(ctx, name, request, ranges)
    shown = Shown.of(view, batches_max=batches_max)
    outdated = None
    if shown.plan != plan:
        outdated = str(PreviewOutdatedError(name, next_step="preview it again"))
    return replace(shown, refused=shown.refused or outdated)


def find_written(ctx: Context, name: str, requester: Requester, digest: str) -> Written | None:
    """The replay that this run has recorded already; None when it has not."""
    found = find_requested(replace(ctx, requester=requester), name, digest)
    return None if found is None else _written(found)


def write_down(
    ctx: Context, name: str, shown: Mapping[str, Any], requester: Requester, reason: str
) -> Written:
    """Record the ranges that were shown, unless this run has done so already.

    Raises:
        PreviewOutdatedError: By now something else would be read or replaced. Nothing is written.
    """
    try:
        requested = request_shown(
            replace(ctx, requester=requester),
            name,
            request=str(shown["request"]),
            digest=str(shown["digest"]),
            asked=[parse_range(text) for text in shown["asked"]],
            plan=str(shown["plan"]),
            reason=reason,
        )
        return _written(requested)
    except PreviewOutdatedError as error:
        again = "trigger the DAG again: it shows what would be replaced now"
        raise PreviewOutdatedError(name, next_step=again) from error


def outcome_text(outcome: ReplayOutcome) -> str:
    """The outcome of a replay, in one line for the log."""
    return (
        f"replay {outcome.replay_id} is {outcome.state}: {outcome.committed} of "
        f"{plural(outcome.batches, 'batch')} committed, {plural(outcome.records, 'record')}, "
        f"{outcome.matched:,} matched in {plural(outcome.minutes, 'minute')}, "
        f"{outcome.malformed:,} malformed{continued(outcome.continuations)}; {_changed(outcome)}"
    )


def outcome_xcom(outcome: ReplayOutcome) -> dict[str, Any]:
    """The outcome of a replay, as plain values; the changes are None after they were pruned."""
    counts = ("records", "matched", "malformed", "continuations", "minutes")
    keys = ("replay_id", "batches", "committed", *counts)
    values = values_of(outcome)
    changes = outcome.changes
    return {
        **{key: values[key] for key in keys},
        "state": str(outcome.state),
        "changed": _changed(outcome),
        "minutes_changed": changes.minutes if changes else None,
        "lines_more": changes.lines_more if changes else None,
        "lines_fewer": changes.lines_fewer if changes else None,
    }


def _changed(outcome: ReplayOutcome) -> str:
    if outcome.changes is None:
        return "what it has changed is no longer known: it was pruned"
    return str(outcome.changes)


def _why_refused(view: PreviewView, batches_max: int) -> str | None:
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
    if len(view.batches) > batches_max:
        return str(
            ReplayRefusedError(
                f"{len(view.batches):,} batches are more than the {batches_max:,} tasks "
                "that Airflow maps a task to",
                next_step="request less at a time, raise core.max_map_length, or: tally replay "
                f"{view.pipeline}",
            )
        )
    return None


def _rows(read: Sequence[ReadView]) -> list[list[str]]:
    more = len(read) - _ROWS_SHOWN
    rest = [[f"and {more:,} more", "", "", "", "", ""]] if more > 0 else []
    return [_row(r) for r in read[:_ROWS_SHOWN]] + rest


def _row(r: ReadView) -> list[str]:
    return [
        r.range.place,
        r.range.span,
        f"{r.range.offsets:,}",
        plural(r.segments_replaced, "segment"),
        f"{r.never_counted:,}",
        "nothing" if r.kafka_holds is None else r.kafka_holds.span,
    ]


def _sentences(view: PreviewView) -> list[str]:
    """The facts of the preview; a widened request is shown as well."""
    wider = [("requested", _some([str(r) for r in view.asked]))] if view.is_wider else []
    facts = [*view.facts, *wider] if view.batches else []
    says = [f"{name}: {fact}" if name else fact for name, fact in facts]
    return [*says, *view.notes]


def _some(names: Sequence[str]) -> str:
    more = len(names) - _RANGES_NAMED
    return ", ".join(names[:_RANGES_NAMED]) + (f" and {more} more" if more > 0 else "")


def _written(requested: Requested) -> Written:
    return Written(
        replay_id=requested.replay_id,
        batches=[
            {
                "batch": str(b.batch_id),
                "batch_name": task_name(b.batch_id, [s.range for s in b.segments]),
            }
            for b in requested.batches
        ],
    )


def task_name(batch_id: int, ranges: Sequence[OffsetRange]) -> str:
    """``batch 23: 14,440 offsets of alog/0-3``: short, as Airflow's tables are narrow."""
    what = f"batch {batch_id}: {plural(sum(r.offsets for r in ranges), 'offset')} of "
    partitions = sorted({r.partition for r in ranges})
    named = what + ", ".join(_runs(partitions))
    return named if len(named) < _NAME_MAX else what + plural(len(partitions), "partition")


def _runs(partitions: Sequence[TopicPartition]) -> Iterator[str]:
    """``alog/0-3``, ``alog/7``: adjacent partitions of a topic are joined."""
    # Partition minus position in the list is the same for all partitions of a run.
    far = enumerate(partitions)
    for _, run in groupby(far, key=lambda at: (at[1].topic, at[1].partition - at[0])):
        first, *others = [partition for _, partition in run]
        yield f"{first}-{others[-1].partition}" if others else str(first)
