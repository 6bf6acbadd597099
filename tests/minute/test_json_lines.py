"""A JSON topic counted by labels, against the producer's own record of what it sent."""

import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tally.app.migrate import migrate
from tally.pipeline.recount import recount
from tests.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.stack, pytest.mark.spark]

SEED = 20170730
SERVICES = ("cart", "Cart", "cärt", "cart ", "shop/eu", "日本", "")
LEVELS = ("ERROR", "WARN", "INFO")


class Producer:
    """Makes records, and keeps its own count of them by minute, service and level."""

    def __init__(self) -> None:
        self._rng = random.Random(SEED)
        self.sent: Counter[tuple[str, str, str]] = Counter()

    def record(self) -> bytes:
        """One record: keys in any order, before and after nested objects."""
        rng = self._rng
        service, level = rng.choice(SERVICES), rng.choice(LEVELS)
        minute = f"2017-07-30 14:{rng.randrange(5):02}"
        self.sent[minute, service, level] += 1
        members: list[tuple[str, Any]] = [
            ("@timestamp", f"{minute.replace(' ', 'T')}:08.123+02:00"),
            ("log", {"level": level, "logger": {"name": "a"}}),
            ("kubernetes", {"pod": {"uid": 7}, "labels": {"app.kubernetes.io/name": service}}),
            ("message", 'level: "ERROR", {"service":"other"}'),
            ("tags", [1, {"level": "FATAL"}]),
        ]
        rng.shuffle(members)
        indent = rng.choice([None, 2])
        return json.dumps(dict(members), indent=indent, ensure_ascii=rng.random() < 0.5).encode()


def test_a_json_topic_is_counted_by_service_and_level(world: World, spark: "SparkSession") -> None:
    """What is nested is found wherever it stands, in batch after batch."""
    name = ["kubernetes", "labels", "app.kubernetes.io/name"]
    world.configure(
        line_format={
            "json": {"time": "@timestamp", "level": "log.level", "service": name},
            "time_format": "yyyy-MM-dd'T'HH:mm:ss",
        },
        levels=["ERROR", "WARN"],
        labels=["service", "level"],
    )
    migrate(world.database, world.settings)
    producer = Producer()
    for _ in range(2):
        for partition in (0, 1):
            world.produce([producer.record() for _ in range(200)], partition)
        world.produce([b'{"@timestamp":"2017-07-30T14:00:08","log":{"level":"ERROR"'], 0)
        world.minute(spark)
    found = {
        (str(row["log_time"])[:16], row["service"], row["level"]): row["log_count"]
        for row in world.rows(f"select * from `{world.name}`")
    }
    assert found == {key: n for key, n in producer.sent.items() if key[2] != "INFO"}
    assert len(found) > 50
    assert world.audit().holds
    again = recount(world.context(spark), world.name, lambda *_: None)
    assert (again.violations, again.unchecked) == ((), ())
    dead_letters = world.rows(
        "select d.reason from dead_letter d join segment using (segment_id)"
        f" join batch b using (batch_id) where b.pipeline = '{world.name}'"
    )
    assert [row["reason"] for row in dead_letters] == ["no-match", "no-match"]
