"""Ranges that touch do not overlap: what concerns one of them leaves its neighbours alone."""

import pytest

from tally.ledger.replay_runs import standing_for
from tally.ledger.tiles import first_whole, tiles_of
from tally.pipeline.replay import replan_batch, request_replay
from tally.pipeline.replay_plan import preview_replay
from tally.planning.replay_request import BoundsAsked, Request
from tests.airflow import stand_in
from tests.cli.conftest import LINE, commit
from tests.minute.test_replay import asked, lose
from tests.world import World

pytestmark = pytest.mark.stack


@pytest.fixture
def thirds(world: World) -> World:
    """Three segments that touch: [0, 10), [10, 20) and [20, 30) of partition 0."""
    for _ in range(3):
        world.produce([LINE] * 10, 0)
        commit(world)
    return world


def incarnation(world: World) -> int:
    """The ledger's key of the topic."""
    return int(world.segments()[0]["incarnation_id"])


def replay(world: World, what: Request) -> list[int]:
    """Request a replay; returns its batches."""
    shown = preview_replay(world.context(), world.name, what)
    request_replay(world.context(), shown, reason="a test")
    return [b["batch_id"] for b in world.batches() if b["state"] == "planned"]


def add_loss(world: World, partition: int, start: int, until: int, cause: str) -> None:
    """Record an accepted loss."""
    world.execute(
        "insert into lost_range (incarnation_id, partition_id, from_offset, until_offset, cause,"
        " state, detected_at, decided_at, decided_by, reason)"
        " values (%s, %s, %s, %s, %s, 'accepted', now(), now(), 'an operator', 'gone')",
        (incarnation(world), partition, start, until, cause),
    )


def test_a_range_has_the_tiles_that_overlap_it(thirds: World) -> None:
    """Segments and accepted losses beside it are not among them."""
    for start in (0, 10, 20):
        add_loss(thirds, 1, start, start + 10, "expired")
    with thirds.database.transaction(read_only=True) as tx:
        for partition in (0, 1):
            where = thirds.partition(partition)
            (tile,) = tiles_of(tx, incarnation(thirds), where, 10, 20)
            assert (tile.range.from_offset, tile.range.until_offset) == (10, 20)
        assert first_whole(tx, incarnation(thirds), thirds.partition(0), 10) == 10


def test_a_segment_with_an_accepted_hole_is_replaced_alone(thirds: World) -> None:
    """Not so those that the hole only touches."""
    add_loss(thirds, 0, 10, 12, "missing")
    add_loss(thirds, 0, 18, 20, "missing")
    with thirds.database.transaction(read_only=True) as tx:
        tiles = tiles_of(tx, incarnation(thirds), thirds.partition(0), 0, 30)
    assert [tile.alone for tile in tiles] == [False, True, False]


def test_a_batch_that_was_replanned_is_counted_by_its_own_replacement(thirds: World) -> None:
    """Later batches of the same replay that count the ranges beside it are other tasks'."""
    thirds.configure(max_records_per_partition=10)
    first, second, third = replay(thirds, BoundsAsked())
    (instead_of_first,) = replan_batch(thirds.context(), first)
    (instead_of_second,) = replan_batch(thirds.context(), second)
    with thirds.database.transaction(read_only=True) as tx:
        assert standing_for(tx, first) == [instead_of_first]
        assert standing_for(tx, second) == [instead_of_second]
        assert standing_for(tx, third) == [third]


def test_a_replay_of_one_segment_is_not_overtaken_by_its_neighbours(thirds: World) -> None:
    """It replaces that segment alone, and is done when a replacement is committed."""
    (batch_id,) = replay(thirds, asked(thirds, (10, 20)))
    (instead,) = replan_batch(thirds.context(), batch_id)
    stand_in.commit(thirds.settings, instead)
    live = [
        (s["from_offset"], s["until_offset"], s["matched"])
        for s in thirds.segments()
        if s["state"] == "live"
    ]
    assert sorted(live) == [(0, 10, 10), (10, 20, 0), (20, 30, 10)]
    (row,) = thirds.rows("select state from replay where pipeline = %s", (thirds.name,))
    assert row["state"] == "done"
    assert thirds.audit().holds


def test_losses_beside_a_range_that_came_back_stay_accepted(thirds: World) -> None:
    """And the one that was counted leaves no rest behind."""
    thirds.produce([LINE] * 30, 0)
    for start in (30, 40, 50):
        lose(thirds, start, start + 10)
    thirds.configure(max_records_per_partition=10)
    batches = replay(thirds, asked(thirds, (40, 50)))
    assert len(batches) == 1
    stand_in.commit(thirds.settings, batches[0])
    rows = thirds.rows(
        "select from_offset, until_offset, state from lost_range where incarnation_id = %s"
        " order by from_offset",
        (incarnation(thirds),),
    )
    assert [tuple(row.values()) for row in rows] == [
        (30, 40, "accepted"),
        (40, 50, "restored"),
        (50, 60, "accepted"),
    ]
    assert thirds.audit().holds
