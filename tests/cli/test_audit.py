"""`tally audit`, with and without a recount from Kafka."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tally.app.migrate import migrate
from tally.pipeline.audit import audit_ledger
from tally.pipeline.context import Context, Reader
from tally.pipeline.recount import Recount, recount
from tests.cli.conftest import LINE, Call, commit
from tests.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.stack

OTHER = "2017-07-30 14:10:59 ERROR another minute"
ABANDONED = (
    "update batch set state = 'abandoned', committed_at = null, abandoned_at = now(), reason = 'x'"
)


def test_a_sound_ledger_has_no_violation(tally: Call, world: World) -> None:
    """Exit code 0, and no claim about Kafka."""
    world.produce([LINE] * 3, 0)
    commit(world)
    answer = tally("audit", "--json")
    assert answer.exit_code == 0
    assert answer.document["holds"] is True
    assert (answer.document["records"], answer.document["matched"]) == (3, 3)
    assert answer.document["recount"] is None


def test_a_recount_before_the_first_commit_claims_nothing(tally: Call, world: World) -> None:
    """A planned batch is in no result yet: there is nothing to compare."""
    world.produce([LINE] * 3, 0)
    assert world.plan().batch is not None
    answer = tally("audit", "--recount")
    assert answer.exit_code == 0
    assert "nothing is committed yet" in answer.stdout


def test_a_result_that_was_touched_is_found(tally: Call, world: World) -> None:
    """Exit code 1, with the minute and both numbers."""
    world.produce([LINE] * 3, 0)
    commit(world)
    world.execute(f"update `{world.name}` set log_count = 4")
    answer = tally("audit", "--json")
    assert answer.exit_code == 1
    assert [violation["check"] for violation in answer.document["findings"]] == ["result"]
    text = tally("audit").stdout
    assert "the table says 4, segments add up to 3" in text
    assert "1 violation" in text


OF_PIPELINE = (
    " where incarnation_id ="
    " (select incarnation_id from topic_incarnation where pipeline = '{name}')"
)
SECOND_SEGMENT = (
    "update segment s join partition_offset o using (incarnation_id, partition_id) set "
)
HOLE = (
    SECOND_SEGMENT + "s.from_offset = 4, s.first_offset = 4, s.until_offset = 6,"
    " s.last_offset = 5, o.next_offset = 6" + OF_PIPELINE + " and s.from_offset = 3"
)


@pytest.mark.parametrize(
    ("statement", "check", "said"),
    [
        pytest.param(
            "update partition_offset set next_offset = 6" + OF_PIPELINE + " and partition_id = 0",
            "tiling",
            "counted up to 5, but next_offset is 6",
            id="end",
        ),
        pytest.param(
            SECOND_SEGMENT + "s.from_offset = 2" + OF_PIPELINE + " and s.from_offset = 3",
            "tiling",
            "overlap: [2, 3)",
            id="overlap",
        ),
        pytest.param(HOLE, "tiling", "hole: [3, 4)", id="hole"),
        pytest.param(
            "delete from `{name}`",
            "result",
            "the table says None, segments add up to 4",
            id="gone",
        ),
        pytest.param(
            "insert into `{name}` (log_time, log_count) values ('2000-01-01', 1)",
            "result",
            "the table says 1, segments add up to None",
            id="invented",
        ),
        pytest.param(
            SECOND_SEGMENT + "s.matched = 0, s.unmatched = 1" + OF_PIPELINE + " and s.matched = 1",
            "segment",
            "records 2, matched 0, unmatched 1, malformed 1; contributions add up to 1, dead "
            "letters are 1, by reason together 1",
            id="segment",
        ),
        pytest.param(
            "delete d from dead_letter d join segment s using (segment_id)" + OF_PIPELINE,
            "segment",
            "records 2, matched 1, unmatched 0, malformed 1; contributions add up to 1, dead "
            "letters are 0, by reason together 1",
            id="letter",
        ),
        pytest.param(
            "delete d from dead_letter_total d join segment s using (segment_id)"
            + OF_PIPELINE.replace("incarnation_id", "s.incarnation_id", 1),
            "segment",
            "records 2, matched 1, unmatched 0, malformed 1; contributions add up to 1, dead "
            "letters are 1, by reason together 0",
            id="total",
        ),
    ],
)
def test_what_does_not_add_up_is_found(
    tally: Call, world: World, statement: str, check: str, said: str
) -> None:
    """Exit code 1, with that one violation."""
    count_five(world)
    world.execute(statement.format(name=world.name))
    answer = tally("audit", "--json")
    assert answer.exit_code == 1
    found = [(f["check"], f["detail"]) for f in answer.document["findings"]]
    assert found == [(check, said)]


def count_five(world: World) -> None:
    """[0, 3) and [3, 5), the last of them malformed."""
    world.produce([LINE] * 3, 0)
    commit(world)
    world.produce([LINE, "nonsense"], 0)
    commit(world, malformed=(b"nonsense",))
    assert world.audit().holds


def test_a_hole_of_an_earlier_topic_generation_is_found(tally: Call, world: World) -> None:
    """The audit also covers generations that are no longer followed."""
    count_five(world)
    world.execute(HOLE.format(name=world.name))
    world.execute(
        "update topic_incarnation set state = 'retired', retired_at = now() where pipeline = %s",
        (world.name,),
    )
    (violation,) = tally("audit", "--json").document["findings"]
    assert violation["detail"] == "hole: [3, 4)"


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            "update batch set state = 'planned', committed_at = null",
            "it is live, its batch {batch} is planned",
        ),
        (ABANDONED, "it is live, its batch {batch} is abandoned"),
        (
            "update segment join batch using (batch_id) set segment.state = 'planned'",
            "it is planned, its batch {batch} is committed",
        ),
        (
            "update segment join batch using (batch_id) set segment.state = 'abandoned'",
            "it is abandoned, its batch {batch} is committed",
        ),
    ],
)
def test_states_that_contradict_each_other_are_found(
    tally: Call, world: World, statement: str, said: str
) -> None:
    """What is live was committed, and what was committed is live or replaced."""
    world.produce([LINE] * 3, 0)
    batch = commit(world)
    world.execute(f"{statement} where batch.pipeline = %s", (world.name,))
    answer = tally("audit", "--json")
    assert answer.exit_code == 1
    (violation,) = [f for f in answer.document["findings"] if f["check"] == "state"]
    assert violation["detail"] == said.format(batch=batch)
    assert violation["where"].endswith(f"of {world.topic}/0 [0, 3)")


@pytest.fixture
def own_database(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The world with a ledger that no other test shares: its schema may be broken."""
    name = f"t_{secrets.token_hex(5)}"
    with closing(world.connect_as_root(autocommit=True)) as root, root.cursor() as cursor:
        cursor.execute(f"create database {name} character set utf8mb4")
        cursor.execute(f"grant all on {name}.* to tally@'127.0.0.1'")
        monkeypatch.setenv("TALLY_MYSQL__DATABASE", name)
        migrate(world.database, world.settings)
        yield world
        cursor.execute(f"drop database {name}")


