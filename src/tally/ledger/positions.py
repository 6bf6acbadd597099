"""Topic generations, committed offsets and open losses, recording a plan, and what is counted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tally.config.pipeline import Pipeline
from tally.errors import ConfigError, SchemaError
from tally.ledger.batches import Requester, insert_batch
from tally.ledger.rows import columns, record, records
from tally.ledger.schema import check_version
from tally.ledger.tables import OWN_TABLES, check_result_table, check_unowned
from tally.model import (
    Generation,
    KafkaSnapshot,
    KnownTopic,
    Loss,
    OffsetRange,
    Position,
    TopicPartition,
)
from tally.mysql.transactions import Transaction
from tally.planning.ingest import Plan
from tally.planning.replay import Tile


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionRecord(Generation):
    """A partition of one topic generation."""

    generation_id: int
    """The ledger's key of the generation."""
    partition: TopicPartition
    """The partition."""
    is_current: bool
    """Whether this is the topic's current generation, which a replay can read."""


# Losses that still affect what is read next (see tally.model.Position).
_UNSETTLED_LOSSES = f"""
    select l.incarnation_id, l.state, {columns(Loss, "l")}
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
    found = _locked_table(tx, pipeline)
    if not found:
        # An insert over an existing row takes a shared lock first, and two planners that both hold
        # one deadlock.
        tx.execute(
            "insert ignore into pipeline (pipeline, result_table, created_at) values (%s, %s, %s)",
            (pipeline, result_table, tx.now()),
        )
        tx.execute("insert ignore into progress (pipeline) values (%s)", (pipeline,))
        # With locks: of two first planners of one table, under either spelling, one sees the other.
        check_owner(tx, pipeline, result_table, lock=True)
        check_unowned(tx, pipeline, result_table)
        found = _locked_table(tx, pipeline)
    check_result_table(found, pipeline, result_table)


def check_owner(tx: Transaction, pipeline: str, result_table: str, *, lock: bool = False) -> None:
    """Raise if a table holds the counts of another pipeline, configured or not.

    Raises:
        ConfigError: With the name of that pipeline.
    """
    owner = tx.scalar(
        "select pipeline from pipeline where result_table in (%s, %s) and pipeline <> %s"
        + (" for update" if lock else ""),
        (result_table, result_table + OWN_TABLES, pipeline),
    )
    if owner is not None:
        raise ConfigError(
            f"pipelines.{pipeline}.result_table = {result_table!r}: the ledger says that it holds "
            f"the counts of pipeline {owner}",
            next_step="choose another table",
        )


def _locked_table(tx: Transaction, pipeline: str) -> str:
    """The table that a pipeline counts into, with its row locked; '' before its first plan."""
    found = tx.scalar(
        "select result_table from pipeline where pipeline = %s for update", (pipeline,)
    )
    return str(found or "").removesuffix(OWN_TABLES)


def is_known_partition(tx: Transaction, pipeline: str, partition: TopicPartition) -> bool:
    """Whether the pipeline has ever planned to read a partition, in any generation of its topic."""
    return tx.exists(
        "select 1 from topic_incarnation i join partition_offset o using (incarnation_id)"
        " where i.pipeline = %s and i.topic = %s and o.partition_id = %s limit 1",
        (pipeline, partition.topic, partition.partition),
    )


def known_topics(tx: Transaction, pipeline: str) -> dict[str, KnownTopic]:
    """The current generation of each topic that the pipeline has ever read."""
    losses: dict[tuple[int, int], list[tuple[str, Loss]]] = {}
    for row in tx.rows(_UNSETTLED_LOSSES, (pipeline,)):
        of = losses.setdefault((row["incarnation_id"], row["partition_id"]), [])
        of.append((row["state"], record(Loss, row)))
    rows = tx.rows(
        "select i.incarnation_id, i.topic, i.topic_id, i.cluster_id,"
        " o.partition_id, o.start_offset, o.next_offset, o.seen_end"
        " from topic_incarnation i left join partition_offset o using (incarnation_id)"
        " where i.pipeline = %s and i.state = 'current'",
        (pipeline,),
    )
    positions: dict[int, dict[int, Position]] = {row["incarnation_id"]: {} for row in rows}
    for row in rows:
        if row["partition_id"] is not None:
            found = losses.get((row["incarnation_id"], row["partition_id"]), [])
            positions[row["incarnation_id"]][row["partition_id"]] = record(
                Position,
                row,
                open_loss=next((loss for state, loss in found if state == "open"), None),
                accepted_losses=tuple(loss for state, loss in found if state != "open"),
            )
    return {
        row["topic"]: record(KnownTopic, row, positions=positions[row["incarnation_id"]])
        for row in rows
    }


def write_plan(
    tx: Transaction,
    pipeline: Pipeline,
    plan: Plan,
    known: Mapping[str, KnownTopic],
    kafka: KafkaSnapshot,
    requester: Requester,
) -> list[int]:
    """Record the plan: new topics and partitions, new and restored losses, and what is read.

    The caller has held the pipeline's lock since before it read ``known``.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        plan: What was decided.
        known: The generations of its topics before.
        kafka: What Kafka held, which says how much waits.
        requester: Who asks.

    Returns:
        Ids of the new batches; empty when there is nothing to read.
    """
    generation_ids = {topic: entry.generation_id for topic, entry in known.items()}
    for partition in plan.new_partitions:
        if partition.topic in known:
            _check_never_counted(tx, generation_ids[partition.topic], partition)
    for topic, found in plan.new_topics.items():
        generation_ids[topic] = insert_generation(tx, pipeline.name, topic, found)
    insert_positions(
        tx,
        [
            (generation_ids[p.topic], p.partition, start, start)
            for p, start in plan.new_partitions.items()
        ],
    )
    for loss in plan.losses:
        record_loss(tx, generation_ids[loss.range.partition.topic], loss)
    for partition in plan.restored:
        _close_restored(tx, generation_ids[partition.topic], partition.partition)
    by_partition = pipeline.commits_by_partition
    parts = [[r] for r in plan.ranges] if by_partition else [plan.ranges] if plan.ranges else []
    return [
        insert_batch(
            tx,
            pipeline.name,
            part,
            generation_ids,
            requester,
            is_of_partition=by_partition,
            waiting_offsets=sum(_end(kafka, r) - r.from_offset for r in part),
        )
        for part in parts
    ]


def _end(kafka: KafkaSnapshot, planned: OffsetRange) -> int:
    held = kafka.partition(planned.partition)
    return held.end if held else planned.until_offset


def _check_never_counted(tx: Transaction, generation_id: int, partition: TopicPartition) -> None:
    """Raise if a partition without a committed offset has segments: it is not new."""
    counted = tx.one(
        "select min(from_offset) as start, max(until_offset) as next from segment"
        " where incarnation_id = %s and partition_id = %s and state in ('live', 'folded')",
        (generation_id, partition.partition),
    )
    start, until = counted.values()
    if until is not None:
        raise SchemaError(
            f"{partition} is counted from {start} until {until}, and its row of the "
            "table partition_offset is gone",
            next_step="put that row back, from a backup or as: insert into partition_offset "
            "(incarnation_id, partition_id, start_offset, next_offset) values "
            f"({generation_id}, {partition.partition}, {start}, {until}); then "
            "tally audit",
        )


def insert_generation(
    tx: Transaction, pipeline: str, topic: str, found: Generation, **adopted: str
) -> int:
    """Insert a new current generation of a topic; the one before must be retired.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        topic: The topic.
        found: What Kafka identifies the generation by.
        adopted: ``adopted_by`` and ``reason``, where an operator has adopted it.

    Returns:
        The ledger's key of the generation.
    """
    return tx.insert_row(
        "topic_incarnation",
        pipeline=pipeline,
        topic=topic,
        topic_id=found.topic_id,
        cluster_id=found.cluster_id,
        seen_at=tx.now(),
        **adopted,
    )


def insert_positions(tx: Transaction, positions: Sequence[tuple[int, int, int, int]]) -> None:
    """Insert positions: the generation's key, the partition, its start and its next offset."""
    tx.insert_many(
        "insert into partition_offset (incarnation_id, partition_id, start_offset, next_offset)"
        " values %s",
        positions,
    )


