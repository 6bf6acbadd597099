"""Whether Kafka still serves a range of offsets that the ledger knows."""

from typing import Protocol

from tally.model import KafkaSnapshot, OffsetRange


class Life(Protocol):
    """Whatever says which life of a topic its offsets are of: a segment, a known topic."""

    @property
    def cluster_id(self) -> str:
        """Kafka's id of the cluster."""

    @property
    def topic_id(self) -> str:
        """Kafka's id of the topic, a new one whenever it is created again."""


def why_not_served(
    wanted: OffsetRange, life: Life, kafka: KafkaSnapshot, *, was: str, still_held: bool = True
) -> str | None:
    """Why Kafka cannot serve a range; None when it can.

    Args:
        wanted: The range.
        life: Which life of the topic its offsets are of.
        kafka: What Kafka says now of the topic.
        was: What had become of the range, for the answer: ``planned`` or ``counted``.
        still_held: Whether its first records must still be there.
    """
    topic = kafka.topics.get(wanted.partition.topic)
    held = kafka.partition(wanted.partition)
    if life.cluster_id != kafka.cluster_id:
        cause = f"{was} on cluster {life.cluster_id}, Kafka says {kafka.cluster_id}"
    elif topic is None:
        cause = "Kafka has no such topic any more"
    elif topic.topic_id != life.topic_id:
        cause = f"{was} with topic id {life.topic_id}, Kafka says {topic.topic_id}"
    elif held is None:
        cause = "Kafka does not answer for this partition"
    elif still_held and held.earliest > wanted.from_offset:
        cause = f"Kafka's first offset is now {held.earliest}"
    elif held.end < wanted.until_offset:
        cause = f"Kafka's end offset is now {held.end}"
    else:
        return None
    return cause
