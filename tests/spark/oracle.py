"""What a record says, read a second time: by Python, record by record, with ``datetime``.

Independent of :mod:`tally.spark.line_columns` and :mod:`tally.lines.time_format`: the shapes of
the times are written down again, and calendar and clock are Python's. The patterns are the
catalogue's own, run by Python instead of Java; JSON is read by :mod:`tests.spark.json_oracle`.
"""

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from tally.lines.format import LineFormat
from tally.lines.time_rule import WALL_CLOCK, TimeRule
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
    "dd/MMM/yyyy:HH:mm:ss": rf"(?P<d>\d\d)/{_NAMED}/(?P<Y>\d{{4}}):{_CLOCK}",
    "EEE MMM dd HH:mm:ss yyyy": rf"{_WEEKDAY} {_NAMED} (?P<d>\d\d) {_CLOCK} (?P<Y>\d{{4}})",
    "EEE MMM dd HH:mm:ss.SSSSSS yyyy": rf"{_WEEKDAY} {_NAMED} (?P<d>\d\d) {_CLOCK}\.\d{{6}} "
    r"(?P<Y>\d{4})",
    "dd.MM.yyyy 'at' hh:mm a": r"(?P<d>\d\d)\.(?P<m>\d\d)\.(?P<Y>\d{4}) at (?P<I>\d\d):(?P<M>\d\d) "
    r"(?P<p>[AP]M|[ap]m)",
    "yyyy-MM-dd-HH.mm.ss": rf"{_DATE}-(?P<H>\d\d)\.(?P<M>\d\d)\.(?P<S>\d\d)",
    "yyyyMMdd-H:m:s": r"(?P<Y>\d{4})(?P<m>\d\d)(?P<d>\d\d)-(?P<H>\d\d?):(?P<M>\d\d?):(?P<S>\d\d?)",
    "d.M.yy h:m a": r"(?P<d>\d\d?)\.(?P<m>\d\d?)\.(?P<y>\d\d) (?P<I>\d\d?):(?P<M>\d\d?) "
    r"(?P<p>[AP]M|[ap]m)",
    "MMM ppd HH:mm:ss": rf"{_NAMED} (?P<d>\d\d| \d) {_CLOCK}",
    "MMM d HH:mm:ss": rf"{_NAMED} (?P<d>\d\d?) {_CLOCK}",
    "MMdd HH:mm:ss": rf"(?P<m>\d\d)(?P<d>\d\d) {_CLOCK}",
    "MM-dd HH:mm:ss": rf"(?P<m>\d\d)-(?P<d>\d\d) {_CLOCK}",
    "MM.dd HH:mm:ss": rf"(?P<m>\d\d)\.(?P<d>\d\d) {_CLOCK}",
}
_UNITS = {"epoch_seconds": 1, "epoch_milliseconds": 10**3, "epoch_microseconds": 10**6}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def expected(
    value: bytes | None,
    line_format: LineFormat,
    levels: set[str],
    rule: TimeRule = WALL_CLOCK,
    micros: int = -1,
) -> Outcome:
    """Reason and minute of one record; ``micros`` is its timestamp."""
    if not value:
        return "null-value" if value is None else "empty-value", None
    if line_format.is_fixed:
        return _fixed(value, {level.encode() for level in levels}, rule, micros)
    if (texts := texts_of(value, line_format)) is None:
        return "no-match", None
    end = "(?![0-9])" if line_format.is_json else r"\Z"
    problem, minute = _when(_time(texts), line_format.time_format, end, rule, micros)
    if problem or not levels:
        return problem, None if problem else minute
    if not (level := texts.get("level", "")):
        return "no-level", None
    return None, minute if line_format.level_names.get(level, level) in levels else None


def texts_of(value: bytes, line_format: LineFormat) -> dict[str, str] | None:
    """The fields of a record in JSON, or of a pattern's line; None when it is neither."""
    if line_format.is_json:
        found = read_object(value)
        places = line_format.json_fields
        return found and {place.name: field(found, place.paths) or "" for place in places}
    line = re.split("[\r\n]", value[:4096].decode(errors="replace"), maxsplit=1)[0]
    match = line_format.parsed_pattern.python.match(line)
    return match.groupdict(default="") if match else None


def _fixed(value: bytes, levels: set[bytes], rule: TimeRule, micros: int) -> Outcome:
    time, rest = value[:19], value[19:]
    if rule.from_record:
        problem, minute = _of_record(rule, micros)
    elif not re.fullmatch(rb"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", time):
        return "no-time", None
    else:
        problem, minute = _minute(*map(int, re.findall(rb"\d+", time)))
    if problem:
        return problem, None
    if not levels:
        return None, minute
    level = re.match(rb" ([^\x00-\x20][^ \t\r\n]*)", rest)
    if not level:
        return "no-level", None
    return None, minute if level[1] in levels else None


def _time(texts: dict[str, str]) -> str:
    if "time" in texts:
        return texts["time"]
    pair = (texts.get("date", ""), texts.get("clock", ""))
    return " ".join(pair) if any(pair) else ""


def _when(  # noqa: PLR0911
    time: str, time_format: str, end: str, rule: TimeRule, micros: int
) -> tuple[str | None, str]:
    """Problem and minute of a time's text, or of the record."""
    if rule.from_record:
        return _of_record(rule, micros)
    if not time:
        return "no-time", ""
    if time_format in _UNITS:
        number = re.fullmatch(r"([0-9]{1,18})(\.[0-9]+)?", time)
        if not number:
            return "time-invalid", ""
        return _of_instant(int(number[1]) // _UNITS[time_format], rule)
    if rule.assume_year == "from_record" and micros < 0:
        return "no-time", ""
    found = re.match(_SHAPES[time_format] + end, time, re.ASCII)
    if not found:
        return "time-invalid", ""
    return _of_clock(found.groupdict(), rule, micros)


def _of_clock(texts: dict[str, str], rule: TimeRule, micros: int) -> tuple[str | None, str]:
    """Problem and minute of a wall clock, whose year may be known from elsewhere."""
    if rule.assume_year is None:
        return _minute(*_fields(texts))
    if isinstance(rule.assume_year, int):
        return _minute(*_fields({**texts, "Y": str(rule.assume_year)}))
    week = timedelta(days=7)
    latest = datetime(9999, 12, 30, 23, 59, 59, tzinfo=UTC) - week
    limit = min(latest, _EPOCH + timedelta(microseconds=micros)) + week
    fields = _fields({**texts, "Y": str(limit.year)})
    problem, minute = _minute(*fields)
    if not problem and datetime(*fields, tzinfo=UTC) <= limit:
        return None, minute
    return _minute(*_fields({**texts, "Y": str(limit.year - 1)}))


def _of_record(rule: TimeRule, micros: int) -> tuple[str | None, str]:
    return ("no-time", "") if micros < 0 else _of_instant(micros // 10**6, rule)


def _of_instant(seconds: int, rule: TimeRule) -> tuple[str | None, str]:
    if seconds >= (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH).total_seconds():
        return "time-out-of-range", ""
    shown = (_EPOCH + timedelta(seconds=seconds)).astimezone(ZoneInfo(rule.zone or "UTC"))
    return None, f"{shown:%Y-%m-%d %H:%M}:00"


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
