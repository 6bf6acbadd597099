"""Values as text for people.

Counts have separators between thousands. Offsets have none, so that they can be pasted into the
next command.
"""

from datetime import UTC, datetime

from tally.formatting import ABSENT, continued, plural


def health_label(health: str) -> str:
    """A health as a terminal names it: a failure is to be seen."""
    return "FAIL" if health == "fail" else str(health)


def number(value: int | None) -> str:
    """``1,234``; a dash for nothing."""
    return ABSENT if value is None else f"{value:,}"


def moment(value: datetime | None, *, zone: str = " UTC") -> str:
    """``2026-11-20 14:00:00 UTC``; a dash for nothing.

    Args:
        value: With its zone.
        zone: What follows; empty where a column's header says it.
    """
    return ABSENT if value is None else f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}{zone}"


def sums(
    records: int, matched: int | None, malformed: int | None, continuations: int | None
) -> str:
    """``5 records, 3 matched, 1 malformed``, and how many were left out as continuation lines."""
    return (
        f"{plural(records, 'record')}, {number(matched)} matched, {number(malformed)} malformed"
        f"{continued(continuations)}"
    )


def shortened(text: str, width: int) -> str:
    """The text, cut with an ellipsis where it is wider than ``width`` characters."""
    return text if len(text) <= width else text[: width - 1] + "…"
