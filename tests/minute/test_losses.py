"""Losses: what blocks a partition, what an operator accepts, and how counting continues."""

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tally.context import Reader
from tally.counting.plan import Planned
from tally.errors import RecordsMissingError, StartInFutureError, UsageError
from tally.ledger import batches
from tally.ledger.decisions import decide_losses, find_losses
from tally.planning.blocks import BlockReason, blocked_error
from tally_local.stack.server import Part
from tests.minute import steps
from tests.minute.steps import AT, AT_LATER, ERROR, LATER
from tests.world import World, run_batch

pytestmark = pytest.mark.stack


def leave_a_hole(world: World) -> None:
    """Three records and the marker of their transaction: an offset without a record."""
    steps.produce_transaction(world, [ERROR] * 3)


def find_the_hole(world: World) -> None:
    """Both partitions have data, the first has a hole, and a run has found it."""
    leave_a_hole(world)
    world.produce([ERROR] * 2, 0)
    world.produce([ERROR] * 5, 1)
    with pytest.raises(RecordsMissingError, match=r"5 records of 6.*sparse"):
        world.run(world.planned().batch_id)


def test_a_hole_blocks_its_partition_and_the_others_go_on(world: World) -> None:
    """The batch is abandoned with the reason; the next one counts the healthy partition."""
    find_the_hole(world)
    assert world.batches()[0]["state"] == "abandoned"
    assert "5 records of 6" in world.batches()[0]["reason"]
    planned = world.plan()
    assert steps.reasons(planned) == [(0, BlockReason.RECORDS_MISSING)]
    assert world.run(planned.batch_ids[0]).committed
    assert steps.audited(world) == {AT: 5}
    assert steps.losses(world) == [(0, 0, 6, "missing", "open")]
    assert world.plan().batches == ()

    world.produce([LATER] * 4, 0)
    steps.accept(world)
    planned = world.plan()
    assert planned.blocks == ()
    assert steps.ranges(planned) == [(0, 0, 6)]
    assert world.run(planned.batch_ids[0]).committed
    assert steps.audited(world) == {AT: 10}
    assert world.minute() is not None
    assert world.counts() == {AT: 10, AT_LATER: 4}
    leave_a_hole(world)
    with pytest.raises(RecordsMissingError):
        world.minute()


def test_a_hole_that_is_found_by_an_older_attempt_blocks_nothing(world: World) -> None:
    """Only who owns the batch abandons it."""
    leave_a_hole(world)
    batch_id = world.planned().batch_id

    def open_late() -> AbstractContextManager[Reader]:
        world.database.run(lambda tx: batches.claim(tx, [batch_id], "another"))
        return nullcontext(world.reader)

    with pytest.raises(RecordsMissingError):
        run_batch(world.context(open_reader=open_late), batch_id)
    assert world.batches()[0]["state"] == "planned"
    assert steps.losses(world) == []


def test_a_truncated_partition_stays_blocked_until_an_operator_accepts(own_world: World) -> None:
    """Also when it has grown again: other records have the offsets that were counted."""
    own_world.produce([ERROR] * 3)
    log = next(
        own_world.stack.layout.overlay.parent.rglob(f"{own_world.topic}-0/00000000000000000000.log")
    )
    size = log.stat().st_size
    own_world.produce([ERROR] * 2)
    assert own_world.minute() is not None
    # As a broker does that comes back without its last records.
    own_world.stack.processes.kill(Part.KAFKA)
    os.truncate(log, size)
    for file in (*log.parent.glob("*index"), *log.parent.glob("leader-epoch-checkpoint")):
        file.unlink()
    own_world.bring_back(Part.KAFKA)
    own_world.admin.list_topics(timeout=30)
    assert own_world.end(0, read_committed=True) == 3

    assert steps.reasons(own_world.plan()) == [(0, BlockReason.TOPIC_TRUNCATED)]
    assert steps.losses(own_world) == [(0, 3, 5, "truncated", "open")]
    own_world.produce([LATER] * 4)
    assert steps.reasons(own_world.plan()) == [(0, BlockReason.TOPIC_TRUNCATED)]

    steps.accept(own_world)
    planned = own_world.plan()
    assert planned.blocks == ()
    assert own_world.run(planned.batch_ids[0]).committed
    assert steps.audited(own_world) == {AT: 5, AT_LATER: 2}
    assert own_world.offsets()[0] == (0, 7)


