"""Patterns and wildcards: what Java makes of them, as Python sees it, and what they may cost."""

import random
import re
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tally.lines.backtracking import WAYS_MAX
from tally.lines.format import LineFormat
from tally.lines.pattern import HEAD_BYTES, TIME, LinePattern, parse_pattern
from tally.lines.places import place_of
from tally.spark.expressions import matches_value, wildcard_pattern
from tests.campaigns import share
from tests.spark.outcomes import SEED, TIMES, Cases, reader

pytestmark = pytest.mark.spark

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


@pytest.mark.parametrize("pattern", [*BY_PLACE, *BY_PATTERN])
def test_a_time_of_any_width_is_found_as_python_finds_it(spark: SparkSession, pattern: str) -> None:
    """By its place, where the character behind it allows that, or by the pattern."""
    line_format = LineFormat(name="custom", pattern=pattern, time_format="yyyy-MM-dd HH:mm:ss")
    parsed, chars = line_format.parsed_pattern, line_format.parsed_time_format.chars
    assert (place_of(parsed.parts, TIME, chars) is not None) == (pattern in BY_PLACE)
    rng = random.Random(f"{SEED} {pattern}")
    lines: list[bytes | None] = [None, b"", b" ERROR", *(f"{t} ERROR".encode() for t in TIMES)]
    lines += [_odd_line(rng) for _ in range(600)]
    reasons = {"null-value", "empty-value", "no-match", "time-invalid", "time-out-of-range"}
    cases = Cases(spark)
    cases.add_odd("at a level", reader(line_format), lines, {*reasons, "not counted"})
    if pattern in (BY_PLACE[0], BY_PATTERN[0]):
        cases.add_odd("at any level", reader(line_format, []), lines, reasons)
    cases.check()


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
    rng, patterns = random.Random(SEED), accepted_patterns(share(400), WITH_ENDS.split())
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
    assert matches > share(1_000)


WITH_ENDS = r"""
    . \s \S \D \W \w [^a] [^-a] [^\d,] [\s,] a [-a] [\D1] [\W\d] [\x00-\x20] \x0a \x0d [^\x0a]
    [^^] (?>.?) (?i:A) (?=.) (?!\s) (?!.) (?<=\s) \b $
"""
"""Parts of which most could take the end of a line, or see it."""
SHARING = ("a", "b", "[ab]", r"\w", r"\d", ".", "[^b]", " ", r"\S", "0")
"""Parts that can share a text."""
REPEATS = ("", "", "*", "+", "?", "*?", "??", "{0,9}", "{1,200}", "{3}", "*+", "++", "{2,}")


def random_pattern(rng: random.Random, parts: Sequence[str], depth: int = 2) -> str:
    return "".join(random_part(rng, parts, depth) for _ in range(rng.randrange(1, 5)))


def random_part(rng: random.Random, parts: Sequence[str], depth: int) -> str:
    one, repeats = rng.choice(parts), REPEATS
    if depth and rng.random() < 0.3:
        branches = [random_pattern(rng, parts, depth - 1) for _ in range(rng.choice([1, 1, 2, 3]))]
        one = f"{rng.choice(['(?:', '(?:', '(?:', '(?>', '(?=', '(?!'])}{'|'.join(branches)})"
        repeats = ("", "", "?", "{0,9}", "*+", "{0,99}+")
    looks = one.startswith(("(?=", "(?!", "(?<")) or one in (r"\b", "$")
    return one if looks else one + rng.choice(repeats)


def accepted_patterns(count: int, parts: Sequence[str], end: str = "") -> list[LinePattern]:
    rng, found = random.Random(SEED), dict[str, LinePattern]()
    while len(found) < count:
        text = random_pattern(rng, parts) + end
        with suppress(ValueError):
            found[text] = parse_pattern(text)
    return list(found.values())


WILD = ["a", "b", "%", "_", "\\", ".", "Q", "E", "\n", "é", "\U0001f600", " "]


def takes(value: str, text: str) -> bool:
    """By trying every split: ``*`` takes nothing, or a character and tries again."""
    reached = {0}
    for char in value:
        if char == "*":
            reached = set(range(min(reached, default=len(text) + 1), len(text) + 1))
        else:
            reached = {i + 1 for i in reached if i < len(text) and text[i] == char}
    return len(text) in reached


