"""Pruning: the ledger gets smaller, and the audit still proves the result."""

from datetime import timedelta

import pytest

from tally.audit.recount import recount
from tally.errors import ReplayRefusedError
from tally.ledger.records import BatchRecord, list_batches
from tally.maintenance.prune import PruneView, prune
from tally.planning.replay_request import BoundsAsked
from tests.minute import steps
from tests.minute.steps import AT, AT_LATER, ERROR, LATER
from tests.minute.test_replay import replay
from tests.world import World

pytestmark = pytest.mark.stack

COUNTS = {AT: 5, AT_LATER: 4}


def count_four_batches(world: World) -> None:
    """[0, 3), [3, 5), [5, 8) and [8, 10) of the first partition, with a malformed line."""
    steps.count(world, [ERROR] * 3, [ERROR, LATER], [LATER] * 3, [ERROR, "what is this"])
    assert world.counts() == COUNTS


def pruned(world: World, *, days: int = 0, dry_run: bool = False) -> PruneView:
    older_than = timedelta(days=days)
    return prune(world.context(), world.name, older_than, dry_run=dry_run)


def segments(world: World) -> list[tuple[int, int, str]]:
    return sorted(
        (s["from_offset"], s["until_offset"], s["state"])
        for s in world.segments()
        if s["partition_id"] == 0
    )


def test_what_kafka_has_lost_is_folded_and_the_result_stays(world: World) -> None:
    """Segments end at 3, 5, 8 and 10: one whose last offset Kafka still holds is left alone."""
    count_four_batches(world)
    for earliest, more in ((2, 0), (6, 2), (7, 0)):
        world.delete_records(0, earliest)
        done = pruned(world)
        assert (earliest, done.partitions, done.segments) == (earliest, int(more > 0), more)
        assert world.audit().holds
    assert segments(world) == [(0, 5, "folded"), (5, 8, "live"), (8, 10, "live")]
    assert steps.audited(world) == COUNTS
    assert world.audit().records == 10
    assert folded(world) == [4, 1]
    assert len(world.batches()) == 3  # the two that were folded are one now
    for earliest in (8, 10):
        world.delete_records(0, earliest)
        assert pruned(world).segments == 1
    assert segments(world) == [(0, 10, "folded")]
    assert sum(folded(world)) == 9
    assert world.dead_letters() == []
    assert steps.audited(world) == COUNTS
    again = pruned(world)
    assert (again.partitions, again.segments, again.rows) == (0, 0, 0)

    world.produce([ERROR] * 4)
    world.delete_records(0, 12)
    world.plan()
    steps.accept(world)
    assert world.minute() is not None
    world.delete_records(0, 14)
    pruned(world)
    assert segments(world) == [(0, 10, "folded"), (12, 14, "folded")]
    assert steps.audited(world) == {**COUNTS, AT: COUNTS[AT] + 2}


def test_a_batch_says_that_it_lacks_what_was_pruned(world: World) -> None:
    """Its other partition has 2 of its 5 lines."""
    world.produce([ERROR] * 3, 0)
    world.produce([ERROR] * 2, 1)
    assert world.minute() is not None
    (record,) = listed(world)
    assert (record.standing, record.records, record.pruned_at) == ("committed", 5, None)
    world.delete_records(0, 3)
    assert pruned(world).segments == 1
    assert [(r.standing, r.records) for r in listed(world)] == [
        ("committed", 3),  # the folded one
        ("committed, partly pruned", 2),
    ]


def listed(world: World) -> list[BatchRecord]:
    with world.database.transaction(read_only=True) as tx:
        return list_batches(tx, world.name, limit=10)


def test_a_fold_knows_of_continuation_lines_what_all_of_it_knew(world: World) -> None:
    """Segments of earlier releases do not know of theirs: then their fold does not, either."""
    count_four_batches(world)
    for first, known in ((0, "2"), (3, "1"), (5, "null")):
        world.execute(
            "update segment join batch using (batch_id)"
            f" set continuations = {known} where pipeline = %s and from_offset = {first}",
            (world.name,),
        )
    for earliest, sum_of_fold in ((3, 2), (5, 3), (8, None)):
        world.delete_records(0, earliest)
        assert pruned(world).segments == 1
        (fold,) = [s for s in world.segments() if s["state"] == "folded"]
        assert (fold["until_offset"], fold["continuations"]) == (earliest, sum_of_fold)


