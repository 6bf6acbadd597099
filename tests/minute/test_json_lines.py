"""A topic of JSON records, counted by service and level, on real Kafka, MySQL and Spark."""

import subprocess
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tally.app.migrate import migrate
from tally.pipeline.recount import recount
from tests.minute.json_shop import COUNTED, Key, Line, differences, write_lines
from tests.spark_submit import job, spark_environment
from tests.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.stack, pytest.mark.spark]

SHOP = {
    "json": {"time": "@timestamp", "level": "log.level", "service": ["service", "name"]},
    "time_format": "yyyy-MM-dd'T'HH:mm:ss",
}


def produce(world: World, lines: list[Line]) -> None:
    """Write the lines with their keys."""
    producer = world.producer()
    for line in lines:
        producer.produce(world.topic, value=line.value, key=line.key, partition=line.partition)
        producer.poll(0)
    assert producer.flush(60) == 0


def counted(world: World, *columns: str) -> Counter[tuple[str, ...]]:
    """The result by minute and some labels."""
    found: Counter[tuple[str, ...]] = Counter()
    for row in world.rows(f"select * from `{world.name}`"):
        found[(str(row["log_time"]), *(row[column] for column in columns))] += row["log_count"]
    return found


def by_service(world: World) -> dict[Key, int]:
    """The result by minute, service and level."""
    return {(m, s, level): n for (m, s, level), n in counted(world, "service", "level").items()}


def kept(world: World) -> list[bytes]:
    """The dead letters."""
    return [row["value"] for row in world.dead_letters()]


def test_a_topic_of_json_is_counted_by_service_and_level(
    world: World, spark: "SparkSession"
) -> None:
    """By the job that Airflow starts; equal to the producer's own record, line by line."""
    world.configure(line_format=SHOP, levels=sorted(COUNTED), labels=["service", "level"])
    migrate(world.database, world.settings)
    lines = write_lines(seed=20170730, count=4000, partitions=2)
    produce(world, lines)
    batch = world.plan().batch
    assert batch is not None
    environment = spark_environment(TALLY_CONFIG=str(world.config))
    subprocess.run(job(world.stack, batch.batch_id), env=environment, check=True, timeout=300)

    assert differences(lines, by_service(world), kept(world)) == []
    assert {row["reason"] for row in world.dead_letters()} == {"no-match"}
    assert len(by_service(world)) > 300
    assert world.audit().holds
    found = recount(world.context(spark), world.name, lambda *_: None)
    assert (found.violations, found.unchecked) == ((), ())


def test_the_checker_can_fail() -> None:
    """A line that is lost, counted under another service, or not kept is named."""
    lines = write_lines(seed=1, count=200, partitions=1)
    first, *others = (line for line in lines if line.meant and line.meant[2] in COUNTED)
    broken = [line.value for line in lines if line.meant is None]
    right = Counter(line.meant for line in [first, *others] if line.meant)
    assert first.meant
    assert broken
    assert differences(lines, right, broken) == []
    (lost,) = differences(lines, right - Counter([first.meant]), broken)
    assert str(first.meant) in lost
    minute, _, level = first.meant
    moved = replace(first, meant=(minute, "another", level))
    elsewhere = Counter(line.meant for line in [moved, *others] if line.meant)
    assert len(differences(lines, elsewhere, broken)) == 2
    assert len(differences(lines, right, broken[1:])) == 1


def test_a_path_may_be_a_label_and_kafkas_key_stays_kafkas(
    world: World, spark: "SparkSession"
) -> None:
    """With the ready-made format, without a word on the fields."""
    world.configure(line_format="json", levels=[], labels=["service.name", "key"])
    migrate(world.database, world.settings)
    lines = write_lines(seed=7, count=300, partitions=2)
    produce(world, lines)
    world.minute(spark)
    wanted = Counter((m[0], m[1], line.key.decode()) for line in lines if (m := line.meant))
    assert counted(world, "service_name", "key") == wanted
    assert sorted(kept(world)) == sorted(line.value for line in lines if line.meant is None)
    assert world.audit().holds