def test_a_topic_that_the_ledger_has_twice_is_found(tally: Call, own_database: World) -> None:
    """One topic generation under two keys: each alone is sound, together they count twice.

    The segments before and after the one that counts twice only touch it.
    """
    world = own_database
    for lines in (1, 2, 3):
        world.produce([LINE] * lines, 0)
        commit(world)
    _, segment, _ = world.segments()
    assert tally("audit").exit_code == 0
    mine = (world.name,)
    # A ledger that was restored without the unique key of a topic generation.
    world.execute("alter table topic_incarnation drop key one_row_for_each_life")
    world.execute(
        "insert into topic_incarnation"
        " (pipeline, topic, topic_id, cluster_id, state, seen_at)"
        " select pipeline, topic, topic_id, cluster_id, 'retired', '2000-01-01'"
        " from topic_incarnation where pipeline = %s",
        mine,
    )
    world.execute(
        "insert into partition_offset (incarnation_id, partition_id, start_offset, next_offset)"
        " select incarnation_id, 0, 1, 3 from topic_incarnation"
        " where pipeline = %s and state = 'retired'",
        mine,
    )
    world.execute(
        "insert into segment (batch_id, incarnation_id, partition_id, from_offset,"
        " until_offset, state, records, matched, unmatched, malformed, first_offset,"
        " last_offset) select %s, incarnation_id, 0, 1, 3, 'live', 2, 0, 2, 0, 1, 2"
        " from topic_incarnation where pipeline = %s and state = 'retired'",
        (segment["batch_id"], world.name),
    )
    twin = world.segments()[-1]
    found = tally("audit", "--json").document["findings"]
    assert [f["check"] for f in found] == ["topic", "topic"]
    assert "the ledger has it 2 times" in found[0]["detail"]
    assert found[1]["where"].startswith(f"{world.topic}/0 ")
    assert found[1]["detail"] == (
        f"[1, 3) is live in segment {segment['segment_id']} and in segment {twin['segment_id']}"
    )


