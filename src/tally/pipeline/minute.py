"""The way of a minute: plan, claim, count, check, commit.

:func:`plan_batch` fixes the ranges, :func:`run_batch` counts and commits them; each can be called
again at any time, by anyone, and never counts a line twice.
"""

import getpass
import hashlib
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from tally import __version__, clock
from tally.config.pipeline import Pipeline
from tally.config.settings import Settings
from tally.deliveries.transactional import Result, commit_batch
from tally.errors import (
    DataLossError,
    FencedError,
    MySQLUnavailableError,
    OutcomeUnknownError,
    RecordsMissingError,
    TallyError,
    TransactionRetryError,
)
from tally.kafka.client import Kafka
from tally.ledger import batches, positions
from tally.ledger.batches import Requester
from tally.model import (
    Batch,
    BatchKind,
    BatchState,
    KafkaSnapshot,
    KnownTopic,
    Loss,
    LossCause,
    OffsetRange,
    SegmentTotals,
    TopicPartition,
    is_of_life,
)
from tally.mysql.transactions import (
    TRANSACTION_TRIES,
    CommitUnansweredError,
    Transaction,
    run_transaction,
    transaction,
)
from tally.planning.blocks import Block
from tally.planning.ingest import beside, first_offsets, overtaken, plan_ingest, unreadable

if TYPE_CHECKING:  # Spark is heavy and planning does not need it
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

SparkFactory = Callable[[], AbstractContextManager["SparkSession"]]

# Kafka may answer from stale metadata: a plan that would block is asked for again, so many times
# and this far apart, before it is believed.
DOUBT_TRIES: Final = 3
DOUBT_PAUSE_S: Final = 1.0

# How long the ledger is asked what became of a COMMIT whose answer was lost.
OUTCOME_PATIENCE_S: Final = 120.0


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """What became of a batch."""

    batch: Batch
    """The batch as it was claimed."""
    committed: bool
    """Whether this call committed it; False when it was committed before."""
    totals: dict[TopicPartition, SegmentTotals]
    """What each range held; empty when it was committed before."""
    seconds: float
    """From the claim to the commit."""


def plan_batch(
    settings: Settings, name: str, requester: Requester | None = None, *, dry_run: bool = False
) -> Planned:
    """Fix what the pipeline's next batch reads, or take an open batch up again.

    Safe to call at any time and by several at once: the ledger serialises planners, and there is
    one open ingest batch at most. With ``dry_run`` the answer is the same and nothing is written;
    the id of a batch that would be new means nothing then.

    Raises:
        UnknownPipelineError: No such pipeline is configured.
        RetryableError: Kafka or MySQL did not answer; nothing was written.
        OperatorError: The schema is not migrated or access is denied.
    """
    pipeline = settings.pipeline(name)
    requester = requester or Requester(name=whoami(), version=__version__)
    kafka = Kafka(settings.kafka)
    for tries_left in reversed(range(DOUBT_TRIES)):
        planned = run_transaction(
            settings.mysql,
            partial(
                _plan,
                facts=_ask_kafka(settings, kafka, pipeline),
                requester=requester,
                believe=not tries_left,
            ),
            dry_run=dry_run,
        )
        if planned is not None:
            return planned
        time.sleep(DOUBT_PAUSE_S)
    raise AssertionError("unreachable: the last plan is believed")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Facts:
    """What one try at a plan knows from outside the ledger."""

    pipeline: Pipeline
    snapshot: KafkaSnapshot
    starts: dict[TopicPartition, int] | None


def _ask_kafka(settings: Settings, kafka: Kafka, pipeline: Pipeline) -> _Facts:
    """All that Kafka has to say, before the planning transaction takes its locks."""
    with transaction(settings.mysql, read_only=True) as tx:
        known = positions.known_topics(tx, pipeline.name)
        batch = batches.find_open_ingest(tx, pipeline.name)
    open_topics = {s.range.partition.topic for s in batch.segments} if batch else set()
    snapshot = kafka.snapshot(
        sorted({*pipeline.topics, *open_topics}),
        read_committed=pipeline.reads_committed,
    )
    new = [topic for topic in pipeline.topics if topic not in known]
    starts = _starts(kafka, pipeline, snapshot, new) if new else {}
    return _Facts(pipeline=pipeline, snapshot=snapshot, starts=starts)


