"""Values as text for people.

Counts have separators between thousands. Offsets have none, so that they can be pasted into the
next command.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from tally.app.health import Health
from tally.formatting import ABSENT

HEALTH_LABELS: Final[Mapping[Health, str]] = {
    Health.OK: "ok",
    Health.UNKNOWN: "unknown",
    Health.WARN: "warn",
    Health.FAIL: "FAIL",
    Health.SKIP: "skip",
}


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


def shortened(text: str, width: int) -> str:
    """The text, cut with an ellipsis where it is wider than ``width`` characters."""
    return text if len(text) <= width else text[: width - 1] + "…"