def test_the_table_that_is_counted_into_is_asked_for_once(world: World) -> None:
    """Before the first plan, after it, and when the configuration names another table."""
    asked: list[str] = []

    def questions() -> int:
        asked.clear()
        database = replace(world.database, listen=asked.append)
        verdict = audit_ledger(world.context(database=database), world.name)
        assert verdict.holds is (world.settings.pipeline(world.name).table == world.name)
        return sum("result_table" in statement for statement in asked)

    assert questions() == 1
    world.plan()
    assert questions() == 1
    world.configure(result_table=f"{world.name}_b")
    assert questions() == 1


def again(
    world: World, spark: "SparkSession", *, meanwhile: tuple[str, ...] = ()
) -> tuple[Recount, list[tuple[int, int]]]:
    """Recount; run statements after the ledger was read and before Kafka is."""
    told: list[tuple[int, int]] = []

    def act() -> None:
        for statement in meanwhile:
            world.execute(statement)

    ctx = before_reading(world.context(spark), act)
    counted = recount(ctx, world.name, lambda done, total: told.append((done, total)))
    return counted, told


def before_reading(ctx: Context, act: Callable[[], None]) -> Context:
    """A context in which something happens just before a reader is opened."""

    def open_reader() -> AbstractContextManager[Reader]:
        act()
        return ctx.open_reader()

    return replace(ctx, open_reader=open_reader)


@pytest.mark.spark
def test_a_recount_agrees_with_what_spark_committed(
    tally: Call, world: World, lent_spark: "SparkSession"
) -> None:
    """Several batches, unmatched lines, malformed records and nulls are all compared."""
    world.produce([LINE, OTHER, "2017-07-30 14:10:00 INFO fine", "nonsense", None, ""], 0)
    world.produce([OTHER] * 4, 1)
    assert world.minute(lent_spark) is not None
    world.produce([LINE] * 3, 0)
    assert world.minute(lent_spark) is not None

    answer = tally("audit", "--recount", "--json")
    assert answer.exit_code == 0, answer.stdout
    assert answer.document["recount"] == {
        "complete": True,
        "segments": 3,
        "offsets": 13,
        "records": 13,
        "not_checkable": [],
    }
    assert f"recounting {world.name}: 13 of 13 offsets" in answer.stderr


@pytest.mark.spark
def test_a_recount_finds_a_wrong_count_on_which_the_whole_ledger_agrees(
    tally: Call, world: World, lent_spark: "SparkSession"
) -> None:
    """Result, contribution and segment agree with each other; only Kafka differs."""
    world.produce([LINE] * 3 + [OTHER] * 2, 0)
    assert world.minute(lent_spark) is not None
    world.execute(f"update `{world.name}` set log_count = 4 where minute(log_time) = 9")
    world.execute(f"update `{world.name}` set log_count = 1 where minute(log_time) = 10")
    for minute, count in ((9, 4), (10, 1)):
        world.execute(
            "update segment_count c join segment s using (segment_id)"
            " join topic_incarnation i using (incarnation_id) set c.log_count = %s"
            " where i.pipeline = %s and minute(c.log_time) = %s",
            (count, world.name, minute),
        )
    assert tally("audit").exit_code == 0

    answer = tally("audit", "--recount", "--json")
    assert answer.exit_code == 1
    assert [(f["check"], f["detail"]) for f in answer.document["findings"]] == [
        ("recount", "the ledger says 4, Kafka holds 3"),
        ("recount", "the ledger says 1, Kafka holds 2"),
    ]


