"""What a record says, read a second time: by Python, record by record, with ``datetime``.

Independent of :mod:`tally.spark.line_columns` and :mod:`tally.lines.time_format`: the shapes of
the times are written down again, and calendar and clock are Python's. The patterns are the
catalogue's own, run by Python instead of Java; JSON is read by :mod:`tests.spark.json_oracle`.
"""

import re
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
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
    "M/d/yy h:mm:ss a": r"(?P<m>\d\d?)/(?P<d>\d\d?)/(?P<y>\d\d) (?P<I>\d\d?):(?P<M>\d\d):"
    r"(?P<S>\d\d) (?P<p>[AP]M|[ap]m)",
    "d.M.yyyy H:mm": r"(?P<d>\d\d?)\.(?P<m>\d\d?)\.(?P<Y>\d{4}) (?P<H>\d\d?):(?P<M>\d\d)",
    "yyyyMMddHHmm": r"(?P<Y>\d{4})(?P<m>\d\d)(?P<d>\d\d)(?P<H>\d\d)(?P<M>\d\d)",
    "yyyy-MM-dd HH:mm": rf"{_DATE} (?P<H>\d\d):(?P<M>\d\d)",
    "yyyyMMdd HH:mm:ss": rf"(?P<Y>\d{{4}})(?P<m>\d\d)(?P<d>\d\d) {_CLOCK}",
    "MMM ppd HH:mm:ss": rf"{_NAMED} (?P<d>\d\d| \d) {_CLOCK}",
    "MMM d HH:mm:ss": rf"{_NAMED} (?P<d>\d\d?) {_CLOCK}",
    "MMdd HH:mm:ss": rf"(?P<m>\d\d)(?P<d>\d\d) {_CLOCK}",
    "MM-dd HH:mm:ss": rf"(?P<m>\d\d)-(?P<d>\d\d) {_CLOCK}",
    "MM.dd HH:mm:ss": rf"(?P<m>\d\d)\.(?P<d>\d\d) {_CLOCK}",
}
_UNITS = {"epoch_seconds": 1, "epoch_milliseconds": 10**3, "epoch_microseconds": 10**6}
_UNITS |= {"epoch_nanoseconds": 10**9}
_BLANKS = {point: " " for point in range(0x3001) if unicodedata.category(chr(point)) == "Zs"}
_BEHIND = "text behind the time"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def expected(
    value: bytes | None,
    line_format: LineFormat,
    levels: set[str],
    rule: TimeRule = WALL_CLOCK,
    micros: int = -1,
) -> Outcome:
    """Reason and minute of one record; ``micros`` is its timestamp."""
    value = None if value is None else line_of(value, line_format)
    if not value:
        return "null-value" if value is None else "empty-value", None
    if line_format.is_fixed:
        return _fixed(value, {level.encode() for level in levels}, rule, micros)
    if (texts := texts_of(value, line_format)) is None:
        return "no-match", None
    problem, minute = _when(texts, line_format, rule, micros)
    if problem or not levels:
        return problem, None if problem else minute
    if not (level := level_of(texts, line_format)):
        return "no-level", None
    return None, minute if level in levels else None


def line_of(value: bytes, line_format: LineFormat) -> bytes:
    """A record without what stands before its line."""
    options = line_format.options
    line = value[options.skip_bytes :]
    has_mark = "byte_order_mark" in options.accept and line[:3] == b"\xef\xbb\xbf"
    return line[3:] if has_mark else line


def level_of(texts: Mapping[str, str], line_format: LineFormat) -> str:
    """The level of a line as it is configured; empty when it has none."""
    if level := texts.get("level", ""):
        return line_format.level_names.get(level, level)
    return line_format.options.default_level


