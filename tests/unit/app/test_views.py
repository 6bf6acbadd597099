"""The JSON that other programs rely on: keys and kinds of values."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tally.app.audit import RecountView, audit_view
from tally.app.batches import SegmentView
from tally.app.dead_letters import DeadLetterView
from tally.app.losses import LossView
from tally.app.plan import plan_view
from tally.app.run import has_caught_up
from tally.app.views import document
from tally.ledger.dead_letters import DeadLetterRecord
from tally.ledger.decisions import LossRecord
from tally.ledger.invariants import Violation
from tally.ledger.reading import BatchRecord
from tally.model import (
    Batch,
    BatchKind,
    BatchState,
    LossCause,
    OffsetRange,
    Segment,
    SegmentState,
    TopicPartition,
)
from tally.pipeline.audit import AuditReport
from tally.pipeline.plan import Planned
from tally.pipeline.recount import Recount, Unchecked
from tally.planning.blocks import Block, BlockReason

AT = datetime(2026, 11, 20, 14, 0, 0, tzinfo=UTC)
HERE = TopicPartition(topic="alog", partition=3)
RANGE = OffsetRange(partition=HERE, from_offset=300, until_offset=310)


def batch(until: int = 310) -> Batch:
    """A planned batch of one range."""
    planned = OffsetRange(partition=HERE, from_offset=300, until_offset=until)
    segment = Segment(
        segment_id=1, topic_id="t", cluster_id="c", range=planned, state=SegmentState.PLANNED
    )
    return Batch(
        batch_id=7,
        pipeline="p",
        kind=BatchKind.INGEST,
        state=BatchState.PLANNED,
        attempt=0,
        planned_at=AT,
        claimed_at=None,
        segments=(segment,),
    )


def record(**values: Any) -> BatchRecord:
    """What the ledger says of a batch that is planned only."""
    nothing = dict.fromkeys(BatchRecord.__slots__)
    planned = {
        "batch_id": 7,
        "pipeline": "p",
        "kind": BatchKind.INGEST,
        "state": BatchState.PLANNED,
        "attempt": 0,
        "planned_at": AT,
        "planned_version": "1",
        "requested_by": "me",
        "segments": 1,
        "superseded": 0,
        "offsets": 10,
    }
    return BatchRecord(**{**nothing, **planned, **values})


def test_a_planned_batch_carries_its_ranges() -> None:
    """Half-open ranges under the ledger's names."""
    shape = document(plan_view(planned(batch())))["batches"][0]
    assert shape["batch_id"] == 7
    assert shape["planned_at"] == "2026-11-20T14:00:00Z"
    later = document(record(planned_at=AT.replace(microsecond=120_000)))
    assert later["planned_at"] == "2026-11-20T14:00:00.120000Z"
    assert shape["ranges"] == [
        {"topic": "alog", "partition": 3, "from_offset": 300, "until_offset": 310}
    ]


def test_a_batch_that_would_be_planned_has_no_id() -> None:
    """A dry run rolls the id back, so it is not shown."""
    view = plan_view(planned(batch()), dry_run=True)
    assert document(view)["batches"][0]["batch_id"] is None
    assert "a batch would be planned" in view.title
    resumed = plan_view(planned(batch(), resumed=True), dry_run=True)
    assert document(resumed)["batches"][0]["batch_id"] == 7


def test_a_batch_carries_everything_the_ledger_says_and_null_for_what_is_not_yet() -> None:
    """Every field of the record is a key; JSON can carry all of them."""
    shape = document(record())
    assert set(shape) == set(BatchRecord.__slots__)
    assert shape["committed_at"] is None
    assert shape["records"] is None
    assert json.loads(json.dumps(shape)) == shape


def test_what_was_replaced_is_marked() -> None:
    """Its counts are no longer in the result, or only some of them."""
    committed = {"state": BatchState.COMMITTED, "segments": 2}
    assert record(**committed).standing == "committed"
    assert record(**committed, superseded=1).standing == "committed, partly replaced"
    assert record(**committed, superseded=2).standing == "committed, replaced"
    assert document(record(**committed, superseded=2))["superseded"] == 2


def test_a_segment_that_was_not_counted_has_null_for_its_counts() -> None:
    """Nothing read is not zero records."""
    segment = SegmentView.counted(
        RANGE,
        None,
        segment_id=1,
        topic_id="t",
        state=SegmentState.PLANNED,
        superseded_by=None,
        superseded_by_batch=None,
        replaces=(),
    )
    assert document(segment)["records"] is None
    assert document(segment)["from_offset"] == 300


def test_a_dead_letter_carries_its_exact_bytes() -> None:
    """Base64 for programs, an escaped text for people, null for a record without a value."""
    letter = DeadLetterRecord(
        batch_id=7, partition=HERE, offset=301, reason="layout", value=b"\xff\x1b", value_bytes=2
    )
    assert document(DeadLetterView.of(letter))["value_base64"] == "/xs="
    assert document(DeadLetterView.of(letter))["value"] == "\\xff\\x1b"
    empty = DeadLetterRecord(
        batch_id=7, partition=HERE, offset=302, reason="null", value=None, value_bytes=None
    )
    assert document(DeadLetterView.of(empty))["value_base64"] is None
    assert document(DeadLetterView.of(empty))["value"] is None


