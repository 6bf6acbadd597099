"""A reader of real topics without Spark, for tests whose point is the ledger.

It takes exactly the planned ranges from Kafka through a consumer of its own, judges each record
with :mod:`tally.aggregates.judgement`, and hands its groups to the same gathering and checks as
Spark does. Natural keys are Spark's alone.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tally.aggregates.aggregate import Aggregate
from tally.aggregates.counts import (
    KEPT,
    Contribution,
    CountRequest,
    Counts,
    DeadLetter,
    KeptLine,
)
from tally.aggregates.gathering import Gathering
from tally.aggregates.judgement import judge
from tally.aggregates.spool import Spool
from tally.config.pipeline import Pipeline
from tally.config.servers import KafkaSettings
from tally.errors import DataLossError, TallyError
from tally.kafka.client import Kafka
from tally.lines.reading import Record
from tally.model import OffsetRange, TopicPartition

READ_S = 60
"""Seconds within which a range must have been read."""

Work = Callable[[CountRequest, Counts], Any]
OpenSet = Callable[[CountRequest], Any]


class Group(dict[str, Any]):
    """A row with the columns of :meth:`tally.spark.grouping.Grouping.counts`."""

    __getattr__ = dict.__getitem__

    @classmethod
    def of(
        cls,
        partition: TopicPartition,
        offset: int,
        minute: str | None,
        size: int,
        seconds: int,
        *,
        is_malformed: bool,
        **labels: str,
    ) -> "Group":
        """One record, which was written at a Unix time."""
        malformed = offset if is_malformed else None
        return cls(
            topic=partition.topic,
            partition=partition.partition,
            minute=minute,
            records=1,
            malformed=int(is_malformed),
            continuations=0,
            first_offset=offset,
            last_offset=offset,
            kept_bytes=size if is_malformed else 0,
            first_malformed=malformed,
            last_malformed=malformed,
            bytes=size,
            first_s=seconds,
            last_s=seconds,
            **labels,
        )

    def add(self, other: "Group") -> None:
        """Add another group of the same keys, which lies behind this one."""
        for name in ("records", "malformed", "continuations", "bytes", "kept_bytes"):
            self[name] += other[name]
        self["last_offset"] = other["last_offset"]
        self["first_s"] = min(self["first_s"], other["first_s"])
        self["last_s"] = max(self["last_s"], other["last_s"])
        if self["first_malformed"] is None:
            self["first_malformed"] = other["first_malformed"]
        if other["last_malformed"] is not None:
            self["last_malformed"] = other["last_malformed"]


Judged = tuple[str | None, Group, bytes | None]
"""Of a record why it is malformed, its group, and its value."""


def lines_of(kept: Iterable[KeptLine]) -> pa.RecordBatch:
    """Kept lines as Spark hands them to what writes them."""
    types = (pa.int64(), pa.string(), pa.binary(), pa.binary())
    schema = pa.schema(list(zip(KEPT, types, strict=True)))
    rows = [dict(zip(KEPT, line, strict=True)) for line in kept]
    return pa.RecordBatch.from_pylist(rows, schema=schema)


class InProcess:
    """A :class:`tally.context.Reader` that counts in the process that asks."""

    def count(self, request: CountRequest) -> AbstractContextManager[Counts]:
        """See :meth:`tally.context.Reader.count`."""
        return self._counted(request)

    def count_each(
        self, requests: Sequence[CountRequest], work: Work, open_set: OpenSet | None = None
    ) -> Iterator[tuple[CountRequest, Any]]:
        """See :meth:`tally.context.Reader.count_each`; one after another."""
        for request in requests:
            try:
                with self._counted(request, open_set) as counts:
                    outcome = work(request, counts)
            except TallyError as error:
                outcome = error
            yield request, outcome

    @contextmanager
    def _counted(self, request: CountRequest, open_set: OpenSet | None = None) -> Iterator[Counts]:
        """The counts of a request, with its lines in the set that is opened."""
        with Spool[Contribution]() as contributions, Spool[DeadLetter]() as dead_letters:
            pipeline = request.pipeline
            label_columns = Aggregate.of(pipeline).label_columns
            gathering = Gathering(request, contributions)
            lines = None if open_set is None else open_set(request)
            kept = []
            for r in request.ranges:
                groups: dict[tuple[Any, ...], Group] = {}
                for reason, group, value in self._judged(pipeline, r):
                    offset, minute = group["first_offset"], group["minute"]
                    for part in request.parts:
                        if part.partition == r.partition and offset >= part.from_offset:
                            group["from_offset"] = part.from_offset
                    labels = [group[column] for column in label_columns]
                    key = (group.get("from_offset"), minute, *labels)
                    if reason is not None:
                        dead_letters.append(
                            DeadLetter(
                                partition=r.partition,
                                offset=offset,
                                reason=reason,
                                value=value and value[: pipeline.dead_letter_max_bytes],
                                value_bytes=None if value is None else len(value),
                            )
                        )
                    elif minute is not None:
                        kept.append(KeptLine(offset, minute, value, None))
                    if (known := groups.setdefault(key, group)) is not group:
                        known.add(group)
                for group in groups.values():
                    gathering.add(list(group), [list(group.values())])
            counts = gathering.counts(dead_letters)
            self._when_read()
            if lines is not None:
                lines.add(lines_of(kept))
                counts = replace(counts, line_set=lines.seal())
            yield counts

    def _judged(self, pipeline: Pipeline, r: OffsetRange) -> Iterator[Judged]:
        """The records of a range, in order."""
        raise NotImplementedError

    def _when_read(self) -> None:
        """Called when all was read, before any of it is used."""


@dataclass(frozen=True, kw_only=True)
class PythonReader(InProcess):
    """Reads real topics."""

    kafka: KafkaSettings
    """How the cluster is reached."""

    def _judged(self, pipeline: Pipeline, r: OffsetRange) -> Iterator[Judged]:
        assert not pipeline.row_key, "natural keys are Spark's"
        for record in self._read(pipeline, r):
            yield *judged(pipeline, r.partition, record), record.value

    def _read(self, pipeline: Pipeline, r: OffsetRange) -> Iterator[Record]:
        kafka, until = Kafka(self.kafka), time.monotonic() + READ_S
        at = r.from_offset
        for span in kafka.read(r, until=until, read_committed=pipeline.reads_committed):
            yield from span.records
            at = span.until_offset
        if at < r.until_offset:
            raise DataLossError(f"{r} was read until {at} (a test's reader)")


def judged(
    pipeline: Pipeline, partition: TopicPartition, record: Record
) -> tuple[str | None, Group]:
    """Why a record is malformed, and its group."""
    found = judge(pipeline, partition, record)
    columns = Aggregate.of(pipeline).label_columns
    group = Group.of(
        partition,
        record.offset,
        found.minute if found.is_counted else None,
        len(record.value or b""),
        record.micros // 10**6,
        is_malformed=found.reason is not None,
        **dict.fromkeys(columns, "") | dict(zip(columns, found.labels, strict=False)),
    )
    group["continuations"] = int(found.continues)
    return found.reason, group
