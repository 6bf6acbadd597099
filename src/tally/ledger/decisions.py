"""Decisions of an operator: accepting a loss, adopting a re-created topic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tally.errors import UsageError
from tally.ledger.positions import insert_generation, insert_positions, known_topics
from tally.ledger.progress import forget_through
from tally.ledger.rows import records
from tally.model import Generation, Loss, LossCause, OffsetRange
from tally.mysql.transactions import Transaction


@dataclass(frozen=True, kw_only=True, slots=True)
class LossRecord(Loss):
    """A loss, and what was decided about it."""

    lost_range_id: int
    """The ledger's key."""
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
    return records(
        tx,
        LossRecord,
        "from lost_range l join topic_incarnation i using (incarnation_id)"
        " where i.pipeline = %s"
        + (" and l.state = 'open'" if only_open else "")
        + " order by l.lost_range_id"
        + (" for update" if lock else ""),
        (pipeline,),
        "l",
    )


def decide_losses(
    tx: Transaction,
    pipeline: str,
    seen: Sequence[LossRecord],
    *,
    accept: bool,
    by: str,
    reason: str,
) -> None:
    """Decide about open losses exactly as they were seen.

    Args:
        tx: An open transaction that holds the pipeline's lock.
        pipeline: The pipeline.
        seen: The losses as they were shown to the operator.
        accept: Whether they are accepted, so that their partitions are read again; else they stay
            open.
        by: Who decided.
        reason: Why.

    Raises:
        UsageError: One of them has grown, was decided meanwhile, or its partition has moved.
            Nothing is changed.
    """
    decision = ("accepted" if accept else "open", tx.now(), by, reason)
    for loss in seen:
        first, until = loss.range.from_offset, loss.range.until_offset
        decided = tx.execute(
            "update lost_range set state = %s, decided_at = %s, decided_by = %s, reason = %s"
            " where lost_range_id = %s and state = 'open' and cause = %s and from_offset = %s"
            # A concurrent decision to leave it open counts, too; a restored ledger repeats ids.
            " and until_offset = %s and decided_at <=> %s and partition_id = %s"
            " and detected_at = %s",
            (
                *(*decision, loss.lost_range_id, loss.cause, first, until),
                *(loss.decided_at, loss.range.partition.partition, loss.detected_at),
            ),
        )
        if decided != 1 or (accept and not _resume(tx, loss)):
            raise UsageError(
                f"the loss of {loss.range} is not what you saw any more: it has grown, or it was "
                "decided meanwhile",
                next_step=f"tally losses list {pipeline}",
            )


def _resume(tx: Transaction, loss: LossRecord) -> bool:
    """Move the committed offset past an accepted loss; False when it is not where it blocked."""
    first, until = loss.range.from_offset, loss.range.until_offset
    blocked_at, resumes_at = {
        LossCause.EXPIRED: (first, until),
        LossCause.TRUNCATED: (until, until),
        LossCause.MISSING: (first, first),
    }[loss.cause]
    of_partition = (
        "partition_offset o join lost_range l using (incarnation_id, partition_id)"
        " {} where l.lost_range_id = %s and o.next_offset = %s"
    )
    here = (loss.lost_range_id, blocked_at)
    is_blocked = tx.exists(f"select 1 from {of_partition.format('')} for update", here)
    tx.execute(f"update {of_partition.format('set o.next_offset = %s')}", (resumes_at, *here))
    return is_blocked


@dataclass(frozen=True, kw_only=True, slots=True)
class StartView:
    """Where counting begins in a partition."""

    partition: int
    """The partition's number, from 0."""
    offset: int
    """The first offset that is counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LostView:
    """A range that is accepted as lost with the adoption."""

    range: OffsetRange
    """The range."""
    topic_id: str
    """Kafka's id of the generation that has lost it."""
    cause: LossCause
    """How its records are lost; ``expired`` also when they were planned and never counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AdoptionView(Generation):
    """A topic's generation as Kafka shows it, and what adopting it means."""

    pipeline: str
    """The pipeline."""
    topic: str
    """The topic."""
    start: str
    """Where counting of a new generation begins: ``earliest``, ``latest``, a time, ``offsets``."""
    was_followed_before: bool = False
    """Whether the ledger has followed this generation before; then counting resumes."""
    partitions: tuple[StartView, ...]
    """Where counting begins or resumes."""
    lost: tuple[LostView, ...] = ()
    """What is accepted as lost, of both generations."""
    counted_through: datetime | None = None
    """All is counted that Kafka had of the old generation at this moment; None when not known."""
    counted_twice: int | None = None
    """Offsets from where counting begins up to the first record of that moment or later: if they
    are copies of the old generation's, they count twice. None when the moment is not known."""
    never_counted: int | None = None
    """Offsets before where counting begins, from the first record of that moment or later on."""
    behind: tuple[int, ...] = ()
    """Partitions without a record of that moment or later: copies may still come, and count twice.
    """
    adopted: bool = False
    """Whether it is adopted; false for a preview."""