def _plan(tx: Transaction, facts: _Facts, requester: Requester, believe: bool) -> Planned | None:
    """One planning transaction; None when Kafka's answer is doubtful and must be asked again.

    The open batch is looked for first, and locked: without one, or with one that is held, no
    commit can move an offset any more, so the positions that are read next stay true.
    """
    pipeline = facts.pipeline
    positions.lock_pipeline(tx, pipeline.name, pipeline.table)
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
    working = batch.claimed_at is not None and clock.now() - batch.claimed_at < patience
    return overtaken(batch.segments, known) + unreadable(
        batch.segments, facts.snapshot, still_held=not working
    )


def _starts(
    kafka: Kafka, pipeline: Pipeline, snapshot: KafkaSnapshot, new: Sequence[str]
) -> dict[TopicPartition, int] | None:
    """Where counting begins in new topics; None when the start has not come yet."""
    start = pipeline.start
    if not isinstance(start, datetime):
        return first_offsets(snapshot, new, start, {})
    if start > clock.now():
        return None
    wanted = [
        TopicPartition(topic=topic, partition=number)
        for topic in new
        if topic in snapshot.topics
        for number in snapshot.topics[topic].partitions
    ]
    return first_offsets(snapshot, new, "timestamp", kafka.offsets_at(wanted, start))


def run_batch(settings: Settings, batch_id: int, spark: SparkFactory) -> Ran:
    """Count a planned batch and commit it; nothing happens when it is committed already.

    Args:
        settings: The configuration.
        batch_id: The ledger's key of the batch.
        spark: Opens a Spark session; called only when there is something to read.

    Raises:
        UnknownBatchError: The ledger has no such batch.
        FencedError: A newer attempt owns the batch, or it was abandoned.
        RecordsMissingError: Offsets of the batch hold no record. An ingest batch is abandoned, and
            the partitions with holes are blocked; the others are planned anew.
        DataLossError: What Kafka served is not what was planned.
        RetryableError: A server did not answer; run the batch again.
    """
    begun = time.monotonic()
    batch = run_transaction(settings.mysql, lambda tx: batches.claim(tx, batch_id, whoami()))
    pipeline = settings.pipeline(batch.pipeline)
    if batch.state is BatchState.COMMITTED:
        return Ran(batch=batch, committed=False, totals={}, seconds=0.0)

    try:
        return _count_and_commit(settings, batch, pipeline, spark, begun)
    except RecordsMissingError as error:
        if batch.kind is BatchKind.INGEST:
            _block_missing(settings, batch, pipeline, error)
            raise
        _release(settings, batch)
        raise RecordsMissingError(
            error.what,
            ranges=error.ranges,
            next_step=f"tally abandon {batch_id}: what was counted stays",
        ) from error
    except BaseException:
        _release(settings, batch)
        raise


def _block_missing(
    settings: Settings, batch: Batch, pipeline: Pipeline, error: RecordsMissingError
) -> None:
    """Give the batch up and leave the ranges with holes to a person, so that the others go on."""

    def work(tx: Transaction) -> None:
        positions.lock_pipeline(tx, pipeline.name, pipeline.table)
        now = batches.find_batch(tx, batch.batch_id, lock=True)
        if (now.state, now.attempt) != (BatchState.PLANNED, batch.attempt):
            return
        reason = f"it can no longer be counted: {error.what}"[:1000]
        batches.abandon(tx, batch.batch_id, by=whoami(), reason=reason)
        known = positions.known_topics(tx, pipeline.name)
        for segment in batch.segments:
            topic = known[segment.range.partition.topic]
            # Whoever has adopted another life of the topic meanwhile has decided about this range.
            decided = not is_of_life(segment, topic) or overtaken([segment], known)
            if segment.range in error.ranges and not decided:
                loss = Loss(cause=LossCause.MISSING, range=segment.range)
                positions.record_loss(tx, topic.incarnation_id, loss)

    try:
        run_transaction(settings.mysql, work)
    except TallyError as failure:
        # The batch stays planned: whoever runs it next finds the same holes, and comes by here.
        log.warning("batch_not_abandoned", extra={"batch": batch.batch_id, "cause": failure.what})


