"""Pruning: the ledger gets smaller, and the audit still proves the result."""

from datetime import timedelta

import pytest

from tally.errors import ReplayRefusedError
from tally.ledger.batches import abandon
from tally.pipeline.prune import Pruned, prune
from tally.pipeline.recount import recount
from tally.pipeline.replay import request_replay, run_replay
from tally.pipeline.replay_plan import preview_replay
from tally.planning.replay_request import BoundsAsked
from tests.minute.test_losses import accept
from tests.world import World

pytestmark = pytest.mark.stack

ERROR = "2017-07-30 14:09:08 ERROR some message"
LATER = "2017-07-30 15:00:00 ERROR some message"
COUNTS = {"2017-07-30 14:09": 5, "2017-07-30 15:00": 4}


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
    """Only whole segments before Kafka's first offset; the audit holds before and after."""
    count_four_batches(world)
    world.delete_records(0, 6)
    done = pruned(world)
    assert (done.partitions, done.segments) == (1, 2)
    assert segments(world) == [(0, 5, "folded"), (5, 8, "live"), (8, 10, "live")]
    assert world.counts() == COUNTS
    assert world.audit().holds
    assert world.audit().records == 10
    folded = world.rows("select * from folded_count where pipeline = %s", (world.name,))
    assert [row["log_count"] for row in folded] == [4, 1]
    assert len(world.batches()) == 3  # the two that were folded are one now


@pytest.mark.parametrize(("earliest", "folded"), [(4, 1), (5, 2), (7, 2), (8, 3)])
def test_a_segment_is_folded_once_kafka_has_lost_its_last_record(
    world: World, earliest: int, folded: int
) -> None:
    """Segments end at 3, 5 and 8: one whose last offset Kafka still holds is left alone."""
    count_four_batches(world)
    world.delete_records(0, earliest)
    assert pruned(world).segments == folded
    assert world.audit().holds


def test_folding_continues_from_what_was_folded(world: World) -> None:
    """Adjacent segments become one range, and a second prune folds nothing."""
    count_four_batches(world)
    world.delete_records(0, 5)
    pruned(world)
    world.delete_records(0, 10)
    pruned(world)
    assert segments(world) == [(0, 10, "folded")]
    assert world.rows(
        "select sum(log_count) as n from folded_count where pipeline = %s", (world.name,)
    ) == [{"n": 9}]
    assert world.dead_letters() == []
    assert world.counts() == COUNTS
    assert world.audit().holds
    assert pruned(world) == Pruned(partitions=0, segments=0, rows=0)
    world.produce([ERROR])
    assert world.minute() is not None
    assert world.audit().holds


def test_what_is_young_or_still_held_is_left_alone(world: World) -> None:
    """A dry run reports what it would do and changes nothing."""
    count_four_batches(world)
    assert pruned(world).segments == 0
    world.delete_records(0, 10)
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
        request_replay(
            world.context(),
            preview_replay(
                world.context(), world.name, BoundsAsked(from_offset=2, partitions=(0,))
            ),
            reason="a test",
        )
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


def test_what_a_planned_replay_is_to_replace_is_left_to_it(world: World) -> None:
    """Also when Kafka loses it under the replay."""
    count_four_batches(world)
    shown = preview_replay(world.context(), world.name, BoundsAsked())
    request_replay(world.context(), shown, reason="a test")
    world.delete_records(0, 10)
    assert pruned(world).segments == 0


def test_replaced_counts_are_forgotten(world: World) -> None:
    """Repeated replays of a range leave one segment and one batch."""
    count_four_batches(world)
    for _ in range(3):
        shown = preview_replay(world.context(), world.name, BoundsAsked())
        requested = request_replay(world.context(), shown, reason="a test")
        list(run_replay(world.context(world.reader), requested.replay_id))
    assert len(segments(world)) == 7
    pruned(world)
    assert segments(world) == [(0, 10, "live")]
    assert len(world.batches()) == 1
    assert world.counts() == COUNTS
    assert world.audit().holds


def test_abandoned_ranges_are_forgotten_once_they_are_counted(world: World) -> None:
    """Up to the committed offset itself; what is beyond it, an adoption may record as lost."""
    world.produce([ERROR] * 3)
    abandoned = [planned_and_abandoned(world)]
    assert world.minute() is not None
    world.produce([ERROR] * 2)
    abandoned.append(planned_and_abandoned(world))
    pruned(world)
    assert segments(world) == [(0, 3, "live"), (3, 5, "abandoned")]
    kept = {batch["batch_id"] for batch in world.batches()}
    assert kept & set(abandoned) == {abandoned[1]}


def planned_and_abandoned(world: World) -> int:
    """A batch that was planned and then abandoned."""
    batch = world.plan().batch
    assert batch is not None
    world.database.run(lambda tx: abandon(tx, batch.batch_id, by="a test", reason="a test"))
    return batch.batch_id


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
    assert world.counts() == {"2017-07-30 14:09": 4}
    assert world.audit().holds
