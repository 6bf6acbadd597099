"""Logs of sixteen systems and of JSON, on real servers, beside what others say of them.

The lines in ``tests/logs`` were written for this test, in the layouts of the systems they are named
after. The reader below imports nothing from the code under test: it finds times and what counts by
expressions of its own, and reckons with ``datetime``.
"""

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from pyspark.sql import DataFrame

from tally.app.migrate import migrate
from tally.model import OffsetRange, TopicPartition
from tally.spark.grouping import Grouping
from tally.spark.reading import read_ranges
from tests.spark.json_documents import Documents
from tests.spark.json_oracle import field, read_object
from tests.spark.oracle import expected
from tests.spark.outcomes import SEED, TIMES
from tests.world import World, make_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.stack, pytest.mark.spark]

LOGS = Path(__file__).parents[1] / "logs"
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
DIGITS = {"Y": "{4}", "y": "{2}", "m": "{2}"} | dict.fromkeys("dHMS", "{1,2}")


class Log(NamedTuple):
    """How a log is configured, and how this file reads it."""

    keys: dict[str, Any]
    """Of the pipeline."""
    time: str
    """Finds the time in a line; a line without one is malformed."""
    counts: str
    """Finds whether a line counts."""


def log(line_format: str, time: str, counts: str, **keys: Any) -> Log:
    """A log whose times have ``%`` and the letter of ``strptime``, or ``%E`` for the epoch."""
    for letter, width in DIGITS.items():
        time = time.replace(f"%{letter}", rf"(?P<{letter}>\d{width})")
    time = time.replace("%b", "(?P<b>[A-Z][a-z][a-z])").replace("%E", r"(?P<E>\d+)")
    return Log({"line_format": line_format, **keys}, time, counts)


def syslog(counts: str, **having: list[str]) -> Log:
    """A log without level and year."""
    return log("syslog", "%b +%d %H:%M:%S", counts, filter=having, levels=[], **NEW_YEAR)


def without_level(line_format: str, time: str, counts: str, **having: list[str]) -> Log:
    """A log without level."""
    return log(line_format, time, counts, filter=having, levels=[])


NEW_YEAR = {"assume_year": "from_record"}
ISO = r"%Y-%m-%d[ -]%H[:.]%M[:.]%S"
FAILED = "authentication failure"
ERROR = {"filter": {"text": [" error : "]}, "levels": [], **NEW_YEAR}

SIXTEEN = {
    "android": log("android", "%m-%d %H:%M:%S", r" E \w+:", levels=["E"], **NEW_YEAR),
    "apache": log("apache-2.2", r"\[\w+ %b %d %H:%M:%S %Y\]", r"\] \[error\]", levels=["error"]),
    "bgl": log("bgl", rf"\S+ \d+ [\d.]+ \S+ {ISO}", r" RAS \w+ FATAL ", levels=["FATAL"]),
    "hadoop": log("log4j", ISO, r",\d+ (ERROR|FATAL) ", levels=["ERROR", "FATAL"]),
    "hdfs": log("hdfs", "%y%m%d %H%M%S ", r"^\d+ \d+ \d+ ERROR "),
    "healthapp": without_level(
        "healthapp", "%Y%m%d-%H:%M:%S:", r"\|Step_LSC\|", component=["Step_LSC"]
    ),
    "hpc": without_level(
        "hpc", r"\d+ \S+ \S+ \S+ %E ", r" state_change\.unavailable ", state=["state_change.un*"]
    ),
    "linux": syslog(FAILED, text=[FAILED]),
    "mac": syslog(r" kernel\[", program=["kernel"]),
    "openssh": syslog("Failed password", text=["Failed password"]),
    "openstack": log("openstack", rf"(?:\S+\.log\S* )?{ISO}", r"\.\d{3} \d+ ERROR "),
    "proxifier": log("proxifier", r"\[%m\.%d %H:%M:%S\]", " error : ", **ERROR),
    "spark": log("spark", "%y/%m/%d %H:%M:%S ", r":\d\d ERROR "),
    "thunderbird": without_level("thunderbird", r"\S+ %E ", "^(VAPI|ECC) ", alert=["VAPI", "ECC"]),
    "windows": log("windows-cbs", ISO, ", Error  ", levels=["Error"]),
    "zookeeper": log("zookeeper", ISO, r",\d+ - ERROR "),
}


