"""When all is counted that Kafka had, which minutes are complete by that, and what amends them."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from tally.errors import SchemaError
from tally.ledger.progress import Progress, progress_of, see
from tally.maintenance.prune import prune
from tally.model import TopicPartition
from tally.status.measurements import of_status
from tally.status.status import Statuses
from tests.minute import steps
from tests.minute.steps import AT, AT_LATER, ERROR, LATER
from tests.minute.test_replay import add_loss
from tests.world import World, run_batch

pytestmark = pytest.mark.stack

WITH_HOST = {
    "pattern": r"(?P<time>\S+ \S+) (?P<level>\w+) (?P<host>\S+)",
    "time_format": "yyyy-MM-dd HH:mm:ss",
}


def progress(world: World) -> Progress:
    with world.database.transaction(read_only=True) as tx:
        return progress_of(tx, world.name)


def now(world: World) -> datetime:
    """The time of the ledger's server."""
    (row,) = world.rows("select utc_timestamp(6) as moment")
    return row["moment"].replace(tzinfo=UTC)  # type: ignore[no-any-return]


def states(world: World) -> dict[str, tuple[int, str, int | None]]:
    """Of each minute of the view the lines, the state, and the batch that has amended it."""
    rows = world.rows(f"select * from `{world.name}_minutes`")
    return {
        f"{row['log_time']:%Y-%m-%d %H:%M}": (
            int(row["log_count"]),
            row["state"],
            row["amended_by"],
        )
        for row in rows
    }


def counted(world: World, *lines: str, partition: int = 0) -> int:
    """The batch that counts the lines."""
    world.produce(lines, partition)
    ran = world.minute()
    assert ran is not None
    return ran.batch_id


def test_all_is_counted_through_the_moment_before_the_plan(world: World) -> None:
    """Once its batch is committed; of idle partitions, and where nothing is new, at once."""
    assert progress(world) == Progress()
    world.produce([ERROR], 0)
    before = now(world)
    batch = world.planned()
    assert progress(world) == Progress()
    planned = now(world)
    world.produce([ERROR], 0)
    world.run(batch.batch_id)
    through = progress(world).counted_through
    assert through is not None
    assert before < through < planned
    world.minute()
    assert progress(world).counted_through > through  # type: ignore[operator]
    idle = now(world)
    assert world.plan().batches == ()
    assert progress(world).counted_through > idle  # type: ignore[operator]


def test_a_backlog_is_counted_through_where_its_end_was_first_seen(world: World) -> None:
    """Not before, though batches of it are committed, and not by the ends that it has since."""
    world.configure(max_records_per_partition=2)
    world.produce([ERROR] * 5)
    first = world.planned()
    seen = now(world)
    for _ in range(2):
        world.run(first.batch_id)
        assert progress(world) == Progress()
        world.produce([ERROR] * 2)
        first = world.planned()
    world.run(first.batch_id)
    assert progress(world).counted_through < seen  # type: ignore[operator]


def test_a_minute_is_open_until_lines_in_time_are_counted(world: World) -> None:
    """By the wall clock of the lines, in the zone that the pipeline names."""
    zone = "Asia/Tokyo"
    world.configure(time_zone=zone, lateness_s=600)
    ahead = now(world) + timedelta(hours=9)
    minutes = [f"{ahead - timedelta(minutes=late):%Y-%m-%d %H:%M}" for late in (13, 8)]
    counted(world, *(f"{minute}:00 ERROR x" for minute in minutes))
    assert states(world) == {minutes[0]: (1, "complete", None), minutes[1]: (1, "open", None)}
    world.configure(time_zone=zone, lateness_s=0)
    world.plan()
    assert states(world)[minutes[1]] == (1, "complete", None)
    world.configure(time_zone=zone, lateness_s=600)
    world.plan()
    assert states(world)[minutes[1]] == (1, "complete", None)


