"""Which records of a topic a format is tried on."""

import pytest
from pyspark.sql import Row

from tally.model import OffsetRange, TopicPartition
from tally.spark.trial import newest_within


@pytest.mark.parametrize(
    ("sizes", "bytes_max", "expected"),
    [
        ({0: [1, 1, 1], 1: [1, 1, 1]}, 9, {0: 0, 1: 0}),
        ({0: [1, 1, 1], 1: [1, 1, 1]}, 4, {0: 1, 1: 1}),
        ({0: [1, 1, 1], 1: [9, 9, 2]}, 5, {0: 0, 1: 2}),
        ({0: [1, 9, 1], 1: [9]}, 8, {0: 2}),
        ({number: [3, 3] for number in range(256)}, 7, {0: 1, 1: 1}),
        ({0: [9], 1: [2]}, 7, {1: 0}),
        ({0: [9], 1: [9]}, 7, {}),
    ],
    ids=["all", "newest", "large", "hole", "partitions", "one", "none"],
)
def test_the_newest_records_that_fit_are_tried(
    sizes: dict[int, list[int]], bytes_max: int, expected: dict[int, int]
) -> None:
    """Of each partition about as many; none behind a record that was left out."""
    rows = [
        Row(partition=partition, offset=offset, size=size)
        for partition, of in sizes.items()
        for offset, size in enumerate(of)
    ]
    ranges = [
        OffsetRange(
            partition=TopicPartition(topic="t", partition=partition),
            from_offset=0,
            until_offset=len(of),
        )
        for partition, of in sizes.items()
    ]
    found = newest_within(rows, ranges, bytes_max)
    assert {r.partition.partition: r.from_offset for r in found} == expected
    assert all(r.until_offset == len(sizes[r.partition.partition]) for r in found)