def times(lines: list[str], pattern: str) -> list[datetime | None]:
    """When each line was written; a year that is not printed rises after a December."""
    found: list[datetime | None] = []
    year, before = 2017, None
    for line in lines:
        if (match := re.match(pattern, line)) is None:
            found.append(None)
            continue
        texts = match.groupdict()
        if "E" in texts:
            found.append(datetime.fromtimestamp(int(texts["E"]), UTC))
            continue
        month = MONTHS.index(texts["b"]) + 1 if "b" in texts else int(texts["m"])
        year += before == 12 and month == 1
        before = month
        printed = int(texts["Y"]) if "Y" in texts else 2000 + int(texts["y"]) if "y" in texts else 0
        day, hour, minute, second = (int(texts[key]) for key in "dHMS")
        found.append(datetime(printed or year, month, day, hour, minute, second, tzinfo=UTC))
    return found


def test_sixteen_logs_are_counted_as_another_reader_counts_them(
    world: World, spark: "SparkSession"
) -> None:
    """Minute by minute, and so many malformed; records arrive some seconds after their lines.

    Each log is a partition of one topic, and all are counted at once.
    """
    topic = f"{world.topic}-logs"
    world.create_topic(len(SIXTEEN), topic, **{"retention.ms": "-1"})
    pipelines = {name: {"topics": [topic], **case.keys} for name, case in SIXTEEN.items()}
    settings = make_settings(world.stack, world.config, pipelines)
    producer = world.producer()
    wanted: dict[str, Counter[str]] = {}
    frames = []
    for number, (name, case) in enumerate(SIXTEEN.items()):
        lines = (LOGS / f"{name}.log").read_text(encoding="utf-8").splitlines()
        assert len(lines) == 10
        stamp, counts = datetime(2017, 7, 30, 14, 10, tzinfo=UTC), Counter[str]()
        for line, at in zip(lines, times(lines, case.time), strict=True):
            stamp = at + timedelta(seconds=5) if at else stamp
            millis = int(stamp.timestamp() * 1000)
            producer.produce(topic, line.encode(), partition=number, timestamp=millis)
            if at is None:
                counts["malformed"] += 1
            elif re.search(case.counts, line):
                counts[f"{at:%Y-%m-%d %H:%M}:00"] += 1
        assert counts["malformed"] > 0
        assert counts.total() - counts["malformed"] >= 3
        wanted[name] = counts
        place = TopicPartition(topic=topic, partition=number)
        ranges = [OffsetRange(partition=place, from_offset=0, until_offset=len(lines))]
        records = read_ranges(spark, settings.kafka, settings.pipeline(name), ranges)
        grouping = Grouping.of(settings.pipeline(name), {topic}, is_small=True)
        frames.append(grouping.counts(records))
    assert producer.flush(60) == 0
    found: dict[str, Counter[str]] = {name: Counter() for name in SIXTEEN}
    for row in reduce(DataFrame.unionAll, frames).collect():
        counts = found[list(SIXTEEN)[row.partition]]
        counts["malformed"] += row.malformed
        if row.minute is not None:
            counts[row.minute] += row.records
    assert found == wanted


def test_a_topic_of_json_is_counted_by_level_service_and_key(
    world: World, spark: "SparkSession"
) -> None:
    """As Python's own ``json`` reads it, minute by minute; what it cannot read is a dead letter."""
    labels = ["level", "service", "key"]
    world.configure(line_format="json", levels=[], labels=labels, max_malformed_ratio=1)
    migrate(world.database, world.settings)
    line_format, documents, producer = world.pipeline.format, Documents(SEED), world.producer()
    (level,) = (known.paths for known in line_format.json_fields if known.name == "level")
    wanted: Counter[tuple[str, ...]] = Counter()
    broken: list[tuple[int, str, bytes]] = []
    for number in range(1_000):
        record, key = documents.record(TIMES), f"key {number % 3}"
        producer.produce(world.topic, record, key=key, partition=0)
        reason, minute = expected(record, line_format, set())
        if reason is not None:
            broken.append((number, reason, record))
        elif minute is not None:
            found = read_object(record) or {}
            values = [field(found, paths) or "" for paths in (level, [["service"]])]
            wanted[minute, *(value[:64] for value in values), key] += 1
    assert producer.flush(60) == 0
    world.minute(spark)
    assert wanted == {
        (str(row["log_time"]), *(row[label] for label in labels)): row["log_count"]
        for row in world.rows(f"select * from `{world.name}`")
    }
    assert min(len(wanted), len(broken)) > 100
    letters = [(d["record_offset"], d["reason"], d["value"]) for d in world.dead_letters()]
    assert letters == broken
    assert world.audit().holds
