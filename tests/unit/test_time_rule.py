"""Time rules: which formats need one, and what the configuration is told when it is wrong."""

from contextlib import suppress

import pytest

from tally.lines.parsing import CATALOGUE, parse_line_format
from tally.lines.time_rule import TimeRule, check_time_rule, check_zone

EPOCH = parse_line_format(
    {"pattern": r"(?<time>\d+)", "time_format": "epoch_seconds"}, key="line_format"
)
INSTANT = TimeRule(by_offset=True, zone="Asia/Tokyo")
OFFSETS = (
    *("spring-boot", "airflow", "postgresql", "mysql", "serilog", "rfc5424", "logfmt", "access"),
    *("logfmt-any", "json"),
)
"""The ready-made formats whose lines may have an offset."""
NO_TIME = parse_line_format({"json": {"level": "level"}}, key="line_format")


def test_a_rule_that_gives_each_line_one_minute_is_taken() -> None:
    """A wall clock with its year, a year from elsewhere, an instant in a zone, or the record's."""
    for line_format, rule in (
        *((CATALOGUE[name], TimeRule()) for name in ("fixed", "json", "healthapp")),
        (CATALOGUE["syslog"], TimeRule(assume_year=2005)),
        *((CATALOGUE["klog"], TimeRule(assume_year="from_record")), (EPOCH, TimeRule())),
        (EPOCH, TimeRule(zone="Europe/Berlin")),
        *((CATALOGUE[name], TimeRule(from_record=True)) for name in ("text", "fixed", "syslog")),
        (NO_TIME, TimeRule(from_record=True, zone="Asia/Tokyo")),
        *((CATALOGUE[name], INSTANT) for name in OFFSETS),
        (parse_line_format({"name": "json", "skip_bytes": 5}, key="line_format"), INSTANT),
    ):
        check_time_rule(line_format, rule)
    # Any other is refused with what to set; one that would do nothing is a mistake, too.
    for line_format, rule, complaint in (
        (CATALOGUE["text"], TimeRule(), 'no time in its lines: set time = "record"'),
        (NO_TIME, TimeRule(zone="Asia/Tokyo"), "no time in its lines"),
        (CATALOGUE["syslog"], TimeRule(), 'prints no year.*guess.*assume_year = "from_record"'),
        (CATALOGUE["fixed"], TimeRule(assume_year=2005), "leave assume_year out"),
        (CATALOGUE["log4j"], TimeRule(assume_year="from_record"), "leave assume_year out"),
        (EPOCH, TimeRule(assume_year=2005), "leave assume_year out"),
        (CATALOGUE["text"], TimeRule(from_record=True, assume_year=2005), "one of them out"),
        (EPOCH, INSTANT, "an instant by itself: leave time"),
        *((CATALOGUE[name], INSTANT, "no offset") for name in ("fixed", "log4j", "nginx", "hdfs")),
        (CATALOGUE["text"], INSTANT, "no time in its lines"),
    ):
        with pytest.raises(ValueError, match=complaint):
            check_time_rule(line_format, rule)
    # Of the ready-made formats that have a year these have an offset, and no others.
    found = []
    for name, line_format in CATALOGUE.items():
        with suppress(ValueError):
            check_time_rule(line_format, INSTANT)
            found.append(name)
    assert sorted(found) == sorted(OFFSETS)
    # A zone is UTC or an area and a place; Java and Python disagree about abbreviations.
    for name in ("UTC", "Europe/Berlin", "America/Argentina/Ushuaia", "Etc/GMT+1"):
        assert check_zone(name) == name
    for name in ("", "CET", "EST", "Factory", "localtime", "+01:00", "Europe/Bonn"):
        with pytest.raises(ValueError, match="such as Europe/Berlin"):
            check_zone(name)
