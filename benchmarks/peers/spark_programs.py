"""Programs for Spark: a bare read, a batch with Spark's defaults, and Structured Streaming.

They run in the session that Tally counts in, which is warm.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

V1_SOURCES = "spark.sql.sources.useV1SourceList"
STREAM_TIMEOUT_S = 600

Commit = Callable[[Mapping[str, int]], None]
"""Writes counts by minute."""


def read_bare(spark: SparkSession, topic: str, partitions: int, options: Mapping[str, str]) -> None:
    """Read every record and discard it, with options that are tuned for it."""
    records = (
        spark.read.format("kafka")
        .options(**options)
        .option("assign", json.dumps({topic: list(range(partitions))}))
        .load()
    )
    records.select(F.max("offset"), F.max(F.octet_length("value"))).collect()


def count_by_defaults(spark: SparkSession, topic: str, servers: str, commit: Commit) -> None:
    """Count as an ordinary batch program does, with the defaults of Spark and of Kafka."""
    before = spark.conf.get(V1_SOURCES)
    spark.conf.unset(V1_SOURCES)
    try:
        records = (
            spark.read.format("kafka")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", topic)
            .load()
        )
        commit(_collected(records))
    finally:
        if before is not None:
            spark.conf.set(V1_SOURCES, before)


def stream_available(
    spark: SparkSession, topic: str, options: Mapping[str, str], commit: Commit
) -> None:
    """Count by Structured Streaming, ``availableNow`` with ``foreachBatch``, with tuned options."""
    with TemporaryDirectory() as folder:
        query = (
            spark.readStream.format("kafka")
            .options(**options)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
            .writeStream.foreachBatch(lambda batch, _: commit(_collected(batch)))
            .option("checkpointLocation", str(Path(folder) / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        if not query.awaitTermination(STREAM_TIMEOUT_S):
            query.stop()
            raise RuntimeError("the stream did not end")


def _collected(records: DataFrame) -> Counter[str]:
    """ERROR lines by minute, without a look at the rest of a line."""
    line = records.select(F.col("value").cast("string").alias("line"))
    errors = line.where(F.substring("line", 21, 6) == "ERROR ")
    by_minute = errors.groupBy(F.substring("line", 1, 16).alias("minute")).count()
    return Counter({row["minute"]: row["count"] for row in by_minute.collect()})
