"""The machine's clock, the manual clock of tests, and times in the ledger."""

from datetime import UTC, datetime, timedelta

import pymysql

from tally.clock import SystemClock
from tally.mysql.transactions import Transaction
from tally.testing.clock import ManualClock

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_the_ledgers_time_is_that_of_the_clock_without_its_zone() -> None:
    """The ledger's times come from the clock that was handed in; the machine's is in UTC."""
    clock = ManualClock(NOON)
    tx = Transaction(pymysql.connect(defer_connect=True), clock)
    assert tx.now() == datetime(2026, 11, 20, 12)  # noqa: DTZ001 - as MySQL takes it
    clock.sleep(60)
    assert tx.now() == datetime(2026, 11, 20, 12, 1)  # noqa: DTZ001
    assert SystemClock().now().tzinfo is UTC


def test_the_clock_of_a_test_moves_only_by_sleeping_or_setting_it() -> None:
    """A sleep moves both of its times, as a real one does; a jump only the wall clock."""
    clock = ManualClock(NOON)
    clock.sleep(5)
    clock.jump(timedelta(hours=-1))
    assert clock.now() == NOON + timedelta(seconds=5, hours=-1)
    assert clock.monotonic() == 5
