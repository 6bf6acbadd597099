"""Lines out of a seed: as the formats' programs print them, with some bytes changed."""

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tally.lines.format import LineFormat
from tally.lines.parsing import CATALOGUE, parse_line_format
from tally.lines.time_format import MONTHS
from tally.lines.time_rule import TimeRule
from tests.spark.examples import ERROR_OF
from tests.spark.outcomes import SEED, TIMES, Reading, reader


def errors_of(name: str) -> Reading:
    """A reader of a format's errors; of any line where its lines have no level."""
    line_format = CATALOGUE[name]
    return reader(line_format, [ERROR_OF.get(name, "ERROR")] if line_format.has_level else [])


def example_of(line_format: LineFormat) -> str:
    return line_format.example.replace("INFO", "ERROR")


def odd(name: str, count: int) -> list[bytes | None]:
    """Lines of a format whose times have fixed widths and a year."""
    rng, line_format = random.Random(f"{SEED} {name}"), CATALOGUE[name]
    return odd_fixed_lines(rng, count) if name == "fixed" else odd_lines(rng, line_format, count)


def odd_fixed_lines(rng: random.Random, count: int) -> list[bytes | None]:
    """Well-formed lines, lines at the edges of the calendar, and both with bytes changed."""
    levels = ["ERROR", "ERROR", "WARN", "ERRORS", "ERRO", "error", "", "E", "FATAL"]
    gaps = [" "] * 6 + ["  ", "\t", ""]
    ends = [" some message", "\tx", "\r\n", "\n", "\r", "", " ERROR", ":"]
    lines: list[bytes | None] = [None, b"", b" ", b"\n", b"\xff\xfe\x00"]
    while len(lines) < count:
        line = rng.choice([rng.choice(TIMES), TIMES[0], random_time(rng), lenient_time(rng)])
        line += rng.choice(gaps) + rng.choice(levels) + rng.choice(ends)
        lines.append(mutated(rng, line.encode(), rng.choice([0, 0, 1, 1, 2, 3]), within=24))
    return lines


def random_time(rng: random.Random) -> str:
    return (
        f"{rng.choice([rng.randrange(10000), rng.randrange(1990, 2040)]):04d}"
        f"-{rng.randrange(14):02d}-{rng.randrange(33):02d}"
        f" {rng.randrange(26):02d}:{rng.randrange(62):02d}:{rng.randrange(62):02d}"
    )


def lenient_time(rng: random.Random) -> str:
    """What a lenient parser takes for a time, of nineteen characters as often as not."""

    def number(low: int, high: int) -> str:
        return str(rng.randrange(low, high)).zfill(rng.choice([1, 2]))

    date = f"{rng.choice(['', '', '', '+', ' '])}{rng.choice([2017, 2017, 12017])}"
    date += f"-{number(1, 13)}-{number(1, 29)}"
    clock = f"{number(0, 24)}:{number(0, 60)}:{number(0, 60)}"
    rest = rng.choice(["", "", ".", ".5", ".25", "Z", " Z", "+1", "+1:00", "-0130", " ", "UTC"])
    return f"{date}{rng.choice('  T')}{clock}{rest}".ljust(rng.choice([0, 19]))[:19]


OTHERS = b"0123456789 -:.,+TZ/[]\t\n\r\x00\x01\xe9aE"


def mutated(
    rng: random.Random, line: bytes, times: int, within: int, others: bytes = OTHERS
) -> bytes:
    """``line`` with some of its first bytes replaced by others, removed, doubled or swapped."""
    changed = bytearray(line)
    for _ in range(times):
        at = rng.randrange(max(1, min(within, len(changed))))
        match rng.randrange(5):
            case 0 | 1:
                changed[at : at + 1] = bytes([rng.choice(others)])
            case 2:
                del changed[at : at + 1]
            case 3:
                changed[at:at] = changed[at : at + 1]
            case 4:
                changed[at : at + 2] = changed[at : at + 2][::-1]
    return bytes(changed)


def with_time(line_format: LineFormat, time: str) -> bytes | None:
    """The format's example with another time; None when the format cannot print it."""
    date, clock = time.split()
    year, month, day = date.split("-")
    hour, minute, second = clock.split(":")
    if "MMM" in line_format.time_format and not 1 <= int(month) <= 12:
        return None
    if "yyyy" not in line_format.time_format and not year.startswith("20"):
        return None
    text = line_format.time_format.replace("'", "")
    for letters, field in {
        "EEE": "Sun",
        "MMM": MONTHS[int(month) - 1] if "MMM" in text else "",
        "SSSSSS": "123456",
        "yyyy": year,
        "yy": year[2:],
        "MM": month,
        "dd": day,
        "HH": hour,
        "mm": minute,
        "ss": second,
    }.items():
        text = text.replace(letters, field)
    example = example_of(line_format)
    found = line_format.parsed_pattern.python.match(example)
    assert found is not None
    start, end = found.span("time")
    return (example[:start] + text + example[end:]).encode()


def odd_lines(rng: random.Random, line_format: LineFormat, count: int) -> list[bytes | None]:
    marks = [b"\x01", b"\x01\x01ERROR", b"\x012017-07-30 14:09:08\x01ERROR"]
    lines: list[bytes | None] = [None, b"", b" ", b"\r\n", b"\xff\xfe\x00", *marks]
    lines.append(b"2017-07-30 14:09:08\x01ERROR")
    lines += [line for time in TIMES if (line := with_time(line_format, time)) is not None]
    ends = [b"", b"\r\n", b"\n" + example_of(line_format).encode(), b"\xff\xc3", b" ERROR"]
    while len(lines) < count:
        line = with_time(line_format, rng.choice([rng.choice(TIMES), random_time(rng)]))
        if line is not None:
            times = rng.choice([0, 0, 1, 1, 1, 2])
            lines.append(mutated(rng, line + rng.choice(ends), times, within=70))
    return lines


