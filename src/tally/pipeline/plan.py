"""Planning a minute batch: fixing the ranges that it reads, before anything is read."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from tally.config.pipeline import Pipeline
from tally.ledger import batches, positions
from tally.ledger.batches import Requester
from tally.ledger.tables import check_tables, tables_of
from tally.model import Batch, KafkaSnapshot, KnownTopic, TopicPartition
from tally.mysql.transactions import Transaction
from tally.pipeline.context import Context
from tally.planning.blocks import Block
from tally.planning.ingest import beside, first_offsets, overtaken, plan_ingest, unreadable


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """The outcome of planning."""

    pipeline: str
    """The pipeline."""
    batch: Batch | None
    """The batch to run; None when there is nothing new."""
    resumed: bool
    """Whether the batch was planned before and is resumed."""
    blocks: tuple[Block, ...]
    """What is not read, and why."""
    abandoned: tuple[str, ...] = ()
    """Why the open batch was abandoned; empty when it was not."""


def plan_batch(ctx: Context, name: str, *, dry_run: bool = False) -> Planned:
    """Plan the pipeline's next batch, or resume the open one.

    Safe to call at any time and concurrently: the ledger serialises planners, and there is at most
    one open ingest batch. With ``dry_run`` the answer is the same and nothing is written; the id of
    a new batch is then not valid.

    Raises:
        UnknownPipelineError: No such pipeline is configured.
        RetryableError: Kafka or MySQL did not answer; nothing was written.
        ConfigError: The pipeline has counted into another table, or by another measure.
        OperatorError: The schema is not migrated, a label has no column yet, or access is denied.
    """
    pipeline = ctx.settings.pipeline(name)
    for tries_left in reversed(range(ctx.patience.doubt_tries)):
        work = partial(
            _plan,
            facts=_ask_kafka(ctx, pipeline),
            requester=ctx.requester,
            believe=not tries_left,
        )
        planned = ctx.database.run(work, dry_run=dry_run)
        if planned is not None:
            return planned
        ctx.clock.sleep(ctx.patience.doubt_pause_s)
    raise AssertionError("unreachable: the last plan is believed")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Facts:
    """What one try at a plan knows besides the ledger."""

    pipeline: Pipeline
    snapshot: KafkaSnapshot
    starts: dict[TopicPartition, int] | None
    now: datetime


def _ask_kafka(ctx: Context, pipeline: Pipeline) -> _Facts:
    """Ask Kafka for everything, before the planning transaction takes its locks."""
    with ctx.database.transaction(read_only=True) as tx:
        known = positions.known_topics(tx, pipeline.name)
        batch = batches.find_open_ingest(tx, pipeline.name)
    open_topics = {s.range.partition.topic for s in batch.segments} if batch else set()
    snapshot = ctx.kafka.snapshot(
        sorted({*pipeline.topics, *open_topics}),
        read_committed=pipeline.reads_committed,
    )
    new = [topic for topic in pipeline.topics if topic not in known]
    starts = _starts(ctx, pipeline, snapshot, new) if new else {}
    return _Facts(pipeline=pipeline, snapshot=snapshot, starts=starts, now=ctx.clock.now())


def _plan(tx: Transaction, facts: _Facts, requester: Requester, believe: bool) -> Planned | None:
    """One planning transaction; None when Kafka's answer is doubtful and must be asked again.

    It locks the open batch first. From then on no commit can move an offset, so the positions that
    it reads next stay valid.
    """
    pipeline = facts.pipeline
    positions.lock_pipeline(tx, pipeline.name, pipeline.table)
    check_tables(tables_of(tx, pipeline.name), pipeline)
    batch = batches.find_open_ingest(tx, pipeline.name, lock=True)
    known = positions.known_topics(tx, pipeline.name)
    plan = plan_ingest(pipeline, known=known, kafka=facts.snapshot, starts=facts.starts)
    causes = _why_abandon(batch, facts, known) if batch else ()
    if (plan.doubtful or causes) and not believe:
        return None

    cluster_id = facts.snapshot.cluster_id
    if batch is not None and not causes:
        plan = beside(plan, batch.segments)
        positions.write_plan(tx, pipeline.name, plan, known, cluster_id, requester)
        return Planned(pipeline=pipeline.name, batch=batch, resumed=True, blocks=plan.blocks)
    if batch is not None:
        reason = f"it can no longer be counted: {'; '.join(causes)}"[:1000]
        batches.abandon(tx, batch.batch_id, by=requester.name, reason=reason)
    batch_id = positions.write_plan(tx, pipeline.name, plan, known, cluster_id, requester)
    return Planned(
        pipeline=pipeline.name,
        batch=None if batch_id is None else batches.find_batch(tx, batch_id),
        resumed=False,
        blocks=plan.blocks,
        abandoned=causes,
    )


def _why_abandon(batch: Batch, facts: _Facts, known: dict[str, KnownTopic]) -> tuple[str, ...]:
    """Why the open batch can no longer be counted; empty while it can.

    While an attempt runs, records that retention has deleted are no cause: the attempt may have
    read them already.
    """
    patience = timedelta(seconds=facts.pipeline.patience_s)
    working = batch.claimed_at is not None and facts.now - batch.claimed_at < patience
    return overtaken(batch.segments, known) + unreadable(
        batch.segments, facts.snapshot, still_held=not working
    )


def _starts(
    ctx: Context, pipeline: Pipeline, snapshot: KafkaSnapshot, new: Sequence[str]
) -> dict[TopicPartition, int] | None:
    """First offsets of new topics; None while the start time is in the future."""
    start = pipeline.start
    if not isinstance(start, datetime):
        return first_offsets(snapshot, new, start, {})
    if start > ctx.clock.now():
        return None
    wanted = [
        TopicPartition(topic=topic, partition=number)
        for topic in new
        if topic in snapshot.topics
        for number in snapshot.topics[topic].partitions
    ]
    return first_offsets(snapshot, new, "timestamp", ctx.kafka.offsets_at(wanted, start))
