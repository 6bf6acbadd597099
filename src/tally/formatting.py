"""Numbers, times and text from outside, as people read them.

Text that came from outside is shown with everything unprintable escaped: a dead letter must not be
able to move a terminal's cursor.
"""

from typing import Final

ABSENT: Final = "-"
"""Printed for a missing value."""


def plural(count: int, noun: str) -> str:
    """``1 batch``, ``2 batches``, ``1,000 records``."""
    suffix = "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{'' if count == 1 else suffix}"


def time_span(first: str | None, last: str | None) -> str:
    """``2026-11-20 14:05``, or ``2026-11-20 14:05 to 2026-11-20 14:09``."""
    return f"{first}" if first == last else f"{first} to {last}"


def printable(text: str | None) -> str:
    """The text with unprintable characters escaped; a dash for None."""
    if text is None:
        return ABSENT
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def printable_bytes(value: bytes | None) -> str:
    """Bytes as UTF-8 text; whatever is not UTF-8 or not printable is escaped. A dash for None."""
    if value is None:
        return ABSENT
    # Backslashes first, so that an escape can be told from the same characters in the record.
    doubled = value.replace(b"\\", b"\\\\")
    return printable(doubled.decode("utf-8", errors="backslashreplace"))


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
