"""The newest records of a pipeline, where only they say why nothing is counted."""

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import Final

from tally.config.pipeline import Pipeline
from tally.kafka.client import Kafka
from tally.lines.reading import level_of
from tally.model import KafkaSnapshot, TopicPartition

PARTITIONS_ASKED: Final = 8
RECORDS_EACH: Final = 25
LEVELS_NAMED: Final = 8


def newest_levels(kafka: Kafka, pipeline: Pipeline, held: KafkaSnapshot) -> Mapping[str, int]:
    """Levels of some of the newest lines, the most frequent first, and how many have each.

    Raises:
        TallyError: Kafka did not answer, or refused.
    """
    ends = (
        (TopicPartition(topic=topic, partition=number), one)
        for topic in pipeline.topics
        if topic in held.topics
        for number, one in held.topics[topic].partitions.items()
        if one.end > one.earliest
    )
    first = {
        where: max(one.earliest, one.end - RECORDS_EACH)
        for where, one in islice(ends, PARTITIONS_ASKED)
    }
    found = kafka.records_at(
        first, records_max=RECORDS_EACH, read_committed=pipeline.reads_committed
    )
    levels = (
        level_of(pipeline.format, record.value or b"") for some in found.values() for record in some
    )
    return dict(Counter(level for level in levels if level is not None).most_common(LEVELS_NAMED))
