"""The rows of a count arrive in bounded memory, on a real Spark."""

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812

from tally.spark.reading import collect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PARTITIONS = 32
ROW_BYTES = 2_000_000


def test_the_driver_forgets_the_rows_that_it_has_handed_on(spark: "SparkSession") -> None:
    """Spark keeps the results of a query's jobs until it ends: here each partition is a job."""
    # Random, as Spark compresses what a task returns.
    wide = spark.range(0, PARTITIONS, 1, PARTITIONS).select(
        "id", F.randstr(F.lit(ROW_BYTES), F.lit(1))
    )
    rows = collect(wide, ())
    first = next(rows)
    began = used_after_collection(spark)
    rest = [(row[0], len(row[1])) for _, row in zip(range(PARTITIONS - 2), rows, strict=False)]
    grown = used_after_collection(spark) - began
    assert len(first[1]) == ROW_BYTES
    assert rest == [(number, ROW_BYTES) for number in range(1, PARTITIONS - 1)]
    assert grown < PARTITIONS * ROW_BYTES / 4
    assert [row[0] for row in rows] == [PARTITIONS - 1]


def used_after_collection(spark: "SparkSession") -> int:
    """Bytes of the driver's heap that are in use, without garbage."""
    runtime = spark.sparkContext._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]
    runtime.gc()
    return int(runtime.totalMemory() - runtime.freeMemory())
