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
    """What planning left behind."""

    pipeline: str
    """The pipeline."""
    batch: Batch | None
    """The batch to run; None when there is nothing new."""
    resumed: bool
    """Whether the batch was planned before and is taken up again."""
    blocks: tuple[Block, ...]
    """What is not read, and why."""
    abandoned: tuple[str, ...] = ()
    """Why the open batch had to be given up, when it had."""


def plan_batch(ctx: Context, name: str, *, dry_run: bool = False) -> Planned:
    """Fix what the pipeline's next batch reads, or take an open batch up again.

    Safe to call at any time and by several at once: the ledger serialises planners, and there is
    one open ingest batch at most. With ``dry_run`` the answer is the same and nothing is written;
    the id of a batch that would be new means nothing then.

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
    """What one try at a plan knows from outside the ledger."""

    pipeline: Pipeline
    snapshot: KafkaSnapshot
    starts: dict[TopicPartition, int] | None
    now: datetime


def _ask_kafka(ctx: Context, pipeline: Pipeline) -> _Facts:
    """All that Kafka has to say, before the planning transaction takes its locks."""
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

    The open batch is looked for first, and locked: without one, or with one that is held, no
    commit can move an offset any more, so the positions that are read next stay true.
    """
    pipeline = facts.pipeline
    positions.lock_pipeline(tx, pipeline.name, pipeline.table)
    check_tables(tables_of(tx, pipeline.name), pipeline)
    batch = batches.find_open_ingest(tx, pipeline.name, lock=True)
    known = positions.known_topics(tx, pipeline.name)
    plan = plan_ingest(pipeline, known=known, kafka=facts.snapshot, starts=facts.starts)
    given_up = _why_give_up(batch, facts, known) if batch else ()
    if (plan.doubtful or given_up) and not believe:
        return None

    cluster_id = facts.snapshot.cluster_id
    if batch is not None and not given_up:
        plan = beside(plan, batch.segments)
        positions.write_plan(tx, pipeline.name, plan, known, cluster_id, requester)
        return Planned(pipeline=pipeline.name, batch=batch, resumed=True, blocks=plan.blocks)
    if batch is not None:
        reason = f"it can no longer be counted: {'; '.join(given_up)}"[:1000]
        batches.abandon(tx, batch.batch_id, by=requester.name, reason=reason)
    batch_id = positions.write_plan(tx, pipeline.name, plan, known, cluster_id, requester)
    return Planned(
        pipeline=pipeline.name,
        batch=None if batch_id is None else batches.find_batch(tx, batch_id),
        resumed=False,
        blocks=plan.blocks,
        abandoned=given_up,
    )


def _why_give_up(batch: Batch, facts: _Facts, known: dict[str, KnownTopic]) -> tuple[str, ...]:
    """Why the open batch can never be counted; empty while it may.

    While an attempt works on it, records that retention takes away are no reason: it may have read
    them already.
    """
    patience = timedelta(seconds=facts.pipeline.patience_s)
    working = batch.claimed_at is not None and facts.now - batch.claimed_at < patience
    return overtaken(batch.segments, known) + unreadable(
        batch.segments, facts.snapshot, still_held=not working
    )


def _starts(
    ctx: Context, pipeline: Pipeline, snapshot: KafkaSnapshot, new: Sequence[str]
) -> dict[TopicPartition, int] | None:
    """Where counting begins in new topics; None when the start has not come yet."""
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
