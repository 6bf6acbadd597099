"""The recount: live segments are counted again from Kafka and compared with the ledger.

A consistent ledger can still be wrong, and only the records show it. Each segment is compared by
itself: its counts, and its dead letters one by one. A batch finds the minute of records in groups,
a recount that of each record by itself: what is wrong with one way shows as a difference. What
Kafka no longer holds cannot be checked, nor what was counted under other rules than today's; it is
reported as unchecked, never as correct.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tally.aggregates.aggregate import Aggregate, fingerprint
from tally.aggregates.counts import CountRequest
from tally.audit.chunks import LETTERS_PER_RANGE, Chunk, join_segments, rounds, why_not_held
from tally.audit.differences import (
    Key,
    Letter,
    Letters,
    Rows,
    Sums,
    before_start,
    differences,
    held_in_spite_of,
    letter_differences,
    not_compared,
)
from tally.config.pipeline import Pipeline
from tally.context import Context, Reader
from tally.errors import DataLossError
from tally.formatting import plural
from tally.kafka.client import Kafka
from tally.ledger.contributions import rows_of
from tally.ledger.dead_letters import letters_of_segments
from tally.ledger.decisions import find_losses
from tally.ledger.invariants import Violation
from tally.ledger.positions import known_topics
from tally.ledger.records import (
    SegmentRecord,
    contributions_of,
    folded_segments,
    live_segments,
    still_live,
)
from tally.ledger.tables import Tables, check_tables, tables_to_read
from tally.model import KafkaSnapshot, OffsetRange, SegmentTotals

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Unchecked:
    """A live or folded range of which something could not be recounted."""

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
    before_start: tuple[OffsetRange, ...] = ()
    """What Kafka holds before the start offsets and no live segment has counted; no violation, as
    the ledger does not tell what the start was when counting began or a topic was adopted."""


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
        folded = [segment.range for segment in folded_segments(tx, name)]
        losses = find_losses(tx, name)
        known = known_topics(tx, name)
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
        before_start=tuple(before_start(known, snapshot, segments)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Held:
    """What a round's segments hold, in Kafka by their ranges or in the ledger by their ids."""

    totals: Mapping[Any, SegmentTotals]
    rows: Mapping[Any, Rows]
    letters: Mapping[Any, Letters]
    """Of Kafka without those of chunks that have too many."""


class _Reader:
    """Reads chunks, and asks Kafka and the ledger what has changed meanwhile."""

    def __init__(self, ctx: Context, pipeline: Pipeline, tables: Tables, reader: Reader) -> None:
        self.pipeline = pipeline
        self._ctx = ctx
        self._tables = tables
        self._reader = reader

    def count(self, chunks: Sequence[Chunk]) -> _Held:
        """What Kafka holds in each segment's range."""
        parts = [segment.range for chunk in chunks for segment in chunk.segments]
        rows: dict[OffsetRange, dict[Key, Sums]] = {part: {} for part in parts}
        request = CountRequest(
            pipeline=self.pipeline,
            ranges=[chunk.range for chunk in chunks],
            parts=parts,
            letters_max=LETTERS_PER_RANGE,
        )
        bytes_max = self.pipeline.dead_letter_max_bytes
        with self._reader.count(request) as counts:
            by_partition = {
                c.range.partition: c
                for c in chunks
                if c.has_few_letters
                and counts.totals[c.range.partition].malformed <= LETTERS_PER_RANGE
            }
            letters: dict[OffsetRange, dict[int, Letter]] = {
                s.range: {} for c in by_partition.values() for s in c.segments
            }
            aggregate = Aggregate.of(self.pipeline)
            for counted, key, sums in rows_of(self._tables, aggregate, counts.contributions):
                if counted.part is not None:
                    rows[counted.part][key] = sums
            for letter in counts.dead_letters:
                chunk = by_partition.get(letter.partition)
                if chunk is not None:
                    part = chunk.segment_at(letter.offset).range
                    letters[part][letter.offset] = Letter.of(letter, bytes_max)
            return _Held(totals=dict(counts.parts), rows=rows, letters=letters)

    def snapshot(self, chunks: Sequence[Chunk]) -> KafkaSnapshot:
        """What Kafka says of the chunks' topics now."""
        segments = [segment for chunk in chunks for segment in chunk.segments]
        return _snapshot(self._ctx.kafka, self.pipeline, segments)

    def contributed(self, chunk: Chunk) -> _Held | None:
        """What the ledger has of a chunk; None when one of its segments was replaced meanwhile."""
        ids = chunk.segment_ids
        letters: dict[int, dict[int, Letter]] = {segment_id: {} for segment_id in ids}
        with self._ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
            if len(still_live(tx, ids)) < len(ids):
                return None
            if chunk.has_few_letters:
                places = dict.fromkeys(ids, chunk.range.partition)
                for segment_id, letter in letters_of_segments(tx, places):
                    kept = Letter.of(letter, self.pipeline.dead_letter_max_bytes)
                    letters[segment_id][letter.offset] = kept
            rows = contributions_of(tx, self._tables, ids)
            return _Held(totals={}, rows=rows, letters=letters)


def _count_round(reader: _Reader, chunks: list[Chunk], tally: _Tally) -> None:
    try:
        held = reader.count(chunks)
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
        for segment in chunk.segments:
            _compare(reader, segment, held, contributed, tally)
        if chunk.segments[0].range not in held.letters:
            cause = f"more than {LETTERS_PER_RANGE:,} dead letters, which were only counted"
            tally.unchecked.append(Unchecked(range=chunk.range, cause=cause))


def _compare(
    reader: _Reader, segment: SegmentRecord, held: _Held, contributed: _Held, tally: _Tally
) -> None:
    where, key = segment.range, segment.segment_id
    found = held.totals[where]
    letters = held.letters.get(where)
    kept = {} if letters is None else contributed.letters[key]
    hint = "compaction may have removed records since" if reader.pipeline.is_sparse else ""
    measures = Aggregate.of(reader.pipeline).measures
    tally.violations += differences(
        segment, found, held.rows[where], contributed.rows[key], measures, hint
    )
    tally.violations += letter_differences(where, letters or {}, kept, hint)
    if short := not_compared(kept):
        cause = (
            f"{plural(short, 'dead letter')} kept with fewer bytes than dead_letter_max_bytes = "
            f"{reader.pipeline.dead_letter_max_bytes:,}, which were not compared"
        )
        tally.unchecked.append(Unchecked(range=where, cause=cause))
    tally.segments += 1
    tally.offsets += where.offsets
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


def _snapshot(kafka: Kafka, pipeline: Pipeline, segments: Sequence[SegmentRecord]) -> KafkaSnapshot:
    topics = {segment.range.partition.topic for segment in segments} or set(pipeline.topics)
    return kafka.snapshot(sorted(topics), read_committed=pipeline.reads_committed)
