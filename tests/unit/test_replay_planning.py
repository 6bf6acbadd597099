"""Planning a replay, as a pure function of the request, the ledger and Kafka."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.values import kafka, known, span

from tally.model import KafkaSnapshot, KnownTopic, Loss, LossCause, OffsetRange, TopicPartition
from tally.planning.replay import NEVER_PLANNED, Piece, ReplayPlan, Tile, join_ranges, plan_replay


def spans(text: str) -> list[tuple[OffsetRange, str]]:
    """``4-13 1/0-3 alone`` is [4, 13) of partition 0 and, alone, [0, 3) of partition 1."""
    found = re.findall(r"(?:(\d+)/)?(\d+)-(\d+)(?: ([a-z]+))?", text)
    return [(span(int(a), int(b), int(p or 0)), kind) for p, a, b, kind in found]


def ranges(text: str) -> list[OffsetRange]:
    return [found for found, _ in spans(text)]


def tiles_of(text: str) -> list[Tile]:
    """Live segments, numbered from 1 on, unless it is said that they are something else."""
    return [
        Tile(
            range=found,
            segment_id=number,
            alone=kind == "alone",
            folded=kind == "folded",
        )
        for number, (found, kind) in enumerate(spans(text), 1)
    ]


def plan(
    asked: str | Sequence[OffsetRange],
    tiles: str | Sequence[Tile] = "",
    *,
    ledger: Mapping[str, KnownTopic] | None = None,
    snapshot: KafkaSnapshot | None = None,
    limit: int = 1_000,
    **keys: bool,
) -> ReplayPlan:
    of_partition: dict[TopicPartition, list[Tile]] = {}
    for tile in tiles_of(tiles) if isinstance(tiles, str) else tiles:
        of_partition.setdefault(tile.range.partition, []).append(tile)
    return plan_replay(
        ranges(asked) if isinstance(asked, str) else asked,
        known=known(100, 100) if ledger is None else ledger,
        tiles=of_partition,
        kafka=kafka((0, 100), (0, 100)) if snapshot is None else snapshot,
        offsets_per_range=limit,
        **{"sparse": False, "by_partition": False, **keys},
    )


def told(piece: Piece) -> str:
    """``1/0-8 (1 2) +4``: what of which partition, instead of which segments, how much is new."""
    at = piece.range.partition.partition
    text = f"{f'{at}/' if at else ''}{piece.range.from_offset}-{piece.range.until_offset}"
    text += f" ({' '.join(map(str, piece.replaces))})" if piece.replaces else ""
    return text + (f" +{piece.never_counted}" if piece.never_counted else "")


def batches(found: ReplayPlan) -> str:
    assert found.refusals == ()
    return "; ".join(" & ".join(map(told, pieces)) for pieces in found.batches)


def cause(found: ReplayPlan) -> str:
    """Why the one range that was asked for is refused."""
    assert found.batches == ()
    (refusal,) = found.refusals
    return refusal.cause


def test_a_request_becomes_batches() -> None:
    """Of whole segments up to the limit; a batch has one range of each partition."""
    cases: list[tuple[str, str, dict[str, Any], str]] = [
        # What is asked for; the tiles; what else differs; the batches.
        ("0-7", "2-4 6-8", {"ledger": known(100, start=8)}, "0-8 (1 2) +4"),
        ("6-7", "0-5", {}, "6-7 +1"),  # of a loss any part
        ("0-18", "0-4 4-8 8-18 18-20", {"limit": 8}, "0-8 (1 2); 8-18 (3)"),
        ("0-26", "", {"limit": 10}, "0-10 +10; 10-20 +10; 20-26 +6"),
        ("0-6 1/0-3", "0-3 3-6 1/0-3", {"limit": 3}, "0-3 (1) & 1/0-3 (3); 3-6 (2)"),
        ("0-12", "0-3 3-6 alone 6-9 9-12", {}, "0-3 (1); 3-6 (2); 6-12 (3 4)"),
        # Records of the uncounted part could hide missing ones of the counted part.
        ("0-12", "4-8 10-12", {"sparse": True}, "0-4 +4; 4-8 (1); 8-10 +2; 10-12 (2)"),
        ("", "", {}, ""),
    ]
    for asked, tiles, keys, wanted in cases:
        assert batches(plan(asked, tiles, **keys)) == wanted


def test_a_plan_tells_what_was_asked_and_what_it_became() -> None:
    """Overlapping ranges are joined; ranges that only touch are not, nor those of partitions."""
    found = plan("4-8 7-13 13-14", "0-5 5-10 10-15 15-20")
    assert (found.asked, found.widened) == (tuple(ranges("4-13 13-14")), tuple(ranges("0-15")))
    assert found.replaces == (1, 2, 3)
    apart = ranges("0-5 1/3-8 5-6")
    assert join_ranges(apart) == ranges("0-5 5-6 1/3-8")
    assert join_ranges(apart, touching=True) == ranges("0-6 1/3-8")


def test_a_range_that_ends_where_a_segment_begins_leaves_that_one_alone() -> None:
    """Ranges are half-open: neighbours have no offset in common."""
    assert batches(plan("5-10", "0-5 5-10 10-15")) == "5-10 (2)"


def test_by_partition_each_batch_has_one_range() -> None:
    """Each piece commits by itself."""
    found = plan("0-9 1/0-3", "0-3 3-6 6-9 1/0-3", limit=3, by_partition=True)
    assert (found.by_partition, found.rounds) == (True, 3)
    assert batches(found) == "0-3 (1); 1/0-3 (4); 3-6 (2); 6-9 (3)"


def test_what_is_not_counted_yet_is_refused() -> None:
    """Up to the committed offset everything can be requested; later offsets cannot."""
    assert "counted up to 10" in cause(plan("5-11", "0-10", ledger=known(10)))
    assert batches(plan("5-10", "0-10", ledger=known(10))) == "0-10 (1)"


def test_what_cannot_be_read_again_is_refused() -> None:
    """Here the request is [5, 7), which needs all of the segment [0, 10)."""
    other = replace(span(0, 1), partition=TopicPartition(topic="other", partition=0))
    assert cause(plan("7/0-1")) == cause(plan([other])) == NEVER_PLANNED
    for snapshot, words in (
        (kafka((1, 100)), "first offset is now 1; what was counted stays"),
        (kafka((0, 9)), "end offset is now 9; what was counted stays"),
        (kafka(), "no such topic any more"),
        (kafka((0, 100), topic_id="B"), "with topic id A, Kafka says B"),
        (kafka((0, 100), cluster_id="D"), "on cluster C"),
    ):
        assert words in cause(plan("5-7", "0-10", snapshot=snapshot))
    stale = plan("1/0-5", "1/0-5", snapshot=kafka((0, 100)))
    assert "does not answer for this partition" in cause(stale)
    assert cause(plan("3-7", "0-5 folded 5-10")) == "[0, 5) was pruned"

    # Other records may have the offsets of an undecided truncation; those beside it are accepted.
    ledger = known(10, open_loss=Loss(cause=LossCause.TRUNCATED, range=span(7, 10)))
    assert "was truncated" in cause(plan("5-6", "0-5 5-10", ledger=ledger))
    assert plan("0-5", "0-5 5-10", ledger=ledger).refusals == ()
    # With one refusal there is no batch, and each refusal is reported.
    found = plan("0-5 90-101 1/98-120", "0-5")
    assert found.batches == ()
    assert [refusal.range for refusal in found.refusals] == ranges("90-101 1/98-120")
    assert str(found.refusals[0]).startswith("alog/0 [90, 101): ")


class Case(NamedTuple):
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
        kind = draw(st.sampled_from(["live", "live", "live", "alone", "folded"]))
        (tile,) = tiles_of(f"{at}-{at + draw(st.integers(1, 6))} {kind}")
        tiles.append(replace(tile, segment_id=number + 1))
        at = tile.range.until_offset
    next_offset = max(at, 1)
    earliest = draw(st.sampled_from([0, 0, 0, draw(st.integers(0, next_offset))]))
    end = draw(st.sampled_from([next_offset, next_offset + 5, draw(st.integers(earliest, 60))]))
    spans_of = st.tuples(st.integers(0, 45), st.integers(1, 25))
    asked = draw(st.lists(spans_of, min_size=1, max_size=4))
    return Case(
        tiles=tuple(tiles),
        next_offset=next_offset,
        held=(earliest, max(earliest, end)),
        asked=tuple(span(n % next_offset, n % next_offset + length) for n, length in asked),
        limit=draw(st.sampled_from([1, 2, 5, 12, 1_000])),
        sparse=draw(st.booleans()),
    )


def planned(case: Case) -> ReplayPlan:
    keys: dict[str, Any] = {"ledger": known(case.next_offset), "snapshot": kafka(case.held)}
    return plan(case.asked, case.tiles, limit=case.limit, sparse=case.sparse, **keys)


def each(r: OffsetRange) -> set[int]:
    return set(range(r.from_offset, r.until_offset))


@settings(
    max_examples=500,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],  # as a busy machine is
)
@given(cases())
def test_a_random_request_is_planned_as_it_must_be(case: Case) -> None:
    """Worked out one offset at a time, and whatever the order of the request."""
    found = planned(case)
    assert found == planned(case._replace(asked=case.asked[::-1]))
    check_refusals(case, found)
    check_what_is_offered(case, found)
    if found.refusals:
        return
    # The request is widened to whole tiles and no further, and no offset is in two pieces.
    asked = set().union(*map(each, case.asked))
    wanted = asked.union(*(each(t.range) for t in case.tiles if each(t.range) & asked))
    read = [o for p in found.pieces for o in each(p.range)]
    assert len(read) == len(set(read)) == sum(r.offsets for r in found.widened)
    assert set(read) == wanted
    assert len(set(found.replaces)) == len(found.replaces)
    for pieces in found.batches:
        assert len({p.range.partition for p in pieces}) == len(pieces) > 0
    for piece in found.pieces:
        check_piece(case, piece)


def check_piece(case: Case, piece: Piece) -> None:
    """It replaces exactly the live segments in it; only a single one may exceed the limit."""
    touched = [tile for tile in case.tiles if each(tile.range) & each(piece.range)]
    assert all(each(t.range) <= each(piece.range) for t in touched)
    assert set(piece.replaces) == {t.segment_id for t in touched}
    assert piece.never_counted == piece.range.offsets - sum(t.range.offsets for t in touched)
    single = len(piece.replaces) == 1 and not piece.never_counted
    assert piece.range.offsets <= case.limit or single
    assert not (case.sparse and piece.replaces and piece.never_counted)
    assert single or not any(t.alone for t in touched)


def check_refusals(case: Case, found: ReplayPlan) -> None:
    """Beyond the ledger, pruned, or not held whole; with one refusal there is no batch."""
    refused = set()
    for r in join_ranges(case.asked):
        touched = [t for t in case.tiles if each(t.range) & each(r)]
        low = min([r.from_offset, *(t.range.from_offset for t in touched)])
        high = max([r.until_offset, *(t.range.until_offset for t in touched)])
        is_held = case.held[0] <= low and high <= case.held[1]
        if r.until_offset > case.next_offset or any(t.folded for t in touched) or not is_held:
            refused.add(r)
    assert {refusal.range for refusal in found.refusals} == refused
    assert bool(found.batches) != bool(refused)
    assert all(refusal.cause for refusal in found.refusals)


def check_what_is_offered(case: Case, found: ReplayPlan) -> None:
    """Of each refused range as far as it was counted; what is not refused is offered whole."""
    refused = {refusal.range for refusal in found.refusals}
    wanted = []
    for r in join_ranges(case.asked) if refused else []:
        until = min(r.until_offset, case.next_offset)
        for start in range(r.from_offset, until):
            rest = span(start, until if r in refused else r.until_offset)
            if not planned(case._replace(asked=(rest,))).refusals:
                wanted.append(rest)
                break
    assert list(found.possible) == wanted
