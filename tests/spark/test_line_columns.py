"""Line formats in Spark: every record is understood as an independent reader understands it."""

import dataclasses
import random
import re

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from tally.config.labels import LEVEL
from tally.lines.format import (
    CATALOGUE,
    FIXED_LAYOUT,
    LineFormat,
    MalformedReason,
)
from tally.lines.parsing import parse_line_format
from tally.lines.pattern import HEAD_BYTES
from tally.lines.time_rule import WALL_CLOCK, with_year
from tally.spark.line_columns import LineReader, Selection
from tests.spark.examples import (
    COUNTED,
    ERROR_OF,
    FIXED_EXAMPLES,
    NO_LEVEL,
    NO_TIME,
    NOT_COUNTED,
    PATTERN_EXAMPLES,
    UNMATCHED,
)
from tests.spark.oracle import MONTHS, expected
from tests.spark.outcomes import (
    SEED,
    TIMES,
    assert_as_expected,
    compiled_stages,
    grouping,
    kafka_records,
    outcomes,
    read_records,
    settings,
)

pytestmark = pytest.mark.spark

# JSON has a file of its own, test_json_columns.py; and so do times that need more than a line's
# wall clock, or whose fields have no fixed width: test_time_rules.py.
PATTERNS = [
    name
    for name, line_format in CATALOGUE.items()
    if line_format.pattern
    and line_format.has_time
    and line_format.parsed_time_format.is_read_by_position
]
LINES = ["fixed", *PATTERNS]
CLOCK_12 = LineFormat(
    name="custom",
    pattern=r"(?<time>\d[^M]*M)? ?(?<level>[A-Z]+)?:",
    time_format="dd.MM.yyyy 'at' hh:mm a",
)
LEVEL_OF = ERROR_OF | dict.fromkeys(("zookeeper", "log4j", "spark", "hdfs", "bgl"), "INFO")


def levels_of(name: str) -> set[str]:
    """The level of a format's example, or that of errors; none where lines have no level."""
    return {LEVEL_OF.get(name, "ERROR")} if CATALOGUE[name].has_level else set()


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


def mutated(rng: random.Random, line: bytes, times: int, within: int) -> bytes:
    """``line`` with some of its first bytes replaced, removed, doubled or swapped."""
    changed = bytearray(line)
    for _ in range(times):
        at = rng.randrange(max(1, min(within, len(changed))))
        match rng.randrange(5):
            case 0 | 1:
                changed[at : at + 1] = bytes(
                    [rng.choice(b"0123456789 -:.,+TZ/[]\t\n\r\x00\x01\xe9aE")]
                )
            case 2:
                del changed[at : at + 1]
            case 3:
                changed[at:at] = changed[at : at + 1]
            case 4:
                changed[at : at + 2] = changed[at : at + 2][::-1]
    return bytes(changed)


def printed(line_format: LineFormat, time: str) -> bytes | None:
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
    found = line_format.parsed_pattern.python.match(line_format.example)
    assert found is not None
    start, end = found.span("time")
    return (line_format.example[:start] + text + line_format.example[end:]).encode()


def odd_lines(rng: random.Random, line_format: LineFormat, count: int) -> list[bytes | None]:
    lines: list[bytes | None] = [
        None,
        b"",
        b" ",
        b"\r\n",
        b"\xff\xfe\x00",
        b"\x01",
        b"\x01\x01ERROR",
    ]
    lines += [b"2017-07-30 14:09:08\x01ERROR", b"\x012017-07-30 14:09:08\x01ERROR"]
    lines += [line for time in TIMES if (line := printed(line_format, time)) is not None]
    ends = [b"", b"\r\n", b"\n" + line_format.example.encode(), b"\xff\xc3", b" ERROR"]
    while len(lines) < count:
        line = printed(line_format, rng.choice([rng.choice(TIMES), random_time(rng)]))
        if line is not None:
            times = rng.choice([0, 0, 1, 1, 1, 2])
            lines.append(mutated(rng, line + rng.choice(ends), times, within=70))
    return lines


def test_the_fixed_layout_reads_thousands_of_odd_lines_as_python_does(spark: SparkSession) -> None:
    """Whatever a line looks like, reason and minute are those of an independent reader."""
    lines = odd_fixed_lines(random.Random(SEED), 6000)
    reasons = {str(r) for r in MalformedReason} - {"no-match"} | {"counted", "not counted"}
    assert_as_expected(spark, lines, FIXED_LAYOUT, {"ERROR", "FATAL"}, reasons)


