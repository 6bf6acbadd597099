"""What the ledger holds about a pipeline, as its status needs it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from tally.aggregates.fingerprint import fingerprint
from tally.config.pipeline import Pipeline
from tally.errors import ConfigError, SchemaError
from tally.ledger.batches import find_open_ingest
from tally.ledger.decisions import find_losses
from tally.ledger.line_sets import NOTHING_UNSHOWN, Unshown, check_lines, unshown
from tally.ledger.positions import known_topics
from tally.ledger.records import BatchRecord, batch_record, last_committed
from tally.ledger.rules import (
    NOTHING_READ,
    Understood,
    alternating,
    first_recent,
    recently_understood,
)
from tally.ledger.tables import check_prepared, tables_to_read
from tally.losses.losses import LossView
from tally.model import Batch, KnownTopic, TopicPartition
from tally.mysql.transactions import Transaction
from tally.views import ErrorView


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerState:
    """What the ledger holds about a pipeline, in one snapshot."""

    known: Mapping[str, KnownTopic]
    """Its topics, by name."""
    open_batches: tuple[Batch, ...] = ()
    """The minute batches that are planned and not committed: at most one, or one of each
    partition."""
    open_records: tuple[BatchRecord, ...] = ()
    """The same batches, as they are shown."""
    last: BatchRecord | None = None
    """The minute batch that was committed last."""
    losses: tuple[LossView, ...] = ()
    """Lost ranges that wait for a decision."""
    understood: Understood = NOTHING_READ
    """What the latest batches under today's rules have read."""
    alternating: tuple[str, ...] = ()
    """Who has counted the latest batches, where these follow two rules in turn."""
    unshown: Unshown = NOTHING_UNSHOWN
    """What is committed, and not shown to readers of its lines."""
    unprepared: ErrorView | None = None
    """Why its tables do not hold what the configuration counts; None when they do."""

    @classmethod
    def read(cls, tx: Transaction, of: Pipeline) -> Self:
        """The state now."""
        pipeline = of.name
        recent = first_recent(tx, pipeline)
        open_batches = tuple(find_open_ingest(tx, pipeline))
        return cls(
            known=known_topics(tx, pipeline),
            open_batches=open_batches,
            open_records=tuple(batch_record(tx, batch.batch_id) for batch in open_batches),
            last=last_committed(tx, pipeline),
            losses=tuple(map(LossView.loss, find_losses(tx, pipeline, only_open=True))),
            understood=recently_understood(tx, pipeline, fingerprint(of), recent),
            alternating=alternating(tx, pipeline, recent),
            unshown=unshown(tx, pipeline),
            unprepared=_why_unprepared(tx, of),
        )

    @property
    def last_planned_at(self) -> datetime | None:
        """When the newest minute batch was planned; None before the first one."""
        newest = (*self.open_records, *([self.last] if self.last else []))
        return max((batch.planned_at for batch in newest), default=None)

    def planned_until(self, where: TopicPartition) -> int | None:
        """Where the open batch of a partition ends; None when none reads it."""
        segments = (s for batch in self.open_batches for s in batch.segments)
        return next((s.range.until_offset for s in segments if s.range.partition == where), None)


def _why_unprepared(tx: Transaction, pipeline: Pipeline) -> ErrorView | None:
    try:
        check_lines(tx, tables_to_read(tx, pipeline), pipeline)
        check_prepared(tx, pipeline)
    except (ConfigError, SchemaError) as error:
        return ErrorView.of(error)
    return None
