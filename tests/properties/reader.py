"""Readers in place of Spark: one counts the model's records, others stop or kill their worker.

The readers follow :class:`tally.pipeline.context.Reader`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tally.aggregates.checks import check_totals
from tally.aggregates.counts import CountRequest, Counts
from tally.aggregates.spool import Spool
from tally.config.pipeline import Pipeline
from tally.errors import DataLossError
from tally.model import (
    EMPTY_TOTALS,
    Batch,
    Contribution,
    DeadLetter,
    KeptLine,
    OffsetRange,
    SegmentTotals,
    TopicPartition,
)
from tests.properties.disturbance import Killed, Process
from tests.properties.kafka_model import KafkaModel, Record
from tests.python_reader import InProcess, OpenSet

Reads = dict[tuple[int, int], tuple[int, Pipeline]]
"""By batch and attempt: the tick when it read, and what it was to count."""


@dataclass(frozen=True)
class ModelReader(InProcess):
    """Reads topics by name, as Spark does, and records what each attempt has read."""

    kafka: KafkaModel
    reads: Reads
    then: Callable[[], None]
    """Called when the read is done, so that other operations may run."""

    @contextmanager
    def _counted(self, request: CountRequest, open_set: OpenSet | None = None) -> Iterator[Counts]:
        batch, pipeline = claimed(request), request.pipeline
        self.reads[batch.batch_id, batch.attempt] = (self.kafka.tick, pipeline)
        with Spool[Contribution]() as contributions, Spool[DeadLetter]() as dead_letters:
            totals = {}
            for r in request.ranges:
                held = self._read(r)
                totals[r.partition] = _totals(held, pipeline)
                for contribution in _contributions(r.partition, held, pipeline):
                    contributions.append(contribution)
                for letter in _dead_letters(r.partition, held, pipeline):
                    dead_letters.append(letter)
            check_totals(pipeline, request.ranges, totals, may_miss=request.may_miss)
            self.then()
            row_set = None if open_set is None else self._kept(request, open_set(request))
            yield Counts(
                totals=totals,
                contributions=contributions,
                dead_letters=dead_letters,
                row_set=row_set,
            )

    def _kept(self, request: CountRequest, lines: Any) -> Any:
        """The set of the lines, where they are kept."""
        for r in request.ranges:
            for offset, record in self._read(r).items():
                level = record.level(str(request.pipeline.line_format))
                if level is not None and level in request.pipeline.levels:
                    lines.add([KeptLine(offset, record.log_time, level.encode(), None)])
        return lines.seal()

    def _read(self, r: OffsetRange) -> Mapping[int, Record]:
        generation = self.kafka.topics.get(r.partition.topic)
        logs = dict(enumerate(generation.logs)) if generation else {}
        log = logs.get(r.partition.partition)
        if log is None or log.earliest > r.from_offset or log.end < r.until_offset:
            raise DataLossError(f"Kafka no longer serves all of {r} (a test)")
        return {o: log.held[o] for o in range(r.from_offset, r.until_offset) if o in log.held}


@dataclass(frozen=True)
class KilledReader(ModelReader):
    """The process is killed while it reads."""

    process: Process

    def _read(self, _: OffsetRange) -> Mapping[int, Record]:
        self.process.is_dead = True
        raise Killed


@dataclass(frozen=True)
class StoppedReader(ModelReader):
    """The process is stopped after its read and behind its last row, before its commit."""

    process: Process
    keep: Callable[[CountRequest, Counts], None]
    """Called with the counts of an attempt that came to its commit."""

    @contextmanager
    def _counted(self, request: CountRequest, open_set: OpenSet | None = None) -> Iterator[Counts]:
        with super()._counted(request, open_set) as counts:
            self.process.is_dead = True
            try:
                yield counts
            except Killed:
                self.keep(request, counts)
                raise


def claimed(request: CountRequest) -> Batch:
    """The batch of the request; these readers are used for batches only."""
    assert request.batch is not None, request
    return request.batch


def _totals(held: Mapping[int, Record], pipeline: Pipeline) -> SegmentTotals:
    if not held:
        return EMPTY_TOTALS
    levels = [r.level(str(pipeline.line_format)) for r in held.values()]
    matched = sum(level in pipeline.levels for level in levels)
    malformed = levels.count(None)
    return SegmentTotals(
        records=len(held),
        matched=matched,
        unmatched=len(held) - matched - malformed,
        malformed=malformed,
        first_offset=min(held),
        last_offset=max(held),
    )


def _contributions(
    partition: TopicPartition, held: Mapping[int, Record], pipeline: Pipeline
) -> list[Contribution]:
    lengths: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for r in held.values():
        level = r.level(str(pipeline.line_format))
        if level is not None and level in pipeline.levels:
            lengths[r.log_time, *([level] if pipeline.labels else [])].append(r.length)
    return [
        Contribution(
            partition=partition,
            log_time=log_time,
            labels=tuple(labels),
            log_count=len(of_lines),
            log_bytes=sum(of_lines) if pipeline.measure == "bytes" else 0,
        )
        for (log_time, *labels), of_lines in lengths.items()
    ]


def _dead_letters(
    partition: TopicPartition, held: Mapping[int, Record], pipeline: Pipeline
) -> list[DeadLetter]:
    return [
        DeadLetter(partition=partition, offset=offset, reason="no-level", value=b"?", value_bytes=1)
        for offset, r in held.items()
        if r.level(str(pipeline.line_format)) is None
    ]
