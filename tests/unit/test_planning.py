"""Planning, as a pure function of what the ledger and Kafka say."""

from collections.abc import Mapping
from typing import Any

import pytest

from tally.config.pipeline import Pipeline
from tally.errors import BlockedError, MissingTopicError
from tally.model import (
    KafkaSnapshot,
    KnownTopic,
    Loss,
    LossCause,
    OffsetRange,
    PartitionSnapshot,
    Position,
    Segment,
    SegmentState,
    TopicPartition,
    TopicSnapshot,
)
from tally.planning.blocks import BlockReason, blocked_error
from tally.planning.ingest import (
    NewPartition,
    Plan,
    beside,
    first_offsets,
    overtaken,
    plan_ingest,
    unreadable,
)

P0 = TopicPartition(topic="alog", partition=0)
P1 = TopicPartition(topic="alog", partition=1)


def held(earliest: int, end: int) -> PartitionSnapshot:
    return PartitionSnapshot(earliest=earliest, end=end)


def kafka(
    partitions: Mapping[int, PartitionSnapshot], *, topic_id: str = "A", cluster_id: str = "C"
) -> KafkaSnapshot:
    topic = TopicSnapshot(topic_id=topic_id, partitions=partitions)
    return KafkaSnapshot(cluster_id=cluster_id, topics={"alog": topic})


def known(positions: Mapping[int, int | Position]) -> dict[str, KnownTopic]:
    return {
        "alog": KnownTopic(
            incarnation_id=1,
            topic_id="A",
            cluster_id="C",
            positions={
                n: p if isinstance(p, Position) else Position(start_offset=0, next_offset=p)
                for n, p in positions.items()
            },
        )
    }


def plan(
    snapshot: KafkaSnapshot,
    ledger: Mapping[str, KnownTopic],
    *,
    limit: int = 1_000_000,
    starts: Mapping[TopicPartition, int] | None = None,
    **keys: Any,
) -> Plan:
    pipeline = Pipeline(name="error_log", topics=["alog"], max_records_per_partition=limit, **keys)
    return plan_ingest(pipeline, known=ledger, kafka=snapshot, starts=starts or {})


def offsets(partition: TopicPartition, from_offset: int, until_offset: int) -> OffsetRange:
    return OffsetRange(partition=partition, from_offset=from_offset, until_offset=until_offset)


def expired(r: OffsetRange) -> Loss:
    return Loss(cause=LossCause.EXPIRED, range=r)


def truncated(r: OffsetRange) -> Loss:
    return Loss(cause=LossCause.TRUNCATED, range=r)


def missing(r: OffsetRange) -> Loss:
    return Loss(cause=LossCause.MISSING, range=r)


def test_a_range_goes_from_the_ledgers_offset_to_kafkas_end() -> None:
    """Partitions with new data get one range each, the others none."""
    planned = plan(kafka({0: held(0, 310), 1: held(0, 7)}), known({0: 300, 1: 7}))
    assert planned.ranges == (offsets(P0, 300, 310),)
    assert planned.blocks == ()


def test_nothing_new_plans_nothing() -> None:
    """A quiet minute leaves an empty plan."""
    assert plan(kafka({0: held(0, 7)}), known({0: 7})) == Plan()


def test_a_backlog_is_cut_at_the_limit() -> None:
    """No range spans more than max_records_per_partition offsets."""
    planned = plan(kafka({0: held(0, 1000)}), known({0: 10}), limit=50)
    assert planned.ranges == (offsets(P0, 10, 60),)


def test_a_new_topic_starts_where_the_policy_says() -> None:
    """Each partition of a new topic is recorded with its start, also when it has no data."""
    planned = plan(kafka({0: held(5, 9), 1: held(0, 4)}), {}, starts={P0: 5, P1: 4})
    assert planned.new_topics == {"alog": "A"}
    assert planned.new_partitions == (
        NewPartition(partition=P0, start_offset=5),
        NewPartition(partition=P1, start_offset=4),
    )
    assert planned.ranges == (offsets(P0, 5, 9),)


