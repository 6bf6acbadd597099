"""The batches that were committed since the last call."""

from typing import Final

from tally.ledger.reading import BatchRecord, batch_record, list_batches
from tally.model import BatchState
from tally.mysql.transactions import Database

_ALL: Final = 1_000_000


class Commits:
    """Finds each batch that is committed from now on, once.

    Their order is not that of their ids: a replay's batches are planned together, and minute
    batches are committed between them.

    Args:
        database: Where the ledger is.
        pipeline: Whose batches.
    """

    def __init__(self, database: Database, pipeline: str) -> None:
        self._database = database
        self._pipeline = pipeline
        with database.transaction(read_only=True) as tx:
            newest = list_batches(tx, pipeline, limit=1)
            planned = list_batches(tx, pipeline, state=BatchState.PLANNED, limit=_ALL)
        self._last = newest[0].batch_id if newest else 0
        self._planned = {batch.batch_id for batch in planned}

    def new(self) -> list[BatchRecord]:
        """Those that were committed since the last call, in the order of their commits."""
        with self._database.transaction(isolation="repeatable read", read_only=True) as tx:
            came = list_batches(tx, self._pipeline, after=self._last, limit=_ALL)
            planned = list_batches(tx, self._pipeline, state=BatchState.PLANNED, limit=_ALL)
            still = {batch.batch_id for batch in planned}
            ended = [batch_record(tx, number) for number in self._planned - still]
        self._last = max([self._last, *(batch.batch_id for batch in came)])
        self._planned = still
        return sorted(
            (batch for batch in (*came, *ended) if batch.committed_at),
            key=lambda batch: (batch.committed_at, batch.batch_id),
        )
