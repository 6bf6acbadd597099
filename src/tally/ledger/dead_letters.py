"""Dead letters: records that could not be understood, kept with their offset and reason.

How many each segment has of a reason is written with them: there may be millions.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from tally.aggregates.counts import DeadLetter
from tally.ledger.rows import SEGMENTS, columns, record, records
from tally.model import Batch, TopicPartition
from tally.mysql.transactions import Parameters, Transaction

_TABLES: Final = ("dead_letter", "dead_letter_total")
_LOG_TIME: Final = "date_format(d.log_time, '%%Y-%%m-%%d %%H:%%i:%%s')"

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Among:
    """Which dead letters are meant; all of them by default."""

    batch_id: int | None = None
    """Only those of this batch."""
    partition: TopicPartition | None = None
    """Only those of this partition, of all generations of its topic."""
    since: datetime | None = None
    """Only those of batches that were committed at or after this time (UTC)."""
    before: datetime | None = None
    """Only those of batches that were committed before this time (UTC)."""
    minute: datetime | None = None
    """Only those of this minute, on the lines' own clock."""

    @property
    def is_bounded(self) -> bool:
        """Whether they are a part of all that does not grow with the ledger."""
        return self != Among(before=self.before)


ALL: Final = Among()

TOTALS_MAX: Final = 10_000
"""The largest number of totals of each topic that are added up where nothing else bounds them."""


def list_dead_letters(
    tx: Transaction,
    pipeline: str,
    *,
    among: Among = ALL,
    reason: str | None = None,
    holding: bytes | None = None,
    skip: int = 0,
    limit: int,
) -> list[DeadLetterRecord]:
    """Dead letters of live segments, those of the latest segment first.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        among: Which ones.
        reason: Only with this reason.
        holding: Only those whose kept bytes hold these; all values of ``among`` are looked through.
        skip: How many of them are left out at the beginning.
        limit: The largest number of dead letters.
    """
    further: dict[str, Any] = {
        "d.reason = %s": reason,
        "instr(d.value, %s) > 0": holding,
        "d.log_time = %s": among.minute,
    }
    if holding is None or among.minute is not None:
        # Each of these has at least one, of some minute: not all values are read and sorted.
        most = skip + limit if among.minute is None else TOTALS_MAX
        of_totals, of_segments = _of_totals(tx, pipeline, among, most, reason)
        segments = tx.scalars(
            f"select distinct s.segment_id {of_totals} order by s.segment_id desc limit {most:d}",
            of_segments,
        )
        if not segments:
            return []
        further["s.segment_id in %s"] = segments
    where, values = _where(pipeline, among, further)
    return records(
        tx,
        DeadLetterRecord,
        f"from {SEGMENTS} join dead_letter d using (segment_id)"
        f" where {where}"
        # A batch and its segments are recorded together: this is the order of the segments. By
        # their ids alone MySQL reads all of them in order, however few are asked for.
        " order by s.batch_id desc, s.segment_id desc, d.record_offset"
        f" limit {limit:d} offset {skip:d}",
        values,
        "d",
        batch_id="s.batch_id",
        partition_id="s.partition_id",
        log_time=_LOG_TIME,
    )


def letters_of_segments(
    tx: Transaction, segments: Mapping[int, TopicPartition]
) -> Iterator[tuple[int, DeadLetter, bool]]:
    """The dead letters of segments, each with the segment, and whether its text was erased.

    In no order.

    Args:
        tx: An open transaction.
        segments: The partition of each segment.
    """
    of = columns(DeadLetter, "d", partition_id="0", topic="''", log_time=_LOG_TIME)
    rows = tx.stream(
        f"select segment_id, {of}, is_erased from dead_letter d where segment_id in %s",
        (list(segments),),
    )
    for row in rows:
        segment_id = row["segment_id"]
        letter = record(DeadLetter, row, partition=segments[segment_id])
        yield segment_id, letter, bool(row["is_erased"])


def totals_by_reason(tx: Transaction, pipeline: str, among: Among = ALL) -> dict[str, int]:
    """How many dead letters of live segments there are of each reason, most first.

    Of all of a pipeline only those of the latest :data:`TOTALS_MAX` totals are added up, a total
    being what a segment has of a reason.
    """
    of_totals, values = _of_totals(tx, pipeline, among, TOTALS_MAX)
    found = tx.pairs(
        f"select t.reason, sum(t.dead_letters) {of_totals}"
        " group by t.reason order by sum(t.dead_letters) desc, t.reason",
        values,
    )
    return {reason: int(letters) for reason, letters in found.items()}


