"""What the status page shows of each pipeline, from one look at the ledger. Imports MySQL."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from tally.ledger.batches import find_open_ingest
from tally.ledger.decisions import LossRecord, find_losses
from tally.ledger.positions import known_topics
from tally.ledger.reading import BatchRecord, list_batches
from tally.model import Batch, TopicPartition
from tally.mysql.transactions import Transaction
from tally.pipeline.context import Context

BATCHES_SHOWN = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionStatus:
    """Where one partition stands."""

    partition: TopicPartition
    """Which."""
    start_offset: int
    """Where its counting began."""
    next_offset: int
    """First offset that is not counted yet."""
    planned_until: int | None
    """Where the open batch ends, None when it does not touch the partition."""

    @property
    def planned_offsets(self) -> int:
        """How far the ledger knows the partition to be behind: what is planned, not yet counted."""
        return 0 if self.planned_until is None else self.planned_until - self.next_offset


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineStatus:
    """Where one pipeline stands."""

    name: str
    """The pipeline."""
    table: str
    """Its result table."""
    partitions: tuple[PartitionStatus, ...]
    """In order of topic and number."""
    losses: tuple[LossRecord, ...]
    """Open ones, that make its runs red."""
    batches: tuple[BatchRecord, ...]
    """The latest, newest first."""

    @property
    def last_commit(self) -> datetime | None:
        """When the newest of the batches shown was committed."""
        return max((b.committed_at for b in self.batches if b.committed_at), default=None)


def read_status(ctx: Context, names: Sequence[str]) -> list[PipelineStatus]:
    """The named pipelines, all as of one moment.

    Raises:
        MySQLUnavailableError: The server did not answer.
        OperatorError: The ledger is not migrated or access is denied.
    """
    with ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
        return [_pipeline(tx, ctx, name) for name in names]


def _pipeline(tx: Transaction, ctx: Context, name: str) -> PipelineStatus:
    return PipelineStatus(
        name=name,
        table=ctx.settings.pipeline(name).table,
        partitions=tuple(_partitions(tx, name)),
        losses=tuple(find_losses(tx, name, only_open=True)),
        batches=tuple(list_batches(tx, name, limit=BATCHES_SHOWN)),
    )


def _partitions(tx: Transaction, name: str) -> Iterator[PartitionStatus]:
    planned = _planned_ends(find_open_ingest(tx, name))
    for topic, known in sorted(known_topics(tx, name).items()):
        for number, position in sorted(known.positions.items()):
            partition = TopicPartition(topic=topic, partition=number)
            yield PartitionStatus(
                partition=partition,
                start_offset=position.start_offset,
                next_offset=position.next_offset,
                planned_until=planned.get(partition),
            )


def _planned_ends(batch: Batch | None) -> dict[TopicPartition, int]:
    segments = batch.segments if batch else ()
    return {segment.range.partition: segment.range.until_offset for segment in segments}
