"""The clock: one moment, told in two ways."""

from datetime import UTC, datetime

import pytest

from tally import clock

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_the_ledgers_time_is_that_of_the_clock_without_its_zone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever moves ``now`` moves both."""
    monkeypatch.setattr(clock, "now", lambda: NOON)
    assert clock.utc_now() == datetime(2026, 11, 20, 12)  # noqa: DTZ001 - as MySQL takes it


def test_the_clock_says_its_zone() -> None:
    """UTC, whatever the machine's own is."""
    assert clock.now().tzinfo is UTC
    assert clock.utc_now().tzinfo is None
