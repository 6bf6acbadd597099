"""Decisions of an operator: accepting a loss, adopting a re-created topic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tally.errors import UsageError
from tally.ledger.positions import insert_generation, known_topics
from tally.ledger.rows import range_of
from tally.model import LossCause, OffsetRange
from tally.mysql.transactions import Transaction


@dataclass(frozen=True, kw_only=True, slots=True)
class LossRecord:
    """Offsets whose records are gone, and what was decided about them."""

    lost_range_id: int
    """The ledger's key."""
    cause: LossCause
    """Why the records are gone."""
    range: OffsetRange
    """The offsets (see :class:`tally.model.Loss`)."""
    topic_id: str
    """Kafka's id of the topic that lost them."""
    state: str
    """``open``, ``accepted`` or ``restored``."""
    detected_at: datetime
    """When a plan first saw it (UTC)."""
    decided_at: datetime | None
    """When it was accepted, found restored, or last left open by an operator (UTC)."""
    decided_by: str | None
    """Who accepted it or left it open."""
    reason: str | None
    """Why."""


def find_losses(
    tx: Transaction, pipeline: str, *, only_open: bool = False, lock: bool = False
) -> list[LossRecord]:
    """The pipeline's lost ranges, oldest first."""
    rows = tx.rows(
        "select l.lost_range_id, i.topic, i.topic_id, l.partition_id, l.from_offset,"
        " l.until_offset, l.cause, l.state, l.detected_at, l.decided_at, l.decided_by, l.reason"
        " from lost_range l join topic_incarnation i using (incarnation_id)"
        " where i.pipeline = %s"
        + (" and l.state = 'open'" if only_open else "")
        + " order by l.lost_range_id"
        + (" for update" if lock else ""),
        (pipeline,),
    )
    return [
        LossRecord(
            lost_range_id=row["lost_range_id"],
            range=range_of(row),
            cause=LossCause(row["cause"]),
            topic_id=row["topic_id"],
            state=row["state"],
            detected_at=row["detected_at"].replace(tzinfo=UTC),
            decided_at=row["decided_at"] and row["decided_at"].replace(tzinfo=UTC),
            decided_by=row["decided_by"],
            reason=row["reason"],
        )
        for row in rows
    ]


def accept_losses(
    tx: Transaction, pipeline: str, seen: Sequence[LossRecord], *, by: str, reason: str
) -> None:
    """Accept open losses exactly as they were seen, so that their partitions are read again.

    Args:
        tx: An open transaction that holds the pipeline's lock.
        pipeline: The pipeline.
        seen: The losses as they were shown to the operator.
        by: Who decided.
        reason: Why.

    Raises:
        UsageError: One of them has grown, was decided meanwhile, or its partition has moved.
            Nothing is changed.
    """
    for loss in seen:
        blocked_at, resumes_at = _offsets_of(loss)
        accepted = tx.execute(
            "update lost_range l join partition_offset o using (incarnation_id, partition_id)"
            " set l.state = 'accepted', l.decided_at = %s, l.decided_by = %s, l.reason = %s"
            f" where {_IS_AS_SEEN} and o.next_offset = %s",
            (tx.now(), by, reason, *_as_seen(loss), blocked_at),
        )
        moved = tx.execute(
            "update lost_range l join partition_offset o using (incarnation_id, partition_id)"
            " set o.next_offset = %s where l.lost_range_id = %s and o.next_offset = %s",
            (resumes_at, loss.lost_range_id, blocked_at),
        )
        if (accepted, moved) != (1, int(resumes_at != blocked_at)):
            raise _changed(pipeline, loss)


def keep_blocked(
    tx: Transaction, pipeline: str, seen: Sequence[LossRecord], *, by: str, reason: str
) -> None:
    """Record that an operator has seen open losses and leaves them open.

    The arguments are those of :func:`accept_losses`.

    Raises:
        UsageError: One of them has grown or was decided meanwhile. Nothing is changed.
    """
    for loss in seen:
        kept = tx.execute(
            "update lost_range l set l.decided_at = %s, l.decided_by = %s, l.reason = %s"
            f" where {_IS_AS_SEEN}",
            (tx.now(), by, reason, *_as_seen(loss)),
        )
        if kept != 1:
            raise _changed(pipeline, loss)


_IS_AS_SEEN: Final = (
    "l.lost_range_id = %s and l.state = 'open' and l.cause = %s"
    " and l.from_offset = %s and l.until_offset = %s and l.decided_at <=> %s"
)


def _as_seen(loss: LossRecord) -> tuple[int, LossCause, int, int, datetime | None]:
    """The parameters of ``_IS_AS_SEEN``; whoever left it open meanwhile has decided, too."""
    return (
        loss.lost_range_id,
        loss.cause,
        loss.range.from_offset,
        loss.range.until_offset,
        loss.decided_at and loss.decided_at.replace(tzinfo=None),
    )


def _changed(pipeline: str, loss: LossRecord) -> UsageError:
    return UsageError(
        f"the loss of {loss.range} is not what you saw any more: it has grown, or it was decided "
        "meanwhile",
        next_step=f"tally losses list {pipeline}",
    )


def _offsets_of(loss: LossRecord) -> tuple[int, int]:
    """The committed offset while the loss is open, and the one after it is accepted."""
    return {
        LossCause.EXPIRED: (loss.range.from_offset, loss.range.until_offset),
        LossCause.TRUNCATED: (loss.range.until_offset, loss.range.until_offset),
        LossCause.MISSING: (loss.range.from_offset, loss.range.from_offset),
    }[loss.cause]


