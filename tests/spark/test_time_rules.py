"""Times that need more than a line's own wall clock: as an independent reader understands them."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from tally.errors import ConfigError
from tally.lines.format import CATALOGUE, LineFormat
from tally.lines.parsing import parse_line_format
from tally.lines.time_rule import TimeRule, check_zone
from tally.spark.line_columns import LineReader
from tally.spark.reading import read_errors
from tests.spark.examples import NO_TIME, TIME_INVALID
from tests.spark.outcomes import (
    SEED,
    assert_as_expected,
    compiled_stages,
    grouping,
    kafka_records,
    outcomes,
    settings,
)
from tests.spark.test_line_columns import mutated

pytestmark = pytest.mark.spark

OUT_OF_RANGE = ("time-out-of-range", None)
NEAR = datetime(2005, 6, 15, 3, 4, 5, tzinfo=UTC)
YEAR_FROM_RECORD = TimeRule(assume_year="from_record")
BY_RECORD = TimeRule(from_record=True)
BERLIN = TimeRule(zone="Europe/Berlin")
# What it prints for the hour, and whether there is a morning and an afternoon.
TWELVE = "%-d.%-m.%y %-I:%-M %p"


def micros(at: datetime) -> int:
    return int((at - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))


def custom(time_format: str = "", *, pattern: str = "", **fields: str) -> LineFormat:
    table: dict[str, object] = {"json": fields} if fields else {"pattern": pattern}
    if time_format:
        table["time_format"] = time_format
    return parse_line_format(table, key="line_format")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A kind of lines: how it is configured, and how a program prints a time in it."""

    line_format: LineFormat
    rule: TimeRule
    line: Callable[[datetime], str]
    reasons: tuple[str, ...] = ("time-invalid",)
    levels: frozenset[str] = frozenset()


def printed(text: str, time: str = "%H:%M:%S") -> Callable[[datetime], str]:
    """A line with ``@`` in place of its time."""
    return lambda at: text.replace("@", at.strftime(time))


CASES = {
    "syslog": Case(
        line_format=CATALOGUE["syslog"],
        rule=YEAR_FROM_RECORD,
        line=printed("@ combo sshd[1]: x", "%b %e %H:%M:%S"),
        reasons=("time-invalid", "no-time"),
    ),
    "syslog in 2004": Case(
        line_format=CATALOGUE["syslog"],
        rule=TimeRule(assume_year=2004),
        line=printed("@ combo sshd[1]: x", "%b %e %H:%M:%S"),
    ),
    "rfc3164": Case(
        line_format=CATALOGUE["rfc3164"],
        rule=YEAR_FROM_RECORD,
        line=printed("<11>@ combo sshd[1]: x", "%b %e %H:%M:%S"),
        levels=frozenset({"err"}),
    ),
    "klog": Case(
        line_format=CATALOGUE["klog"],
        rule=YEAR_FROM_RECORD,
        line=printed("E@.123456    1 a.go:1] x", "%m%d %H:%M:%S"),
        levels=frozenset({"ERROR"}),
    ),
    "android": Case(
        line_format=CATALOGUE["android"],
        rule=YEAR_FROM_RECORD,
        line=printed("@.123  1702  2395 E Tag: x", "%m-%d %H:%M:%S"),
        levels=frozenset({"E"}),
    ),
    "proxifier": Case(
        line_format=CATALOGUE["proxifier"],
        rule=YEAR_FROM_RECORD,
        line=printed("[@] chrome.exe - x", "%m.%d %H:%M:%S"),
    ),
    "healthapp": Case(
        line_format=CATALOGUE["healthapp"],
        rule=TimeRule(),
        line=printed("@:606|Step_LSC|1|x", "%Y%m%d-%-H:%-M:%-S"),
    ),
    "unpadded, twelve hours": Case(
        line_format=custom("d.M.yy h:m a", pattern="(?<time>.*?M)? ?x"),
        rule=TimeRule(),
        line=printed("@ x", TWELVE),
    ),
    "unpadded in JSON": Case(
        line_format=custom("yyyyMMdd-H:m:s", time="at"),
        rule=TimeRule(),
        line=printed('{"at": "@.5"}', "%Y%m%d-%-H:%-M:%-S"),
    ),
    "thunderbird": Case(
        line_format=CATALOGUE["thunderbird"],
        rule=BERLIN,
        line=printed("- @ 2005.11.09 dn228 Nov 9 12:01:01 dn228/dn228 x", "%s"),
        reasons=(),
    ),
    "hpc": Case(
        line_format=CATALOGUE["hpc"],
        rule=TimeRule(zone="Asia/Kathmandu"),
        line=printed("134681 node-246 unix.hw state @ 1 x", "%s"),
        reasons=(),
    ),
    "epoch milliseconds in JSON": Case(
        line_format=custom("epoch_milliseconds", time="ts"),
        rule=TimeRule(zone="America/St_Johns"),
        line=printed('{"ts": @123}', "%s"),
        reasons=("no-time",),
    ),
    "epoch microseconds with a fraction": Case(
        line_format=custom("epoch_microseconds", pattern=r"(?<time>[0-9.]*)(?: |$)"),
        rule=TimeRule(),
        line=printed("@123456.5 x", "%s"),
        reasons=("no-time", "time-invalid"),
    ),
    "date and clock": Case(
        line_format=custom(
            "yyyy-MM-dd HH:mm:ss", pattern=r"(?<date>[0-9-]*) x (?<clock>[0-9:]*) (?<host>\S*)"
        ),
        rule=TimeRule(),
        line=lambda at: f"{at:%Y-%m-%d} x {at:%H:%M:%S} h",
        reasons=("time-invalid",),
    ),
    "date and clock in JSON, of which a clock alone": Case(
        line_format=custom("MMM d HH:mm:ss", date="d", clock="c"),
        rule=YEAR_FROM_RECORD,
        line=lambda at: f'{{"d": "{at:%b %-d}", "c": "{at:%H:%M:%S}"}}',
    ),
}


