"""By which rules batches were counted, as their fingerprints show. Changes nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Final, Self

from tally.aggregates.aggregate import fingerprint
from tally.config.pipeline import Pipeline
from tally.ledger.positions import PartitionRecord
from tally.ledger.rows import SEGMENTS, record, records
from tally.ledger.tables import Tables
from tally.model import SegmentTotals
from tally.mysql.transactions import Transaction
from tally.views import view_of

# Recent enough to describe the pipeline as it is now, and many enough for a quiet pipeline.
RECENT_PLANS: Final = 20
TURNS_MIN: Final = 3
"""So many changes of the rules in the latest plans are more than a correction."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Understood:
    """How much of what was read could be understood."""

    records: int = 0
    """Records read."""
    malformed: int = 0
    """Records among them that could not be understood."""
    continuations: int = 0
    """Records among them that begin no line and were left out, as far as this is known."""
    matched: int = 0
    """Lines among them that were counted."""
    has_matched: bool = True
    """Whether a line was ever counted by these rules."""

    @classmethod
    def of(cls, total: SegmentTotals) -> Self:
        """How much of what a read has found."""
        return view_of(cls, total, continuations=total.continuations or 0, has_matched=True)

    @property
    def ratio(self) -> float:
        """The share of lines that could not be understood, 0 to 1; 0 of nothing.

        It is 1 where no record begins a line: then the beginning of lines is not understood.
        """
        return self.malformed / self.lines if self.lines else float(self.records > 0)

    @property
    def share(self) -> float | None:
        """The share of lines that were counted, 0 to 1; None of nothing."""
        return self.matched / self.lines if self.lines else None

    @property
    def lines(self) -> int:
        """Records that begin a line, or should."""
        return self.records - self.continuations


def recently_understood(tx: Transaction, pipeline: str, fingerprint: str, since: int) -> Understood:
    """What the minute batches of the latest twenty plans have read, as far as they follow a rule.

    A replay is no part of it: what it reads again says nothing about what is read now.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        fingerprint: Of the rule (:func:`tally.aggregates.aggregate.fingerprint`).
        since: Their first batch (:func:`first_recent`).
    """
    row = tx.one(
        "select sum(s.records) as records, sum(s.malformed) as malformed,"
        " sum(s.continuations) as continuations, sum(s.matched) as matched"
        f" from batch b join segment s using (batch_id) {_RECENT} and b.format_fingerprint = %s",
        (pipeline, since, fingerprint),
    )
    if not row["records"]:
        return Understood()
    has_matched = row["matched"] > 0 or tx.exists(
        "select 1 from batch b join segment s using (batch_id) where b.pipeline = %s"
        " and b.state = 'committed' and b.format_fingerprint = %s and s.matched > 0 limit 1",
        (pipeline, fingerprint),
    )
    return record(Understood, row, has_matched=has_matched)


def alternating(tx: Transaction, pipeline: str, since: int) -> tuple[str, ...]:
    """Who has counted the minute batches of the latest twenty plans, where rules took turns.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        since: Their first batch (:func:`first_recent`).

    Returns:
        Process and rule of each; empty where the rules have changed less than three times.
    """
    rows = tx.rows(
        "select b.planned_at, b.format_fingerprint as rule, max(b.claimed_by) as claimed_by"
        f" from batch b {_RECENT} group by b.planned_at, rule order by min(b.batch_id)",
        (pipeline, since),
    )
    turns, last = -1, None
    for _, plan in groupby(rows, itemgetter("planned_at")):
        # Where a plan's batches follow several rules, those of the plan before come first.
        others = {row["rule"] for row in plan} - {last}
        turns += len(others)
        last = max(others, default=last)
    if turns < TURNS_MIN:
        return ()
    by_rule = {row["rule"]: str(row["claimed_by"]) for row in rows}
    return tuple(f"{by} ({rule})" for rule, by in sorted(by_rule.items()))


_RECENT: Final = (
    "where b.pipeline = %s and b.kind = 'ingest' and b.state = 'committed' and b.batch_id >= %s"
)


def first_recent(tx: Transaction, pipeline: str) -> int:
    """The first batch of the latest twenty plans.

    A plan is one transaction, so its batches have one ``planned_at``. It has at most one of each
    partition, which limits what is read.
    """
    partitions = tx.scalar(
        "select count(*) from topic_incarnation"
        " join partition_offset using (incarnation_id)"
        " where pipeline = %s and state = 'current'",
        (pipeline,),
    )
    first = tx.scalar(
        "select min(first) from (select min(batch_id) as first from"
        "   (select batch_id, planned_at from batch where pipeline = %s and kind = 'ingest'"
        "    and state = 'committed' order by batch_id desc limit %s) as latest"
        f" group by planned_at order by first desc limit {RECENT_PLANS}) as plans",
        (pipeline, RECENT_PLANS * partitions),
    )
    return first or 0


def records_committed_since(tx: Transaction, pipeline: str, since: datetime) -> int:
    """Records of the minute batches that were committed at a time or later.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        since: The time, with its zone.
    """
    found = tx.scalar(
        "select sum(s.records) from batch b join segment s using (batch_id)"
        " where b.pipeline = %s and b.kind = 'ingest' and b.state = 'committed'"
        " and b.committed_at >= %s",
        (pipeline, since),
    )
    return int(found or 0)


