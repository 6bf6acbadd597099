"""The newest records of a pipeline, where only they say why nothing is counted."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from tally.config.pipeline import Pipeline
from tally.lines.format import LineFormat
from tally.lines.json_fields import JsonPath
from tally.lines.pattern import LEVEL
from tally.model import KafkaSnapshot, TopicPartition
from tally.pipeline.context import KafkaPort

PARTITIONS_ASKED: Final = 8
RECORDS_EACH: Final = 25
LEVELS_NAMED: Final = 8


def newest_levels(kafka: KafkaPort, pipeline: Pipeline, held: KafkaSnapshot) -> Mapping[str, int]:
    """Levels of some of the newest records, the most frequent first, and how many have each.

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
        _level(pipeline.format, record.value or b"") for some in found.values() for record in some
    )
    return dict(Counter(level for level in levels if level is not None).most_common(LEVELS_NAMED))


def _level(line_format: LineFormat, value: bytes) -> str | None:
    """The level of a line, to be shown: what is counted is decided where it is read."""
    text = value.decode("utf-8", "replace")
    if line_format.is_fixed:
        printed = next(islice(text.split(" "), 2, None), None)
    elif not line_format.has_level:
        printed = None
    elif line_format.is_json:
        printed = _json_level(text, line_format.paths_of(LEVEL))
    else:
        found = line_format.parsed_pattern.python.match(text)
        printed = found[LEVEL] if found else None
    return None if printed is None else line_format.level_names.get(printed, printed)


def _json_level(text: str, paths: Sequence[JsonPath]) -> str | None:
    try:
        document = json.loads(text)
    except ValueError:
        return None
    for path in paths:
        value = document
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, str | int):
            return str(value)
    return None
