"""The records of planned ranges as frames: their counts, and those that are malformed.

The counts are grouped twice. First by the key of the time (:mod:`tally.spark.time_key`), which is
cheap to find in every record; then, after calendar and clock were asked once for each key, by
minute. Few rows reach the second grouping, and those of a small batch reach it in one task, without
another exchange.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention

from tally.aggregates.aggregate import Aggregate
from tally.config.pipeline import Pipeline
from tally.spark.line_columns import LineKeys, LineReader, Selection
from tally.spark.stages import Stages


class _OfRecord(TypedDict):
    """What Kafka knows of a record, as :class:`LineReader` is told."""

    record: Mapping[str, Column]
    record_time: Column


@dataclass(frozen=True, kw_only=True, slots=True)
class Grouping:
    """How the records of a pipeline are grouped.

    Records have the columns of Spark's Kafka source.
    """

    reader: LineReader
    """How they are understood."""
    aggregate: Aggregate
    """What is counted of them."""
    topic: str | None = None
    """Their topic where there is but one: its name then takes no place in the grouping."""
    is_small: bool = False
    """Whether one task can hold all groups, even if no two records share one."""

    @classmethod
    def of(
        cls, pipeline: Pipeline, topics: set[str], *, each: bool = False, is_small: bool = False
    ) -> "Grouping":
        """How the records of some of a pipeline's topics are grouped.

        Args:
            pipeline: The pipeline.
            topics: Some of its topics.
            each: Whether each record is judged by itself (:attr:`LineReader.each`).
            is_small: Whether one task can hold all groups.
        """
        aggregate = Aggregate.of(pipeline)
        selection = Selection(
            filters=pipeline.filter,
            labels=aggregate.labels,
            label_chars=aggregate.label_chars,
            leaves_continuations=pipeline.leaves_continuations,
        )
        reader = LineReader(
            line_format=pipeline.format,
            levels=pipeline.levels,
            rule=pipeline.time_rule,
            selection=selection,
            each=each,
        )
        topic = next(iter(topics)) if len(topics) == 1 else None
        return cls(reader=reader, aggregate=aggregate, topic=topic, is_small=is_small)

    @property
    def label_columns(self) -> tuple[str, ...]:
        """Columns of the labels in the frames; their own names might be those of Kafka's."""
        return tuple(f"label_{number}" for number, _ in enumerate(self.aggregate.labels))

    def counts(self, records: DataFrame) -> DataFrame:
        """The sums of the records by partition, counted minute and labels.

        The minute is null for records that are not counted. Beside the keys there are ``records``,
        ``malformed``, ``continuations``, ``first_offset``, ``last_offset``, ``first_malformed``,
        ``last_malformed``; where they are asked for, ``bytes``, and, with labels, ``first_s`` and
        ``last_s``, the Unix times of the first and the last record.
        """
        line = self.reader.keys(F.col("value"), **self._of_record())
        more = [F.octet_length("value").alias("octets")] if self.aggregate.has_bytes else []
        more += [F.col("timestamp")] if self.aggregate.labels else []
        keyed = line.stages.applied(records).select(
            *self._places,
            "offset",
            line.key.alias("key"),
            line.is_counted.alias("is_counted"),
            line.continues.alias("continues"),
            *(c.alias(n) for c, n in zip(line.labels, self.label_columns, strict=True)),
            *more,
        )
        by_key = self._by_key(keyed)
        by_minute = self._by_minute(by_key.coalesce(1) if self.is_small else by_key, line)
        return by_minute if self.topic is None else by_minute.withColumn("topic", self._topic())

    def _by_key(self, keyed: DataFrame) -> DataFrame:
        # Spark would hash a constant, too, for each record.
        continues = ("continues",) if self.reader.selection.leaves_continuations else ()
        keys = (*self._places, "key", "is_counted", *continues, *self.label_columns)
        more = []
        if self.aggregate.has_bytes:
            more.append(F.sum(F.coalesce("octets", F.lit(0))).alias("bytes"))
        if self.aggregate.labels:
            more += [F.min("timestamp").alias("first"), F.max("timestamp").alias("last")]
        return keyed.groupBy(*keys).agg(
            F.count("*").alias("records"),
            F.min("offset").alias("first_offset"),
            F.max("offset").alias("last_offset"),
            *more,
        )

    def _by_minute(self, by_key: DataFrame, line: LineKeys) -> DataFrame:
        stages = Stages()
        minute_of_key = stages.add(line.minute(F.col("key"), stages))
        is_read = minute_of_key.isNotNull()
        continues = line.continues
        if self.reader.selection.leaves_continuations:
            continues = F.col("continues")
        is_malformed = ~is_read & ~continues
        minute = F.when(F.col("is_counted"), minute_of_key).alias("minute")
        labels = [F.when(is_read, F.col(n)).alias(n) for n in self.label_columns]
        more = []
        if self.aggregate.has_bytes:
            more.append(F.sum("bytes").alias("bytes"))
        if self.aggregate.labels:
            more += [
                F.min("first").cast("long").alias("first_s"),
                F.max("last").cast("long").alias("last_s"),
            ]
        return (
            stages.applied(by_key)
            .groupBy(*self._places, minute, *labels)
            .agg(
                F.sum("records").alias("records"),
                _sum_where(is_malformed).alias("malformed"),
                _sum_where(continues).alias("continuations"),
                F.min("first_offset").alias("first_offset"),
                F.max("last_offset").alias("last_offset"),
                F.min(F.when(is_malformed, F.col("first_offset"))).alias("first_malformed"),
                F.max(F.when(is_malformed, F.col("last_offset"))).alias("last_malformed"),
                *more,
            )
        )

    def malformed(self, records: DataFrame, bytes_max: int) -> DataFrame:
        """The malformed records, each with its reason and the first bytes of its value."""
        line = self.reader.judged(F.col("value"), **self._of_record())
        judged = line.stages.applied(records).select(
            self._topic().alias("topic"),
            "partition",
            "offset",
            "value",
            line.malformed_reason.alias("reason"),
        )
        return judged.where(F.col("reason").isNotNull()).select(
            "topic",
            "partition",
            "offset",
            "reason",
            F.substring("value", 1, bytes_max).alias("value"),
            F.octet_length("value").alias("value_bytes"),
        )

    @property
    def _places(self) -> tuple[str, ...]:
        return ("topic", "partition") if self.topic is None else ("partition",)

    def _topic(self) -> Column:
        return F.col("topic") if self.topic is None else F.lit(self.topic)

    def _of_record(self) -> _OfRecord:
        return {
            "record": {
                "topic": self._topic(),
                "partition": F.col("partition").cast("string"),
                "key": F.col("key").cast("string"),
            },
            "record_time": F.col("timestamp"),
        }


def _sum_where(condition: Column) -> Column:
    return F.sum(F.when(condition, F.col("records")).otherwise(0))
