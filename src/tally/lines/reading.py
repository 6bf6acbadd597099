"""What a record says, read by Python: record by record, and without Spark.

Spark decides what is counted; this is a second way to the same answer (``docs/line-formats.md``),
for what is shown or checked. The patterns are Spark's, calendar and clock are Python's.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import MAXYEAR, UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from tally.lines.format import Accepted, LineFormat, MalformedReason
from tally.lines.json_reading import json_field, read_object
from tally.lines.pattern import CLOCK, DATE, LEVEL, TIME, USUAL
from tally.lines.time_format import MONTHS, TimeFormat
from tally.lines.time_rule import AHEAD_MAX, BEGINS_A_LINE, OFFSET, TimeRule

NO_TIMESTAMP: Final = -1
"""Instead of the timestamp of a record that has none."""

_FIXED_TIME: Final = re.compile(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_FIXED_LEVEL: Final = re.compile(rb" ([^\x00-\x20][^ \t\r\n]*)")
_BEHIND_TIME: Final = " behind the time"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_S: Final = (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH).total_seconds()
_YEAR_MIN: Final = 1000
_MINUTES: Final = 60
_OFFSET_MAX: Final = timedelta(hours=18)
_OFFSET_HERE: Final = re.compile(OFFSET)
_GROUPS: Final = dict(
    zip(["yyyy", "yy", "MM", "MMM", "dd", "HH", "hh", "mm", "ss", "a"], "YymbdHIMSp", strict=True)
)
"""The group of each field that fixes the minute."""


@functools.lru_cache(maxsize=4_096)
def at_micros(micros: int) -> datetime | None:
    """A timestamp in microseconds since 1970; None where no calendar has it."""
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return None


class Record(NamedTuple):
    """A record in Kafka, as far as it is shown."""

    value: bytes | None
    """Its value; None for one without."""
    written_at: datetime | None
    """Its timestamp, in UTC; None without one, or where no calendar has it."""
    key: bytes | None = None
    """Its key; None for one without."""
    offset: int = -1
    """Its offset; -1 for a line of a file."""

    @property
    def micros(self) -> int:
        """Its timestamp in microseconds since 1970; NO_TIMESTAMP where there is none."""
        if self.written_at is None:
            return NO_TIMESTAMP
        return (self.written_at - _EPOCH) // timedelta(microseconds=1)


_Answer = tuple[MalformedReason | None, str | None]
"""What is wrong with a time, else its minute."""


@dataclass(frozen=True, slots=True)
class LineReading:
    """What a record says."""

    reason: MalformedReason | None
    """Why it cannot be understood; None where it can."""
    minute: str | None = None
    """Its minute, ``YYYY-MM-DD HH:MM:00``; None without one, also beside some reasons."""
    level: str = ""
    """Its level as it is configured; empty where it has none."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """The texts of its fields, by group or field; only of what is understood."""


def read_line(
    value: bytes | None,
    line_format: LineFormat,
    rule: TimeRule,
    micros: int = NO_TIMESTAMP,
    *,
    needs_level: bool,
) -> LineReading:
    """What a record says.

    Args:
        value: Its bytes; None for a record without a value.
        line_format: How lines are written.
        rule: How the minute follows.
        micros: Its timestamp in microseconds since 1970.
        needs_level: Whether a line without a level is malformed.
    """
    if value is None:
        return LineReading(MalformedReason.NULL_VALUE)
    line = line_format.options.line_of(value)
    if not line:
        return LineReading(MalformedReason.EMPTY_VALUE)
    if line_format.is_fixed:
        return _read_fixed(line, rule, micros, needs_level)
    texts = _texts(line_format, line)
    if texts is None:
        return LineReading(MalformedReason.NO_MATCH)
    problem, minute = _when(texts, line_format, rule, micros)
    level = _level(line_format, texts)
    if problem is None and needs_level and not level:
        problem = MalformedReason.NO_LEVEL
    return LineReading(problem, minute, level, texts)


def level_of(line_format: LineFormat, value: bytes) -> str | None:
    """The level of a record, as the configuration names it; None where the line has none."""
    line = line_format.options.line_of(value)
    if line_format.is_fixed:
        word = _FIXED_LEVEL.match(line[19:]) if _FIXED_TIME.match(line) else None
        return word[1].decode("utf-8", "replace") if word else None
    found = _texts(line_format, line) if line_format.has_level else None
    return None if found is None else _level(line_format, found) or None


def minute_at(micros: int, rule: TimeRule) -> str | None:
    """The minute of a record's timestamp by a rule's zone; None without one."""
    return _of_record(rule, micros)[1]


def is_line(line_format: LineFormat, value: bytes) -> bool:
    """Whether a record's pattern matches, or it is a JSON object; true for the fixed layout."""
    line = line_format.options.line_of(value)
    return line_format.is_fixed or _texts(line_format, line) is not None