def test_a_loss_carries_who_decided_and_why() -> None:
    """An open one has nulls there."""
    loss = LossRecord(
        lost_range_id=1,
        cause=LossCause.EXPIRED,
        range=RANGE,
        topic_id="t",
        state="open",
        detected_at=AT,
        decided_at=None,
        decided_by=None,
        reason=None,
    )
    shape = document(LossView.loss(loss))
    assert (shape["from_offset"], shape["until_offset"]) == (300, 310)
    assert (shape["state"], shape["decided_by"]) == ("open", None)


def test_a_block_carries_its_reason_and_the_next_step() -> None:
    """A whole topic has null for its partition."""
    block = Block(
        topic="alog",
        partition=None,
        reason=BlockReason.TOPIC_CHANGED,
        detail="d",
        next_step="tally topics adopt",
    )
    assert document(block) == {
        "topic": "alog",
        "partition": None,
        "reason": "topic-changed",
        "detail": "d",
        "next_step": "tally topics adopt",
    }


VIOLATION = Violation(check="tiling", where="alog/3", detail="hole: [3, 5)")


def verdict(*violations: Violation) -> AuditReport:
    """What an audit of the ledger found."""
    return AuditReport(
        pipeline="p",
        partitions=1,
        segments=2,
        records=3,
        minutes=4,
        matched=5,
        violations=violations,
    )


def counted(*violations: Violation, unchecked: tuple[Unchecked, ...] = ()) -> Recount:
    """What a recount found."""
    return Recount(segments=1, offsets=10, records=10, violations=violations, unchecked=unchecked)


def test_an_audit_holds_only_if_neither_part_found_anything() -> None:
    """Violations in the ledger and in the recount are one list."""
    assert document(audit_view(verdict()))["holds"] is True
    assert document(audit_view(verdict(VIOLATION), counted()))["holds"] is False
    shape = document(audit_view(verdict(), counted(VIOLATION)))
    assert shape["holds"] is False
    assert shape["findings"] == [{"check": "tiling", "where": "alog/3", "detail": "hole: [3, 5)"}]


def test_an_audit_never_claims_more_than_it_looked_at() -> None:
    """Without a recount, and with gaps in it, the sentence and the document say so."""
    gap = Unchecked(range=RANGE, cause="retention")
    assert "--recount" in audit_view(verdict()).conclusion
    gaps = audit_view(verdict(), counted(unchecked=(gap,)))
    assert "all that Kafka still holds" in gaps.conclusion
    assert "record for record" in audit_view(verdict(), counted()).conclusion
    assert audit_view(verdict(VIOLATION), counted(VIOLATION)).conclusion.startswith("2 violations")
    partly = document(gaps)["recount"]
    assert partly["complete"] is False
    assert partly["not_checkable"][0]["cause"] == "retention"


def test_a_recount_that_compared_nothing_is_a_finding() -> None:
    """Of another cluster, say; a pipeline that has counted nothing has nothing to prove."""
    gap = Unchecked(range=RANGE, cause="another cluster")
    none = Recount(segments=0, offsets=0, records=0, violations=(), unchecked=(gap,))
    view = audit_view(verdict(), none)
    assert not view.holds
    assert [(f.check, f.where) for f in view.findings] == [("recount", "p")]
    assert "another cluster" in view.findings[0].detail
    assert audit_view(verdict(), replace(none, unchecked=())).holds


def planned(one: Batch | None, *, resumed: bool = False) -> Planned:
    """The outcome of planning."""
    batches = (one,) if one else ()
    new = () if resumed else tuple(batch.batch_id for batch in batches)
    return Planned(pipeline="p", batches=batches, resumed=resumed, new_ids=new, blocks=())


def test_run_all_continues_after_a_batch_that_was_cut_or_planned_earlier() -> None:
    """It has caught up when a fresh batch took everything there was."""
    assert has_caught_up(planned(batch()), 1_000)
    assert not has_caught_up(planned(batch()), 10)
    assert not has_caught_up(planned(batch(), resumed=True), 1_000)
    assert has_caught_up(planned(None), 1)


def test_what_could_not_be_checked_is_summed_up_by_cause() -> None:
    """Thousands of segments that retention took are one line."""
    gone = [
        Unchecked(range=replace(RANGE, from_offset=n, until_offset=n + 10), cause="retention")
        for n in (0, 10)
    ]
    there = TopicPartition(topic="alog", partition=4)
    other = Unchecked(
        range=OffsetRange(partition=there, from_offset=0, until_offset=5), cause="retention"
    )
    view = RecountView.of(counted(unchecked=(*gone, other)))
    assert view.unchecked_offsets == [("alog/3: retention", 20), ("alog/4: retention", 5)]
