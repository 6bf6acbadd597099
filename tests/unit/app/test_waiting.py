"""How long what waits in Kafka is still kept."""

from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from tally.app.status import StatusView
from tally.app.waiting import WaitingPartition, WaitingView

NOW = datetime(2026, 11, 20, 14, 5, tzinfo=UTC)


def waits(topic: str, *, written_s: float, expires_s: float | None) -> WaitingPartition:
    """A record that was written so long ago, and expires so much later than now."""
    return WaitingPartition(
        topic=topic,
        partition=0,
        written_at=NOW - timedelta(seconds=written_s),
        expires_at=None if expires_s is None else NOW + timedelta(seconds=expires_s),
    )


@pytest.mark.parametrize(
    ("written_s", "expires_s", "left"),
    [(0, 100, 1), (75, 25, 0.25), (150, -50, -0.5), (10, None, None), (0, 0, None)],
)
def test_what_is_left_is_a_share_of_the_retention(
    written_s: float, expires_s: float | None, left: float | None
) -> None:
    """1 when it was written, 0 when it may be deleted."""
    one = waits("a", written_s=written_s, expires_s=expires_s)
    assert one.retention_left(NOW) == left


def test_the_smallest_share_is_measured() -> None:
    """Not the oldest record against the first end: topics are kept for different times."""
    week_s, hour_s = 7 * 86_400.0, 3_600.0
    oldest = (
        waits("b", written_s=5 * 86_400, expires_s=week_s - 5 * 86_400),
        waits("a", written_s=300, expires_s=hour_s - 300),
        waits("c", written_s=300, expires_s=None),
    )
    status = cast("StatusView", None)  # not looked at
    view = WaitingView(asked_at=NOW, status=status, oldest=oldest, times_error=None)
    assert view.retention_left == pytest.approx(2 / 7)