def odd_lines(rng: random.Random, case: Case, count: int) -> tuple[list[bytes | None], list[int]]:
    """Lines around some moments of a calendar, changed or not, and the timestamps of records."""
    lines: list[bytes | None] = [None, b"", b" ", b"\n", b"\xff", b"{}", b'{"at": "\\n2017"}']
    stamps = [micros(NEAR)] * len(lines)
    moments = [
        NEAR,
        datetime(2004, 2, 29, 12, tzinfo=UTC),
        datetime(2005, 1, 1, 0, 0, 1, tzinfo=UTC),
        datetime(2004, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(2005, 3, 27, 0, 59, 59, tzinfo=UTC),
        datetime(2005, 10, 30, 1, 0, 0, tzinfo=UTC),
    ]
    while len(lines) < count:
        at = rng.choice(moments) + timedelta(seconds=rng.randrange(-100_000, 100_000))
        line = case.line(at) + rng.choice(["", "", "\r\n", "\nx", " y"])
        lines.append(mutated(rng, line.encode(), rng.choice([0, 0, 0, 1, 1, 2]), within=40))
        days = rng.choice([0, 0, 1, 6, 7, 8, 30, 360, 366, -6, -7, -8, -100])
        stamps.append(micros(at + timedelta(days=days, seconds=rng.randrange(-9, 9))))
        if rng.random() < 0.05:
            stamps[-1] = rng.choice([-1, -1000, 0, micros(datetime(9999, 12, 31, tzinfo=UTC))])
    return lines, stamps


@pytest.mark.parametrize("name", CASES)
def test_odd_lines_are_read_as_python_reads_them(spark: SparkSession, name: str) -> None:
    """Year, zone, unpadded fields, numbers: reason and minute are those of another reader."""
    case = CASES[name]
    lines, stamps = odd_lines(random.Random(f"{SEED} {name}"), case, 1200)
    reasons = {"null-value", "empty-value", "no-match", "counted", *case.reasons}
    assert_as_expected(spark, lines, case.line_format, set(case.levels), reasons, case.rule, stamps)


@pytest.mark.parametrize("zone", [None, "Europe/Berlin", "Pacific/Apia"])
@pytest.mark.parametrize("name", ["fixed", "json", "log4j", "text"])
def test_the_records_own_time_counts_where_it_is_asked_for(
    spark: SparkSession, name: str, zone: str | None
) -> None:
    """Whatever the line says of time; without a timestamp there is none."""
    rng = random.Random(f"{SEED} {name} {zone}")
    line_format = CATALOGUE[name]
    levels = {"ERROR", "INFO"} if line_format.has_level else set()
    lines: list[bytes | None] = [None, b"", b" ", b"\xff", b"x", b"{}", b"[7]", b"{} {}"]
    lines += [
        mutated(rng, line_format.example.encode(), rng.choice([0, 1, 2]), within=30)
        for _ in range(300)
    ]
    stamps = [rng.choice([-1, 0, rng.randrange(2 * 10**15), 253402214399999999]) for _ in lines]
    rule = TimeRule(from_record=True, zone=zone)
    reasons = {"null-value", "empty-value", "no-time", "counted"}
    assert_as_expected(spark, lines, line_format, levels, reasons, rule, stamps)


def test_the_hour_that_summer_time_repeats_is_one(spark: SparkSession) -> None:
    """Two instants, one wall clock: ``docs/line-formats.md`` says so."""
    format_ = custom("epoch_seconds", pattern=r"(?<time>\d+)")
    instants = [datetime(2024, 10, 27, hour, 30, tzinfo=UTC) for hour in (0, 1, 2)]
    lines = [str(int(at.timestamp())).encode() for at in instants]
    found = outcomes(spark, lines, format_, set(), BERLIN)
    assert [minute for _, minute in found] == [
        "2024-10-27 02:30:00",
        "2024-10-27 02:30:00",
        "2024-10-27 03:30:00",
    ]


def test_a_zone_that_only_python_knows_is_a_mistake_of_the_configuration(
    spark: SparkSession,
) -> None:
    """Java has a list of zones of its own, which may be older. Trying again does not help."""
    unknown = TimeRule(from_record=True, zone="Europe/Atlantis")
    with pytest.raises(ConfigError, match=r"INVALID_TIMEZONE.*Europe/Atlantis"), read_errors(()):
        outcomes(spark, [b"x"], CATALOGUE["text"], set(), unknown, [micros(NEAR)])


@pytest.mark.parametrize(
    ("line", "record", "minute"),
    [
        ("Dec 31 23:59:59", datetime(2025, 1, 3, tzinfo=UTC), "2024-12-31 23:59:00"),
        ("Jan  1 00:00:01", datetime(2024, 12, 31, 23, tzinfo=UTC), "2025-01-01 00:00:00"),
        ("Jan  1 00:00:01", datetime(2025, 1, 1, tzinfo=UTC), "2025-01-01 00:00:00"),
        ("Jan  8 00:00:00", datetime(2025, 1, 1, tzinfo=UTC), "2025-01-08 00:00:00"),
        ("Jan  8 00:00:01", datetime(2025, 1, 1, tzinfo=UTC), "2024-01-08 00:00:00"),
        ("Feb 29 12:00:00", datetime(2024, 3, 1, tzinfo=UTC), "2024-02-29 12:00:00"),
        ("Feb 29 12:00:00", datetime(2025, 2, 1, tzinfo=UTC), "2024-02-29 12:00:00"),
        ("Feb 29 12:00:00", datetime(2025, 6, 1, tzinfo=UTC), "2024-02-29 12:00:00"),
        ("Jul 30 14:09:08", datetime(9999, 12, 31, tzinfo=UTC), "9999-07-30 14:09:00"),
    ],
)
def test_the_year_is_the_latest_that_is_not_in_the_future(
    spark: SparkSession, line: str, record: datetime, minute: str
) -> None:
    """December and January fall on the right side, and seven days of wrong clocks are allowed."""
    value = f"{line} combo sshd[1]: x".encode()
    found = outcomes(spark, [value], CATALOGUE["syslog"], set(), YEAR_FROM_RECORD, [micros(record)])
    assert found == [(None, minute)]


def test_a_day_that_neither_year_has_is_none(spark: SparkSession) -> None:
    """29 February is not looked for further back than a year, and 30 February not at all."""
    record = micros(datetime(2026, 6, 1, tzinfo=UTC))
    lines = [f"Feb {day} 12:00:00 combo x".encode() for day in (29, 30)]
    found = outcomes(spark, lines, CATALOGUE["syslog"], set(), YEAR_FROM_RECORD, [record, record])
    assert found == [TIME_INVALID, TIME_INVALID]
    found = outcomes(spark, lines, CATALOGUE["syslog"], set(), TimeRule(assume_year=2004))
    assert found == [(None, "2004-02-29 12:00:00"), TIME_INVALID]


@pytest.mark.parametrize(
    ("time_format", "number", "wanted"),
    [
        ("epoch_seconds", "253402214399", (None, "9999-12-30 23:59:00")),
        ("epoch_seconds", "253402214400", OUT_OF_RANGE),
        ("epoch_seconds", "1501423748123", OUT_OF_RANGE),
        ("epoch_seconds", "999999999999999999", OUT_OF_RANGE),
        ("epoch_seconds", "9999999999999999999", TIME_INVALID),
        ("epoch_seconds", "-1", TIME_INVALID),
        ("epoch_seconds", "+1", TIME_INVALID),
        ("epoch_seconds", "1.", TIME_INVALID),
        ("epoch_seconds", "1e3", TIME_INVALID),
        ("epoch_seconds", "0", (None, "1970-01-01 00:00:00")),
        ("epoch_seconds", "000000001501423748", (None, "2017-07-30 14:09:00")),
        ("epoch_seconds", "1501423748.999", (None, "2017-07-30 14:09:00")),
        ("epoch_milliseconds", "1501423799999", (None, "2017-07-30 14:09:00")),
        ("epoch_milliseconds", "59999", (None, "1970-01-01 00:00:00")),
        ("epoch_milliseconds", "60000", (None, "1970-01-01 00:01:00")),
        ("epoch_microseconds", "1501423748123456", (None, "2017-07-30 14:09:00")),
        ("epoch_seconds", "", NO_TIME),
    ],
)
def test_a_number_since_1970(
    spark: SparkSession, time_format: str, number: str, wanted: tuple[str | None, str | None]
) -> None:
    """Digits, and a fraction that is cut; milliseconds read as seconds are out of range."""
    format_ = custom(time_format, pattern=r"(?<time>[^ ]*) x")
    assert outcomes(spark, [f"{number} x".encode()], format_, set()) == [wanted]


def test_a_field_of_two_digits_is_no_padded_one(spark: SparkSession) -> None:
    """A blank behind a digit is not a blank before it."""
    times = ["Jul  3", "Jul 30", "Jul 3 ", "Jul 03", "Jul   ", "Jul 3"]
    lines = [f"{day} 14:09:08 combo x".encode() for day in times]
    format_ = custom("MMM ppd HH:mm:ss", pattern="(?<time>.*?) combo")
    found = outcomes(spark, lines, format_, set(), TimeRule(assume_year=2017))
    assert found == [
        (None, "2017-07-03 14:09:00"),
        (None, "2017-07-30 14:09:00"),
        TIME_INVALID,
        (None, "2017-07-03 14:09:00"),
        TIME_INVALID,
        TIME_INVALID,
    ]


def test_a_line_cannot_pass_itself_off_as_a_time_that_was_found(spark: SparkSession) -> None:
    """A JSON string may hold line feeds; they are no marks."""
    format_ = custom("yyyyMMdd-H:m:s", time="at")
    forged = b'{"at": "\\n2017\\n07\\n30\\n14\\n09\\n08"}'
    assert outcomes(spark, [forged], format_, set()) == [TIME_INVALID]


@pytest.mark.parametrize(
    ("zone", "ansi", "policy"),
    [("Europe/Berlin", "true", "EXCEPTION"), ("Asia/Kolkata", "false", "LEGACY")],
)
def test_session_settings_change_no_instant(
    spark: SparkSession, zone: str, ansi: str, policy: str
) -> None:
    """The configured zone alone decides."""
    rng = random.Random(SEED)
    with settings(
        spark, session__timeZone=zone, ansi__enabled=ansi, legacy__timeParserPolicy=policy
    ):
        for name in ("thunderbird", "syslog", "healthapp"):
            case = CASES[name]
            lines, stamps = odd_lines(rng, case, 200)
            assert_as_expected(
                spark, lines, case.line_format, set(), {"counted"}, case.rule, stamps
            )
        stamp = [micros(NEAR)]
        found = outcomes(spark, [b"x"], CATALOGUE["text"], set(), BY_RECORD, stamp)
        assert found == [(None, "2005-06-15 03:04:00")]


def test_spark_knows_every_time_zone_that_the_configuration_takes(spark: SparkSession) -> None:
    """But for zones that are younger than its Java."""
    java = set(spark._jvm.java.time.ZoneId.getAvailableZoneIds())  # type: ignore[union-attr]
    taken = set()
    for name in available_timezones():
        try:
            taken.add(check_zone(name))
        except ValueError:
            continue
    assert taken - java <= {"America/Coyhaique"}
    assert ZoneInfo("Europe/Berlin").key in taken


@pytest.mark.parametrize("name", ["syslog", "healthapp", "thunderbird"])
def test_the_plan_stays_small_enough_to_be_compiled(spark: SparkSession, name: str) -> None:
    """A method that is too long would be interpreted, record by record."""
    case = CASES[name]
    reader = LineReader(line_format=case.line_format, levels=list(case.levels), rule=case.rule)
    with settings(spark, adaptive__enabled="false"):
        compiled_stages(grouping(reader).counts(kafka_records(spark, [b"x"])))
