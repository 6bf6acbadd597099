"""The value types refuse invalid values."""

import pytest

from tally.model import OffsetRange, PartitionSnapshot, SegmentTotals, TopicPartition

P0 = TopicPartition(topic="alog", partition=0)


@pytest.mark.parametrize(("first", "until"), [(0, 0), (5, 4), (-1, 3)])
def test_an_offset_range_is_never_empty_or_negative(first: int, until: int) -> None:
    """From = until, from > until and negative offsets are no ranges."""
    with pytest.raises(ValueError, match="no offset range"):
        OffsetRange(partition=P0, from_offset=first, until_offset=until)


def test_a_range_prints_half_open() -> None:
    """Ranges are printed as ``alog/0 [300, 310)``."""
    assert str(OffsetRange(partition=P0, from_offset=300, until_offset=310)) == "alog/0 [300, 310)"


def test_totals_must_add_up() -> None:
    """Records that are neither matched, unmatched nor malformed do not exist."""
    with pytest.raises(ValueError, match="do not add up"):
        SegmentTotals(records=3, matched=1, unmatched=0, malformed=1, first_offset=0, last_offset=2)


def test_a_partition_cannot_end_before_it_begins() -> None:
    """Contradicting offsets of a partition are refused."""
    with pytest.raises(ValueError, match="contradict"):
        PartitionSnapshot(earliest=5, end=4)


@pytest.mark.parametrize(("topic", "partition"), [("", 0), ("alog", -1)])
def test_a_partition_has_a_name_and_a_number(topic: str, partition: int) -> None:
    """A nameless topic or a negative partition is refused where it is made."""
    with pytest.raises(ValueError, match=r"name|negative"):
        TopicPartition(topic=topic, partition=partition)
