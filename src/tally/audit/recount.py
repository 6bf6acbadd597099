"""The recount: live segments are counted again from Kafka and compared with the ledger.

A consistent ledger can still be wrong, and only the records show it. Each segment is compared by
itself: its counts, and its dead letters one by one. A batch finds the minute of records in groups,
a recount that of each record by itself: what is wrong with one way shows as a difference. What
Kafka no longer holds cannot be checked, nor what was counted under other rules than today's; it is
reported as unchecked, never as correct.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tally.aggregates.aggregate import Aggregate, fingerprint
from tally.aggregates.counts import CountRequest
from tally.audit import differences
from tally.audit.chunks import (
    LETTERS_PER_RANGE,
    SEGMENTS_PER_RANGE,
    Chunk,
    comparable_at_once,
    join_segments,
    rounds,
    why_not_held,
)
from tally.audit.differences import Key, Letter, Letters, Rows, Sums
from tally.config.pipeline import Pipeline
from tally.context import Context, Reader
from tally.errors import DataLossError
from tally.formatting import plural
from tally.ledger import records
from tally.ledger.contributions import contributions_of, rows_of
from tally.ledger.dead_letters import letters_of_segments
from tally.ledger.decisions import find_losses
from tally.ledger.invariants import Violation
from tally.ledger.positions import known_topics
from tally.ledger.records import SegmentRecord
from tally.ledger.tables import Tables, check_tables, tables_to_read
from tally.model import KafkaSnapshot, OffsetRange, SegmentState, SegmentTotals

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
    """The recount of the live segments from Kafka."""

    complete: bool
    """Whether the whole result was recounted."""
    segments: int
    """Live segments that were recounted."""
    offsets: int
    """Offsets that they span."""
    records: int
    """Records that Kafka holds in them."""
    not_checkable: tuple[Unchecked, ...]
    """The live ranges of which something could not be recounted."""
    before_start: tuple[OffsetRange, ...]
    """What Kafka holds before the start offsets."""

    @property
    def unchecked_offsets(self) -> list[tuple[str, int]]:
        """How many offsets could not be recounted, by partition and cause; sorted."""
        offsets: Counter[str] = Counter()
        for unchecked in self.not_checkable:
            offsets[f"{unchecked.range.place}: {unchecked.cause}"] += unchecked.range.offsets
        return sorted(offsets.items())


def recount(ctx: Context, name: str, progress: Progress) -> tuple[Recount, list[Violation]]:
    """Recount every live segment that Kafka still holds, and compare it with the ledger.

    Batches and replays may run concurrently; segments that they replace are not compared.

    Args:
        ctx: What is needed from outside; a reader is opened only when there is something to read.
        name: The pipeline.
        progress: Called with the number of offsets done and of all.

    Returns:
        What was compared, and the violations that it found.

    Raises:
        SchemaError: A label has no column yet.
        ConfigError: The pipeline has counted into another table.
        RetryableError: Kafka, MySQL or Spark did not answer.
        DataLossError: Spark could not read what Kafka says it holds.
    """
    pipeline = ctx.settings.pipeline(name)
    with ctx.database.transaction(read_only=True) as tx:
        segments = records.segments_in(tx, name, SegmentState.LIVE)
        folded = [s.range for s in records.segments_in(tx, name, SegmentState.FOLDED)]
        losses = find_losses(tx, name)
        known = known_topics(tx, name)
        tables = tables_to_read(tx, pipeline)
        if segments:
            check_tables(tx, tables, pipeline)
    found = _Recounting(ctx, pipeline, tables)
    for r in folded:
        found.leave(r, "pruned")
    snapshot = found.snapshot(segments)
    found.violations += differences.held_in_spite_of(losses, snapshot)
    held = found.comparable(segments, snapshot)
    total = sum(segment.range.offsets for segment in held)
    if held:
        done = 0
        with ctx.open_reader() as reader:
            progress(done, total)
            for chunks in rounds(join_segments(held)):
                found.count(reader, chunks)
                done += sum(chunk.range.offsets for chunk in chunks)
                progress(done, total)
    return found.result(differences.before_start(known, snapshot, segments)), found.violations


@dataclass(frozen=True, kw_only=True, slots=True)
class _Held:
    """What a round's segments hold, in Kafka by their ranges or in the ledger by their ids."""

    totals: Mapping[Any, SegmentTotals]
    rows: Mapping[Any, Rows]
    letters: Mapping[Any, Letters]
    """Of Kafka without those of chunks that have too many."""


