"""What only an operator decides: about lost records, re-created topics and planned batches."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from tally.context import Context, Transaction
from tally.errors import MissingTopicError, UsageError
from tally.ledger import batches, decisions, replays
from tally.ledger.decisions import AdoptionView, LossRecord, LostView, StartView, starts_of
from tally.ledger.positions import known_topics, lock_pipeline
from tally.ledger.replays import ReplayRecord
from tally.model import BatchKind, KafkaSnapshot, OffsetRange, TopicPartition
from tally.planning.blocks import create_topic
from tally.planning.ingest import first_offsets
from tally.views import view_of


@dataclass(frozen=True, kw_only=True, slots=True)
class LossesView:
    """Lost ranges of a pipeline."""

    pipeline: str
    """The pipeline."""
    losses: tuple[LossRecord, ...]
    """Oldest first."""


def losses(
    ctx: Context,
    pipeline: str,
    *,
    only_open: bool = False,
    topic: str | None = None,
    partition: int | None = None,
) -> LossesView:
    """The pipeline's lost ranges, oldest first.

    Args:
        ctx: What is needed from outside.
        pipeline: The pipeline.
        only_open: Whether only open losses are listed.
        topic: Only of this topic.
        partition: Only of the partitions with this number.

    Raises:
        MySQLUnavailableError: The server did not answer.
    """
    with ctx.database.transaction(read_only=True) as tx:
        found = decisions.find_losses(tx, pipeline, only_open=only_open)
    return LossesView(
        pipeline=pipeline,
        losses=tuple(
            loss
            for loss in found
            if topic in {None, loss.range.partition.topic}
            and partition in {None, loss.range.partition.partition}
        ),
    )


def decide_losses(
    ctx: Context, seen: LossesView, *, accept: bool, reason: str, dry_run: bool = False
) -> None:
    """Accept losses exactly as they were seen, or note that they stay open, in one transaction.

    Args:
        ctx: What is needed from outside; the ledger records its requester as who has decided.
        seen: The losses as they were shown; the decision is about exactly these.
        accept: Whether they are accepted, so that counting continues after them; else they stay
            open.
        reason: Why; kept in the ledger.
        dry_run: Whether nothing is changed.

    Raises:
        UsageError: One of them has grown, or was decided meanwhile. Nothing is changed.
    """
    pipeline = ctx.settings.pipeline(seen.pipeline)

    def work(tx: Transaction) -> None:
        lock_pipeline(tx, pipeline.name, pipeline.table)
        by = ctx.requester.name
        decisions.decide_losses(tx, pipeline.name, seen.losses, accept=accept, by=by, reason=reason)

    ctx.database.run(work, dry_run=dry_run)


Start = str | datetime | Mapping[int, int]
"""Where counting of a new generation begins: ``earliest``, ``latest``, at the first record at or
after a time, or at the offset of each partition."""


def preview_adoption(
    ctx: Context, name: str, topic: str, *, start: Start = "earliest", reason: str
) -> AdoptionView:
    """What adopting a topic as Kafka shows it now would mean; nothing is changed.

    Args:
        ctx: What is needed from outside.
        name: The pipeline.
        topic: One of its topics.
        start: Where counting begins in a generation that is new.
        reason: Why it would be adopted.

    Raises:
        UsageError: The pipeline does not read the topic, the ledger does not know it, or follows
            this generation already; or Kafka has no such offset, or none is to be chosen.
        MissingTopicError: Kafka does not know it.
    """
    return adopt(ctx, adoption_of(ctx, name, topic, start=start), reason=reason, dry_run=True)


def _with_overlap(
    ctx: Context, kafka: KafkaSnapshot, shown: AdoptionView, through: datetime
) -> AdoptionView:
    """With what would be counted twice or never if the records are copies with their timestamps."""
    places = {
        TopicPartition(topic=shown.topic, partition=one.partition): one.offset
        for one in shown.partitions
    }
    begins = {place: offset for place, offset in places.items() if kafka.partition(place)}
    found = ctx.kafka.offsets_at(begins, through)
    meets = first_offsets(kafka, [shown.topic], "timestamp", found)
    return replace(
        shown,
        counted_through=through,
        counted_twice=sum(max(0, meets[p] - begin) for p, begin in begins.items()),
        never_counted=sum(max(0, begin - meets[p]) for p, begin in begins.items()),
        behind=tuple(sorted(p.partition for p in begins if found.get(p) is None)),
    )


def adoption_of(ctx: Context, name: str, topic: str, *, start: Start = "earliest") -> AdoptionView:
    """A topic as Kafka shows it now, where counting would begin in it, and what that means.

    What the ledger would accept as lost with it only :func:`preview_adoption` knows.

    Raises:
        UsageError: The pipeline does not read the topic, Kafka has no such offset, or offsets are
            given for a generation that was current before, which resumes.
        MissingTopicError: Kafka does not know it.
    """
    pipeline = ctx.settings.pipeline(name)
    if topic not in pipeline.topics:
        raise UsageError(
            f"pipeline {pipeline.name} does not read the topic {topic}",
            next_step=f"its topics are: {', '.join(pipeline.topics)}",
        )
    kafka = ctx.kafka.snapshot([topic], read_committed=pipeline.reads_committed)
    if topic not in kafka.topics:
        raise MissingTopicError(
            f"Kafka has no topic {topic}; there is nothing to adopt",
            next_step=create_topic(topic),
        )
    starts = {where.partition: at for where, at in _starts(ctx, kafka, topic, start).items()}
    shown = AdoptionView(
        pipeline=pipeline.name,
        topic=topic,
        topic_id=kafka.topics[topic].topic_id,
        cluster_id=kafka.cluster_id,
        start=_in_words(start),
        partitions=starts_of(starts),
    )
    with ctx.database.transaction(read_only=True) as tx:
        resumes = decisions.offsets_before(tx, name, topic, shown)
        through = decisions.counted_through(tx, name, topic)
    if resumes and isinstance(start, Mapping):
        raise UsageError(
            f"{topic} with the id {shown.topic_id} was followed before: counting resumes where it "
            "stopped, and nowhere else",
            next_step="leave --offset out",
        )
    if resumes:
        shown = replace(shown, was_followed_before=True, partitions=starts_of(resumes))
    return shown if through is None else _with_overlap(ctx, kafka, shown, through)


def _starts(
    ctx: Context, kafka: KafkaSnapshot, topic: str, start: Start
) -> dict[TopicPartition, int]:
    """Where counting would begin in each partition.

    Raises:
        UsageError: Kafka has no such offset.
    """
    if isinstance(start, str):
        return first_offsets(kafka, [topic], start, {})
    held = {
        TopicPartition(topic=topic, partition=n): of
        for n, of in kafka.topics[topic].partitions.items()
    }
    if isinstance(start, datetime):
        return first_offsets(kafka, [topic], "timestamp", ctx.kafka.offsets_at(held, start))
    starts = {where: start.get(where.partition) for where in held}
    wrong = [
        f"{where}: Kafka has [{held[where].earliest}, {held[where].written_end})"
        for where, at in starts.items()
        if at is None or not held[where].earliest <= at <= held[where].written_end
    ]
    wrong += [
        f"{topic}/{n}: Kafka has no such partition"
        for n in start
        if n not in kafka.topics[topic].partitions
    ]
    if wrong:
        raise UsageError(
            f"each partition needs an offset that Kafka has: {'; '.join(wrong)}",
            next_step="--offset NUMBER=OFFSET for each partition",
        )
    return {where: at for where, at in starts.items() if at is not None}


def _in_words(start: Start) -> str:
    if isinstance(start, datetime):
        return start.isoformat()
    return start if isinstance(start, str) else "offsets"


def is_followed(ctx: Context, shown: AdoptionView) -> bool:
    """Whether the ledger follows this generation of the topic."""
    with ctx.database.transaction(read_only=True) as tx:
        known = known_topics(tx, shown.pipeline).get(shown.topic)
    return known is not None and (known.topic_id, known.cluster_id) == (
        shown.topic_id,
        shown.cluster_id,
    )


def adopt(ctx: Context, shown: AdoptionView, *, reason: str, dry_run: bool = False) -> AdoptionView:
    """Follow exactly the generation that was shown; what was counted before stays counted.

    Args:
        ctx: What is needed from outside.
        shown: The generation, as a preview has shown it.
        reason: Why; kept in the ledger.
        dry_run: Whether nothing is changed.

    Raises:
        UsageError: The ledger does not know the topic, or follows this generation already.
    """
    pipeline = ctx.settings.pipeline(shown.pipeline)

    def work(tx: Transaction) -> tuple[tuple[StartView, ...], list[LossRecord]]:
        lock_pipeline(tx, pipeline.name, pipeline.table)
        before = {loss.lost_range_id for loss in _accepted(tx, pipeline.name)}
        by = ctx.requester.name
        starts = decisions.adopt_topic(tx, shown, by=by, reason=reason)
        accepted = _accepted(tx, pipeline.name)
        return starts, [loss for loss in accepted if loss.lost_range_id not in before]

    starts, lost = ctx.database.run(work, dry_run=dry_run)
    return replace(
        shown,
        partitions=starts,
        lost=tuple(view_of(LostView, loss) for loss in lost),
        adopted=not dry_run,
    )


def _accepted(tx: Transaction, pipeline: str) -> list[LossRecord]:
    return [loss for loss in decisions.find_losses(tx, pipeline) if loss.state == "accepted"]


@dataclass(frozen=True, kw_only=True, slots=True)
class AbandonedView:
    """An abandoned batch; after a dry run, one that would be abandoned."""

    batch_id: int
    """The ledger's key."""
    pipeline: str
    """The pipeline."""
    kind: BatchKind
    """An ingest batch moves offsets, a replay batch does not."""
    dry_run: bool
    """Whether nothing was changed."""
    ranges: tuple[OffsetRange, ...]
    """The ranges that it was planned to read."""

    @property
    def offsets(self) -> int:
        """How many offsets it spans."""
        return sum(r.offsets for r in self.ranges)


