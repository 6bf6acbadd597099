"""Counting each range in the one Spark task that reads it, and working on its counts there.

The driver starts the tasks. What they do runs in the Python workers of Spark's executors, and each
reports its outcome to the driver in one row; rows that were read never reach the driver.
"""

import pickle
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row, SparkSession

from tally.aggregates.aggregate import Aggregate
from tally.aggregates.counts import Contribution, CountRequest, Counts, DeadLetter, KeptLine
from tally.aggregates.gathering import Gathering
from tally.aggregates.judgement import dead_letter
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
_VALUES: Final = (*LETTER[1:], "key_digest")
_KEPT: Final = ("first_offset", "minute", "value", "key_digest")


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
class TaskWork:
    """The work of every task of a read."""

    requests: Sequence[CountRequest]
    """One for each partition, which is its only range; all of one pipeline."""
    work: Work
    """What is done for each; picklable."""
    spool_dir: Path | None = None
    """Folder for rows that do not fit into memory; the system's temporary folder when None."""
    first_reads: Mapping[TopicPartition, SegmentTotals] = field(default_factory=dict)
    """What a first read has found, where this is the second one; it must find the same."""
    open_set: OpenSet | None = None
    """Opens what counted lines are written to, whose values the rows have then, too; picklable.
    None when lines are not kept."""

    @property
    def is_judged(self) -> bool:
        """Whether the rows are single records, malformed ones with their value."""
        return bool(self.first_reads) or self.open_set is not None

    @property
    def topics(self) -> set[str]:
        """The topics of the ranges; where there is but one, rows do not name it."""
        return {r.ranges[0].partition.topic for r in self.requests}

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Count the rows of a task, do the work, and report its outcome."""
        outcome, partition, rows = TaskOutcome(), None, without_end(batches)
        try:
            first = next((batch for batch in rows if batch.num_rows), None)
            if first is not None:
                request = self._request_of(first)
                partition = request.ranges[0].partition
                outcome = self.count(request, chain([first], rows))
        except TallyError as error:
            outcome = TaskOutcome(partition=partition, error=error)
        except Exception:  # noqa: BLE001 - the driver raises it; it is no reason to try again
            bug = RuntimeError(f"a Spark task has failed: {traceback.format_exc()}")
            outcome = TaskOutcome(partition=partition, error=bug)
        yield pa.RecordBatch.from_pydict({"outcome": [pickle.dumps(outcome)]})

    def count(self, request: CountRequest, batches: Iterable[pa.RecordBatch]) -> TaskOutcome:
        """Count the rows of a range and do its work.

        Raises:
            TallyError: The counts are not what was asked for, or the work failed.
        """
        partition, aggregate = request.ranges[0].partition, Aggregate.of(request.pipeline)
        places = ["partition"] if len(self.topics) == 1 else ["topic", "partition"]
        keys, sums = ["minute", *aggregate.label_columns], aggregate.sums_of_groups
        with (
            Spool[Contribution](folder=self.spool_dir) as contributions,
            Spool[DeadLetter](folder=self.spool_dir) as dead_letters,
        ):
            gathering = Gathering(request, contributions)
            lines = None if self.open_set is None else self.open_set(request)
            if self.is_judged:
                batches = _without_values(request, batches, dead_letters, lines)
            for groups in add_up(batches, places, keys, sums):
                for group in groups.to_pylist():
                    gathering.add(Row(**{"topic": partition.topic, **group}))
            counts = gathering.counts(dead_letters)
            totals = counts.totals[partition]
            if gathering.malformed and not self.is_judged:
                return TaskOutcome(partition=partition, first_read=totals)
            _check_same(partition, self.first_reads.get(partition, totals), totals)
            if lines is not None:
                counts = replace(counts, line_set=lines.seal())
            return TaskOutcome(partition=partition, value=self.work(request, counts))

    def _request_of(self, batch: pa.RecordBatch) -> CountRequest:
        """The request for the partition of a task's first row."""
        row = batch.slice(0, 1).to_pylist()[0]
        topic = row["topic"] if "topic" in row else next(iter(self.topics))
        partition = TopicPartition(topic=topic, partition=row["partition"])
        (request,) = (r for r in self.requests if r.ranges[0].partition == partition)
        return request


