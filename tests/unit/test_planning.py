"""Planning, as a pure function of what the ledger and Kafka say."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

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


def kafka(
    partitions: Mapping[int, tuple[int, int]], *, topic_id: str = "A", cluster_id: str = "C"
) -> KafkaSnapshot:
    """What Kafka holds, from the earliest offset to the end."""
    held = {n: PartitionSnapshot(earliest=a, end=b) for n, (a, b) in partitions.items()}
    topic = TopicSnapshot(topic_id=topic_id, partitions=held)
    return KafkaSnapshot(cluster_id=cluster_id, topics={"alog": topic})


def known(positions: Mapping[int, int | Position]) -> dict[str, KnownTopic]:
    found = {
        n: p if isinstance(p, Position) else Position(start_offset=0, next_offset=p)
        for n, p in positions.items()
    }
    return {"alog": KnownTopic(incarnation_id=1, topic_id="A", cluster_id="C", positions=found)}


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


def loss(cause: LossCause, from_offset: int, until_offset: int) -> Loss:
    return Loss(cause=cause, range=offsets(P0, from_offset, until_offset))


expired = partial(loss, LossCause.EXPIRED)
truncated = partial(loss, LossCause.TRUNCATED)
missing = partial(loss, LossCause.MISSING)


def at_10(open_loss: Loss | None = None, accepted: Loss | None = None) -> dict[str, KnownTopic]:
    """Partition 0 is counted up to 10."""
    accepted_losses = (accepted,) if accepted else ()
    position = Position(
        start_offset=0, next_offset=10, open_loss=open_loss, accepted_losses=accepted_losses
    )
    return known({0: position})


def reasons(planned: Plan) -> list[tuple[int | None, BlockReason]]:
    return [(block.partition, block.reason) for block in planned.blocks]


def test_a_range_goes_from_the_ledgers_offset_to_kafkas_end() -> None:
    """Partitions with new data get one range each, the others none; no range exceeds the limit."""
    planned = plan(kafka({0: (0, 310), 1: (0, 7)}), known({0: 300, 1: 7}))
    assert planned == Plan(ranges=(offsets(P0, 300, 310),))
    assert plan(kafka({0: (0, 7)}), known({0: 7})) == Plan()
    planned = plan(kafka({0: (0, 1000)}), known({0: 10}), limit=50)
    assert planned.ranges == (offsets(P0, 10, 60),)


def test_a_new_topic_starts_where_the_policy_says() -> None:
    """Without data, too; a partition that is added later is counted from its earliest offset."""
    planned = plan(kafka({0: (5, 9), 1: (0, 4)}), {}, starts={P0: 5, P1: 4})
    assert planned.new_topics == {"alog": "A"}
    starts = [(new.partition, new.start_offset) for new in planned.new_partitions]
    assert starts == [(P0, 5), (P1, 4)]
    assert planned.ranges == (offsets(P0, 5, 9),)
    planned = plan(kafka({0: (0, 5), 1: (2, 6)}), known({0: 5}))
    assert planned.new_partitions == (NewPartition(partition=P1, start_offset=2),)
    assert planned.ranges == (offsets(P1, 2, 6),)


def test_lost_records_block_their_partition_alone() -> None:
    """Retention past the committed offset is recorded as a loss; the healthy partition is read."""
    planned = plan(kafka({0: (20, 30), 1: (0, 30)}), known({0: 10, 1: 10}))
    assert planned.losses == (expired(10, 20),)
    assert reasons(planned) == [(0, BlockReason.RECORDS_LOST)]
    assert planned.ranges == (offsets(P1, 10, 30),)
    assert not planned.doubtful


def test_an_open_loss_stays_open_until_the_records_are_back() -> None:
    """One that has become larger has its new size; then it is read on from the ledger's offset."""
    ledger = at_10(open_loss=expired(10, 20))
    assert plan(kafka({0: (25, 30)}), ledger).losses == (expired(10, 25),)
    assert plan(kafka({0: (25, 30)}), ledger).restored == ()
    back = Plan(restored=(P0,), ranges=(offsets(P0, 10, 30),))
    assert plan(kafka({0: (0, 30)}), ledger) == back


