"""Lines of patterns: the time's place, and the end of the line, as Python sees them."""

import random
import re

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tally.lines.format import LineFormat
from tally.lines.pattern import TIME, LinePattern, parse_pattern
from tally.lines.places import place_of
from tests.spark.outcomes import SEED, TIMES, assert_as_expected

pytestmark = pytest.mark.spark

TIME_FORMAT = "yyyy-MM-dd HH:mm:ss"

# The time takes any width, as far as the pattern goes.
BY_PLACE = [
    r"^(?<time>\S+ \S+) (?<level>[A-Z]+)(?: \[(?<service>[^\]]+)\])?",
    r"^(?<time>[\d: -]+)[.,](?<level>[A-Z]+)",
    r"(?<time>\S++ [\d:]++)\s+(?<level>\w+)",
]
BY_PATTERN = [
    r"^(?<time>\S+ \S+)(?:\.\d+)? (?<level>[A-Z]+)",
    r"^(?<time>.*) (?<level>[A-Z]+)",
    r"^(?<time>[^A-Z]+?)[ .](?<level>[A-Z]+)",
    r"^\W?(?<time>\S+ \S+) (?<level>[A-Z]+)",
    r"^(?<time>[^a-z]+) (?<level>(?i:info|error))\b",
]


@pytest.mark.parametrize(
    ("pattern", "by_place"), [*((p, True) for p in BY_PLACE), *((p, False) for p in BY_PATTERN)]
)
def test_a_time_of_any_width_is_found_as_python_finds_it(
    spark: SparkSession, pattern: str, *, by_place: bool
) -> None:
    """By its place, where the character behind it allows that, or by the pattern."""
    line_format = LineFormat(name="custom", pattern=pattern, time_format=TIME_FORMAT)
    parsed, chars = line_format.parsed_pattern, line_format.parsed_time_format.chars
    found = place_of(parsed.parts, TIME, chars)
    assert (found is not None) == by_place
    rng = random.Random(f"{SEED} {pattern}")
    lines: list[bytes | None] = [None, b"", b" ERROR", *(f"{t} ERROR".encode() for t in TIMES)]
    lines += [_odd_line(rng) for _ in range(600)]
    reasons = {"null-value", "empty-value", "no-match", "time-invalid", "time-out-of-range"}
    assert_as_expected(spark, lines, line_format, {"ERROR"}, {*reasons, "counted", "not counted"})
    assert_as_expected(spark, lines, line_format, set(), {*reasons, "counted"})


def _odd_line(rng: random.Random) -> bytes:
    """A line whose time goes on, or stops, or is followed by something else."""
    time = rng.choice([TIMES[0], TIMES[0], *TIMES])
    time = rng.choice([time] * 6 + [time[:-1], time[:-3], time[1:], time[:10], "x" + time])
    more = rng.choice([""] * 6 + [",123", ".5", "Z", ":08", "+01:00", "é", " 12:00:00", "\xa0"])
    gap = rng.choice([" "] * 6 + ["."] * 3 + ["  ", "\t", "\r", "\n", "", "\x85", "é"])
    rest = rng.choice(["", " [svc]", " [svc", "\r\n x", " é", f"\n{TIMES[0]} ERROR"])
    line = f"{time}{more}{gap}{rng.choice(['ERROR', 'ERROR', 'INFO', '', 'error'])}{rest}"
    return line.encode() + rng.choice([b"", b"", b"\xff", b"\xe4\xb8\n"])


def test_java_sees_a_line_as_python_sees_what_stands_before_its_end(spark: SparkSession) -> None:
    """Random patterns and random records: the same match, of the same text."""
    rng = random.Random(SEED)
    patterns = _patterns(rng, 400)
    texts = ["".join(rng.choices("ab1 -,]\r\n\x85\u2028é", k=rng.randrange(9))) for _ in range(600)]
    frame = spark.createDataFrame([(text,) for text in texts], "text string").coalesce(1)
    matches = 0
    for start in range(0, len(patterns), 40):
        some = patterns[start : start + 40]
        columns = [F.regexp_extract("text", rf"\A((?:{p.java}))", 1) for p in some]
        are = [F.rlike("text", F.lit(rf"\A(?:{p.java})")) for p in some]
        for text, row in zip(texts, frame.select(*columns, *are).collect(), strict=True):
            line = re.split(r"[\r\n]", text)[0]
            for number, pattern in enumerate(some):
                found = pattern.python.match(line)
                assert row[len(some) + number] == (found is not None), (pattern.java, text)
                assert row[number] == (found[0] if found else ""), (pattern.java, text)
                matches += bool(found and found[0] and line != text)
    assert matches > 1_000


def _patterns(rng: random.Random, count: int) -> list[LinePattern]:
    """Patterns that are accepted, mostly of parts that could take the end of a line."""
    found: dict[str, LinePattern] = {}
    while len(found) < count:
        parts = [_part(rng) for _ in range(rng.randrange(1, 5))]
        text = "".join(parts)
        try:
            found[text] = parse_pattern(text)
        except ValueError:
            continue
    return list(found.values())


def _part(rng: random.Random) -> str:
    one = rng.choice(
        [
            *(".", r"\s", r"\S", r"\D", r"\W", r"\w", "[^a]", "[^-a]", r"[^\d,]", r"[\s,]", "a"),
            *(r"[\D1]", r"[\W\d]", r"[\x00-\x20]", r"\x0a", r"\x0d", r"[^\x0a]", "[^^]"),
            *("(?:a|.)", "(?=.)", r"(?!\s)", r"(?!.)", r"(?<=\s)", "(?>.?)", "(?i:A)", "[-a]"),
        ]
    )
    if one.startswith(("(?=", "(?!", "(?<")):
        return one
    return one + rng.choice(["", "", "", "?", "*", "+", "*?", "++", "{2}", r"\b", "$"])
