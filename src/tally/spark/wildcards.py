"""Values of a filter, in which ``*`` stands for any characters, as Spark expressions."""

import re

from pyspark.sql import Column


def matches_value(text: Column, value: str) -> Column:
    """Whether a field is a value of a filter.

    Args:
        text: String, valid UTF-8, not null.
        value: As configured.
    """
    value = _simplified(value)
    between = [part for part in value.split("*") if part]
    if len(between) <= 1 or value.count("*") == 1:  # Spark compares these without a pattern
        return text.like(re.sub(r"([\\%_])", r"\\\1", value).replace("*", "%"))
    return text.rlike(wildcard_pattern(value))


def wildcard_pattern(value: str) -> str:
    """A pattern for Java's matcher, which looks at a text once for each part of the value.

    Each part is found at its first place behind the one before, and the matcher never comes back
    to try a later one: if the rest fails behind the first place, it fails behind all.
    """
    first, *middle, last = map(_quoted, _simplified(value).split("*"))
    return rf"(?s)\A{first}{''.join(f'(?>.*?{part})' for part in middle)}.*{last}\z"


def _simplified(value: str) -> str:
    return re.sub(r"\*+", "*", value)


def _quoted(part: str) -> str:
    """Escaped for Java: a backslash may stand before anything but a letter or a digit."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", part)
