"""The invariants of ``docs/exactly-once.md``, each as a check of the ledger.

(1) Live segments and accepted losses tile each partition from its start to its next offset; (2) the
result is the sum of the live contributions; (5) each segment adds up. Besides, no state contradicts
another. Folded segments count as live in all of them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

from tally.aggregates.aggregate import LINES, TIME
from tally.formatting import continued
from tally.ledger.batches import ACCEPTED_HOLE
from tally.ledger.contradictions import duplicate_generations, wrong_states
from tally.ledger.contributions import lines_of_segment, wrong_rows
from tally.ledger.dead_letters import TOTALLED_OF_SEGMENT
from tally.ledger.shapes import exact_collation, faults_of_keys, read_shape
from tally.ledger.tables import Tables
from tally.mysql.transactions import Row, Transaction


@dataclass(frozen=True, kw_only=True, slots=True)
class Violation:
    """One thing that the audit found to be wrong."""

    check: str
    """``tiling``, ``result``, ``segment``, ``state``, ``topic``, ``rows`` or ``recount``."""
    where: str
    """The partition, minute, segment or topic."""
    detail: str
    """What was found and what was expected."""


def _check_tiling(tx: Transaction, pipeline: str, _: Tables) -> Iterator[Violation]:
    """Invariant 1: no hole between start and next offset, and no overlap anywhere."""
    tiles = tx.stream(
        "select i.incarnation_id, i.topic, i.topic_id, o.partition_id, o.start_offset,"
        " o.next_offset, t.from_offset, t.until_offset"
        " from topic_incarnation i join partition_offset o using (incarnation_id)"
        " left join ("
        "   select incarnation_id, partition_id, from_offset, until_offset from segment"
        "   where state in ('live', 'folded')"
        "   union all"
        "   select incarnation_id, partition_id, from_offset, until_offset from lost_range"
        "   where state = 'accepted' and cause = 'expired'"
        " ) as t on t.incarnation_id = o.incarnation_id and t.partition_id = o.partition_id"
        " where i.pipeline = %s"
        " order by i.incarnation_id, o.partition_id, t.from_offset",
        (pipeline,),
    )
    for _, of_partition in groupby(tiles, key=itemgetter("incarnation_id", "partition_id")):
        yield from _check_tiles(of_partition)


def _check_tiles(tiles: Iterator[Row]) -> Iterator[Violation]:
    at = covered = 0
    partition = ""
    for tile in tiles:
        partition = f"{tile['topic']}/{tile['partition_id']} (topic id {tile['topic_id']})"
        # Ranges below the start were added by replays; there may be holes between them.
        at, next_offset = max(covered, tile["start_offset"]), tile["next_offset"]
        if tile["from_offset"] is None:
            continue
        if tile["from_offset"] < covered:
            detail = f"overlap: [{tile['from_offset']}, {min(covered, tile['until_offset'])})"
            yield Violation(check="tiling", where=partition, detail=detail)
        if tile["from_offset"] > at:
            detail = f"hole: [{at}, {tile['from_offset']})"
            yield Violation(check="tiling", where=partition, detail=detail)
        covered = max(covered, tile["until_offset"])
        at = max(at, covered)
    if at != next_offset:
        yield Violation(
            check="tiling",
            where=partition,
            detail=f"counted up to {at}, but next_offset is {next_offset}",
        )


def _check_result(tx: Transaction, pipeline: str, tables: Tables) -> Iterator[Violation]:
    """Invariant 2: the result equals the sum of all contributions, row by row."""
    for row in wrong_rows(tx, tables, pipeline):
        where = " ".join([str(row[TIME]), *(f"{k}={row[k]!r}" for k in tables.keys[1:])])
        yield Violation(
            check="result",
            where=f"{tables.result} {where}",
            detail=f"the table says {row['said$']}, segments add up to {row['summed$']}",
        )


def _check_segments(tx: Transaction, pipeline: str, tables: Tables) -> Iterator[Violation]:
    """Invariant 5: records, matched, malformed, contributions and dead letters add up."""
    rows = tx.stream(
        "select * from ("
        "  select s.segment_id, i.topic, s.partition_id, s.from_offset, s.until_offset, s.records,"
        "   s.matched, s.unmatched, s.malformed, s.continuations,"
        f"   {lines_of_segment(tables, 's.segment_id')} as contributed,"
        "   (select count(*) from dead_letter d where d.segment_id = s.segment_id) as dead_letters,"
        f"   {TOTALLED_OF_SEGMENT} as totalled,"
        "   exists (select 1 from dead_letter_total t where t.segment_id = s.segment_id"
        "     and t.dead_letters <> (select count(*) from dead_letter d"
        "       where d.segment_id = t.segment_id and d.reason = t.reason)) as other_reasons"
        "  from segment s join topic_incarnation i using (incarnation_id)"
        "  where i.pipeline = %s and s.state = 'live'"
        " ) as live where records <> matched + unmatched + malformed"
        "   or matched <> contributed or malformed <> dead_letters or malformed <> totalled"
        "   or other_reasons or continuations > unmatched",
        (pipeline,),
    )
    for row in rows:
        is_other = row["other_reasons"] and row["dead_letters"] == row["totalled"]
        yield Violation(
            check="segment",
            where=_where(row),
            detail=f"records {row['records']}, matched {row['matched']}, unmatched "
            f"{row['unmatched']}, malformed {row['malformed']}; contributions add up to "
            f"{row['contributed']}, dead letters are {row['dead_letters']}, by reason together "
            f"{row['totalled']}{continued(row['continuations'])}"
            + (", of other reasons" if is_other else ""),
        )


def _where(segment: Row) -> str:
    offsets = f"[{segment['from_offset']}, {segment['until_offset']})"
    place = f"{segment['topic']}/{segment['partition_id']}"
    return f"segment {segment['segment_id']} of {place} {offsets}"


def _check_density(tx: Transaction, pipeline: str, _: Tables) -> Iterator[Violation]:
    """A segment in which each offset had to have a record has counted as many records."""
    rows = tx.stream(
        "select s.segment_id, i.topic, s.partition_id, s.from_offset, s.until_offset, s.records"
        " from segment s join batch b using (batch_id)"
        " join topic_incarnation i using (incarnation_id)"
        " where i.pipeline = %s and s.state = 'live' and b.is_dense"
        "   and s.records <> s.until_offset - s.from_offset"
        f"   and not {ACCEPTED_HOLE}",
        (pipeline,),
    )
    for row in rows:
        offsets = row["until_offset"] - row["from_offset"]
        detail = (
            f"{row['records']} records were counted in {offsets} offsets, of which each has one"
        )
        yield Violation(check="segment", where=_where(row), detail=detail)


def _check_folded(tx: Transaction, pipeline: str, tables: Tables) -> Iterator[Violation]:
    """Invariant 5 for folded segments, of which only the sum over all can be checked."""
    row = tx.row(
        "select (select coalesce(sum(s.matched), 0)"
        "    from segment s join topic_incarnation i using (incarnation_id)"
        "    where i.pipeline = %s and s.state = 'folded') as matched,"
        f"  (select coalesce(sum(`{LINES}`), 0) from `{tables.folded}` where pipeline = %s)"
        "    as contributed",
        (pipeline, pipeline),
    )
    if row is not None and row["matched"] != row["contributed"]:
        yield Violation(
            check="segment",
            where=f"folded segments of {pipeline}",
            detail=f"matched {row['matched']}, contributions add up to {row['contributed']}",
        )


def _check_states(tx: Transaction, pipeline: str, _: Tables) -> Iterator[Violation]:
    """Live segments belong to committed batches, abandoned segments to abandoned ones."""
    for said in wrong_states(tx, pipeline):
        yield Violation(check="state", where=said.where, detail=said.detail)


def _check_topics(tx: Transaction, pipeline: str, _: Tables) -> Iterator[Violation]:
    """Each topic generation is recorded once, so that none of its offsets counts twice."""
    for said in duplicate_generations(tx, pipeline):
        yield Violation(check="topic", where=said.where, detail=said.detail)


def _check_keys(tx: Transaction, pipeline: str, tables: Tables) -> Iterator[Violation]:
    """Counts of one minute and labels meet in one row, others never do."""
    del pipeline
    labels, collation = tables.keys[1:], exact_collation(tx)
    for table, key in tables.whole_keys.items():
        shape = read_shape(tx, table)
        if shape is not None:
            for detail in faults_of_keys(shape, key, labels, collation):
                yield Violation(check="result", where=f"table {table}", detail=detail)


Check = Callable[[Transaction, str, Tables], Iterator[Violation]]
"""Takes a transaction, the pipeline and its tables."""

LEDGER_CHECKS: Final[Sequence[Check]] = (
    _check_tiling,
    _check_density,
    _check_states,
    _check_topics,
)
"""Checks of the ledger alone."""

RESULT_CHECKS: Final[Sequence[Check]] = (
    _check_keys,
    _check_result,
    _check_segments,
    _check_folded,
)
"""Checks that results per minute and labels agree with their contributions."""


def extent(tx: Transaction, pipeline: str, tables: Tables) -> dict[str, int]:
    """How much the checks cover.

    Returns:
        ``partitions`` whose tiling was checked, of retired generations too; ``segments`` in the
        result, folded ones included, and the ``records`` that they counted; ``minutes`` of
        the result, and ``matched``, the sum of its lines.
    """
    row = tx.row(
        "select * from"
        " (select count(*) as partitions from partition_offset o"
        "   join topic_incarnation i using (incarnation_id) where i.pipeline = %s) as o"
        " cross join (select count(*) as segments, coalesce(sum(s.records), 0) as records"
        "   from segment s join topic_incarnation i using (incarnation_id)"
        "   where i.pipeline = %s and s.state in ('live', 'folded')) as s"
        f" cross join (select count(distinct `{TIME}`) as minutes,"
        f"   coalesce(sum(`{LINES}`), 0) as matched"
        f"   from `{tables.result}`) as r",
        (pipeline, pipeline),
    )
    return {key: int(value) for key, value in (row or {}).items()}
