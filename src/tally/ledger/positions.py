"""Topic generations, committed offsets and open losses, and recording a plan."""

from collections.abc import Mapping, Sequence

from tally.errors import ConfigError, SchemaError
from tally.ledger.batches import Requester, insert_batch
from tally.ledger.rows import partition_of, range_of
from tally.ledger.tables import OWN_TABLES, check_result_table, check_unowned
from tally.ledger.version import check_version
from tally.model import (
    BatchKind,
    KnownTopic,
    Loss,
    LossCause,
    OffsetRange,
    Position,
    TopicPartition,
)
from tally.mysql.transactions import Row, Transaction
from tally.planning.ingest import Plan

# Losses that still affect what is read next (see tally.model.Position).
_UNSETTLED_LOSSES = """
    select l.incarnation_id, l.partition_id, l.from_offset, l.until_offset, l.cause, l.state
    from lost_range l join topic_incarnation i using (incarnation_id)
    join partition_offset o using (incarnation_id, partition_id)
    where i.pipeline = %s and i.state = 'current' and (
        l.state = 'open'
        or (l.state = 'accepted' and l.cause = 'truncated' and l.until_offset = o.next_offset)
        or (l.state = 'accepted' and l.cause = 'missing'
            and l.from_offset <= o.next_offset and o.next_offset < l.until_offset))
"""


def lock_pipeline(tx: Transaction, pipeline: str, result_table: str) -> None:
    """Make this the only planner of the pipeline until the transaction ends.

    The first planner inserts the row that later ones lock.

    Raises:
        ConfigError: The pipeline has counted into another table before, the table belongs to
            another pipeline, or it is no table of counts.
        SchemaError: Newer code has migrated the ledger.
    """
    check_version(tx)
    owned = _locked_table(tx, pipeline)
    if owned is None:
        # An insert over an existing row takes a shared lock first, and two planners that both hold
        # one deadlock.
        tx.execute(
            "insert ignore into pipeline (pipeline, result_table, created_at) values (%s, %s, %s)",
            (pipeline, result_table, tx.now()),
        )
        # With locks: of two first planners of one table, under either spelling, one sees the other.
        check_owner(tx, pipeline, result_table, lock=True)
        check_unowned(tx, pipeline, result_table)
        owned = _locked_table(tx, pipeline)
    if owned is None:
        raise ConfigError(
            f"pipelines.{pipeline}.result_table = {result_table!r}: another pipeline has taken it",
            next_step="choose another table",
        )
    check_result_table(owned, pipeline, result_table)


def check_owner(tx: Transaction, pipeline: str, result_table: str, *, lock: bool = False) -> None:
    """Raise if a table holds the counts of another pipeline, configured or not.

    Raises:
        ConfigError: With the name of that pipeline.
    """
    owner = tx.row(
        "select pipeline from pipeline where result_table in (%s, %s) and pipeline <> %s"
        + (" for update" if lock else ""),
        (result_table, result_table + OWN_TABLES, pipeline),
    )
    if owner is not None:
        raise ConfigError(
            f"pipelines.{pipeline}.result_table = {result_table!r}: the ledger says that it holds "
            f"the counts of pipeline {owner['pipeline']}",
            next_step="choose another table",
        )


def _locked_table(tx: Transaction, pipeline: str) -> str | None:
    """The table that a pipeline counts into, with its row locked; None before its first plan."""
    row = tx.row("select result_table from pipeline where pipeline = %s for update", (pipeline,))
    return None if row is None else str(row["result_table"]).removesuffix(OWN_TABLES)


def is_known_partition(tx: Transaction, pipeline: str, partition: TopicPartition) -> bool:
    """Whether the pipeline has ever planned to read a partition, in any generation of its topic."""
    row = tx.row(
        "select 1 from topic_incarnation i join partition_offset o using (incarnation_id)"
        " where i.pipeline = %s and i.topic = %s and o.partition_id = %s limit 1",
        (pipeline, partition.topic, partition.partition),
    )
    return row is not None


def known_topics(tx: Transaction, pipeline: str) -> dict[str, KnownTopic]:
    """The current generation of each topic that the pipeline has ever read."""
    losses: dict[tuple[int, int], list[Row]] = {}
    for row in tx.rows(_UNSETTLED_LOSSES, (pipeline,)):
        losses.setdefault((row["incarnation_id"], row["partition_id"]), []).append(row)
    positions: dict[int, dict[int, Position]] = {}
    rows = tx.rows(
        "select i.incarnation_id, i.topic, i.topic_id, i.cluster_id,"
        " o.partition_id, o.start_offset, o.next_offset"
        " from topic_incarnation i left join partition_offset o using (incarnation_id)"
        " where i.pipeline = %s and i.state = 'current'",
        (pipeline,),
    )
    for row in rows:
        of_topic = positions.setdefault(row["incarnation_id"], {})
        if row["partition_id"] is None:
            continue
        partition = partition_of(row)
        found = losses.get((row["incarnation_id"], row["partition_id"]), [])
        of_topic[row["partition_id"]] = Position(
            start_offset=row["start_offset"],
            next_offset=row["next_offset"],
            open_loss=next((_loss(partition, r) for r in found if r["state"] == "open"), None),
            accepted_losses=tuple(_loss(partition, r) for r in found if r["state"] != "open"),
        )
    return {
        row["topic"]: KnownTopic(
            incarnation_id=row["incarnation_id"],
            topic_id=row["topic_id"],
            cluster_id=row["cluster_id"],
            positions=positions[row["incarnation_id"]],
        )
        for row in rows
    }


