"""Planning, as a pure function of what the ledger and Kafka say."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tests.unit.values import P0, kafka, known, pipeline, span

from tally.errors import BlockedError, MissingTopicError
from tally.model import KafkaSnapshot, KnownTopic, Loss, LossCause, PlannedSegment, SegmentState
from tally.planning.blocks import blocked_error
from tally.planning.ingest import (
    Plan,
    beside,
    first_offsets,
    offset_conflicts,
    plan_ingest,
    unreadable,
)

P1 = replace(P0, partition=1)


def plan(
    snapshot: KafkaSnapshot,
    ledger: Mapping[str, KnownTopic],
    starts: Mapping[Any, int] | None = {},
    **keys: Any,
) -> Plan:
    return plan_ingest(pipeline(**keys), known=ledger, kafka=snapshot, starts=starts)


def told(planned: Plan) -> list[str]:
    """Everything that was decided, and whether it is doubted."""
    found = [f"new {topic} {of.topic_id}" for topic, of in planned.new_topics.items()]
    found += [f"new {partition} at {start}" for partition, start in planned.new_partitions.items()]
    found += [f"read {r}" for r in planned.ranges]
    found += [f"{loss.cause} {loss.range}" for loss in planned.losses]
    found += [f"restored {partition}" for partition in planned.restored]
    found += [f"{block.place} {block.reason}" for block in planned.blocks]
    return [*found, *(["doubtful"] if planned.doubtful else [])]


def loss(cause: LossCause, from_offset: int, until_offset: int) -> Loss:
    return Loss(cause=cause, range=span(from_offset, until_offset))


expired = partial(loss, LossCause.EXPIRED)
truncated = partial(loss, LossCause.TRUNCATED)
missing = partial(loss, LossCause.MISSING)


def test_a_range_goes_from_the_ledgers_offset_to_kafkas_end() -> None:
    """Partitions with new data get one range each, the others none; no range exceeds the limit."""
    assert told(plan(kafka((0, 310), (0, 7)), known(300, 7))) == ["read alog/0 [300, 310)"]
    assert plan(kafka((0, 7)), known(7)) == Plan()
    limited = plan(kafka((0, 1000)), known(10), max_records_per_partition=50)
    assert told(limited) == ["read alog/0 [10, 60)"]


def test_a_new_topic_starts_where_the_policy_says() -> None:
    """Without data, too; a partition that is added later is counted from its first offset."""
    new = ["new alog A", "new alog/0 at 5", "new alog/1 at 4", "read alog/0 [5, 9)"]
    assert told(plan(kafka((5, 9), (0, 4)), {}, {P0: 5, P1: 4})) == new
    added = ["new alog/1 at 0", "read alog/1 [0, 6)"]
    assert told(plan(kafka((0, 5), (0, 6)), known(5), start="latest")) == added
    lost = ["new alog/1 at 0", "expired alog/1 [0, 2)", "alog/1 records-lost"]
    assert told(plan(kafka((0, 5), (2, 6)), known(5))) == lost
    # Before a start in the future its first offset is not known; the error names the time.
    planned = plan(kafka((0, 5)), {}, None, start="2999-01-01T00:00:00Z")
    assert told(planned) == ["alog start-in-future"]
    assert "2999-01-01" in planned.blocks[0].detail


def test_what_a_restored_ledger_has_forgotten_is_lost_where_kafka_no_longer_holds_it() -> None:
    """It is not known where it began: from the earliest offset on it may have been before."""

    def again(start: str, starts: dict[Any, int]) -> list[str]:
        planned = plan_ingest(
            pipeline(start=start),
            known={},
            kafka=kafka((5, 9), (0, 4)),
            starts=starts,
            counted_before={"alog"},
        )
        return told(planned)

    expired_first = ["new alog A", "new alog/0 at 0", "new alog/1 at 0", "read alog/1 [0, 4)"]
    expired_first += ["expired alog/0 [0, 5)", "alog/0 records-lost"]
    assert again("earliest", {P0: 5, P1: 0}) == expired_first
    at_time = ["new alog A", "new alog/0 at 7", "new alog/1 at 3"]
    at_time += ["read alog/0 [7, 9)", "read alog/1 [3, 4)"]
    assert again("2020-01-01T00:00:00Z", {P0: 7, P1: 3}) == at_time
    assert again("latest", {P0: 9, P1: 4}) == ["alog topic-forgotten"]


def test_what_an_open_transaction_holds_up_is_written_and_not_lost() -> None:
    """Nothing of it is read; a start, or what is counted, may lie in it."""
    (topic,) = kafka((0, 10)).topics.values()
    held = replace(topic.partitions[0], unstable=90)
    open_ = kafka((0, 10))
    open_ = replace(open_, topics={"alog": replace(topic, partitions={0: held})})
    assert plan(open_, known(50)) == Plan()
    assert told(plan(open_, known(101)))[0] == "truncated alog/0 [100, 101)"
    starts = [
        first_offsets(open_, ["alog"], *of)[P0]
        for of in (("latest", {}), ("timestamp", {P0: 60}), ("timestamp", {P0: None}))
    ]
    assert starts == [100, 60, 100]


def test_lost_records_block_their_partition_alone_until_they_are_back() -> None:
    """Retention past the committed offset is recorded as a loss; the healthy partition is read."""
    planned = told(plan(kafka((20, 30), (0, 30)), known(10, 10)))
    lost = ["read alog/1 [10, 30)", "expired alog/0 [10, 20)", "alog/0 records-lost"]
    assert planned == lost
    # It stays open until the records are back; one that has become larger has its new size.
    ledger = known(10, open_loss=expired(10, 20))
    larger = ["expired alog/0 [10, 25)", "alog/0 records-lost"]
    assert told(plan(kafka((25, 30)), ledger)) == larger
    assert told(plan(kafka((0, 30)), ledger)) == ["read alog/0 [10, 30)", "restored alog/0"]


def test_an_end_before_the_ledgers_offset_blocks_and_is_doubted() -> None:
    """A smaller end is a truncation or stale metadata; it never moves an offset back.

    Its lowest end is remembered until it is decided, also if the partition has grown again.
    """
    blocked = ["alog/0 topic-truncated", "doubtful"]
    planned = told(plan(kafka((0, 9), (0, 12)), known(10, 10)))
    assert planned == ["read alog/1 [10, 12)", "truncated alog/0 [9, 10)", *blocked]
    seen = {"open_loss": truncated(7, 10)}
    for name, losses, end, lowest in (
        *(("seen again", seen, 9, 7), ("grown again", seen, 30, 7), ("further", seen, 5, 5)),
        ("further than accepted", {"accepted_losses": (truncated(7, 10),)}, 6, 6),
    ):
        planned = told(plan(kafka((0, end)), known(10, **losses)))
        assert planned == [f"truncated alog/0 [{lowest}, 10)", *blocked], name


def test_an_accepted_truncation_is_waited_out_and_an_accepted_hole_is_read() -> None:
    """Nothing is read up to the committed offset; later records are."""
    ledger = known(10, accepted_losses=(truncated(7, 10),))
    assert plan(kafka((0, 8)), ledger) == Plan()
    assert told(plan(kafka((0, 12)), ledger)) == ["read alog/0 [10, 12)"]
    # A range with holes that was accepted is read alone; retention behind a hole is a loss.
    ledger = known(10, open_loss=missing(10, 20))
    dense = ["missing alog/0 [10, 20)", "alog/0 records-missing"]
    assert told(plan(kafka((0, 30)), ledger)) == dense
    back = ["read alog/0 [10, 30)", "restored alog/0"]
    assert told(plan(kafka((0, 30)), ledger, offsets="sparse")) == back
    accepted = known(10, accepted_losses=(missing(5, 20),))
    assert told(plan(kafka((0, 30)), accepted)) == ["read alog/0 [10, 20)"]
    gone = ["expired alog/0 [10, 15)", "alog/0 records-lost"]
    assert told(plan(kafka((15, 30)), ledger)) == gone


def test_a_recreated_topic_blocks_even_when_it_is_longer() -> None:
    """Another topic id blocks the whole topic, although its offsets look plausible."""
    planned = plan(kafka((0, 9999), topic_id="B"), known(10))
    assert told(planned) == ["alog topic-changed", "doubtful"]
    assert "with topic id A, Kafka says B" in planned.blocks[0].detail
    assert planned.blocks[0].next_step.startswith("tally topics adopt first alog")


def test_another_cluster_blocks_even_with_the_same_topic_id() -> None:
    planned = plan(kafka((0, 9999), cluster_id="D"), known(10))
    assert told(planned) == ["alog cluster-changed", "doubtful"]
    assert "on cluster C, Kafka says D" in planned.blocks[0].detail
    assert "tally topics adopt first alog" in planned.blocks[0].next_step


def test_a_short_partition_list_forgets_nothing() -> None:
    """A partition that Kafka leaves out is an error of its own; the others are read."""
    planned = plan(kafka(None, (0, 12)), known(10, 10))
    assert told(planned) == ["read alog/1 [10, 12)", "alog/0 partition-missing", "doubtful"]
    assert "knows 2 partitions, Kafka answers 1" in planned.blocks[0].detail


def test_the_error_of_a_blocked_run_names_both_sides() -> None:
    """The ledger's offset, Kafka's and the next command; a topic that is missing has its own."""
    error = blocked_error("first", plan(kafka((20, 30)), known(10)).blocks)
    assert isinstance(error, BlockedError)
    for part in ("alog/0", "[10, 20)", "tally losses accept first"):
        assert part in str(error)
    of_loss = plan(kafka((20, 30)), known(10)).blocks
    detail = "[10, 20) was never counted and Kafka no longer holds it"
    assert error.what == f"pipeline first: not read: alog/0: records-lost: {detail}"
    # Whether or not it was ever read.
    for ledger, detail in (({}, "no such topic"), (known(10), "no such topic any more")):
        planned = plan(kafka(), ledger)
        assert told(planned) == ["alog topic-missing", "doubtful"]
        assert planned.blocks[0].detail.endswith(detail)
        error = blocked_error("first", planned.blocks)
        assert isinstance(error, MissingTopicError)
        # The code and the next step stand beside the text, and not in it.
        assert error.what == f"pipeline first: not read: alog: Kafka has {detail}"
        assert error.next_step.endswith("BROKER:9092 --create --topic alog")
        assert ("needs tally topics adopt" in error.next_step) is bool(ledger)
        assert type(blocked_error("first", [*planned.blocks, *of_loss])) is BlockedError


def test_first_offsets_stay_within_what_kafka_holds() -> None:
    """A time with no record after it means the end, and no answer leaves the held offsets."""
    for start, found, expected in (
        *(("earliest", None, 5), ("latest", None, 9), ("timestamp", 7, 7), ("timestamp", None, 9)),
        *(("timestamp", 2, 5), ("timestamp", 12, 9)),
    ):
        starts = first_offsets(kafka((5, 9)), ["alog", "unknown"], start, {P0: found})
        assert starts == {P0: expected}, (start, found)


def segment(from_offset: int, until_offset: int, **ids: str) -> PlannedSegment:
    ids = {"topic_id": "A", "cluster_id": "C", **ids}
    r = span(from_offset, until_offset)
    return PlannedSegment(segment_id=1, range=r, state=SegmentState.PLANNED, **ids)


def test_a_planned_range_is_readable_while_kafka_holds_all_of_it() -> None:
    """Another topic or cluster makes it unreadable; retention after a read does no harm."""
    readable = [segment(10, 20), segment(5, 20), segment(10, 30)]
    assert [s for s in readable if unreadable([s], kafka((5, 30)))] == []
    gone = [segment(4, 20), segment(10, 31)]
    others = [segment(10, 20, topic_id="B"), segment(10, 20, cluster_id="D")]
    assert [s for s in [*gone, *others] if not unreadable([s], kafka((5, 30)))] == []
    for snapshot, cause in (
        (kafka(), "no such topic"),
        (kafka(None, (0, 1)), "does not answer for this partition"),
    ):
        assert cause in unreadable([readable[0]], snapshot)[0]
    late = kafka((15, 30))
    assert unreadable([segment(10, 20)], late, still_held=False) == ()
    assert unreadable([others[0]], late, still_held=False) != ()
    # A batch that the ledger has passed can never commit.
    assert offset_conflicts([segment(10, 20)], known(10)) == ()
    assert "committed offset is 15" in offset_conflicts([segment(10, 20)], known(15))[0]


def test_by_partition_an_open_batch_holds_up_no_other_partition() -> None:
    """Beside it ranges of other partitions are planned; a whole one leaves their losses alone."""
    lost = plan(kafka((20, 30), (20, 30)), known(10, 10))
    of_other = ["expired alog/1 [10, 20)", "alog/1 records-lost"]
    assert told(beside(lost, [segment(10, 20)])) == of_other
    planned = plan(kafka((0, 30), (0, 30)), known(10, 10))
    assert beside(planned, [segment(10, 20)]) == Plan()
    assert told(beside(planned, [segment(10, 20)], by_partition=True)) == ["read alog/1 [10, 30)"]
