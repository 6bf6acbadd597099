"""A batch in which every line has a minute of its own."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tests.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.stack, pytest.mark.spark]

MINUTES = 1_000_000
FIRST = datetime(2000, 1, 1)  # noqa: DTZ001 - a line's time has no zone


def lines() -> Iterator[str]:
    """One for each of a million minutes: almost two years of them."""
    for number in range(MINUTES):
        yield f"{FIRST + timedelta(minutes=number):%Y-%m-%d %H:%M:%S} ERROR x"


@pytest.mark.timeout(3600)
def test_a_million_minutes_are_counted_in_one_batch(world: World, spark: "SparkSession") -> None:
    """Each becomes a row, in one transaction; the driver's JVM has Spark's default of 1 GB."""
    world.configure(max_records_per_partition=MINUTES)
    world.produce(lines())
    ran = world.minute(spark)
    assert ran is not None
    assert ran.committed
    (found,) = world.rows(
        "select count(*) as minutes, sum(log_count) as counted, max(log_count) as most,"
        f" min(log_time) as first, max(log_time) as last from `{world.name}`"
    )
    assert found == {
        "minutes": MINUTES,
        "counted": MINUTES,
        "most": 1,
        "first": FIRST,
        "last": FIRST + timedelta(minutes=MINUTES - 1),
    }
    assert world.offsets()[0] == (0, MINUTES)
    assert world.audit().holds