def abandon(ctx: Context, batch_id: int, *, reason: str, dry_run: bool = False) -> AbandonedView:
    """Abandon a planned batch; no attempt can commit it any more.

    Args:
        ctx: What is needed from outside.
        batch_id: The ledger's key.
        reason: Why; kept in the ledger.
        dry_run: Whether nothing is changed.

    Raises:
        UnknownBatchError: The ledger has no batch with this id.
        FencedError: It was abandoned already.
        UsageError: It is committed.
    """
    batch = ctx.database.run(
        lambda tx: batches.abandon(tx, batch_id, by=ctx.requester.name, reason=reason),
        dry_run=dry_run,
    )
    return view_of(AbandonedView, batch, dry_run=dry_run)


def cancel_replay(
    ctx: Context, replay_id: int, *, reason: str, dry_run: bool = False
) -> tuple[ReplayRecord, list[int]]:
    """Abandon the planned batches of a replay; its committed batches stay.

    Args:
        ctx: What is needed from outside.
        replay_id: The ledger's key.
        reason: Why; kept in the ledger.
        dry_run: Whether nothing is changed.

    Returns:
        The replay as it then is, and the batches that are abandoned with it.

    Raises:
        UnknownReplayError: The ledger has no replay with this id.
        FencedError: It has no planned batch.
    """
    with ctx.database.transaction(read_only=True) as tx:
        pipeline = ctx.settings.pipeline(replays.find_replay(tx, replay_id).pipeline)

    def work(tx: Transaction) -> tuple[ReplayRecord, list[int]]:
        lock_pipeline(tx, pipeline.name, pipeline.table)
        abandoned = replays.cancel(tx, replay_id, by=ctx.requester.name, reason=reason)
        return replays.find_replay(tx, replay_id), abandoned

    return ctx.database.run(work, dry_run=dry_run)
