"""What the tasks about losses ask of the ledger. For running tasks only, as ``work`` is."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tally.errors import UsageError
from tally.ledger.decisions import LossRecord, accept_losses, find_losses, keep_blocked
from tally.ledger.positions import lock_pipeline
from tally.model import Loss
from tally.mysql.transactions import Transaction
from tally.pipeline.context import Context
from tally.planning.blocks import lost


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenLosses:
    """The open losses, as Airflow stores and shows them."""

    losses: list[dict[str, Any]]
    """By number: what a decision is compared with."""
    text: str
    """For the log and the question; Markdown."""

    def to_xcom(self) -> dict[str, Any]:
        """As a plain dictionary."""
        return asdict(self)


def open_losses(ctx: Context, pipeline: str) -> OpenLosses:
    """What waits for a decision."""
    with ctx.database.transaction(read_only=True) as tx:
        found = find_losses(tx, pipeline, only_open=True)
    if not found:
        return OpenLosses(losses=[], text=f"{pipeline} has no open losses")
    return OpenLosses(losses=[_seen(loss) for loss in found], text=_question(pipeline, found))


def settle(
    ctx: Context,
    pipeline: str,
    shown: Sequence[dict[str, Any]],
    *,
    accept: bool,
    by: str,
    reason: str,
) -> str:
    """Accept the losses exactly as they were shown, or note that they stay open.

    The same answer may be given again: whether it was written before or not, it holds once.

    Returns:
        What was done, in a sentence.

    Raises:
        UsageError: One of them is not what was shown any more. Nothing is changed.
    """
    table = ctx.settings.pipeline(pipeline).table

    def work(tx: Transaction) -> list[LossRecord]:
        lock_pipeline(tx, pipeline, table)
        now = {loss.lost_range_id: loss for loss in find_losses(tx, pipeline, lock=True)}
        seen = [now[loss["lost_range_id"]] for loss in shown if loss["lost_range_id"] in now]
        ours = all((loss.decided_by, loss.reason) == (by, reason) for loss in seen)
        if accept and ours and [_seen(loss) for loss in seen] == _as_accepted(shown):
            return seen  # by a try before this one, whose COMMIT was not answered
        if [_seen(loss) for loss in seen] != list(shown):
            raise UsageError(
                f"the losses of {pipeline} are not what you were shown any more: one has grown, or "
                "somebody else has decided it; nothing was decided",
                next_step="trigger the DAG again: it shows them as they are now",
            )
        decide = accept_losses if accept else keep_blocked
        decide(tx, pipeline, seen, by=by, reason=reason)
        return seen

    ranges = ", ".join(str(loss.range) for loss in ctx.database.run(work))
    if accept:
        return f"accepted by {by}: {ranges}; counting goes on with the next run of {pipeline}"
    return f"left open by {by}: {ranges}; runs of {pipeline} stay red"


def _seen(loss: LossRecord) -> dict[str, Any]:
    return {
        "lost_range_id": loss.lost_range_id,
        "range": str(loss.range),
        "cause": str(loss.cause),
        "state": loss.state,
    }


def _as_accepted(shown: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**loss, "state": "accepted"} for loss in shown]


def _question(pipeline: str, found: Sequence[LossRecord]) -> str:
    rows = [
        f"| {loss.range.partition} | {loss.range.offsets:,} | {_what_happened(pipeline, loss)} "
        f"| {loss.detected_at:%Y-%m-%d %H:%M:%S} |"
        for loss in found
    ]
    head = ["| partition | offsets | what happened | seen (UTC) |", "|---|---|---|---|"]
    answered = [
        f"\n{loss.range} was left open by {loss.decided_by}: {loss.reason}"
        for loss in found
        if loss.decided_by
    ]
    return "\n".join([*head, *rows, *answered])


def _what_happened(pipeline: str, loss: LossRecord) -> str:
    return lost(pipeline, Loss(cause=loss.cause, range=loss.range)).detail
