"""The work of the tasks about losses. Imports MySQL: for running tasks only."""

import dataclasses
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tally import __version__
from tally.context import Context
from tally.errors import UsageError
from tally.ledger.batches import Requester
from tally.ledger.decisions import LossRecord
from tally.losses.losses import LossesView, decide_losses, losses
from tally.model import Loss
from tally.planning.blocks import lost


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenLosses:
    """The open losses, as Airflow stores and shows them."""

    losses: list[dict[str, Any]]
    """By loss id; the decision is refused if one of them has changed."""
    text: str
    """Markdown for the log and the question."""

    def to_xcom(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self)


def open_losses(ctx: Context, pipeline: str) -> OpenLosses:
    """The losses that wait for a decision."""
    found = losses(ctx, pipeline, only_open=True).losses
    if not found:
        return OpenLosses(losses=[], text=f"{pipeline} has no open losses")
    return OpenLosses(losses=[as_seen(loss) for loss in found], text=_question(pipeline, found))


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

    It is idempotent: the same answer can be given again, and is written once.

    Returns:
        What was done, in a sentence.

    Raises:
        UsageError: One of them is no longer as it was shown. Nothing is changed.
    """
    requester = Requester(name=by, version=__version__)
    mine = dataclasses.replace(ctx, requester=requester)
    seen = _records(mine, pipeline, shown)
    try:
        _check_shown(pipeline, seen, shown)
        seen_now = LossesView(pipeline=pipeline, losses=tuple(seen))
        decide_losses(mine, seen_now, accept=accept, reason=reason)
    except UsageError:
        # An earlier try may have decided it, with a COMMIT that was not answered.
        seen = _records(mine, pipeline, shown)
        if not _are_decided(seen, shown, accept=accept, by=by, reason=reason):
            raise
    ranges = ", ".join(str(loss.range) for loss in seen)
    if accept:
        return f"accepted by {by}: {ranges}; counting continues with the next run of {pipeline}"
    return f"left open by {by}: {ranges}; runs of {pipeline} stay red"


def _records(ctx: Context, pipeline: str, shown: Sequence[dict[str, Any]]) -> list[LossRecord]:
    """The losses as the ledger has them now; a loss that it no longer has is left out."""
    if not all(isinstance(_id_of(loss), int) for loss in shown):
        raise UsageError(
            "`seen` is not what a page or a question has shown; nothing was changed",
            next_step="trigger the DAG without parameters, which asks",
        )
    now = losses(ctx, pipeline).losses
    found = {loss.lost_range_id: loss for loss in now}
    return [found[loss["lost_range_id"]] for loss in shown if loss["lost_range_id"] in found]


def _id_of(loss: object) -> object:
    return loss.get("lost_range_id") if isinstance(loss, dict) else None


def _check_shown(
    pipeline: str, seen: Sequence[LossRecord], shown: Sequence[dict[str, Any]]
) -> None:
    if [as_seen(loss) for loss in seen] != list(shown):
        raise UsageError(
            f"the losses of {pipeline} are no longer as they were shown: one has grown, or "
            "another operator has decided it; nothing was changed",
            next_step="trigger the DAG again: it shows them as they are now",
        )


def _are_decided(
    seen: Sequence[LossRecord],
    shown: Sequence[dict[str, Any]],
    *,
    accept: bool,
    by: str,
    reason: str,
) -> bool:
    """Whether exactly these losses were decided so, by the same operator for the same reason."""
    ours = all((loss.decided_by, loss.reason) == (by, reason) for loss in seen)
    state = "accepted" if accept else "open"
    now = [{**as_seen(loss), "decided_at": None} for loss in seen]
    return ours and now == [{**loss, "state": state, "decided_at": None} for loss in shown]


def as_seen(loss: LossRecord) -> dict[str, Any]:
    """A loss as a decision names it."""
    return {
        "lost_range_id": loss.lost_range_id,
        "range": str(loss.range),
        "cause": str(loss.cause),
        "state": loss.state,
        "decided_at": loss.decided_at and loss.decided_at.isoformat(),
    }


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