def test_lines_without_a_level_are_counted_where_no_level_is_asked_for(
    spark: SparkSession,
) -> None:
    """In the fixed layout, in a pattern that finds none, in JSON; the label `level` is then ''."""
    lines = odd_fixed_lines(random.Random(f"{SEED} no level"), 3000)
    reasons = {"null-value", "empty-value", "no-time", "time-invalid", "time-out-of-range"}
    assert_as_expected(spark, lines, FIXED_LAYOUT, set(), {*reasons, "counted"})
    time_format = "yyyy-MM-dd HH:mm:ss"
    pattern = r"(?<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?: (?<level>[A-Z]+))?"
    formats: dict[str, object] = {
        "2017-07-30 14:09:08": "fixed",
        "2017-07-30 14:09:08 x": {"pattern": pattern, "time_format": time_format},
        '{"time": "2017-07-30T14:09:08"}': "json",
        '{"time": "2017-07-30T14:09:08", "level": null}': "json",
    }
    for text, value in formats.items():
        line_format = parse_line_format(value, key="line_format")
        reader = LineReader(
            line_format=line_format, levels=[], selection=Selection(labels=["level"])
        )
        (row,) = read_records(spark, [text.encode()], reader)
        assert row == (None, "2017-07-30 14:09:00", False, "")
        assert outcomes(spark, [text.encode()], line_format) == [NO_LEVEL]


def test_a_level_that_is_no_utf8_is_a_label_as_python_decodes_it(spark: SparkSession) -> None:
    """In the fixed layout, too, each part of a broken character is one U+FFFD."""
    reader = LineReader(line_format=FIXED_LAYOUT, levels=[], selection=Selection(labels=["level"]))
    levels = [b"ERR\xed\xa0\x80", b"\xf0\x9f\x98", b"\xff\xc3(", "é😀".encode()]
    lines = [b"2017-07-30 14:09:08 " + level + b" x" for level in levels]
    found = [row[3] for row in read_records(spark, lines, reader)]
    assert found == [level.decode(errors="replace") for level in levels]


@pytest.mark.parametrize(
    ("wanted", "counted"), [("*", "abcd"), ("?*", ""), ("x*", "ab"), ("", "cd"), ("x", "a")]
)
def test_a_field_without_a_value_is_filtered_as_an_empty_one(
    spark: SparkSession, wanted: str, counted: str
) -> None:
    """Whether a group took no part, a key is missing or null, or the value is ''."""
    time = "2017-07-30 14:09:08"
    pattern = r"(?<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?<x>x\w*)?"
    table = {"pattern": pattern, "time_format": "yyyy-MM-dd HH:mm:ss"}
    of_pattern = {"a": f"{time} x", "b": f"{time} xy", "c": f"{time} ", "d": f"{time} -"}
    at = time.replace(" ", "T")
    of_json = {
        "a": f'{{"time": "{at}", "x": "x"}}',
        "b": f'{{"time": "{at}", "x": "xy"}}',
        "c": f'{{"time": "{at}", "x": null}}',
        "d": f'{{"time": "{at}", "x": ""}}',
    }
    for lines, value in ((of_pattern, table), (of_json, "json")):
        line_format = parse_line_format(value, key="line_format")
        selection = Selection(filters={"x": [wanted]})
        reader = LineReader(line_format=line_format, levels=[], selection=selection)
        rows = read_records(spark, [line.encode() for line in lines.values()], reader)
        found = [name for name, row in zip(lines, rows, strict=True) if row[1] is not None]
        assert "".join(found) == counted


TRACE = (
    b"java.lang.IllegalStateException: 2017-07-30 14:09:08 ERROR is not at the start",
    b"\tat org.example.Shop.sell(Shop.java:12)",
    b"",
    b"    }",
    b'{"time"',
    b"\xff",
)
PATTERN = {
    "pattern": r"(?<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?<level>[A-Z]*)",
    "time_format": "yyyy-MM-dd HH:mm:ss",
}