def test_what_changes_a_complete_minute_amends_it(world: World) -> None:
    """A late line; a replay that counts other lines, each minute that it changes, or takes all."""
    counted(world, ERROR, LATER, "2017-07-30 15:00:01 WARN x")
    assert states(world) == {AT: (1, "complete", None), AT_LATER: (1, "complete", None)}
    late = counted(world, ERROR)
    assert states(world) == {AT: (2, "amended", late), AT_LATER: (1, "complete", None)}
    world.configure(levels=["ERROR", "WARN"])
    replay = world.ask_replay()
    (batch_id,) = [b["batch_id"] for b in world.batches() if b["replay_id"] == replay.replay_id]
    world.run(batch_id)
    assert states(world) == {AT: (2, "amended", late), AT_LATER: (2, "amended", batch_id)}
    world.configure(levels=["WARN"])
    world.ask_replay()
    last = world.batches()[-1]["batch_id"]
    world.run(last)
    assert states(world) == {AT: (0, "amended", last), AT_LATER: (1, "amended", last)}
    assert steps.audited(world) == {AT_LATER: 1}


def test_what_is_not_read_keeps_minutes_open(world: World) -> None:
    """A partition with a loss; one that was truncated; an open transaction, until it is counted."""
    counted(world, ERROR)
    through = progress(world).counted_through
    world.produce([ERROR] * 3, 0)
    world.delete_records(0, 2)
    world.produce([ERROR], 1)
    assert world.minute() is not None
    assert world.plan().blocks
    assert progress(world).counted_through == through
    steps.accept(world)
    world.minute()
    through = progress(world).counted_through
    add_loss(world, 0, 3, 4, "truncated", "open")  # where Kafka has other records by now
    world.plan()
    assert progress(world).counted_through == through
    steps.accept(world)
    world.plan()
    through = progress(world).counted_through
    world.configure(offsets="sparse")
    producer = world.producer(**{"transactional.id": str(uuid4())})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(world.topic, value=ERROR, partition=0)
    producer.flush(30)
    world.plan()
    world.plan()
    assert progress(world).counted_through == through
    producer.commit_transaction(30)
    world.wait_for_markers()
    world.minute()
    assert progress(world).counted_through > through  # type: ignore[operator]


def test_what_is_new_is_counted_through_no_moment(world: World) -> None:
    """A partition that is added, until what it had is counted. What was complete stays so."""
    counted(world, ERROR)
    complete = progress(world).complete_before
    world.add_partitions(3)
    world.produce([ERROR], 2)
    batch = world.planned()
    assert progress(world) == Progress(complete_before=complete)
    world.run(batch.batch_id)
    assert progress(world).counted_through is not None
    assert states(world) == {AT: (2, "amended", batch.batch_id)}


def test_the_last_complete_minute_is_measured(world: World) -> None:
    """With the values of labels that have most lines; one without lines as 0."""
    world.migrate(labels=["level", "host"], levels=[], line_format=WITH_HOST)
    counted(world, *(f"{AT}:00 ERROR h{n}" for n in range(12)), f"{AT}:01 WARN h7")

    def measured(before: str) -> dict[str, float | dict[str, float]]:
        set_ = "update progress set complete_before = %s where pipeline = %s"
        world.execute(set_, (before, world.name))
        view = Statuses(ctx=world.context()).of(world.name)
        found = [m for m in of_status(view) if m.metric.startswith("complete_minute")]
        return {
            " ".join([m.metric[16:], *(value for _, value in m.labels)]): m.value for m in found
        }

    levels = {"label_lines level ERROR": 12, "label_lines level WARN": 1}
    hosts = {f"label_lines host h{n}": 1 for n in (0, 1, 10, 11, 2, 3, 4, 5, 6)}
    assert measured(AT_LATER) == {"lines": 0}
    complete = measured(f"{AT[:-2]}{int(AT[-2:]) + 1:02}")
    assert complete == {"lines": 13, **levels, "label_lines host h7": 2, **hosts}


