"""Line formats in Spark: every record is understood as an independent reader understands it."""

import json
import random
from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from tally.config.names import LEVEL
from tally.lines.format import LineFormat, MalformedReason
from tally.lines.parsing import CATALOGUE
from tally.lines.pattern import HEAD_BYTES
from tally.lines.places import place_of
from tally.lines.reading import begins_a_line
from tally.lines.time_rule import TimeRule
from tally.spark.line_columns import read_line
from tests.campaigns import share
from tests.spark.examples import (
    COUNTED,
    FIXED_EXAMPLES,
    NO_LEVEL,
    NO_TIME,
    NOT_COUNTED,
    PATTERN_EXAMPLES,
    TIME_INVALID,
    UNMATCHED,
)
from tests.spark.json_documents import Documents
from tests.spark.odd_lines import KINDS, NEAR, errors_of, example_of, micros, odd, of_kind
from tests.spark.outcomes import (
    CONTINUES,
    SEED,
    TIMES,
    Cases,
    Wanted,
    check,
    compiled_stages,
    grouping,
    kafka_records,
    known,
    reader,
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
TIME_FORMAT = "yyyy-MM-dd HH:mm:ss"
JSON_TIME = "yyyy-MM-dd'T'HH:mm:ss"
TIME = r"(?<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)"


def custom(pattern: str, time_format: str = TIME_FORMAT) -> LineFormat:
    return LineFormat(name="custom", pattern=pattern, time_format=time_format)


def add_example(cases: Cases, name: str) -> None:
    """The example of a format: before a second line and odd bytes, behind a blank, as a message.

    What stands before a line makes it another one: a dead letter, never a guess.
    """
    errors, example = errors_of(name), example_of(CATALOGUE[name]).encode()
    trace = b"\r\n\tat com.example.Cart.add(Cart.java:12)\r\n"
    lines = [example, example + trace, example + b" \xff\xfe\xc3"]
    ((_, minute),) = set(known(errors, lines))
    assert minute is not None
    cases.add("the example", errors, [(line, (None, minute)) for line in lines])
    prefixes = [b" ", b"\t", b"\n", b"\r\n", b"\xef\xbb\xbf", b"> "]
    no_line = NO_TIME if name == "fixed" else UNMATCHED
    cases.add("a prefix", errors, [(prefix + example, no_line) for prefix in prefixes])
    if name in ("fixed", "log4j"):
        huge = {example + b"x\xff" * 5_000_000: (None, minute), b"x" * 10_000_000: no_line}
        cases.add("ten megabytes", errors, huge)


def test_no_byte_can_stand_in_for_another_in_the_fixed_layout(spark: SparkSession) -> None:
    """Each byte of a line, up to the one behind the level, is replaced by every byte there is."""
    line = b"2017-07-30 14:09:08 ERROR x"
    lines = [line[:at] + bytes([byte]) + line[at + 1 :] for at in range(26) for byte in range(256)]
    cases = Cases(spark)
    reasons = {"no-time", "time-invalid", "no-level", "not counted"}
    cases.add_odd("a byte", reader(CATALOGUE["fixed"]), lines, reasons)
    cases.check()


def test_the_fixed_layout_by_example(spark: SparkSession) -> None:
    """What ``docs/line-formats.md`` promises, line by line; the oracle knows it too."""
    cases, errors = Cases(spark), reader(CATALOGUE["fixed"])
    cases.add("by example", errors, FIXED_EXAMPLES)
    assert known(errors, FIXED_EXAMPLES) == list(FIXED_EXAMPLES.values())
    add_example(cases, "fixed")
    # Each counted level is found whatever the others are, and may be any word.
    levels = ["E", "FATAL", "ERROR", "FEHLER\u00dc"]
    reasons = {str(r) for r in MalformedReason} - {"no-match"} | {"not counted"}
    several = reader(CATALOGUE["fixed"], levels)
    cases.add_odd("odd lines", several, odd("fixed", share(6000)), reasons)
    lines = {f"2017-07-30 14:09:08 {level}{end}": COUNTED for level in levels for end in ("", " x")}
    cases.add("several levels", several, {**lines, "2017-07-30 14:09:08 FAT": NOT_COUNTED})
    cases.check()


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_reads_hundreds_of_odd_lines_as_python(spark: SparkSession, name: str) -> None:
    """And examples of stack traces, banners, CR LF and levels in messages as they are meant."""
    cases, errors, examples = Cases(spark), errors_of(name), PATTERN_EXAMPLES.get(name, {})
    reasons = {"null-value", "empty-value", "no-match", "time-invalid"}
    if "yyyy" in errors.format.time_format:
        reasons.add("time-out-of-range")
    cases.add_odd("odd lines", errors, odd(name, 400), reasons)
    add_example(cases, name)
    assert {COUNTED, UNMATCHED} <= set(examples.values()) or not examples
    cases.add("by example", errors, examples)
    assert known(errors, map(str.encode, examples)) == list(examples.values())
    if name == "logback":  # a promise: it bounds what one line can cost
        line = b"2017-07-30 14:09:08 [%s] ERROR c.e.A - x"
        near, far = (line % (b"x" * length) for length in (HEAD_BYTES - 100, HEAD_BYTES))
        cases.add("beyond the head of a line", errors, {near: COUNTED, far: UNMATCHED})
    cases.check()


def test_lines_without_a_level_count_where_no_level_is_asked_for(spark: SparkSession) -> None:
    """In the fixed layout, and in a pattern that finds none; the label `level` is then ''."""
    cases = Cases(spark)
    reasons = {"null-value", "empty-value", "no-time", "time-invalid", "time-out-of-range"}
    any_level = reader(CATALOGUE["fixed"], [])
    cases.add_odd("odd lines", any_level, odd("fixed", share(3000)), reasons)
    lines = ["2017-07-30 14:09:08 INFO x", "2017-07-30 14:09:08 ERROR x"]
    cases.add("any level", any_level, {**dict.fromkeys(lines, COUNTED), "no line at all": NO_TIME})
    for line_format, line in (
        (CATALOGUE["fixed"], "2017-07-30 14:09:08"),
        (custom(rf"{TIME}(?: (?<level>[A-Z]+))?"), "2017-07-30 14:09:08 x"),
    ):
        cases.add("no level", reader(line_format, [], labels=["level"]), {line: (*COUNTED, "")})
        cases.add("no level", reader(line_format), {line: NO_LEVEL})
    # In the fixed layout, too, each part of a broken character is one U+FFFD.
    levels = [b"ERR\xed\xa0\x80", b"\xf0\x9f\x98", b"\xff\xc3(", "é😀".encode()]
    cases.add(
        "a level that is no UTF-8",
        reader(CATALOGUE["fixed"], [], labels=["level"]),
        [(b"2017-07-30 14:09:08 %s x" % v, (*COUNTED, v.decode(errors="replace"))) for v in levels],
    )
    cases.check()


# By field what a filter wants, a text that it takes, and which of x, xy, nothing and '' it takes.
FILTERS = {
    "a": ("*", "x", "1111"),
    "b": ("?*", "?", "0000"),
    "c": ("x*", "x", "1100"),
    "d": ("", "", "0011"),
    "e": ("x", "x", "1000"),
}


def test_a_field_without_a_value_is_filtered_as_an_empty_one(spark: SparkSession) -> None:
    """Whether a group took no part, a key is missing or null, or the value is ''."""
    filters = {name: [wanted] for name, (wanted, _, _) in FILTERS.items()}
    groups = ",".join(rf"(?<{name}>[x?]\w*)?-?" for name in FILTERS)
    of_pattern = reader(custom(f"{TIME} {groups}"), [], filter=filters)
    fields = {"json": {name: name for name in FILTERS}}
    of_json = reader(fields, [], TimeRule(from_record=True), filter=filters)
    at, cases = micros(datetime(2017, 7, 30, 14, 9, tzinfo=UTC)), Cases(spark)
    others = {name: text for name, (_, text, _) in FILTERS.items()}
    for name, (wanted, _, taken) in FILTERS.items():
        values = {"x": "x", "xy": "xy", "": None, "-": ""}  # as the pattern has them, and JSON
        for (text, value), digit in zip(values.items(), taken, strict=True):
            outcome = COUNTED if digit == "1" else NOT_COUNTED
            line = "2017-07-30 14:09:08 " + ",".join((others | {name: text}).values())
            cases.add(f"{text!r} as {wanted!r}", of_pattern, {line: outcome})
            record = json.dumps(others | {name: value})
            cases.add(f"{value!r} as {wanted!r}", of_json, {record: outcome}, [at])
    cases.check()


def test_a_filter_may_have_many_values(spark: SparkSession) -> None:
    """Spark walks conditions by recursion, and its stack is small."""
    names = [*(f"s{n}" for n in range(2_000)), *(f"w{n}*" for n in range(2_000))]
    outcomes = dict.fromkeys(("s0", "s1999", "w0*", "w1999*", "w2x"), COUNTED)
    outcomes |= dict.fromkeys(("s0*", "s2000", "w", "t", ""), NOT_COUNTED)
    filtered = reader(custom(rf"{TIME} (?<x>\S*)"), [], filter={"x": names})
    lines = [f"2017-07-30 14:09:08 {x}".encode() for x in outcomes]
    line = read_line(filtered)
    judged = line.stages.select(kafka_records(spark, lines), line.minute)
    found = [(None, minute) for (minute,) in judged.collect()]
    assert dict(zip(outcomes, found, strict=True)) == outcomes


TRACE = (
    b"java.lang.IllegalStateException: 2017-07-30 14:09:08 ERROR is not at the start",
    b"\tat org.example.Shop.sell(Shop.java:12)",
    b"\x1b[31m\tat org.example.Shop.sell(Shop.java:12)\x1b[0m",
    b"Caused by: java.io.IOException: [30/Jul/2017:14:09:08 +0000] is no time",
    b"\t... 12 more",
    b"Traceback (most recent call last):",
    b'  File "shop.py", line 3, in sell',
    b"    time = 1501423748",
    b"ValueError: invalid literal for int() with base 10: '7'",
    b"goroutine 1 [running]:",
    b"E123 is no number",
    b"    where time='2017-07-30 14:09:08' and level = 3",
    b'    "time": "2017-07-30T14:09:08Z",',
    b"    ],",
    b"",
    b"    }",
    b"{",
    b"[",
    b"\xff",
    "\u0662\u0660\u0661\u0667-\u0660\u0667-\u0663\u0660 no ASCII digits".encode(),
    b"\x1b[31m" * 10 + b"2017-07-30 14:09:08 ERROR has more colours than there are",
)
"""Lines that continue the one before."""
DAMAGED = (
    b'{"time"',
    "\ufeff2017-07-30 14:09:08 ERROR x".encode(),
    b"[2017/07/30 14:09:08] ERROR x",
    b"14:09:08 ERROR x",
    b"Jul 30 14:09:08 ERROR x",
    b"Jul  4 14:09:08 host sshd[7]: x",
    b"Jul 4 14:09:08 host sshd[7]: x",
    b"[Sun Dec 04 04:47:44 2005] [error] x",
    b"\x1b[1m\x1b[38;5;9m2017-07-30 14:09:08 ERROR x\x1b[0m",
    b"\x1b[mE0730 14:09:08.123456  1234 cart.cc:138] x",
    b"E0730 14:09:08.123456  1234 cart.cc:138] x",
    b"D20170730 14:09:08.123456  1234 cart.cc:138] x",
    b"<34>1 - host x",
    b"<134>Oct 11 22:14:15 host x",
    b'[{"time":"2017-07-30T14:09:08Z"}]',
    b'time="2017-07-30T14:09:08Z" level=error',
    b"timestamp=1501423748 x",
    b"ts=2017-07-30T14:09:08Z x",
    b"level=error x",
    b"lvl=eror x",
    b"severity=ERROR x",
    b"1501423748 ERROR x",
    b"[1501423748123] ERROR x",
    b"1501423748.123 ERROR x",
    b"10.0.0.7 - - [30/Jul/2017:14:09:08 +0000] x",
    b'shop:443 "10.0.0.7" - anna [30/Jul/2017:14:09:08 +0000] x',
)
"""Lines of another format, or that something has damaged; they are no part of a stack trace."""
BEGIN_ANYHOW = {"text", "openstack", "bgl", "thunderbird", "hpc"}
"""Formats whose lines begin like any text: with a word or a number of their own."""


def test_the_beginning_of_a_line_is_known_in_python_too() -> None:
    """The reader of most tests tells the same lines; and the examples of all formats begin one."""
    log4j = CATALOGUE["log4j"]
    assert [line for line in TRACE if begins_a_line(log4j, line)] == []
    assert [line for line in DAMAGED if not begins_a_line(log4j, line)] == []
    examples = {name: of.example.encode() for name, of in CATALOGUE.items() if of.example}
    begin_none = {name for name, line in examples.items() if not begins_a_line(log4j, line)}
    assert begin_none == BEGIN_ANYHOW


def test_a_record_that_begins_no_line_is_left_out(spark: SparkSession) -> None:
    """And no other: what begins a line and is wrong stays malformed, and a tombstone too."""
    cases = Cases(spark)
    of_pattern: dict[str, Wanted] = {
        "2017-07-30 14:09:08 ERROR x": COUNTED,
        "2017-13-30 14:09:08 ERROR": TIME_INVALID,
        "2017-07-30 14:09:08 INFO": NOT_COUNTED,
    }
    of_fixed = {
        **of_pattern,
        "2017-07-30 14:09:08": NO_LEVEL,
        "0017-07-30 14:09:08 ERROR": ("time-out-of-range", None),
    }
    of_json = {
        '{"time": "2017-07-30T14:09:08", "level": "ERROR"}': COUNTED,
        '{"time": "2017-07-30T14:09:08"}': NO_LEVEL,
        '{"level": "ERROR"}': NO_TIME,
        '{"time": "2017", "level": "ERROR"}': TIME_INVALID,
        "{}": NO_TIME,
    }
    for line_format, lines in (
        (CATALOGUE["fixed"], of_fixed),
        (custom(rf"{TIME} (?<level>[A-Z]*)"), {**of_pattern, "2017-07-30 14:09:08 ": NO_LEVEL}),
        ({"json": {"time": "time", "level": "level"}, "time_format": JSON_TIME}, of_json),
    ):
        leaving = reader(line_format, continuation_lines="unmatched")
        cases.add("begins a line", leaving, {**lines, None: ("null-value", None)})
        cases.add("begins none", leaving, [(line, (CONTINUES, None)) for line in TRACE])
        damaged = NO_TIME if line_format is CATALOGUE["fixed"] else ("no-match", None)
        cases.add("damaged", leaving, [(line, damaged) for line in DAMAGED])
    cases.check()


def test_a_time_behind_a_character_of_several_bytes_is_found(spark: SparkSession) -> None:
    """However a pattern spells the character: it may stand where most lines have one byte."""
    spelled = [r"[a-z\xfc]{4}-\d", r"[a-z\u00fc]{4}-\d", "[a-zü]{4}-[0-9]"]
    spelled += [r"[^\x00-\x2c]{4}-\d", r"t[\x61-\xff]te-\d", ".{4}-."]
    for before in spelled:
        packed = custom(rf"{before}(?<time>\d{{10}}) (?<level>[A-Z]+)", "yyMMddHHmm")
        chars = packed.parsed_time_format.chars
        assert place_of(packed.parsed_pattern.parts, "time", chars) is None
    # A number before the line says which of them it must match.
    one_of = "|".join(f"{number}{before}" for number, before in enumerate(spelled))
    packed = custom(rf"(?:{one_of})(?<time>\d{{10}}) (?<level>[A-Z]+)", "yyMMddHHmm")
    words = [f"{number}{word}" for number in range(len(spelled)) for word in ("tüte", "tute")]
    lines = [f"{word}-10112101010 ERROR x" for word in words]
    check(spark, reader(packed), dict.fromkeys(lines, (None, "2001-12-10 10:10:00")))


@pytest.mark.parametrize("filters", [{}, {LEVEL: ["*"]}], ids=["plain", "filtered"])
def test_bytes_that_are_no_utf_8_are_as_many_characters_as_in_python(
    spark: SparkSession, filters: dict[str, list[str]]
) -> None:
    """Whether or not a filter or a label asks for text; Java's own decoder counts differently."""
    widths = (1, 2, 3, 4, 6)
    said = "|".join(rf".{{{width}}}> {width}" for width in widths)
    broken = (b"\xed\xa0\x80", b"\xed\xa0\xbd\xed\xb8\x80", b"\xf0\x9f\x98", b"\xc0\xaf", b"\xff")
    lines = [
        (
            b"2017-07-30 14:09:08 <%s> %d ERROR" % (octets, width),
            COUNTED if len(octets.decode("utf-8", "replace")) == width else UNMATCHED,
        )
        for octets in broken
        for width in widths
    ]
    assert [wanted for _, wanted in lines].count(COUNTED) == len(broken)
    check(spark, reader(custom(rf"{TIME} <(?:{said}) (?<level>\w+)"), filter=filters), lines)


@pytest.mark.parametrize("name", ["fixed", "log4j", "apache-2.4"])
def test_records_judged_one_by_one_are_counted_as_in_groups(spark: SparkSession, name: str) -> None:
    """The recount's way, which asks the calendar for each record, beside that of a batch."""
    records = kafka_records(spark, odd(name, 300)).selectExpr(
        "* except (partition)", "partition % 3 as partition"
    )
    in_groups = errors_of(name)
    grouped, each = (
        grouping(in_groups, each=is_each).counts(records).drop("from_offset")
        for is_each in (False, True)
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
    errors = reader(custom(r"(?<time>\d[^M]*M)? ?(?<level>[A-Z]+)?:", "dd.MM.yyyy 'at' hh:mm a"))
    cases = Cases(spark)
    cases.add_odd("odd lines", errors, lines, {str(r) for r in MalformedReason})
    midnight, noon = (f"30.07.2017 at 12:00 {marker} ERROR:" for marker in ("AM", "PM"))
    minutes = {midnight: (None, "2017-07-30 00:00:00"), noon: (None, "2017-07-30 12:00:00")}
    cases.add("midnight and noon", errors, minutes)
    cases.check()


@pytest.mark.parametrize(
    ("zone", "ansi", "policy"),
    [("Europe/Berlin", "true", "EXCEPTION"), ("America/St_Johns", "false", "LEGACY")],
)
def test_session_settings_change_nothing(
    spark: SparkSession, zone: str, ansi: str, policy: str
) -> None:
    """Time zone of the session, ANSI mode and the time parser policy play no part."""
    cases = Cases(spark)
    cases.add_odd("fixed", errors_of("fixed"), odd("fixed", 200), {"time-invalid"})
    own_time = reader("text", [], TimeRule(from_record=True))
    cases.add("text", own_time, {b"x": (None, "2005-06-15 03:04:00")}, [micros(NEAR)])
    cases.add_odd("2.4", errors_of("apache-2.4"), odd("apache-2.4", 200), {"time-invalid"})
    for name in ("thunderbird", "syslog"):
        lines, stamps = of_kind(random.Random(f"{SEED} {zone}"), KINDS[name], share(200))
        cases.add_odd(name, KINDS[name].reader, lines, {"no-match"}, stamps)
    documents = Documents(f"{SEED} {zone}")
    records = [documents.record(TIMES) for _ in range(share(500))]
    small = {"json": {"time": "time", "level": "level"}, "time_format": JSON_TIME}
    cases.add_odd("json", reader(small), records, {"no-match"})
    with settings(
        spark,
        session__timeZone=zone,
        ansi__enabled=ansi,
        legacy__timeParserPolicy=policy,
        caseSensitive="true",
    ):
        cases.check()


def test_the_time_zone_of_the_jvm_changes_nothing(spark: SparkSession) -> None:
    """The hour that does not exist in Berlin is counted as printed."""
    skipped, cases = (None, "2026-03-29 02:30:00"), Cases(spark)
    cases.add("fixed", errors_of("fixed"), {"2026-03-29 02:30:00 ERROR x": skipped})
    cases.add("2.2", errors_of("apache-2.2"), {"[Sun Mar 29 02:30:00 2026] [error] x": skipped})
    zones = spark._jvm.java.util.TimeZone  # type: ignore[union-attr]
    before = zones.getDefault()
    zones.setDefault(zones.getTimeZone("Europe/Berlin"))
    try:
        cases.check()
    finally:
        zones.setDefault(before)


@pytest.mark.parametrize(
    ("name", "regexes"),
    [
        *[("fixed", 0), ("log4j", 1), ("apache-2.4", 1), ("rfc5424", 2)],
        *[("syslog", 2), ("klog", 3), ("healthapp", 2), ("thunderbird", 2)],
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
    of_name = KINDS[name].reader if name in KINDS else errors_of(name)
    with settings(spark, adaptive__enabled="false"):
        first, *rest = compiled_stages(grouping(of_name).counts(kafka_records(spark, [b"x"])))
    calendar = "stringToTimestampWithoutTimeZone("
    by_position = line_format.is_fixed or line_format.parsed_time_format.is_read_by_position
    assert (calendar in first) is not (by_position or line_format.states_instant)
    # The second one is for malformed records only; two years are tried where none is printed.
    assert first.count(calendar) <= (4 if line_format.lacks_year else 2)
    assert sum(stage.count(calendar) for stage in rest) <= 2
    assert first.count(".find()") == regexes