class _Recounting:
    """What was compared so far."""

    def __init__(self, ctx: Context, pipeline: Pipeline, tables: Tables) -> None:
        self._ctx = ctx
        self._pipeline = pipeline
        self._tables = tables
        self._aggregate = Aggregate.of(pipeline)
        self._segments = self._offsets = self._records = 0
        self._unchecked: list[Unchecked] = []
        self.violations: list[Violation] = []
        """Differences."""

    def result(self, before_start: Sequence[OffsetRange]) -> Recount:
        """The recount."""
        return Recount(
            complete=not self._unchecked,
            segments=self._segments,
            offsets=self._offsets,
            records=self._records,
            not_checkable=tuple(self._unchecked),
            before_start=tuple(before_start),
        )

    def leave(self, where: OffsetRange, cause: str, *, by_other_rules: bool = False) -> None:
        """Note that something of a range cannot be recounted."""
        gap = Unchecked(range=where, cause=cause, by_other_rules=by_other_rules)
        self._unchecked.append(gap)

    def snapshot(self, segments: Sequence[SegmentRecord]) -> KafkaSnapshot:
        """What Kafka says now of the topics of some segments."""
        topics = {s.range.partition.topic for s in segments} or set(self._pipeline.topics)
        committed = self._pipeline.reads_committed
        return self._ctx.kafka.snapshot(sorted(topics), read_committed=committed)

    def comparable(
        self, segments: Sequence[SegmentRecord], kafka: KafkaSnapshot
    ) -> list[SegmentRecord]:
        """The segments that Kafka holds and that today's rules have counted."""
        held, now = [], fingerprint(self._pipeline)
        for segment in segments:
            if cause := why_not_held(segment, kafka):
                self.leave(segment.range, cause)
            elif segment.format_fingerprint != now:
                cause = (
                    f"counted under other rules than today's, {segment.format_fingerprint} by "
                    f"tally {segment.committed_version}: a replay counts it by today's, {now}"
                )
                self.leave(segment.range, cause, by_other_rules=True)
            else:
                held.append(segment)
        return held

    def count(self, reader: Reader, chunks: Sequence[Chunk]) -> None:
        """Count some chunks again, and compare each of their segments."""
        try:
            held = self._read(reader, chunks)
        except DataLossError:
            # Retention may have deleted records since Kafka was asked; the rest must be readable.
            left = self._still_held(chunks)
            if len(left) == len(chunks):
                raise
            if left:
                self.count(reader, left)
            return
        for some in comparable_at_once(self._still_held(chunks), SEGMENTS_PER_RANGE):
            live, contributed = self._contributed(some)
            for chunk in some:
                self._compare_chunk(chunk, held, live, contributed)

    def _compare_chunk(self, chunk: Chunk, held: _Held, live: set[int], contributed: _Held) -> None:
        if not live.issuperset(chunk.segment_ids):
            self.leave(chunk.range, "replaced during the recount; run the audit again")
            return
        for segment in chunk.segments:
            self._compare(segment, held, contributed)
        if chunk.segments[0].range not in held.letters:
            most = f"{LETTERS_PER_RANGE:,} dead letters"
            self.leave(chunk.range, f"more than {most}, which were only counted")

    def _read(self, reader: Reader, chunks: Sequence[Chunk]) -> _Held:
        """What Kafka holds in each segment's range."""
        parts = [segment.range for chunk in chunks for segment in chunk.segments]
        rows: dict[OffsetRange, dict[Key, Sums]] = {part: {} for part in parts}
        request = CountRequest(
            pipeline=self._pipeline,
            ranges=[chunk.range for chunk in chunks],
            parts=parts,
            letters_max=LETTERS_PER_RANGE,
        )
        bytes_max = self._pipeline.dead_letter_max_bytes
        with reader.count(request) as counts:
            by_partition = {
                c.range.partition: c
                for c in chunks
                if c.has_few_letters
                and counts.totals[c.range.partition].malformed <= LETTERS_PER_RANGE
            }
            letters: dict[OffsetRange, dict[int, Letter]] = {
                s.range: {} for c in by_partition.values() for s in c.segments
            }
            for counted, key, sums in rows_of(self._tables, self._aggregate, counts.contributions):
                if counted.part is not None:
                    rows[counted.part][key] = sums
            for letter in counts.dead_letters:
                chunk = by_partition.get(letter.partition)
                if chunk is not None:
                    part = chunk.segment_at(letter.offset).range
                    letters[part][letter.offset] = Letter.of(letter, bytes_max)
            return _Held(totals=dict(counts.parts), rows=rows, letters=letters)

    def _contributed(self, chunks: Sequence[Chunk]) -> tuple[set[int], _Held]:
        """Which segments of some chunks are live, and what the ledger has of them."""
        ids = [segment_id for chunk in chunks for segment_id in chunk.segment_ids]
        places = {
            segment_id: chunk.range.partition
            for chunk in chunks
            if chunk.has_few_letters
            for segment_id in chunk.segment_ids
        }
        letters: dict[int, dict[int, Letter]] = {segment_id: {} for segment_id in ids}
        with self._ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
            live = records.still_live(tx, ids)
            most = self._pipeline.dead_letter_max_bytes
            for segment_id, letter, is_erased in letters_of_segments(tx, places) if places else ():
                kept = Letter.of(letter, most, is_erased=is_erased)
                letters[segment_id][letter.offset] = kept
            rows = contributions_of(tx, self._tables, ids)
        return live, _Held(totals={}, rows=rows, letters=letters)

    def _compare(self, segment: SegmentRecord, held: _Held, contributed: _Held) -> None:
        where, key = segment.range, segment.segment_id
        found, measures = held.totals[where], self._aggregate.measures
        rows = held.rows[where], contributed.rows[key]
        letters = held.letters.get(where)
        kept = {} if letters is None else contributed.letters[key]
        hint = "compaction may have removed records since" if self._pipeline.is_sparse else ""
        self.violations += differences.differences(segment, found, *rows, measures, hint)
        self.violations += differences.letter_differences(where, letters or {}, kept, hint)
        if short := differences.not_compared(letters or {}, kept):
            cause = (
                f"{plural(short, 'dead letter')} kept with fewer bytes than dead_letter_max_bytes "
                f"= {self._pipeline.dead_letter_max_bytes:,}, or erased, which were not compared"
            )
            self.leave(where, cause)
        self._segments += 1
        self._offsets += where.offsets
        self._records += found.records

    def _still_held(self, chunks: Sequence[Chunk]) -> list[Chunk]:
        """The chunks that Kafka still holds; the others are noted as unchecked."""
        snapshot = self.snapshot([segment for chunk in chunks for segment in chunk.segments])
        kept = []
        for chunk in chunks:
            causes = [c for segment in chunk.segments if (c := why_not_held(segment, snapshot))]
            if causes:
                self.leave(chunk.range, causes[0])
            else:
                kept.append(chunk)
        return kept
