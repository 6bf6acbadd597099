"""Offsets of which no text may be stored: what an operator has erased, and dead letters by age.

A dead letter without its text keeps its offset, reason, length and minute; kept lines lose theirs
where they are (:class:`tally.deliveries.set_erasure.ErasableSets`).

No statement here locks a segment, which a batch that is being committed holds until its end.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tally.errors import UsageError
from tally.ledger.rows import records
from tally.ledger.schema import check_version
from tally.model import OffsetRange
from tally.mysql.transactions import Transaction

_OVERLAPPING: Final = """
    erasure e join segment s using (incarnation_id, partition_id)
    where s.from_offset < e.until_offset and e.from_offset < s.until_offset
"""
_BLANK: Final = "set value = null, is_erased = true"


@dataclass(frozen=True, kw_only=True, slots=True)
class ErasureRecord:
    """A range of which no text is stored."""

    erasure_id: int
    """The ledger's key."""
    topic_id: str
    """Kafka's id of the topic."""
    range: OffsetRange
    """The range."""
    requested_at: datetime
    """When it was first asked for (UTC)."""
    requested_by: str
    """Who has asked for it."""
    reason: str
    """Why."""


def record_erasure(
    tx: Transaction, pipeline: str, erased: OffsetRange, *, by: str, reason: str
) -> None:
    """Record that no text of a range may be stored, in every generation of its topic.

    Raises:
        UsageError: The pipeline has never read the partition.
    """
    check_version(tx)
    partition = erased.partition
    known = tx.scalars(
        "select incarnation_id from topic_incarnation join partition_offset using (incarnation_id)"
        " where pipeline = %s and topic = %s and partition_id = %s",
        (pipeline, partition.topic, partition.partition),
    )
    if not known:
        raise UsageError(
            f"pipeline {pipeline} has never read {partition}",
            next_step=f"tally status {pipeline} names the partitions that it has read",
        )
    tx.insert_many(
        "insert into erasure (incarnation_id, partition_id, from_offset, until_offset,"
        " requested_at, requested_by, reason) values %s"
        " on duplicate key update erasure_id = erasure.erasure_id",
        [
            (
                *(generation, partition.partition, erased.from_offset, erased.until_offset),
                *(tx.now(), by, reason),
            )
            for generation in known
        ],
    )


def wait_for_commits(tx: Transaction, pipeline: str, erased: OffsetRange) -> None:
    """Wait for the end of commits that may have asked what was erased before it was recorded.

    A commit locks its batch first, so those that begin after this find it.
    """
    batches = tx.scalars(
        "select b.batch_id from batch b join segment s using (batch_id)"
        " join topic_incarnation i using (incarnation_id)"
        " where b.pipeline = %s and b.state = 'planned' and i.topic = %s and s.partition_id = %s"
        " and s.from_offset < %s and s.until_offset > %s order by b.batch_id",
        (
            *(pipeline, erased.partition.topic, erased.partition.partition),
            *(erased.until_offset, erased.from_offset),
        ),
    )
    for batch_id in batches:
        tx.rows("select batch_id from batch where batch_id = %s for update", (batch_id,))


def erasures_of(tx: Transaction, pipeline: str) -> list[ErasureRecord]:
    """Everything that was erased of a pipeline, oldest first."""
    return records(
        tx,
        ErasureRecord,
        "from erasure e join topic_incarnation i using (incarnation_id)"
        " where i.pipeline = %s order by e.erasure_id",
        (pipeline,),
        "e",
    )


def erased_of_segments(tx: Transaction, segment_ids: Sequence[int]) -> list[tuple[int, int, int]]:
    """What was erased of some segments: the segment, the first offset, and that after the last."""
    return _erased(tx, "s.segment_id in %s", segment_ids) if segment_ids else []


def _erased(tx: Transaction, which: str, value: object) -> list[tuple[int, int, int]]:
    rows = tx.rows(
        "select s.segment_id, greatest(s.from_offset, e.from_offset) as first,"
        f" least(s.until_offset, e.until_offset) as until from {_OVERLAPPING} and {which}",
        (value,),
    )
    return [(row["segment_id"], row["first"], row["until"]) for row in rows]


def letters_with_text(tx: Transaction, pipeline: str, erased: OffsetRange) -> dict[int, list[int]]:
    """The offsets of a range's dead letters that have a text, by segment."""
    found: dict[int, list[int]] = {}
    for row in tx.stream(
        "select s.segment_id, d.record_offset from topic_incarnation i"
        " join segment s using (incarnation_id) join dead_letter d using (segment_id)"
        " where i.pipeline = %s and i.topic = %s and s.partition_id = %s"
        " and s.live_from < %s and s.live_until > %s"
        " and d.record_offset >= %s and d.record_offset < %s and d.value is not null",
        (
            *(pipeline, erased.partition.topic, erased.partition.partition),
            *(erased.until_offset, erased.from_offset),
            *(erased.from_offset, erased.until_offset),
        ),
    ):
        found.setdefault(row["segment_id"], []).append(row["record_offset"])
    return found


def erase_letters(tx: Transaction, segment_id: int, offsets: Sequence[int]) -> int:
    """Take the text of some dead letters of a segment; how many had one."""
    return tx.execute(
        f"update dead_letter {_BLANK} where segment_id = %s and record_offset in %s"
        " and value is not null",
        (segment_id, offsets),
    )


def erase_letters_of(tx: Transaction, batch_id: int) -> None:
    """Take the text of dead letters that a batch has just written, where it was erased before."""
    for segment_id, first, until in _erased(tx, "s.batch_id = %s", batch_id):
        tx.execute(
            f"update dead_letter {_BLANK} where segment_id = %s and record_offset >= %s"
            " and record_offset < %s and value is not null",
            (segment_id, first, until),
        )


def old_segments(
    tx: Transaction, pipeline: str, before: datetime
) -> tuple[datetime | None, list[int]]:
    """What was committed before a time, and not looked at yet.

    Returns:
        When the last of it was committed, which a clock that is ahead does not change, and the
        segments with dead letters.
    """
    check_version(tx)
    known = tx.scalar("select texts_erased_until from pipeline where pipeline = %s", (pipeline,))
    committed = (
        "from batch b {} where b.pipeline = %s and b.kind in ('ingest', 'replay')"
        " and b.state = 'committed' and b.committed_at < %s"
        " and b.committed_at >= coalesce(%s, '1970-01-01')"
    )
    values = (pipeline, before, known)
    of = "join segment s using (batch_id) join dead_letter_total t using (segment_id)"
    segments = tx.scalars(f"select distinct s.segment_id {committed.format(of)}", values)
    return tx.scalar(f"select max(b.committed_at) {committed.format('')}", values), segments


def erase_letters_of_segments(tx: Transaction, segment_ids: Sequence[int]) -> int:
    """Take the text of all dead letters of some segments; how many had one."""
    return tx.execute(
        f"update dead_letter {_BLANK} where segment_id in %s and value is not null",
        (segment_ids,),
    )


def mark_erased_until(tx: Transaction, pipeline: str, until: datetime) -> None:
    """Record that the dead letters of earlier commits, and of this moment, have no text."""
    tx.execute(
        "update pipeline set texts_erased_until = %s"
        " where pipeline = %s and coalesce(texts_erased_until, '1970-01-01') < %s",
        (until, pipeline, until),
    )
