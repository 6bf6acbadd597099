"""What ``--json`` carries: one function per thing, keys as in the ledger.

Keys are only ever added. Times are UTC in ISO 8601; ``log_time`` is the log's own wall clock and
has no zone.
"""

import base64
from typing import Any

from tally.cli.ui.values import instant, printable_bytes
from tally.ledger.dead_letters import LetterRecord
from tally.ledger.decisions import LossRecord
from tally.ledger.reading import BatchRecord, SegmentRecord
from tally.ledger.replacements import Changes
from tally.ledger.replays import ReplayRecord
from tally.ledger.results import ResultRow
from tally.model import Batch, OffsetRange, SegmentTotals
from tally.pipeline.replay_plan import Preview
from tally.pipeline.run import Ran
from tally.planning.blocks import Block

Shape = dict[str, Any]


def row_shape(row: ResultRow) -> Shape:
    """A row of the result; labels and bytes only where the pipeline has such columns."""
    return {
        "log_time": row.log_time,
        **({"labels": dict(row.labels)} if row.labels else {}),
        "log_count": row.log_count,
        **({} if row.log_bytes is None else {"log_bytes": row.log_bytes}),
    }


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


def ran_shape(ran: Ran) -> Shape:
    """What became of a batch that was run; the counts are null when it was committed before."""
    return {
        "batch_id": ran.batch.batch_id,
        "pipeline": ran.batch.pipeline,
        "attempt": ran.batch.attempt,
        "committed_before": not ran.committed,
        "seconds": round(ran.seconds, 3),
        "ranges": [
            {**range_shape(s.range), **totals_shape(ran.totals.get(s.range.partition))}
            for s in ran.batch.segments
        ],
    }


def batch_shape(batch: BatchRecord) -> Shape:
    """Everything that the ledger says of a batch."""
    return {
        "batch_id": batch.batch_id,
        "pipeline": batch.pipeline,
        "kind": str(batch.kind),
        "replay_id": batch.replay_id,
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
        "superseded": batch.superseded,
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


def replay_shape(replay: ReplayRecord) -> Shape:
    """Everything that the ledger says of a replay."""
    return {
        "replay_id": replay.replay_id,
        "pipeline": replay.pipeline,
        "state": str(replay.state),
        "request": replay.request,
        "requested_at": instant(replay.requested_at),
        "requested_by": replay.requested_by,
        "run_id": replay.run_id,
        "reason": replay.reason,
        "ended_at": instant(replay.ended_at),
        "pruned_at": instant(replay.pruned_at),
        "batches": replay.batches,
        "committed": replay.committed,
        "offsets": replay.offsets,
        "offsets_committed": replay.offsets_committed,
    }


def preview_shape(preview: Preview) -> Shape:
    """What a replay would do; nothing is read and nothing replaced while ranges are refused."""
    plan = preview.plan
    return {
        "pipeline": preview.pipeline,
        "request": preview.request,
        "asked": [range_shape(r) for r in plan.asked],
        "refusals": [{**range_shape(r.range), "cause": r.cause} for r in plan.refusals],
        "read": [range_shape(r) for r in plan.widened],
        "batches": [
            [
                {
                    **range_shape(piece.range),
                    "replaces": list(piece.replaces),
                    "never_counted": piece.uncounted,
                }
                for piece in batch
            ]
            for batch in plan.batches
        ],
        "offsets": preview.offsets,
        "never_counted": preview.uncounted,
        "segments_replaced": len(plan.replaces),
        "rules": preview.rules,
        "minutes": preview.minutes,
        "first_minute": preview.first_minute,
        "last_minute": preview.last_minute,
        "kafka_holds": [
            {"topic": p.topic, "partition": p.partition, "earliest": earliest, "end": end}
            for p, (earliest, end) in sorted(preview.held.items())
        ],
        "seconds": None if preview.seconds is None else round(preview.seconds, 1),
        "notes": list(preview.notes),
    }


def changes_shape(changes: Changes) -> Shape:
    """What a replay has changed in the result so far."""
    return {
        "minutes": changes.minutes,
        "first_minute": changes.first,
        "last_minute": changes.last,
        "lines_more": changes.more,
        "lines_fewer": changes.fewer,
    }
