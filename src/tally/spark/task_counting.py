"""Counting each range in the one Spark task that reads it, and working on its counts there.

Where counted lines are kept, a read of its own keeps them first: most records are none, and the
counts need no record in Python.

The driver starts the tasks. What they do runs in the Python workers of Spark's executors, and each
reports its outcome to the driver in one row; rows that were read never reach the driver.
"""

import pickle
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from tally.aggregates.aggregate import Aggregate
from tally.aggregates.counts import (
    KEPT,
    LEDGER_ORDER,
    Contribution,
    CountRequest,
    Counts,
    DeadLetter,
    LineSet,
)
from tally.aggregates.gathering import Gathering
from tally.aggregates.judgement import dead_letters_in
from tally.aggregates.spool import Spool
from tally.config.servers import KafkaSettings
from tally.errors import DataLossError, ReadError, TallyError
from tally.model import OffsetRange, SegmentTotals, TopicPartition
from tally.spark.grouping import LETTER, Grouping
from tally.spark.reading import read_ranges
from tally.spark.task_groups import add_up, without_end

Work = Callable[[CountRequest, Counts], Any]
"""What is done with the counts of a range; what it returns reaches the driver."""

OpenSet = Callable[[CountRequest], Any]
"""Opens what the counted lines of a range are written to: ``add`` takes any of them, and ``seal``
returns the :class:`tally.aggregates.counts.LineSet` once all were added."""

_APART_OFFSETS_MIN: Final = 200_000
"""Fewer records take Arrow less time than another plan takes Spark."""
_APART_MAX: Final = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskOutcome:
    """What became of a task."""

    partition: TopicPartition | None = None
    """The partition that it has read; None when it has read no record."""
    value: Any = None
    """What the work has returned."""
    error: TallyError | RuntimeError | None = None
    """Why the work was not done; a RuntimeError has the traceback of a bug."""
    first_read: SegmentTotals | None = None
    """What was read, when the work was left undone because malformed records are to be kept."""

    def result(self) -> Any:
        """What the work has returned, or the error that was raised.

        Raises:
            RuntimeError: There is a bug in what a task does.
        """
        if isinstance(self.error, RuntimeError):
            raise self.error
        return self.error or self.value


@dataclass(frozen=True, kw_only=True, slots=True)
class RangeWork(ABC):
    """What is done in every task of a read, each of which has one range."""

    requests: Sequence[CountRequest]
    """One for each partition, which is its only range; all of one pipeline."""

    @property
    def topics(self) -> set[str]:
        """The topics of the ranges; where there is but one, rows do not name it."""
        return {r.ranges[0].partition.topic for r in self.requests}

    @abstractmethod
    def of_range(self, request: CountRequest, batches: Iterable[pa.RecordBatch]) -> TaskOutcome:
        """Do the work on the rows of a range.

        Raises:
            TallyError: It was not done.
        """

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        return iter(batches)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the work on the rows of a task, and report its outcome."""
        outcome, partition, rows = TaskOutcome(), None, self.rows(batches)
        try:
            first = next((batch for batch in rows if batch.num_rows), None)
            if first is not None:
                request = self._request_of(first)
                partition = request.ranges[0].partition
                outcome = self.of_range(request, chain([first], rows))
        except TallyError as error:
            outcome = TaskOutcome(partition=partition, error=error)
        except Exception:  # noqa: BLE001 - the driver raises it; it is no reason to try again
            bug = RuntimeError(f"a Spark task has failed: {traceback.format_exc()}")
            outcome = TaskOutcome(partition=partition, error=bug)
        yield pa.RecordBatch.from_pydict({"outcome": [pickle.dumps(outcome)]})

    def _request_of(self, batch: pa.RecordBatch) -> CountRequest:
        """The request for the partition of a task's first row."""
        row = batch.slice(0, 1).to_pylist()[0]
        topic = row["topic"] if "topic" in row else next(iter(self.topics))
        partition = TopicPartition(topic=topic, partition=row["partition"])
        (request,) = (r for r in self.requests if r.ranges[0].partition == partition)
        return request

    def outcomes(self, rows: DataFrame) -> list[tuple[CountRequest, TaskOutcome]]:
        """Do the work; the outcome of each request, in order.

        Args:
            rows: Each range in one task.

        Raises:
            ReadError: Spark did not read each range in one task.
            TallyError: A task has failed before it knew its partition.
        """
        outcomes = rows.mapInArrow(self, "outcome binary").collect()
        return outcome_of_each(self, [pickle.loads(row.outcome) for row in outcomes])  # noqa: S301 - ours


