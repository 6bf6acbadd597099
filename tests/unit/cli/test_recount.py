"""The recount: which ranges are read together, and which differences it finds."""

from typing import Any

import pytest
from tests.unit.values import P0, blank, kafka, span, totals

from tally.aggregates.aggregate import MEASURES
from tally.aggregates.counts import DeadLetter
from tally.audit import chunks as joined
from tally.audit.chunks import SEGMENTS_PER_RANGE, Chunk, join_segments, rounds, why_not_held
from tally.audit.differences import (
    Letter,
    Rows,
    before_start,
    differences,
    letter_differences,
    not_compared,
)
from tally.ledger.records import SegmentRecord
from tally.model import EMPTY_TOTALS, KnownTopic, Position


def segment(from_offset: int, until_offset: int, partition: int = 0, **facts: Any) -> SegmentRecord:
    usual = {"topic_id": "A", "cluster_id": "C", "is_current": True, "totals": totals()}
    usual |= {"segment_id": from_offset, "range": span(from_offset, until_offset, partition)}
    return blank(SegmentRecord, **{**usual, **facts})


def test_consecutive_segments_are_joined_and_nothing_else_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A minute's segments are small: reading each by itself would take hours.

    A segment above the limit is never cut; a gap, such as an accepted loss, and another partition
    end a range.
    """
    five = [segment(n, n + 10) for n in range(0, 50, 10)]
    large = [segment(0, 5), segment(5, 100), segment(100, 105)]
    gap = [segment(0, 10), segment(15, 20), segment(20, 30, partition=1)]
    for segments, limit, wanted in (
        (five, 20, [span(0, 20), span(20, 40), span(40, 50)]),
        (large, 20, [span(0, 5), span(5, 100), span(100, 105)]),
        (gap, 100, [span(0, 10), span(15, 20), span(20, 30, 1)]),
    ):
        monkeypatch.setattr(joined, "OFFSETS_PER_RANGE", limit)
        assert [chunk.range for chunk in join_segments(segments)] == wanted


def test_a_range_has_no_more_segments_than_a_statement_may_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A quiet pipeline has a segment of a few offsets for each minute of a year."""
    year = [segment(n, n + 1) for n in range(2 * SEGMENTS_PER_RANGE + 1)]
    assert [len(c.segments) for c in join_segments(year)] == [SEGMENTS_PER_RANGE] * 2 + [1]
    monkeypatch.setattr(joined, "SEGMENTS_PER_RANGE", 2)
    chunks = join_segments([segment(n, n + 1) for n in range(5)])
    assert [c.range for c in chunks] == [span(0, 2), span(2, 4), span(4, 5)]


def test_a_range_has_no_more_dead_letters_than_are_compared_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limit = [segment(0, n, totals=totals(0, 0, n)) for n in (50_000, 50_001)]
    assert [Chunk(segments=(one,)).has_few_letters for one in limit] == [True, False]
    flood = [segment(n, n + 5, totals=totals(0, 0, 5)) for n in range(0, 20, 5)]
    monkeypatch.setattr(joined, "LETTERS_PER_RANGE", 10)
    chunks = join_segments(flood)
    assert [c.range for c in chunks] == [span(0, 10), span(10, 20)]
    assert [c.has_few_letters for c in chunks] == [True] * 2
    monkeypatch.setattr(joined, "LETTERS_PER_RANGE", 4)
    alone = join_segments([*flood, segment(20, 21)])
    assert [len(c.segments) for c in alone] == [1, 1, 1, 1, 1]
    assert [c.has_few_letters for c in alone] == [False] * 4 + [True]


def test_a_round_has_one_range_of_each_partition_and_all_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One Spark read takes one range of a partition at most."""
    monkeypatch.setattr(joined, "OFFSETS_PER_RANGE", 5)
    chunks = join_segments([segment(0, 5), segment(5, 10), segment(0, 5, 1)])
    found = [[c.range for c in chunk] for chunk in rounds(chunks)]
    assert found == [[span(0, 5), span(0, 5, 1)], [span(5, 10)]]
    chunk = Chunk(segments=(segment(0, 5), segment(5, 9)))
    assert chunk.range == span(0, 9)
    assert [chunk.segment_at(offset).segment_id for offset in (0, 4, 5, 8)] == [0, 0, 5, 5]


def test_a_round_is_bounded_whatever_the_number_of_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its segments and the digests of its dead letters are in memory at once."""
    flood = join_segments([segment(0, 5, n, totals=totals(0, 0, 50_001)) for n in range(3)])
    assert [len(group) for group in rounds(flood)] == [3]
    chunks = join_segments([segment(0, 5, n, totals=totals(0, 0, 4)) for n in range(5)])
    for limit, most, sizes in (
        ("SEGMENTS_PER_ROUND", 2, [2, 2, 1]),
        ("LETTERS_PER_RANGE", 11, [2, 2, 1]),
        ("LETTERS_PER_RANGE", 4, [1] * 5),
    ):
        with monkeypatch.context() as limited:
            limited.setattr(joined, limit, most)
            assert [len(group) for group in rounds(chunks)] == sizes


