"""What `tally status` says of a partition, from the ledger and from Kafka."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tally.app.ledger_state import LedgerState
from tally.app.status import Facts, PartitionStatus, StatusView, compose
from tally.config.loading import load_settings
from tally.config.pipeline import Pipeline
from tally.model import (
    Batch,
    BatchKind,
    BatchState,
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
from tally.planning.blocks import Block, BlockReason

NOW = datetime(2026, 11, 20, 14, 0, tzinfo=UTC)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A pipeline over the topic `a`."""
    path = tmp_path / "tally.toml"
    path.write_text('[pipelines.first]\ntopics = ["a"]\n', encoding="utf-8")
    return load_settings(path).pipeline("first")


def known(*positions: Position, topic_id: str = "id") -> dict[str, KnownTopic]:
    """The ledger's side: positions of partitions 0, 1 and so on."""
    return {
        "a": KnownTopic(
            incarnation_id=1,
            topic_id=topic_id,
            cluster_id="cluster",
            positions=dict(enumerate(positions)),
        )
    }


def kafka(*held: tuple[int, int]) -> KafkaSnapshot:
    """Kafka's side: earliest and end of partitions 0, 1 and so on."""
    partitions = {n: PartitionSnapshot(earliest=e, end=end) for n, (e, end) in enumerate(held)}
    topics = {"a": TopicSnapshot(topic_id="id", partitions=partitions)} if held else {}
    return KafkaSnapshot(cluster_id="cluster", topics=topics)


def stand(
    pipeline: Pipeline, known: dict[str, KnownTopic], said: KafkaSnapshot | None
) -> tuple[tuple[PartitionStatus, ...], tuple[Block, ...]]:
    """The partitions and the blocks of a status."""
    view: StatusView = compose(
        pipeline, LedgerState(known=known), Facts(now=NOW, overdue_before=NOW, kafka=said)
    )
    return view.partitions, view.blocks


def only(partitions: tuple[PartitionStatus, ...]) -> PartitionStatus:
    """The one partition."""
    assert len(partitions) == 1
    return partitions[0]


def test_lag_is_the_distance_to_kafkas_end_in_offsets(pipeline: Pipeline) -> None:
    """What is not counted yet, whatever the partition's start."""
    partitions, blocks = stand(
        pipeline, known(Position(start_offset=5, next_offset=10)), kafka((0, 35))
    )
    assert only(partitions).lag_offsets == 25
    assert only(partitions).condition == "ok"
    assert blocks == ()


def test_a_partition_that_only_kafka_knows_is_new(pipeline: Pipeline) -> None:
    """Partitions that were added are shown before they are planned."""
    partitions, _ = stand(
        pipeline, known(Position(start_offset=0, next_offset=1)), kafka((0, 1), (0, 7))
    )
    assert [s.condition for s in partitions] == ["ok", "new"]
    new = partitions[1]
    assert (new.start_offset, new.next_offset, new.kafka_end) == (None, None, 7)
    assert new.lag_offsets == 7


@pytest.mark.parametrize(
    ("start", "lag"), [("earliest", 4), ("latest", 0), (datetime(2026, 1, 1, tzinfo=UTC), None)]
)
def test_the_lag_of_a_new_topic_follows_from_its_start(
    pipeline: Pipeline, start: str | datetime, lag: int | None
) -> None:
    """What the first batch would count; where a time decides, Kafka would have to be asked."""
    asked = pipeline.model_copy(update={"start": start})
    partitions, _ = stand(asked, {}, kafka((3, 7)))
    assert only(partitions).lag_offsets == lag


def test_the_lag_counts_only_what_kafka_still_holds(pipeline: Pipeline) -> None:
    """Records that are gone are a loss, not a lag."""
    partitions, _ = stand(pipeline, known(Position(start_offset=0, next_offset=1)), kafka((4, 9)))
    assert only(partitions).lag_offsets == 5