@pytest.mark.parametrize(
    ("configured", "lines"),
    [
        (
            "fixed",
            {
                b"2017-07-30 14:09:08 ERROR x": (None, "2017-07-30 14:09:00"),
                b"2017-07-30 14:09:08": ("no-level", None),
                b"2017-13-30 14:09:08 ERROR": ("time-invalid", None),
                b"0017-07-30 14:09:08 ERROR": ("time-out-of-range", None),
                b"2017-07-30 14:09:08 INFO": (None, None),
            },
        ),
        (
            PATTERN,
            {
                b"2017-07-30 14:09:08 ERROR x": (None, "2017-07-30 14:09:00"),
                b"2017-07-30 14:09:08 ": ("no-level", None),
                b"2017-13-30 14:09:08 ERROR": ("time-invalid", None),
                b"2017-07-30 14:09:08 INFO": (None, None),
            },
        ),
        (
            "json",
            {
                b'{"time": "2017-07-30T14:09:08", "level": "ERROR"}': (None, "2017-07-30 14:09:00"),
                b'{"time": "2017-07-30T14:09:08"}': ("no-level", None),
                b'{"level": "ERROR"}': ("no-time", None),
                b'{"time": "2017", "level": "ERROR"}': ("time-invalid", None),
                b"{}": ("no-time", None),
            },
        ),
    ],
)
def test_a_record_that_begins_no_line_is_left_out(
    spark: SparkSession, configured: object, lines: dict[bytes, tuple[str | None, str | None]]
) -> None:
    """And no other: what begins a line and is wrong stays malformed, and a tombstone too."""
    line_format = parse_line_format(configured, key="line_format")
    reader = LineReader(
        line_format=line_format,
        levels=["ERROR"],
        selection=Selection(leaves_continuations=True),
    )
    found = read_records(spark, [*lines, *TRACE, None], reader)
    assert found == [
        *((*outcome, False) for outcome in lines.values()),
        *[(None, None, True)] * len(TRACE),
        ("null-value", None, False),
    ]


def test_no_byte_can_stand_in_for_another_in_the_fixed_layout(spark: SparkSession) -> None:
    """Each byte of a line, up to the one behind the level, is replaced by every byte there is."""
    line = b"2017-07-30 14:09:08 ERROR x"
    lines = [line[:at] + bytes([byte]) + line[at + 1 :] for at in range(26) for byte in range(256)]
    assert_as_expected(
        spark, lines, FIXED_LAYOUT, {"ERROR"}, {"no-time", "time-invalid", "no-level"}
    )


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_format_reads_hundreds_of_odd_lines_as_python_does(
    spark: SparkSession, name: str
) -> None:
    """Whatever a line looks like, reason and minute are those of an independent reader."""
    line_format = CATALOGUE[name]
    lines = odd_lines(random.Random(f"{SEED} {name}"), line_format, 400)
    reasons = {"null-value", "empty-value", "no-match", "time-invalid", "counted"}
    if "yyyy" in line_format.time_format:
        reasons.add("time-out-of-range")
    assert_as_expected(spark, lines, line_format, levels_of(name), reasons)


@pytest.mark.parametrize(
    "before",
    [
        *(r"[a-z\xfc]{4}-\d", r"[a-z\u00fc]{4}-\d", "[a-zü]{4}-[0-9]"),
        *(r"[^\x00-\x2c]{4}-\d", r"t[\x61-\xff]te-\d", ".{4}-."),
    ],
)
def test_a_time_behind_a_character_of_several_bytes_is_found(
    spark: SparkSession, before: str
) -> None:
    """However a pattern spells the character: it may stand where most lines have one byte."""
    packed = LineFormat(
        name="custom",
        pattern=rf"{before}(?<time>\d{{10}}) (?<level>[A-Z]+)",
        time_format="yyMMddHHmm",
    )
    found = outcomes(
        spark, ["tüte-10112101010 ERROR x".encode(), b"tute-10112101010 ERROR x"], packed
    )
    assert found == [(None, "2001-12-10 10:10:00")] * 2


