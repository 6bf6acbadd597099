"""Planning a replay, as a pure function of the request, the ledger and Kafka."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tally.model import (
    KafkaSnapshot,
    KnownTopic,
    Loss,
    LossCause,
    OffsetRange,
    PartitionSnapshot,
    Position,
    TopicPartition,
    TopicSnapshot,
)
from tally.planning.replay import NEVER_PLANNED, Piece, ReplayPlan, Tile, join_ranges, plan_replay

P0 = TopicPartition(topic="alog", partition=0)
P1 = TopicPartition(topic="alog", partition=1)


def offsets(from_offset: int, until_offset: int, partition: TopicPartition = P0) -> OffsetRange:
    return OffsetRange(partition=partition, from_offset=from_offset, until_offset=until_offset)


def segments(*bounds: int, partition: TopicPartition = P0, first_id: int = 1) -> list[Tile]:
    """Neighbouring live segments between the bounds, with ids from ``first_id`` on."""
    return [
        Tile(range=offsets(start, until, partition), segment_id=first_id + number)
        for number, (start, until) in enumerate(pairwise(bounds))
    ]


def loss(from_offset: int, until_offset: int) -> Tile:
    return Tile(range=offsets(from_offset, until_offset), segment_id=None)


def alone(tile: Tile) -> Tile:
    return Tile(range=tile.range, segment_id=tile.segment_id, alone=True)


def folded(tile: Tile) -> Tile:
    return Tile(range=tile.range, segment_id=tile.segment_id, folded=True)


def known(
    *next_offsets: int, start: int = 0, open_loss: Loss | None = None, topic_id: str = "A"
) -> dict[str, KnownTopic]:
    return {
        "alog": KnownTopic(
            incarnation_id=1,
            topic_id=topic_id,
            cluster_id="C",
            positions={
                n: Position(start_offset=start, next_offset=next_offset, open_loss=open_loss)
                for n, next_offset in enumerate(next_offsets)
            },
        )
    }


def kafka(*held: tuple[int, int], topic_id: str = "A", cluster_id: str = "C") -> KafkaSnapshot:
    partitions = {n: PartitionSnapshot(earliest=a, end=b) for n, (a, b) in enumerate(held)}
    topics = {"alog": TopicSnapshot(topic_id=topic_id, partitions=partitions)} if held else {}
    return KafkaSnapshot(cluster_id=cluster_id, topics=topics)


def plan(
    asked: Sequence[OffsetRange],
    tiles: Sequence[Tile] = (),
    *,
    ledger: Mapping[str, KnownTopic] | None = None,
    snapshot: KafkaSnapshot | None = None,
    limit: int = 1_000,
    sparse: bool = False,
    by_partition: bool = False,
) -> ReplayPlan:
    tiles_of: dict[TopicPartition, list[Tile]] = {}
    for tile in tiles:
        tiles_of.setdefault(tile.range.partition, []).append(tile)
    return plan_replay(
        asked,
        known=known(100, 100) if ledger is None else ledger,
        tiles=tiles_of,
        kafka=kafka((0, 100), (0, 100)) if snapshot is None else snapshot,
        offsets_per_range=limit,
        sparse=sparse,
        by_partition=by_partition,
    )


def batches(found: ReplayPlan) -> list[list[tuple[int, int]]]:
    """The ranges of each batch."""
    return [
        [(p.range.from_offset, p.range.until_offset) for p in pieces] for pieces in found.batches
    ]


def cause(found: ReplayPlan) -> str:
    """Why the one range that was asked for is refused."""
    assert found.batches == ()
    (refusal,) = found.refusals
    return refusal.cause


def test_a_range_that_cuts_segments_is_widened_to_all_of_them() -> None:
    """Both ends may cut a segment; all segments in between are replaced too."""
    found = plan([offsets(4, 13)], segments(0, 5, 10, 15, 20))
    assert found.asked == (offsets(4, 13),)
    assert found.widened == (offsets(0, 15),)
    assert found.replaces == (1, 2, 3)


def test_a_range_that_ends_where_a_segment_begins_leaves_that_one_alone() -> None:
    """Ranges are half-open: neighbours have no offset in common."""
    found = plan([offsets(5, 10)], segments(0, 5, 10, 15))
    assert found.batches == ((Piece(range=offsets(5, 10), replaces=(2,)),),)


def test_a_range_inside_of_one_segment_replaces_that_one_once() -> None:
    """Also when the request has several parts of it."""
    found = plan([offsets(6, 7), offsets(8, 9)], segments(0, 5, 10))
    assert found.asked == (offsets(6, 7), offsets(8, 9))
    assert found.batches == ((Piece(range=offsets(5, 10), replaces=(2,)),),)


def test_overlapping_requests_are_one() -> None:
    """In any order; ranges that only touch are not joined."""
    found = plan([offsets(7, 9), offsets(0, 4), offsets(3, 7)], segments(0, 10))
    assert found.asked == (offsets(0, 7), offsets(7, 9))
    assert batches(found) == [[(0, 10)]]


def test_what_lies_between_counted_ranges_below_the_start_is_added() -> None:
    """A backfill may be widened, and reports how many offsets are new."""
    tiles = [*segments(2, 4), *segments(6, 8, first_id=2)]
    found = plan([offsets(0, 7)], tiles, ledger=known(100, start=8))
    assert found.batches == ((Piece(range=offsets(0, 8), replaces=(1, 2), uncounted=4),),)


def test_offsets_that_nothing_is_known_of_are_read_as_they_were_asked_for() -> None:
    """There is no segment to widen them to."""
    found = plan([offsets(3, 6)], ledger=known(100, start=50))
    assert found.batches == ((Piece(range=offsets(3, 6), uncounted=3),),)
    assert found.replaces == ()


def test_an_accepted_loss_is_reprocessed_whole() -> None:
    """It is widened to like a segment, and replaces nothing."""
    found = plan([offsets(6, 7)], [*segments(0, 5), loss(5, 9)])
    assert found.batches == ((Piece(range=offsets(5, 9), uncounted=4),),)


def test_a_large_range_is_cut_between_segments() -> None:
    """A batch has as many segments as fit; a segment above the limit is read alone."""
    found = plan([offsets(0, 30)], segments(0, 4, 8, 20, 24, 30), limit=10)
    assert batches(found) == [[(0, 8)], [(8, 20)], [(20, 30)]]
    assert [p.replaces for p in found.pieces] == [(1, 2), (3,), (4, 5)]


def test_a_large_loss_is_cut_anywhere() -> None:
    """It has no segments to keep whole."""
    found = plan([offsets(0, 26)], [loss(0, 26)], limit=10)
    assert batches(found) == [[(0, 10)], [(10, 20)], [(20, 26)]]


def test_each_batch_has_one_range_of_a_partition() -> None:
    """The first batch has the first piece of each partition, the second one the second."""
    asked = [offsets(0, 9), offsets(0, 3, P1)]
    tiles = [*segments(0, 3, 6, 9), *segments(0, 3, partition=P1, first_id=9)]
    found = plan(asked, tiles, limit=3)
    assert [[p.range for p in pieces] for pieces in found.batches] == [
        [offsets(0, 3), offsets(0, 3, P1)],
        [offsets(3, 6)],
        [offsets(6, 9)],
    ]


def test_by_partition_each_batch_has_one_range() -> None:
    """Each piece commits by itself."""
    asked = [offsets(0, 9), offsets(0, 3, P1)]
    tiles = [*segments(0, 3, 6, 9), *segments(0, 3, partition=P1, first_id=9)]
    found = plan(asked, tiles, limit=3, by_partition=True)
    assert found.by_partition
    assert found.rounds == 3
    assert [[p.range for p in pieces] for pieces in found.batches] == [
        [offsets(0, 3)],
        [offsets(0, 3, P1)],
        [offsets(3, 6)],
        [offsets(6, 9)],
    ]


def test_a_segment_that_may_have_holes_is_read_by_itself() -> None:
    """The accepted hole does not cover the adjacent segments."""
    first, second, third, fourth = segments(0, 3, 6, 9, 12)
    found = plan([offsets(0, 12)], [first, alone(second), third, fourth])
    assert batches(found) == [[(0, 3)], [(3, 6)], [(6, 12)]]


def test_a_sparse_pipeline_reads_what_was_counted_apart_from_what_was_not() -> None:
    """Records of the uncounted part could hide missing ones of the counted part."""
    tiles = [*segments(4, 6, 8), *segments(10, 12, first_id=3)]
    assert batches(plan([offsets(0, 12)], tiles, sparse=True)) == [
        [(0, 4)],
        [(4, 8)],
        [(8, 10)],
        [(10, 12)],
    ]
    assert batches(plan([offsets(0, 12)], tiles)) == [[(0, 12)]]


def test_what_is_not_counted_yet_is_refused() -> None:
    """Up to the committed offset everything can be requested; later offsets cannot."""
    found = plan([offsets(5, 11)], segments(0, 10), ledger=known(10))
    assert "counted up to 10" in cause(found)
    assert plan([offsets(5, 10)], segments(0, 10), ledger=known(10)).refusals == ()


@pytest.mark.parametrize(
    "asked",
    [
        offsets(0, 1, TopicPartition(topic="alog", partition=7)),
        offsets(0, 1, TopicPartition(topic="other", partition=0)),
    ],
)
def test_what_the_ledger_does_not_know_is_refused(asked: OffsetRange) -> None:
    """An unknown partition and an unknown topic are refused."""
    assert cause(plan([asked])) == NEVER_PLANNED


@pytest.mark.parametrize(
    ("snapshot", "words"),
    [
        (kafka((1, 100)), "first offset is now 1; what was counted stays"),
        (kafka((0, 9)), "end offset is now 9; what was counted stays"),
        (kafka(), "no such topic any more"),
        (kafka((0, 100), topic_id="B"), "with topic id A, Kafka says B"),
        (kafka((0, 100), cluster_id="D"), "on cluster C"),
    ],
)
def test_what_kafka_does_not_serve_is_refused(snapshot: KafkaSnapshot, words: str) -> None:
    """The request is [5, 7), which needs all of the segment [0, 10)."""
    assert words in cause(plan([offsets(5, 7)], segments(0, 10), snapshot=snapshot))


def test_a_partition_that_kafka_leaves_out_is_refused() -> None:
    """Kafka's answer may be stale."""
    found = plan([offsets(0, 5, P1)], segments(0, 5, partition=P1), snapshot=kafka((0, 100)))
    assert "does not answer for this partition" in cause(found)


