"""Counting each range in the one Spark task that reads it, and working on its counts there."""

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from tally.aggregates.counts import Contribution, CountRequest, DeadLetter
from tally.aggregates.gathering import Gathering
from tally.aggregates.spool import Spool
from tally.aggregates.sums import sums_of_groups
from tally.config.servers import KafkaSettings
from tally.errors import ReadError, TallyError
from tally.model import OffsetRange, SegmentTotals, TopicPartition
from tally.spark.grouping import Grouping
from tally.spark.reading import read_ranges
from tally.spark.task_work import OUTCOME_SCHEMA, OpenSet, TaskOutcome, TaskWork, Work

_APART_OFFSETS_MIN: Final = 200_000
"""Fewer records take Arrow less time than another plan takes Spark."""
_APART_MAX: Final = 32


def worth_a_plan(ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
    """The ranges whose records Spark should group, and not Arrow in Python.

    Spark groups a range in its one task where the range has a plan of its own, which costs time
    however few records it has. In Python each record costs more.
    """
    large = [r for r in ranges if r.offsets >= _APART_OFFSETS_MIN]
    return sorted(large, key=lambda r: r.offsets, reverse=True)[:_APART_MAX]


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskCounting:
    """Reads with one Spark session; a task of it for each range."""

    session: SparkSession
    """A session with the Kafka connector; its executors' Python has Tally and PyArrow."""
    kafka: KafkaSettings
    """How the executors reach Kafka."""
    spool_dir: Path | None
    """Folder of the executors for rows that do not fit into memory; None for the system's."""

    def outcomes(
        self, requests: Sequence[CountRequest], work: Work, open_set: OpenSet | None = None
    ) -> Iterator[tuple[CountRequest, Any]]:
        """Read each range in a task, and do the work there; malformed records take a second read.

        Where lines are kept there is one read, in which each record is judged by itself.

        Args:
            requests: Of one pipeline, each with one range, each of another partition.
            work: What is done with the counts of a range; it is pickled.
            open_set: Opens what counted lines are written to; it is pickled. None when they are not
                kept.

        Yields:
            For each request what the work has returned, or the error that was raised.

        Raises:
            ReadError: Spark did not read each range in one task.
        """
        first_reads = {}
        for request, outcome in self._read(requests, work, open_set=open_set):
            if outcome.first_read is not None:
                first_reads[request.ranges[0].partition] = outcome.first_read
            else:
                yield from said([(request, outcome)])
        again = [r for r in requests if r.ranges[0].partition in first_reads]
        if again:
            yield from said(self._read(again, work, first_reads))

    def _read(
        self,
        requests: Sequence[CountRequest],
        work: Work,
        first_reads: Mapping[TopicPartition, SegmentTotals] | None = None,
        open_set: OpenSet | None = None,
    ) -> list[tuple[CountRequest, TaskOutcome]]:
        pipeline = requests[0].pipeline
        ranges = [r.ranges[0] for r in requests]
        grouping = Grouping.of(pipeline, {r.partition.topic for r in ranges})
        read = partial(read_ranges, self.session, self.kafka, pipeline, tasks=None)
        is_judged = first_reads is not None or open_set is not None
        if is_judged:
            rows = grouping.judged_in_tasks(
                read(ranges), pipeline.dead_letter_max_bytes, keeps=open_set is not None
            )
        else:
            apart = dict.fromkeys(worth_a_plan(ranges))
            together = [r for r in ranges if r not in apart]
            rows = grouping.counts_in_tasks(
                read(together) if together else None, [read([r]) for r in apart]
            )
        task = TaskWork(
            requests=requests,
            work=work,
            topic=grouping.topic,
            places=grouping.places,
            keys=("minute", *grouping.aggregate.label_columns),
            sums=sums_of_groups(grouping.aggregate),
            spool_dir=self.spool_dir,
            first_reads=first_reads or {},
            open_set=open_set,
        )
        told = [_told(row.outcome) for row in rows.mapInArrow(task, OUTCOME_SCHEMA).collect()]
        return outcome_of_each(requests, told, work, open_set)


def said(
    outcomes: Iterable[tuple[CountRequest, TaskOutcome]],
) -> Iterator[tuple[CountRequest, Any]]:
    """For each request what the work has returned, or the error that was raised.

    Raises:
        RuntimeError: There is a bug in what a task does.
    """
    for request, outcome in outcomes:
        if outcome.bug:
            raise RuntimeError(f"a Spark task has failed: {outcome.bug}")
        yield request, outcome.error or outcome.value


def _told(pickled: bytes) -> TaskOutcome:
    outcome: TaskOutcome = pickle.loads(pickled)  # noqa: S301 - written by a task of ours
    return outcome


def outcome_of_each(
    requests: Sequence[CountRequest],
    told: Sequence[TaskOutcome],
    work: Work,
    open_set: OpenSet | None = None,
) -> list[tuple[CountRequest, TaskOutcome]]:
    """The outcome of each request, in order.

    A task that has read no record cannot know its partition: its work is done here.

    Raises:
        ReadError: There were not as many tasks as ranges, or two tasks have read one of them.
        TallyError: A task has failed before it knew its partition.
    """
    found = {o.partition: o for o in told if o.partition is not None}
    unknown = [o for o in told if o.partition is None]
    for outcome in unknown:
        if outcome.error is not None or outcome.bug:
            raise outcome.error or RuntimeError(f"a Spark task has failed: {outcome.bug}")
    silent = [r for r in requests if r.ranges[0].partition not in found]
    if len(told) != len(requests) or len(silent) != len(unknown):
        raise ReadError(
            f"Spark read {len(requests)} ranges in {len(told)} tasks, {len(found)} of them with "
            "records, instead of each in one",
            next_step="leave options out of reader that divide or join partitions",
        )
    found |= {r.ranges[0].partition: _of_nothing(r, work, open_set) for r in silent}
    return [(r, found[r.ranges[0].partition]) for r in requests]


def _of_nothing(request: CountRequest, work: Work, open_set: OpenSet | None) -> TaskOutcome:
    partition = request.ranges[0].partition
    with Spool[Contribution]() as contributions, Spool[DeadLetter]() as dead_letters:
        try:
            counts = Gathering(request, contributions).counts(dead_letters)
            if open_set is not None:
                counts = replace(counts, row_set=open_set(request).seal())
            return TaskOutcome(partition=partition, value=work(request, counts))
        except TallyError as error:
            return TaskOutcome(partition=partition, error=error)