@pytest.mark.parametrize("filters", [{}, {LEVEL: ["*"]}], ids=["plain", "filtered"])
@pytest.mark.parametrize(
    "octets",
    [b"\xed\xa0\x80", b"\xed\xa0\xbd\xed\xb8\x80", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xff"],
)
def test_bytes_that_are_no_utf_8_are_as_many_characters_as_in_python(
    spark: SparkSession, octets: bytes, filters: dict[str, list[str]]
) -> None:
    """Whether or not a filter or a label asks for text; Java's own decoder counts differently."""
    wide = len(octets.decode("utf-8", "replace"))
    for width in (1, 2, 3, 4, 6):
        line_format = LineFormat(
            name="custom",
            pattern=rf"(?<time>\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d) <.{{{width}}}> (?<level>\w+)",
            time_format="yyyy-MM-dd HH:mm:ss",
        )
        reader = LineReader(
            line_format=line_format, levels=["ERROR"], selection=Selection(filters=filters)
        )
        ((reason, *_),) = read_records(spark, [b"2017-07-30 14:09:08 <%s> ERROR" % octets], reader)
        assert (reason is None) is (width == wide)


@pytest.mark.parametrize("name", ["fixed", "log4j", "apache-2.4"])
def test_records_judged_one_by_one_are_counted_as_in_groups(spark: SparkSession, name: str) -> None:
    """The recount's way, which asks the calendar for each record, beside that of a batch."""
    line_format = CATALOGUE[name]
    lines = (
        odd_fixed_lines(random.Random(SEED), 300)
        if line_format.is_fixed
        else odd_lines(random.Random(SEED), line_format, 300)
    )
    reader = LineReader(
        line_format=line_format,
        levels=sorted(levels_of(name)),
    )
    records = kafka_records(spark, lines).selectExpr(
        "* except (partition)", "partition % 3 as partition"
    )
    grouped, each = (
        grouping(way).counts(records) for way in (reader, dataclasses.replace(reader, each=True))
    )
    assert sorted(map(str, each.collect())) == sorted(map(str, grouped.collect()))
    with settings(spark, adaptive__enabled="false"):
        first, *_ = compiled_stages(each)
    assert "stringToTimestampWithoutTimeZone(" in first


def test_a_custom_format_with_a_12_hour_clock_and_optional_groups(spark: SparkSession) -> None:
    """Noon and midnight are told apart, and a group that took no part is a missing one."""
    lines: list[bytes | None] = [
        f"30.07.2017 at {hour:02d}:{minute} {marker} ERROR: x".encode()
        for hour in range(14)
        for minute in ("00", "59", "60", " 9", "9 ")
        for marker in ("AM", "PM")
    ]
    lines += [b"30.07.2017 at 02:09 PM : x", b"ERROR: x", b" : x", b"x", b":"]
    lines += [b"30.07.0217 at 02:09 PM ERROR:", b"31.06.2017 at 02:09 PM ERROR:", None, b""]
    reasons = {str(r) for r in MalformedReason} | {"counted"}
    assert_as_expected(spark, lines, CLOCK_12, {"ERROR"}, reasons)
    assert outcomes(
        spark,
        [b"30.07.2017 at 12:00 AM ERROR:", b"30.07.2017 at 12:00 PM ERROR:"],
        CLOCK_12,
    ) == [(None, "2017-07-30 00:00:00"), (None, "2017-07-30 12:00:00")]


@pytest.mark.parametrize("name", LINES)
def test_the_example_counts_and_an_error_in_its_message_does_not(
    spark: SparkSession, name: str
) -> None:
    """The level is taken from its place; a second line, CR LF and odd bytes change nothing."""
    line_format = CATALOGUE[name]
    levels = levels_of(name)
    example = line_format.example.encode()
    lines = [
        example,
        example + b"\r\n\tat com.example.Cart.add(Cart.java:12)\r\n",
        example + b" \xff\xfe\xc3",
    ]
    (minute,) = {minute for _, minute in outcomes(spark, lines, line_format, levels)}
    assert minute is not None
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:00", minute)
    if not levels:  # nothing but its filters leaves one of its lines out
        return
    lines += [line + example for line in lines]
    other = next((known for known in line_format.levels if known not in levels), "OTHER")
    found = outcomes(spark, lines, line_format, {other})
    assert found == [(None, None)] * len(lines)


def test_the_fixed_layout_by_example(spark: SparkSession) -> None:
    """What ``docs/line-formats.md`` promises, line by line; the oracle knows it too."""
    found = outcomes(spark, list(FIXED_EXAMPLES))
    assert dict(zip(FIXED_EXAMPLES, found, strict=True)) == FIXED_EXAMPLES
    read = {line: expected(line, FIXED_LAYOUT, {"ERROR"}) for line in FIXED_EXAMPLES}
    assert read == FIXED_EXAMPLES


@pytest.mark.parametrize("name", PATTERNS)
def test_pattern_formats_by_example(spark: SparkSession, name: str) -> None:
    """Stack traces, banners, CR LF, levels in messages: the right time and level are taken."""
    wanted = PATTERN_EXAMPLES[name]
    has_level = CATALOGUE[name].has_level  # else each line that is understood is counted
    assert {COUNTED, UNMATCHED, *[NOT_COUNTED] * has_level} <= set(wanted.values())
    levels = {ERROR_OF.get(name, "ERROR")} if has_level else set()
    found = outcomes(spark, [line.encode() for line in wanted], CATALOGUE[name], levels)
    assert dict(zip(wanted, found, strict=True)) == wanted
    read = {line: expected(line.encode(), CATALOGUE[name], levels) for line in wanted}
    assert read == wanted


@pytest.mark.parametrize("name", LINES)
def test_what_stands_before_a_line_makes_it_another(spark: SparkSession, name: str) -> None:
    """Blanks, an empty first line, a byte order mark: a dead letter, never a guess."""
    line_format = CATALOGUE[name]
    prefixes = [b" ", b"\t", b"\n", b"\r\n", b"\xef\xbb\xbf", b"> "]
    lines = [prefix + line_format.example.encode() for prefix in prefixes]
    found = outcomes(spark, lines, line_format, levels_of(name))
    assert found == [NO_TIME if line_format.is_fixed else UNMATCHED] * len(lines)


@pytest.mark.parametrize(
    ("zone", "ansi", "policy"),
    [
        ("Europe/Berlin", "true", "EXCEPTION"),
        ("America/New_York", "false", "LEGACY"),
        ("Asia/Kolkata", "false", "CORRECTED"),
    ],
)
def test_session_settings_change_nothing(
    spark: SparkSession, zone: str, ansi: str, policy: str
) -> None:
    """Time zone of the session, ANSI mode and the time parser policy play no part."""
    rng = random.Random(SEED)
    with settings(
        spark, session__timeZone=zone, ansi__enabled=ansi, legacy__timeParserPolicy=policy
    ):
        for name in ("fixed", "log4j", "apache-2.4"):
            line_format = CATALOGUE[name]
            lines = (
                odd_fixed_lines(rng, 200)
                if line_format.is_fixed
                else odd_lines(rng, line_format, 200)
            )
            levels = levels_of(name)
            assert_as_expected(spark, lines, line_format, levels, {"counted", "time-invalid"})


def test_the_time_zone_of_the_jvm_changes_nothing(spark: SparkSession) -> None:
    """The hour that does not exist in Berlin is counted as printed."""
    zones = spark._jvm.java.util.TimeZone  # type: ignore[union-attr]
    before = zones.getDefault()
    zones.setDefault(zones.getTimeZone("Europe/Berlin"))
    try:
        assert outcomes(spark, [b"2026-03-29 02:30:00 ERROR x"]) == [(None, "2026-03-29 02:30:00")]
        line = b"[Sun Mar 29 02:30:00 2026] [error] x"
        found = outcomes(spark, [line], CATALOGUE["apache-2.2"], {"error"})
        assert found == [(None, "2026-03-29 02:30:00")]
    finally:
        zones.setDefault(before)


def test_several_levels_of_different_length_are_counted(spark: SparkSession) -> None:
    """Each counted level is found whatever the others are."""
    lines = [f"2017-07-30 14:09:08 {level}".encode() for level in ("E", "FATAL", "FAT", "ERROR")]
    found = outcomes(spark, lines, levels={"E", "FATAL", "ERROR"})
    assert [minute is not None for _, minute in found] == [True, True, False, True]


def test_a_level_of_no_ascii_letters_is_compared_by_its_bytes(spark: SparkSession) -> None:
    """A level may be any word."""
    line = "2017-07-30 14:09:08 FEHLER\u00dc x"
    assert outcomes(spark, [line.encode()], levels={"FEHLER\u00dc"}) == [
        (None, "2017-07-30 14:09:00")
    ]


@pytest.mark.parametrize("name", ["fixed", "log4j"])
def test_a_line_of_ten_megabytes_is_counted(spark: SparkSession, name: str) -> None:
    """The length of the message plays no part; a pattern sees the head of the line."""
    line_format = CATALOGUE[name]
    lines = [line_format.example.encode() + b"x\xff" * 5_000_000, b"x" * 10_000_000]
    (good, bad) = outcomes(spark, lines, line_format, levels_of(name))
    assert good[1] is not None
    assert bad == ("no-time" if line_format.is_fixed else "no-match", None)


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (r"(?<time>\S+ \S+) (?<level>\w+) (?:a|b)*+c", b"ab"),
        (r"(?<time>\S+ \S+) (?<level>\w+) (?:[ab]b?+){0,100}c", b"ab"),
        (r"(?<time>\S+ \S+) (?<level>\w+) (?>a|b|ab){0,100}c", b"ab"),
        (r"(?<time>\S+ \S+) (?<level>\w+) [^c]*[c]", b"ab"),
        (r"(?<time>\S+ \S+) (?<level>\w+) .{0,200}.*c", b"ab"),
    ],
)
def test_an_accepted_pattern_neither_hangs_nor_overflows_the_stack(
    spark: SparkSession, pattern: str, line: bytes
) -> None:
    """The worst line for a pattern that the configuration takes costs little."""
    custom = LineFormat(name="custom", pattern=pattern, time_format="yyyy-MM-dd HH:mm:ss")
    value = b"2017-07-30 14:09:08 ERROR " + line * HEAD_BYTES
    assert outcomes(spark, [value], custom) == [("no-match", None)]