def test_in_another_zone_it_is_told_anew_which_minutes_are_complete(world: World) -> None:
    """Also where that are fewer: what was said of the others was of another clock."""
    world.configure(time_zone="Asia/Tokyo")
    counted(world, ERROR)
    east = progress(world).complete_before
    assert east is not None
    late = datetime.fromisoformat(east) - timedelta(minutes=5)
    counted(world, f"{late} ERROR late")
    assert len(world.rows("select 1 from amendment where pipeline = %s", (world.name,))) == 1
    world.configure(time_zone="America/New_York")
    world.plan()
    west = progress(world).complete_before
    assert east is not None
    assert west is not None
    assert datetime.fromisoformat(east) - datetime.fromisoformat(west) > timedelta(hours=12)
    # What is open again has not changed since it is complete.
    assert world.rows("select log_time from amendment where pipeline = %s", (world.name,)) == []
    of = "select max(complete_before) as last from completion where pipeline = %s"
    assert [f"{row['last']}" for row in world.rows(of, (world.name,))] == [west]


@pytest.mark.parametrize("change", ["topic", "lateness", "zone"])
def test_a_commit_under_an_older_configuration_completes_nothing(world: World, change: str) -> None:
    """As of a process that has read it before: what the last plan has meant holds."""
    counted(world, ERROR)
    asked = world.ask_replay()
    (batch_id,) = (b["batch_id"] for b in world.batches() if b["replay_id"] == asked.replay_id)
    old = world.context(world.reader)
    if change == "topic":
        world.create_topic(1, f"{world.topic}_b")
        world.produce([ERROR], topic=f"{world.topic}_b")
        world.configure(topics=[world.topic, f"{world.topic}_b"])
    else:
        world.configure(
            **({"lateness_s": 3600} if change == "lateness" else {"time_zone": "Asia/Tokyo"})
        )
    world.plan()
    before = progress(world)
    run_batch(old, batch_id)
    assert progress(world) == before
    assert (before.counted_through is None) == (change == "topic")


def test_an_older_answer_of_kafka_is_not_seen_after_a_newer_one(world: World) -> None:
    """Of two planners the one that asked first may write last."""
    counted(world, ERROR)
    moment = now(world) + timedelta(hours=1)
    place = TopicPartition(topic=world.topic, partition=0)
    for end, at in ((7, moment), (5, moment - timedelta(minutes=1))):
        world.database.run(lambda tx, end=end, at=at: see(tx, world.name, [(place, end)], at))
    ends = (
        "select seen_end from partition_offset join topic_incarnation using (incarnation_id)"
        " where pipeline = %s and partition_id = 0"
    )
    assert world.rows(ends, (world.name,)) == [{"seen_end": 7}]


def test_a_topic_that_the_ledger_lacks_is_counted_through_no_moment(world: World) -> None:
    counted(world, ERROR)
    world.configure(topics=[world.topic, "there-is-no-such-topic"])
    world.plan()
    assert progress(world).counted_through is None


def test_prune_forgets_when_old_minutes_became_complete(world: World) -> None:
    """And not that they are, nor when later ones did."""
    counted(world, ERROR)
    row = f"select state, complete_at from `{world.name}_minutes`"
    (known,) = world.rows(row)
    prune(world.context(), world.name, timedelta(days=1))
    assert world.rows(row) == [known]
    prune(world.context(), world.name, timedelta())
    assert world.rows(row) == [{"state": "complete", "complete_at": None}]


def test_a_table_with_the_name_of_the_view_is_left_alone(world: World) -> None:
    """And the migration says so, instead of taking it for the view."""
    name = f"{world.name}_minutes"
    world.execute(f"drop view `{name}`")
    world.execute(f"create table `{name}` (log_time datetime)")
    with pytest.raises(SchemaError, match=f"{name} is there, and is not the view"):
        world.migrate()
    world.execute(f"drop table `{name}`")
    assert world.migrate() == [f"view {name}"]
    assert world.migrate() == []
