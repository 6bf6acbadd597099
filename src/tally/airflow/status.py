"""The data of the status page, by pipeline. Imports MySQL."""

from collections.abc import Sequence
from dataclasses import dataclass

from tally.app.batches import BatchesRequest, batches
from tally.app.status import StatusRequest, StatusView, status
from tally.ledger.reading import BatchRecord
from tally.pipeline.context import Context

BATCHES_SHOWN = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelinePage:
    """One pipeline on the page."""

    status: StatusView
    """Its status, from the ledger alone."""
    batches: tuple[BatchRecord, ...]
    """Its latest batches, newest first."""


def read_page(ctx: Context, names: Sequence[str]) -> list[PipelinePage]:
    """The named pipelines; Kafka is not asked.

    Raises:
        MySQLUnavailableError: The server did not answer.
        OperatorError: The ledger is not migrated or access is denied.
    """
    return [
        PipelinePage(
            status=status(ctx, StatusRequest(pipeline=name, ask_kafka=False)),
            batches=batches(ctx, BatchesRequest(pipeline=name, limit=BATCHES_SHOWN)).batches,
        )
        for name in names
    ]