def test_the_edges_of_what_kafka_holds_are_enough() -> None:
    """A range that begins and ends with what Kafka holds is accepted."""
    assert plan([offsets(5, 7)], segments(4, 8), snapshot=kafka((4, 8))).refusals == ()


def test_what_was_pruned_is_refused() -> None:
    """Its contribution is part of a sum and cannot be subtracted."""
    first, second = segments(0, 5, 10)
    found = plan([offsets(3, 7)], [folded(first), second])
    assert cause(found) == "[0, 5) was pruned"
    assert plan([offsets(5, 7)], [folded(first), second]).refusals == ()


def test_an_undecided_truncation_is_refused() -> None:
    """Other records may have these offsets; ranges beside it are accepted."""
    open_loss = Loss(cause=LossCause.TRUNCATED, range=offsets(7, 10))
    ledger = known(10, open_loss=open_loss)
    tiles = segments(0, 5, 10)
    assert "was truncated" in cause(plan([offsets(5, 6)], tiles, ledger=ledger))
    assert plan([offsets(0, 5)], tiles, ledger=ledger).refusals == ()


def test_one_refusal_refuses_all_and_names_each() -> None:
    """With one refusal there is no batch, and each refusal is reported."""
    found = plan([offsets(0, 5), offsets(90, 101), offsets(98, 120, P1)], segments(0, 5))
    assert found.batches == ()
    assert [refusal.range for refusal in found.refusals] == [
        offsets(90, 101),
        offsets(98, 120, P1),
    ]
    assert str(found.refusals[0]).startswith("alog/0 [90, 101): ")