def test_an_end_before_the_ledgers_offset_blocks_and_is_doubted() -> None:
    """A smaller end is a truncation or stale metadata; it never moves an offset back."""
    planned = plan(kafka({0: (0, 9), 1: (0, 12)}), known({0: 10, 1: 10}))
    assert reasons(planned) == [(0, BlockReason.TOPIC_TRUNCATED)]
    assert planned.ranges == (offsets(P1, 10, 12),)
    assert planned.doubtful


def test_a_truncation_is_remembered_until_it_is_decided() -> None:
    """Its lowest end is recorded, and a partition that has grown again stays blocked."""
    for name, ledger, end, loss in (
        ("seen", at_10(), 9, truncated(9, 10)),
        ("seen again", at_10(open_loss=truncated(7, 10)), 9, truncated(7, 10)),
        ("grown again", at_10(open_loss=truncated(7, 10)), 30, truncated(7, 10)),
        ("further", at_10(open_loss=truncated(7, 10)), 5, truncated(5, 10)),
        ("further than accepted", at_10(accepted=truncated(7, 10)), 6, truncated(6, 10)),
    ):
        planned = plan(kafka({0: (0, end)}), ledger)
        assert planned.losses == (loss,), name
        assert reasons(planned) == [(0, BlockReason.TOPIC_TRUNCATED)], name
        assert planned.ranges == (), name


def test_an_accepted_truncation_is_waited_out() -> None:
    """Nothing is read up to the committed offset; later records are."""
    ledger = at_10(accepted=truncated(7, 10))
    assert plan(kafka({0: (0, 8)}), ledger) == Plan()
    assert plan(kafka({0: (0, 12)}), ledger) == Plan(ranges=(offsets(P0, 10, 12),))


def test_a_range_with_holes_is_blocked_until_it_is_accepted_or_normal() -> None:
    """Accepted, it is read alone; retention behind a hole is a loss of its own."""
    ledger = at_10(open_loss=missing(10, 20))
    dense = plan(kafka({0: (0, 30)}), ledger)
    assert (dense.losses, dense.ranges) == ((missing(10, 20),), ())
    assert reasons(dense) == [(0, BlockReason.RECORDS_MISSING)]
    back = Plan(restored=(P0,), ranges=(offsets(P0, 10, 30),))
    assert plan(kafka({0: (0, 30)}), ledger, offsets="sparse") == back
    planned = plan(kafka({0: (0, 30)}), at_10(accepted=missing(5, 20)))
    assert planned.ranges == (offsets(P0, 10, 20),)
    assert plan(kafka({0: (15, 30)}), ledger).losses == (expired(10, 15),)


def test_a_start_in_the_future_blocks_the_new_topic() -> None:
    """Its first offset is not known yet; the error names the time."""
    pipeline = Pipeline(name="error_log", topics=["alog"], start="2999-01-01T00:00:00Z")
    planned = plan_ingest(pipeline, known={}, kafka=kafka({0: (0, 5)}), starts=None)
    assert reasons(planned) == [(None, BlockReason.START_IN_FUTURE)]
    assert "2999-01-01" in planned.blocks[0].detail
    assert planned.new_topics == {}


def test_a_recreated_topic_blocks_even_when_it_is_longer() -> None:
    """Another topic id blocks the whole topic, although its offsets look plausible."""
    planned = plan(kafka({0: (0, 9999)}, topic_id="B"), known({0: 10}))
    assert reasons(planned) == [(None, BlockReason.TOPIC_CHANGED)]
    assert (planned.ranges, planned.doubtful) == ((), True)


def test_another_cluster_blocks_even_with_the_same_topic_id() -> None:
    """The same topic name on another cluster is not the topic that was counted."""
    planned = plan(kafka({0: (0, 9999)}, cluster_id="D"), known({0: 10}))
    assert reasons(planned) == [(None, BlockReason.CLUSTER_CHANGED)]
    assert planned.ranges == ()


