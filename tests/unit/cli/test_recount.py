"""The recount: which ranges are read together, and which differences it finds."""

from pathlib import Path
from typing import Any

import pytest

from tally.aggregates.fingerprint import fingerprint
from tally.config.loading import load_settings
from tally.config.pipeline import Pipeline
from tally.ledger.segments import SegmentRecord
from tally.model import (
    EMPTY_TOTALS,
    KafkaSnapshot,
    OffsetRange,
    PartitionSnapshot,
    SegmentState,
    SegmentTotals,
    TopicPartition,
    TopicSnapshot,
)
from tally.pipeline.chunks import SEGMENTS_PER_RANGE, Chunk, join_segments, rounds, why_not_held
from tally.pipeline.recount import Rows, compare, explain


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A pipeline with the defaults."""
    path = tmp_path / "tally.toml"
    path.write_text('[pipelines.first]\ntopics = ["a"]\n', encoding="utf-8")
    return load_settings(path).pipeline("first")


def offsets(from_offset: int, until_offset: int, partition: int = 0) -> OffsetRange:
    """A range of the topic `a`."""
    here = TopicPartition(topic="a", partition=partition)
    return OffsetRange(partition=here, from_offset=from_offset, until_offset=until_offset)


def totals(matched: int = 0, unmatched: int = 0, malformed: int = 0) -> SegmentTotals:
    """Counts that add up."""
    records = matched + unmatched + malformed
    return SegmentTotals(
        records=records,
        matched=matched,
        unmatched=unmatched,
        malformed=malformed,
        first_offset=None,
        last_offset=None,
    )


def segment(from_offset: int, until_offset: int, partition: int = 0, **facts: Any) -> SegmentRecord:
    """A live segment."""
    usual: dict[str, Any] = {
        "segment_id": from_offset,
        "batch_id": 1,
        "state": SegmentState.LIVE,
        "superseded_by": None,
        "topic_id": "id",
        "cluster_id": "cluster",
        "is_current": True,
        "totals": totals(),
        "format_fingerprint": "f",
        "committed_version": "1",
    }
    return SegmentRecord(range=offsets(from_offset, until_offset, partition), **{**usual, **facts})


def kafka(earliest: int, end: int, topic_id: str = "id") -> KafkaSnapshot:
    """Kafka's answer for the one partition."""
    held = {0: PartitionSnapshot(earliest=earliest, end=end)}
    return KafkaSnapshot(
        cluster_id="cluster", topics={"a": TopicSnapshot(topic_id=topic_id, partitions=held)}
    )


def test_consecutive_segments_are_joined_up_to_the_limit() -> None:
    """A minute's segments are small: reading each by itself would take hours."""
    chunks = join_segments([segment(n, n + 10) for n in range(0, 50, 10)], 20)
    assert [c.range for c in chunks] == [offsets(0, 20), offsets(20, 40), offsets(40, 50)]


def test_a_range_has_no_more_segments_than_a_statement_may_name() -> None:
    """A quiet pipeline has a segment of a few offsets for each minute of a year."""
    chunks = join_segments([segment(n, n + 1) for n in range(5)], segments_per_range=2)
    assert [c.range for c in chunks] == [offsets(0, 2), offsets(2, 4), offsets(4, 5)]
    year = [segment(n, n + 1) for n in range(2 * SEGMENTS_PER_RANGE + 1)]
    assert [len(c.segments) for c in join_segments(year)] == [SEGMENTS_PER_RANGE] * 2 + [1]


def test_a_gap_and_another_partition_end_a_range() -> None:
    """What is read is exactly what is live: an accepted loss in between is left out."""
    chunks = join_segments([segment(0, 10), segment(15, 20), segment(20, 30, partition=1)], 100)
    assert [c.range for c in chunks] == [offsets(0, 10), offsets(15, 20), offsets(20, 30, 1)]


def test_a_segment_above_the_limit_is_read_by_itself() -> None:
    """A segment is never cut: its contribution is known as a whole."""
    chunks = join_segments([segment(0, 5), segment(5, 100), segment(100, 105)], 20)
    assert [c.range for c in chunks] == [offsets(0, 5), offsets(5, 100), offsets(100, 105)]


def test_a_round_has_one_range_of_each_partition_and_all_are_read() -> None:
    """One Spark read takes one range of a partition at most."""
    chunks = join_segments([segment(0, 5), segment(5, 10), segment(0, 5, 1)], 5)
    found = [[c.range for c in chunk] for chunk in rounds(chunks)]
    assert found == [[offsets(0, 5), offsets(0, 5, 1)], [offsets(5, 10)]]