def test_each_value_takes_exactly_the_texts_that_it_describes(spark: SparkSession) -> None:
    """Characters with a meaning in LIKE or in a pattern mean themselves; any number of ``*``."""
    rng = random.Random(SEED)
    values = {"", "*", "**", "a", "*a", "a*", "*a*", "a*b", "a*b*", "*a*b", "*a*b*", "a*a", "**a**"}
    while len(values) < 150:
        values.add("".join(rng.choices([*WILD, *"****ab"], k=rng.randrange(1, 7))))
    texts = {"", "a", "b", "ab", "aab", "ba"}
    while len(texts) < 150:
        made = rng.choice(sorted(values)).replace("*", "".join(rng.choices(WILD, k=2)))
        texts.add(made + rng.choice(["", "", rng.choice(WILD)]))
    asked = sorted(values)
    frame = spark.createDataFrame([(text,) for text in sorted(texts)], "text string")
    rows = frame.select("text", *(matches_value(F.col("text"), v) for v in asked)).collect()
    found = {
        (text, v): said for text, *all_said in rows for v, said in zip(asked, all_said, strict=True)
    }
    assert found == {(text, v): takes(v, text) for text, v in found}
    assert 200 < sum(found.values()) < len(found) - 200


STEPS_MAX = 32 * WAYS_MAX
"""Characters that the matcher may look at: a way looks at some."""

# A line that counts how often the matcher looks at it. Compiled by the compiler that Spark brings.
COUNTER = """
public class Line implements CharSequence, java.util.function.Function {
    private String text;
    private long most;
    private long[] looks = new long[1];
    public Line() {}
    public int length() { return text.length(); }
    public char charAt(int at) {
        if (++looks[0] > most) throw new IllegalStateException("too often");
        return text.charAt(at);
    }
    public CharSequence subSequence(int from, int to) { return text.subSequence(from, to); }
    public String toString() { return text; }
    public Object apply(Object asked) {
        String[] parts = ((String) asked).split("\\n", 3);
        most = Long.parseLong(parts[0]);
        text = parts[2];
        looks[0] = 0;
        try {
            java.util.regex.Pattern.compile(parts[1]).matcher(this).find();
        } catch (IllegalStateException tooOften) {
            return Long.valueOf(-1);
        }
        return Long.valueOf(looks[0]);
    }
}
"""

LINES = [
    (word * HEAD_BYTES)[:HEAD_BYTES]
    for word in ("a", "b", "ab", "a ", "aab", "0", "a0", " ", "a" * 99 + " ", "a" * 2000 + "b")
]


@pytest.fixture(scope="module")
def steps(spark: SparkSession) -> Callable[[str, str], int]:
    """How often Java looks at a character of a line until a pattern fails; -1 for too often."""
    jvm = spark._jvm
    assert jvm is not None
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(COUNTER)
    none = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 0)  # type: ignore[union-attr]
    line = compiler.getClassLoader().loadClass("Line").getConstructors()[0].newInstance(none)
    return lambda pattern, text: int(line.apply(f"{STEPS_MAX}\n{pattern}\n{text}"))


def test_no_accepted_pattern_can_be_kept_busy(steps: Callable[[str, str], int]) -> None:
    """Whatever it is made of, a hostile line costs a bounded number of steps.

    Each pattern has an end that no line has, so that every way is tried.
    """
    java = [rf"\A(?:{p.java})" for p in accepted_patterns(share(400), SHARING, r"\x01")]
    looks = {pattern: [steps(pattern, text) for text in LINES] for pattern in java}
    assert {p for p, of_lines in looks.items() if min(of_lines) < 0} == set()
    # Some do work.
    assert sum(max(of_lines) > 100 * HEAD_BYTES for of_lines in looks.values()) >= share(10)


def test_no_value_of_a_filter_can_be_kept_busy(steps: Callable[[str, str], int]) -> None:
    """However many wildcards it has: a look at each character for each character of the value."""
    rng = random.Random(SEED)
    values = {"".join(rng.choices(["a", "b", "ab", "*", "*"], k=12)) for _ in range(share(300))}
    for value in sorted(value for value in values if "*" in value):
        looks = max(steps(wildcard_pattern(value), text) for text in LINES)
        assert 0 <= looks <= 2 * len(value) * HEAD_BYTES, value


def test_an_accepted_pattern_neither_hangs_nor_overflows_the_stack(spark: SparkSession) -> None:
    """The worst line for a pattern that the configuration takes costs little."""
    ends = ["(?:a|b)*+c", "(?:[ab]b?+){0,100}c", "(?>a|b|ab){0,100}c", "[^c]*[c]", ".{0,200}.*c"]
    java = [parse_pattern(rf"(?<time>\S+ \S+) (?<level>\w+) {end}").java for end in ends]
    line = ("2017-07-30 14:09:08 ERROR " + "ab" * HEAD_BYTES)[:HEAD_BYTES]
    frame = spark.createDataFrame([(line,)], "text string")
    (row,) = frame.select(*(F.rlike("text", F.lit(rf"\A(?:{p})")) for p in java)).collect()
    assert list(row) == [False] * len(ends)
