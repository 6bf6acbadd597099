"""The lines behind a count, read from Kafka at exactly the offsets of the ledger.

The reader is independent of Spark: what it finds either proves the count or shows where they
differ. Nothing of it is stored.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo

from tally.aggregates.aggregate import Aggregate, fingerprint
from tally.aggregates.judgement import judge
from tally.config.pipeline import Pipeline
from tally.context import Context, Transaction
from tally.errors import UsageError
from tally.formatting import plural, printable_bytes
from tally.ledger.parts import (
    Of,
    Part,
    folded_lines,
    latest_batch,
    lines_of,
    parts_lost,
    parts_of,
)
from tally.ledger.records import batch_record
from tally.ledger.tables import tables_to_read
from tally.lines.reading import Record
from tally.lines.time_rule import UTC
from tally.model import BatchKind, BatchState, KafkaSnapshot, OffsetRange, TopicPartition
from tally.views import view_of

SEGMENTS_MAX: Final = 2_000
"""Segments of a count that are read."""

_NEAR: Final = timedelta(minutes=1)
"""How long before its minute a line's record is looked for first."""
_FAR_OFFSETS: Final = 20_000
"""Of a longer range the part near the minute is read first."""


class Verdict(StrEnum):
    """Whether what was found is what was counted."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNKNOWN = "unknown"
    """Not all of it could be read, or rules have changed since."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """How much is read at most."""

    lines: int = 100
    """Lines that are kept."""
    records: int = 1_000_000
    """Records that are read."""
    bytes: int = 1 << 30
    """Bytes of their values."""
    seconds: float = 60.0
    """Seconds for all of it."""


PAGE_BOUNDS: Final = Bounds(lines=100, records=2_000_000, bytes=256 * 1024 * 1024, seconds=4)
"""What one page of the console reads at most: it holds a thread of Airflow's server meanwhile."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LineView:
    """A counted line."""

    partition: TopicPartition
    """The partition."""
    offset: int
    """The record's offset."""
    written_at: datetime | None
    """The record's timestamp; null without one."""
    log_time: str
    """The minute on the lines' own clock, ``YYYY-MM-DD HH:MM:00``."""
    labels: Mapping[str, str] = field(metadata={"omitted": "when empty"})
    """Value by label column; absent in JSON for a result without labels."""
    value: str
    """The line as text, with everything unprintable escaped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LinesView:
    """The lines behind a count."""

    pipeline: str
    """The pipeline."""
    counted: int
    """How many lines the ledger has counted."""
    found: int
    """How many of them Kafka has, as far as was read."""
    verdict: Verdict
    """Whether the two are the same: ``equal``, ``different``, or ``unknown``."""
    doubts: tuple[str, ...]
    """Why it is unknown; empty when it is not."""
    records: int
    """Records that were read."""
    seconds: float
    """How long it took."""
    lines: tuple[LineView, ...]
    """The first of them, by segment and offset."""

    def __str__(self) -> str:
        """``39 lines found, 39 counted``, and why that says nothing if it does not."""
        text = f"{plural(self.found, 'line')} found, {self.counted:,} counted"
        return f"{text}: {'; '.join(self.doubts)}" if self.doubts else text


def lines(ctx: Context, name: str, of: Of, bounds: Bounds = Bounds()) -> LinesView:
    """The lines behind a count, and whether they are as many.

    Args:
        ctx: What is needed from outside.
        name: The pipeline.
        of: Which lines; of a partition alone those of the last batch that has read it.
        bounds: How much is read.

    Raises:
        UnknownPipelineError: No such pipeline is configured.
        UnknownBatchError: The pipeline has no such batch.
        UsageError: No minute, batch or partition is named, nothing is counted of the partition, or
            no such label is counted.
        KafkaUnavailableError, AccessDeniedError: Kafka did not answer, or refused.
        MySQLUnavailableError: The server did not answer.
    """
    pipeline = ctx.settings.pipeline(name)
    with ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
        if of.minute is None and of.batch_id is None:
            of = replace(of, batch_id=_latest_batch(tx, name, of.partition))
        doubts = _doubts_of_batch(tx, name, of.batch_id) if of.batch_id is not None else []
        tables = tables_to_read(tx, pipeline)
        parts = parts_of(tx, tables, name, of, SEGMENTS_MAX)
        counted = sum(part.lines for part in parts)
        if of.minute is not None:
            is_whole = of.batch_id is None and of.partition is None
            if is_whole:
                counted = lines_of(tx, tables, of.minute, of.labels)
            if folded := folded_lines(tx, tables, name, of.minute, of.labels):
                them = "them" if is_whole else "the minute"
                doubts.append(f"{folded:,} of {them} are of segments that were pruned")
        lost = parts_lost(tx, name, parts)
    search = _Search(ctx=ctx, pipeline=pipeline, of=of, bounds=bounds, doubts=doubts)
    if len(parts) == SEGMENTS_MAX:
        search.doubts.append(f"only the {SEGMENTS_MAX:,} segments with most lines are read")
    if lost:
        search.may_find_others = True
        search.doubts.append(f"of {plural(lost, 'segment')} Kafka has lost records since")
    search.read(parts)
    if pipeline.offsets == "sparse" and search.found < counted:
        search.doubts.append("compaction may have removed some")
    is_more = search.found > counted and not search.may_find_others
    verdict = Verdict.UNKNOWN if search.doubts and not is_more else Verdict.DIFFERENT
    if not search.doubts and search.found == counted:
        verdict = Verdict.EQUAL
    return LinesView(
        pipeline=name,
        counted=counted,
        found=search.found,
        verdict=verdict,
        doubts=tuple(search.doubts),
        records=search.records,
        seconds=round(search.seconds, 2),
        lines=tuple(search.lines),
    )


def _latest_batch(tx: Transaction, name: str, partition: TopicPartition | None) -> int:
    """The last batch that has read a partition.

    Raises:
        UsageError: There is no partition, or none that has.
    """
    if partition is None:
        raise UsageError("lines of what?", next_step="name a minute, a batch or a partition")
    found = latest_batch(tx, name, partition)
    if found is None:
        raise UsageError(
            f"of {partition} nothing is counted",
            next_step=f"tally status {name} lists the partitions",
        )
    return found


def _doubts_of_batch(tx: Transaction, name: str, batch_id: int) -> list[str]:
    """Why not all that a batch has counted can be compared.

    Raises:
        UnknownBatchError: The ledger has none of that id.
        UsageError: It is another pipeline's.
    """
    batch = batch_record(tx, batch_id)
    if batch.pipeline != name:
        raise UsageError(
            f"batch {batch_id} is not of pipeline {name}",
            next_step=f"tally batches {name} lists its batches",
        )
    doubts = []
    if batch.state is not BatchState.COMMITTED:
        doubts.append(f"batch {batch_id} is {batch.state}")
    if batch.superseded:
        doubts.append(f"{plural(batch.superseded, 'segment')} of it replaced by a replay since")
    if batch.pruned_at is not None or batch.kind is BatchKind.FOLD:
        doubts.append("segments of it were pruned")
    return doubts


def _ids(held: KafkaSnapshot) -> dict[str, str]:
    return {name: topic.topic_id for name, topic in held.topics.items()}


@dataclass(kw_only=True)
class _Search:
    """Looks for counted lines in segments."""

    ctx: Context
    pipeline: Pipeline
    of: Of
    bounds: Bounds
    lines: list[LineView] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    found: int = 0
    records: int = 0
    seconds: float = 0.0
    may_find_others: bool = False
    """Whether what Kafka has at the offsets may be more than was there when they were counted."""
    _bytes: int = 0

    def read(self, parts: list[Part]) -> None:
        """Look through segments until the bounds are reached."""
        began = time.monotonic()
        self._until = began + self.bounds.seconds
        aggregate = Aggregate.of(self.pipeline)
        self._columns = aggregate.columns
        self._may_be_of = _quick_check(self.pipeline, self.of.minute)
        topics = sorted({part.range.partition.topic for part in parts})
        committed = self.pipeline.reads_committed
        held = self.ctx.kafka.snapshot(topics, read_committed=committed) if topics else None
        today = fingerprint(self.pipeline)
        other = sum(part.format_fingerprint != today for part in parts)
        if other:
            self.may_find_others = True
            self.doubts.append(f"{plural(other, 'segment')} counted under other rules than today's")
        unread = [part for part in parts if held and not self._read_part(part, held)]
        if unread:
            lines = sum(part.lines for part in unread)
            self.doubts.append(
                f"{plural(len(unread), 'segment')} with {lines:,} of the lines not read to the end"
            )
        after = self.ctx.kafka.snapshot(topics, read_committed=committed) if topics else None
        if held and after and _ids(after) != _ids(held):
            self.may_find_others = True
            self.doubts.append("a topic was created again meanwhile")
        self.seconds = time.monotonic() - began

    def _read_part(self, part: Part, held: KafkaSnapshot) -> bool:
        """Whether a segment was read to its end, as far as Kafka has it."""
        if self._is_at_its_bounds or time.monotonic() >= self._until:
            return False
        asked = part.range
        topic, place = held.topics.get(asked.partition.topic), held.partition(asked.partition)
        if not part.is_current or topic is None or topic.topic_id != part.topic_id or not place:
            self.doubts.append(f"{asked}: Kafka no longer has this topic")
            return True
        first = max(asked.from_offset, min(place.earliest, asked.until_offset))
        if first > asked.from_offset:
            gone = f"{first - asked.from_offset:,} of {asked.offsets:,} records"
            self.doubts.append(f"{asked}: Kafka no longer has {gone}")
        return all(self._read_range(one) for one in self._in_order(asked, first))

    def _in_order(self, asked: OffsetRange, first: int) -> Iterator[OffsetRange]:
        """What Kafka has of a range, what is near the minute before the rest."""
        middle = first
        if self.of.minute is not None and asked.until_offset - first > _FAR_OFFSETS:
            zone = ZoneInfo(self.pipeline.time_zone or UTC)
            moment = self.of.minute.replace(tzinfo=zone) - _NEAR
            near = self.ctx.kafka.offsets_at([asked.partition], moment)[asked.partition]
            middle = min(max(first, near or first), asked.until_offset)
        for begin, end in ((middle, asked.until_offset), (first, middle)):
            if begin < end:
                yield OffsetRange(partition=asked.partition, from_offset=begin, until_offset=end)

    def _read_range(self, asked: OffsetRange) -> bool:
        at = asked.from_offset
        committed = self.pipeline.reads_committed
        kafka, is_wanted = self.ctx.kafka, self._may_be_of
        for span in kafka.read(
            asked, until=self._until, read_committed=committed, is_wanted=is_wanted
        ):
            self.records += span.n_read
            self._bytes += span.n_bytes
            for record in span.records:
                self._look_at(asked.partition, record)
            at = span.until_offset
            if self._is_at_its_bounds:
                break
        return at >= asked.until_offset

    @property
    def _is_at_its_bounds(self) -> bool:
        return self.records >= self.bounds.records or self._bytes >= self.bounds.bytes

    def _look_at(self, partition: TopicPartition, record: Record) -> None:
        judged = judge(self.pipeline, partition, record)
        if not judged.is_counted or judged.minute is None:
            return
        labels = dict(zip(self._columns, judged.labels, strict=True))
        if self.of.minute is not None and judged.minute != f"{self.of.minute:%Y-%m-%d %H:%M:00}":
            return
        if any(labels.get(name, "") != wanted for name, wanted in self.of.labels.items()):
            return
        self.found += 1
        if len(self.lines) < self.bounds.lines:
            line = view_of(
                LineView,
                record,
                partition=partition,
                log_time=judged.minute,
                labels=labels,
                value=printable_bytes(record.value or b""),
            )
            self.lines.append(line)


def _quick_check(pipeline: Pipeline, minute: datetime | None) -> Callable[[bytes], bool]:
    """Whether a line may be of a minute, without reading it: it has to show its clock."""
    rule, line_format = pipeline.time_rule, pipeline.format
    is_shown = not rule.from_record and not rule.by_offset and not line_format.states_instant
    written = "HH:mm" if line_format.is_fixed else line_format.time_format
    if minute is None or not is_shown or "HH:mm" not in written:
        return lambda _: True
    clock = f"{minute:%H:%M}".encode()
    # In JSON it may be escaped.
    return lambda value: clock in value or (line_format.is_json and b"\\" in value)
