"""What a Spark task does with the counts of its partition, where it has read them.

Runs in the Python workers of Spark's executors. A task tells the driver what became of it in one
row; rows that were read never reach the driver.
"""

import pickle
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Row

from tally.aggregates.counts import Contribution, CountRequest, Counts, DeadLetter, KeptLine, RowSet
from tally.aggregates.gathering import Gathering
from tally.aggregates.spool import Spool
from tally.aggregates.sums import Sum
from tally.errors import DataLossError, TallyError
from tally.model import SegmentTotals, TopicPartition
from tally.spark.task_groups import Input, add_up

Work = Callable[[CountRequest, Counts], Any]
"""What is done with the counts of a partition; what it returns reaches the driver."""


class LineSet(Protocol):
    """Where the counted lines of one range are written to."""

    def add(self, lines: Iterable[KeptLine]) -> None:
        """Write lines."""

    def seal(self) -> RowSet:
        """Make it whole, once all lines were added."""


OpenSet = Callable[[CountRequest], LineSet]
"""Opens the set of a request's only range."""

OUTCOME_SCHEMA: Final = "outcome binary"
_MALFORMED: Final = ("reason", "value", "value_bytes")
_VALUES: Final = (*_MALFORMED, "key_digest")
_KEPT: Final = ("first_offset", "minute", "value", "key_digest")


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskOutcome:
    """What became of a task."""

    partition: TopicPartition | None = None
    """The partition that it has read; None when it has read no record."""
    value: Any = None
    """What the work has returned."""
    error: TallyError | None = None
    """Why the work was not done."""
    bug: str = ""
    """The traceback of an error that nobody has foreseen."""
    first_read: SegmentTotals | None = None
    """What was read, when the work was left undone because malformed records are to be kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskWork:
    """The work of every task of a read."""

    requests: Sequence[CountRequest]
    """One for each partition, which is its only range."""
    work: Work
    """What is done for each; picklable."""
    topic: str | None
    """The topic, where no column has it."""
    places: Sequence[str]
    """Columns that name a partition."""
    keys: Sequence[str]
    """Minute and labels."""
    sums: Sequence[Sum]
    """The columns that are added up."""
    spool_dir: Path | None
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

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Add up the rows of a task, do the work, and tell what became of it."""
        with (
            Spool[Contribution](folder=self.spool_dir) as contributions,
            Spool[DeadLetter](folder=self.spool_dir) as dead_letters,
        ):
            reading = _Reading(self, contributions, dead_letters)
            outcome = self._outcome(reading, Input(batches))
        yield pa.RecordBatch.from_pydict({"outcome": [pickle.dumps(outcome)]})

    def _outcome(self, reading: "_Reading", batches: Iterable[pa.RecordBatch]) -> TaskOutcome:
        try:
            reading.add(batches)
            partition, request, gathering = reading.partition, reading.request, reading.gathering
            if partition is None or request is None or gathering is None:
                return TaskOutcome()
            counts = gathering.counts(reading.dead_letters)
            totals = counts.totals[partition]
            if gathering.malformed and not self.is_judged:
                return TaskOutcome(partition=partition, first_read=totals)
            _check_same(partition, self.first_reads.get(partition, totals), totals)
            if reading.lines is not None:
                counts = replace(counts, row_set=reading.lines.seal())
            return TaskOutcome(partition=partition, value=self.work(request, counts))
        except TallyError as error:
            return TaskOutcome(partition=reading.partition, error=error)
        except Exception:  # noqa: BLE001 - the driver raises it; it is no reason to try again
            return TaskOutcome(partition=reading.partition, bug=traceback.format_exc())


class _Reading:
    """What a task has read so far."""

    def __init__(
        self, task: TaskWork, contributions: Spool[Contribution], dead_letters: Spool[DeadLetter]
    ) -> None:
        self._task = task
        self._contributions = contributions
        self.dead_letters = dead_letters
        self.partition: TopicPartition | None = None
        self.request: CountRequest | None = None
        self.gathering: Gathering | None = None
        self.lines: LineSet | None = None

    def add(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Add up all rows."""
        task = self._task
        for groups in add_up(self._without_values(batches), task.places, task.keys, task.sums):
            for group in groups.to_pylist():
                row = Row(**{"topic": task.topic, **group})
                if self.gathering is None:
                    self.gathering = Gathering(self._begun(row), self._contributions)
                self.gathering.add(row)

    def _begun(self, row: Row) -> CountRequest:
        if self.request is None:
            self.partition = TopicPartition(topic=row.topic, partition=row.partition)
            (self.request,) = (
                r for r in self._task.requests if r.ranges[0].partition == self.partition
            )
        return self.request

    def _without_values(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, without the values of single records, which are kept; not those of a flood."""
        for batch in batches:
            if self._task.is_judged and batch.num_rows:
                if not self._is_flooded:
                    self._keep(batch.filter(pc.is_valid(batch.column(_MALFORMED[0]))))
                if self._task.open_set is not None and not self._is_flooded:
                    self._write(batch, self._task.open_set)
                yield batch.drop_columns([c for c in _VALUES if c in batch.schema.names])
            else:
                yield batch

    @property
    def _is_flooded(self) -> bool:
        """Whether nothing will be committed, as more records are malformed than are allowed."""
        limit = self._task.requests[0].pipeline.max_malformed_per_batch
        return len(self.dead_letters) > limit

    def _write(self, batch: pa.RecordBatch, open_set: OpenSet) -> None:
        """Write the counted lines; they are the task's only partition's, or nothing is sealed."""
        if self.lines is None:
            first = {"topic": self._task.topic, **batch.slice(0, 1).to_pylist()[0]}
            self.lines = open_set(self._begun(Row(**first)))
        counted = batch.filter(pc.is_valid(batch.column("minute")))
        columns = (counted.column(name).to_pylist() for name in _KEPT)
        self.lines.add(KeptLine(*line) for line in zip(*columns, strict=True))

    def _keep(self, malformed: pa.RecordBatch) -> None:
        for row in malformed.to_pylist():
            topic = row.get("topic", self._task.topic)
            self.dead_letters.append(
                DeadLetter(
                    partition=TopicPartition(topic=topic, partition=row["partition"]),
                    offset=row["first_offset"],
                    reason=row["reason"],
                    value=row["value"],
                    value_bytes=row["value_bytes"],
                )
            )


def _check_same(partition: TopicPartition, first: SegmentTotals, second: SegmentTotals) -> None:
    if first != second:
        raise DataLossError(
            f"{partition} was not the same when it was read again for its malformed records: "
            f"{first}, then {second}",
            next_step="run it again",
        )
