"""The data of the status page, by pipeline. Imports MySQL."""

from collections.abc import Mapping
from dataclasses import dataclass

from tally.app.batches import BatchesRequest, batches
from tally.app.engine import engine_error
from tally.app.health import Surroundings
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


def read_page(ctx: Context, paused: Mapping[str, bool]) -> list[PipelinePage]:
    """Pipelines as the ledger has them; Kafka is not asked, the engine is.

    Args:
        ctx: What is needed from outside.
        paused: The pipelines to read, each with whether Airflow has paused its DAG.

    Raises:
        MySQLUnavailableError: The server did not answer.
        OperatorError: The ledger is not migrated or access is denied.
    """
    error = engine_error(ctx.settings.spark)
    return [
        PipelinePage(
            status=status(
                ctx,
                StatusRequest(
                    pipeline=name,
                    ask_kafka=False,
                    surroundings=Surroundings(paused=is_paused, engine_error=error),
                ),
            ),
            batches=batches(ctx, BatchesRequest(pipeline=name, limit=BATCHES_SHOWN)).batches,
        )
        for name, is_paused in paused.items()
    ]
