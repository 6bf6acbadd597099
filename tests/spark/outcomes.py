"""What Spark makes of records, beside what is expected of them."""

import io
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any

from pydantic import PrivateAttr
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tally.config.pipeline import Pipeline
from tally.lines.format import LineFormat
from tally.lines.parsing import CATALOGUE, parse_line_format
from tally.lines.time_rule import WALL_CLOCK, TimeRule
from tally.spark.grouping import Grouping
from tally.spark.line_columns import read_line
from tests.spark.oracle import Outcome, expected

SEED = 20170730
TIMES = (
    *("2017-07-30 14:09:08", "2016-02-29 00:00:00", "2017-02-29 12:00:00", "2000-02-29 12:00:00"),
    *("1900-02-29 12:00:00", "2017-02-30 12:00:00", "2017-04-31 12:00:00", "2017-12-31 23:59:59"),
    *("2017-13-01 12:00:00", "2017-00-10 12:00:00", "2017-01-00 12:00:00", "2017-01-32 12:00:00"),
    *("2017-01-01 24:00:00", "2017-01-01 23:60:00", "2016-12-31 23:59:60", "2016-12-31 23:59:61"),
    *("0000-01-01 00:00:00", "0000-02-29 00:00:00", "0000-13-01 00:00:00", "0001-01-01 00:00:00"),
    *("0999-12-31 23:59:59", "1000-01-01 00:00:00", "1582-10-10 12:00:00", "2026-03-29 02:30:00"),
    *("2026-10-25 02:30:00", "2999-07-30 14:09:08", "9999-12-31 23:59:59"),
)

KEY = "Kafka's"
"""The key of each record."""

CONTINUES = "continues"
"""In place of a reason: the record begins no line."""

Value = bytes | None
Wanted = tuple[str | None, ...]
"""Reason, minute, and then the labels."""


class Reading(Pipeline):
    """A pipeline with a line format and a rule that the configuration may have no words for."""

    _format: LineFormat = PrivateAttr()
    _rule: TimeRule = PrivateAttr()

    @property
    def format(self) -> LineFormat:
        """See :class:`tally.config.pipeline.Pipeline`."""
        return self._format

    @property
    def time_rule(self) -> TimeRule:
        """See :class:`tally.config.pipeline.Pipeline`."""
        return self._rule


def reader(
    line_format: LineFormat | str | Mapping[str, object],
    levels: Iterable[str] = ("ERROR",),
    rule: TimeRule = WALL_CLOCK,
    **selection: Any,
) -> Reading:
    """A pipeline of a line format, of that of a name, or of one as it is configured."""
    if isinstance(line_format, str):
        line_format = CATALOGUE[line_format]
    elif not isinstance(line_format, LineFormat):
        line_format = parse_line_format(line_format, key="line_format")
    found = Reading.model_construct(levels=sorted(levels), **selection)
    found._format, found._rule = line_format, rule
    return found