def test_what_is_left_of_a_refused_request_is_offered() -> None:
    """What Kafka holds in part, what is folded and what is not yet counted is left out."""
    tiles = segments(0, 5, 10, 20)
    held = kafka((7, 100))
    assert plan([offsets(0, 15)], tiles, snapshot=held).possible == (offsets(10, 15),)
    assert plan([offsets(0, 9)], tiles, snapshot=held).possible == ()
    asked = [offsets(0, 5), offsets(12, 20)]
    assert plan(asked, tiles, snapshot=held).possible == (offsets(12, 20),)
    first, *others = tiles
    assert plan([offsets(0, 12)], [folded(first), *others]).possible == (offsets(5, 12),)
    assert plan([offsets(5, 30)], tiles, ledger=known(20)).possible == (offsets(5, 20),)
    assert plan([offsets(5, 12)], tiles).possible == ()  # nothing is refused


def test_nothing_asked_is_nothing_planned() -> None:
    """An empty request gives an empty plan without refusals."""
    assert plan([]) == ReplayPlan()


def test_ranges_join_only_within_a_partition() -> None:
    """Ranges of different partitions are not joined."""
    apart = [offsets(0, 5), offsets(3, 8, P1), offsets(5, 6)]
    assert join_ranges(apart) == [offsets(0, 5), offsets(5, 6), offsets(3, 8, P1)]
    assert join_ranges(apart, touching=True) == [offsets(0, 6), offsets(3, 8, P1)]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A partition's tiles, and a request."""

    tiles: tuple[Tile, ...]
    next_offset: int
    held: tuple[int, int]
    asked: tuple[OffsetRange, ...]
    limit: int
    sparse: bool


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Below the start there may be gaps between tiles, above it there are none."""
    at = draw(st.integers(0, 3))
    tiles: list[Tile] = []
    below = True
    for number in range(draw(st.integers(0, 8))):
        below = below and draw(st.booleans())
        at += draw(st.integers(0, 3)) if below else 0
        until = at + draw(st.integers(1, 6))
        kind = draw(st.sampled_from(["live", "live", "live", "loss", "alone", "folded"]))
        tiles.append(
            Tile(
                range=offsets(at, until),
                segment_id=None if kind == "loss" else number + 1,
                alone=kind == "alone",
                folded=kind == "folded",
            )
        )
        at = until
    next_offset = max(at, 1)
    earliest = draw(st.sampled_from([0, 0, 0, draw(st.integers(0, next_offset))]))
    end = draw(st.sampled_from([next_offset, next_offset + 5, draw(st.integers(earliest, 60))]))
    spans = draw(
        st.lists(st.tuples(st.integers(0, 45), st.integers(1, 25)), min_size=1, max_size=4)
    )
    return Case(
        tiles=tuple(tiles),
        next_offset=next_offset,
        held=(earliest, max(earliest, end)),
        asked=tuple(
            offsets(start % next_offset, start % next_offset + length) for start, length in spans
        ),
        limit=draw(st.sampled_from([1, 2, 5, 12, 1_000])),
        sparse=draw(st.booleans()),
    )


def planned(case: Case) -> ReplayPlan:
    """Its plan, which must not depend on the order of the request."""
    found, other = (
        plan(
            asked,
            case.tiles,
            ledger=known(case.next_offset),
            snapshot=kafka(case.held),
            limit=case.limit,
            sparse=case.sparse,
        )
        for asked in (case.asked, tuple(reversed(case.asked)))
    )
    assert found == other
    return found


def wanted(case: Case) -> set[int]:
    """The offsets that must be read, worked out one by one."""
    asked = {o for r in case.asked for o in range(r.from_offset, r.until_offset)}
    whole = [set(range(t.range.from_offset, t.range.until_offset)) for t in case.tiles]
    return asked.union(*(tile for tile in whole if tile & asked))


PROFILE = settings(max_examples=400, deadline=None, derandomize=True, database=None)


@PROFILE
@given(cases())
def test_all_that_was_asked_for_is_covered_exactly_once(case: Case) -> None:
    """The request is widened to whole tiles and no further, and no offset is in two pieces."""
    found = planned(case)
    if found.refusals:
        return
    read = [o for p in found.pieces for o in range(p.range.from_offset, p.range.until_offset)]
    assert len(read) == len(set(read))
    assert set(read) == wanted(case)
    assert sum(r.offsets for r in found.widened) == len(read)


@PROFILE
@given(cases())
def test_segments_are_kept_whole_and_each_is_replaced_once(case: Case) -> None:
    """A piece replaces exactly the live segments in it, and counts the rest as new."""
    found = planned(case)
    assert len(set(found.replaces)) == len(found.replaces)
    for piece in found.pieces:
        inside = set()
        counted = 0
        for tile in case.tiles:
            shared = min(tile.range.until_offset, piece.range.until_offset) - max(
                tile.range.from_offset, piece.range.from_offset
            )
            if tile.segment_id is not None and shared > 0:
                assert shared == tile.range.offsets
                inside.add(tile.segment_id)
                counted += shared
        assert set(piece.replaces) == inside
        assert piece.uncounted == piece.range.offsets - counted


@PROFILE
@given(cases())
def test_limits_hold_and_a_batch_reads_one_range_of_a_partition(case: Case) -> None:
    """Only a single segment may be larger than the limit."""
    found = planned(case)
    for pieces in found.batches:
        assert len({p.range.partition for p in pieces}) == len(pieces) > 0
        for piece in pieces:
            single = len(piece.replaces) == 1 and not piece.uncounted
            assert piece.range.offsets <= case.limit or single
            if case.sparse:
                assert not (piece.replaces and piece.uncounted)
            if set(piece.replaces) & {t.segment_id for t in case.tiles if t.alone}:
                assert single


@PROFILE
@given(cases())
def test_refused_is_exactly_what_cannot_be_done(case: Case) -> None:
    """Beyond the ledger, pruned, or not held whole; with one refusal there is no batch."""
    found = planned(case)
    earliest, end = case.held
    refused = set()
    for r in join_ranges(case.asked):
        touched = [
            t
            for t in case.tiles
            if t.range.from_offset < r.until_offset and r.from_offset < t.range.until_offset
        ]
        low = min([r.from_offset, *(t.range.from_offset for t in touched)])
        high = max([r.until_offset, *(t.range.until_offset for t in touched)])
        if (
            r.until_offset > case.next_offset
            or any(t.folded for t in touched)
            or not (earliest <= low and high <= end)
        ):
            refused.add(r)
    assert {refusal.range for refusal in found.refusals} == refused
    assert bool(found.batches) != bool(refused)
    assert all(refusal.cause for refusal in found.refusals)


@PROFILE
@given(cases())
def test_what_is_offered_is_the_longest_end_that_can_be_done(case: Case) -> None:
    """Of each refused range as far as it was counted; what is not refused is offered whole."""
    found = planned(case)
    refused = {refusal.range for refusal in found.refusals}
    wanted = []
    for r in join_ranges(case.asked) if refused else []:
        until = min(r.until_offset, case.next_offset)
        for start in range(r.from_offset, until):
            rest = replace(
                r, from_offset=start, until_offset=until if r in refused else r.until_offset
            )
            if not planned(replace(case, asked=(rest,))).refusals:
                wanted.append(rest)
                break
    assert list(found.possible) == wanted