def _count_and_commit(
    settings: Settings, batch: Batch, pipeline: Pipeline, spark: SparkFactory, begun: float
) -> Ran:
    from tally.spark.counting import count_ranges  # noqa: PLC0415 - Spark is heavy, see above

    ranges = [segment.range for segment in batch.segments]
    may_miss = {segment.range.partition for segment in batch.segments if segment.missing_accepted}
    with (
        spark() as session,
        count_ranges(session, settings.kafka, pipeline, ranges, may_miss=may_miss) as counts,
    ):
        kafka = Kafka(settings.kafka)
        check_still_served(kafka, pipeline, batch)
        _check_nothing_is_erased(batch, counts.totals)
        result = Result(
            totals=counts.totals,
            contributions=counts.contributions,
            dead_letters=counts.dead_letters,
            version=__version__,
            format_fingerprint=fingerprint(pipeline),
        )
        committed = commit_once(settings, batch, pipeline, result)
        seconds = time.monotonic() - begun
        totals = counts.totals
    if batch.kind is BatchKind.INGEST:
        mirror_offsets(settings, kafka, pipeline.name, ranges)
    return Ran(batch=batch, committed=committed, totals=totals, seconds=seconds)


def _release(settings: Settings, batch: Batch) -> None:
    """Let the next plan judge a batch whose attempt has failed; a courtesy, like a time-out."""
    # Whoever waits for this waits in vain for a commit: one try, and no long wait for a lock.
    brief = settings.mysql.model_copy(update={"lock_wait_timeout_s": 1})
    try:
        with transaction(brief) as tx:
            batches.release(tx, batch)
    except TallyError as error:
        log.warning("batch_not_released", extra={"batch": batch.batch_id, "cause": error.what})


def check_still_served(kafka: Kafka, pipeline: Pipeline, batch: Batch) -> None:
    """Raise unless what was read is, now that it was read, still what was planned.

    Asked after the read: an id that is unchanged now was unchanged all the while, as Kafka never
    gives one out twice. That a dense range was read whole is proven by its offsets, and it may be
    gone by now; of a sparse one only Kafka can tell that nothing was taken from its start.

    Raises:
        DataLossError: The topic is another one, or a range is no longer held.
    """
    topics = sorted({segment.range.partition.topic for segment in batch.segments})
    for tries_left in reversed(range(DOUBT_TRIES)):
        snapshot = kafka.snapshot(topics, read_committed=pipeline.reads_committed)
        causes = unreadable(batch.segments, snapshot, still_held=pipeline.is_sparse)
        if not causes:
            return
        if tries_left:
            time.sleep(DOUBT_PAUSE_S)
    raise DataLossError(
        f"batch {batch.batch_id}: Kafka no longer holds what was planned: {'; '.join(causes)}",
        next_step=f"tally plan {pipeline.name} gives the batch up and plans what is left"
        if batch.kind is BatchKind.INGEST
        else f"tally abandon {batch.batch_id}: what was counted stays",
    )