def test_a_new_partition_is_counted_from_its_earliest_offset() -> None:
    """Partitions that were added to a known topic lose nothing, whatever the start policy."""
    planned = plan(kafka({0: held(0, 5), 1: held(2, 6)}), known({0: 5}))
    assert planned.new_partitions == (NewPartition(partition=P1, start_offset=2),)
    assert planned.ranges == (offsets(P1, 2, 6),)


def test_lost_records_block_their_partition_alone() -> None:
    """Retention past the committed offset is recorded as a loss; the healthy partition is read."""
    planned = plan(kafka({0: held(20, 30), 1: held(0, 30)}), known({0: 10, 1: 10}))
    assert planned.losses == (expired(offsets(P0, 10, 20)),)
    assert [(b.partition, b.reason) for b in planned.blocks] == [(0, BlockReason.RECORDS_LOST)]
    assert planned.ranges == (offsets(P1, 10, 30),)
    assert not planned.doubtful


def test_records_that_are_back_close_the_open_loss() -> None:
    """When Kafka holds the records again the partition is read on from the ledger's offset."""
    waiting = Position(start_offset=0, next_offset=10, open_loss=expired(offsets(P0, 10, 20)))
    planned = plan(kafka({0: held(0, 30)}), known({0: waiting}))
    assert planned.restored == (P0,)
    assert planned.ranges == (offsets(P0, 10, 30),)


def test_an_open_loss_stays_open_while_the_records_are_gone() -> None:
    """A loss that retention has made larger is recorded at its new size."""
    waiting = Position(start_offset=0, next_offset=10, open_loss=expired(offsets(P0, 10, 20)))
    planned = plan(kafka({0: held(25, 30)}), known({0: waiting}))
    assert planned.losses == (expired(offsets(P0, 10, 25)),)
    assert planned.restored == ()


def test_an_end_before_the_ledgers_offset_blocks_and_is_doubted() -> None:
    """A smaller end is a truncation or stale metadata; it never moves an offset back."""
    planned = plan(kafka({0: held(0, 9), 1: held(0, 12)}), known({0: 10, 1: 10}))
    assert [(b.partition, b.reason) for b in planned.blocks] == [(0, BlockReason.TOPIC_TRUNCATED)]
    assert planned.ranges == (offsets(P1, 10, 12),)
    assert planned.doubtful


@pytest.mark.parametrize(
    ("position", "end", "loss"),
    [
        (Position(start_offset=0, next_offset=10), 9, offsets(P0, 9, 10)),
        (
            Position(start_offset=0, next_offset=10, open_loss=truncated(offsets(P0, 7, 10))),
            9,
            offsets(P0, 7, 10),
        ),
        (
            Position(start_offset=0, next_offset=10, open_loss=truncated(offsets(P0, 7, 10))),
            30,
            offsets(P0, 7, 10),
        ),
        (
            Position(start_offset=0, next_offset=10, open_loss=truncated(offsets(P0, 7, 10))),
            5,
            offsets(P0, 5, 10),
        ),
        (
            Position(
                start_offset=0, next_offset=10, accepted_losses=(truncated(offsets(P0, 7, 10)),)
            ),
            6,
            offsets(P0, 6, 10),
        ),
    ],
    ids=["seen", "seen again", "grown again", "further", "further than accepted"],
)
def test_a_truncation_is_remembered_until_it_is_decided(
    position: Position, end: int, loss: OffsetRange
) -> None:
    """Its lowest end is recorded, and a partition that has grown again stays blocked."""
    planned = plan(kafka({0: held(0, end)}), known({0: position}))
    assert planned.losses == (truncated(loss),)
    assert [b.reason for b in planned.blocks] == [BlockReason.TOPIC_TRUNCATED]
    assert planned.ranges == ()


def test_an_accepted_truncation_is_waited_out() -> None:
    """Nothing is read up to the committed offset; later records are."""
    accepted = (truncated(offsets(P0, 7, 10)),)
    position = Position(start_offset=0, next_offset=10, accepted_losses=accepted)
    assert plan(kafka({0: held(0, 8)}), known({0: position})) == Plan()
    assert plan(kafka({0: held(0, 12)}), known({0: position})).ranges == (offsets(P0, 10, 12),)


