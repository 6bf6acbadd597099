"""Logs of sixteen systems on a real server, beside what another reader says of them.

The lines in ``tests/logs`` were written for this test, in the layouts of the systems they are named
after. The reader below imports nothing from the code under test: it finds times and what counts by
expressions of its own, and reckons with ``datetime``.
"""

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from tally.model import OffsetRange, TopicPartition
from tally.spark.grouping import Grouping
from tally.spark.reading import read_ranges
from tests.world import World, make_settings

pytestmark = [pytest.mark.stack, pytest.mark.spark]

LOGS = Path(__file__).parents[1] / "logs"
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
DIGITS = {"Y": "{4}", "y": "{2}", "m": "{2}"} | dict.fromkeys("dHMS", "{1,2}") | {"E": "+"}


class Log(NamedTuple):
    """How a log is configured, what finds the time of a line, and whether the line counts."""

    keys: dict[str, Any]
    time: str
    counts: str


def log(line_format: str, time: str, counts: str, **keys: Any) -> Log:
    """A log whose times have ``%`` and the letter of ``strptime``, or ``%E`` for the epoch."""
    for letter, width in DIGITS.items():
        time = time.replace(f"%{letter}", rf"(?P<{letter}>\d{width})")
    year = {} if re.search("<[YyE]>", time) else {"assume_year": "from_record"}
    time = time.replace("%b", "(?P<b>[A-Z][a-z][a-z])")
    return Log({"line_format": line_format, **year, **keys}, time, counts)


def by_filter(line_format: str, time: str, counts: str, **having: list[str]) -> Log:
    return log(line_format, time, counts, filter=having, levels=[])


ISO = r"%Y-%m-%d[ -]%H[:.]%M[:.]%S"
SYSLOG = "%b +%d %H:%M:%S"
FAILED = "authentication failure"

SIXTEEN = {
    "android": log("android", "%m-%d %H:%M:%S", r" E \w+:", levels=["E"]),
    "apache": log("apache-2.2", r"\[\w+ %b %d %H:%M:%S %Y\]", r"\] \[error\]", levels=["error"]),
    "bgl": log("bgl", rf"\S+ \d+ [\d.]+ \S+ {ISO}", r" RAS \w+ FATAL ", levels=["FATAL"]),
    "hadoop": log("log4j", ISO, r",\d+ (ERROR|FATAL) ", levels=["ERROR", "FATAL"]),
    "hdfs": log("hdfs", "%y%m%d %H%M%S ", r"^\d+ \d+ \d+ ERROR "),
    "healthapp": by_filter(
        "healthapp", "%Y%m%d-%H:%M:%S:", r"\|Step_LSC\|", component=["Step_LSC"]
    ),
    "hpc": by_filter(
        "hpc", r"\d+ \S+ \S+ \S+ %E ", r" state_change\.unavailable ", state=["state_change.un*"]
    ),
    "linux": by_filter("syslog", SYSLOG, FAILED, text=[FAILED]),
    "mac": by_filter("syslog", SYSLOG, r" kernel\[", program=["kernel"]),
    "openssh": by_filter("syslog", SYSLOG, "Failed password", text=["Failed password"]),
    "openstack": log("openstack", rf"(?:\S+\.log\S* )?{ISO}", r"\.\d{3} \d+ ERROR "),
    "proxifier": by_filter("proxifier", r"\[%m\.%d %H:%M:%S\]", " error : ", text=[" error : "]),
    "spark": log("spark", "%y/%m/%d %H:%M:%S ", r":\d\d ERROR "),
    "thunderbird": by_filter("thunderbird", r"\S+ %E ", "^(VAPI|ECC) ", alert=["VAPI", "ECC"]),
    "windows": log("windows-cbs", ISO, ", Error  ", levels=["Error"]),
    "zookeeper": log("zookeeper", ISO, r",\d+ - ERROR "),
}


def times(lines: list[str], pattern: str) -> list[datetime | None]:
    """When each line was written; a year that is not printed rises after a December."""
    found: list[datetime | None] = []
    year, before = 2017, 1
    for line in lines:
        match = re.match(pattern, line)
        texts = match.groupdict() if match else {}
        if not texts:
            found.append(None)
        elif "E" in texts:
            found.append(datetime.fromtimestamp(int(texts["E"]), UTC))
        else:
            month = MONTHS.index(texts["b"]) + 1 if "b" in texts else int(texts["m"])
            year, before = year + (before == 12 and month == 1), month
            printed = int(texts["Y"]) if "Y" in texts else 2000 + int(texts.get("y", year - 2000))
            rest = (int(texts[key]) for key in "dHMS")
            found.append(datetime(printed, month, *rest, tzinfo=UTC))
    return found


def test_sixteen_logs_are_counted_as_by_another_reader(world: World, spark: SparkSession) -> None:
    """Minute by minute, and so many malformed; records arrive some seconds after their lines."""
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
        grouping = Grouping.of(settings.pipeline(name), {topic})
        frames.append(grouping.counts(records, is_small=True))
    assert producer.flush(60) == 0
    found: dict[str, Counter[str]] = {name: Counter() for name in SIXTEEN}
    for row in reduce(DataFrame.unionAll, frames).collect():
        counts = found[list(SIXTEEN)[row.partition]]
        counts["malformed"] += row.malformed
        if row.minute is not None:
            counts[row.minute] += row.records
    assert found == wanted