def folded(world: World) -> list[int]:
    found = world.rows("select * from folded_count where pipeline = %s", (world.name,))
    return [row["log_count"] for row in found]


def test_what_is_young_or_needed_is_left_alone(world: World) -> None:
    """What Kafka holds, or a replay is to replace; a dry run tells what there is and keeps it."""
    count_four_batches(world)
    assert pruned(world).segments == 0
    world.ask_replay()
    world.delete_records(0, 10)
    assert pruned(world).segments == 0
    steps.abandoned(world, world.batches()[-1]["batch_id"])
    assert pruned(world, days=1).segments == 0
    before = world.segments()
    assert pruned(world, dry_run=True).segments == 4
    assert world.segments() == before
    # Kafka's first offset of a topic that was created again says nothing about the old one.
    world.delete_topic()
    world.create_topic(2)
    world.produce([ERROR] * 10)
    world.delete_records(0, 10)
    assert pruned(world).segments == 0
    assert segments(world) == [(a, b, "live") for a, b in ((0, 3), (3, 5), (5, 8), (8, 10))]


@pytest.mark.parametrize(
    "change", ["state = 'retired', retired_at = now()", "topic_id = 'another'"]
)
def test_what_kafka_said_of_another_generation_folds_nothing(world: World, change: str) -> None:
    """It was adopted, or the ledger restored and its keys given again, since Kafka was asked."""
    count_four_batches(world)
    world.delete_records(0, 10)
    of_pipeline = f"update topic_incarnation set {change} where pipeline = %s"

    def changed(done: int, total: int) -> None:
        if done < total:
            world.execute(of_pipeline, (world.name,))

    assert prune(world.context(), world.name, timedelta(0), progress=changed).segments == 0
    assert [state for _, _, state in segments(world)] == ["live"] * 4


def test_what_was_folded_is_never_reprocessed(world: World) -> None:
    count_four_batches(world)
    world.delete_records(0, 5)
    pruned(world)
    with pytest.raises(ReplayRefusedError, match="pruned"):
        world.ask_replay(BoundsAsked(from_offset=2, partitions=(0,)))
    counted, wrong = recount(world.context(world.reader), world.name, lambda *_: None)
    assert wrong == []
    assert [(str(u.range).split(" ", 1)[1], u.cause) for u in counted.not_checkable] == [
        ("[0, 5)", "pruned")
    ]


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
    (finding,) = world.audit().findings
    assert (finding.check, finding.detail) == ("segment", "matched 9, contributions add up to 10")


def test_replaced_counts_are_forgotten(world: World) -> None:
    """Repeated replays of a range leave one segment and one batch."""
    count_four_batches(world)
    for _ in range(3):
        replay(world)
    assert len(segments(world)) == 7
    pruned(world)
    assert segments(world) == [(0, 10, "live")]
    assert len(world.batches()) == 1
    assert steps.audited(world) == COUNTS


def test_abandoned_ranges_are_forgotten_once_they_are_counted(world: World) -> None:
    """Up to the committed offset itself; what is beyond it, an adoption may record as lost."""
    steps.abandoned(world, world.planned([ERROR] * 3).batch_id)
    ran = world.minute()
    last = world.planned([ERROR] * 2).batch_id
    steps.abandoned(world, last)
    pruned(world)
    assert segments(world) == [(0, 3, "live"), (3, 5, "abandoned")]
    assert ran is not None
    assert [batch["batch_id"] for batch in world.batches()] == [ran.batch_id, last]


def test_what_an_open_replay_has_given_up_is_not_forgotten(world: World) -> None:
    """Else it would end as done, with its last batch."""
    steps.count(world, [ERROR] * 3, [ERROR] * 3)
    world.configure(levels=["WARN"], max_records_per_partition=3)
    asked = world.ask_replay()
    given_up, left = asked.batch_ids
    steps.abandoned(world, given_up)
    pruned(world)
    world.run(left)
    assert world.counts() == {AT: 3}
    assert [r["state"] for r in world.replays()] == ["cancelled"]
    pruned(world)
    assert [b for b in world.batches() if b["batch_id"] == given_up] == []