@dataclass(frozen=True, kw_only=True, slots=True)
class Adoption:
    """A topic's new generation, as it was shown to the operator."""

    topic: str
    """The topic."""
    cluster_id: str
    """The cluster that it is on now."""
    topic_id: str
    """Kafka's id of it now."""
    starts: Mapping[int, int]
    """Where counting begins, by partition."""
    is_whole: bool
    """Whether all of it is to be counted, so that what expired before these offsets is lost."""


def adopt_topic(
    tx: Transaction, pipeline: str, adoption: Adoption, *, by: str, reason: str
) -> dict[int, int]:
    """Make another generation of a topic the current one; what was counted stays counted.

    Open losses of the old generation are accepted. Offsets of it that were planned and never
    counted are recorded as accepted losses, and so are those of a whole new generation that expired
    before it was adopted. A generation that was current before resumes at its committed offsets;
    ``starts`` is then ignored.

    Args:
        tx: An open transaction that holds the pipeline's lock.
        pipeline: The pipeline.
        adoption: The new generation.
        by: Who decided.
        reason: Why.

    Returns:
        The offset at which counting continues, by partition.

    Raises:
        UsageError: The topic is unknown to the ledger, or this generation is current already.
    """
    known = known_topics(tx, pipeline).get(adoption.topic)
    if known is None:
        raise UsageError(
            f"pipeline {pipeline} has never read the topic {adoption.topic}; there is nothing to "
            "adopt",
            next_step=f"tally plan {pipeline}",
        )
    if (known.topic_id, known.cluster_id) == (adoption.topic_id, adoption.cluster_id):
        raise UsageError(
            f"{adoption.topic} with id {adoption.topic_id} is the generation that the ledger "
            "follows already",
            next_step=f"tally status {pipeline}",
        )
    old_losses = [
        loss
        for loss in find_losses(tx, pipeline, only_open=True, lock=True)
        if loss.range.partition.topic == adoption.topic
    ]
    accept_losses(tx, pipeline, old_losses, by=by, reason=reason)
    _accept_planned_as_lost(tx, known.incarnation_id, by=by, reason=reason)
    tx.execute(
        "update topic_incarnation set state = 'retired', retired_at = %s where incarnation_id = %s",
        (tx.now(), known.incarnation_id),
    )
    if (offsets := earlier_generation(tx, pipeline, adoption)) is not None:
        _resume_generation(tx, pipeline, adoption, by=by, reason=reason)
        return offsets
    incarnation_id = insert_generation(
        tx,
        pipeline,
        adoption.topic,
        adoption.topic_id,
        adoption.cluster_id,
        adopted_by=by,
        reason=reason,
    )
    tx.insert_many(
        "insert into partition_offset (incarnation_id, partition_id, start_offset, next_offset)"
        " values (%s, %s, %s, %s)",
        [
            (incarnation_id, number, 0 if adoption.is_whole else start, start)
            for number, start in adoption.starts.items()
        ],
    )
    for number, start in adoption.starts.items():
        if adoption.is_whole and start > 0:
            _insert_accepted(tx, (incarnation_id, number, 0, start), by=by, reason=reason)
    return dict(adoption.starts)


def earlier_generation(tx: Transaction, pipeline: str, adoption: Adoption) -> dict[int, int] | None:
    """Committed offsets of a generation that was current before, by partition; None without one."""
    rows = tx.rows(
        "select o.partition_id, o.next_offset"
        " from topic_incarnation i left join partition_offset o using (incarnation_id)"
        " where i.pipeline = %s and i.topic = %s and i.cluster_id = %s and i.topic_id = %s",
        (pipeline, adoption.topic, adoption.cluster_id, adoption.topic_id),
    )
    if not rows:
        return None
    return {r["partition_id"]: r["next_offset"] for r in rows if r["partition_id"] is not None}


def _resume_generation(
    tx: Transaction, pipeline: str, adoption: Adoption, *, by: str, reason: str
) -> None:
    """Make an earlier generation current again; it resumes at its committed offsets."""
    tx.execute(
        "update topic_incarnation set state = 'current', retired_at = null, adopted_by = %s,"
        " reason = %s where pipeline = %s and topic = %s and cluster_id = %s and topic_id = %s",
        (by, reason, pipeline, adoption.topic, adoption.cluster_id, adoption.topic_id),
    )


def _accept_planned_as_lost(tx: Transaction, incarnation_id: int, *, by: str, reason: str) -> None:
    """Record as lost what was planned, so Kafka once held it, and was never counted."""
    rows = tx.rows(
        "select o.partition_id, o.next_offset, max(s.until_offset) as planned_until"
        " from partition_offset o join segment s using (incarnation_id, partition_id)"
        " where o.incarnation_id = %s group by o.partition_id, o.next_offset"
        " having planned_until > o.next_offset for update",  # a running commit may still move it
        (incarnation_id,),
    )
    for row in rows:
        lost = (incarnation_id, row["partition_id"], row["next_offset"], row["planned_until"])
        _insert_accepted(tx, lost, by=by, reason=reason)
        tx.execute(
            "update partition_offset set next_offset = %s"
            " where incarnation_id = %s and partition_id = %s",
            (row["planned_until"], incarnation_id, row["partition_id"]),
        )


def _insert_accepted(
    tx: Transaction, lost: tuple[int, int, int, int], *, by: str, reason: str
) -> None:
    """Record as lost and accepted: the generation's key, the partition, and its offsets."""
    now = tx.now()
    tx.execute(
        "insert into lost_range (incarnation_id, partition_id, from_offset, until_offset,"
        " cause, state, detected_at, decided_at, decided_by, reason)"
        " values (%s, %s, %s, %s, 'expired', 'accepted', %s, %s, %s, %s)",
        (*lost, now, now, by, reason),
    )
