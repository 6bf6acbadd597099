"""Where a pipeline's partitions stand: the ledger's positions beside Kafka's answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tally.cli.ui.values import ABSENT, number, span
from tally.config.pipeline import Pipeline
from tally.model import KafkaSnapshot, KnownTopic, OffsetRange, Position, TopicPartition
from tally.planning.blocks import Block
from tally.planning.ingest import plan_ingest


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """One partition, as the ledger and Kafka see it."""

    partition: TopicPartition
    """Which."""
    topic_id: str | None
    """The topic's id in the ledger; None when it is new."""
    start_offset: int | None
    """Where counting began; None when the ledger does not know the partition yet."""
    next_offset: int | None
    """The first offset that is not counted."""
    kafka_earliest: int | None
    """The first offset that Kafka holds; None when Kafka did not say."""
    kafka_end: int | None
    """The first offset that cannot be read yet; None when Kafka did not say."""
    open_loss: OffsetRange | None
    """Offsets that were lost and wait for a decision."""
    block: Block | None
    """Why it is not read."""

    @property
    def lag_offsets(self) -> int | None:
        """Offsets between the ledger and Kafka's end; None when one of them is not known."""
        if self.next_offset is None or self.kafka_end is None:
            return None
        return max(0, self.kafka_end - self.next_offset)

    @property
    def condition(self) -> str:
        """In a few words."""
        if self.block is not None:
            return f"blocked: {self.block.reason}"
        if self.open_loss is not None:
            return f"open loss {span(self.open_loss.from_offset, self.open_loss.until_offset)}"
        if self.kafka_end is None:
            return "unknown"
        return "new" if self.next_offset is None else "ok"


def stand(
    pipeline: Pipeline, known: Mapping[str, KnownTopic], kafka: KafkaSnapshot | None
) -> tuple[list[Standing], tuple[Block, ...]]:
    """Every partition that the ledger or Kafka knows, in order, and every block.

    Args:
        pipeline: The pipeline.
        known: The ledger's current incarnations.
        kafka: What Kafka says; None when it did not answer.
    """
    blocks = _blocks(pipeline, known, kafka)
    topics = sorted(set(pipeline.topics) | known.keys())
    standings = [
        _standing(TopicPartition(topic=topic, partition=number_), known.get(topic), kafka, blocks)
        for topic in topics
        for number_ in _numbers(topic, known, kafka)
    ]
    return standings, blocks


def table_rows(standings: Sequence[Standing]) -> list[list[str]]:
    """The rows of ``tally status``."""
    return [
        [
            str(s.partition),
            _offset(s.start_offset),
            _offset(s.next_offset),
            _offset(s.kafka_end),
            number(s.lag_offsets),
            s.topic_id or ABSENT,
            s.condition,
        ]
        for s in standings
    ]


def _blocks(
    pipeline: Pipeline, known: Mapping[str, KnownTopic], kafka: KafkaSnapshot | None
) -> tuple[Block, ...]:
    if kafka is None:
        return ()
    # Topics that are new and there would be planned; where they begin does not matter here.
    asked = [t for t in pipeline.topics if t in known or t not in kafka.topics]
    asked_of = pipeline.model_copy(update={"topics": asked})
    return plan_ingest(asked_of, known=known, kafka=kafka, starts={}).blocks


def _numbers(topic: str, known: Mapping[str, KnownTopic], kafka: KafkaSnapshot | None) -> list[int]:
    ledger = set(known[topic].positions) if topic in known else set()
    held = set(kafka.topics[topic].partitions) if kafka and topic in kafka.topics else set()
    return sorted(ledger | held)


def _standing(
    partition: TopicPartition,
    topic: KnownTopic | None,
    kafka: KafkaSnapshot | None,
    blocks: Sequence[Block],
) -> Standing:
    position: Position | None = topic.positions.get(partition.partition) if topic else None
    held = kafka.partition(partition) if kafka else None
    return Standing(
        partition=partition,
        topic_id=topic.topic_id if topic else None,
        start_offset=position.start_offset if position else None,
        next_offset=position.next_offset if position else None,
        kafka_earliest=held.earliest if held else None,
        kafka_end=held.end if held else None,
        open_loss=position.open_loss.range if position and position.open_loss else None,
        block=next(
            (
                block
                for block in blocks
                if block.topic == partition.topic and block.partition in {None, partition.partition}
            ),
            None,
        ),
    )


def _offset(value: int | None) -> str:
    return ABSENT if value is None else str(value)