@dataclass(frozen=True)
class Kind:
    """Lines of a kind: how it is configured, and how a program prints a time in it, for ``@``."""

    line_format: LineFormat | str
    rule: TimeRule
    text: str
    time: str
    levels: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ("time-invalid",)
    """Why some of its lines are malformed."""

    @property
    def reader(self) -> Reading:
        """Understands them."""
        return reader(self.line_format, self.levels, self.rule)

    def line(self, at: datetime) -> str:
        """A line of that time."""
        return self.text.replace("@", at.strftime(self.time))


def custom(time_format: str = "", *, pattern: str = "", **fields: str) -> LineFormat:
    table: dict[str, object] = {"json": fields} if fields else {"pattern": pattern}
    if time_format:
        table["time_format"] = time_format
    return parse_line_format(table, key="line_format")


def micros(at: datetime) -> int:
    return int((at - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))


NEAR = datetime(2005, 6, 15, 3, 4, 5, tzinfo=UTC)
BY_RECORD = TimeRule(assume_year="from_record")
"""The year is that of the record, or the one before."""
BERLIN = TimeRule(zone="Europe/Berlin")

MONTH_FIRST = "%b %e %H:%M:%S"
UNPADDED = "%Y%m%d-%-H:%-M:%-S"
APART = r"(?<date>[0-9-]*) x (?<clock>[0-9:]*) (?<host>\S*)"
ANY, ALONE = TimeRule(), ("no-time",)

KINDS = {
    "syslog": Kind("syslog", BY_RECORD, "@ combo x", MONTH_FIRST, (), ("time-invalid", *ALONE)),
    "syslog in 2004": Kind("syslog", TimeRule(assume_year=2004), "@ combo x", MONTH_FIRST),
    "rfc3164": Kind("rfc3164", BY_RECORD, "<11>@ combo sshd[1]: x", MONTH_FIRST, ("err",)),
    "klog": Kind("klog", BY_RECORD, "E@.123456    1 a.go:1] x", "%m%d %H:%M:%S", ("ERROR",)),
    "unpadded, twelve hours": Kind(
        custom("d.M.yy h:m a", pattern="(?<time>.*?M)? ?x"), ANY, "@ x", "%-d.%-m.%y %-I:%-M %p"
    ),
    "unpadded in JSON": Kind(custom("yyyyMMdd-H:m:s", time="at"), ANY, '{"at": "@.5"}', UNPADDED),
    "thunderbird": Kind(
        "thunderbird", BERLIN, "- @ 2005.11.09 dn228 Nov 9 12:01:01 dn228/dn228 x", "%s", (), ()
    ),
    "epoch milliseconds in JSON": Kind(
        custom("epoch_milliseconds", time="ts"),
        TimeRule(zone="America/St_Johns"),
        *('{"ts": @123}', "%s", (), ALONE),
    ),
    "epoch microseconds with a fraction": Kind(
        custom("epoch_microseconds", pattern=r"(?<time>[0-9.]*)(?: |$)"),
        ANY,
        *("@123456.5 x", "%s", (), ("time-invalid", *ALONE)),
    ),
    "date and clock": Kind(
        custom("yyyy-MM-dd HH:mm:ss", pattern=APART), ANY, "@ h", "%Y-%m-%d x %H:%M:%S"
    ),
    "date and clock in JSON, of which a clock alone": Kind(
        custom("MMM d HH:mm:ss", date="d", clock="c"),
        BY_RECORD,
        *("@", '{"d": "%b %-d", "c": "%H:%M:%S"}'),
    ),
}
"""Lines whose times need more than a wall clock of their own, or have no fixed width."""


def of_kind(rng: random.Random, kind: Kind, count: int) -> tuple[list[bytes | None], list[int]]:
    """Lines around some moments of a calendar, changed or not, and the timestamps of records."""
    lines: list[bytes | None] = [None, b"", b" ", b"\n", b"\xff", b"{}", b'{"at": "\\n2017"}']
    stamps = [micros(NEAR)] * len(lines)
    moments = [
        *(NEAR, datetime(2004, 2, 29, 12, tzinfo=UTC), datetime(2005, 1, 1, 0, 0, 1, tzinfo=UTC)),
        *(datetime(2004, 12, 31, 23, 59, 59, tzinfo=UTC), datetime(2005, 10, 30, 1, tzinfo=UTC)),
        datetime(2005, 3, 27, 0, 59, 59, tzinfo=UTC),
    ]
    while len(lines) < count:
        at = rng.choice(moments) + timedelta(seconds=rng.randrange(-100_000, 100_000))
        line = kind.line(at) + rng.choice(["", "", "\r\n", "\nx", " y"])
        lines.append(mutated(rng, line.encode(), rng.choice([0, 0, 0, 1, 1, 2]), within=40))
        days = rng.choice([0, 0, 1, 6, 7, 8, 30, 360, 366, -6, -7, -8, -100])
        stamps.append(micros(at + timedelta(days=days, seconds=rng.randrange(-9, 9))))
        if rng.random() < 0.05:
            stamps[-1] = rng.choice([-1, -1000, 0, micros(datetime(9999, 12, 31, tzinfo=UTC))])
    return lines, stamps