def counted_through(tx: Transaction, pipeline: str, topic: str) -> datetime | None:
    """Through which moment the current generation of a topic is counted; None when not known."""
    row = tx.one(
        "select min(o.counted_through) as through, count(*) = count(o.counted_through) as is_known"
        " from partition_offset o join topic_incarnation i using (incarnation_id)"
        " where i.pipeline = %s and i.topic = %s and i.state = 'current'",
        (pipeline, topic),
    )
    through: datetime | None = row["through"]
    return through.replace(tzinfo=UTC) if row["is_known"] and through is not None else None


def offsets_before(tx: Transaction, pipeline: str, topic: str, of: Generation) -> dict[int, int]:
    """Where a generation that was current before resumes, by partition; empty for any other."""
    before = _retired(tx, pipeline, topic, of)
    return {} if before is None else _next_offsets(tx, before)


def _retired(tx: Transaction, pipeline: str, topic: str, of: Generation) -> int | None:
    """The key of a generation that was current before; None for any other."""
    found: int | None = tx.scalar(
        "select incarnation_id from topic_incarnation where pipeline = %s and topic = %s"
        " and cluster_id = %s and topic_id = %s and state = 'retired'",
        (pipeline, topic, of.cluster_id, of.topic_id),
    )
    return found


def _next_offsets(tx: Transaction, generation_id: int) -> dict[int, int]:
    return tx.pairs(
        "select partition_id, next_offset from partition_offset where incarnation_id = %s",
        (generation_id,),
    )


def starts_of(offsets: Mapping[int, int]) -> tuple[StartView, ...]:
    """Where counting begins, from the offsets by partition."""
    return tuple(StartView(partition=n, offset=offset) for n, offset in sorted(offsets.items()))


def adopt_topic(
    tx: Transaction, shown: AdoptionView, *, by: str, reason: str
) -> tuple[StartView, ...]:
    """Make another generation of a topic the current one; what was counted stays counted.

    Open losses of the old generation are accepted. Offsets of it that were planned and never
    counted are recorded as accepted losses, and so are those of a whole new generation that expired
    before it was adopted. A generation that was current before resumes at its committed offsets;
    ``shown.partitions`` is then ignored.

    Args:
        tx: An open transaction that holds the pipeline's lock.
        shown: The new generation, as it was shown to the operator.
        by: Who decided.
        reason: Why.

    Returns:
        The offset at which counting continues, by partition.

    Raises:
        UsageError: The topic is unknown to the ledger, or this generation is current already.
    """
    pipeline, topic = shown.pipeline, shown.topic
    known = known_topics(tx, pipeline).get(topic)
    if known is None:
        raise UsageError(
            f"pipeline {pipeline} has never read the topic {topic}; there is nothing to adopt",
            next_step=f"tally plan {pipeline}",
        )
    if known.is_same(shown):
        raise UsageError(
            f"{topic} with id {shown.topic_id} is the generation that the ledger follows already",
            next_step=f"tally status {pipeline}",
        )
    old_losses = [
        loss
        for loss in find_losses(tx, pipeline, only_open=True, lock=True)
        if loss.range.partition.topic == topic
    ]
    decide_losses(tx, pipeline, old_losses, accept=True, by=by, reason=reason)
    _accept_planned_as_lost(tx, known.generation_id, by=by, reason=reason)
    tx.execute(
        "update topic_incarnation set state = 'retired', retired_at = %s where incarnation_id = %s",
        (tx.now(), known.generation_id),
    )
    if (before := _retired(tx, pipeline, topic, shown)) is not None:
        resumed = starts_of(_resume_generation(tx, before, by=by, reason=reason))
        forget_through(tx, pipeline)
        return resumed
    generation_id = insert_generation(tx, pipeline, topic, shown, adopted_by=by, reason=reason)
    is_whole = shown.start == "earliest"  # then what expired before these offsets is lost
    starts = [(start.partition, start.offset) for start in shown.partitions]
    insert_positions(tx, [(generation_id, n, 0 if is_whole else at, at) for n, at in starts])
    for number, start in starts:
        if is_whole and start > 0:
            _insert_accepted(tx, (generation_id, number, 0, start), by=by, reason=reason)
    forget_through(tx, pipeline)
    return shown.partitions


def _resume_generation(
    tx: Transaction, generation_id: int, *, by: str, reason: str
) -> dict[int, int]:
    """Make an earlier generation current again; returns the committed offsets where it resumes."""
    tx.execute(
        "update topic_incarnation set state = 'current', retired_at = null, adopted_by = %s,"
        " reason = %s where incarnation_id = %s",
        (by, reason, generation_id),
    )
    return _next_offsets(tx, generation_id)


def _accept_planned_as_lost(tx: Transaction, generation_id: int, *, by: str, reason: str) -> None:
    """Record as lost what was planned, so Kafka once held it, and was never counted."""
    rows = tx.rows(
        "select o.partition_id, o.next_offset, max(s.until_offset) as planned_until"
        " from partition_offset o join segment s using (incarnation_id, partition_id)"
        " where o.incarnation_id = %s group by o.partition_id, o.next_offset"
        " having planned_until > o.next_offset for update",  # a running commit may still move it
        (generation_id,),
    )
    for row in rows:
        partition, next_offset, until = row.values()
        lost = (generation_id, partition, next_offset, until)
        _insert_accepted(tx, lost, by=by, reason=reason)
        tx.execute(
            "update partition_offset set next_offset = %s"
            " where incarnation_id = %s and partition_id = %s",
            (until, generation_id, partition),
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
