"""Reading exactly the planned ranges from Kafka with Spark, and its errors as Tally's.

Another thread watches a read: its deadline, and how far it is. A count can run far longer than
anybody waits for it: one line may keep a regular expression busy for days, and Java's regular
expressions heed no interrupt.
"""

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tally import errors
from tally.config.pipeline import Pipeline
from tally.config.servers import DIVIDING, KafkaSettings
from tally.lines.reading import Record
from tally.model import OffsetRange
from tally.spark.errors import sentence_of, spark_errors
from tally.spark.session import is_remote, reader_options

log = logging.getLogger(__name__)

OnRead = Callable[[int, int], None]
"""Called with the offsets that were read so far, and with their total."""

ReadWhole = Callable[
    [Sequence[OffsetRange], bool], Iterator[Mapping[OffsetRange, Sequence[Record]]]
]
"""Reads ranges, some at a time: the records of a range all, or not at all. It is told whether
records of open and aborted transactions are left out."""

_PAUSE_S: Final = 0.5

_AGAIN: Final = "run it again"
# A driver that runs out of memory ends at once: its last message may be any error.
_OR_WITH_LESS: Final = (
    "; where Spark's log says OutOfMemoryError, first read fewer records at once, as "
    'reader = { "kafka.max.poll.records" = "20" } in the section of the pipeline, or give Spark '
    'more memory, as conf = { "spark.driver.memory" = "4g" } in [spark] (on a cluster '
    "spark.executor.memory)"
)

_Known = tuple[str, type[errors.TallyError], str, str]
# By what stands in Spark's message; the connector and Kafka have no error classes for most of them.
_KNOWN: Final[Sequence[_Known]] = (
    (
        "KAFKA_DATA_LOSS|OffsetOutOfRange|data may have been lost",
        errors.DataLossError,
        "Kafka no longer serves all of {named}: {cause}",
        "tally plan looks at what Kafka still holds",
    ),
    (
        "(?:(?:Topic|Group|Cluster)Authorization|SaslAuthentication)Exception",
        errors.AccessDeniedError,
        "Kafka refuses Spark {named}: {cause}",
        "grant its user READ on the topic: docs/runbook.md, access-denied",
    ),
    (
        "CorruptRecordException|Record(?: batch)? .*is corrupt|checksum",
        errors.ReadError,
        "the bytes that Spark has got of {named} are damaged: {cause}",
        "run it again; if it stays, look at the disks of the partition's brokers",
    ),
    (
        # A record's timestamp does not fit into its type; the sentence names the record.
        r"Record at topic .*timestamp value .*overflows[^\n]*",
        errors.RecordTimestampError,
        "Spark cannot read {named}: {found}",
        "docs/runbook.md, record-timestamp, says how to go on without the record",
    ),
    (
        "No space left on device",
        errors.UnwritableError,
        "Spark cannot write temporary files while it reads {named}: {cause}",
        "free space there, or set spark.local.dir in spark.conf",
    ),
    (
        "INVALID_TIMEZONE",
        errors.ConfigError,
        "pipeline's time_zone: Spark's Java does not know it: {cause}",
        "update Java's time zones, or name another zone of the same clock",
    ),
)


def read_ranges(
    spark: SparkSession,
    kafka: KafkaSettings,
    pipeline: Pipeline,
    ranges: Sequence[OffsetRange],
    *,
    tasks: int | None = 1,
) -> DataFrame:
    """The records of exactly these ranges, in the columns of Spark's Kafka source; read lazily.

    Args:
        spark: A session with the Kafka connector.
        kafka: How the executors reach Kafka.
        pipeline: Its reader options.
        ranges: At most one for each partition.
        tasks: The least number of Spark tasks that read the ranges; None for exactly one for each,
            whatever the options say.
    """
    options = reader_options(kafka, pipeline)
    if tasks is None:
        options = {key: value for key, value in options.items() if key.lower() not in DIVIDING}
    elif tasks > len(ranges):
        options["minPartitions"] = str(max(tasks, int(options.get("minPartitions", 0))))
    partitions: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for r in ranges:
        topic, number = r.partition.topic, r.partition.partition
        partitions.setdefault(topic, []).append(number)
        starts.setdefault(topic, {})[str(number)] = r.from_offset
        ends.setdefault(topic, {})[str(number)] = r.until_offset
    return (
        spark.read.format("kafka")
        .options(**options)
        .option("assign", json.dumps(partitions))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .load()
    )


def records_frame(spark: SparkSession, read: Mapping[OffsetRange, Sequence[Record]]) -> DataFrame:
    """Records that are here already, in the columns of Spark's Kafka source.

    Args:
        spark: A session.
        read: The records of each range, all with a timestamp.
    """
    rows = [(r.partition, record) for r, records in read.items() for record in records]
    columns = {
        "key": pa.array([record.key for _, record in rows], pa.binary()),
        "value": pa.array([record.value for _, record in rows], pa.binary()),
        "topic": pa.array([where.topic for where, _ in rows], pa.string()),
        "partition": pa.array([where.partition for where, _ in rows], pa.int32()),
        "offset": pa.array([record.offset for _, record in rows], pa.int64()),
        "timestamp": pa.array([record.micros for _, record in rows], pa.timestamp("us", tz="UTC")),
    }
    return spark.createDataFrame(pa.table(columns))