def test_what_kafka_no_longer_holds_in_whole_is_not_recounted() -> None:
    """Each way in which the records can be out of reach has its own message."""
    assert why_not_held(segment(5, 10), kafka((5, 10))) is None
    cases = (
        (segment(5, 10), kafka((6, 10)), "first offset is now 6"),
        (segment(5, 10), kafka((5, 9)), "end offset is now 9"),
        (segment(5, 10), kafka((5, 10), topic_id="other"), "topic id"),
        (segment(5, 10, cluster_id="other"), kafka((5, 10)), "cluster"),
        (segment(5, 10, is_current=False), kafka((5, 10)), "retired"),
        (segment(5, 10, partition=1), kafka((5, 10)), "this partition"),
        (segment(5, 10), kafka(), "no such topic"),
    )
    told = [(cause, why_not_held(one, snapshot) or "held") for one, snapshot, cause in cases]
    assert [(cause, why) for cause, why in told if cause not in why] == []


def test_every_difference_is_a_violation_with_both_numbers() -> None:
    """More, fewer, missing and surplus minutes, each label's rows by themselves and their bytes.

    A record that changed from malformed to understood is seen though no minute differs.
    """
    ledger: Rows = {("14:01",): (3,), ("14:02",): (1,), ("14:03",): (2,)}
    kafka: Rows = {("14:01",): (2,), ("14:02",): (1,), ("14:04",): (3,)}
    cart: Rows = {("14:01", "cart"): (3, 30), ("14:01", "shop"): (1, 9)}
    longer: Rows = {("14:01", "cart"): (3, 31), ("14:01", "shop"): (1, 9)}
    none: Rows = {}
    for expected, found, counted, now, violations in (
        (totals(6, 1, 1), totals(6, 1, 1), ledger, dict(ledger), []),
        (
            *(totals(6), totals(6), ledger, kafka),
            [
                "14:01: the ledger says 3, Kafka holds 2",
                "14:03: the ledger says 2, Kafka holds 0",
                "14:04: the ledger says 0, Kafka holds 3",
            ],
        ),
        (
            *(totals(4), totals(4), cart, longer),
            ["14:01 cart: the ledger says 3 (30 bytes), Kafka holds 3 (31 bytes)"],
        ),
        (
            *(totals(0, 1, 2), totals(0, 2, 1), none, none),
            [
                "unmatched: the ledger says 1 unmatched, Kafka holds 2",
                "malformed: the ledger says 2 malformed, Kafka holds 1",
            ],
        ),
        (
            *(totals(0, 5), EMPTY_TOTALS, none, none),
            [
                "records: the ledger says 5 records, Kafka holds 0",
                "unmatched: the ledger says 5 unmatched, Kafka holds 0",
            ],
        ),
    ):
        one = segment(0, 10, totals=expected)
        told = [
            f"{f.where}: {f.detail}"
            for f in differences(one, found, now, counted, MEASURES["bytes"], "")
        ]
        assert told == [f"alog/0 [0, 10) {violation}" for violation in violations]


def letter(value: bytes | None, reason: str = "no-match", size: int | None = None) -> Letter:
    """With 4 bytes kept today."""
    length = None if value is None else len(value) if size is None else size
    kept = DeadLetter(partition=P0, offset=0, reason=reason, value=value, value_bytes=length)
    return Letter.of(kept, 4)


def test_each_dead_letter_is_compared_with_its_record() -> None:
    """By offset, reason, length and first bytes; fewer bytes than today's are no difference."""
    kept = {
        1: letter(b"same"),
        2: letter(b"abcd"),
        3: letter(b"text", "no-time"),
        4: letter(b"four", size=9),
        5: letter(b"gone"),
        7: letter(None, "null-value"),
        8: letter(b"ab", size=6),
        9: letter(b"longer than today"),
    }
    held = {
        1: letter(b"same"),
        2: letter(b"abcX"),
        3: letter(b"text"),
        4: letter(b"four", size=8),
        6: letter(b"new"),
        7: letter(None, "null-value"),
        8: letter(b"cdef", size=6),
        9: letter(b"long", size=17),
    }
    told = [(f.where, f.detail) for f in letter_differences(span(0, 10), held, kept, "")]
    assert told == [
        (f"alog/0 [0, 10) dead letter at offset {offset}", said)
        for offset, said in (
            (2, "its bytes are not those that Kafka holds"),
            (3, "the ledger says no-time, 4 bytes, Kafka holds no-match, 4 bytes"),
            (4, "the ledger says no-match, 9 bytes, Kafka holds no-match, 8 bytes"),
            (5, "the ledger says no-match, 4 bytes, Kafka holds none"),
            (6, "the ledger says none, Kafka holds no-match, 3 bytes"),
        )
    ]
    assert not_compared(held, kept) == 1


def test_what_kafka_holds_before_the_start_is_named() -> None:
    """Backfills below it leave gaps."""
    known = {
        "alog": KnownTopic(
            generation_id=1,
            topic_id="A",
            cluster_id="C",
            positions={0: Position(start_offset=20, next_offset=30)},
        )
    }
    segments = [segment(0, 7), segment(10, 12), segment(20, 30), segment(2, 20, is_current=False)]
    gaps = before_start(known, kafka((5, 30)), segments)
    assert gaps == [span(7, 10), span(12, 20)]
    assert before_start(known, kafka((20, 30)), segments) == []
    assert before_start(known, kafka((5, 30), topic_id="B"), segments) == []
