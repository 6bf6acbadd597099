"""Patterns of what is never stored: which are taken, and why others are refused."""

import pytest

from tally.lines.redaction import parse_redaction


@pytest.mark.parametrize(
    ("pattern", "java"),
    [
        (r"\d{13,19}", r"\d{13,19}"),
        (r"\d{13}\d*+", r"\d{13}\d*+"),
        (r"(?i:bearer) [\w.~+/=-]++", r"(?i:bearer) [\w.~+/=-]++"),
        (r"[\w.+-]{1,64}@[\w.-]++", r"[\w.+-]{1,64}@[\w.-]++"),
        (r"pin=(?=\d)\d{4}", r"pin=(?=\d)\d{4}"),
    ],
)
def test_a_pattern_with_a_bound_is_taken(pattern: str, java: str) -> None:
    assert parse_redaction(pattern) == java


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (r"\d+", "give each repeat a bound"),
        (r"\d++x", "a possessive one needs none"),
        (r"[\w.]{1,64}@(?>[a-z]{1,63}\.){1,100}", "may look at 6,465 characters"),
        (r"(?=.*card)\w", "parts that can share a text in many ways"),
        (r"\w{1,500}[\w-]{1,500}@", "parts that can share a text in many ways"),
        (r"\d{0,9}", "nothing to replace"),
        ("", "is empty"),
        (r"(?=\d)", "nothing to replace"),
        ("né", "no ASCII"),
        (r"(\d{4}", "no regular expression"),
        (r"(?<card>\d{13})", "names a group, 'card'"),
    ],
)
def test_a_pattern_without_one_is_refused(pattern: str, said: str) -> None:
    """A matcher that looks for it at each byte of a long line would never end."""
    with pytest.raises(ValueError, match=said):
        parse_redaction(pattern)
