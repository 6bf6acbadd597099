"""What a record says, read a second time: by Python, record by record, with ``datetime``.

Independent of :mod:`tally.spark.line_columns` and :mod:`tally.lines.time_format`: the shapes of
the times are written down again, and calendar and clock are Python's. The patterns are the
catalogue's own, run by Python instead of Java; JSON is read by :mod:`tests.spark.json_oracle`.
"""

import re
from datetime import datetime

from tally.lines.format import LineFormat
from tests.spark.json_oracle import field, read_object

Outcome = tuple[str | None, str | None]
"""Reason and minute."""

_DATE = r"(?P<Y>\d{4})-(?P<m>\d\d)-(?P<d>\d\d)"
_CLOCK = r"(?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)"
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_NAMED = rf"(?P<b>{'|'.join(MONTHS)})"
_WEEKDAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_SHAPES = {
    "yyyy-MM-dd HH:mm:ss": rf"{_DATE} {_CLOCK}",
    "yyyy-MM-dd'T'HH:mm:ss": rf"{_DATE}T{_CLOCK}",
    "yyyy/MM/dd HH:mm:ss": rf"(?P<Y>\d{{4}})/(?P<m>\d\d)/(?P<d>\d\d) {_CLOCK}",
    "yy/MM/dd HH:mm:ss": rf"(?P<y>\d\d)/(?P<m>\d\d)/(?P<d>\d\d) {_CLOCK}",
    "yyMMdd HHmmss": r"(?P<y>\d\d)(?P<m>\d\d)(?P<d>\d\d) (?P<H>\d\d)(?P<M>\d\d)(?P<S>\d\d)",
    "dd-MMM-yyyy HH:mm:ss": rf"(?P<d>\d\d)-{_NAMED}-(?P<Y>\d{{4}}) {_CLOCK}",
    "EEE MMM dd HH:mm:ss yyyy": rf"{_WEEKDAY} {_NAMED} (?P<d>\d\d) {_CLOCK} (?P<Y>\d{{4}})",
    "EEE MMM dd HH:mm:ss.SSSSSS yyyy": rf"{_WEEKDAY} {_NAMED} (?P<d>\d\d) {_CLOCK}\.\d{{6}} "
    r"(?P<Y>\d{4})",
    "dd.MM.yyyy 'at' hh:mm a": r"(?P<d>\d\d)\.(?P<m>\d\d)\.(?P<Y>\d{4}) at (?P<I>\d\d):(?P<M>\d\d) "
    r"(?P<p>[AP]M|[ap]m)",
}


def expected(value: bytes | None, line_format: LineFormat, levels: set[str]) -> Outcome:
    """Reason and minute of one record."""
    if value is None:
        return "null-value", None
    if value == b"":
        return "empty-value", None
    if line_format.is_fixed:
        return _fixed(value, {level.encode() for level in levels})
    if line_format.is_json:
        return _by_fields(value, line_format, levels)
    return _by_pattern(value, line_format, levels)


def _fixed(value: bytes, levels: set[bytes]) -> Outcome:
    time, rest = value[:19], value[19:]
    if not re.fullmatch(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", time):
        return "no-time", None
    problem, minute = _minute(*map(int, re.findall(rb"\d+", time)))
    if problem:
        return problem, None
    if not levels:
        return None, minute
    level = re.match(rb" ([^\x00-\x20][^ \t\r\n]*)", rest)
    if not level:
        return "no-level", None
    return None, minute if level[1] in levels else None


def _by_pattern(value: bytes, line_format: LineFormat, levels: set[str]) -> Outcome:
    line = re.split("[\r\n]", value[:4096].decode(errors="replace"), maxsplit=1)[0]
    found = line_format.parsed_pattern.python.match(line)
    if not found:
        return "no-match", None
    time, level = found["time"] or "", found["level"] or ""
    counted = not levels or line_format.level_names.get(level, level) in levels
    wanted = level if levels else None
    return _judged(time, rf"{_SHAPES[line_format.time_format]}\Z", wanted, counted=counted)


def _by_fields(value: bytes, line_format: LineFormat, levels: set[str]) -> Outcome:
    found = read_object(value)
    if found is None:
        return "no-match", None
    places = {place.name: place.paths for place in line_format.json_fields}
    time, level = (field(found, places.get(name, [])) or "" for name in ("time", "level"))
    shape = rf"{_SHAPES[line_format.time_format]}(?![0-9])"
    wanted = level if levels else None
    return _judged(time, shape, wanted, counted=not levels or level in levels)


def _judged(time: str, shape: str, level: str | None, *, counted: bool) -> Outcome:
    """What time and level come to; the level is None where no level is needed."""
    if not time:
        return "no-time", None
    found = re.match(shape, time, re.ASCII)
    if not found:
        return "time-invalid", None
    problem, minute = _minute(*_fields(found.groupdict()))
    if problem:
        return problem, None
    if level == "":
        return "no-level", None
    return None, minute if counted else None


def _fields(text: dict[str, str]) -> tuple[int, int, int, int, int, int]:
    year = int(text["Y"]) if "Y" in text else 2000 + int(text["y"])
    month = MONTHS.index(text["b"]) + 1 if "b" in text else int(text["m"])
    if "I" in text:
        twelve = int(text["I"])
        noon = 12 if text["p"].upper() == "PM" else 0
        hour = twelve % 12 + noon if 1 <= twelve <= 12 else 99
    else:
        hour = int(text["H"])
    return year, month, int(text["d"]), hour, int(text["M"]), int(text.get("S", "0"))


def _minute(
    year: int, month: int, day: int, hour: int, minute: int, second: int
) -> tuple[str | None, str]:
    """The calendar repeats every 400 years: a year below 1000 is checked 2000 years later."""
    try:
        datetime(year + 2000 if year < 1000 else year, month, day, hour, minute, second)  # noqa: DTZ001
    except ValueError:
        return "time-invalid", ""
    if year < 1000:
        return "time-out-of-range", ""
    return None, f"{year:04d}-{month:02d}-{day:02d} {hour:02d}:{minute:02d}:00"
