"""How long what waits in Kafka is still kept."""

from datetime import UTC, datetime, timedelta
from typing import cast

import pytest

from tally.app.status import StatusView
from tally.app.waiting import WaitingPartition, WaitingView

NOW = datetime(2026, 11, 20, 14, 5, tzinfo=UTC)


def waits(topic: str, written_s: float, expires_s: float | None) -> WaitingPartition:
    """A record that was written so long ago, and expires so much later than now."""
    return WaitingPartition(
        topic=topic,
        partition=0,
        written_at=NOW - timedelta(seconds=written_s),
        expires_at=None if expires_s is None else NOW + timedelta(seconds=expires_s),
    )


def test_what_is_left_is_a_share_of_the_retention() -> None:
    """1 when it was written, 0 when it may be deleted; none without a retention."""
    times = ((0, 100), (75, 25), (150, -50), (10, None), (0, 0))
    shares = [waits("a", *time).retention_left(NOW) for time in times]
    assert shares == [1, 0.25, -0.5, None, None]


def test_the_smallest_share_is_measured() -> None:
    """Not the oldest record against the first end: topics are kept for different times."""
    week_s, hour_s = 7 * 86_400.0, 3_600.0
    oldest = (
        waits("b", 5 * 86_400, week_s - 5 * 86_400),
        waits("a", 300, hour_s - 300),
        waits("c", 300, None),
    )
    status = cast("StatusView", None)  # not looked at
    view = WaitingView(asked_at=NOW, status=status, oldest=oldest, times_error=None)
    assert view.retention_left == pytest.approx(2 / 7)
