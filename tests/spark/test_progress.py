"""How far a read is, told while Spark works on it."""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import pytest

from tally.aggregates.counts import CountRequest
from tally.model import OffsetRange, TopicPartition
from tally.spark.counting import SparkReader, tasks_for
from tally.spark.session import spark_session
from tests.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.stack]

LINE = "2017-07-30 14:09:08 ERROR some message"

# Of the second partition the broker gives one batch of records every 300 ms, however fast it is.
BATCHES = {"batch.num.messages": 100, "linger.ms": 1_000}
PACED = {
    "kafka.max.partition.fetch.bytes": "1",
    "kafka.fetch.min.bytes": "10000000",
    "kafka.fetch.max.wait.ms": "300",
}


@pytest.mark.parametrize("engine", ["local", "connect"])
def test_a_read_tells_how_far_it_is_while_it_goes_on(
    world: World, request: pytest.FixtureRequest, engine: str
) -> None:
    """A partition that is larger than a task may read is told in steps."""
    world.configure(reader=PACED)
    world.produce([LINE] * 100, 0, **BATCHES)
    world.produce([LINE] * 2_000, 1, **BATCHES)
    told: list[tuple[int, int]] = []
    ranges = [
        OffsetRange(
            partition=TopicPartition(topic=world.topic, partition=number),
            from_offset=0,
            until_offset=end,
        )
        for number, end in ((0, 100), (1, 2_000))
    ]
    opened: AbstractContextManager[SparkSession]
    if engine == "local":
        opened = nullcontext(request.getfixturevalue("spark"))
    else:
        opened = spark_session(request.getfixturevalue("connect").settings, "test")
    with opened as session:
        reader = SparkReader(
            session=session,
            kafka=world.settings.kafka,
            tasks=lambda sizes: sum(sizes) // 500,
            on_read=lambda read, total: told.append((read, total)),
        )
        asked = CountRequest(pipeline=world.settings.pipeline(world.name), ranges=ranges)
        with reader.count(asked) as counts:
            assert sum(total.matched for total in counts.totals.values()) == 2_100
            ended_at = len(told)
    read = [offsets for offsets, _ in told]
    assert [total for _, total in told] == [2_100] * len(told)
    assert read == sorted(set(read))
    assert any(0 < offsets < 2_100 for offsets in read), read
    assert len(told) == ended_at  # nothing is told of a read that has ended


@pytest.mark.parametrize(
    ("sizes", "tasks"),
    [
        ([], 0),
        ([10], 1),
        ([1_499_999], 1),
        ([4_000_000], 4),
        ([2_500_000] * 4, 4),
        ([2_500_001, 2_499_999, 2_500_000, 2_500_000], 4),
        ([9_000_000, 300_000, 300_000], 6),
        ([100_000] * 64, 64),
        ([50_000_000], 10),
        ([20_000_000] * 4, 16),
    ],
)
def test_large_ranges_are_divided_among_tasks(sizes: list[int], tasks: int) -> None:
    """No further than a few cores need, unless a task would read too much."""
    assert tasks_for(sizes) == tasks