def test_a_range_with_holes_is_blocked_until_it_is_accepted_or_normal() -> None:
    """A sparse pipeline may have holes; otherwise an operator must accept them."""
    hole = missing(offsets(P0, 10, 20))
    ledger = known({0: Position(start_offset=0, next_offset=10, open_loss=hole)})
    dense = plan(kafka({0: held(0, 30)}), ledger)
    assert dense.losses == (hole,)
    assert [b.reason for b in dense.blocks] == [BlockReason.RECORDS_MISSING]
    assert dense.ranges == ()
    sparse = plan(kafka({0: held(0, 30)}), ledger, offsets="sparse")
    assert sparse.restored == (P0,)
    assert sparse.ranges == (offsets(P0, 10, 30),)


def test_an_accepted_hole_is_read_alone() -> None:
    """Later offsets are another range, in which nothing may be missing."""
    hole = missing(offsets(P0, 5, 20))
    position = Position(start_offset=0, next_offset=10, accepted_losses=(hole,))
    planned = plan(kafka({0: held(0, 30)}), known({0: position}))
    assert planned.ranges == (offsets(P0, 10, 20),)


def test_retention_behind_a_hole_is_a_loss_of_its_own() -> None:
    """Retention has deleted the range with the hole, so nothing of it can be read."""
    hole = missing(offsets(P0, 10, 20))
    ledger = known({0: Position(start_offset=0, next_offset=10, open_loss=hole)})
    assert plan(kafka({0: held(15, 30)}), ledger).losses == (expired(offsets(P0, 10, 15)),)


def test_a_start_in_the_future_blocks_the_new_topic() -> None:
    """Its first offset is not known yet; the error names the time."""
    pipeline = Pipeline(name="error_log", topics=["alog"], start="2999-01-01T00:00:00Z")
    planned = plan_ingest(pipeline, known={}, kafka=kafka({0: held(0, 5)}), starts=None)
    assert [b.reason for b in planned.blocks] == [BlockReason.START_IN_FUTURE]
    assert "2999-01-01" in planned.blocks[0].detail
    assert planned.new_topics == {}


def test_a_recreated_topic_blocks_even_when_it_is_longer() -> None:
    """Another topic id blocks the whole topic, although its offsets look plausible."""
    planned = plan(kafka({0: held(0, 9999)}, topic_id="B"), known({0: 10}))
    assert [(b.partition, b.reason) for b in planned.blocks] == [(None, BlockReason.TOPIC_CHANGED)]
    assert planned.ranges == ()
    assert planned.doubtful


def test_another_cluster_blocks_even_with_the_same_topic_id() -> None:
    """The same topic name on another cluster is not the topic that was counted."""
    planned = plan(kafka({0: held(0, 9999)}, cluster_id="D"), known({0: 10}))
    assert [b.reason for b in planned.blocks] == [BlockReason.CLUSTER_CHANGED]
    assert planned.ranges == ()


def test_a_short_partition_list_forgets_nothing() -> None:
    """A partition that Kafka leaves out is an error of its own; the others are read."""
    planned = plan(kafka({1: held(0, 12)}), known({0: 10, 1: 10}))
    assert [(b.partition, b.reason) for b in planned.blocks] == [(0, BlockReason.PARTITION_MISSING)]
    assert planned.ranges == (offsets(P1, 10, 12),)
    assert planned.doubtful


@pytest.mark.parametrize("ledger", [{}, known({0: 10})], ids=["new", "known"])
def test_a_missing_topic_blocks_it(ledger: dict[str, KnownTopic]) -> None:
    """A topic that Kafka does not know is named, whether or not it was ever read."""
    planned = plan(KafkaSnapshot(cluster_id="C", topics={}), ledger)
    assert [b.reason for b in planned.blocks] == [BlockReason.TOPIC_MISSING]
    error = blocked_error("error_log", planned.blocks)
    assert isinstance(error, MissingTopicError)
    assert "alog" in str(error)


