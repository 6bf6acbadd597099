"""What is behind a count: the live segments that it consists of.

Changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from tally.aggregates.aggregate import LINES, TIME
from tally.errors import UsageError
from tally.ledger.decisions import find_losses
from tally.ledger.rows import SEGMENTS, records
from tally.ledger.tables import Tables
from tally.model import BatchKind, LossCause, OffsetRange, TopicPartition
from tally.mysql.transactions import Transaction

PARTS_MAX: Final = 50
"""Segments of a minute that are shown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """What one live segment contributes to a count."""

    segment_id: int
    """The segment."""
    batch_id: int
    """Its batch."""
    kind: BatchKind
    """Whether a replay has counted it."""
    range: OffsetRange
    """What it has read."""
    topic_id: str
    """Kafka's id of the topic when it was read."""
    is_current: bool
    """Whether the topic is still counted under this id."""
    format_fingerprint: str
    """Of the rules that it was counted by."""
    lines: int
    """Its lines."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Of:
    """Which lines are meant."""

    minute: datetime | None = None
    """Those of this minute, on the lines' own clock; of any when None."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Those with these values, by label column."""
    batch_id: int | None = None
    """Those that this batch has counted; of any when None."""
    partition: TopicPartition | None = None
    """Those of this partition; of any when None."""


def latest_batch(tx: Transaction, pipeline: str, partition: TopicPartition) -> int | None:
    """The batch with the last offsets of a partition that are in the result; None without one."""
    found: int | None = tx.scalar(
        f"select s.batch_id from {SEGMENTS} where s.state = 'live' and b.pipeline = %s"
        " and i.topic = %s and i.state = 'current' and s.partition_id = %s and b.kind <> 'fold'"
        " order by s.until_offset desc limit 1",
        (pipeline, partition.topic, partition.partition),
    )
    return found


def parts_of(
    tx: Transaction, tables: Tables, pipeline: str, of: Of, limit: int = PARTS_MAX
) -> list[Part]:
    """The live segments with such lines, most lines first; of a batch also those without a line.

    Folded segments are not among them: of them only a sum is known.

    Args:
        tx: An open transaction.
        tables: The pipeline's tables.
        pipeline: The pipeline.
        of: Which lines; by minute, batch or partition.
        limit: How many segments at most.

    Raises:
        UsageError: No such label is counted.
    """
    bounds: dict[str, object] = {
        f"c.`{TIME}` = %s": of.minute,
        "s.batch_id = %s": of.batch_id,
        "i.topic = %s": of.partition and of.partition.topic,
        "s.partition_id = %s": of.partition and of.partition.partition,
        **{f"c.`{_column(tables, name)}` = %s": value for name, value in of.labels.items()},
    }
    asked = {sql: value for sql, value in bounds.items() if value is not None}
    # Where a line was not counted, another reader may find it.
    join = "join" if of.minute or of.labels else "left join"
    return records(
        tx,
        Part,
        f"from {SEGMENTS} {join} `{tables.contributions}` c using (segment_id)"
        f" where s.state = 'live' and b.pipeline = %s{''.join(f' and {sql}' for sql in asked)}"
        f" group by s.segment_id order by sum(c.`{LINES}`) desc, s.segment_id limit {limit:d}",
        (pipeline, *asked.values()),
        "s",
        kind="b.kind",
        format_fingerprint="b.format_fingerprint",
        lines=f"coalesce(sum(c.`{LINES}`), 0)",
    )


def parts_lost(tx: Transaction, name: str, parts: Sequence[Part]) -> int:
    """Of how many segments a partition was truncated since: others may be in their place."""
    lost = [loss for loss in find_losses(tx, name) if loss.cause is LossCause.TRUNCATED]
    return sum(
        any(
            (part.topic_id, part.range.partition) == (loss.topic_id, loss.range.partition)
            and part.range.from_offset < loss.range.until_offset
            and loss.range.from_offset < part.range.until_offset
            for loss in lost
        )
        for part in parts
    )


def lines_of(tx: Transaction, tables: Tables, minute: datetime, labels: Mapping[str, str]) -> int:
    """How many lines the result has of a minute, with these values of labels."""
    columns = "".join(f" and `{_column(tables, name)}` = %s" for name in labels)
    lines = tx.scalar(
        f"select sum(`{LINES}`) from `{tables.result}` where `{TIME}` = %s{columns}",
        (minute, *labels.values()),
    )
    return int(lines or 0)


def folded_lines(
    tx: Transaction,
    tables: Tables,
    pipeline: str,
    minute: datetime,
    labels: Mapping[str, str] | None = None,
) -> int:
    """Lines of a minute of which only the sum is known, as their segments were folded."""
    labels = labels or {}
    columns = "".join(f" and `{_column(tables, name)}` = %s" for name in labels)
    lines = tx.scalar(
        f"select sum(`{LINES}`) from `{tables.folded}`"
        f" where pipeline = %s and `{TIME}` = %s{columns}",
        (pipeline, minute, *labels.values()),
    )
    return int(lines or 0)


def _column(tables: Tables, name: str) -> str:
    """A column of a label.

    Raises:
        UsageError: The table has no such label.
    """
    known = [label.column for label in tables.labels]
    if name not in known:
        raise UsageError(
            f"{name!r} is no label of {tables.result}",
            next_step=f"it has: {', '.join(known) or 'none'}",
        )
    return name