def test_a_short_partition_list_forgets_nothing() -> None:
    """A partition that Kafka leaves out is an error of its own; the others are read."""
    planned = plan(kafka({1: (0, 12)}), known({0: 10, 1: 10}))
    assert reasons(planned) == [(0, BlockReason.PARTITION_MISSING)]
    assert planned.ranges == (offsets(P1, 10, 12),)
    assert planned.doubtful


def test_the_error_of_a_blocked_run_names_both_sides() -> None:
    """The ledger's offset, Kafka's and the next command; a topic that is missing has its own."""
    planned = plan(kafka({0: (20, 30)}), known({0: 10}))
    error = blocked_error("error_log", planned.blocks)
    assert isinstance(error, BlockedError)
    for part in ("alog/0", "[10, 20)", "tally losses accept error_log"):
        assert part in str(error)
    for ledger in ({}, known({0: 10})):  # whether or not it was ever read
        planned = plan(KafkaSnapshot(cluster_id="C", topics={}), ledger)
        assert [block.reason for block in planned.blocks] == [BlockReason.TOPIC_MISSING]
        error = blocked_error("error_log", planned.blocks)
        assert isinstance(error, MissingTopicError)
        assert "alog" in str(error)


def test_first_offsets_stay_within_what_kafka_holds() -> None:
    """A time with no record after it means the end, and no answer leaves the held offsets."""
    for start, found, expected in (
        *(("earliest", None, 5), ("latest", None, 9), ("timestamp", 7, 7), ("timestamp", None, 9)),
        *(("timestamp", 2, 5), ("timestamp", 12, 9)),
    ):
        starts = first_offsets(kafka({0: (5, 9)}), ["alog", "unknown"], start, {P0: found})
        assert starts == {P0: expected}, (start, found)


def segment(from_offset: int, until_offset: int, **ids: str) -> Segment:
    """A planned segment of partition 0."""
    ids = {"topic_id": "A", "cluster_id": "C", **ids}
    planned = offsets(P0, from_offset, until_offset)
    return Segment(segment_id=1, range=planned, state=SegmentState.PLANNED, **ids)


def test_a_planned_range_is_readable_while_kafka_holds_all_of_it() -> None:
    """Another topic or cluster makes it unreadable; retention after a read does no harm."""
    readable = [segment(10, 20), segment(5, 20), segment(10, 30)]
    assert [s for s in readable if unreadable([s], kafka({0: (5, 30)}))] == []
    gone = [segment(4, 20), segment(10, 31)]
    others = [segment(10, 20, topic_id="B"), segment(10, 20, cluster_id="D")]
    assert [s for s in [*gone, *others] if not unreadable([s], kafka({0: (5, 30)}))] == []
    for snapshot, told in (
        (KafkaSnapshot(cluster_id="C", topics={}), "no such topic"),
        (kafka({1: (0, 1)}), "does not answer for this partition"),
    ):
        assert told in unreadable([readable[0]], snapshot)[0]
    late = kafka({0: (15, 30)})
    assert unreadable([segment(10, 20)], late, still_held=False) == ()
    assert unreadable([others[0]], late, still_held=False) != ()


def test_a_batch_that_the_ledger_has_passed_is_overtaken() -> None:
    """Such a batch can never commit."""
    assert overtaken([segment(10, 20)], known({0: 10})) == ()
    assert "committed offset is 15" in overtaken([segment(10, 20)], known({0: 15}))[0]


def test_an_open_batch_keeps_its_partitions_to_itself() -> None:
    """Beside it only losses and blocks of other partitions are recorded, and no ranges."""
    planned = plan(kafka({0: (20, 30), 1: (20, 30)}), known({0: 10, 1: 10}))
    rest = beside(planned, [segment(10, 20)])
    assert rest.ranges == ()
    assert rest.losses == (replace(expired(10, 20), range=offsets(P1, 10, 20)),)
    assert [block.partition for block in rest.blocks] == [1]


def test_by_partition_an_open_batch_holds_up_no_other_partition() -> None:
    """Beside it the ranges of other partitions are planned."""
    planned = plan(kafka({0: (0, 30), 1: (0, 30)}), known({0: 10, 1: 10}))
    rest = beside(planned, [segment(10, 20)], by_partition=True)
    assert rest.ranges == (offsets(P1, 10, 30),)