def records_in_sound_batches(tx: Transaction, pipeline: Pipeline) -> int:
    """Records of all committed batches under today's rule that are within its malformed share.

    That is ``max_malformed_ratio``. Of this share, records that begin no line are no part, as far
    as they are known.
    """
    # A batch of records that begin no line shows nothing.
    least_matched = 1 if pipeline.leaves_continuations else 0
    found = tx.scalar(
        "select sum(records) from ("
        "  select sum(s.records) as records, sum(s.malformed) as malformed,"
        "  sum(s.matched) as matched, sum(s.records - coalesce(s.continuations, 0)) as lines_read"
        "  from batch b join segment s using (batch_id) where b.pipeline = %s"
        "  and b.state = 'committed' and b.format_fingerprint = %s group by b.batch_id) as by_batch"
        " where malformed <= lines_read * %s and matched >= %s",
        (pipeline.name, fingerprint(pipeline), pipeline.max_malformed_ratio, least_matched),
    )
    return int(found or 0)


def replaces_only(tx: Transaction, batch_id: int, fingerprint: str) -> bool:
    """Whether a batch is to replace something, and all of it was counted under a rule."""
    segments, same = tx.one(
        "select count(*) as segments, coalesce(sum(b.format_fingerprint = %s), 0) as same"
        " from segment s join replacement r using (segment_id)"
        " join segment o on o.segment_id = r.replaced_id join batch b on b.batch_id = o.batch_id"
        " where s.batch_id = %s",
        (fingerprint, batch_id),
    ).values()
    return bool(0 < segments == same)


def are_of_rule(tx: Transaction, segment_ids: Sequence[int], fingerprint: str) -> bool:
    """Whether some segments were all counted under a rule."""
    return not tx.exists(
        "select 1 from segment s join batch b using (batch_id)"
        " where s.segment_id in %s and not b.format_fingerprint <=> %s limit 1",
        (segment_ids, fingerprint),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherOffsets(PartitionRecord):
    """Offsets of a partition that are counted under other rules than today's."""

    offsets: int
    """How many."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherRule(PartitionRecord):
    """Lines of a minute that one partition contributed under another rule than today's."""

    log_time: str
    """The minute, ``YYYY-MM-DD HH:MM:00``."""
    format_fingerprint: str
    """Of that rule."""
    from_offset: int
    """The first offset of the earliest segment with such lines."""


def other_rules(
    tx: Transaction, tables: Tables, pipeline: str, fingerprint: str, first: str, last: str
) -> list[OtherRule]:
    """What is in the result under other rules than one, in order of minutes.

    A segment that was counted under another rule and has no line of a minute is not found here: in
    which minutes today's rule would count lines of it is not known (:func:`other_offsets`).

    Args:
        tx: An open transaction.
        tables: The pipeline's tables.
        pipeline: The pipeline.
        fingerprint: Of today's rule.
        first: The first minute, ``YYYY-MM-DD HH:MM:00``.
        last: The last one, itself included.
    """
    return records(
        tx,
        OtherRule,
        f"from {SEGMENTS} join `{tables.contributions}` c using (segment_id)"
        f" where {_UNDER_OTHERS} and c.log_time between %s and %s"
        " group by c.log_time, b.format_fingerprint, i.incarnation_id, s.partition_id"
        " order by c.log_time, b.format_fingerprint, i.topic, s.partition_id",
        (pipeline, fingerprint, first, last),
        "s",
        log_time="c.log_time",
        format_fingerprint="b.format_fingerprint",
        from_offset="min(s.from_offset)",
    )


def other_offsets(tx: Transaction, pipeline: str, fingerprint: str) -> list[OtherOffsets]:
    """The offsets that are counted under other rules than one, whatever these found there.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        fingerprint: Of today's rule.
    """
    return records(
        tx,
        OtherOffsets,
        f"from {SEGMENTS} where {_UNDER_OTHERS} group by i.incarnation_id, s.partition_id"
        " order by i.incarnation_id, s.partition_id",
        (pipeline, fingerprint),
        "s",
        offsets="sum(s.until_offset - s.from_offset)",
    )


def other_offsets_before(
    tx: Transaction, pipeline: str, fingerprint: str, other: OtherOffsets, earliest: int
) -> int:
    """How many of a partition's offsets under other rules are in segments that begin before one.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        fingerprint: Of today's rule.
        other: The partition.
        earliest: The first offset that Kafka holds.
    """
    found = tx.scalar(
        f"select sum(s.until_offset - s.from_offset) from {SEGMENTS} where {_UNDER_OTHERS}"
        " and s.incarnation_id = %s and s.partition_id = %s and s.from_offset < %s",
        (pipeline, fingerprint, other.generation_id, other.partition.partition, earliest),
    )
    return int(found or 0)


_UNDER_OTHERS: Final = (
    "b.pipeline = %s and b.state = 'committed' and b.format_fingerprint <> %s and s.state = 'live'"
)


def folded_minutes(
    tx: Transaction, tables: Tables, pipeline: str, first: str, last: str
) -> set[str]:
    """The minutes with lines of folded segments, whose rules are no longer known.

    Args:
        tx: An open transaction.
        tables: The pipeline's tables.
        pipeline: The pipeline.
        first: The first minute, ``YYYY-MM-DD HH:MM:00``.
        last: The last one, itself included.
    """
    found = tx.scalars(
        f"select distinct log_time from `{tables.folded}`"
        " where pipeline = %s and log_time between %s and %s",
        (pipeline, first, last),
    )
    return set(map(str, found))
