"""The recount: live segments are counted again from Kafka and compared with the ledger.

A consistent ledger can still be wrong, and only the records show it. A batch finds the minute of
records in groups, a recount that of each record by itself: what is wrong with one way shows as a
difference. What Kafka no longer holds cannot be checked, nor what was counted under other rules
than today's; it is reported as unchecked, never as correct.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tally.aggregates.aggregate import Aggregate
from tally.aggregates.counts import CountRequest
from tally.aggregates.fingerprint import fingerprint
from tally.config.pipeline import Pipeline
from tally.errors import DataLossError
from tally.ledger.contributions import rows_of
from tally.ledger.decisions import LossRecord, find_losses
from tally.ledger.invariants import Violation
from tally.ledger.segments import (
    SegmentRecord,
    contributions_of,
    folded_ranges,
    live_segments,
    still_live,
)
from tally.ledger.tables import Tables, check_tables, tables_to_read
from tally.model import KafkaSnapshot, LossCause, OffsetRange, SegmentTotals, TopicPartition
from tally.pipeline.chunks import Chunk, join_segments, rounds, why_not_held
from tally.pipeline.context import Context, KafkaPort, Reader

Progress = Callable[[int, int], None]

Rows = dict[tuple[str, ...], tuple[int, ...]]
"""By minute and label values: lines, and bytes where they are measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unchecked:
    """A live or folded range that could not be recounted."""

    range: OffsetRange
    """The range."""
    cause: str
    """Why it could not."""
    by_other_rules: bool = False
    """Whether it was counted under other rules than today's, which is no fault."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recount:
    """What a recount has compared, and the violations that it found."""

    segments: int
    """Live segments that were recounted."""
    offsets: int
    """Offsets they span."""
    records: int
    """Records that Kafka holds in them."""
    violations: tuple[Violation, ...]
    """Differences; empty when Kafka and the ledger agree on all that was recounted."""
    unchecked: tuple[Unchecked, ...]
    """What could not be recounted; empty when all of the result is proven."""


@dataclass(slots=True)
class _Tally:
    segments: int = 0
    offsets: int = 0
    records: int = 0
    violations: list[Violation] = field(default_factory=list)
    unchecked: list[Unchecked] = field(default_factory=list)


def recount(ctx: Context, name: str, progress: Progress) -> Recount:
    """Recount every live segment that Kafka still holds, and compare it with the ledger.

    Batches and replays may run concurrently; segments that they replace are not compared.

    Args:
        ctx: What is needed from outside; a reader is opened only when there is something to read.
        name: The pipeline.
        progress: Called with the number of offsets done and of all.

    Raises:
        SchemaError: A label has no column yet.
        ConfigError: The pipeline has counted into another table.
        RetryableError: Kafka, MySQL or Spark did not answer.
        DataLossError: Spark could not read what Kafka says it holds.
    """
    pipeline = ctx.settings.pipeline(name)
    with ctx.database.transaction(read_only=True) as tx:
        segments = live_segments(tx, name)
        folded = folded_ranges(tx, name)
        losses = find_losses(tx, name)
        tables = tables_to_read(tx, pipeline)
        if segments:
            check_tables(tx, tables, pipeline)
    tally = _Tally(unchecked=[Unchecked(range=r, cause="pruned") for r in folded])
    snapshot = _snapshot(ctx.kafka, pipeline, segments)
    tally.violations += held_in_spite_of(losses, snapshot)
    held = _keep_held(pipeline, segments, snapshot, tally)
    total = sum(segment.range.offsets for segment in held)
    if held:
        done = 0
        with ctx.open_reader() as ranges:
            progress(done, total)
            reader = _Reader(ctx, pipeline, tables, ranges)
            for chunks in rounds(join_segments(held)):
                _count_round(reader, chunks, tally)
                done += sum(chunk.range.offsets for chunk in chunks)
                progress(done, total)
    return Recount(
        segments=tally.segments,
        offsets=tally.offsets,
        records=tally.records,
        violations=tuple(tally.violations),
        unchecked=tuple(tally.unchecked),
    )


def compare(
    chunk: Chunk,
    found: SegmentTotals,
    recounted: Rows,
    contributed: Rows,
    hint: str,
) -> Iterator[Violation]:
    """Every difference between what a chunk holds now and what it contributed.

    Args:
        chunk: Segments that were read as one.
        found: Totals of what Kafka holds in them.
        recounted: Rows of what Kafka holds.
        contributed: Rows of the ledger.
        hint: A harmless explanation of differences; empty without one.
    """
    for key in ("records", "unmatched", "malformed"):  # matched is the sum of the minutes
        expected, now = chunk.expected(key), getattr(found, key)
        if expected != now:
            yield _violation(
                chunk, key, f"the ledger says {expected} {key}, Kafka holds {now}", hint
            )
    for row in sorted(recounted.keys() | contributed.keys()):
        ours, theirs = contributed.get(row), recounted.get(row)
        if ours != theirs:
            said = f"the ledger says {_sums(ours)}, Kafka holds {_sums(theirs)}"
            yield _violation(chunk, " ".join(row), said, hint)


def _sums(sums: tuple[int, ...] | None) -> str:
    lines, *measured = sums or (0,)
    return str(lines) + "".join(f" ({length} bytes)" for length in measured)


class _Reader:
    """Reads chunks, and asks Kafka and the ledger what has changed meanwhile."""

    def __init__(self, ctx: Context, pipeline: Pipeline, tables: Tables, reader: Reader) -> None:
        self.pipeline = pipeline
        self._ctx = ctx
        self._tables = tables
        self._reader = reader

    def count(
        self, chunks: Sequence[Chunk]
    ) -> tuple[dict[TopicPartition, SegmentTotals], dict[TopicPartition, Rows]]:
        """Totals and rows of each chunk's partition."""
        rows: dict[TopicPartition, Rows] = {c.range.partition: {} for c in chunks}
        ranges = [chunk.range for chunk in chunks]
        request = CountRequest(pipeline=self.pipeline, ranges=ranges, is_recount=True)
        with self._reader.count(request) as counts:
            aggregate = Aggregate.of(self.pipeline)
            for partition, key, sums in rows_of(self._tables, aggregate, counts.contributions):
                rows[partition][key] = sums
            return counts.totals, rows

    def snapshot(self, chunks: Sequence[Chunk]) -> KafkaSnapshot:
        """What Kafka says of the chunks' topics now."""
        segments = [segment for chunk in chunks for segment in chunk.segments]
        return _snapshot(self._ctx.kafka, self.pipeline, segments)

    def contributed(self, chunk: Chunk) -> Rows | None:
        """Rows of a chunk in the ledger; None when one of its segments was replaced meanwhile."""
        with self._ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
            if len(still_live(tx, chunk.segment_ids)) < len(chunk.segments):
                return None
            return contributions_of(tx, self._tables, chunk.segment_ids)


