"""Lost ranges: listing them, and recording an operator's decision about them."""

from dataclasses import dataclass

from tally.context import Context
from tally.ledger import decisions
from tally.ledger.decisions import LossRecord, find_losses
from tally.ledger.positions import lock_pipeline
from tally.mysql.transactions import Transaction


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
        found = find_losses(tx, pipeline, only_open=only_open)
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
