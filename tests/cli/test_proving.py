"""`tally audit`, with and without counting again from Kafka."""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import pytest

from tally.recount import Recount, recount
from tests.cli.conftest import LINE, Call, commit
from tests.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.stack

OTHER = "2017-07-30 14:10:59 ERROR another minute"


def test_a_sound_ledger_is_no_finding(tally: Call, world: World) -> None:
    """Exit code 0, and no claim about Kafka."""
    world.produce([LINE] * 3, 0)
    commit(world)
    answer = tally("audit", "--json")
    assert answer.exit_code == 0
    assert answer.document["holds"] is True
    assert (answer.document["records"], answer.document["matched"]) == (3, 3)
    assert answer.document["recount"] is None


def test_a_result_that_was_touched_is_found(tally: Call, world: World) -> None:
    """Exit code 1, with the minute and both numbers."""
    world.produce([LINE] * 3, 0)
    commit(world)
    world.execute(f"update `{world.name}` set log_count = 4")
    answer = tally("audit", "--json")
    assert answer.exit_code == 1
    assert [finding["check"] for finding in answer.document["findings"]] == ["result"]
    text = tally("audit").stdout
    assert "the table says 4, live segments add up to 3" in text
    assert "1 finding" in text


def again(
    world: World, spark: "SparkSession", *, meanwhile: tuple[str, ...] = ()
) -> tuple[Recount, list[tuple[int, int]]]:
    """Count again; run statements after the ledger was read and before Kafka is."""
    told: list[tuple[int, int]] = []

    def factory() -> "AbstractContextManager[SparkSession]":
        for statement in meanwhile:
            world.execute(statement)
        return nullcontext(spark)

    counted = recount(
        world.settings, world.name, factory, lambda done, total: told.append((done, total))
    )
    return counted, told


@pytest.mark.spark
def test_counting_again_agrees_with_what_spark_committed(
    tally: Call, world: World, lent_spark: "SparkSession"
) -> None:
    """Several batches, other levels, malformed records and nulls: all of it is proven."""
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
    assert "counting again: 13 of 13 offsets" in answer.stderr


@pytest.mark.spark
def test_counting_again_finds_a_lie_that_the_ledger_tells_consistently(
    tally: Call, world: World, lent_spark: "SparkSession"
) -> None:
    """Result, contribution and segment agree with each other; only Kafka knows better."""
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
def test_a_flood_of_malformed_records_is_counted_again_like_any_other(
    world: World, spark: "SparkSession"
) -> None:
    """The limit that stops a batch is no limit for the proof of it."""
    world.produce(["nonsense"] * 5, 0)
    assert world.minute(spark) is not None
    world.configure(max_malformed_per_batch=1)
    counted, _ = again(world, spark)
    assert (counted.records, counted.findings, counted.unchecked) == (5, (), ())


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
    assert gone["cause"] == "retention: Kafka's first offset is 2"
    assert "not checkable: 5 offsets" in tally("audit", "--recount").stdout


@pytest.mark.spark
def test_records_that_go_while_they_are_counted_again_are_not_checkable(
    world: World, spark: "SparkSession"
) -> None:
    """Retention passes by between the question and the read: no error and no finding."""
    world.produce([LINE] * 5, 0)
    world.produce([LINE] * 4, 1)
    assert world.minute(spark) is not None

    def factory() -> "AbstractContextManager[SparkSession]":
        world.delete_records(0, before=2)
        return nullcontext(spark)

    counted = recount(world.settings, world.name, factory, lambda *_: None)
    assert counted.findings == ()
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
    assert (counted.segments, counted.findings) == (0, ())
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
    assert counted.findings
    assert all("counted with format" in finding.detail for finding in counted.findings)


@pytest.mark.spark
def test_a_pipeline_that_has_counted_nothing_needs_no_spark(tally: Call) -> None:
    """Nothing to read, nothing to start."""
    answer = tally("audit", "--recount")
    assert answer.exit_code == 0
    assert "starting Spark" not in answer.stderr
