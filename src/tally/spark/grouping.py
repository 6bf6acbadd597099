"""The records of planned ranges as frames: their counts, and those that are malformed.

The counts are grouped twice. First by the key of the time, which is cheap to find in every record
(:class:`tally.spark.line.TimeKey`); then, after calendar and clock were asked once for each
key, by minute. Few rows reach the second grouping, and those of a small batch reach it in one task,
without another exchange.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own convention
from pyspark.sql.types import StructField

from tally.aggregates.aggregate import Aggregate, Sum
from tally.config.pipeline import Pipeline
from tally.model import OffsetRange
from tally.spark.expressions import Stages, redacted
from tally.spark.line import Line
from tally.spark.line_columns import read_line
from tally.spark.task_groups import add_up, whole

LETTER: Final = ("first_offset", "reason", "value", "value_bytes", "micros")
"""Columns of a malformed record; the last is its timestamp since 1970. Null in others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grouping:
    """How the records of a pipeline are grouped.

    Records have the columns of Spark's Kafka source.
    """

    pipeline: Pipeline
    """How they are understood, and what is counted of them."""
    topic: str | None = None
    """Their topic where there is but one: its name then takes no place in the grouping."""
    each: bool = False
    """Whether it is a recount (:attr:`tally.spark.line.Line.each`)."""

    @classmethod
    def of(cls, pipeline: Pipeline, topics: set[str], *, each: bool = False) -> "Grouping":
        """How the records of some of a pipeline's topics are grouped.

        Args:
            pipeline: The pipeline.
            topics: Some of its topics.
            each: Whether it is a recount.
        """
        topic = next(iter(topics)) if len(topics) == 1 else None
        return cls(pipeline=pipeline, topic=topic, each=each)

    @property
    def aggregate(self) -> Aggregate:
        """What is counted of them."""
        return Aggregate.of(self.pipeline)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of :meth:`Grouping.counts`, in order."""
        topic = () if self.topic is None else ("topic",)
        sums = (s.name for s in self.aggregate.sums_of_groups)
        return (*self._minute_keys, *sums, *topic)

    def counts(self, records: DataFrame, *, is_small: bool = False) -> DataFrame:
        """The sums of the records by partition, counted minute and labels.

        In the columns of :attr:`Grouping.columns`, and within each partition in the order of the
        keys; the minute is null for records that are not counted.

        Args:
            records: The records.
            is_small: Whether one task can hold all groups, even if no two records share one.
        """
        line = read_line(self.pipeline, self.topic, each=self.each)
        by_key = self._by_key(self._keyed(records, line))
        groups = self._groups(by_key.coalesce(1) if is_small else by_key, line)
        by_minute = groups.groupBy(*self._minute_keys).agg(*_added(self.aggregate.sums_of_groups))
        by_minute = by_minute.sortWithinPartitions(*self._minute_keys)
        return by_minute if self.topic is None else by_minute.withColumn("topic", self._topic())

    def counts_in_tasks(
        self, together: DataFrame | None, apart: Sequence[DataFrame] = ()
    ) -> DataFrame:
        """The groups of :meth:`Grouping.counts`, within each Spark task and without an exchange.

        Several rows may be of one minute: the reader adds them up. The last row of each
        task shows that these are all (:func:`tally.spark.task_groups.with_end`).

        Args:
            together: Records of ranges, one in each task; Arrow groups them, in Python.
            apart: Records of one range each; Spark groups them. Each takes a plan of its own.
        """
        line = read_line(self.pipeline, self.topic, each=self.each)
        # What is one partition to Spark, it groups without an exchange.
        large = [self._keyed(records.coalesce(1), line) for records in apart]
        small = [] if together is None else [self._keyed(together, line)]
        types = (large + small)[0].schema
        sums = self.aggregate.sums_of_records
        columns = [types[name] for name in self._keys]
        columns += [StructField(s.name, types[s.of].dataType) for s in sums]
        by_key = []
        if large:
            by_key.append(whole(reduce(DataFrame.unionAll, map(self._by_key, large)), columns))
        for keyed in small:
            # Unlike an aggregation, Python gets each column that is there.
            needed = keyed.select(*self._keys, *dict.fromkeys(s.of for s in sums))
            keys = [key for key in self._keys if key not in self.places]
            add = partial(add_up, places=self.places, keys=keys, sums=sums)
            by_key.append(whole(needed, columns, add))
        return self._groups(reduce(DataFrame.unionAll, by_key), line)

    def judged_in_tasks(self, records: DataFrame, bytes_max: int) -> DataFrame:
        """The records in the columns of :meth:`Grouping.counts_in_tasks`, each judged by itself.

        Those that are malformed have the columns :data:`LETTER` besides: ``value`` has their first
        bytes, and ``value_bytes`` is its length.

        Args:
            records: The records of some ranges, one in each task.
            bytes_max: Bytes of a malformed record that are kept.
        """
        judged = self._judged(records, bytes_max)
        return whole(judged, judged.schema.fields)

    def kept(self, records: DataFrame) -> DataFrame:
        """The records that are counted, and those that are malformed.

        Their places and :data:`tally.aggregates.counts.KEPT`; the minute of a malformed record is
        null, and so is its value.
        """
        line = read_line(self.pipeline, self.topic)
        minute = line.stages.add(line.minute)
        is_malformed = line.stages.add(line.malformed_reason.isNotNull())
        kept = line.stages.select(
            records,
            *self.places,
            F.col("offset"),
            minute.alias("minute"),
            F.when(minute.isNotNull(), self._stored()).alias("value"),
            line.key_digest.alias("key_digest"),
            is_malformed.alias("is_malformed"),
        )
        return kept.where(F.col("is_malformed") | F.col("minute").isNotNull())

    def malformed(self, records: DataFrame, bytes_max: int) -> DataFrame:
        """The malformed records, each with its reason and the first bytes of its value."""
        judged = self._judged(records, bytes_max).where(F.col("reason").isNotNull())
        offset = F.col("first_offset").alias("offset")
        topic = self._topic().alias("topic")
        return judged.select(topic, "partition", offset, *LETTER[1:])

    def _judged(self, records: DataFrame, bytes_max: int) -> DataFrame:
        line = read_line(self.pipeline, self.topic, each=self.each)
        reason = line.stages.add(line.malformed_reason)
        is_malformed = reason.isNotNull()
        only = partial(F.when, is_malformed)
        more = self._measured()
        if self.aggregate.labels:
            more += [F.col("timestamp").cast("long").alias(n) for n in ("first_s", "last_s")]
        return line.stages.select(
            records,
            *self.places,
            line.minute.alias("minute"),
            *self._named_labels(line.labels),
            F.lit(1).cast("long").alias("records"),
            is_malformed.cast("long").alias("malformed"),
            line.continues.cast("long").alias("continuations"),
            F.col("offset").alias("first_offset"),
            F.col("offset").alias("last_offset"),
            only(F.col("offset")).alias("first_malformed"),
            only(F.col("offset")).alias("last_malformed"),
            F.when(is_malformed, self._kept_bytes()).otherwise(0).alias("kept_bytes"),
            *more,
            reason.alias("reason"),
            only(F.substring(self._stored(), 1, bytes_max)).alias("value"),
            only(F.octet_length("value")).alias("value_bytes"),
            only(F.unix_micros("timestamp")).alias("micros"),
        )

    def _by_key(self, keyed: DataFrame) -> DataFrame:
        """The groups of records with the same key."""
        return keyed.groupBy(*self._keys).agg(*_added(self.aggregate.sums_of_records))

    def _keyed(self, records: DataFrame, line: Line) -> DataFrame:
        """What the records are grouped by first, and what is added up of them."""
        more = self._measured()
        if self.aggregate.labels:
            more.append(F.col("timestamp"))
        return line.stages.select(
            records,
            *self.places,
            "offset",
            self._kept_bytes().alias("kept_bytes"),
            line.key.of_record.alias("key"),
            line.is_counted.alias("is_counted"),
            line.continues.alias("continues"),
            *self._named_labels(line.key_labels),
            *more,
        )

    def _stored(self) -> Column:
        """What of a record's value may be stored."""
        return redacted(F.col("value"), self.pipeline.redaction)

    def _kept_bytes(self) -> Column:
        """Bytes that are kept of a record if it is malformed."""
        length = F.coalesce(F.octet_length("value"), F.lit(0))
        return F.least(length, F.lit(self.pipeline.dead_letter_max_bytes)).cast("long")

    def _measured(self) -> list[Column]:
        """What is measured of a record of Kafka's."""
        return [
            F.coalesce(F.expr(measure.of_record), F.lit(0)).cast("long").alias(measure.name)
            for measure in self.aggregate.measures
        ]

    def _named_labels(self, labels: Sequence[Column]) -> list[Column]:
        return [c.alias(n) for c, n in zip(labels, self.aggregate.label_columns, strict=True)]

    @property
    def _keys(self) -> tuple[str, ...]:
        # Spark would hash a constant, too, for each record.
        continues = ("continues",) if self.pipeline.leaves_continuations else ()
        return (*self.places, "key", "is_counted", *continues, *self.aggregate.label_columns)

    @property
    def _minute_keys(self) -> tuple[str, ...]:
        return (*self.places, "minute", *self.aggregate.label_columns)

    def _groups(self, by_key: DataFrame, line: Line) -> DataFrame:
        """The groups of a key with their minute, in the columns that are added up next."""
        stages = Stages()
        minute_of_key = stages.add(line.key.minute(F.col("key"), stages))
        is_read = minute_of_key.isNotNull()
        continues = F.col("continues") if self.pipeline.leaves_continuations else F.lit(False)
        is_malformed = ~is_read & ~continues
        more = [F.col(measure.name) for measure in self.aggregate.measures]
        if self.aggregate.labels:
            more += [F.col(n).cast("long").alias(f"{n}_s") for n in ("first", "last")]
        return stages.select(
            by_key,
            *self.places,
            F.when(F.col("is_counted"), minute_of_key).alias("minute"),
            *(F.when(is_read, F.col(n)).alias(n) for n in self.aggregate.label_columns),
            "records",
            F.when(is_malformed, F.col("records")).otherwise(0).alias("malformed"),
            F.when(continues, F.col("records")).otherwise(0).alias("continuations"),
            "first_offset",
            "last_offset",
            F.when(is_malformed, F.col("first_offset")).alias("first_malformed"),
            F.when(is_malformed, F.col("last_offset")).alias("last_malformed"),
            F.when(is_malformed, F.col("kept_bytes")).otherwise(0).alias("kept_bytes"),
            *more,
        )

    @property
    def places(self) -> tuple[str, ...]:
        """Columns that name a record's partition, and its part where there are any."""
        part = ("from_offset",) if self.each else ()
        return (*(("topic",) if self.topic is None else ()), "partition", *part)

    def _topic(self) -> Column:
        return F.col("topic") if self.topic is None else F.lit(self.topic)


