"""Whether Kafka still serves a range of offsets that the ledger knows."""

from tally.model import Generation, KafkaSnapshot, OffsetRange


def why_not_served(
    wanted: OffsetRange,
    generation: Generation,
    kafka: KafkaSnapshot,
    *,
    was: str,
    still_held: bool = True,
) -> str | None:
    """Why Kafka cannot serve a range; None when it can.

    Args:
        wanted: The range.
        generation: The topic generation of its offsets.
        kafka: Kafka's current answer for the topic.
        was: The range's state, for the answer: ``planned`` or ``counted``.
        still_held: Whether its first records must still be there.
    """
    topic = kafka.topics.get(wanted.partition.topic)
    held = kafka.partition(wanted.partition)
    if generation.cluster_id != kafka.cluster_id:
        cause = f"{was} on cluster {generation.cluster_id}, Kafka says {kafka.cluster_id}"
    elif topic is None:
        cause = "Kafka has no such topic any more"
    elif topic.topic_id != generation.topic_id:
        cause = f"{was} with topic id {generation.topic_id}, Kafka says {topic.topic_id}"
    elif held is None:
        cause = "Kafka does not answer for this partition"
    elif still_held and held.earliest > wanted.from_offset:
        cause = f"Kafka's first offset is now {held.earliest}"
    elif held.end < wanted.until_offset:
        cause = f"Kafka's end offset is now {held.end}"
    else:
        return None
    return cause
