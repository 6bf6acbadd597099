"""Rows of the database as values of the model."""

from tally.model import OffsetRange, TopicPartition
from tally.mysql.transactions import Row


def partition_of(row: Row) -> TopicPartition:
    """The partition that ``topic`` and ``partition_id`` name."""
    return TopicPartition(topic=row["topic"], partition=row["partition_id"])


def range_of(row: Row, partition: TopicPartition | None = None) -> OffsetRange:
    """The range ``from_offset`` to ``until_offset`` of ``partition``; by default the row's own."""
    return OffsetRange(
        partition=partition or partition_of(row),
        from_offset=row["from_offset"],
        until_offset=row["until_offset"],
    )
