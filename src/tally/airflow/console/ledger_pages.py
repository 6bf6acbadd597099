"""The pages that list what the ledger holds: batches and dead letters."""

from collections.abc import Mapping
from urllib.parse import urlencode

from tally.airflow.console.listings import (
    batch_tables,
    batches_table,
    letters_table,
    reasons_table,
)
from tally.airflow.console.page import Page
from tally.airflow.console.query import (
    ROWS,
    Query,
    limit_of,
    moment_of,
    number_of,
    one_of,
    partition_of,
    without,
)
from tally.airflow.policies import REPLAY_SUFFIX
from tally.app.batches import batch, batches
from tally.app.dead_letters import dead_letters, reasons
from tally.context import Context
from tally.ledger.dead_letters import Among
from tally.lines.format import MalformedReason
from tally.model import BatchKind, BatchState


def batches_page(ctx: Context, pipeline: str, query: Query) -> Page:
    """The ledger's batches, with filters."""
    limit = limit_of(query)
    found = batches(
        ctx,
        pipeline,
        state=one_of(query, "state", BatchState),
        kind=one_of(query, "kind", BatchKind),
        before=number_of(query, "before"),
        limit=limit,
    ).batches
    more = found[-1].batch_id if len(found) == limit else None
    return Page(
        template="batches.html",
        title="Batches",
        values={
            "query": dict(query),
            "states": list(BatchState),
            "kinds": list(BatchKind),
            "older": urlencode({**query, "before": more}) if more else "",
        },
        tables=(batches_table(found, "batches", "Batches, newest first"),),
    )


def batch_page(ctx: Context, pipeline: str, path: Mapping[str, str]) -> Page:
    """One batch with its ranges; ``path`` has its ``batch_id``.

    Raises:
        UnknownBatchError: The pipeline has no batch with this id.
    """
    batch_id = number_of(path, "batch_id") or 0
    # To one of another pipeline the user may have no right: it is as unknown as one that is not.
    view = batch(ctx, batch_id, rows=ROWS, pipeline=pipeline)
    dag_id = pipeline + REPLAY_SUFFIX if view.kind == BatchKind.REPLAY else pipeline
    return Page(
        template="batch.html",
        title=f"Batch {batch_id}",
        values={"batch": view, "dag_id": dag_id},
        tables=batch_tables(view),
    )


def dead_letters_page(ctx: Context, pipeline: str, query: Query) -> Page:
    """Dead letters of what is in the result, and how many there are of each reason."""
    among = Among(
        batch_id=number_of(query, "batch"),
        partition=partition_of(query),
        since=moment_of(query, "since", zone=True),
        before=moment_of(query, "until", zone=True),
    )
    skip, limit = number_of(query, "skip") or 0, limit_of(query)
    found = dead_letters(
        ctx,
        pipeline,
        among,
        reason=one_of(query, "reason", MalformedReason),
        text=query.get("text") or None,
        skip=skip,
        limit=limit,
    ).dead_letters
    totals = reasons(ctx, pipeline, among)
    more = skip + limit if len(found) == limit else None
    return Page(
        template="dead_letters.html",
        title="Dead letters",
        values={
            "query": dict(query),
            "letters": found,
            "reasons": list(MalformedReason),
            "totals": totals,
            "more": urlencode({**query, "skip": more}) if more else "",
            "batches": sorted({letter.batch_id for letter in found}),
        },
        tables=(
            reasons_table(totals.totals, urlencode(without(query, "reason"))),
            letters_table(found),
        ),
    )
