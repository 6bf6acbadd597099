"""Counting what planned ranges hold, with Spark; and trying a line format on a few records.

One pass over the data; a second one, over the part that holds malformed records, only where there
are any. Built-in DataFrame expressions only. Lines of small ranges are read by a consumer of this
process, and sent to Spark; none of the others passes through Python.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from tally.aggregates.counts import (
    LEDGER_ORDER,
    Contribution,
    CountRequest,
    Counts,
    DeadLetter,
)
from tally.aggregates.gathering import Gathering
from tally.aggregates.judgement import dead_letters_in
from tally.aggregates.spool import Spool
from tally.config.pipeline import Pipeline
from tally.config.servers import KafkaSettings
from tally.errors import DataLossError, TallyError
from tally.lines.reading import Record
from tally.model import OffsetRange, SegmentTotals, TopicPartition
from tally.spark.grouping import Grouping, with_parts
from tally.spark.line_columns import read_line
from tally.spark.reading import (
    OnRead,
    ReadWhole,
    collect,
    deadline,
    read_errors,
    read_ranges,
    records_frame,
    watched,
)
from tally.spark.session import session_conf
from tally.spark.task_counting import CountWork, KeepWork, count_in_tasks, keep_in_tasks

# The driver's JVM holds the dead letters of two Spark tasks at a time, each about this many bytes,
# were they spread evenly over the offsets.
DEAD_LETTER_BYTES_PER_TASK: Final = 32 * 1024 * 1024

# And the groups of one Spark task: this many at most.
_GROUPS_PER_TASK: Final = 250_000

# Larger ranges take less time to read with a consumer for each, as Spark's reader has, than to send
# to Spark as rows.
_TOGETHER_OFFSETS_MAX: Final = 1_000

# A task costs the start of a consumer, and what that has fetched beyond the end. So ranges are
# divided no further than a few cores need, or the memory of a task.
_TASK_OFFSETS_MIN: Final = 1_000_000
_TASK_OFFSETS_MAX: Final = 5_000_000
_TASKS: Final = 4


def tasks_for(sizes: Sequence[int]) -> int:
    """How many Spark tasks read ranges of this many offsets each.

    One for each, and more where several cores would wait for one large range, or a task would read
    too much.
    """
    wanted = min(_TASK_OFFSETS_MAX, max(_TASK_OFFSETS_MIN, sum(sizes) / _TASKS))
    return sum(max(1, round(size / wanted)) for size in sizes)


_PARTS: Final = "spark.sql.shuffle.partitions"

_INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class SparkReader:
    """Reads with one Spark session."""

    session: SparkSession
    """A session with the Kafka connector."""
    kafka: KafkaSettings
    """How the executors reach Kafka."""
    read_whole: ReadWhole | None = None
    """Reads small ranges without Spark; None leaves all of them to Spark."""
    spool_dir: Path | None = None
    """Folder for rows that do not fit into memory; the system's temporary folder when None."""
    fetch: Callable[..., Iterator[Sequence[Any]]] = collect
    """Brings rows to the driver, as :func:`tally.spark.reading.collect` does."""
    on_read: OnRead | None = None
    """Called from another thread with the progress of a read."""

    @contextmanager
    def count(self, request: CountRequest) -> Iterator[Counts]:
        """Read the ranges, count them, and check that all of them was read.

        Yields:
            The counts; they are given back at the end of the ``with`` block.

        Raises:
            ReadError: Spark could not read; the same call may succeed later.
            CountTimeoutError: It took longer than the pipeline's patience; Spark was ended.
            RecordsMissingError: Offsets of a dense range hold no record.
            DataLossError: What was read is not what was asked for.
            MalformedFloodError: More records are malformed than the pipeline allows.
            SeriesFloodError: The labels have more values than the pipeline allows.
            UnwritableError: The folder for temporary files is full.
        """
        order = None if request.is_recount else LEDGER_ORDER
        with (
            Spool[Contribution](folder=self.spool_dir, order=order) as contributions,
            dead_letters_in(self.spool_dir, request.pipeline) as dead_letters,
        ):
            with self._reading(request.pipeline, request.ranges):
                counts = self._read(request, contributions, dead_letters)
            yield counts

    def count_each(
        self,
        requests: Sequence[CountRequest],
        work: Callable[[CountRequest, Counts], Any],
        open_set: Callable[[CountRequest], Any] | None = None,
    ) -> Iterator[tuple[CountRequest, Any]]:
        """Count each range in the Spark task that reads it, and work on its counts there.

        Args:
            requests: Of one pipeline, each with one range, each of another partition.
            work: Called in an executor with a request and its counts, which were checked as
                :meth:`SparkReader.count` does; it is pickled, and so is what it returns. It may be
                called more than once, also at the same time.
            open_set: Opens what the counted lines of a request are written to in an executor
                (:data:`tally.spark.task_counting.OpenSet`); None when they are not kept.

        Yields:
            For each request what the work has returned, or the :class:`tally.errors.TallyError`
            that it, or the check of the counts, has raised.

        Raises:
            ReadError: Spark could not read; the same call may succeed later.
            CountTimeoutError: It took longer than the pipeline's patience; Spark was ended.
        """
        line_sets = {}
        ranges = [r.ranges[0] for r in requests]
        total = sum(r.offsets for r in ranges)
        watching = watched(self.session, self.on_read, 0, total, total)
        with self._reading(requests[0].pipeline, ranges), watching:
            if open_set is not None:
                keep = KeepWork(requests=requests, open_set=open_set)
                for request, kept in keep_in_tasks(self.session, self.kafka, keep):
                    if isinstance(kept, TallyError):
                        yield request, kept
                    else:
                        line_sets[request.ranges[0].partition] = kept
                requests = [r for r in requests if r.ranges[0].partition in line_sets]
            if requests:
                task = CountWork(
                    requests=requests, work=work, spool_dir=self.spool_dir, line_sets=line_sets
                )
                yield from count_in_tasks(self.session, self.kafka, task)

    @contextmanager
    def _reading(self, pipeline: Pipeline, ranges: Sequence[OffsetRange]) -> Iterator[None]:
        """Spark's work on ranges: it ends in time, and its errors become Tally's."""
        with deadline(self.session, pipeline.patience_s), read_errors(ranges):
            yield

    def _read(
        self,
        request: CountRequest,
        contributions: Spool[Contribution],
        dead_letters: Spool[DeadLetter],
    ) -> Counts:
        """Read, count and check; the spools are filled."""
        gathering = Gathering(request, contributions)
        done, total = 0, sum(r.offsets for r in request.ranges)
        for records, ranges in self._frames(request.pipeline, request.ranges):
            until = done + sum(r.offsets for r in ranges)
            with watched(self.session, self.on_read, done, until, total):
                self._gather(request, gathering, records, ranges)
            done = until
        counts = gathering.counts(dead_letters)
        if gathering.malformed:
            self._collect_dead_letters(request, gathering, counts.totals, dead_letters)
        return counts

    def _gather(
        self,
        request: CountRequest,
        gathering: Gathering,
        records: DataFrame,
        ranges: Sequence[OffsetRange],
    ) -> None:
        """Add the groups of the records of some of the request's ranges."""
        if request.is_recount:
            partitions = {r.partition for r in ranges}
            parts = [part for part in request.parts if part.partition in partitions]
            records = with_parts(records, parts)
        topics, offsets = {r.partition.topic for r in ranges}, sum(r.offsets for r in ranges)
        grouping = Grouping.of(request.pipeline, topics, each=request.is_recount)
        counted = grouping.counts(records, is_small=offsets <= _GROUPS_PER_TASK)
        # The groups come in parts that the driver can hold, even if no two lines share a minute.
        # Spark joins small parts again, so the usual batch of few minutes comes in one.
        n_parts = -(-offsets // _GROUPS_PER_TASK)
        is_more = n_parts > int(self.session.conf.get(_PARTS) or n_parts)
        with session_conf(self.session, {_PARTS: str(n_parts)} if is_more else {}):
            gathering.add(grouping.columns, self.fetch(counted, ranges))

    def _frames(
        self, pipeline: Pipeline, ranges: Sequence[OffsetRange], *, kept_bytes: int = 0
    ) -> Iterator[tuple[DataFrame, Sequence[OffsetRange]]]:
        """The records of all ranges, each with the ranges that it holds.

        Small ranges are read together, unless the pipeline has options for Spark's reader. The
        others are divided into tasks of which none reads or returns too much.
        """
        read: set[OffsetRange] = set()
        small = [r for r in ranges if r.offsets <= _TOGETHER_OFFSETS_MAX]
        if small and self.read_whole is not None and not pipeline.reader:
            for whole in self.read_whole(small, pipeline.reads_committed):
                read |= whole.keys()
                if any(whole.values()):
                    yield records_frame(self.session, whole), list(whole)
        if left := [r for r in ranges if r not in read]:
            by_bytes = -(-kept_bytes // DEAD_LETTER_BYTES_PER_TASK)
            tasks = max(tasks_for([r.offsets for r in left]), by_bytes)
            yield read_ranges(self.session, self.kafka, pipeline, left, tasks=tasks), left

    def _collect_dead_letters(
        self,
        request: CountRequest,
        gathering: Gathering,
        totals: Mapping[TopicPartition, SegmentTotals],
        dead_letters: Spool[DeadLetter],
    ) -> None:
        """Read the malformed records again and keep them; as many as were counted.

        Args:
            request: Line format, and how many bytes of a record are kept.
            gathering: Where the first read found them, and their bytes.
            totals: What it found.
            dead_letters: Filled.
        """
        pipeline = request.pipeline
        ranges = gathering.malformed
        expected = {r.partition: totals[r.partition].malformed for r in ranges}
        found = dict.fromkeys(expected, 0)
        at_once = gathering.malformed_bytes <= DEAD_LETTER_BYTES_PER_TASK
        known = {(partition.topic, partition.partition): partition for partition in expected}
        for records, of in self._frames(pipeline, ranges, kept_bytes=gathering.malformed_bytes):
            grouping = Grouping.of(pipeline, {r.partition.topic for r in of})
            letters = grouping.malformed(records, pipeline.dead_letter_max_bytes)
            for topic, number, *letter in self.fetch(letters, of, at_once=at_once):
                partition = known[topic, number]
                found[partition] += 1
                dead_letters.append((partition, *letter))
        wrong = [str(p) for p, malformed in expected.items() if found[p] != malformed]
        # A recount compares them one by one, and says which are gone.
        if wrong and not request.is_recount:
            raise DataLossError(
                f"pipeline {pipeline.name}: the malformed records of {', '.join(wrong)} were not "
                "all there when they were read again",
                next_step=f"tally plan {pipeline.name} looks at what Kafka still holds",
            )


def try_format(
    session: SparkSession, lines: Sequence[Record], trial: Pipeline
) -> list[tuple[str | None, str | None, Mapping[str, str]]]:
    """What a format makes of each line, in order, with the expressions that count.

    A line without a level lacks it.

    Args:
        session: Any Spark session.
        lines: The lines.
        trial: With the format, and how the minute follows.

    Returns:
        Why it is malformed (:class:`tally.lines.format.MalformedReason`), or None; else its minute
        and its fields by name.
    """
    line_format = trial.format
    some_level = [next(iter(line_format.levels), "ERROR")] if line_format.has_level else []
    names = line_format.fields
    frame = session.createDataFrame(
        [(line.value, line.written_at) for line in lines], "value binary, timestamp timestamp"
    )
    line = read_line(trial.model_copy(update={"levels": some_level, "labels": names}))
    line.record = {}  # a field of the line may have such a name
    columns = [line.well_formed_minute, *line.labels_where(line.well_formed)]
    # For few lines it takes less time to evaluate expressions without compiling them.
    with read_errors(()), session_conf(session, _INTERPRETED):
        rows = line.stages.select(frame, line.malformed_reason, *columns).collect()
    return [
        (None, minute, dict(zip(names, (text or "" for text in texts), strict=True)))
        if reason is None
        else (reason, None, {})
        for reason, minute, *texts in rows
    ]