def known(reader: Reading, values: Iterable[Value], micros: Sequence[int] = ()) -> list[Outcome]:
    """What the oracle says of records."""
    values = list(values)
    stamps = micros or [-1] * len(values)
    levels = set(reader.levels)
    return [
        expected(value, reader.format, levels, reader.time_rule, at)
        for value, at in zip(values, stamps, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Record:
    case: str
    value: Value
    micros: int
    wanted: Wanted


class Cases:
    """Records of any number of cases, which Spark judges together where their reader is the same.

    Each is read twice: judged by itself, and grouped and counted as in a batch.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._records: list[tuple[Reading, list[_Record]]] = []

    def add(
        self,
        case: str,
        reader: Reading,
        wanted: Mapping[Any, Wanted] | Iterable[tuple[Value, Wanted]],
        micros: Sequence[int] = (),
    ) -> None:
        """Records, each with what it must come to; micros are their timestamps."""
        pairs = list(wanted.items() if isinstance(wanted, Mapping) else wanted)
        stamps = micros or [-1] * len(pairs)
        records = next((records for known, records in self._records if known == reader), None)
        if records is None:
            records = []
            self._records.append((reader, records))
        for (value, outcome), at in zip(pairs, stamps, strict=True):
            encoded = value.encode() if isinstance(value, str) else value
            records.append(_Record(case, encoded, at, outcome))

    def add_odd(
        self,
        case: str,
        reader: Reading,
        values: Sequence[Value],
        reasons: Collection[str],
        micros: Sequence[int] = (),
    ) -> None:
        """Records that must come to what the oracle says; every outcome that can happen happens."""
        wanted = known(reader, values, micros)
        seen = Counter(why or ("counted" if minute else "not counted") for why, minute in wanted)
        assert set(reasons) <= set(seen), (case, seen)
        assert seen["counted"] > len(values) / 100, (case, seen)
        self.add(f"{case}, seed {SEED}", reader, zip(values, wanted, strict=True), micros)

    def check(self) -> None:
        """All records come to what they must, in both ways."""
        wrong = []
        for reader, records in self._records:
            found = _read(self._spark, records, reader)
            wrong += [
                f"{r.case}: {r.value!r:.200}: expected {r.wanted}, {what}"
                for r, whats in zip(records, found, strict=True)
                for what in whats
            ]
        assert wrong == [], f"{len(wrong)} wrong, first {wrong[:10]}"
        self._records = []


def check(spark: SparkSession, *args: Any) -> None:
    """The records of a single case; the arguments are those of :meth:`Cases.add`."""
    cases = Cases(spark)
    cases.add("", *args)
    cases.check()


def _read(spark: SparkSession, asked: Sequence[_Record], reader: Reading) -> Iterator[list[str]]:
    """What is wrong with each record."""
    records = kafka_records(spark, [r.value for r in asked], [r.micros for r in asked]).coalesce(1)
    line = read_line(reader)
    judged = line.stages.select(
        records, line.malformed_reason, line.minute, line.continues, *line.labels
    )
    of_batch = grouping(reader)
    groups = {row.partition: row for row in of_batch.counts(records).collect()}
    rows = judged.collect()
    assert len(rows) == len(groups) == len(asked)
    counted = ["minute", "records", "malformed", "continuations", "first_offset", "last_offset"]
    counted += [
        "kept_bytes",
        "first_malformed",
        "last_malformed",
        *of_batch.aggregate.label_columns,
    ]
    for number, (row, r) in enumerate(zip(rows, asked, strict=True)):
        reason, minute, continues, *labels = row
        assert not (reason and continues), r
        alone = (CONTINUES if continues else reason, minute, *labels)
        place, bad = number * 10, reason is not None
        kept_bytes = min(len(r.value or b""), of_batch.pipeline.dead_letter_max_bytes) if bad else 0
        wanted = [minute, 1, int(bad), int(continues), place, place, kept_bytes]
        wanted += [place if bad else None] * 2
        in_group = [groups[number][name] for name in counted]
        wrong = [] if alone == r.wanted else [f"found {alone}"]
        yield wrong if in_group == [*wanted, *labels] else [*wrong, f"in a group {in_group}"]


def kafka_records(
    spark: SparkSession, values: Sequence[Value], micros: Sequence[int] = ()
) -> DataFrame:
    """A frame like that of Spark's Kafka source; each record has a partition of its own."""
    rows = [
        (None if value is None else bytearray(value), number, at)
        for number, (value, at) in enumerate(zip(values, micros or [-1] * len(values), strict=True))
    ]
    frame = spark.createDataFrame(rows, "value binary, partition int, micros long")
    return frame.select(
        F.lit("t").alias("topic"),
        "partition",
        (F.col("partition") * 10).cast("long").alias("offset"),
        "value",
        F.lit(KEY).cast("binary").alias("key"),
        F.timestamp_micros("micros").alias("timestamp"),
        F.lit(0).cast("long").alias("from_offset"),
    )


def grouping(reader: Reading, *, each: bool = False) -> Grouping:
    return Grouping(pipeline=reader, topic="t", each=each)


@contextmanager
def settings(spark: SparkSession, **values: str) -> Iterator[None]:
    names = {name: "spark.sql." + name.replace("__", ".") for name in values}
    before = {name: spark.conf.get(full) for name, full in names.items()}
    try:
        for name, full in names.items():
            spark.conf.set(full, values[name])
        yield
    finally:
        for name, full in names.items():
            spark.conf.set(full, str(before[name]))


def compiled_stages(frame: DataFrame) -> list[str]:
    """The code that Spark generates, that which reads records first.

    No method of it is too long to be compiled.
    """
    with redirect_stdout(io.StringIO()) as explained:
        frame.explain("codegen")
    code = explained.getvalue()
    sizes = [int(size) for size in re.findall(r"maxMethodCodeSize:(\d+)", code)]
    assert sizes
    assert max(sizes) < 8000
    stages = re.split(r"^== Subtree \d+ / \d+ ", code, flags=re.MULTILINE)[1:]
    return sorted(stages, key=lambda stage: "LocalTableScan" not in stage and "Scan" not in stage)
