"""Named groups whose place in a line follows from the pattern alone."""

import pytest

from tally.lines.pattern import parse_pattern
from tally.lines.places import Place


@pytest.mark.parametrize(
    ("pattern", "place"),
    [
        (r"(?<time>\d\d)", Place(0, 2)),
        (r"^\[(?<time>\d{4}-\d\d)\]$", Place(1, 7)),
        (r"a{3}\x41(?<time>\d)", Place(4, 1)),
        (r"(?:ab|cd)(?=x)(?<time>\d)", Place(2, 1)),
        (r"(?>ab)(?i:k)(?<time>[A-Z][a-z]{2})", Place(3, 3)),
        (r"(?<level>[A-Z]{4}) (?<time>\d)", Place(5, 1)),
        (r"(x)(?<time>\d)", Place(1, 1)),
    ],
)
def test_a_group_behind_parts_of_a_fixed_width_has_a_place(pattern: str, place: Place) -> None:
    """In bytes: what stands before it, and itself, is ASCII."""
    assert parse_pattern(pattern).places["time"] == place


@pytest.mark.parametrize(
    "before",
    [
        *("a?", "a*+", "a{1,2}", "(?:ab|c)", "(?<level>[A-Z]+)"),
        *(".", "[^a]", r"\W", r"\S", r"\D", "\u00e9", "[a\u4e00]", r"[\x90]", r"\x90", r"\u2028"),
        r"[\x00-\xff]",
        *(r"[a-z\xfc]", r"[a\u00fc]", r"[a-\uffff]", r"[a\u0660-\u0669]", "[a\U0001f600]"),
    ],
)
def test_a_group_behind_anything_else_has_none(before: str) -> None:
    """How many bytes stand before it depends on the line."""
    assert parse_pattern(rf"{before}(?<time>\d\d)").places.get("time") is None


@pytest.mark.parametrize(
    "pattern",
    [r"(?<time>\d\d?)", r"(?<time>.)", r"(?:(?<time>\d))?x", r"(?<time>\d)|(?<level>x)"],
)
def test_a_group_that_is_not_always_there_as_wide_has_none(pattern: str) -> None:
    """Of several widths, of any characters, in a part that may be left out."""
    assert parse_pattern(pattern).places.get("time") is None