def test_an_end_behind_the_ledger_blocks_until_it_is_accepted_and_has_grown(world: World) -> None:
    """Once it is accepted there is nothing to read below the offset, and nothing to decide."""
    count_past_the_end(world, 9)
    steps.accept(world)
    assert world.plan().blocks == ()
    world.produce([ERROR] * 2)
    assert world.plan() == Planned(
        pipeline=world.name, dry_run=False, batches=(), resumed=False, blocks=(), abandoned=()
    )
    world.produce([ERROR] * 4)
    planned = world.plan()
    assert steps.ranges(planned) == [(0, 9, 11)]
    assert world.run(planned.batch_ids[0]).committed
    steps.set_position(world, 15)
    assert steps.reasons(world.plan()) == [(0, BlockReason.TOPIC_TRUNCATED)]
    assert steps.losses(world)[-1] == (0, 11, 15, "truncated", "open")


def count_past_the_end(world: World, next_offset: int) -> None:
    """The ledger has counted past Kafka's end at 5, and a plan has recorded the truncation."""
    world.plan()
    world.produce([ERROR] * 5)
    steps.set_position(world, next_offset)
    assert steps.reasons(world.plan()) == [(0, BlockReason.TOPIC_TRUNCATED)]


def test_a_loss_that_has_become_another_is_another_decision(world: World) -> None:
    count_past_the_end(world, 9)
    with world.database.transaction(read_only=True) as tx:
        seen = find_losses(tx, world.name, only_open=True)
    for start, cause in (4, "truncated"), (5, "expired"):
        world.execute(
            "update lost_range l join topic_incarnation i using (incarnation_id)"
            " set l.from_offset = %s, l.cause = %s where i.pipeline = %s",
            (start, cause, world.name),
        )
        with pytest.raises(UsageError, match="not what you saw"):
            world.database.run(
                lambda tx: decide_losses(
                    tx, world.name, seen, accept=True, by="an operator", reason="a test"
                )
            )
        assert steps.losses(world) == [(0, start, 9, cause, "open")]


def test_a_new_topic_whose_start_has_not_come_leaves_the_others_alone(world: World) -> None:
    """Its first offset is unknown. Alone it has an error of its own, and nothing is recorded."""
    start = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    world.produce([ERROR] * 2)
    world.configure(start=start)
    planned = world.plan()
    assert isinstance(blocked_error(world.name, planned.blocks), StartInFutureError)
    assert (planned.batches, world.offsets()) == ((), {})

    world.configure(start="earliest")
    assert world.minute() is not None
    world.produce([ERROR] * 3)
    world.create_topic(1, f"{world.topic}-new")
    world.configure(topics=[world.topic, f"{world.topic}-new"], start=start)
    assert steps.reasons(world.plan()) == [(None, BlockReason.START_IN_FUTURE)]
    assert world.run(world.planned().batch_id).committed
    assert world.counts() == {AT: 5}


def test_a_loss_of_another_partition_with_the_same_number_is_not_decided(world: World) -> None:
    """After a restore numbers are handed out again."""
    world.plan()
    for number in (0, 1):
        world.produce([ERROR] * 4, number)
        world.delete_records(number, 2)
    world.plan()
    with world.database.transaction(read_only=True) as tx:
        (first, second) = find_losses(tx, world.name, only_open=True)
    for other in (
        replace(first, range=second.range),
        replace(first, detected_at=first.detected_at - timedelta(seconds=1)),
    ):
        with world.database.transaction() as tx, pytest.raises(UsageError, match="any more"):
            decide_losses(tx, world.name, [other], accept=True, by="me", reason="a test")
    assert [loss[-1] for loss in steps.losses(world)] == ["open", "open"]
