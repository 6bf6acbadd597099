"""Times that need more than a line's own wall clock: as an independent reader understands them."""

import random
from contextlib import suppress
from datetime import UTC, datetime
from zoneinfo import available_timezones

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from tally.errors import ConfigError
from tally.lines.parsing import CATALOGUE
from tally.lines.time_rule import TimeRule, check_zone
from tally.spark.reading import read_errors
from tests.campaigns import share
from tests.spark.examples import NO_TIME, TIME_INVALID
from tests.spark.odd_lines import BERLIN, KINDS, NEAR, custom, micros, mutated, of_kind
from tests.spark.outcomes import SEED, Cases, Wanted, check, reader

pytestmark = pytest.mark.spark

OUT_OF_RANGE = ("time-out-of-range", None)


@pytest.mark.parametrize("name", KINDS)
def test_odd_lines_are_read_as_python_reads_them(spark: SparkSession, name: str) -> None:
    """Year, zone, unpadded fields, numbers: reason and minute are those of another reader."""
    kind, cases = KINDS[name], Cases(spark)
    lines, stamps = of_kind(random.Random(f"{SEED} {name}"), kind, share(1200))
    reasons = {"null-value", "empty-value", "no-match", *kind.reasons}
    cases.add_odd(name, kind.reader, lines, reasons, stamps)
    cases.check()


@pytest.mark.parametrize(
    ("name", "zone"),
    [("fixed", None), ("json", "Pacific/Apia"), ("log4j", "Europe/Berlin"), ("text", None)],
)
def test_record_times_count_if_asked_for(spark: SparkSession, name: str, zone: str | None) -> None:
    """Whatever the line says of time; without a timestamp there is none."""
    line_format, rng = CATALOGUE[name], random.Random(f"{SEED} {name}")
    example = line_format.example.encode()
    lines: list[bytes | None] = [None, b"", b" ", b"\xff", b"x", b"{}", b"[7]", b"{} {}"]
    lines += [mutated(rng, example, rng.choice([0, 1, 2]), within=30) for _ in range(share(300))]
    stamps = [rng.choice([-1, 0, rng.randrange(2 * 10**15), 253402214399999999]) for _ in lines]
    levels = ["ERROR", "INFO"] if line_format.has_level else []
    of_record = reader(line_format, levels, TimeRule(from_record=True, zone=zone))
    cases = Cases(spark)
    cases.add_odd(name, of_record, lines, {"null-value", "empty-value", "no-time"}, stamps)
    cases.check()


def test_the_hour_that_summer_time_repeats_is_one(spark: SparkSession) -> None:
    """Two instants, one wall clock: ``docs/line-formats.md`` says so."""
    wanted = {
        "1729989000": (None, "2024-10-27 02:30:00"),
        "1729992600": (None, "2024-10-27 02:30:00"),
        "1729996200": (None, "2024-10-27 03:30:00"),
    }
    format_ = custom("epoch_seconds", pattern=r"(?<time>\d+)")
    check(spark, reader(format_, [], BERLIN), wanted)


def test_a_zone_that_only_python_knows_is_a_wrong_setting(spark: SparkSession) -> None:
    """Java has a list of zones of its own, which may be older. Trying again does not help."""
    unknown = reader("text", [], TimeRule(from_record=True, zone="Europe/Atlantis"))
    with pytest.raises(ConfigError, match=r"INVALID_TIMEZONE.*Europe/Atlantis"), read_errors(()):
        check(spark, unknown, [(b"x", (None, None))], [micros(NEAR)])


