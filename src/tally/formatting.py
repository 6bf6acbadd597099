"""Numbers, times and text from outside, as people read them.

Text that came from outside is shown with everything unprintable escaped: a dead letter must not be
able to move a terminal's cursor.
"""

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

ABSENT: Final = "-"
"""Printed for a missing value."""

REASON_MAX: Final = 1000
"""Characters of a reason or a request: the width of the ledger's columns."""

_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")


def plural(count: int, noun: str) -> str:
    """``1 batch``, ``2 batches``, ``1,000 records``."""
    suffix = "es" if noun.endswith("ch") else "s"
    return f"{count:,} {noun}{'' if count == 1 else suffix}"


def first_of(items: Sequence[object], most: int) -> str:
    """``a, b and 3 more``: the first of several, and how many the others are."""
    more = len(items) - most
    return ", ".join(map(str, items[:most])) + (f" and {more:,} more" if more > 0 else "")


def time_span(first: str | None, last: str | None) -> str:
    """``2026-11-20 14:05``, or ``2026-11-20 14:05 to 2026-11-20 14:09``."""
    return f"{first}" if first == last else f"{first} to {last}"


def continued(continuations: int | None) -> str:
    """``, 12 left out as continuation lines``, after other sums of records; '' without any."""
    return f", {continuations:,} left out as continuation lines" if continuations else ""


def printable(text: str | None) -> str:
    """The text with unprintable characters escaped; a dash for None."""
    if text is None:
        return ABSENT
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_bytes(value: bytes | None) -> str:
    """Bytes as UTF-8 text; whatever is not UTF-8 or not printable is escaped. A dash for None."""
    if value is None:
        return ABSENT
    # Backslashes first, so that an escape differs from the same characters in the record.
    doubled = value.replace(b"\\", b"\\\\")
    return printable(doubled.decode("utf-8", errors="backslashreplace"))


def inline_toml(value: Any) -> str:
    """A value as TOML writes it on one line.

    Args:
        value: A mapping with text for keys, a sequence, a boolean, a finite number or a text;
            anything else by its text.
    """
    if isinstance(value, Mapping):
        keys = [
            f"{key if _BARE_KEY.fullmatch(key) else _toml_text(key)} = {inline_toml(of)}"
            for key, of in value.items()
        ]
        return f"{{ {', '.join(keys)} }}" if keys else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(inline_toml, value))}]"
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return _toml_text(str(value))


def _toml_text(text: str) -> str:
    if "\\" in text and "'" not in text and text.isprintable():
        return f"'{text}'"  # as it is: the backslashes of a pattern stay readable
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)


def close_to(name: str, known: Iterable[str]) -> str:
    """``; did you mean …?`` where one of the known names is close, else nothing."""
    found = closest(name, known)
    return f"; did you mean {found}?" if found else ""


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that is probably meant; None when none is close."""
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.75)), None)