def begins_a_line(line_format: LineFormat, value: bytes) -> bool:
    """Whether a record looks like the beginning of a line, even of another format."""
    line = line_format.options.line_of(value).decode("utf-8", "replace")
    return re.match(BEGINS_A_LINE, line, re.ASCII) is not None


def offset_of(line_format: LineFormat, value: bytes) -> str | None:
    """The offset after a record's time, as it is written; None where there is none."""
    if line_format.is_fixed or line_format.states_instant or not line_format.has_time:
        return None
    found = _texts(line_format, line_format.options.line_of(value))
    offset = _OFFSET_HERE.match(_behind_time(found, line_format)) if found else None
    return offset[1] if offset else None


def _level(line_format: LineFormat, texts: Mapping[str, str]) -> str:
    if printed := texts.get(LEVEL, ""):
        return line_format.level_names.get(printed, printed)
    return line_format.options.default_level


def _texts(line_format: LineFormat, line: bytes) -> dict[str, str] | None:
    """The texts of a line's fields, and what follows its time; None where it is no line."""
    if line_format.is_json:
        found = read_object(line, with_nan=Accepted.NAN in line_format.options)
        places = line_format.json_fields.items()
        return found and {name: json_field(found, paths) or "" for name, paths in places}
    match = line_format.match(line)
    if match is None:
        return None
    end = match.end(line_format.last_time_name) if line_format.time_names else -1
    behind = match.string[end:] if end >= 0 else ""
    return match.groupdict(default="") | {_BEHIND_TIME: behind}


def _read_fixed(line: bytes, rule: TimeRule, micros: int, needs_level: bool) -> LineReading:
    time, rest = line[:19], line[19:]
    if rule.from_record:
        problem, minute = _of_record(rule, micros)
    elif not _FIXED_TIME.fullmatch(time):
        return LineReading(MalformedReason.NO_TIME)
    else:
        problem, minute = _minute(*map(int, re.findall(rb"\d+", time)))
    word = _FIXED_LEVEL.match(rest)
    if problem is None and needs_level and not word:
        problem = MalformedReason.NO_LEVEL
    # A field is what stands between two blanks, also where that is no level.
    texts = {LEVEL: rest[1:].split(b" ")[0].decode(errors="replace")}
    return LineReading(problem, minute, word[1].decode(errors="replace") if word else "", texts)


def _time(texts: Mapping[str, str]) -> str:
    if TIME in texts:
        return texts[TIME]
    pair = (texts.get(DATE, ""), texts.get(CLOCK, ""))
    return " ".join(pair) if any(pair) else ""


def _when(
    texts: Mapping[str, str], line_format: LineFormat, rule: TimeRule, micros: int
) -> _Answer:
    """Problem and minute of a line's time, or of the record."""
    if rule.from_record:
        return _of_record(rule, micros)
    time = _usual_time(texts, line_format)
    if not time or (rule.assume_year == "from_record" and micros < 0):
        return MalformedReason.NO_TIME, None
    if line_format.states_instant:
        return _of_number(time, line_format, rule)
    found = _shape(line_format).match(time)
    if not found:
        return MalformedReason.TIME_INVALID, None
    offset = _offset(_behind_time(texts, line_format)) if rule.by_offset else None
    if rule.by_offset and offset is None:
        return MalformedReason.TIME_INVALID, None
    return _of_clock(found.groupdict(), rule, micros, offset)


def _usual_time(texts: Mapping[str, str], line_format: LineFormat) -> str:
    time = _time(texts)
    in_json = line_format.is_json and Accepted.BLANKS in line_format.options
    return time.translate(USUAL) if in_json else time


def _behind_time(texts: Mapping[str, str], line_format: LineFormat) -> str:
    """What follows the time: in the line, or in the field that has it."""
    if _BEHIND_TIME in texts:
        return texts[_BEHIND_TIME]
    time = _usual_time(texts, line_format)
    found = _shape(line_format).match(time)
    return time[found.end() :] if found else time


def _shape(line_format: LineFormat) -> re.Pattern[str]:
    return shape_of(line_format.parsed_time_format, in_json=line_format.is_json)


@functools.cache
def shape_of(time_format: TimeFormat, *, in_json: bool = False) -> re.Pattern[str]:
    """A pattern of a written time, with a group for each field that fixes the minute.

    In JSON anything but a digit may follow; elsewhere nothing.
    """
    parts = []
    for part in time_format.parts:
        name = _GROUPS.get(part.kind)
        shape = "|".join(MONTHS) if name == "b" else part.shape.removeprefix("(").removesuffix(")")
        parts.append(f"(?P<{name}>{shape})" if name else part.shape)
    return re.compile("".join(parts) + ("(?![0-9])" if in_json else r"\Z"), re.ASCII)