def test_the_error_of_a_blocked_run_names_both_sides() -> None:
    """The ledger's offset, Kafka's offset and the next command are all in the message."""
    planned = plan(kafka({0: held(20, 30)}), known({0: 10}))
    error = blocked_error("error_log", planned.blocks)
    assert isinstance(error, BlockedError)
    assert "alog/0" in str(error)
    assert "[10, 20)" in str(error)
    assert "tally losses accept error_log" in str(error)


@pytest.mark.parametrize(
    ("start", "found", "expected"),
    [
        ("earliest", None, 5),
        ("latest", None, 9),
        ("timestamp", 7, 7),
        ("timestamp", None, 9),
        ("timestamp", 2, 5),
        ("timestamp", 12, 9),
    ],
)
def test_first_offsets_stay_within_what_kafka_holds(
    start: str, found: int | None, expected: int
) -> None:
    """A time with no record after it means the end, and no answer leaves the held offsets."""
    starts = first_offsets(kafka({0: held(5, 9)}), ["alog", "unknown"], start, {P0: found})
    assert starts == {P0: expected}


def planned_segment(
    from_offset: int, until_offset: int, *, topic_id: str = "A", cluster_id: str = "C"
) -> Segment:
    return Segment(
        segment_id=1,
        topic_id=topic_id,
        cluster_id=cluster_id,
        range=offsets(P0, from_offset, until_offset),
        state=SegmentState.PLANNED,
    )


@pytest.mark.parametrize(
    ("segment", "readable"),
    [
        (planned_segment(10, 20), True),
        (planned_segment(5, 20), True),
        (planned_segment(4, 20), False),
        (planned_segment(10, 30), True),
        (planned_segment(10, 31), False),
        (planned_segment(10, 20, topic_id="B"), False),
        (planned_segment(10, 20, cluster_id="D"), False),
    ],
)
def test_a_planned_range_is_readable_while_kafka_holds_all_of_it(
    segment: Segment, readable: bool
) -> None:
    """Retention, truncation, another topic or another cluster make it unreadable."""
    assert (unreadable([segment], kafka({0: held(5, 30)})) == ()) is readable


def test_what_kafka_leaves_out_cannot_be_read() -> None:
    """A batch with a topic or partition that is gone can never be counted."""
    nothing = KafkaSnapshot(cluster_id="C", topics={})
    assert "no such topic" in unreadable([planned_segment(0, 20)], nothing)[0]
    assert (
        "does not answer for this partition"
        in unreadable([planned_segment(0, 20)], kafka({1: held(0, 1)}))[0]
    )


def test_what_was_read_need_not_be_held_any_more() -> None:
    """Retention after a read does no harm; another topic generation does."""
    late = kafka({0: held(15, 30)})
    assert unreadable([planned_segment(10, 20)], late, still_held=False) == ()
    assert unreadable([planned_segment(10, 20, topic_id="B")], late, still_held=False) != ()


def test_a_batch_that_the_ledger_has_passed_is_overtaken() -> None:
    """Such a batch can never commit."""
    assert overtaken([planned_segment(10, 20)], known({0: 10})) == ()
    assert "committed offset is 15" in overtaken([planned_segment(10, 20)], known({0: 15}))[0]


def test_an_open_batch_keeps_its_partitions_to_itself() -> None:
    """Beside it only losses and blocks of other partitions are recorded, and no ranges."""
    snapshot = kafka({0: held(20, 30), 1: held(20, 30)})
    planned = plan(snapshot, known({0: 10, 1: 10}))
    rest = beside(planned, [planned_segment(10, 20)])
    assert rest.ranges == ()
    assert rest.losses == (expired(offsets(P1, 10, 20)),)
    assert [block.partition for block in rest.blocks] == [1]


def test_by_partition_an_open_batch_holds_up_no_other_partition() -> None:
    """Beside it the ranges of other partitions are planned."""
    snapshot = kafka({0: held(0, 30), 1: held(0, 30)})
    planned = plan(snapshot, known({0: 10, 1: 10}))
    rest = beside(planned, [planned_segment(10, 20)], by_partition=True)
    assert rest.ranges == (offsets(P1, 10, 30),)
