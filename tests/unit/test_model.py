"""The value types refuse invalid values."""

import pytest
from tests.unit.values import P0

from tally.model import OffsetRange, PartitionSnapshot, SegmentTotals, TopicPartition


def test_an_offset_range_is_never_empty_or_negative() -> None:
    """From = until, from > until and negative offsets are no ranges."""
    for first, until in ((0, 0), (5, 4), (-1, 3)):
        with pytest.raises(ValueError, match="no offset range"):
            OffsetRange(partition=P0, from_offset=first, until_offset=until)
    assert str(OffsetRange(partition=P0, from_offset=300, until_offset=310)) == "alog/0 [300, 310)"
    # Totals add up, a partition ends behind its beginning, and has a name and a number.
    with pytest.raises(ValueError, match="do not add up"):
        SegmentTotals(records=3, matched=1, unmatched=0, malformed=1, first_offset=0, last_offset=2)
    with pytest.raises(ValueError, match="contradict"):
        PartitionSnapshot(earliest=5, end=4)
    for topic, partition in (("", 0), ("alog", -1)):
        with pytest.raises(ValueError, match=r"no partition"):
            TopicPartition(topic=topic, partition=partition)
