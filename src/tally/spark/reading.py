"""Reading exactly the planned ranges from Kafka with Spark, and its errors as Tally's."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession

from tally import errors
from tally.config.pipeline import Pipeline
from tally.config.servers import DIVIDING, KafkaSettings
from tally.model import OffsetRange
from tally.spark.errors import sentence_of, spark_errors
from tally.spark.session import is_remote, reader_options

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


def collect(rows: DataFrame, ranges: Sequence[OffsetRange]) -> Iterator[Row]:
    """The rows, with at most two Spark partitions in memory; Spark's errors become Tally's."""
    with read_errors(ranges):
        if is_remote(rows.sparkSession):
            yield from rows.toLocalIterator(prefetchPartitions=True)
        else:
            # Spark 4.2 keeps the result of each job until its query ends, and here each partition
            # is a job: its heap would hold all rows. Jobs of an RDD belong to no query.
            yield from rows.rdd.toLocalIterator(prefetchPartitions=True)


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
        message = _message(error)
        cause, named = _first_cause(message), ", ".join(map(str, ranges))
        for sign, kind, text, next_step in _KNOWN:
            if found := re.search(sign, message):
                what = text.format(named=named, cause=cause, found=found[0])
                raise kind(what, next_step=next_step) from error
        raise errors.ReadError(
            f"Spark could not read {named or 'the lines'}: {cause}",
            next_step=_AGAIN + (_OR_WITH_LESS if ranges else ""),
        ) from error


def _message(error: Exception) -> str:
    """The message and the stack trace: a Connect server may keep the causes out of the message."""
    stack = getattr(error, "getStackTrace", None)
    return f"{error}\n{(stack() if stack else None) or ''}".strip()


def _first_cause(message: str) -> str:
    causes = [line for line in message.splitlines() if line.startswith("Caused by:")]
    return causes[-1].strip() if causes else sentence_of(message)
