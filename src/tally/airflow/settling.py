"""Decisions that the console hands to the decision DAG, besides those about losses.

A topic that was created again is adopted, and an open batch is abandoned: exactly what was shown,
once, however often the task is tried.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tally.errors import UsageError

if TYPE_CHECKING:  # DAG parsing must not import MySQL
    from tally.context import Context
    from tally.ledger.decisions import AdoptionView

ADOPT: Final = "adopt"
ABANDON: Final = "abandon"


def settle_other(
    ctx: "Context", pipeline: str, decision: str, seen: Mapping[str, Any], reason: str
) -> str:
    """Adopt a topic, or abandon a batch, as it was shown.

    Args:
        ctx: Its requester is who decides.
        pipeline: The pipeline.
        decision: :data:`ADOPT` or :data:`ABANDON`.
        seen: What was shown: see :func:`adoption_as_seen`, or ``batch_id``.
        reason: Why; kept in the ledger.

    Returns:
        What was done, in a sentence.

    Raises:
        UsageError: It is no longer as it was shown.
        UnknownBatchError: The pipeline has no such batch.
        FencedError: Somebody else has abandoned the batch.
    """
    if decision == ADOPT:
        return _adopt(ctx, pipeline, seen, reason)
    return _abandon(ctx, pipeline, int(seen["batch_id"]), reason)


def adoption_as_seen(shown: "AdoptionView") -> dict[str, Any]:
    """An adoption as a decision names it."""
    return {
        "topic": shown.topic,
        "topic_id": shown.topic_id,
        "cluster_id": shown.cluster_id,
        "start": shown.start,
        "offsets": [[start.partition, start.offset] for start in shown.partitions],
    }


def _adopt(ctx: "Context", pipeline: str, seen: Mapping[str, Any], reason: str) -> str:
    from tally.ledger.decisions import AdoptionView, starts_of
    from tally.maintenance.decisions import adopt, is_followed

    shown = AdoptionView(
        pipeline=pipeline,
        topic=seen["topic"],
        topic_id=seen["topic_id"],
        cluster_id=seen["cluster_id"],
        start=seen["start"],
        partitions=starts_of(dict(seen["offsets"])),
    )
    try:
        adopt(ctx, shown, reason=reason)
    except UsageError:
        # An earlier try may have adopted it, with a COMMIT that was not answered.
        if not is_followed(ctx, shown):
            raise
    return f"{shown.topic} is followed under its id {shown.topic_id}, by {ctx.requester.name}"


def _abandon(ctx: "Context", pipeline: str, batch_id: int, reason: str) -> str:
    from tally.maintenance.decisions import abandon
    from tally.reading.batches import batch

    by = ctx.requester.name
    seen = batch(ctx, batch_id, pipeline=pipeline)
    # An earlier try may have abandoned it, with a COMMIT that was not answered.
    if (seen.abandoned_by, seen.reason) != (by, reason):
        abandon(ctx, batch_id, reason=reason)
    return f"batch {batch_id} was abandoned by {by}; the next plan reads its offsets again"