def with_parts(records: DataFrame, parts: Sequence[OffsetRange]) -> DataFrame:
    """The records that lie in one of the parts, with its ``from_offset``.

    Args:
        records: With the columns of Spark's Kafka source.
        parts: Ranges that do not overlap, many of a partition.
    """
    # Joined by equality: a part is in all the steps of so many offsets that it touches; about two
    # parts are in each.
    step = max(1, sum(part.offsets for part in parts) // len(parts))
    steps = [
        (p.partition.topic, p.partition.partition, n, p.from_offset, p.until_offset)
        for p in parts
        for n in range(p.from_offset // step, (p.until_offset - 1) // step + 1)
    ]
    schema = "p_topic string, p_partition int, step long, from_offset long, until_offset long"
    where = (
        (F.col("topic") == F.col("p_topic"))
        & (F.col("partition") == F.col("p_partition"))
        & (F.expr(f"offset div {step:d}") == F.col("step"))
        & F.col("offset").between(F.col("from_offset"), F.col("until_offset") - 1)
    )
    table = records.sparkSession.createDataFrame(steps, schema)
    return records.join(F.broadcast(table), where)


def _added(sums: Sequence[Sum]) -> list[Column]:
    functions = {"count": F.count, "sum": F.sum, "min": F.min, "max": F.max}
    return [functions[s.kind](s.of).alias(s.name) for s in sums]
