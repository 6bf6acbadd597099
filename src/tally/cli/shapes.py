"""What ``--json`` carries: one function per thing, keys as in the ledger.

Keys are only ever added. Times are UTC in ISO 8601; ``log_time`` is the log's own wall clock and
has no zone.
"""

import base64
from typing import Any

from tally.blocks import Block
from tally.cli.values import instant, printable_bytes
from tally.ledger.decisions import LossRecord
from tally.ledger.reading import BatchRecord, LetterRecord, SegmentRecord
from tally.model import Batch, OffsetRange, SegmentTotals

Shape = dict[str, Any]


def range_shape(offset_range: OffsetRange) -> Shape:
    """A half-open range of one partition."""
    return {
        "topic": offset_range.partition.topic,
        "partition": offset_range.partition.partition,
        "from_offset": offset_range.from_offset,
        "until_offset": offset_range.until_offset,
    }


def totals_shape(totals: SegmentTotals | None) -> Shape:
    """What a segment held; all null before it was counted."""
    return {
        key: getattr(totals, key, None)
        for key in ("records", "matched", "unmatched", "malformed", "first_offset", "last_offset")
    }


def block_shape(block: Block) -> Shape:
    """What is not read, and why; ``partition`` is null for a whole topic."""
    return {
        "topic": block.topic,
        "partition": block.partition,
        "reason": str(block.reason),
        "detail": block.detail,
        "next_step": block.next_step,
    }


def planned_batch_shape(batch: Batch, *, dry_run: bool = False) -> Shape:
    """A batch with its ranges."""
    return {
        "batch_id": None if dry_run else batch.batch_id,
        "pipeline": batch.pipeline,
        "kind": str(batch.kind),
        "state": str(batch.state),
        "attempt": batch.attempt,
        "planned_at": instant(batch.planned_at),
        "offsets": batch.offsets,
        "ranges": [range_shape(segment.range) for segment in batch.segments],
    }


def batch_shape(batch: BatchRecord) -> Shape:
    """Everything that the ledger says of a batch."""
    return {
        "batch_id": batch.batch_id,
        "pipeline": batch.pipeline,
        "kind": str(batch.kind),
        "state": str(batch.state),
        "attempt": batch.attempt,
        "requested_by": batch.requested_by,
        "run_id": batch.run_id,
        "planned_at": instant(batch.planned_at),
        "planned_version": batch.planned_version,
        "claimed_at": instant(batch.claimed_at),
        "claimed_by": batch.claimed_by,
        "committed_at": instant(batch.committed_at),
        "committed_version": batch.committed_version,
        "format_fingerprint": batch.format_fingerprint,
        "abandoned_at": instant(batch.abandoned_at),
        "abandoned_by": batch.abandoned_by,
        "reason": batch.reason,
        "segments": batch.segments,
        "offsets": batch.offsets,
        "records": batch.records,
        "matched": batch.matched,
        "unmatched": batch.unmatched,
        "malformed": batch.malformed,
    }


def segment_shape(segment: SegmentRecord) -> Shape:
    """Everything that the ledger says of a segment."""
    return {
        "segment_id": segment.segment_id,
        **range_shape(segment.range),
        "topic_id": segment.topic_id,
        "state": str(segment.state),
        "superseded_by": segment.superseded_by,
        **totals_shape(segment.totals),
    }


def letter_shape(letter: LetterRecord) -> Shape:
    """A dead letter; ``value`` is for people, ``value_base64`` is exact."""
    return {
        "batch_id": letter.batch_id,
        "topic": letter.partition.topic,
        "partition": letter.partition.partition,
        "offset": letter.offset,
        "reason": letter.reason,
        "value_bytes": letter.value_bytes,
        "value": None if letter.value is None else printable_bytes(letter.value),
        "value_base64": None if letter.value is None else base64.b64encode(letter.value).decode(),
    }


def loss_shape(loss: LossRecord) -> Shape:
    """A lost range and what was decided about it."""
    return {
        "lost_range_id": loss.lost_range_id,
        **range_shape(loss.range),
        "cause": str(loss.cause),
        "topic_id": loss.topic_id,
        "state": loss.state,
        "detected_at": instant(loss.detected_at),
        "decided_at": instant(loss.decided_at),
        "decided_by": loss.decided_by,
        "reason": loss.reason,
    }