@dataclass(frozen=True, kw_only=True, slots=True)
class KeepWork(RangeWork):
    """The counted lines of every range are kept; that all of them were, the commit checks."""

    open_set: OpenSet
    """Opens what they are written to; picklable."""

    def of_range(self, request: CountRequest, batches: Iterable[pa.RecordBatch]) -> TaskOutcome:
        """Write the lines.

        Those of a flood of malformed records are not kept: the count refuses it.
        """
        partition, malformed = request.ranges[0].partition, 0
        lines = self.open_set(request)
        for batch in batches:
            malformed += pc.sum(batch["is_malformed"]).as_py() or 0
            if malformed > request.pipeline.max_malformed_per_batch:
                lines.discard()
                return TaskOutcome(partition=partition)
            lines.add(batch.filter(pc.is_valid(batch["minute"])).select(KEPT))
        return TaskOutcome(partition=partition, value=lines.seal())


@dataclass(frozen=True, kw_only=True, slots=True)
class CountWork(RangeWork):
    """Every range is counted, and its counts are worked on."""

    work: Work
    """What is done for each; picklable."""
    spool_dir: Path | None = None
    """Folder for rows that do not fit into memory; the system's temporary folder when None."""
    first_reads: Mapping[TopicPartition, SegmentTotals] = field(default_factory=dict)
    """What a first read has found, where this is the second one; it must find the same. Its rows
    are single records, malformed ones with their value."""
    line_sets: Mapping[TopicPartition, LineSet | None] = field(default_factory=dict)
    """The kept lines."""

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of a task, all of them."""
        return without_end(batches)

    def of_range(self, request: CountRequest, batches: Iterable[pa.RecordBatch]) -> TaskOutcome:
        """Count the rows of a range and do its work.

        Raises:
            TallyError: The counts are not what was asked for, or the work failed.
        """
        partition, aggregate = request.ranges[0].partition, Aggregate.of(request.pipeline)
        places = ["partition"] if len(self.topics) == 1 else ["topic", "partition"]
        keys, sums = ["minute", *aggregate.label_columns], aggregate.sums_of_groups
        with (
            Spool[Contribution](folder=self.spool_dir, order=LEDGER_ORDER) as contributions,
            dead_letters_in(self.spool_dir, request.pipeline) as dead_letters,
        ):
            gathering = Gathering(request, contributions)
            if self.first_reads:
                batches = _without_values(request, batches, dead_letters)
            for groups in add_up(batches, places, keys, sums):
                names, columns = groups.schema.names, [c.to_pylist() for c in groups.columns]
                if "topic" not in names:
                    names, columns = [*names, "topic"], [*columns, repeat(partition.topic)]
                gathering.add(names, zip(*columns, strict=False))
            counts = gathering.counts(dead_letters)
            totals = counts.totals[partition]
            if gathering.malformed and not self.first_reads:
                return TaskOutcome(partition=partition, first_read=totals)
            _check_same(partition, self.first_reads.get(partition, totals), totals)
            counts = replace(counts, line_set=self.line_sets.get(partition))
            return TaskOutcome(partition=partition, value=self.work(request, counts))


def _without_values(
    request: CountRequest,
    batches: Iterable[pa.RecordBatch],
    dead_letters: Spool[DeadLetter],
) -> Iterator[pa.RecordBatch]:
    """The rows, without the values of malformed records, which are kept.

    Those of a flood are not: nothing is committed when more records are malformed than allowed.
    """
    limit, partition = request.pipeline.max_malformed_per_batch, request.ranges[0].partition
    for batch in batches:
        if len(dead_letters) <= limit:
            found = batch.filter(pc.is_valid(batch.column("reason")))
            columns = (found.column(name).to_pylist() for name in LETTER)
            for letter in zip(*columns, strict=True):
                dead_letters.append((partition, *letter))
        yield batch.drop_columns(list(LETTER[1:]))


def _check_same(partition: TopicPartition, first: SegmentTotals, second: SegmentTotals) -> None:
    if first != second:
        raise DataLossError(
            f"{partition} was not the same when it was read again for its malformed records: "
            f"{first}, then {second}",
            next_step="run it again",
        )


def keep_in_tasks(
    session: SparkSession, kafka: KafkaSettings, task: KeepWork
) -> Iterator[tuple[CountRequest, Any]]:
    """Keep the counted lines of each range, unless more is malformed than the pipeline allows.

    Args:
        session: A session with the Kafka connector; its executors' Python has Tally and PyArrow.
        kafka: How the executors reach Kafka.
        task: What is done in each task.

    Yields:
        For each request its :class:`tally.aggregates.counts.LineSet`, None where nothing is kept,
        or the error that was raised.

    Raises:
        ReadError: Spark did not read each range in one task.
        RuntimeError: There is a bug in what a task does.
    """
    pipeline, ranges = task.requests[0].pipeline, [r.ranges[0] for r in task.requests]
    records = read_ranges(session, kafka, pipeline, ranges, tasks=None)
    for request, outcome in task.outcomes(Grouping.of(pipeline, task.topics).kept(records)):
        yield request, outcome.result()


def count_in_tasks(
    session: SparkSession, kafka: KafkaSettings, task: CountWork
) -> Iterator[tuple[CountRequest, Any]]:
    """Read each range in a task, and do the work there; malformed records take a second read.

    Args:
        session: As :func:`keep_in_tasks`.
        kafka: As :func:`keep_in_tasks`.
        task: What is done in each task.

    Yields:
        For each request what the work has returned, or the error that was raised.

    Raises:
        ReadError: Spark did not read each range in one task.
        RuntimeError: There is a bug in what a task does.
    """
    first_reads: dict[TopicPartition, SegmentTotals] = {}
    for request, outcome in task.outcomes(_rows_to_count(session, kafka, task)):
        if outcome.first_read is None:
            yield request, outcome.result()
        else:
            first_reads[request.ranges[0].partition] = outcome.first_read
    if first_reads:
        again = [r for r in task.requests if r.ranges[0].partition in first_reads]
        task = replace(task, requests=again, first_reads=first_reads)
        yield from count_in_tasks(session, kafka, task)


def _rows_to_count(session: SparkSession, kafka: KafkaSettings, task: CountWork) -> DataFrame:
    pipeline = task.requests[0].pipeline
    ranges = [r.ranges[0] for r in task.requests]
    grouping = Grouping.of(pipeline, task.topics)
    read = partial(read_ranges, session, kafka, pipeline, tasks=None)
    if task.first_reads:
        return grouping.judged_in_tasks(read(ranges), pipeline.dead_letter_max_bytes)
    apart = worth_a_plan(ranges)
    together = [r for r in ranges if r not in apart]
    return grouping.counts_in_tasks(
        read(together) if together else None, [read([r]) for r in apart]
    )


def worth_a_plan(ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """The ranges whose records Spark should group, and not Arrow in Python.

    Spark groups a range in its one task where the range has a plan of its own, which costs time
    however few records it has. In Python each record costs more.
    """
    large = [r for r in ranges if r.offsets >= _APART_OFFSETS_MIN]
    return sorted(large, key=lambda r: r.offsets, reverse=True)[:_APART_MAX]


def outcome_of_each(
    task: RangeWork, outcomes: Sequence[TaskOutcome]
) -> list[tuple[CountRequest, TaskOutcome]]:
    """The outcome of each request, in order.

    A task that has read no record cannot know its partition: its work is done here.

    Raises:
        ReadError: There were not as many tasks as ranges, or two tasks have read one of them.
        TallyError: A task has failed before it knew its partition.
    """
    found = {o.partition: o for o in outcomes if o.partition is not None}
    unknown = [o for o in outcomes if o.partition is None]
    for outcome in unknown:
        if outcome.error is not None:
            raise outcome.error
    silent = [r for r in task.requests if r.ranges[0].partition not in found]
    if len(outcomes) != len(task.requests) or len(silent) != len(unknown):
        raise ReadError(
            f"Spark read {len(task.requests)} ranges in {len(outcomes)} tasks, {len(found)} of "
            "them with records, instead of each in one",
            next_step="leave options out of reader that divide or join partitions",
        )
    for request in silent:
        partition = request.ranges[0].partition
        try:
            found[partition] = task.of_range(request, ())
        except TallyError as error:
            found[partition] = TaskOutcome(partition=partition, error=error)
    return [(r, found[r.ranges[0].partition]) for r in task.requests]