def _of_number(time: str, line_format: LineFormat, rule: TimeRule) -> _Answer:
    time_format = line_format.parsed_time_format
    digits = time_format.digits_max
    number = re.fullmatch(rf"[0-9]{{1,{digits}}}(\.[0-9]+)?", time)
    if not number and Accepted.EXPONENT in line_format.options:
        number = re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?[eE]\+?[0-9]{1,2}", time)
    if not number or (units := int(Decimal(time))) >= min(10**digits, 2**63):
        return MalformedReason.TIME_INVALID, None
    return _of_instant(units // time_format.per_second, rule.zone_name)


def _offset(behind: str) -> timedelta | None:
    """What an offset says that stands behind a time, and maybe behind the rest of its clock."""
    rest = re.sub(r"^([.,:][0-9]+)+", "", behind).removeprefix(" ")
    if re.match(r"(Z|z|UTC|GMT)(?![-+0-9A-Za-z]|:[0-9])", rest):
        return timedelta()
    said = re.match(r"([+-])(\d\d)(?::?(\d\d))?(?![-+0-9A-Za-z]|:[0-9])", rest, re.ASCII)
    if said is None or int(said[3] or 0) >= _MINUTES:
        return None
    ahead = timedelta(hours=int(said[2]), minutes=int(said[3] or 0))
    if ahead > _OFFSET_MAX:
        return None
    return -ahead if said[1] == "-" else ahead


def _of_clock(
    texts: Mapping[str, str], rule: TimeRule, micros: int, offset: timedelta | None = None
) -> _Answer:
    """Problem and minute of a wall clock, whose year may be known from elsewhere."""
    fields = _clock_fields(texts, rule, micros)
    problem, minute = _minute(*fields)
    if offset is None or problem is MalformedReason.TIME_INVALID:
        return problem, minute
    # A calendar that is 400 years long; no zone but UTC has a rule before 1900.
    years = 400 if fields[0] < 400 else -400 if fields[0] > 9900 else 0
    there = datetime(fields[0] + years, *fields[1:], tzinfo=UTC) - offset
    shown = there if years else there.astimezone(ZoneInfo(rule.zone_name))
    if not _YEAR_MIN <= shown.year - years <= MAXYEAR:
        return MalformedReason.TIME_OUT_OF_RANGE, None
    return None, f"{shown.year - years:04d}-{shown:%m-%d %H:%M}:00"


_Fields = tuple[int, int, int, int, int, int]
"""Year to second."""


def _clock_fields(texts: Mapping[str, str], rule: TimeRule, micros: int) -> _Fields:
    if rule.assume_year is None:
        return _fields(texts)
    if isinstance(rule.assume_year, int):
        return _fields({**texts, "Y": str(rule.assume_year)})
    latest = datetime(9999, 12, 30, 23, 59, 59, tzinfo=UTC) - AHEAD_MAX
    limit = min(latest, _EPOCH + timedelta(microseconds=micros)) + AHEAD_MAX
    fields = _fields({**texts, "Y": str(limit.year)})
    problem, _ = _minute(*fields)
    if not problem and datetime(*fields, tzinfo=UTC) <= limit:
        return fields
    return _fields({**texts, "Y": str(limit.year - 1)})


def _fields(text: Mapping[str, str]) -> _Fields:
    year = int(text["Y"]) if "Y" in text else 2000 + int(text["y"])
    month = MONTHS.index(text["b"]) + 1 if "b" in text else int(text["m"])
    if "I" in text:
        twelve = int(text["I"])
        noon = 12 if text["p"].upper() == "PM" else 0
        hour = twelve % 12 + noon if 1 <= twelve <= 12 else 99
    else:
        hour = int(text["H"])
    return year, month, int(text["d"]), hour, int(text["M"]), int(text.get("S", "0"))


def _of_record(rule: TimeRule, micros: int) -> _Answer:
    no_time = (MalformedReason.NO_TIME, None)
    return no_time if micros < 0 else _of_instant(micros // 10**6, rule.zone_name)


@functools.lru_cache(maxsize=4_096)
def _of_instant(seconds: int, zone_name: str) -> _Answer:
    if seconds >= _LAST_S:
        return MalformedReason.TIME_OUT_OF_RANGE, None
    shown = (_EPOCH + timedelta(seconds=seconds)).astimezone(ZoneInfo(zone_name))
    return None, f"{shown:%Y-%m-%d %H:%M}:00"


def _minute(year: int, month: int, day: int, hour: int, minute: int, second: int) -> _Answer:
    # The calendar repeats every 400 years: one below 1000 is checked 2000 years later.
    of_calendar = year + 2000 if year < _YEAR_MIN else year
    try:
        datetime(of_calendar, month, day, hour, minute, second)  # noqa: DTZ001
    except ValueError:
        return MalformedReason.TIME_INVALID, None
    if year < _YEAR_MIN:
        return MalformedReason.TIME_OUT_OF_RANGE, None
    return None, f"{year:04d}-{month:02d}-{day:02d} {hour:02d}:{minute:02d}:00"