def write_plan(
    tx: Transaction,
    pipeline: str,
    plan: Plan,
    known: Mapping[str, KnownTopic],
    cluster_id: str,
    requester: Requester,
    *,
    by_partition: bool = False,
) -> list[int]:
    """Record the plan: new topics and partitions, new and restored losses, and what is read.

    The caller has held the pipeline's lock since before it read ``known``.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        plan: What was decided.
        known: The generations of its topics before.
        cluster_id: Of the cluster that the topics are on.
        requester: Who asks.
        by_partition: Whether each range is a batch by itself, instead of one batch of all.

    Returns:
        Ids of the new batches; empty when there is nothing to read.
    """
    incarnation_ids = {topic: entry.incarnation_id for topic, entry in known.items()}
    for new in plan.new_partitions:
        if new.partition.topic in known:
            _check_never_counted(tx, incarnation_ids[new.partition.topic], new.partition)
    for topic, topic_id in plan.new_topics.items():
        incarnation_ids[topic] = insert_generation(tx, pipeline, topic, topic_id, cluster_id)
    tx.insert_many(
        "insert into partition_offset (incarnation_id, partition_id, start_offset, next_offset)"
        " values (%s, %s, %s, %s)",
        [
            (
                incarnation_ids[p.partition.topic],
                p.partition.partition,
                p.start_offset,
                p.start_offset,
            )
            for p in plan.new_partitions
        ],
    )
    for loss in plan.losses:
        record_loss(tx, incarnation_ids[loss.range.partition.topic], loss)
    for partition in plan.restored:
        _close_restored(tx, incarnation_ids[partition.topic], partition.partition)
    parts = [[r] for r in plan.ranges] if by_partition else [plan.ranges] if plan.ranges else []
    return [
        insert_batch(
            tx,
            pipeline,
            BatchKind.INGEST,
            _by_generation(part, incarnation_ids),
            requester,
            is_of_partition=by_partition,
        )
        for part in parts
    ]


def _check_never_counted(tx: Transaction, incarnation_id: int, partition: TopicPartition) -> None:
    """Raise if a partition without a committed offset has segments: it is not new."""
    row = tx.row(
        "select min(from_offset) as start, max(until_offset) as next from segment"
        " where incarnation_id = %s and partition_id = %s and state in ('live', 'folded')",
        (incarnation_id, partition.partition),
    )
    if row is not None and row["next"] is not None:
        raise SchemaError(
            f"{partition} is counted from {row['start']} until {row['next']}, and its row of the "
            "table partition_offset is gone",
            next_step="put that row back, from a backup or as: insert into partition_offset "
            "(incarnation_id, partition_id, start_offset, next_offset) values "
            f"({incarnation_id}, {partition.partition}, {row['start']}, {row['next']}); then "
            "tally audit",
        )


def _by_generation(
    ranges: Sequence[OffsetRange], incarnation_ids: Mapping[str, int]
) -> dict[int, list[OffsetRange]]:
    found: dict[int, list[OffsetRange]] = {}
    for r in ranges:
        found.setdefault(incarnation_ids[r.partition.topic], []).append(r)
    return found


def insert_generation(
    tx: Transaction,
    pipeline: str,
    topic: str,
    topic_id: str,
    cluster_id: str,
    *,
    adopted_by: str | None = None,
    reason: str | None = None,
) -> int:
    """Insert a new current generation of a topic; the one before must be retired.

    Returns:
        The ledger's key of the generation.
    """
    return tx.insert(
        "insert into topic_incarnation"
        " (pipeline, topic, topic_id, cluster_id, seen_at, adopted_by, reason)"
        " values (%s, %s, %s, %s, %s, %s, %s)",
        (
            pipeline,
            topic,
            topic_id,
            cluster_id,
            tx.now(),
            adopted_by,
            reason,
        ),
    )


def current_offsets(tx: Transaction, pipeline: str) -> dict[TopicPartition, int]:
    """The next offset of each partition of the pipeline's current topics."""
    return {
        TopicPartition(topic=topic, partition=partition): position.next_offset
        for topic, known in known_topics(tx, pipeline).items()
        for partition, position in known.positions.items()
    }


def record_loss(tx: Transaction, incarnation_id: int, loss: Loss) -> None:
    """Record an open loss; if the partition has one already, its row is updated."""
    found = (loss.cause, loss.range.from_offset, loss.range.until_offset)
    tx.execute(
        "insert into lost_range"
        " (incarnation_id, partition_id, detected_at, cause, from_offset, until_offset)"
        " values (%s, %s, %s, %s, %s, %s)"
        " on duplicate key update cause = %s, from_offset = %s, until_offset = %s",
        (
            incarnation_id,
            loss.range.partition.partition,
            tx.now(),
            *found,
            *found,
        ),
    )


def _loss(partition: TopicPartition, row: Row) -> Loss:
    return Loss(
        cause=LossCause(row["cause"]),
        range=range_of(row, partition),
    )


def _close_restored(tx: Transaction, incarnation_id: int, partition: int) -> None:
    tx.execute(
        "update lost_range set state = 'restored', decided_at = %s,"
        " reason = if(cause = 'missing', 'offsets = \"sparse\"', 'Kafka holds the records again')"
        " where incarnation_id = %s and partition_id = %s and state = 'open'",
        (tx.now(), incarnation_id, partition),
    )
