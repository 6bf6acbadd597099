"""What a replay's tasks ask of Tally, as plain values. For running tasks only, as ``work`` is."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any, Final, Self

from tally.airflow.replay_form import read_ranges, write_range
from tally.errors import ReplayRefusedError
from tally.formatting import plural
from tally.ledger.batches import Requester
from tally.ledger.reading import segments_of
from tally.ledger.replacements import changes_of
from tally.ledger.replay_runs import find_replay_of_run, totals_of
from tally.ledger.replays import find_replay
from tally.model import OffsetRange, ReplayState, TopicPartition
from tally.mysql.transactions import Transaction
from tally.pipeline.context import Context
from tally.pipeline.replay import request_replay
from tally.pipeline.replay_plan import Preview, check_possible, preview_replay
from tally.planning.replay import ReplayPlan
from tally.planning.replay_request import Request

# Columns of the preview that hold numbers.
NUMBERS: Final = frozenset({"offsets", "replaces", "never counted"})

_NAME_MAX: Final = 60
_RANGES_NAMED: Final = 3
_ROWS_SHOWN: Final = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """A preview, as Airflow stores and shows it."""

    request: str
    """What was asked for, in words; empty when the request was none."""
    digest: str
    """Tells this request from another; empty when the request was none."""
    asked: list[str]
    """The same as ranges, ``alog/0:300-310``: what Kafka and the ledger made of it."""
    columns: list[str]
    """The table's headings."""
    numbers: list[str]
    """Those of columns that hold numbers."""
    rows: list[list[str]]
    """The table: what is read, a range a line."""
    says: list[str]
    """What else there is to know, in sentences."""
    refused: str | None
    """Why it cannot be done; None when it can."""
    plan: str
    """A digest of what would be read and replaced, batch by batch."""

    @classmethod
    def refusal(cls, why: str) -> Self:
        """Of a request that could not even be looked at."""
        nothing: dict[str, Any] = {key: [] for key in ("asked", "columns", "numbers", "rows")}
        return cls(request="", digest="", says=[], refused=why, plan="", **nothing)

    @classmethod
    def of(cls, preview: Preview, *, batches_max: int) -> Self:
        """Of a preview.

        Args:
            preview: What the replay would do.
            batches_max: How many tasks one task may be mapped to.
        """
        return cls(
            request=preview.request,
            digest=preview.digest,
            asked=[write_range(r) for r in preview.plan.asked],
            columns=["partition", "reads", "offsets", "replaces", "never counted", "Kafka holds"],
            numbers=sorted(NUMBERS),
            rows=_rows(preview),
            says=_sentences(preview),
            refused=_why_refused(preview, batches_max),
            plan=_digest(preview.plan),
        )

    def to_xcom(self) -> dict[str, Any]:
        """As a plain dictionary."""
        return asdict(self)

    def __str__(self) -> str:
        """For the log."""
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
        return "\n".join([f"asked for: {self.request}", *table, *self.says, *refused])


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """A replay that stands in the ledger."""

    replay_id: int
    """The ledger's key."""
    batches: list[dict[str, str]]
    """What a task is made of for each: its number and its name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayOutcome:
    """What became of a replay."""

    replay_id: int
    """The ledger's key."""
    state: str
    """``open``, ``done`` or ``cancelled``."""
    batches: int
    """Batches of it that were not given up."""
    committed: int
    """Batches that are part of the result."""
    records: int
    """Records read."""
    matched: int
    """Lines counted."""
    malformed: int
    """Records that could not be understood."""
    minutes: int
    """Minutes that its batches have counted lines for."""
    changed: str
    """What it has changed in the result so far, in words."""
    minutes_changed: int | None
    """Minutes that count more or fewer lines than before; None when it is not known any more,
    because some of that was pruned, as are the next two."""
    lines_more: int | None
    """Lines that minutes gained."""
    lines_fewer: int | None
    """Lines that minutes lost."""

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return self.state == ReplayState.DONE

    def to_xcom(self) -> dict[str, Any]:
        """As a plain dictionary."""
        return asdict(self)

    def __str__(self) -> str:
        """One line for the log."""
        return (
            f"replay {self.replay_id} is {self.state}: {self.committed} of {self.batches} batches "
            f"committed, {self.records:,} records, {self.matched:,} counted in {self.minutes:,} "
            f"minutes, {self.malformed:,} malformed; {self.changed}"
        )


def show(ctx: Context, name: str, request: Request, *, batches_max: int) -> Shown:
    """What a replay would do, and whether it can be done.

    Args:
        ctx: What is needed from outside.
        name: The pipeline.
        request: What is asked for.
        batches_max: How many tasks one task may be mapped to.
    """
    return Shown.of(preview_replay(ctx, name, request), batches_max=batches_max)


def find_written(ctx: Context, name: str, requester: Requester, digest: str) -> Written | None:
    """What this run has written down already, None when it has not."""
    with ctx.database.transaction(read_only=True) as tx:
        found = find_replay_of_run(tx, name, requester, digest)
        return None if found is None else _written(tx, *found)


def write_down(
    ctx: Context, name: str, shown: dict[str, Any], requester: Requester, reason: str
) -> Written:
    """Write down the ranges that were shown, unless this run has done so already.

    Raises:
        ReplayRefusedError: By now something else would be read or replaced. Nothing is written.
    """
    request = str(shown["request"])
    asked = read_ranges("\n".join(shown["asked"]))
    preview = preview_replay(ctx, name, asked)
    preview = replace(preview, request=request, digest=str(shown["digest"]))
    if _digest(preview.plan) != shown["plan"]:
        raise ReplayRefusedError(
            f"pipeline {name}: what would be replaced is not what you saw any more",
            next_step="trigger the DAG again: it shows what would be replaced now",
        )
    requested = request_replay(replace(ctx, requester=requester), preview, reason=reason)
    with ctx.database.transaction(read_only=True) as tx:
        return _written(tx, requested.replay_id, requested.batch_ids)