def texts_of(value: bytes, line_format: LineFormat) -> dict[str, str] | None:
    """The fields of a record in JSON, or of a pattern's line; None when it is neither."""
    accept = line_format.options.accept
    if line_format.is_json:
        found = read_object(value, with_nan="nan" in accept)
        places = line_format.json_fields.items()
        return found and {name: field(found, paths) or "" for name, paths in places}
    line = re.split("[\r\n]", value[:4096].decode(errors="replace"), maxsplit=1)[0]
    line = line.translate(_BLANKS) if "unicode_blanks" in accept else line
    match = line_format.parsed_pattern.python.match(line)
    if match is None:
        return None
    end = max(map(match.end, line_format.time_names), default=-1)
    return match.groupdict(default="") | {_BEHIND: line[end:] if end >= 0 else ""}


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
    texts: dict[str, str], line_format: LineFormat, rule: TimeRule, micros: int
) -> tuple[str | None, str]:
    """Problem and minute of a line's time, or of the record."""
    time, time_format = _time(texts), line_format.time_format
    accept, end = line_format.options.accept, r"\Z"
    if line_format.is_json:
        end = "(?![0-9])"
        time = time.translate(_BLANKS) if "unicode_blanks" in accept else time
    if rule.from_record:
        return _of_record(rule, micros)
    if not time:
        return "no-time", ""
    if time_format in _UNITS:
        return _of_number(time, line_format, rule)
    if rule.assume_year == "from_record" and micros < 0:
        return "no-time", ""
    found = re.match(_SHAPES[time_format] + end, time, re.ASCII)
    if not found:
        return "time-invalid", ""
    if not rule.by_offset:
        return _of_clock(found.groupdict(), rule, micros)
    offset = _offset(texts.get(_BEHIND, time[found.end() :]))
    if offset is None:
        return "time-invalid", ""
    return _of_clock(found.groupdict(), rule, micros, offset)


def _of_number(time: str, line_format: LineFormat, rule: TimeRule) -> tuple[str | None, str]:
    digits = 19 if line_format.time_format == "epoch_nanoseconds" else 18
    number = re.fullmatch(rf"[0-9]{{1,{digits}}}(\.[0-9]+)?", time)
    if not number and "exponent" in line_format.options.accept:
        number = re.fullmatch(r"[0-9]{1,18}(\.[0-9]{1,18})?[eE]\+?[0-9]{1,2}", time)
    if not number or (units := int(Decimal(time))) >= min(10**digits, 2**63):
        return "time-invalid", ""
    return _of_instant(units // _UNITS[line_format.time_format], rule)


def _offset(behind: str) -> timedelta | None:
    """What an offset says that stands behind a time, and maybe behind the rest of its clock."""
    rest = re.sub(r"^([.,:][0-9]+)+", "", behind).removeprefix(" ")
    if re.match(r"(Z|z|UTC|GMT)(?![-+0-9A-Za-z]|:[0-9])", rest):
        return timedelta()
    said = re.match(r"([+-])(\d\d)(?::?(\d\d))?(?![-+0-9A-Za-z]|:[0-9])", rest, re.ASCII)
    if said is None or int(said[3] or 0) > 59:
        return None
    ahead = timedelta(hours=int(said[2]), minutes=int(said[3] or 0))
    if ahead > timedelta(hours=18):
        return None
    return -ahead if said[1] == "-" else ahead


def _of_clock(
    texts: dict[str, str], rule: TimeRule, micros: int, offset: timedelta | None = None
) -> tuple[str | None, str]:
    """Problem and minute of a wall clock, whose year may be known from elsewhere."""
    fields = _clock_fields(texts, rule, micros)
    problem, minute = _minute(*fields)
    if offset is None or problem == "time-invalid":
        return problem, minute
    # A calendar that is 400 years long; no zone but UTC has a rule before 1900.
    years = 400 if fields[0] < 400 else -400 if fields[0] > 9900 else 0
    there = datetime(fields[0] + years, *fields[1:], tzinfo=UTC) - offset
    shown = there if years else there.astimezone(ZoneInfo(rule.zone or "UTC"))
    if not 1000 <= shown.year - years <= 9999:
        return "time-out-of-range", ""
    return None, f"{shown.year - years:04d}-{shown:%m-%d %H:%M}:00"


def _clock_fields(
    texts: dict[str, str], rule: TimeRule, micros: int
) -> tuple[int, int, int, int, int, int]:
    """Year to second."""
    if rule.assume_year is None:
        return _fields(texts)
    if isinstance(rule.assume_year, int):
        return _fields({**texts, "Y": str(rule.assume_year)})
    week = timedelta(days=7)
    latest = datetime(9999, 12, 30, 23, 59, 59, tzinfo=UTC) - week
    limit = min(latest, _EPOCH + timedelta(microseconds=micros)) + week
    fields = _fields({**texts, "Y": str(limit.year)})
    problem, _ = _minute(*fields)
    if not problem and datetime(*fields, tzinfo=UTC) <= limit:
        return fields
    return _fields({**texts, "Y": str(limit.year - 1)})


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
