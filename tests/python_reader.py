"""A reader of real topics without Spark, for tests whose point is the ledger.

It takes exactly the planned ranges from Kafka through a consumer of its own, judges each record
with :mod:`tests.spark.oracle`, and hands its groups to the same gathering and checks as Spark does.
Filters and natural keys are Spark's alone.
"""

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as Place

from tally.aggregates.aggregate import Aggregate
from tally.aggregates.counts import Contribution, CountRequest, Counts, DeadLetter, KeptLine
from tally.aggregates.gathering import Gathering
from tally.aggregates.spool import Spool
from tally.config.pipeline import Pipeline
from tally.config.servers import KafkaSettings
from tally.errors import DataLossError, TallyError
from tally.lines.format import LineFormat
from tally.lines.time_rule import BEGINS_A_LINE, continuation_reasons
from tally.model import OffsetRange, TopicPartition
from tests.spark.json_oracle import field, read_object
from tests.spark.oracle import expected, level_of, line_of, texts_of

READ_S = 60
"""Seconds within which a range must have been read."""

log = logging.getLogger(__name__)

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
            first_malformed=malformed,
            last_malformed=malformed,
            bytes=size,
            first_s=seconds,
            last_s=seconds,
            **labels,
        )

    def add(self, other: "Group") -> None:
        """Add another group of the same keys, which lies behind this one."""
        for name in ("records", "malformed", "continuations", "bytes"):
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


@dataclass(frozen=True, slots=True)
class Record:
    """A record of Kafka."""

    offset: int
    value: bytes | None
    key: bytes | None
    micros: int
    """Its timestamp in microseconds since 1970."""

    @classmethod
    def of(cls, message: Message) -> "Record":
        """What a consumer has received."""
        offset, value, key = message.offset(), message.value(), message.key()
        assert offset is not None
        assert not isinstance(value, str)
        assert not isinstance(key, str)
        return cls(offset, value, key, message.timestamp()[1] * 1000)


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
                    gathering.add(group)
            counts = gathering.counts(dead_letters)
            self._when_read()
            if lines is not None:
                lines.add(kept)
                counts = replace(counts, row_set=lines.seal())
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
        assert not pipeline.filter, "filters are Spark's"
        assert not pipeline.row_key, "natural keys are Spark's"
        for record in self._read(pipeline, r):
            yield *judged(pipeline, r.partition, record), record.value

    def _read(self, pipeline: Pipeline, r: OffsetRange) -> Iterator[Record]:
        options = {
            "bootstrap.servers": self.kafka.bootstrap_servers,
            "group.id": "python-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,
            "isolation.level": pipeline.isolation_level,
        }
        place = Place(r.partition.topic, r.partition.partition, r.from_offset)
        with closing(Consumer(options, logger=log)) as consumer:
            consumer.assign([place])
            at = r.from_offset
            while at < r.until_offset:
                message = consumer.poll(READ_S)
                if message is None:
                    raise DataLossError(f"{r} was not read within {READ_S} s (a test's reader)")
                error, offset = message.error(), message.offset()
                if error is None:
                    record = Record.of(message)
                    at = record.offset + 1
                    if at <= r.until_offset:
                        yield record
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise DataLossError(f"{r} cannot be read: {error} (a test's reader)")
                elif offset is None or offset < r.until_offset:
                    raise DataLossError(f"{r} ends at {offset} (a test's reader)")
                else:
                    return


def judged(
    pipeline: Pipeline, partition: TopicPartition, record: Record
) -> tuple[str | None, Group]:
    """Why a record is malformed, and its group."""
    value, offset, micros = record.value, record.offset, record.micros
    reason, minute = expected(
        value, pipeline.format, set(pipeline.levels), pipeline.time_rule, micros
    )
    begins_none = reason in continuation_reasons(pipeline.format, pipeline.time_rule)
    line = line_of(value or b"", pipeline.format)
    continues = pipeline.leaves_continuations and begins_none and not begins_a_line(line)
    reason = None if continues else reason
    aggregate = Aggregate.of(pipeline)
    labels = {}
    if aggregate.labels:
        values = _fields(line, pipeline.format, aggregate.labels) | {
            "key": (record.key or b"").decode(errors="replace"),
            "topic": partition.topic,
            "partition": str(partition.partition),
        }
        labels = {
            column: values.get(label, "")[: pipeline.label_max_chars]
            for column, label in zip(aggregate.label_columns, aggregate.labels, strict=True)
        }
    size, seconds = len(value or b""), micros // 10**6
    is_bad = reason is not None
    group = Group.of(partition, offset, minute, size, seconds, is_malformed=is_bad, **labels)
    group["continuations"] = int(continues)
    return reason, group


def begins_a_line(line: bytes) -> bool:
    """Whether a record that cannot be understood looks like the beginning of a line."""
    return re.match(BEGINS_A_LINE, line.decode("utf-8", "replace"), re.ASCII) is not None


def _fields(value: bytes, line_format: LineFormat, labels: Sequence[str]) -> dict[str, str]:
    """The values of labels, as far as the line has them."""
    if line_format.is_fixed:
        return {"level": value[20:].split(b" ")[0].decode(errors="replace")}
    if line_format.is_json:
        found = read_object(value, with_nan="nan" in line_format.options.accept) or {}
        texts = {label: field(found, line_format.paths_of(label)) or "" for label in labels}
    else:
        texts = texts_of(value, line_format) or {}
    return texts | {"level": level_of(texts, line_format)}