def outcome(ctx: Context, replay_id: int) -> ReplayOutcome:
    """What became of a replay."""
    with ctx.database.transaction(read_only=True) as tx:
        replay = find_replay(tx, replay_id)
        totals = totals_of(tx, replay_id)
        changes = changes_of(tx, replay_id)
    return ReplayOutcome(
        replay_id=replay_id,
        state=str(replay.state),
        batches=replay.batches,
        committed=replay.committed,
        records=totals.records,
        matched=totals.matched,
        malformed=totals.malformed,
        minutes=totals.minutes,
        changed="what it has changed is not known any more: it was pruned"
        if changes is None
        else str(changes),
        minutes_changed=changes.minutes if changes else None,
        lines_more=changes.more if changes else None,
        lines_fewer=changes.fewer if changes else None,
    )


def _digest(plan: ReplayPlan) -> str:
    read = [[[str(piece.range), *piece.replaces] for piece in batch] for batch in plan.batches]
    return hashlib.sha256(json.dumps(read).encode()).hexdigest()


def _why_refused(preview: Preview, batches_max: int) -> str | None:
    try:
        check_possible(preview)
    except ReplayRefusedError as error:
        return str(error)
    if len(preview.plan.batches) > batches_max:
        return str(
            ReplayRefusedError(
                f"{len(preview.plan.batches):,} batches are more than the {batches_max:,} tasks "
                "that Airflow maps a task to",
                next_step="ask for less at a time, raise core.max_map_length, or: tally replay "
                f"{preview.pipeline}",
            )
        )
    return None


def _rows(preview: Preview) -> list[list[str]]:
    widened = preview.plan.widened
    rows = [_row(preview, r) for r in widened[:_ROWS_SHOWN]]
    if more := len(widened) - _ROWS_SHOWN:
        rows += [[f"and {more:,} more", "", "", "", "", ""]] if more > 0 else []
    return rows


def _row(preview: Preview, wide: OffsetRange) -> list[str]:
    pieces = [
        piece
        for piece in preview.plan.pieces
        if piece.range.partition == wide.partition
        and wide.from_offset <= piece.range.from_offset < wide.until_offset
    ]
    held = preview.held.get(wide.partition)
    return [
        str(wide.partition),
        f"[{wide.from_offset}, {wide.until_offset})",
        f"{wide.offsets:,}",
        plural(sum(len(piece.replaces) for piece in pieces), "segment"),
        f"{sum(piece.uncounted for piece in pieces):,}",
        "nothing" if held is None else f"[{held[0]}, {held[1]})",
    ]


def _sentences(preview: Preview) -> list[str]:
    plan, says = preview.plan, []
    if plan.batches and plan.is_wider:
        says.append(
            "A segment is replaced whole, so more is read than was asked for; asked for: "
            f"{_some([str(r) for r in plan.asked])}."
        )
    if plan.batches:
        says.append(
            f"{plural(len(plan.batches), 'batch')}, "
            f"{plural(preview.offsets, 'offset')}: {plural(len(plan.replaces), 'segment')} to be "
            f"replaced, {plural(preview.uncounted, 'offset')} never counted."
        )
    if preview.minutes:
        says.append(
            f"What is replaced has counted lines for {plural(preview.minutes, 'minute')}, "
            f"{preview.first_minute} to {preview.last_minute}; these may change, and others may "
            "gain lines."
        )
    if plan.batches:
        says.append(f"Lines are counted by the rules of now: {preview.rules}.")
    if plan.batches and preview.seconds is not None:
        says.append(f"By the pace of earlier batches it takes about {preview.seconds:,.0f} s.")
    return says + list(preview.notes)


def _some(names: Sequence[str]) -> str:
    more = len(names) - _RANGES_NAMED
    return ", ".join(names[:_RANGES_NAMED]) + (f" and {more} more" if more > 0 else "")


def _written(tx: Transaction, replay_id: int, batch_ids: Sequence[int]) -> Written:
    return Written(
        replay_id=replay_id,
        batches=[{"batch": str(number), "batch_name": _name(tx, number)} for number in batch_ids],
    )


def _name(tx: Transaction, batch_id: int) -> str:
    return task_name(batch_id, [segment.range for segment in segments_of(tx, batch_id)])


def task_name(batch_id: int, ranges: Sequence[OffsetRange]) -> str:
    """``batch 23: 14,440 offsets of alog/0-3``: short, as Airflow's tables are narrow."""
    what = f"batch {batch_id}: {plural(sum(r.offsets for r in ranges), 'offset')} of "
    partitions = sorted({r.partition for r in ranges})
    named = what + ", ".join(_runs(partitions))
    return named if len(named) < _NAME_MAX else what + plural(len(partitions), "partition")


def _runs(partitions: Sequence[TopicPartition]) -> Iterator[str]:
    """``alog/0-3``, ``alog/7``: neighbours of a topic as one."""
    # Neighbours are as far from each other as they are in the list.
    far = enumerate(partitions)
    for _, run in groupby(far, key=lambda at: (at[1].topic, at[1].partition - at[0])):
        first, *others = [partition for _, partition in run]
        yield f"{first}-{others[-1].partition}" if others else str(first)
