"""The invariants of ``docs/exactly-once.md``, each as a check of the ledger.

(1) Live segments and accepted losses tile each partition from its start to its next offset; (2) the
result is the sum of the live contributions; (5) each segment adds up. Besides, no state contradicts
another: constraints prevent most of such states, unless they were dropped. Folded segments count as
live in all of them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final

from tally.aggregates.aggregate import LINES, TIME
from tally.formatting import continued
from tally.ledger.batches import ACCEPTED_HOLE
from tally.ledger.contributions import lines_of_segment, wrong_rows
from tally.ledger.dead_letters import TOTALLED_OF_SEGMENT
from tally.ledger.rows import SEGMENTS
from tally.ledger.schema import faults_of_keys, read_shapes
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


_OF_SEGMENT: Final = "s.segment_id, i.topic, s.partition_id, s.from_offset, s.until_offset"
_SEGMENT: Final = "segment {segment_id} of {topic}/{partition_id} [{from_offset}, {until_offset})"


def _found(rows: Iterable[Row], check: str, where: str, detail: str) -> Iterator[Violation]:
    """A violation for each row of a query; both texts name its columns in braces."""
    for row in rows:
        yield Violation(check=check, where=where.format(**row), detail=detail.format(**row))


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
    of_key = itemgetter("incarnation_id", "topic", "partition_id", "topic_id")
    for (_, topic, partition, topic_id), of_partition in groupby(tiles, key=of_key):
        where = f"{topic}/{partition} (topic id {topic_id})"
        for detail in _check_tiles(of_partition):
            yield Violation(check="tiling", where=where, detail=detail)


def _check_tiles(tiles: Iterator[Row]) -> Iterator[str]:
    """What is wrong in a partition, of which there is at least one row."""
    at = covered = next_offset = 0
    for tile in tiles:
        # Ranges below the start were added by replays; there may be holes between them.
        at, next_offset = max(covered, tile["start_offset"]), tile["next_offset"]
        if tile["from_offset"] is None:
            continue
        if tile["from_offset"] < covered:
            yield f"overlap: [{tile['from_offset']}, {min(covered, tile['until_offset'])})"
        if tile["from_offset"] > at:
            yield f"hole: [{at}, {tile['from_offset']})"
        covered = max(covered, tile["until_offset"])
        at = max(at, covered)
    if at != next_offset:
        yield f"counted up to {at}, but next_offset is {next_offset}"


def _check_result(tx: Transaction, pipeline: str, tables: Tables) -> Iterator[Violation]:
    """Invariant 2: the result equals the sum of all contributions, row by row."""
    key = " ".join([f"{{{TIME}}}", *(f"{label}={{{label}!r}}" for label in tables.keys[1:])])
    return _found(
        wrong_rows(tx, tables, pipeline),
        "result",
        f"{tables.result} {key}",
        "the table says {stored$}, segments add up to {expected$}",
    )


def _check_segments(tx: Transaction, pipeline: str, tables: Tables) -> Iterator[Violation]:
    """Invariant 5: records, matched, malformed, contributions and dead letters add up."""
    rows = tx.stream(
        "select *,"
        "  if(other_reasons and dead_letters = totalled, ', of other reasons', '') as others from ("
        f" select {_OF_SEGMENT}, s.records, s.matched, s.unmatched, s.malformed, s.continuations,"
        f"   {lines_of_segment(tables)} as contributed,"
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
    return _found(
        ({**row, "left_out": continued(row["continuations"])} for row in rows),
        "segment",
        _SEGMENT,
        "records {records}, matched {matched}, unmatched {unmatched}, malformed {malformed}; "
        "contributions add up to {contributed}, dead letters are {dead_letters}, by reason "
        "together {totalled}{left_out}{others}",
    )


def _check_density(tx: Transaction, pipeline: str, _: Tables) -> Iterator[Violation]:
    """A segment in which each offset had to have a record has counted as many records."""
    rows = tx.stream(
        f"select {_OF_SEGMENT}, s.records, s.until_offset - s.from_offset as offsets"
        f" from {SEGMENTS}"
        " where i.pipeline = %s and s.state = 'live' and b.is_dense"
        "   and s.records <> s.until_offset - s.from_offset"
        f"   and not {ACCEPTED_HOLE}",
        (pipeline,),
    )
    detail = "{records} records were counted in {offsets} offsets, of which each has one"
    return _found(rows, "segment", _SEGMENT, detail)


def _check_folded(tx: Transaction, pipeline: str, tables: Tables) -> Iterator[Violation]:
    """Invariant 5 for folded segments, of which only the sum over all can be checked."""
    rows = tx.rows(
        "select * from (select (select coalesce(sum(s.matched), 0)"
        "    from segment s join topic_incarnation i using (incarnation_id)"
        "    where i.pipeline = %s and s.state = 'folded') as matched,"
        f"  (select coalesce(sum(`{LINES}`), 0) from `{tables.folded}` where pipeline = %s)"
        "    as contributed) as folded where matched <> contributed",
        (pipeline, pipeline),
    )
    detail = "matched {matched}, contributions add up to {contributed}"
    return _found(rows, "segment", f"folded segments of {pipeline}", detail)


# A superseded segment's batch stays committed: it was counted, and another has replaced it since.
_STATES: Final = f"""
    select {_OF_SEGMENT}, s.state, b.batch_id, b.state as batch_state
    from {SEGMENTS} where b.pipeline = %s and not (
        (b.state = 'planned' and s.state = 'planned')
        or (b.state = 'committed' and s.state in ('live', 'superseded', 'folded'))
        or (b.state = 'abandoned' and s.state = 'abandoned'))
    order by s.segment_id