def current_offsets(tx: Transaction, pipeline: str) -> dict[TopicPartition, int]:
    """The next offset of each partition of the pipeline's current topics."""
    return {
        TopicPartition(topic=topic, partition=partition): position.next_offset
        for topic, known in known_topics(tx, pipeline).items()
        for partition, position in known.positions.items()
    }


def record_loss(tx: Transaction, generation_id: int, loss: Loss) -> None:
    """Record an open loss; if the partition has one already, its row is updated."""
    found = (loss.cause, loss.range.from_offset, loss.range.until_offset)
    tx.execute(
        "insert into lost_range"
        " (incarnation_id, partition_id, detected_at, cause, from_offset, until_offset)"
        " values (%s, %s, %s, %s, %s, %s)"
        " on duplicate key update cause = %s, from_offset = %s, until_offset = %s",
        (generation_id, loss.range.partition.partition, tx.now(), *found, *found),
    )


def _close_restored(tx: Transaction, generation_id: int, partition: int) -> None:
    tx.execute(
        "update lost_range set state = 'restored', decided_at = %s,"
        " reason = if(cause = 'missing', 'offsets = \"sparse\"', 'Kafka holds the records again')"
        " where incarnation_id = %s and partition_id = %s and state = 'open'",
        (tx.now(), generation_id, partition),
    )


def tiles_of(tx: Transaction, generation_id: int, r: OffsetRange) -> list[Tile]:
    """Live and folded segments that overlap a range, in order."""
    here = (generation_id, r.partition.partition)
    return records(
        tx,
        Tile,
        "from segment s join topic_incarnation i using (incarnation_id)"
        " where s.incarnation_id = %s and s.partition_id = %s"
        # Live segments do not overlap, so only the last one before the range can reach into it.
        " and s.live_from >= coalesce((select max(live_from) from segment"
        "   where incarnation_id = %s and partition_id = %s and live_from <= %s), %s)"
        " and s.live_from < %s and s.live_until > %s order by s.from_offset",
        (*here, *here, r.from_offset, r.from_offset, r.until_offset, r.from_offset),
        "s",
        folded="s.state = 'folded'",
        alone="""exists (select 1 from lost_range l where l.incarnation_id = s.incarnation_id
            and l.partition_id = s.partition_id and l.cause = 'missing' and l.state = 'accepted'
            and l.from_offset < s.until_offset and s.from_offset < l.until_offset)""",
    )


def first_whole(
    tx: Transaction, generation_id: int, partition: TopicPartition, earliest: int
) -> int | None:
    """First offset of the first live segment that is wholly at or after ``earliest``, or None."""
    first: int | None = tx.scalar(
        "select min(live_from) from segment"
        " where incarnation_id = %s and partition_id = %s and live_from >= %s and state = 'live'",
        (generation_id, partition.partition, earliest),
    )
    return first
