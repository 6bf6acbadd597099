"""What an accepted pattern may cost: Java's own matcher, counted step by step on hostile lines."""

import random
from collections.abc import Callable

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from tally.lines.backtracking import WAYS_MAX
from tally.lines.pattern import HEAD_BYTES, parse_pattern
from tally.spark.wildcards import wildcard_pattern
from tests.spark.outcomes import SEED

pytestmark = pytest.mark.spark

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


def whole(pattern: str) -> str:
    """As it is matched, with an end that no line has, so that every way is tried."""
    java = parse_pattern(pattern + r"\x01").java
    return rf"\A(?:{java})"


def random_pattern(rng: random.Random, depth: int = 2) -> str:
    """Some parts that can share the lines."""
    return "".join(random_part(rng, depth) for _ in range(rng.randrange(1, 6)))


def random_part(rng: random.Random, depth: int) -> str:
    if depth and rng.random() < 0.3:
        opener = rng.choice(["(?:", "(?:", "(?:", "(?>", "(?=", "(?!"])
        branches = [random_pattern(rng, depth - 1) for _ in range(rng.choice([1, 1, 2, 3]))]
        looks = opener in {"(?=", "(?!"}
        ends = [""] if looks else ["", "", "?", "{0,9}", "*+", "{0,99}+"]
        return f"{opener}{'|'.join(branches)}){rng.choice(ends)}"
    one = rng.choice(["a", "b", "[ab]", r"\w", r"\d", ".", "[^b]", " ", r"\S", "0"])
    return one + rng.choice(
        ["", "", "*", "+", "?", "*?", "??", "{0,9}", "{1,200}", "{3}", "*+", "++", "{2,}"]
    )


def accepted_patterns(count: int) -> list[str]:
    """Patterns that the configuration takes, of which nearly all have a repeat."""
    rng, found = random.Random(SEED), set[str]()
    while len(found) < count:
        pattern = random_pattern(rng)
        try:
            parse_pattern(pattern + r"\x01")
        except ValueError:
            continue
        found.add(pattern)
    return sorted(found)


def test_no_accepted_pattern_can_be_kept_busy(steps: Callable[[str, str], int]) -> None:
    """Whatever it is made of, a hostile line costs a bounded number of steps."""
    patterns = accepted_patterns(400)
    worst = {p: max(steps(whole(p), text) for text in LINES) for p in patterns}
    busy = {p for p in patterns if any(steps(whole(p), text) < 0 for text in LINES)}
    assert busy == set()
    assert sum(looks > 100 * HEAD_BYTES for looks in worst.values()) > 10  # some do work


def test_no_value_of_a_filter_can_be_kept_busy(steps: Callable[[str, str], int]) -> None:
    """However many wildcards it has: a look at each character for each character of the value."""
    rng = random.Random(SEED)
    values = {"".join(rng.choices(["a", "b", "ab", "*", "*"], k=12)) for _ in range(300)}
    for value in sorted(value for value in values if "*" in value):
        looks = max(steps(wildcard_pattern(value), text) for text in LINES)
        assert 0 <= looks <= 2 * len(value) * HEAD_BYTES, value


@pytest.mark.parametrize(
    "pattern", [r"\w*\w*\w*b", ".*a.*b.*", "a?" * 40 + "a" * 40, "(?:a|a)" * 30, r"\S+\s*\S+\s*\S+"]
)
def test_what_is_refused_would_be_busy(steps: Callable[[str, str], int], pattern: str) -> None:
    """The refusal is not for nothing: Java's matcher goes past every bound."""
    with pytest.raises(ValueError, match="share a text in many ways"):
        parse_pattern(pattern + r"\x01")
    java = rf"\A(?:{pattern}\x01)"
    assert any(steps(java, text) < 0 for text in LINES)
