"""Short sequences that the state machine has found, or rarely produces."""

import threading
from collections.abc import Callable

import pytest

from tally.counting.commit import commit_in, commit_once
from tally.deliveries.kept_lines import delivery_of
from tally.errors import OvertakenError
from tests.properties import operations as op
from tests.properties.disturbance import Disturbance, Rival
from tests.properties.finish import finish
from tests.properties.kafka_model import Kind
from tests.properties.oracle import Oracle
from tests.properties.pipeline import PipelineUnderTest
from tests.properties.setup import NewPipeline
from tests.waiting import wait_until
from tests.world import LOCK_LIST_S

pytestmark = [pytest.mark.stack]

Step = op.Operation | tuple[op.Operation, Disturbance]
Play = Callable[..., PipelineUnderTest]


def lines(number: int) -> tuple[op.Said, ...]:
    return ((Kind.ERROR, 0),) * number


@pytest.fixture
def play(new_pipeline: NewPipeline) -> Play:
    """Plays operations with the oracle's check after each, and finishes the pipeline."""

    def run(beginning: op.Beginning, *steps: Step) -> PipelineUnderTest:
        pipeline = new_pipeline()
        oracle = Oracle(pipeline)
        pipeline.begin(beginning)
        for step in steps:
            operation, disturbance = step if isinstance(step, tuple) else (step, None)
            pipeline.do(operation, disturbance)
            oracle.check()
        finish(pipeline, oracle)
        return pipeline

    return run


def table(pipeline: PipelineUnderTest) -> list[int]:
    rows = pipeline.rows(f"select log_count from `{pipeline.name}` order by log_time")
    return [row["log_count"] for row in rows]


def test_a_loss_that_is_larger_than_a_batch_can_be_counted_when_it_comes_back(play: Play) -> None:
    """Its batches commit one by one, and each restores its own part of the loss."""
    pipeline = play(
        op.Beginning(partitions=1, said=lines(2)),
        op.Plan(),
        op.RunMinute(),
        op.Produce(0, lines(7)),
        op.Expire(0, 9),
        op.Plan(),
        op.Accept(None),
        op.Restore(0),
        op.Configure(limit=3),
        op.AskAll(from_start=True),
        op.RunReplay(0),
    )
    assert pipeline.outcomes["RunReplay: done"] == 1
    assert table(pipeline) == [9]


def test_a_replay_erases_nothing_behind_offsets_that_were_never_counted(play: Play) -> None:
    """Records of uncounted offsets do not hide those that compaction has removed."""
    pipeline = play(
        op.Beginning(partitions=1, start="latest", offsets="sparse", said=lines(3)),
        op.Plan(),
        op.Produce(0, lines(4)),
        op.Plan(),
        op.RunMinute(),
        op.Compact(0, 4),
        op.AskAll(from_start=True),
        op.RunReplay(0),
    )
    assert table(pipeline) in ([4], [7])


def test_a_hole_in_a_topic_that_was_replaced_blocks_only_the_old_one(play: Play) -> None:
    """The loss belongs to the generation that was planned."""
    pipeline = play(
        op.Beginning(partitions=1, said=lines(3)),
        op.Plan(),
        op.RunMinute(),
        op.Produce(0, lines(3)),
        op.Plan(),
        op.Create(1, 0, (*lines(4), (None, 0), *lines(2))),
        # The batch is read from the new topic, by name; by the time its hole is found, an operator
        # has adopted the new topic.
        (op.RunMinute(), Rival(2, op.Adopt("earliest"))),
    )
    assert table(pipeline) == [9]


def test_a_batch_is_not_replanned_on_another_generation_of_its_topic(play: Play) -> None:
    """The same offsets of the new generation are other records."""
    pipeline = play(
        op.Beginning(partitions=1, said=lines(3)),
        op.Plan(),
        op.RunMinute(),
        op.AskAll(),
        op.Create(1, 0, lines(3)),
        op.Adopt("earliest"),
        op.Plan(),
        op.RunMinute(),
        op.Replan(0),
    )
    assert pipeline.outcomes["Replan: replay-refused"] == 1
    assert table(pipeline) == [6]


def test_a_late_commit_moves_no_offset_that_stands_elsewhere(play: Play) -> None:
    """An adoption has recorded all planned offsets as lost, more than the late worker has read."""
    pipeline = play(
        op.Beginning(partitions=1),
        op.Produce(0, lines(6)),
        op.Plan(),
        op.Abandon(0),
        op.Configure(limit=3),
        op.Plan(),
        op.Stop(0),
        op.Create(1, 0, lines(1)),
        op.Adopt("earliest"),
        op.GoOn(0),
    )
    assert pipeline.outcomes["GoOn: too late"] == 1
    assert table(pipeline) == [1]


def test_of_two_first_backfills_at_once_the_second_is_overtaken(new_pipeline: NewPipeline) -> None:
    """They supersede no common segment; the lock of the topic's row makes the second one wait."""
    pipeline = new_pipeline()
    pipeline.begin(op.Beginning(partitions=1, start="latest", said=lines(4)))
    most, all_of_it = op.AskRanges((op.Span(0, 0, 12),)), op.AskAll(from_start=True)
    for step in (op.Plan(), most, all_of_it, op.Stop(0), op.Stop(1)):
        pipeline.do(step)
    first, second = pipeline.workers
    ends: list[str] = []

    def commit_second() -> None:
        try:
            commit_once(second.ctx, second.batch, second.counts)
        except OvertakenError as error:
            ends.append(error.code)

    rival = threading.Thread(target=commit_second)
    with first.ctx.database.transaction() as tx:
        assert commit_in(tx, delivery_of(first.ctx, first.pipeline), first.batch, first.counts)
        rival.start()
        waiting = "select 1 from information_schema.innodb_trx where trx_state = 'LOCK WAIT'"
        wait_until(
            lambda: not rival.is_alive() or pipeline.wire.faults.as_root(waiting),
            pause_s=LOCK_LIST_S,
        )
        assert rival.is_alive(), "the second one does not wait for the first"
    rival.join(30)
    assert ends == ["overtaken"]
    assert table(pipeline) == [4]


def test_a_topic_that_was_created_again_is_not_the_planned_one(play: Play) -> None:
    """It is read by name and is long enough; only its id shows that its records are others."""
    pipeline = play(
        op.Beginning(partitions=1),
        op.Produce(0, lines(3)),
        op.Plan(),
        op.Create(1, 0, lines(5)),
        op.RunMinute(),
    )
    assert pipeline.outcomes["RunMinute: data-loss"] == 1
    assert table(pipeline) == [5]
