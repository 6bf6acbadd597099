"""How the minute of a record follows from its line, or from Kafka's timestamp.

A line may state a wall clock, a wall clock without a year, an instant (a number since 1970, or on
request a wall clock with its offset) or no time at all. A wall clock is taken as printed. An
instant has a minute only in some time zone.
:mod:`tally.spark.time_columns` computes it.
"""

import functools
import re
import zoneinfo
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from tally.lines.format import LineFormat, MalformedReason

UTC: Final = "UTC"

FROM_RECORD: Final = "from_record"

AHEAD_MAX: Final = timedelta(days=7)
"""How far a line's clock may be ahead of its record's timestamp when the year follows from it."""

BEGINS_A_LINE: Final = (
    r"^(?:\x1b\[[0-9;]{0,32}m){0,9}+(?:\uFEFF"
    r"|[\[(<]?(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.](?:\d{1,2}|[A-Z][a-z]{2})[-/.]\d{2,4}"
    r"|\d{1,2}:\d{2}:\d{2}|(?:[A-Z][a-z]{2} ){1,2}[ \d]?\d \d{1,2}:\d{2}"
    r"|\d{2}[-/.]\d{2} \d{2}:\d{2}|\d{6} \d{6} |\d{8}[-T ]\d|\d{10})"
    r"|[IWEFD]\d{4}(?:\d{4})? \d{2}:|<\d{1,3}>|(?:time(?:stamp)?|ts|level|lvl|severity)="
    r"|(?:\S++ ){1,2}- \S++ \[\d{1,2}/[A-Z][a-z]{2}/\d{4}:"
    r'|\s*(?:\[\s*)?\{\s*")'
)
"""Java's and Python's pattern (ASCII) of what is a damaged line, or one of another format, and no
part of the line before: behind colours of a terminal, if any, it begins with a byte order mark, a
date, a clock, a number since 1970, glog's or syslog's head, a key of a time or a level, the words
before an access log's time, or a JSON object."""

OFFSET: Final = (
    r"\A(?:[.,:][0-9]+)*+ ?(Z|z|UTC|GMT"
    r"|[+-](?:(?:0[0-9]|1[0-7])(?::?[0-5][0-9])?+|18(?::?00)?+))"
    r"(?![A-Za-z0-9+-]|:[0-9])"
)
"""Java's and Python's pattern of what follows a time with an offset: a fraction, or whatever
else of the clock the time format leaves out, then the offset, its group."""

OFFSET_CHARS: Final = 64
"""How much of a line is read after its time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeRule:
    """How the minute is found. The default: a line's wall clock, which has a year."""

    from_record: bool = False
    """The time is the record's own timestamp, whatever its line says."""
    by_offset: bool = False
    """The time is an instant: the line's wall clock and the offset after it (:data:`OFFSET`)."""
    assume_year: int | Literal["from_record"] | None = None
    """The year of lines without one: a fixed one, or the latest in which the line's clock is at
    most :data:`AHEAD_MAX` ahead of the record's timestamp in UTC."""
    zone: str | None = None
    """IANA name of the time zone in which an instant is shown; None for UTC."""

    @property
    def zone_name(self) -> str:
        """The time zone in which an instant is shown."""
        return self.zone or UTC

    def fingerprint(self) -> str:
        """Identifies the rule; empty for the default, as before there were others."""
        parts = [
            "time record" if self.from_record else "",
            "time instant" if self.by_offset else "",
            f"zone {self.zone}" if self.zone_name != UTC else "",
            f"year {self.assume_year}" if self.assume_year is not None else "",
        ]
        return ", ".join(filter(None, parts))


WALL_CLOCK: Final = TimeRule()


def continuation_reasons(line_format: LineFormat, rule: TimeRule) -> tuple[MalformedReason, ...]:
    """What is wrong with a record that begins no line, such as one of a stack trace.

    Empty where nothing else shows it: in the fixed layout only the time marks where a line begins.
    """
    if line_format.is_fixed:
        return () if rule.from_record else (MalformedReason.EMPTY_VALUE, MalformedReason.NO_TIME)
    return (MalformedReason.EMPTY_VALUE, MalformedReason.NO_MATCH)


def _may_have_offset(line_format: LineFormat) -> bool:
    """Whether an offset can follow the time; a ready-made pattern has one in its example."""
    if not line_format.pattern or not line_format.example:
        return not line_format.is_fixed
    found = line_format.parsed_pattern.python.match(line_format.example)
    end = found.end(line_format.last_time_name) if found else 0
    return re.match(OFFSET, line_format.example[end:]) is not None


def offset_minutes(offset: str) -> int:
    """How far a stated offset is ahead of UTC."""
    found = re.fullmatch(r"([+-])(\d\d):?(\d\d)?", offset)
    if found is None:  # Z, UTC
        return 0
    minutes = int(found[2]) * 60 + int(found[3] or 0)
    return -minutes if found[1] == "-" else minutes


def check_zone(name: str) -> str:
    """Raise ValueError unless ``name`` is a time zone; returns it.

    Only UTC and names of an area and a place (``Europe/Berlin``) are: Java and Python disagree
    about the abbreviations.
    """
    if name != UTC and ("/" not in name or name not in _time_zones()):
        raise ValueError("UTC, or a time zone by area and place such as Europe/Berlin")
    return name


@functools.cache
def _time_zones() -> set[str]:
    """All there are; the folders of the database are searched once."""
    return zoneinfo.available_timezones()


def check_time_rule(line_format: LineFormat, rule: TimeRule) -> None:
    """Raise ValueError unless each line of the format has one minute by the rule.

    The message says what to set instead; it follows the format's name.
    """
    if rule.from_record:
        if rule.assume_year is not None:
            raise ValueError('needs no assume_year with time = "record": leave one of them out')
        return
    if not line_format.has_time:
        raise ValueError(
            'has no time in its lines: set time = "record" to count by Kafka\'s timestamp, or say '
            "where the time stands"
        )
    if line_format.lacks_year:
        if rule.assume_year is None:
            raise ValueError(
                "prints no year, so which year's minute a line belongs to would be a guess: set "
                'assume_year = "from_record" to take it from Kafka\'s timestamp, or a number such '
                "as assume_year = 2005, or have the program print the year"
            )
    elif rule.assume_year is not None:
        raise ValueError("states the year itself: leave assume_year out")
    if rule.by_offset and line_format.states_instant:
        raise ValueError('states an instant by itself: leave time = "instant" out')
    if rule.by_offset and not _may_have_offset(line_format):
        raise ValueError('has no offset behind its time: leave time = "instant" out')
