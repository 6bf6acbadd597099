"""Values as a person reads them.

Counts have separators between thousands. Offsets have none, so that they can be pasted into the
next command. Text that came from outside is shown with everything unprintable escaped: a dead
letter must not be able to move the cursor.
"""

from datetime import UTC, datetime
from typing import Final

ABSENT: Final = "-"


def number(value: int | None) -> str:
    """``1,234``; a dash for nothing."""
    return ABSENT if value is None else f"{value:,}"


def moment(value: datetime | None) -> str:
    """``2026-11-20 14:00:00 UTC``; a dash for nothing."""
    return ABSENT if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def instant(value: datetime | None) -> str | None:
    """``2026-11-20T14:00:00.123456Z``, as JSON carries it; None for nothing."""
    if value is None:
        return None
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def span(from_offset: int, until_offset: int) -> str:
    """``[300, 310)``."""
    return f"[{from_offset}, {until_offset})"


def printable(text: str | None) -> str:
    """The text with whatever does not print escaped; a dash for nothing."""
    if text is None:
        return ABSENT
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def printable_bytes(value: bytes | None) -> str:
    """Bytes as text where they are UTF-8, escaped where they are not or do not print."""
    if value is None:
        return ABSENT
    # Backslashes first, so that an escape can be told from the same characters in the record.
    doubled = value.replace(b"\\", b"\\\\")
    return printable(doubled.decode("utf-8", errors="backslashreplace"))


def shortened(text: str, width: int) -> str:
    """The text, cut with an ellipsis where it is wider than ``width`` characters."""
    return text if len(text) <= width else text[: width - 1] + "…"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