"""

# Foreign keys prevent both, unless their checks were off.
_ALONE: Final = f"""
    select {_OF_SEGMENT}, s.state, if(
        b.batch_id is null, concat('row of its batch ', s.batch_id), 'committed offset') as lacks
    from segment s join topic_incarnation i using (incarnation_id)
    left join batch b on b.batch_id = s.batch_id
    left join partition_offset o
        on o.incarnation_id = s.incarnation_id and o.partition_id = s.partition_id
    where i.pipeline = %s and (b.batch_id is null or o.incarnation_id is null)
    order by s.segment_id
"""

_DUPLICATE_GENERATIONS: Final = """
    select topic, cluster_id, topic_id, count(*) as times
    from topic_incarnation where pipeline = %s
    group by topic, cluster_id, topic_id having count(*) > 1
    order by topic, cluster_id, topic_id
"""

# Of two generations of which both are one; there are none, so they are looked for first.
_LIVE_TWICE: Final = """
    select straight_join i.topic, i.topic_id, a.partition_id,
           a.segment_id, b.segment_id as other_id,
           greatest(a.from_offset, b.from_offset) as from_offset,
           least(a.until_offset, b.until_offset) as until_offset
    from topic_incarnation i
    join topic_incarnation j on j.pipeline = i.pipeline and j.topic = i.topic
        and j.cluster_id = i.cluster_id and j.topic_id = i.topic_id
        and j.incarnation_id > i.incarnation_id
    join segment a on a.incarnation_id = i.incarnation_id
    join segment b on b.incarnation_id = j.incarnation_id and b.partition_id = a.partition_id
        and a.from_offset < b.until_offset and b.from_offset < a.until_offset
    where i.pipeline = %s and a.state in ('live', 'folded') and b.state in ('live', 'folded')
    order by i.topic, a.partition_id, a.from_offset
"""


def _check_states(tx: Transaction, pipeline: str, _: Tables) -> Iterator[Violation]:
    """No segment has a state that its batch does not allow, or lacks its batch or its position."""
    for statement, detail in (
        (_STATES, "it is {state}, its batch {batch_id} is {batch_state}"),
        (_ALONE, "it is {state}, and the {lacks} is gone"),
    ):
        yield from _found(tx.stream(statement, (pipeline,)), "state", _SEGMENT, detail)


def _check_topics(tx: Transaction, pipeline: str, _: Tables) -> Iterator[Violation]:
    """Each topic generation is recorded once, so that none of its offsets counts twice."""
    yield from _found(
        tx.stream(_DUPLICATE_GENERATIONS, (pipeline,)),
        "topic",
        "{topic} (topic id {topic_id}, cluster {cluster_id})",
        "the ledger has it {times} times, as if re-created",
    )
    yield from _found(
        tx.stream(_LIVE_TWICE, (pipeline,)),
        "topic",
        "{topic}/{partition_id} (topic id {topic_id})",
        "[{from_offset}, {until_offset}) is live in segment {segment_id} and in segment {other_id}",
    )


def _check_keys(tx: Transaction, pipeline: str, tables: Tables) -> Iterator[Violation]:
    """Counts of one minute and labels meet in one row, others never do."""
    del pipeline
    for table, shape in read_shapes(tx, [*tables.whole_keys]).items():
        for detail in faults_of_keys(shape, tables.whole_keys[table], tables.keys[1:]):
            yield Violation(check="result", where=f"table {table}", detail=detail)


Check = Callable[[Transaction, str, Tables], Iterator[Violation]]
"""Takes a transaction, the pipeline and its tables."""

CHECKS: Final[Sequence[Check]] = (
    # of the ledger alone
    _check_tiling,
    _check_density,
    _check_states,
    _check_topics,
    # that results per minute and labels agree with their contributions
    _check_keys,
    _check_result,
    _check_segments,
    _check_folded,
)


def extent(tx: Transaction, pipeline: str, tables: Tables) -> dict[str, int]:
    """How much the checks cover.

    Returns:
        ``partitions`` whose tiling was checked, of retired generations too; ``segments`` in the
        result, folded ones included, and the ``records`` that they counted; ``minutes`` of
        the result, and ``matched``, the sum of its lines.
    """
    row = tx.one(
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
    return {key: int(value) for key, value in row.items()}
