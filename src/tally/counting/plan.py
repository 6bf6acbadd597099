"""Planning what a minute counts: fixing the ranges that it reads, before anything is read."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Self

from tally import model
from tally.config.names import mirror_group
from tally.config.pipeline import Pipeline
from tally.context import Context, Transaction
from tally.deliveries.kept_lines import delivery_of
from tally.errors import AccessDeniedError, TransactionRetryError
from tally.formatting import plural
from tally.ledger import alerts, batches, positions, progress, tables
from tally.ledger.line_sets import ledger_id, record_rows_view
from tally.planning import ingest
from tally.planning.blocks import Block
from tally.planning.completeness import has_fallen, newly_seen
from tally.views import view_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedBatch:
    """A planned batch with its ranges."""

    batch_id: int | None
    """The ledger's key; null for a batch that a dry run would plan."""
    pipeline: str
    """The pipeline."""
    kind: model.BatchKind
    """``ingest``."""
    state: model.BatchState
    """``planned``."""
    attempt: int
    """How many attempts have claimed it."""
    planned_at: datetime
    """When its ranges were fixed."""
    offsets: int
    """How many offsets it spans."""
    ranges: tuple[model.OffsetRange, ...]
    """What it reads."""

    @classmethod
    def of(cls, batch: model.Batch, *, is_written: bool) -> Self:
        """The batch, with its id where that is valid."""
        return view_of(cls, batch, batch_id=batch.batch_id if is_written else None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """The outcome of planning."""

    pipeline: str
    """The pipeline."""
    dry_run: bool
    """Whether nothing was changed."""
    batches: tuple[PlannedBatch, ...]
    """What is to be run: one batch, or with `delivery = "partition"` one of each partition; empty
    when nothing is new."""
    resumed: bool
    """Whether one of them was planned before."""
    abandoned: tuple[str, ...]
    """Why an open batch was abandoned; empty when none was."""
    blocks: tuple[Block, ...]
    """What is not read, and why."""

    @property
    def title(self) -> str:
        """The outcome in one line."""
        if not self.batches:
            return f"{self.pipeline}: {'nothing planned' if self.blocks else 'nothing new'}"
        if self.dry_run and not self.resumed:
            what = "a batch" if len(self.batches) == 1 else plural(len(self.batches), "batch")
            return f"{self.pipeline}: {what} would be planned: {self.extent}"
        return f"{named_batches(self.batch_ids)} of {self.pipeline} {self.verb}: {self.extent}"

    @property
    def verb(self) -> str:
        """What becomes of the batches: ``is planned``, ``are resumed``."""
        are = "would be" if self.dry_run else "is" if len(self.batches) == 1 else "are"
        return f"{are} {'resumed' if self.resumed else 'planned'}"

    @property
    def batch_ids(self) -> list[int]:
        """The ledger's keys of the batches that are recorded there."""
        return [batch.batch_id for batch in self.batches if batch.batch_id is not None]

    @property
    def ranges(self) -> list[model.OffsetRange]:
        """What the batches read."""
        return [r for batch in self.batches for r in batch.ranges]

    @property
    def extent(self) -> str:
        """The size of the batches: ``4 partitions, 1,000 offsets``."""
        offsets = sum(batch.offsets for batch in self.batches)
        return f"{plural(len(self.ranges), 'partition')}, {plural(offsets, 'offset')}"


def named_batches(batch_ids: Sequence[int]) -> str:
    """``batch 3``, or ``batches 3, 4``."""
    noun = "batch" if len(batch_ids) == 1 else "batches"
    return f"{noun} {', '.join(map(str, batch_ids))}"


def plan(ctx: Context, name: str, *, dry_run: bool = False) -> Planned:
    """Plan the pipeline's next batch, or resume the open one; or those of its partitions.

    Safe to call at any time and concurrently: the ledger serialises planners, and there is at most
    one open ingest batch, or one of each partition. With ``dry_run`` the answer is the same and
    nothing is written; the id of a new batch is then not valid.

    Raises:
        UnknownPipelineError: No such pipeline is configured.
        RetryableError: Kafka or MySQL did not answer, or the ledger has changed each time while
            Kafka was asked; nothing was written.
        ConfigError: The pipeline has counted into another table, or by another measure.
        OperatorError: The schema is not migrated, a label has no column yet, or access is denied.
    """
    pipeline = ctx.settings.pipeline(name)
    if not dry_run:  # an earlier run may have been killed between its commit and this
        delivery_of(ctx, pipeline).show()
    for tries_left in reversed(range(ctx.patience.doubt_tries)):
        asked = _ask_kafka(ctx, pipeline)
        work = partial(_plan, ctx, pipeline, asked, not tries_left, dry_run)
        planned = ctx.database.run(work, dry_run=dry_run)
        if planned is not None:
            return planned
        ctx.clock.sleep(ctx.patience.doubt_pause_s)
    raise TransactionRetryError(
        f"pipeline {name}: the ledger has changed each time while Kafka was asked",
        next_step=f"tally plan {name}",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    """What Kafka has answered."""

    at: datetime
    """A moment before, by the clock of the ledger's server."""
    known: Mapping[str, model.KnownTopic]
    """The topics that the ledger knew before."""
    kafka: model.KafkaSnapshot
    """The answer."""
    decide: Callable[[Mapping[str, model.KnownTopic]], ingest.Plan]
    """From the topics that the ledger knows, what the next batch reads."""


def _ask_kafka(ctx: Context, pipeline: Pipeline) -> _Asked:
    """Ask Kafka for everything, before the planning transaction takes its locks."""
    with ctx.database.transaction(read_only=True) as tx:
        asked_at = progress.now(tx)
        known = positions.known_topics(tx, pipeline.name)
        open_batches = batches.find_open_ingest(tx, pipeline.name)
        # Here, as the planning transaction may have to wait for others, who may wait to alter them.
        tables.check_there(tx, tables.tables_to_read(tx, pipeline), pipeline.name)
    open_topics = {s.range.partition.topic for b in open_batches for s in b.segments}
    snapshot = ctx.kafka.snapshot(
        sorted({*pipeline.topics, *open_topics}),
        read_committed=pipeline.reads_committed,
    )
    new = [topic for topic in pipeline.topics if topic not in known]
    starts = _starts(ctx, pipeline, snapshot, new) if new else {}
    counted_before = _counted_before(ctx, pipeline, new) if new else ()
    return _Asked(
        at=asked_at,
        known=known,
        kafka=snapshot,
        decide=lambda known: ingest.plan_ingest(
            pipeline, known=known, kafka=snapshot, starts=starts, counted_before=counted_before
        ),
    )


def _counted_before(ctx: Context, pipeline: Pipeline, new: Sequence[str]) -> frozenset[str]:
    """New topics of which this ledger has mirrored offsets: it was restored since.

    Without the right to read the group there is no warning.
    """
    with ctx.database.transaction(read_only=True) as tx:
        ledger = ledger_id(tx)
    try:
        notes = ctx.kafka.notes_of(mirror_group(pipeline.name))
    except AccessDeniedError as error:
        log.warning("mirror_not_read", extra={"pipeline": pipeline.name, "cause": error.what})
        return frozenset()
    return frozenset(p.topic for p, note in notes.items() if note == ledger and p.topic in new)


def _plan(
    ctx: Context,
    pipeline: Pipeline,
    asked: _Asked,
    believe: bool,
    dry_run: bool,
    tx: Transaction,
) -> Planned | None:
    """One planning transaction; None when Kafka's answer is doubtful and must be asked again.

    An answer that the ledger has overtaken since is never believed where it is doubtful.

    It locks the open batches first. From then on no commit can move an offset of theirs, and others
    have none to move, so the positions that it reads next stay valid.
    """
    positions.lock_pipeline(tx, pipeline.name, pipeline.table)
    own = tables.tables_of(tx, pipeline.name)
    tables.check_tables(tx, own, pipeline)
    record_rows_view(tx, own, pipeline)
    open_batches = batches.find_open_ingest(tx, pipeline.name, lock=True)
    known = positions.known_topics(tx, pipeline.name)
    found = asked.decide(known)
    seen = newly_seen(known, asked.kafka, found.blocks)
    now = ctx.clock.now()
    causes = {
        b.batch_id: ingest.offset_conflicts(b.segments, known)
        + ingest.unreadable(b.segments, asked.kafka, still_held=not _is_at_work(b, pipeline, now))
        for b in open_batches
    }
    is_doubtful = found.doubtful or any(causes.values())
    is_doubtful |= has_fallen(known, asked.kafka, found.blocks)
    is_believed = believe and known == asked.known  # what was counted since is not in the answer
    is_restored = asked.known.keys() - known.keys()  # where it begins was not asked for
    if is_restored or (is_doubtful and not is_believed):
        return None

    resumed = [b for b in open_batches if not causes[b.batch_id]]
    for batch_id, why in causes.items():
        if why:
            reason = f"it can no longer be counted: {'; '.join(why)}"[:1000]
            batches.abandon(tx, batch_id, by=ctx.requester.name, reason=reason)
    if resumed:
        busy = [segment for b in resumed for segment in b.segments]
        found = ingest.beside(found, busy, by_partition=pipeline.commits_by_partition)
    new = positions.write_plan(tx, pipeline, found, known, asked.kafka, ctx.requester)
    progress.see(tx, pipeline.name, seen, asked.at)
    progress.advance(tx, pipeline, plans=True)
    alerts.judge(tx, own, pipeline, has_found=bool(new))
    planned = [*resumed, *(batches.find_batches(tx, new) if new else ())]
    return Planned(
        pipeline=pipeline.name,
        dry_run=dry_run,
        batches=tuple(
            PlannedBatch.of(b, is_written=not (dry_run and b.batch_id in new)) for b in planned
        ),
        resumed=bool(resumed),
        blocks=tuple(found.blocks),
        abandoned=tuple(cause for why in causes.values() for cause in why),
    )


def _is_at_work(batch: model.Batch, pipeline: Pipeline, now: datetime) -> bool:
    """Whether an attempt runs: it may have read what retention has deleted, which is no cause."""
    patience = timedelta(seconds=pipeline.patience_s)
    return batch.claimed_at is not None and now - batch.claimed_at < patience


def _starts(
    ctx: Context, pipeline: Pipeline, snapshot: model.KafkaSnapshot, new: Sequence[str]
) -> dict[model.TopicPartition, int] | None:
    """First offsets of new topics; None while the start time is in the future."""
    start = pipeline.start
    if not isinstance(start, datetime):
        return ingest.first_offsets(snapshot, new, start, {})
    if start > ctx.clock.now():
        return None
    wanted = [
        model.TopicPartition(topic=topic, partition=number)
        for topic in new
        if topic in snapshot.topics
        for number in snapshot.topics[topic].partitions
    ]
    return ingest.first_offsets(snapshot, new, "timestamp", ctx.kafka.offsets_at(wanted, start))
