"""Proving the counts: what the ledger says must hold, and what Kafka still holds must agree.

The invariants are those of ``docs/exactly-once.md``: (1) live segments and accepted losses tile
each partition from its start to its next offset; (2) the result is the sum of the live
contributions; (5) each segment adds up. Besides, no state contradicts another. What ``tally prune``
has folded counts as live in all of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from tally.config.pipeline import Pipeline
from tally.ledger.contradictions import lives_told_twice, wrong_states
from tally.ledger.positions import owned_table
from tally.mysql.transactions import Row, Transaction
from tally.pipeline.context import Context


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Something that should not be."""

    check: str
    """``tiling``, ``result``, ``segment``, ``state``, ``topic`` or ``recount``."""
    where: str
    """The partition, minute, segment or topic."""
    detail: str
    """What was found and what was expected."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What an audit looked at and found."""

    pipeline: str
    """The pipeline."""
    partitions: int
    """Partitions whose tiling was checked, retired incarnations included."""
    segments: int
    """Segments in the result, folded ones included."""
    records: int
    """Records they counted."""
    minutes: int
    """Rows of the result."""
    matched: int
    """Sum of the result."""
    findings: tuple[Finding, ...]
    """Empty when everything holds."""

    @property
    def holds(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


def audit_ledger(ctx: Context, name: str) -> Verdict:
    """Check invariants 1, 2 and 5, and the states, on one consistent snapshot of the ledger.

    Raises:
        SchemaError: The ledger is not migrated.
        MySQLUnavailableError: The server did not answer.
    """
    pipeline = ctx.settings.pipeline(name)
    with ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
        owned = owned_table(tx, name)
        findings = list(_check_table(pipeline, owned))
        if owned is not None:
            pipeline = pipeline.model_copy(update={"result_table": owned})
        findings += [finding for check in _CHECKS for finding in check(tx, pipeline)]
        segments = tx.row(
            "select count(*) as segments, coalesce(sum(s.records), 0) as records"
            " from segment s join topic_incarnation i using (incarnation_id)"
            " where i.pipeline = %s and s.state in ('live', 'folded')",
            (name,),
        )
        partitions = tx.row(
            "select count(*) as partitions from partition_offset o"
            " join topic_incarnation i using (incarnation_id) where i.pipeline = %s",
            (name,),
        )
        result = tx.row(
            "select count(*) as minutes, coalesce(sum(log_count), 0) as matched"
            f" from `{pipeline.table}`"
        )
    counted = {**(segments or {}), **(partitions or {}), **(result or {})}
    return Verdict(
        pipeline=name,
        findings=tuple(findings),
        **{key: int(value) for key, value in counted.items()},
    )


def _check_table(pipeline: Pipeline, owned: str | None) -> Iterator[Finding]:
    """The table that is configured must be the one that the pipeline counts into."""
    if owned is not None and owned != pipeline.table:
        yield Finding(
            check="result",
            where=pipeline.table,
            detail=f"{pipeline.name} counts into {owned}, the configuration says otherwise",
        )


def _check_tiling(tx: Transaction, pipeline: Pipeline) -> Iterator[Finding]:
    """Invariant 1: from start to next offset no hole, and nowhere an overlap."""
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
        (pipeline.name,),
    )
    for _, of_partition in groupby(tiles, key=itemgetter("incarnation_id", "partition_id")):
        yield from _check_tiles(of_partition)


def _check_tiles(tiles: Iterator[Row]) -> Iterator[Finding]:
    at = covered = 0
    partition = ""
    for tile in tiles:
        partition = f"{tile['topic']}/{tile['partition_id']} (topic id {tile['topic_id']})"
        # Ranges below the start were counted afterwards; between them anything may be left out.
        at, next_offset = max(covered, tile["start_offset"]), tile["next_offset"]
        if tile["from_offset"] is None:
            continue
        if tile["from_offset"] < covered:
            detail = f"overlap: [{tile['from_offset']}, {min(covered, tile['until_offset'])})"
            yield Finding(check="tiling", where=partition, detail=detail)
        if tile["from_offset"] > at:
            detail = f"hole: [{at}, {tile['from_offset']})"
            yield Finding(check="tiling", where=partition, detail=detail)
        covered = max(covered, tile["until_offset"])
        at = max(at, covered)
    if at != next_offset:
        yield Finding(
            check="tiling",
            where=partition,
            detail=f"counted up to {at}, but next_offset is {next_offset}",
        )