@pytest.mark.parametrize(
    ("one", "snapshot", "cause"),
    [
        (segment(5, 10), kafka(5, 10), None),
        (segment(5, 10), kafka(6, 10), "first offset is now 6"),
        (segment(5, 10), kafka(5, 9), "end offset is now 9"),
        (segment(5, 10), kafka(5, 10, topic_id="other"), "topic id"),
        (segment(5, 10, cluster_id="other"), kafka(5, 10), "cluster"),
        (segment(5, 10, is_current=False), kafka(5, 10), "retired"),
        (segment(5, 10, partition=1), kafka(5, 10), "this partition"),
        (segment(5, 10), KafkaSnapshot(cluster_id="cluster", topics={}), "no such topic"),
    ],
)
def test_what_kafka_no_longer_holds_in_whole_is_not_recounted(
    one: SegmentRecord, snapshot: KafkaSnapshot, cause: str | None
) -> None:
    """Each way in which the records can be out of reach has its own message."""
    why = why_not_held(one, snapshot)
    assert (why is None) if cause is None else (why is not None and cause in why)


def violations(expected: SegmentTotals, found: SegmentTotals, ledger: Rows, now: Rows) -> list[str]:
    """The details of the violations."""
    chunk = Chunk(segments=(segment(0, 10, totals=expected),))
    return [f"{f.where}: {f.detail}" for f in compare(chunk, found, now, ledger, "")]


def test_agreement_is_no_violation() -> None:
    """Same records, same minutes."""
    same: Rows = {("2017-07-30 14:09:00",): (3,)}
    assert violations(totals(3, 1, 1), totals(3, 1, 1), same, dict(same)) == []


def test_every_difference_of_a_minute_is_a_violation() -> None:
    """More, fewer, missing and surplus minutes are all named, with both numbers."""
    ledger: Rows = {("14:01",): (3,), ("14:02",): (1,), ("14:03",): (2,)}
    now: Rows = {("14:01",): (2,), ("14:02",): (1,), ("14:04",): (3,)}
    assert violations(totals(6), totals(6), ledger, now) == [
        "a/0 [0, 10) 14:01: the ledger says 3, Kafka holds 2",
        "a/0 [0, 10) 14:03: the ledger says 2, Kafka holds 0",
        "a/0 [0, 10) 14:04: the ledger says 0, Kafka holds 3",
    ]


def test_rows_are_compared_by_labels_and_with_their_bytes() -> None:
    """Each label's rows by themselves; a length may differ though the lines do not."""
    ledger: Rows = {("14:01", "cart"): (3, 30), ("14:01", "shop"): (1, 9)}
    now: Rows = {("14:01", "cart"): (3, 31), ("14:01", "shop"): (1, 9)}
    assert violations(totals(4), totals(4), ledger, now) == [
        "a/0 [0, 10) 14:01 cart: the ledger says 3 (30 bytes), Kafka holds 3 (31 bytes)"
    ]


def test_unmatched_and_malformed_records_are_compared_as_well() -> None:
    """A record that changed from malformed to understood is seen though no minute differs."""
    assert violations(totals(0, 1, 2), totals(0, 2, 1), {}, {}) == [
        "a/0 [0, 10) unmatched: the ledger says 1 unmatched, Kafka holds 2",
        "a/0 [0, 10) malformed: the ledger says 2 malformed, Kafka holds 1",
    ]


def test_records_that_are_gone_from_inside_a_range_are_found() -> None:
    """Kafka answers, with fewer records than were counted."""
    assert violations(totals(0, 5), EMPTY_TOTALS, {}, {}) == [
        "a/0 [0, 10) records: the ledger says 5 records, Kafka holds 0",
        "a/0 [0, 10) unmatched: the ledger says 5 unmatched, Kafka holds 0",
    ]


def test_a_chunk_expects_the_sum_of_its_segments() -> None:
    """Segments that are read as one are compared as one."""
    chunk = Chunk(segments=(segment(0, 5, totals=totals(2)), segment(5, 9, totals=totals(1, 1))))
    assert chunk.expected("records") == 4
    assert chunk.range == offsets(0, 9)


def test_another_line_format_since_then_is_mentioned_beside_a_difference(
    pipeline: Pipeline,
) -> None:
    """The configuration may have changed, which explains a difference without any fault."""
    now = fingerprint(pipeline)
    same = Chunk(segments=(segment(0, 5, format_fingerprint=now),))
    other = Chunk(segments=(segment(0, 5, format_fingerprint="old", committed_version="0.9"),))
    assert explain(same, pipeline) == ""
    assert explain(other, pipeline) == (
        "counted under other rules than now (line format, levels, filter, labels): "
        f"old (tally 0.9), now {now}"
    )
    (violation,) = compare(other, totals(), {}, {("14:01",): (1,)}, explain(other, pipeline))
    assert "counted under other rules" in violation.detail