def _count_round(reader: _Reader, chunks: list[Chunk], tally: _Tally) -> None:
    try:
        totals, rows = reader.count(chunks)
    except DataLossError:
        # Retention may have deleted records since Kafka was asked; what is left must be readable.
        left = _still_held(reader, chunks, tally)
        if len(left) == len(chunks):
            raise
        if left:
            _count_round(reader, left, tally)
        return
    for chunk in _still_held(reader, chunks, tally):
        contributed = reader.contributed(chunk)
        if contributed is None:
            cause = "replaced during the recount; run the audit again"
            tally.unchecked.append(Unchecked(range=chunk.range, cause=cause))
            continue
        partition = chunk.range.partition
        found = totals[partition]
        hint = "compaction may have removed records since" if reader.pipeline.is_sparse else ""
        tally.violations += compare(chunk, found, rows[partition], contributed, hint)
        tally.segments += len(chunk.segments)
        tally.offsets += chunk.range.offsets
        tally.records += found.records


def _still_held(reader: _Reader, chunks: Sequence[Chunk], tally: _Tally) -> list[Chunk]:
    """The chunks that Kafka still holds; the others are noted as unchecked."""
    snapshot = reader.snapshot(chunks)
    kept = []
    for chunk in chunks:
        causes = [c for segment in chunk.segments if (c := why_not_held(segment, snapshot))]
        if causes:
            tally.unchecked.append(Unchecked(range=chunk.range, cause=causes[0]))
        else:
            kept.append(chunk)
    return kept


def held_in_spite_of(losses: Sequence[LossRecord], kafka: KafkaSnapshot) -> Iterator[Violation]:
    """Records that were accepted as lost and that Kafka holds: nothing counts them."""
    for loss in losses:
        held = kafka.partition(loss.range.partition)
        topic = kafka.topics.get(loss.range.partition.topic)
        is_left_out = (loss.state, loss.cause) == ("accepted", LossCause.EXPIRED)
        if not is_left_out or held is None or topic is None or topic.topic_id != loss.topic_id:
            continue
        first = max(loss.range.from_offset, held.earliest)
        until = min(loss.range.until_offset, held.end)
        if first < until:
            yield Violation(
                check="recount",
                where=str(loss.range),
                detail=f"it was accepted as lost, and Kafka holds [{first}, {until}) of it: a "
                "replay counts that",
            )


def _keep_held(
    pipeline: Pipeline, segments: Sequence[SegmentRecord], kafka: KafkaSnapshot, tally: _Tally
) -> list[SegmentRecord]:
    held, now = [], fingerprint(pipeline)
    for segment in segments:
        cause = why_not_held(segment, kafka)
        by_other_rules = cause is None and segment.format_fingerprint != now
        if by_other_rules:
            cause = (
                f"counted under other rules than today's, {segment.format_fingerprint} by tally "
                f"{segment.committed_version}: a replay counts it by today's, {now}"
            )
        if cause is None:
            held.append(segment)
        else:
            gap = Unchecked(range=segment.range, cause=cause, by_other_rules=by_other_rules)
            tally.unchecked.append(gap)
    return held


def _snapshot(
    kafka: KafkaPort, pipeline: Pipeline, segments: Sequence[SegmentRecord]
) -> KafkaSnapshot:
    topics = {segment.range.partition.topic for segment in segments} or set(pipeline.topics)
    return kafka.snapshot(sorted(topics), read_committed=pipeline.reads_committed)


def _violation(chunk: Chunk, what: str, detail: str, hint: str) -> Violation:
    return Violation(
        check="recount",
        where=f"{chunk.range} {what}",
        detail=f"{detail} ({hint})" if hint else detail,
    )
