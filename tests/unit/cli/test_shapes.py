"""The JSON that other programs rely on: keys and kinds of values."""

import json
from datetime import UTC, datetime
from typing import Any

from tally.cli.audit import audit_shape, conclusion
from tally.cli.run import has_caught_up
from tally.cli.shapes import (
    batch_shape,
    block_shape,
    letter_shape,
    loss_shape,
    planned_batch_shape,
    segment_shape,
)
from tally.ledger.dead_letters import LetterRecord
from tally.ledger.decisions import LossRecord
from tally.ledger.invariants import Violation
from tally.ledger.reading import BatchRecord, SegmentRecord
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
    """Half-open ranges under the ledger's words."""
    shape = planned_batch_shape(batch())
    assert shape["batch_id"] == 7
    assert shape["planned_at"] == "2026-11-20T14:00:00Z"
    assert shape["ranges"] == [
        {"topic": "alog", "partition": 3, "from_offset": 300, "until_offset": 310}
    ]


def test_a_batch_that_would_be_planned_has_no_id() -> None:
    """The id of a dry run means nothing, so nobody gets it."""
    assert planned_batch_shape(batch(), dry_run=True)["batch_id"] is None


def test_a_batch_carries_everything_the_ledger_says_and_null_for_what_is_not_yet() -> None:
    """Every field of the record is a key; JSON can carry all of them."""
    shape = batch_shape(record())
    assert set(shape) == set(BatchRecord.__slots__)
    assert shape["committed_at"] is None
    assert shape["records"] is None
    assert json.loads(json.dumps(shape)) == shape


def test_what_was_replaced_is_marked() -> None:
    """Its numbers are no part of the result any more, or not all of them."""
    committed = {"state": BatchState.COMMITTED, "segments": 2}
    assert record(**committed).standing == "committed"
    assert record(**committed, superseded=1).standing == "committed, partly replaced"
    assert record(**committed, superseded=2).standing == "committed, replaced"
    assert batch_shape(record(**committed, superseded=2))["superseded"] == 2


def test_a_segment_that_was_not_counted_has_null_for_its_counts() -> None:
    """Nothing read is not zero records."""
    segment = SegmentRecord(
        segment_id=1,
        batch_id=7,
        range=RANGE,
        state=SegmentState.PLANNED,
        superseded_by=None,
        topic_id="t",
        cluster_id="c",
        is_current=True,
        totals=None,
        format_fingerprint=None,
        committed_version=None,
    )
    assert segment_shape(segment)["records"] is None
    assert segment_shape(segment)["from_offset"] == 300


def test_a_dead_letter_carries_its_exact_bytes() -> None:
    """Base64 for programs, an escaped text for people, null for a record without a value."""
    letter = LetterRecord(
        batch_id=7, partition=HERE, offset=301, reason="layout", value=b"\xff\x1b", value_bytes=2
    )
    assert letter_shape(letter)["value_base64"] == "/xs="
    assert letter_shape(letter)["value"] == "\\xff\\x1b"
    empty = LetterRecord(
        batch_id=7, partition=HERE, offset=302, reason="null", value=None, value_bytes=None
    )
    assert letter_shape(empty)["value_base64"] is None
    assert letter_shape(empty)["value"] is None


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
    shape = loss_shape(loss)
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
    assert block_shape(block) == {
        "topic": "alog",
        "partition": None,
        "reason": "topic-changed",
        "detail": "d",
        "next_step": "tally topics adopt",
    }


FINDING = Violation(check="tiling", where="alog/3", detail="hole: [3, 5)")


def verdict(*findings: Violation) -> AuditReport:
    """What an audit of the ledger found."""
    return AuditReport(
        pipeline="p",
        partitions=1,
        segments=2,
        records=3,
        minutes=4,
        matched=5,
        findings=findings,
    )


def counted(*findings: Violation, unchecked: tuple[Unchecked, ...] = ()) -> Recount:
    """What a recount found."""
    return Recount(segments=1, offsets=10, records=10, findings=findings, unchecked=unchecked)


def test_an_audit_holds_only_if_neither_part_found_anything() -> None:
    """Findings of the ledger and of the recount are one list."""
    assert audit_shape(verdict(), None)["holds"] is True
    assert audit_shape(verdict(FINDING), counted())["holds"] is False
    shape = audit_shape(verdict(), counted(FINDING))
    assert shape["holds"] is False
    assert shape["findings"] == [{"check": "tiling", "where": "alog/3", "detail": "hole: [3, 5)"}]


def test_an_audit_never_claims_more_than_it_looked_at() -> None:
    """Without a recount, and with gaps in it, the sentence and the document say so."""
    gap = Unchecked(range=RANGE, cause="retention")
    assert "--recount" in conclusion(verdict(), None)
    assert "all that Kafka still holds" in conclusion(verdict(), counted(unchecked=(gap,)))
    assert "record for record" in conclusion(verdict(), counted())
    assert conclusion(verdict(FINDING), counted(FINDING)).startswith("2 findings")
    partly = audit_shape(verdict(), counted(unchecked=(gap,)))["recount"]
    assert partly["complete"] is False
    assert partly["not_checkable"][0]["cause"] == "retention"


def planned(one: Batch | None, *, resumed: bool = False) -> Planned:
    """What planning left behind."""
    return Planned(pipeline="p", batch=one, resumed=resumed, blocks=())


def test_run_all_goes_on_after_a_batch_that_was_cut_or_planned_earlier() -> None:
    """It has caught up when a fresh batch took everything there was."""
    assert has_caught_up(planned(batch()), 1_000)
    assert not has_caught_up(planned(batch()), 10)
    assert not has_caught_up(planned(batch(), resumed=True), 1_000)
    assert has_caught_up(planned(None), 1)