@pytest.mark.spark
def test_a_servers_limit_of_rows_hides_nothing_from_a_recount(
    world: World, spark: "SparkSession"
) -> None:
    """More minutes and more segments than the server gives by itself."""
    lines = [f"2017-07-30 14:0{n}:59 ERROR one of several minutes" for n in range(4)]
    for _ in range(3):
        world.produce(lines)
        assert world.minute(spark) is not None
    with world.global_variable("sql_select_limit", 2):
        counted, _ = again(world, spark)
        assert (counted.segments, counted.records, counted.violations) == (3, 12, ())
        world.execute(f"update `{world.name}` set log_count = log_count + 1")
        world.execute(
            "update segment_count c join segment s using (segment_id)"
            " join topic_incarnation i using (incarnation_id)"
            " set c.log_count = c.log_count + 1 where i.pipeline = %s",
            (world.name,),
        )
        counted, _ = again(world, spark)
    assert len(counted.violations) == 4


@pytest.mark.spark
def test_a_flood_of_malformed_records_is_recounted_like_any_other(
    world: World, spark: "SparkSession"
) -> None:
    """The limit that stops a batch is no limit for the proof of it."""
    world.produce(["nonsense"] * 5, 0)
    assert world.minute(spark) is not None
    world.configure(max_malformed_per_batch=1)
    counted, _ = again(world, spark)
    assert (counted.records, counted.violations, counted.unchecked) == (5, (), ())


@pytest.mark.spark
def test_what_retention_took_is_named_and_never_called_right(
    tally: Call, world: World, lent_spark: "SparkSession"
) -> None:
    """A segment that is partly gone is not checkable; the others are proven."""
    for _ in range(2):
        world.produce([LINE] * 5, 0)
        assert world.minute(lent_spark) is not None
    world.delete_records(0, before=2)
    answer = tally("audit", "--recount", "--json")
    assert answer.exit_code == 0
    found = answer.document["recount"]
    assert (found["complete"], found["offsets"]) == (False, 5)
    (gone,) = found["not_checkable"]
    assert (gone["from_offset"], gone["until_offset"]) == (0, 5)
    assert gone["cause"] == "Kafka's first offset is now 2"
    assert "not checkable: 5 offsets" in tally("audit", "--recount").stdout


@pytest.mark.spark
def test_records_that_go_while_they_are_recounted_are_not_checkable(
    world: World, spark: "SparkSession"
) -> None:
    """Retention passes by between the question and the read: no error and no violation."""
    world.produce([LINE] * 5, 0)
    world.produce([LINE] * 4, 1)
    assert world.minute(spark) is not None

    ctx = before_reading(world.context(spark), lambda: world.delete_records(0, before=2))
    counted = recount(ctx, world.name, lambda *_: None)
    assert counted.violations == ()
    assert counted.offsets == 4
    assert [unchecked.range.partition.partition for unchecked in counted.unchecked] == [0]


@pytest.mark.spark
def test_a_segment_that_is_replaced_meanwhile_is_not_compared(
    world: World, spark: "SparkSession"
) -> None:
    """A replay may commit while the audit reads."""
    world.produce([LINE] * 5, 0)
    assert world.minute(spark) is not None
    replace = (
        "update segment s join batch b using (batch_id) set s.state = 'superseded',"
        f" s.superseded_by = s.segment_id where b.pipeline = '{world.name}'"
    )
    counted, told = again(world, spark, meanwhile=(replace,))
    assert (counted.segments, counted.violations) == (0, ())
    assert "replaced" in counted.unchecked[0].cause
    assert told == [(0, 5), (5, 5)]


@pytest.mark.spark
def test_a_changed_line_format_is_mentioned_beside_the_difference(
    world: World, spark: "SparkSession"
) -> None:
    """The levels were changed after the count: the difference says so."""
    world.produce([LINE, "2017-07-30 14:09:00 WARN careful"], 0)
    assert world.minute(spark) is not None
    world.configure(levels=["ERROR", "WARN"])
    counted, _ = again(world, spark)
    assert counted.violations
    assert all("counted under other rules" in found.detail for found in counted.violations)


@pytest.mark.spark
def test_a_pipeline_that_has_counted_nothing_needs_no_spark(tally: Call) -> None:
    """Nothing to read, nothing to start."""
    answer = tally("audit", "--recount")
    assert answer.exit_code == 0
    assert "starting Spark" not in answer.stderr