def collect(
    rows: DataFrame, ranges: Sequence[OffsetRange], *, at_once: bool = False
) -> Iterator[Sequence[Any]]:
    """The rows, each a tuple; Spark's errors become Tally's.

    Args:
        rows: The rows.
        ranges: What they are read from.
        at_once: Whether memory can hold all of them, which takes less time for many; else at most
            two Spark partitions are in memory.
    """
    with read_errors(ranges):
        if at_once:
            for batch in rows.toArrow().to_batches():
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
        else:
            # Spark 4.2 keeps the result of each job until its query ends, and here each partition
            # is a job: its heap would hold all rows. Jobs of an RDD belong to no query.
            parts = rows if is_remote(rows.sparkSession) else rows.rdd
            # A row looks for the name of a value each time, also where its place is asked for.
            yield from map(tuple, parts.toLocalIterator(prefetchPartitions=True))


@contextmanager
def read_errors(ranges: Sequence[OffsetRange]) -> Iterator[None]:
    """Raise Spark's errors as Tally's: every call to Spark may fail, also one that reads nothing.

    Raises:
        DataLossError: Kafka cannot serve an offset.
        AccessDeniedError: Kafka refuses the executors' credentials, a topic or a group.
        RecordTimestampError: Spark cannot read a record, however often it tries.
        UnwritableError: Spark's folder for temporary files is full.
        ConfigError: Spark's Java does not know the pipeline's time zone.
        ReadError: Any other error; the same call may succeed later.
    """
    try:
        yield
    except spark_errors() as error:
        # A Connect server may keep the causes out of the message.
        stack = getattr(error, "getStackTrace", None)
        message = f"{error}\n{(stack() if stack else None) or ''}".strip()
        causes = [line for line in message.splitlines() if line.startswith("Caused by:")]
        cause = causes[-1].strip() if causes else sentence_of(message)
        named = ", ".join(map(str, ranges))
        for sign, kind, text, next_step in _KNOWN:
            if found := re.search(sign, message):
                what = text.format(named=named, cause=cause, found=found[0])
                raise kind(what, next_step=next_step) from error
        raise errors.ReadError(
            f"Spark could not read {named or 'the lines'}: {cause}",
            next_step=_AGAIN + (_OR_WITH_LESS if ranges else ""),
        ) from error


@contextmanager
def watched(
    session: SparkSession, on_read: OnRead | None, done: int, until: int, total: int
) -> Iterator[None]:
    """Report from another thread how far the read of the block is.

    Spark knows which of its tasks are done; each counts as an equal share of the offsets.

    Args:
        session: Works in the block for one read alone.
        on_read: Called while the number grows; None watches nothing.
        done: Offsets that were read before the block.
        until: And once it has ended.
        total: All that is read.
    """
    if on_read is None:
        yield
        return
    furthest = done

    def tell(share: int, of: int) -> None:
        nonlocal furthest
        read = min(until, done + (until - done) * share // max(1, of))
        if read > furthest:  # what is read a second time is not counted twice
            furthest = read
            on_read(read, total)

    with (_reported if is_remote(session) else _polled)(session, tell):
        yield
    tell(1, 1)


@contextmanager
def _polled(session: SparkSession, tell: Callable[[int, int], None]) -> Iterator[None]:
    """By asking how many tasks are done, of the first stage that is at work."""
    ended, tracker = Event(), session.sparkContext.statusTracker()

    def poll() -> None:
        while not ended.wait(_PAUSE_S):
            try:
                stage = tracker.getStageInfo(min(tracker.getActiveStageIds(), default=-1))
            except spark_errors() as error:  # it is being stopped, or was killed
                log.debug("progress_unknown", extra={"cause": sentence_of(str(error))})
                return
            if stage:
                tell(stage.numCompletedTasks, stage.numTasks)

    thread = Thread(target=poll, name="tally-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _reported(session: SparkSession, tell: Callable[[int, int], None]) -> Iterator[None]:
    """As the server reports it."""

    def handler(stages: Any, **_: Any) -> None:
        if stages:
            reading = min(stages, key=lambda stage: stage.stage_id)
            tell(reading.num_completed_tasks, reading.num_tasks)

    registered: Any = handler  # its protocol is of classes
    session.registerProgressHandler(registered)
    try:
        yield
    finally:
        session.removeProgressHandler(registered)


@contextmanager
def deadline(session: SparkSession, seconds: float) -> Iterator[None]:
    """End Spark's work when the block has taken this many seconds.

    A JVM that this process has started is killed: it may not end otherwise. On a Spark Connect
    server the session's operations are cancelled. Where a JVM has started this process, as
    spark-submit does, there is no deadline here: that is for the caller that has started it.

    Raises:
        CountTimeoutError: The time was over before the block had ended.
    """
    process = None
    if not is_remote(session):
        process = getattr(session.sparkContext._gateway, "proc", None)  # noqa: SLF001 - no other way
        if process is None:
            yield
            return
    passed, over = Event(), Event()
    error = errors.CountTimeoutError(
        f"Spark has not counted the ranges in {seconds:g} s, and was ended",
        next_step="find out which: too large a batch (lower max_records_per_partition, or raise "
        "patience_s), other work on the same Spark (its log, top), or a line that keeps the "
        "pattern of line_format busy (make it stricter)",
    )

    def end() -> None:
        if over.wait(seconds):
            return
        passed.set()
        if process is None:
            _interrupt(session, over)
        else:
            process.kill()
            process.wait()

    thread = Thread(target=end, name="tally-deadline", daemon=True)
    thread.start()
    try:
        yield
    except Exception as failure:
        if passed.is_set():
            raise error from failure
        raise
    finally:
        over.set()
        thread.join()  # a JVM that is being killed is dead afterwards
    if passed.is_set():  # all may have been read, but that is not known
        raise error


def _interrupt(session: SparkSession, over: Event) -> None:
    """Cancel a session's operations, also one that begins later, until it is over."""
    while True:
        try:
            session.interruptAll()
        except spark_errors() as failure:
            log.warning("spark_not_ended", extra={"cause": sentence_of(str(failure))})
        if over.wait(_PAUSE_S):
            return
