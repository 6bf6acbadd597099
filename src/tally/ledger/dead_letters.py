"""Dead letters: records that could not be understood, kept with their offset and reason.

How many each segment has of a reason is written with them: there may be millions.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tally.ledger.rows import partition_of
from tally.model import Batch, DeadLetter
from tally.mysql.transactions import Parameters, Transaction

# Limits of one INSERT; the one in bytes is for max_allowed_packet.
DEAD_LETTERS_PER_INSERT: Final = 300
DEAD_LETTER_BYTES_PER_INSERT: Final = 1_048_576

_TABLES: Final = ("dead_letter", "dead_letter_total")

TOTALLED_OF_SEGMENT: Final = (
    "(select coalesce(sum(t.dead_letters), 0) from dead_letter_total t"
    " where t.segment_id = s.segment_id)"
)
"""How many dead letters the segment ``s`` has by its totals, as an expression."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetterRecord(DeadLetter):
    """A dead letter with its batch."""

    batch_id: int
    """The batch that found it."""


def list_dead_letters(
    tx: Transaction,
    pipeline: str,
    *,
    batch_id: int | None = None,
    reason: str | None = None,
    limit: int,
) -> list[DeadLetterRecord]:
    """Dead letters of live segments, those of the latest batch first."""
    conditions = {"i.pipeline = %s": pipeline, "s.batch_id = %s": batch_id, "d.reason = %s": reason}
    asked = {sql: value for sql, value in conditions.items() if value is not None}
    rows = tx.rows(
        "select s.batch_id, i.topic, s.partition_id, d.record_offset, d.reason, d.value,"
        " d.value_bytes"
        " from dead_letter d join segment s using (segment_id)"
        " join topic_incarnation i using (incarnation_id)"
        f" where s.state = 'live' and {' and '.join(asked)}"
        " order by s.batch_id desc, i.topic, s.partition_id, d.record_offset limit %s",
        [*asked.values(), limit],
    )
    return [
        DeadLetterRecord(
            batch_id=row["batch_id"],
            partition=partition_of(row),
            offset=row["record_offset"],
            reason=row["reason"],
            value=row["value"],
            value_bytes=row["value_bytes"],
        )
        for row in rows
    ]


def replace_dead_letters(tx: Transaction, batch: Batch, dead_letters: Iterable[DeadLetter]) -> None:
    """Write a batch's dead letters, and delete those of the segments that it replaces."""
    keys = {segment.range.partition: segment.segment_id for segment in batch.segments}
    totals: Counter[tuple[int, str]] = Counter()
    chunk: list[Parameters] = []
    chunk_bytes = 0
    for letter in dead_letters:
        if chunk and (
            len(chunk) == DEAD_LETTERS_PER_INSERT
            or chunk_bytes + len(letter.value or b"") > DEAD_LETTER_BYTES_PER_INSERT
        ):
            _insert(tx, chunk)
            chunk, chunk_bytes = [], 0
        key = keys[letter.partition]
        totals[key, letter.reason] += 1
        chunk.append((key, letter.offset, letter.reason, letter.value, letter.value_bytes))
        chunk_bytes += len(letter.value or b"")
    _insert(tx, chunk)
    tx.insert_many(
        "insert into dead_letter_total (segment_id, reason, dead_letters) values (%s, %s, %s)",
        [(*key, number) for key, number in sorted(totals.items())],
    )
    for table in _TABLES:
        tx.execute(
            f"delete d from {table} d join replacement r on r.replaced_id = d.segment_id"
            " join segment s on s.segment_id = r.segment_id where s.batch_id = %s",
            (batch.batch_id,),
        )


def delete_dead_letters(tx: Transaction, segment_ids: Sequence[int]) -> int:
    """Delete the dead letters of segments; returns how many rows there were."""
    return sum(
        tx.execute(f"delete from {table} where segment_id in %s", (segment_ids,))
        for table in _TABLES
    )


def _insert(tx: Transaction, rows: list[Parameters]) -> None:
    tx.insert_many(
        "insert into dead_letter (segment_id, record_offset, reason, value, value_bytes)"
        " values (%s, %s, %s, %s, %s)",
        rows,
    )