def _check_result(tx: Transaction, pipeline: Pipeline) -> Iterator[Finding]:
    """Invariant 2: the result and the sum of all contributions, minute by minute."""
    summed = (
        "select log_time, sum(n) as log_count from ("
        "  select c.log_time, c.log_count as n from segment_count c"
        "  join segment s using (segment_id) join topic_incarnation i using (incarnation_id)"
        "  where i.pipeline = %s and s.state = 'live'"
        "  union all"
        "  select log_time, log_count from folded_count where pipeline = %s"
        ") as contributions group by log_time"
    )
    rows = tx.stream(
        "select log_time, max(said) as said, max(summed) as summed from ("
        f"  select log_time, log_count as said, null as summed from `{pipeline.table}`"
        "   union all"
        f"  select log_time, null, log_count from ({summed}) as s"
        " ) as both_sides group by log_time"
        " having said is null or summed is null or said <> summed order by log_time",
        (pipeline.name, pipeline.name),
    )
    for row in rows:
        yield Finding(
            check="result",
            where=f"{pipeline.table} {row['log_time']}",
            detail=f"the table says {row['said']}, segments add up to {row['summed']}",
        )


def _check_segments(tx: Transaction, pipeline: Pipeline) -> Iterator[Finding]:
    """Invariant 5: records, matched, malformed, contributions and dead letters add up."""
    rows = tx.stream(
        "select * from ("
        "  select s.segment_id, i.topic, s.partition_id, s.from_offset, s.until_offset, s.records,"
        "   s.matched, s.unmatched, s.malformed,"
        "   coalesce((select sum(c.log_count) from segment_count c"
        "     where c.segment_id = s.segment_id), 0) as contributed,"
        "   (select count(*) from dead_letter d where d.segment_id = s.segment_id) as letters"
        "  from segment s join topic_incarnation i using (incarnation_id)"
        "  where i.pipeline = %s and s.state = 'live'"
        " ) as live where records <> matched + unmatched + malformed"
        "   or matched <> contributed or malformed <> letters",
        (pipeline.name,),
    )
    for row in rows:
        span = f"{row['topic']}/{row['partition_id']} [{row['from_offset']}, {row['until_offset']})"
        yield Finding(
            check="segment",
            where=f"segment {row['segment_id']} of {span}",
            detail=f"records {row['records']}, matched {row['matched']}, unmatched "
            f"{row['unmatched']}, malformed {row['malformed']}; contributions add up to "
            f"{row['contributed']}, dead letters are {row['letters']}",
        )


def _check_folded(tx: Transaction, pipeline: Pipeline) -> Iterator[Finding]:
    """Invariant 5 for what was folded: only the sum over all of it can still be told."""
    row = tx.row(
        "select (select coalesce(sum(s.matched), 0)"
        "    from segment s join topic_incarnation i using (incarnation_id)"
        "    where i.pipeline = %s and s.state = 'folded') as matched,"
        "  (select coalesce(sum(log_count), 0) from folded_count where pipeline = %s)"
        "    as contributed",
        (pipeline.name, pipeline.name),
    )
    if row is not None and row["matched"] != row["contributed"]:
        yield Finding(
            check="segment",
            where=f"folded segments of {pipeline.name}",
            detail=f"matched {row['matched']}, contributions add up to {row['contributed']}",
        )


def _check_states(tx: Transaction, pipeline: Pipeline) -> Iterator[Finding]:
    """What is live belongs to a committed batch, and what was given up is not live."""
    for said in wrong_states(tx, pipeline.name):
        yield Finding(check="state", where=said.where, detail=said.detail)


def _check_topics(tx: Transaction, pipeline: Pipeline) -> Iterator[Finding]:
    """Each life of a topic is told once, so that none of its offsets counts twice."""
    for said in lives_told_twice(tx, pipeline.name):
        yield Finding(check="topic", where=said.where, detail=said.detail)


_CHECKS: tuple[Callable[[Transaction, Pipeline], Iterator[Finding]], ...] = (
    _check_tiling,
    _check_result,
    _check_segments,
    _check_folded,
    _check_states,
    _check_topics,
)