def test_what_stands_beyond_the_head_of_a_line_is_not_seen_by_a_pattern(
    spark: SparkSession,
) -> None:
    """The limit is a promise: it bounds what one line can cost."""
    line = b"2017-07-30 14:09:08 [%s] ERROR c.e.A - x"
    near, far = (line % (b"x" * length) for length in (HEAD_BYTES - 100, HEAD_BYTES))
    assert outcomes(spark, [near, far], CATALOGUE["logback"]) == [
        (None, "2017-07-30 14:09:00"),
        ("no-match", None),
    ]


def test_without_levels_lines_at_any_level_are_counted(spark: SparkSession) -> None:
    """What is malformed stays malformed."""
    lines = [b"2017-07-30 14:09:08 INFO x", b"2017-07-30 14:09:08 ERROR x", b"no line at all"]
    found = outcomes(spark, lines, FIXED_LAYOUT, set())
    counted = (None, "2017-07-30 14:09:00")
    assert found == [counted, counted, ("no-time", None)]


@pytest.mark.parametrize("levels", [[""], ["ERROR", "TWO WORDS"], ["ERROR\n"]])
def test_levels_that_cannot_stand_in_a_line_are_refused(levels: list[str]) -> None:
    """They would silently count nothing."""
    with pytest.raises(ValueError, match="levels"):
        LineReader(line_format=FIXED_LAYOUT, levels=levels)


