"""Logs of sixteen systems, counted by the ready-made formats, beside a reader of this file's own.

The lines in ``tests/logs`` were written for this test, in the layouts of the systems they are named
after. The reader below imports nothing from the code under test: it finds times and what counts by
expressions of its own, and reckons with ``datetime``.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from tests.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.stack, pytest.mark.spark]

LOGS = Path(__file__).parents[1] / "logs"
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
CLOCK = r"(?P<H>\d+):(?P<M>\d+):(?P<S>\d+)"
ISO = rf"(?P<Y>\d{{4}})-(?P<m>\d\d)-(?P<d>\d\d)[ -]{CLOCK.replace(':', '[:.]')}"
NAMED = rf"(?P<b>[A-Z][a-z][a-z]) +(?P<d>\d+) {CLOCK}"


@dataclass(frozen=True, kw_only=True)
class Log:
    """How a log is configured, and how this file reads it."""

    keys: dict[str, Any]
    """Of the pipeline."""
    time: str
    """Finds the time in a line; a line without one is malformed."""
    counts: str
    """Finds whether a line counts."""


def log(line_format: str, time: str, counts: str, **keys: Any) -> Log:
    return Log(keys={"line_format": line_format, **keys}, time=time, counts=counts)


NEW_YEAR = {"assume_year": "from_record"}
NO_LEVEL: dict[str, Any] = {"levels": []}
SYSLOG = NEW_YEAR | NO_LEVEL

SIXTEEN = {
    "android": log(
        "android", rf"(?P<m>\d\d)-(?P<d>\d\d) {CLOCK}", r" E \w+:", levels=["E"], **NEW_YEAR
    ),
    "apache": log(
        "apache-2.2",
        rf"\[\w+ (?P<b>\w+) (?P<d>\d\d) {CLOCK} (?P<Y>\d+)\]",
        r"\] \[error\]",
        levels=["error"],
    ),
    "bgl": log("bgl", rf"\S+ \d+ [\d.]+ \S+ {ISO}", r" RAS \w+ FATAL ", levels=["FATAL"]),
    "hadoop": log("log4j", ISO, r",\d+ (ERROR|FATAL) ", levels=["ERROR", "FATAL"]),
    "hdfs": log(
        "hdfs",
        r"(?P<y>\d\d)(?P<m>\d\d)(?P<d>\d\d) (?P<H>\d\d)(?P<M>\d\d)(?P<S>\d\d) ",
        r"^\d+ \d+ \d+ ERROR ",
    ),
    "healthapp": log(
        "healthapp",
        rf"(?P<Y>\d{{4}})(?P<m>\d\d)(?P<d>\d\d)-{CLOCK}:",
        r"\|Step_LSC\|",
        filter={"component": ["Step_LSC"]},
        **NO_LEVEL,
    ),
    "hpc": log(
        "hpc",
        r"\d+ \S+ \S+ \S+ (?P<epoch>\d+) ",
        r" state_change\.unavailable ",
        filter={"state": ["state_change.un*"]},
        **NO_LEVEL,
    ),
    "linux": log(
        "syslog",
        NAMED,
        "authentication failure",
        filter={"text": ["authentication failure"]},
        **SYSLOG,
    ),
    "mac": log("syslog", NAMED, r" kernel\[", filter={"program": ["kernel"]}, **SYSLOG),
    "openssh": log(
        "syslog", NAMED, "Failed password", filter={"text": ["Failed password"]}, **SYSLOG
    ),
    "openstack": log("openstack", rf"(?:\S+\.log\S* )?{ISO}", r"\.\d{3} \d+ ERROR "),
    "proxifier": log(
        "proxifier",
        rf"\[(?P<m>\d\d)\.(?P<d>\d\d) {CLOCK}\]",
        " error : ",
        filter={"text": [" error : "]},
        **SYSLOG,
    ),
    "spark": log("spark", rf"(?P<y>\d\d)/(?P<m>\d\d)/(?P<d>\d\d) {CLOCK} ", r":\d\d ERROR "),
    "thunderbird": log(
        "thunderbird",
        r"\S+ (?P<epoch>\d+) ",
        "^(VAPI|ECC) ",
        filter={"alert": ["VAPI", "ECC"]},
        **NO_LEVEL,
    ),
    "windows": log("windows-cbs", ISO, ", Error  ", levels=["Error"]),
    "zookeeper": log("zookeeper", ISO, r",\d+ - ERROR "),
}


def times(lines: list[str], pattern: str) -> list[datetime | None]:
    """When each line was written; a year that is not printed rises after a December."""
    found: list[datetime | None] = []
    year = 2017
    for line in lines:
        match = re.match(pattern, line)
        if match is None:
            found.append(None)
            continue
        texts = match.groupdict()
        if "epoch" in texts:
            found.append(datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=int(texts["epoch"])))
            continue
        month = MONTHS.index(texts["b"]) + 1 if "b" in texts else int(texts["m"])
        before = next((at for at in reversed(found) if at is not None), None)
        year += before is not None and before.month == 12 and month == 1
        printed = int(texts["Y"]) if "Y" in texts else 2000 + int(texts["y"]) if "y" in texts else 0
        day, hour, minute, second = (int(texts[key]) for key in "dHMS")
        found.append(datetime(printed or year, month, day, hour, minute, second, tzinfo=UTC))
    return found


@pytest.mark.parametrize("name", SIXTEEN)
def test_a_log_is_counted_as_another_reader_counts_it(
    world: World, spark: "SparkSession", name: str
) -> None:
    """Minute by minute, and so many dead letters; records arrive some seconds after their lines."""
    case = SIXTEEN[name]
    lines = (LOGS / f"{name}.log").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 10
    written = times(lines, case.time)
    wanted = Counter(
        f"{at:%Y-%m-%d %H:%M}"
        for line, at in zip(lines, written, strict=True)
        if at is not None and re.search(case.counts, line)
    )
    assert sum(wanted.values()) >= 3
    assert None in written

    world.configure(**case.keys)
    keep = ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ConfigResource.Type.TOPIC, world.topic, incremental_configs=[keep])
    world.admin.incremental_alter_configs([topic])[topic].result(timeout=60)
    stamp = datetime(2017, 7, 30, 14, 10, tzinfo=UTC)
    producer = world.producer()
    for line, at in zip(lines, written, strict=True):
        stamp = at + timedelta(seconds=5) if at else stamp
        produce: Callable[..., None] = producer.produce
        produce(world.topic, line.encode(), partition=0, timestamp=int(stamp.timestamp() * 1000))
    assert producer.flush(60) == 0
    world.minute(spark)
    assert world.counts() == dict(sorted(wanted.items()))
    assert len(world.dead_letters()) == written.count(None)
    assert world.audit().holds
