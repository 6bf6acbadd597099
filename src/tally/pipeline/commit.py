"""Committing a batch exactly once, also when the answer to COMMIT is lost."""

from tally.config.pipeline import Pipeline
from tally.deliveries.choice import delivery_of
from tally.deliveries.contract import Result
from tally.errors import MySQLUnavailableError, OutcomeUnknownError, TransactionRetryError
from tally.ledger.batches import find_batch
from tally.ledger.commit import lock_attempt
from tally.model import Batch
from tally.mysql.errors import CommitUnansweredError
from tally.mysql.transactions import TRANSACTION_TRIES, Transaction
from tally.pipeline.context import Context
from tally.pipeline.publish import store_of


def commit_once(ctx: Context, batch: Batch, pipeline: Pipeline, result: Result) -> bool:
    """Commit the batch; when the answer to COMMIT is lost, ask the ledger whether it was applied.

    Returns:
        Whether this call committed it; False when it was committed before.

    Raises:
        FencedError: A newer attempt owns the batch, or it was abandoned.
        MySQLUnavailableError: The connection broke at every COMMIT, and the ledger says that none
            was applied.
        OutcomeUnknownError: The ledger could not be asked in time.
    """
    delivery = delivery_of(pipeline)

    def work(tx: Transaction) -> bool:
        committed = delivery.commit(tx, batch, result)
        if committed and result.row_set is not None:
            # While the batch's row is locked: no newer attempt can drop the set.
            store = store_of(ctx, pipeline)
            if store is not None:
                store.check_sealed(result.row_set)
        return committed

    for _ in range(TRANSACTION_TRIES):
        try:
            return ctx.database.run(work)
        except CommitUnansweredError as error:
            unanswered = error
            if (committed := _ask_outcome(ctx, batch)) is not None:
                return committed
    raise MySQLUnavailableError(
        f"batch {batch.batch_id}: the connection broke at COMMIT {TRANSACTION_TRIES} times in a "
        "row, and the ledger says that nothing was committed",
        next_step=f"tally run {batch.batch_id} once MySQL keeps its connections; it is safe",
    ) from unanswered


def _ask_outcome(ctx: Context, batch: Batch) -> bool | None:
    """Whether our COMMIT was applied; None when it was rolled back and the batch is still ours.

    False when it was rolled back and another attempt has committed the batch since.

    The batch's row is locked for the question. A server that still works on the COMMIT holds that
    lock, so the answer is final.
    """
    deadline = ctx.clock.monotonic() + ctx.patience.outcome_s
    while True:
        try:
            with ctx.database.transaction(keep=False) as tx:
                if lock_attempt(tx, batch):
                    return None
                return find_batch(tx, batch.batch_id).claim == batch.claim
        except (MySQLUnavailableError, TransactionRetryError) as error:
            if ctx.clock.monotonic() > deadline:
                raise OutcomeUnknownError(
                    f"batch {batch.batch_id}: the answer to COMMIT was lost and the ledger does "
                    f"not say what became of it: {error.what}",
                    next_step=f"tally run {batch.batch_id} once MySQL answers; it is safe",
                ) from error
            ctx.clock.sleep(ctx.patience.doubt_pause_s)
