"""Pruning: the ledger gets smaller, and the audit still proves the result."""

from datetime import timedelta

import pytest

from tally.errors import ReplayRefusedError
from tally.pipeline.prune import Pruned, prune
from tally.pipeline.recount import recount
from tally.planning.replay_request import BoundsAsked
from tests.minute.steps import (
    AT,
    AT_LATER,
    ERROR,
    LATER,
    abandoned,
    accept,
    audited,
    count,
    planned_id,
)
from tests.minute.test_replay import replay, request
from tests.world import World

pytestmark = pytest.mark.stack

COUNTS = {AT: 5, AT_LATER: 4}


def count_four_batches(world: World) -> None:
    """[0, 3), [3, 5), [5, 8) and [8, 10) of the first partition, with a malformed line."""
    for lines in ([ERROR] * 3, [ERROR, LATER], [LATER] * 3, [ERROR, "what is this"]):
        world.produce(lines)
        assert world.minute() is not None
    assert world.counts() == COUNTS


def pruned(world: World, *, days: int = 0, dry_run: bool = False) -> Pruned:
    """Prune what was committed at least so many days ago."""
    older_than = timedelta(days=days)
    return prune(world.context(), world.name, older_than, lambda *_: None, dry_run=dry_run)


def segments(world: World) -> list[tuple[int, int, str]]:
    """Range and state of live and folded segments, in order."""
    return sorted(
        (s["from_offset"], s["until_offset"], s["state"])
        for s in world.segments()
        if s["partition_id"] == 0
    )


def test_what_kafka_has_lost_is_folded_and_the_result_stays(world: World) -> None:
    """Only whole segments before Kafka's first offset; later ones join what was folded before."""
    count_four_batches(world)
    world.delete_records(0, 6)
    done = pruned(world)
    assert (done.partitions, done.segments) == (1, 2)
    assert segments(world) == [(0, 5, "folded"), (5, 8, "live"), (8, 10, "live")]
    assert audited(world) == COUNTS
    assert world.audit().records == 10
    assert folded(world) == [4, 1]
    assert len(world.batches()) == 3  # the two that were folded are one now
    world.delete_records(0, 10)
    pruned(world)
    assert segments(world) == [(0, 10, "folded")]
    assert sum(folded(world)) == 9
    assert world.dead_letters() == []
    assert audited(world) == COUNTS
    assert pruned(world) == Pruned(partitions=0, segments=0, rows=0)
    count(world, [ERROR])
    assert world.audit().holds


def folded(world: World) -> list[int]:
    """The folded counts, in order of minutes."""
    found = world.rows("select * from folded_count where pipeline = %s", (world.name,))
    return [row["log_count"] for row in found]


def test_a_segment_is_folded_once_kafka_has_lost_its_last_record(world: World) -> None:
    """Segments end at 3, 5 and 8: one whose last offset Kafka still holds is left alone."""
    count_four_batches(world)
    for earliest, more in ((2, 0), (4, 1), (5, 1), (7, 0), (8, 1)):
        world.delete_records(0, earliest)
        assert (earliest, pruned(world).segments) == (earliest, more)
        assert world.audit().holds


def test_what_is_young_or_needed_is_left_alone(world: World) -> None:
    """What Kafka holds, or a replay is to replace; a dry run tells what there is and keeps it."""
    count_four_batches(world)
    assert pruned(world).segments == 0
    request(world, BoundsAsked())
    world.delete_records(0, 10)
    assert pruned(world).segments == 0
    abandoned(world, world.batches()[-1]["batch_id"])
    assert pruned(world, days=1).segments == 0
    before = world.segments()
    assert pruned(world, dry_run=True).segments == 4
    assert world.segments() == before


def test_what_was_folded_is_never_reprocessed(world: World) -> None:
    """A replay of it is refused, and the recount reports it as not checkable."""
    count_four_batches(world)
    world.delete_records(0, 5)
    pruned(world)
    with pytest.raises(ReplayRefusedError, match="pruned"):
        request(world, BoundsAsked(from_offset=2, partitions=(0,)))
    counted = recount(world.context(world.reader), world.name, lambda *_: None)
    assert counted.violations == ()
    assert [(str(u.range).split(" ", 1)[1], u.cause) for u in counted.unchecked] == [
        ("[0, 5)", "pruned")
    ]


def test_prune_leaves_a_topic_that_was_created_again_alone(world: World) -> None:
    """Kafka's first offset of the new topic says nothing about the old one."""
    count_four_batches(world)
    world.delete_topic()
    world.create_topic(2)
    world.produce([ERROR] * 10)
    world.delete_records(0, 10)
    assert pruned(world) == Pruned(partitions=0, segments=0, rows=0)


def test_folded_counts_that_were_touched_are_found(world: World) -> None:
    """Also when the result was changed to match."""
    count_four_batches(world)
    world.delete_records(0, 10)
    pruned(world)
    world.execute(
        f"update folded_count f join `{world.name}` e using (log_time)"
        " set f.log_count = f.log_count + 1, e.log_count = e.log_count + 1"
        " where f.pipeline = %s and minute(log_time) = 9",
        (world.name,),
    )
    (finding,) = world.audit().violations
    assert (finding.check, finding.detail) == ("segment", "matched 9, contributions add up to 10")


def test_replaced_counts_are_forgotten(world: World) -> None:
    """Repeated replays of a range leave one segment and one batch."""
    count_four_batches(world)
    for _ in range(3):
        replay(world, BoundsAsked())
    assert len(segments(world)) == 7
    pruned(world)
    assert segments(world) == [(0, 10, "live")]
    assert len(world.batches()) == 1
    assert audited(world) == COUNTS


def test_abandoned_ranges_are_forgotten_once_they_are_counted(world: World) -> None:
    """Up to the committed offset itself; what is beyond it, an adoption may record as lost."""
    world.produce([ERROR] * 3)
    abandoned(world, planned_id(world))
    ran = world.minute()
    world.produce([ERROR] * 2)
    last = planned_id(world)
    abandoned(world, last)
    pruned(world)
    assert segments(world) == [(0, 3, "live"), (3, 5, "abandoned")]
    assert ran is not None
    assert [batch["batch_id"] for batch in world.batches()] == [ran.batch.batch_id, last]


def test_losses_stay_between_what_is_folded(world: World) -> None:
    """Accepted losses are never pruned: they are part of the tiling."""
    world.produce([ERROR] * 2)
    assert world.minute() is not None
    world.produce([ERROR] * 4)
    world.delete_records(0, 4)
    world.plan()
    accept(world)
    assert world.minute() is not None
    world.delete_records(0, 6)
    pruned(world)
    assert segments(world) == [(0, 2, "folded"), (4, 6, "folded")]
    assert audited(world) == {AT: 4}