def test_the_offsets_of_other_records_are_no_lag(pipeline: Pipeline) -> None:
    """Of another cluster's topic, or of one that was created again."""
    counted = known(Position(start_offset=0, next_offset=1))
    held = kafka((0, 9))
    elsewhere = replace(held, cluster_id="another")
    again = replace(held, topics={"a": replace(held.topics["a"], topic_id="another")})
    for answer in (elsewhere, again):
        partitions, blocks = stand(pipeline, counted, answer)
        assert only(partitions).lag_offsets is None
        assert only(partitions).kafka_end == 9
        assert len(blocks) == 1


def test_a_topic_that_is_new_to_the_pipeline_is_shown_without_a_start(pipeline: Pipeline) -> None:
    """Nothing was planned yet: Kafka's side alone is known, and nothing is blocked."""
    partitions, blocks = stand(pipeline, {}, kafka((0, 7)))
    assert only(partitions).condition == "new"
    assert blocks == ()


def test_without_an_answer_from_kafka_nothing_is_claimed(pipeline: Pipeline) -> None:
    """The ledger's offsets are shown; neither lag nor `ok` is."""
    partitions, blocks = stand(pipeline, known(Position(start_offset=0, next_offset=9)), None)
    assert only(partitions).next_offset == 9
    assert only(partitions).lag_offsets is None
    assert only(partitions).condition == "unknown"
    assert blocks == ()


def test_a_partition_whose_records_are_gone_is_blocked(pipeline: Pipeline) -> None:
    """Retention has passed the ledger's offset; the other partition is well."""
    partitions, blocks = stand(
        pipeline,
        known(Position(start_offset=0, next_offset=1), Position(start_offset=0, next_offset=1)),
        kafka((4, 9), (0, 9)),
    )
    assert [s.condition for s in partitions] == ["blocked: records-lost", "ok"]
    assert [b.reason for b in blocks] == [BlockReason.RECORDS_LOST]


def test_an_open_loss_is_shown_though_kafka_says_nothing(pipeline: Pipeline) -> None:
    """The ledger has it without Kafka."""
    loss = Loss(
        cause=LossCause.EXPIRED,
        range=OffsetRange(
            partition=TopicPartition(topic="a", partition=0), from_offset=1, until_offset=4
        ),
    )
    partitions, _ = stand(
        pipeline, known(Position(start_offset=0, next_offset=1, open_loss=loss)), None
    )
    assert only(partitions).condition == "open loss [1, 4)"


def test_a_block_of_a_whole_topic_is_on_each_of_its_partitions(pipeline: Pipeline) -> None:
    """A topic that was created again blocks all that is known of it."""
    partitions, blocks = stand(
        pipeline,
        known(
            Position(start_offset=0, next_offset=1),
            Position(start_offset=0, next_offset=1),
            topic_id="old",
        ),
        kafka((0, 9), (0, 9)),
    )
    assert [s.condition for s in partitions] == ["blocked: topic-changed"] * 2
    assert len(blocks) == 1


def test_a_topic_that_is_gone_is_blocked_and_keeps_its_rows(pipeline: Pipeline) -> None:
    """What was counted is still shown."""
    partitions, _ = stand(pipeline, known(Position(start_offset=0, next_offset=9)), kafka())
    assert only(partitions).condition == "blocked: topic-missing"
    assert only(partitions).next_offset == 9


def test_what_is_planned_is_shown_beside_what_is_counted(pipeline: Pipeline) -> None:
    """Without Kafka it is all that is known of how far behind a partition is."""
    planned = OffsetRange(
        partition=TopicPartition(topic="a", partition=0), from_offset=3, until_offset=8
    )
    segment = Segment(
        segment_id=1, topic_id="id", cluster_id="cluster", range=planned, state=SegmentState.PLANNED
    )
    batch = Batch(
        batch_id=7,
        pipeline="first",
        kind=BatchKind.INGEST,
        state=BatchState.PLANNED,
        attempt=0,
        planned_at=datetime(2026, 11, 20, tzinfo=UTC),
        claimed_at=None,
        segments=(segment,),
    )
    both = known(Position(start_offset=0, next_offset=3), Position(start_offset=0, next_offset=9))
    view = compose(
        pipeline,
        LedgerState(known=both, open_batches=(batch,)),
        Facts(now=NOW, overdue_before=NOW),
    )
    assert [p.planned_until for p in view.partitions] == [8, None]
    assert [p.planned_offsets for p in view.partitions] == [5, 0]
