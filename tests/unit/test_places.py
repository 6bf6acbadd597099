"""Where the time stands in every line, as it follows from the pattern and the time format."""

import itertools
import random
import string

from tests.campaigns import share

from tally.lines.pattern import parse_pattern
from tally.lines.places import Place, Shape, place_of
from tally.lines.time_format import parse_time_format

DIGIT = frozenset(string.digits)
TIME_FORMAT = "yyyy-MM-dd HH:mm:ss"


def place(pattern: str, shape: Shape) -> Place | None:
    return place_of(parse_pattern(pattern).parts, "time", shape)


def test_a_group_behind_parts_of_a_fixed_width_has_a_place() -> None:
    """In bytes: what stands before it is ASCII. If it takes that width only, nothing is asked."""
    for pattern, before, width in (
        *((r"(?<time>\d\d)", 0, 2), (r"^\[(?<time>\d{4}.\d\d)\]$", 1, 7)),
        *((r"a{3}\x41(?<time>\d)", 4, 1), (r"(?:ab|cd)(?=x)(?<time>\d)", 2, 1)),
        *((r"(?>ab)(?i:k)(?<time>.{3})", 3, 3), (r"(?<level>[A-Z]{4}) (?<time>\d)", 5, 1)),
        *((r"(x)(?<time>\d)", 1, 1), (r"(?<time>.)", 0, 1)),
    ):
        assert place(pattern, [None] * width) == Place(before=before), pattern
    # One of any width has a place where the next character ends it: as a whole or not at all.
    for pattern, behind in (
        *((r"^(?<time>\S+ \S+) (?<level>[A-Z]+)", " "), (r"^\[(?<time>[^\]]+)\] ", "]")),
        *((r"(?<time>\S+ [\d:]+)\s+x", "\t\n\x0b\x0c\r "), (r"(?<time>\S+ [\d:]+)[.,]\d", ".,")),
        (r"(?<time>\S++ \S++) x", " "),
    ):
        found = place(pattern, parse_time_format(TIME_FORMAT).chars)
        assert found is not None, pattern
        assert found.behind == frozenset(behind), pattern


def test_a_group_behind_anything_else_has_none() -> None:
    """How many bytes stand before it depends on the line; or it is not always there."""
    for pattern in (r"(?:(?<time>\d))?x", r"(?<time>\d)|x", r"(?:x(?<time>\d))", r"(?<level>\d)"):
        assert place(pattern, [DIGIT]) is None, pattern
    for before in (
        *("a?", "a*+", "a{1,2}", "(?:ab|c)", "(?<level>[A-Z]+)"),
        *(".", "[^a]", r"\W", r"\S", r"\D", "\u00e9", "[a\u4e00]", r"[\x90]", r"\x90", r"\u2028"),
        *(r"[\x00-\xff]", r"[a-z\xfc]", r"[a\u00fc]", r"[a-\uffff]", r"[a\u0660-\u0669]"),
        "[a\U0001f600]",
    ):
        assert place(rf"{before}(?<time>\d\d)", [DIGIT, DIGIT]) is None, before


def test_a_group_that_could_end_elsewhere_has_none() -> None:
    """Within the written time, or behind it; or what comes next is not that simple.

    A negated class takes a capital letter, although case is ignored elsewhere: the ``T`` of a time.
    """
    for pattern in (
        *(r"(?<time>\S+ \S+)", r"(?<time>.+) x", r"(?<time>.*?\d) ", r"(?<time>\S+ \S+)\S"),
        *(r"(?<time>\S+ \S+):\d\d", r"(?<time>\S+)-", r"(?<time>\S+ \S+)(?: |$)x"),
        *(r"(?<time>\S+ \S+) ?x", r"(?<time>\S+ [\d:]+)\D", r"(?<time>\S+(?: \S+)?) "),
        r"(?i)(?<time>[^t ]+ [^t]+)(?:t)x",
    ):
        assert place(pattern, parse_time_format(TIME_FORMAT).chars) is None, pattern
    for pattern in (
        *(r"^(?<time>[^a-z]+) (?<level>(?i:info|error))\b", r"(?<time>[^t]+) (?i:error)"),
        r"(?<time>[^z]+)Z (?<level>(?i:error|warn))",
        r"(?<time>\S{10}(?:[^t]\d\d:\d\d|T\d\d:\d\d:\d\d)) ?(?i:.*)",
    ):
        time_format = parse_time_format("yyyy-MM-dd'T'HH:mm:ss")
        assert place(pattern, time_format.chars) is None, pattern


def test_a_place_is_where_every_match_has_its_time() -> None:
    """Random patterns and all short lines of a few characters, compared with Python's matcher."""
    rng, found = random.Random(20170730), 0
    lines = ["".join(chars) for n in range(7) for chars in itertools.product("1T x", repeat=n)]
    shape: Shape = [DIGIT, frozenset("T"), DIGIT]
    for _ in range(share(6_000)):
        pattern = _random_pattern(rng)
        try:
            parsed = parse_pattern(pattern)
        except ValueError:
            continue
        at = place_of(parsed.parts, "time", shape)
        if at is None:
            continue
        found += bool(at.behind)
        for match in filter(None, map(parsed.python.match, lines)):
            line, behind = match.string, match.string[at.before + 3 :][:1]
            there = line[at.before : at.before + 3] == "1T1"
            by_place = there and (not at.behind or behind in at.behind)
            assert by_place == (match["time"] == "1T1"), (pattern, line)
            if by_place:
                assert match.span("time") == (at.before, at.before + 3), (pattern, line)
    assert found > 50


def _random_pattern(rng: random.Random) -> str:
    """Something before a group, the group, and something behind it."""
    before = rng.choice(["", "", "x", " ", r"[x ]", "^", "(?i)"])
    inside = "".join(_random_part(rng) for _ in range(rng.randrange(1, 5)))
    behind = rng.choice([" ", " ", "x", "T", r"\s+", "[x ]", "", "x*", "(?: |x)"])
    rest = rng.choice(["", "x", r"\d?", ".*", "(?i:X)"])
    return f"{before}(?<time>{inside}){behind}{rest}"


def _random_part(rng: random.Random) -> str:
    ones = r"\d \S 1 T . [1T] [^\x20] [^t] [^a-z] (?:1|T) (?:1T|x) (?=1) (?i:t) (?i:[^T])"
    one = rng.choice(ones.split())
    many = ["", "", "", "+", "*", "?", "*?", "++", "{1,3}", "{3}"]
    return one + ("" if one.startswith("(?=") else rng.choice(many))