def has_older_totals(tx: Transaction, pipeline: str) -> bool:
    """Whether a topic of the pipeline has more totals than the latest :data:`TOTALS_MAX`."""
    return tx.exists(
        "select 1 from topic_incarnation i where i.pipeline = %s and (select 1"
        " from dead_letter_total t where t.incarnation_id = i.incarnation_id"
        f" limit 1 offset {TOTALS_MAX:d}) is not null limit 1",
        (pipeline,),
    )


def _where(pipeline: str, among: Among, further: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Conditions of :data:`SEGMENTS`, and their values; those without a value are left out."""
    partition = among.partition
    asked = {
        "i.pipeline = %s": pipeline,
        "s.batch_id = %s": among.batch_id,
        "i.topic = %s": partition and partition.topic,
        "s.partition_id = %s": None if partition is None else partition.partition,
        "b.committed_at >= %s": among.since,
        "b.committed_at < %s": among.before,
        **further,
    }
    found = {sql: value for sql, value in asked.items() if value is not None}
    where = ["s.state = 'live'", *found]
    if among.since is not None or among.before is not None:
        # What is known of a live segment's batch anyway: the index by time begins with it.
        found["b.pipeline = %s"] = pipeline
        where += ["b.pipeline = %s", "b.kind in ('ingest', 'replay')", "b.state = 'committed'"]
    return " and ".join(where), list(found.values())


def _of_totals(
    tx: Transaction, pipeline: str, among: Among, limit: int, reason: str | None = None
) -> tuple[str, list[Any]]:
    """What a query selects from for the totals ``t`` of live segments, and its values.

    Where nothing bounds them, only the latest ones of each topic are selected.
    """
    totals = "dead_letter_total"
    values: list[Any] = []
    if replace(among, minute=None) == ALL:
        totals, values = _latest_totals(tx, pipeline, limit, reason)
    where, of_where = _where(pipeline, among, {"t.reason = %s": reason})
    joined = f"from {SEGMENTS} join {totals} t using (segment_id) where {where}"
    return joined, values + of_where


def _latest_totals(
    tx: Transaction, pipeline: str, limit: int, reason: str | None
) -> tuple[str, list[Any]]:
    """A table of the latest totals of each topic of a pipeline, and its values.

    Totals that an older release has written have no topic yet; they are among them.
    """
    of_pipeline = "select incarnation_id from topic_incarnation where pipeline = %s"
    generations = [*tx.scalars(of_pipeline, (pipeline,)), None]
    of_reason = [] if reason is None else [reason]
    latest = (
        "(select segment_id, reason, dead_letters from dead_letter_total"
        f" where incarnation_id <=> %s{' and reason = %s' * len(of_reason)}"
        f" order by segment_id desc limit {limit:d})"
    )
    values = [value for one in generations for value in (one, *of_reason)]
    return f"({' union all '.join([latest] * len(generations))})", values


def replace_dead_letters(tx: Transaction, batch: Batch, dead_letters: Iterable[DeadLetter]) -> None:
    """Write a batch's dead letters, and delete those of the segments that it replaces."""
    keys = {segment.range.partition: segment.segment_id for segment in batch.segments}
    totals: Counter[tuple[int, str]] = Counter()

    def rows() -> Iterator[Parameters]:
        for letter in dead_letters:
            key = keys[letter.partition]
            totals[key, letter.reason] += 1
            yield (
                key,
                letter.offset,
                letter.reason,
                letter.value,
                letter.value_bytes,
                letter.written_at,
                letter.log_time,
            )

    tx.insert_many(
        "insert into dead_letter (segment_id, record_offset, reason, value, value_bytes,"
        " written_at, log_time) values %s",
        rows(),
    )
    tx.insert_many(
        "insert into dead_letter_total (segment_id, reason, dead_letters) values %s",
        [(*key, number) for key, number in sorted(totals.items())],
    )
    if totals:
        tx.execute(
            "update dead_letter_total t join segment s using (segment_id)"
            " set t.incarnation_id = s.incarnation_id where t.segment_id in %s",
            (sorted({segment_id for segment_id, _ in totals}),),
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