def _check_nothing_is_erased(batch: Batch, totals: Mapping[TopicPartition, SegmentTotals]) -> None:
    """What a replay replaces must still be in Kafka, record for record.

    Raises:
        DataLossError: Fewer records were read than were counted before, as after a compaction.
    """
    fewer = [
        f"{segment.range}: {read} records, {segment.records_replaced} were counted"
        for segment in batch.segments
        for read in [totals[segment.range.partition].records]
        # Each offset that was never counted may have given one of them.
        if segment.records_replaced > 0
        and read - (segment.range.offsets - segment.offsets_replaced) < segment.records_replaced
    ]
    if fewer:
        raise DataLossError(
            f"batch {batch.batch_id}: Kafka holds less than what it would replace: "
            + "; ".join(fewer),
            next_step=f"tally abandon {batch.batch_id}: what was counted stays",
        )


def commit_once(settings: Settings, batch: Batch, pipeline: Pipeline, result: Result) -> bool:
    """Commit the batch, and find out what happened when the answer to COMMIT is lost.

    Returns:
        Whether this call committed it; False when it was committed before.

    Raises:
        FencedError: A newer attempt owns the batch, or it was abandoned.
        OutcomeUnknownError: The ledger could not be asked in time.
    """

    def work(tx: Transaction) -> bool:
        return commit_batch(tx, batch, pipeline.table, result)

    for _ in range(TRANSACTION_TRIES):
        try:
            return run_transaction(settings.mysql, work)
        except CommitUnansweredError as error:
            unanswered = error
            if (committed := _ask_outcome(settings, batch)) is not None:
                return committed
    raise unanswered


def _ask_outcome(settings: Settings, batch: Batch) -> bool | None:
    """What became of our COMMIT: True when it was applied, None when it was rolled back.

    False when it was rolled back and another attempt has committed the batch since.

    The batch's row is locked to ask: a server that still works on the COMMIT holds that lock, so
    the answer is final.
    """
    deadline = time.monotonic() + OUTCOME_PATIENCE_S
    while True:
        try:
            with transaction(settings.mysql, keep=False) as tx:
                now = batches.find_batch(tx, batch.batch_id, lock=True)
                if now.state is BatchState.ABANDONED:
                    raise batches.abandoned_error(tx, batch.batch_id)
        except (MySQLUnavailableError, TransactionRetryError) as error:
            if time.monotonic() > deadline:
                raise OutcomeUnknownError(
                    f"batch {batch.batch_id}: the answer to COMMIT was lost and the ledger does "
                    f"not say what became of it: {error.what}",
                    next_step=f"tally run {batch.batch_id} once MySQL answers; it is safe",
                ) from error
            time.sleep(DOUBT_PAUSE_S)
            continue
        if now.state is BatchState.COMMITTED:
            return now.attempt == batch.attempt
        if now.attempt == batch.attempt:
            return None
        raise FencedError(
            f"batch {batch.batch_id}: attempt {now.attempt} has taken it over from attempt "
            f"{batch.attempt}",
            next_step=f"tally show {batch.batch_id}",
        )


def mirror_offsets(
    settings: Settings, kafka: Kafka, pipeline: str, ranges: Sequence[OffsetRange]
) -> None:
    """Show the committed offsets to lag tools as the consumer group ``tally-<pipeline>``.

    A courtesy after the commit: what fails here is logged and changes nothing.
    """
    topics = {r.partition.topic for r in ranges}
    try:
        with transaction(settings.mysql, read_only=True) as tx:
            offsets = positions.current_offsets(tx, pipeline)
        kafka.commit_offsets(
            f"tally-{pipeline}", {p: o for p, o in offsets.items() if p.topic in topics}
        )
    except TallyError as error:
        log.warning("offsets_not_mirrored", extra={"pipeline": pipeline, "cause": error.what})


def fingerprint(pipeline: Pipeline) -> str:
    """What a pipeline counts, as a short stable string: the line format and the levels."""
    counted = f"{pipeline.format.fingerprint()} {sorted(set(pipeline.levels))}"
    return hashlib.sha256(counted.encode()).hexdigest()[:16]


def whoami() -> str:
    """``user@host:pid``, for the ledger."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a passwd entry
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}:{os.getpid()}"
