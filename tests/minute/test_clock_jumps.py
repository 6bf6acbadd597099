"""A clock that jumps between plan, claim and commit: the ledger counts offsets, not seconds."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tally.errors import FencedError
from tally.planning.blocks import BlockReason
from tally.testing.clock import ManualClock
from tests.minute.test_commit import assert_untouched, claimed, commit, planned, result
from tests.world import World

pytestmark = pytest.mark.stack

HOUR = timedelta(hours=1)
DECADE = timedelta(days=3653)
NONE = timedelta()


class Hand:
    """Sets Tally's clock, which otherwise does not advance."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self._begun = self.clock.now()

    def jump(self, ahead: timedelta) -> None:
        """Set it so far ahead of the start of the test, or behind it."""
        self.clock.jump(self._begun + ahead - self.clock.now())


@pytest.fixture
def hand() -> Hand:
    """The hand that moves the clock."""
    return Hand()


@pytest.fixture
def world(world: World, hand: Hand) -> World:
    """A pipeline of the test's own, with that clock."""
    return world.through(database=replace(world.database, clock=hand.clock))


@pytest.mark.parametrize(
    "jumps",
    [
        (NONE, NONE, NONE),
        (NONE, HOUR, DECADE),
        (NONE, -HOUR, -DECADE),
        (NONE, DECADE, NONE),
        (DECADE, -DECADE, DECADE),
    ],
    ids=["no jump", "forwards", "backwards", "there and back", "to and fro"],
)
def test_a_clock_that_jumps_between_plan_claim_and_commit_loses_and_doubles_nothing(
    world: World, hand: Hand, jumps: tuple[timedelta, timedelta, timedelta]
) -> None:
    """Three minutes are counted once each; a concurrent planner resumes the batch."""
    at_plan, at_claim, at_commit = jumps
    for number in range(1, 4):
        hand.jump(at_plan)
        batch = planned(world)
        hand.jump(at_claim)
        batch = claimed(world, batch)
        hand.jump(at_commit)
        again = world.plan()
        assert again.resumed
        assert again.batch == batch
        assert commit(world, batch, result(batch))
        assert not commit(world, batch, result(batch))
        assert world.counts() == {"2017-07-30 14:09": 6 * number}
        assert world.offsets() == {0: (0, 3 * number), 1: (0, 3 * number)}
    assert world.plan().batch is None
    assert world.audit().holds


@pytest.mark.parametrize("jump", [NONE, -HOUR, HOUR])
def test_the_newer_of_two_attempts_is_told_by_its_number_and_not_by_the_clock(
    world: World, hand: Hand, jump: timedelta
) -> None:
    """Also when the clock dates the newer attempt before the older one, or both alike."""
    batch = planned(world)
    older = claimed(world, batch)
    hand.jump(jump)
    newer = claimed(world, batch)
    with pytest.raises(FencedError, match="attempt 2 has replaced attempt 1"):
        commit(world, older, result(older))
    assert_untouched(world)
    assert commit(world, newer, result(newer))
    assert world.counts() == {"2017-07-30 14:09": 6}


def test_a_clock_that_jumps_forwards_under_an_attempt_lets_it_count_nothing_twice(
    world: World, hand: Hand
) -> None:
    """The attempt seems dead and its records are gone: its batch is abandoned, it is fenced."""
    batch = claimed(world, planned(world))
    world.delete_records(0, 2)
    hand.jump(DECADE)
    replanned = world.plan()
    assert replanned.abandoned
    assert [block.reason for block in replanned.blocks] == [BlockReason.RECORDS_LOST]
    with pytest.raises(FencedError, match="abandoned"):
        commit(world, batch, result(batch))
    assert world.counts() == {}
    assert replanned.batch is not None
    healthy = claimed(world, replanned.batch)
    assert commit(world, healthy, result(healthy))
    assert world.counts() == {"2017-07-30 14:09": 3}
    assert world.offsets() == {0: (0, 0), 1: (0, 3)}


def test_a_clock_that_jumps_backwards_under_an_attempt_takes_nothing_from_it(
    world: World, hand: Hand
) -> None:
    """It has read its records before Kafka lost them, so no plan abandons its batch."""
    batch = claimed(world, planned(world))
    world.delete_records(0, 2)
    hand.jump(-DECADE)
    assert world.plan().resumed
    assert commit(world, batch, result(batch))
    assert world.counts() == {"2017-07-30 14:09": 6}
    assert world.audit().holds