def _without_values(
    request: CountRequest,
    batches: Iterable[pa.RecordBatch],
    dead_letters: Spool[DeadLetter],
    lines: Any,
) -> Iterator[pa.RecordBatch]:
    """The rows, without the values of single records, which are kept.

    Those of a flood are not: nothing is committed when more records are malformed than allowed.
    """
    limit, partition = request.pipeline.max_malformed_per_batch, request.ranges[0].partition
    for batch in batches:
        if len(dead_letters) <= limit:
            for letter in _rows(batch, "reason", LETTER):
                dead_letters.append(dead_letter(request.pipeline, partition, *letter))
        if lines is not None and len(dead_letters) <= limit:
            lines.add(KeptLine(*line) for line in _rows(batch, "minute", _KEPT))
        yield batch.drop_columns([name for name in _VALUES if name in batch.schema.names])


def _rows(batch: pa.RecordBatch, where: str, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Some columns of the rows in which another one is not null."""
    rows = batch.filter(pc.is_valid(batch.column(where)))
    return zip(*(rows.column(name).to_pylist() for name in names), strict=True)


def _check_same(partition: TopicPartition, first: SegmentTotals, second: SegmentTotals) -> None:
    if first != second:
        raise DataLossError(
            f"{partition} was not the same when it was read again for its malformed records: "
            f"{first}, then {second}",
            next_step="run it again",
        )


def count_in_tasks(
    session: SparkSession, kafka: KafkaSettings, task: TaskWork
) -> Iterator[tuple[CountRequest, Any]]:
    """Read each range in a task, and do the work there; malformed records take a second read.

    Where lines are kept there is one read, in which each record is judged by itself.

    Args:
        session: A session with the Kafka connector; its executors' Python has Tally and PyArrow.
        kafka: How the executors reach Kafka.
        task: What is done in each task.

    Yields:
        For each request what the work has returned, or the error that was raised.

    Raises:
        ReadError: Spark did not read each range in one task.
        RuntimeError: There is a bug in what a task does.
    """
    first_reads: dict[TopicPartition, SegmentTotals] = {}
    for request, outcome in _read(session, kafka, task):
        if outcome.first_read is None:
            yield request, outcome.result()
        else:
            first_reads[request.ranges[0].partition] = outcome.first_read
    if first_reads:
        again = [r for r in task.requests if r.ranges[0].partition in first_reads]
        task = replace(task, requests=again, first_reads=first_reads)
        yield from count_in_tasks(session, kafka, task)


def _read(
    session: SparkSession, kafka: KafkaSettings, task: TaskWork
) -> list[tuple[CountRequest, TaskOutcome]]:
    pipeline = task.requests[0].pipeline
    ranges = [r.ranges[0] for r in task.requests]
    grouping = Grouping.of(pipeline, task.topics)
    read = partial(read_ranges, session, kafka, pipeline, tasks=None)
    if task.is_judged:
        keeps = task.open_set is not None
        rows = grouping.judged_in_tasks(read(ranges), pipeline.dead_letter_max_bytes, keeps=keeps)
    else:
        apart = worth_a_plan(ranges)
        together = [r for r in ranges if r not in apart]
        rows = grouping.counts_in_tasks(
            read(together) if together else None, [read([r]) for r in apart]
        )
    outcomes = rows.mapInArrow(task, "outcome binary").collect()
    return outcome_of_each(task, [pickle.loads(row.outcome) for row in outcomes])  # noqa: S301 - ours


def worth_a_plan(ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """The ranges whose records Spark should group, and not Arrow in Python.

    Spark groups a range in its one task where the range has a plan of its own, which costs time
    however few records it has. In Python each record costs more.
    """
    large = [r for r in ranges if r.offsets >= _APART_OFFSETS_MIN]
    return sorted(large, key=lambda r: r.offsets, reverse=True)[:_APART_MAX]


def outcome_of_each(
    task: TaskWork, outcomes: Sequence[TaskOutcome]
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
            found[partition] = task.count(request, ())
        except TallyError as error:
            found[partition] = TaskOutcome(partition=partition, error=error)
    return [(r, found[r.ranges[0].partition]) for r in task.requests]