def test_the_year_is_the_latest_that_is_not_in_the_future(spark: SparkSession) -> None:
    """December and January fall on the right side, and seven days of wrong clocks are allowed.

    29 February is not looked for further back than a year, and 30 February not at all.
    """
    wanted: list[tuple[str, datetime, Wanted]] = [
        ("Dec 31 23:59:59", datetime(2025, 1, 3, tzinfo=UTC), (None, "2024-12-31 23:59:00")),
        ("Jan  1 00:00:01", datetime(2024, 12, 31, 23, tzinfo=UTC), (None, "2025-01-01 00:00:00")),
        ("Jan  1 00:00:01", datetime(2025, 1, 1, tzinfo=UTC), (None, "2025-01-01 00:00:00")),
        ("Jan  8 00:00:00", datetime(2025, 1, 1, tzinfo=UTC), (None, "2025-01-08 00:00:00")),
        ("Jan  8 00:00:01", datetime(2025, 1, 1, tzinfo=UTC), (None, "2024-01-08 00:00:00")),
        ("Feb 29 12:00:00", datetime(2024, 3, 1, tzinfo=UTC), (None, "2024-02-29 12:00:00")),
        ("Feb 29 12:00:00", datetime(2025, 2, 1, tzinfo=UTC), (None, "2024-02-29 12:00:00")),
        ("Feb 29 12:00:00", datetime(2025, 6, 1, tzinfo=UTC), (None, "2024-02-29 12:00:00")),
        ("Feb 29 12:00:00", datetime(2026, 6, 1, tzinfo=UTC), TIME_INVALID),
        ("Feb 30 12:00:00", datetime(2026, 6, 1, tzinfo=UTC), TIME_INVALID),
        ("Jul 30 14:09:08", datetime(9999, 12, 31, tzinfo=UTC), (None, "9999-07-30 14:09:00")),
    ]
    lines = [(f"{time} combo x", outcome) for time, _, outcome in wanted]
    cases = Cases(spark)
    cases.add("of the record", KINDS["syslog"].reader, lines, [micros(at) for _, at, _ in wanted])
    leap_days = {
        "Feb 29 12:00:00 combo x": (None, "2004-02-29 12:00:00"),
        "Feb 30 12:00:00 combo x": TIME_INVALID,
    }
    cases.add("in 2004", KINDS["syslog in 2004"].reader, leap_days)
    cases.check()


def test_a_number_since_1970(spark: SparkSession) -> None:
    """Digits, and a fraction that is cut; milliseconds read as seconds are out of range."""
    numbers: dict[str, dict[str, Wanted]] = {
        "epoch_seconds": {
            "253402214399": (None, "9999-12-30 23:59:00"),
            **dict.fromkeys(("253402214400", "1501423748123", "999999999999999999"), OUT_OF_RANGE),
            **dict.fromkeys(("9999999999999999999", "-1", "+1", "1.", "1e3"), TIME_INVALID),
            "0": (None, "1970-01-01 00:00:00"),
            "000000001501423748": (None, "2017-07-30 14:09:00"),
            "1501423748.999": (None, "2017-07-30 14:09:00"),
            "": NO_TIME,
        },
        "epoch_milliseconds": {
            "1501423799999": (None, "2017-07-30 14:09:00"),
            "59999": (None, "1970-01-01 00:00:00"),
            "60000": (None, "1970-01-01 00:01:00"),
        },
        "epoch_microseconds": {"1501423748123456": (None, "2017-07-30 14:09:00")},
    }
    cases = Cases(spark)
    for time_format, wanted in numbers.items():
        format_ = custom(time_format, pattern=r"(?<time>[^ ]*) x")
        lines = {f"{number} x": outcome for number, outcome in wanted.items()}
        cases.add(time_format, reader(format_, []), lines)
    cases.check()


def test_a_field_of_two_digits_is_no_padded_one(spark: SparkSession) -> None:
    """A blank behind a digit is not a blank before it."""
    days = {
        "Jul  3": (None, "2017-07-03 14:09:00"),
        "Jul 30": (None, "2017-07-30 14:09:00"),
        "Jul 03": (None, "2017-07-03 14:09:00"),
        **dict.fromkeys(("Jul 3 ", "Jul   ", "Jul 3"), TIME_INVALID),
    }
    format_ = custom("MMM ppd HH:mm:ss", pattern="(?<time>.*?) combo")
    lines = {f"{day} 14:09:08 combo x": outcome for day, outcome in days.items()}
    check(spark, reader(format_, [], TimeRule(assume_year=2017)), lines)


def test_a_line_cannot_pass_itself_off_as_a_time_that_was_found(spark: SparkSession) -> None:
    """A JSON string may hold line feeds; they are no marks."""
    format_ = custom("yyyyMMdd-H:m:s", time="at")
    forged = b'{"at": "\\n2017\\n07\\n30\\n14\\n09\\n08"}'
    check(spark, reader(format_, []), {forged: TIME_INVALID})


def test_spark_knows_every_time_zone_that_the_configuration_takes(spark: SparkSession) -> None:
    """But for zones that are younger than its Java."""
    java = set(spark._jvm.java.time.ZoneId.getAvailableZoneIds())  # type: ignore[union-attr]
    taken = set()
    for name in available_timezones():
        with suppress(ValueError):
            taken.add(check_zone(name))
    assert taken - java <= {"America/Coyhaique"}
    assert "Europe/Berlin" in taken
