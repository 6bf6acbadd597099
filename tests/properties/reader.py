"""Readers in place of Spark: one counts the model's records, others stop or kill their worker.

The readers follow :class:`tally.context.Reader`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tally.aggregates.aggregate import Aggregate, fingerprint
from tally.aggregates.counts import CountRequest, Counts
from tally.config.pipeline import Pipeline
from tally.errors import DataLossError
from tally.model import Batch, OffsetRange, Segment
from tests.properties.disturbance import Killed, Process
from tests.properties.kafka_model import KafkaModel, Record
from tests.protocol.facts import Counts as Found
from tests.python_reader import Group, InProcess, Judged, OpenSet

Reads = Callable[[Batch, Pipeline], None]
"""Called when an attempt reads its batch."""


def found(kafka: KafkaModel, s: Segment, pipeline: Pipeline) -> Found:
    """What a count of a segment finds now, by the model's own records."""
    r = s.range
    log = kafka.log(s.cluster_id, s.topic_id, r.partition.partition)
    rows: Counter[tuple[str, ...]] = Counter()
    lengths: Counter[tuple[str, ...]] = Counter()
    lines, malformed, offsets = set(), set(), set()
    for offset in range(r.from_offset, r.until_offset):
        if (record := log.at(offset, kafka.tick)) is None:
            continue
        offsets.add(offset)
        level = record.level(str(pipeline.line_format))
        if level is None:
            malformed.add(offset)
        elif level in pipeline.levels:
            key = (record.log_time, *([level] if pipeline.labels else []))
            rows[key] += 1
            lengths[key] += record.length if pipeline.measure == "bytes" else 0
            lines.add((offset, record.log_time))
    return Found(
        records=len(offsets),
        matched=rows.total(),
        malformed=len(malformed),
        rows={key: (n, lengths[key]) for key, n in rows.items()},
        letters=frozenset(malformed),
        offsets=frozenset(offsets),
        lines=frozenset(lines),
        rule=fingerprint(pipeline),
    )


@dataclass(frozen=True)
class ModelReader(InProcess):
    """Reads topics by name, as Spark does, and records what each attempt has read."""

    kafka: KafkaModel
    reads: Reads
    then: Callable[[], None]
    """Called when the read is done, so that other operations may run."""

    @contextmanager
    def _counted(self, request: CountRequest, open_set: OpenSet | None = None) -> Iterator[Counts]:
        batch = claimed(request)
        self.reads(batch, request.pipeline)
        with super()._counted(request, open_set) as counts:
            yield counts

    def _when_read(self) -> None:
        self.then()

    def _judged(self, pipeline: Pipeline, r: OffsetRange) -> Iterator[Judged]:
        for offset, record in self._read(r).items():
            level = record.level(str(pipeline.line_format))
            minute = record.log_time if level in pipeline.levels else None
            labels = dict.fromkeys(Aggregate.of(pipeline).label_columns, level or "")
            size, is_bad = record.length, level is None
            group = Group.of(
                r.partition, offset, minute, size, record.time, is_malformed=is_bad, **labels
            )
            yield "no-level" if is_bad else None, group, (level or "?").encode()

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