@pytest.mark.parametrize(
    ("name", "regexes"),
    [
        *[("fixed", 0), ("log4j", 1), ("apache-2.4", 1), ("rfc5424", 2)],
        *[("syslog", 2), ("klog", 3), ("healthapp", 2)],
    ],
)
def test_time_and_pattern_are_computed_once_for_a_well_formed_line(
    spark: SparkSession, name: str, regexes: int
) -> None:
    """Spark shares the work between all columns; a method that is too long is never compiled.

    A regular expression runs for the level, and for the time if its place depends on the line. A
    time without a year, or whose fields have no fixed width, takes one more.
    Where all fields have one, calendar and clock are not asked before the first grouping.
    """
    line_format = CATALOGUE[name]
    reader = LineReader(
        line_format=line_format,
        levels=sorted(levels_of(name)),
        rule=with_year(line_format, WALL_CLOCK),
    )
    with settings(spark, adaptive__enabled="false"):
        first, *rest = compiled_stages(grouping(reader).counts(kafka_records(spark, [b"x"])))
    calendar = "stringToTimestampWithoutTimeZone("
    by_position = line_format.is_fixed or line_format.parsed_time_format.is_read_by_position
    assert (calendar in first) is not by_position
    # The second one is for malformed records only; two years are tried where none is printed.
    assert first.count(calendar) <= (4 if line_format.lacks_year else 2)
    assert sum(stage.count(calendar) for stage in rest) <= 2
    assert first.count(".find()") == regexes
