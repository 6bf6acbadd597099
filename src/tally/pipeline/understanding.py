"""The check that a rule understands the lines, before the first batches under it are committed."""

from typing import Final

from tally.aggregates.checks import find_format
from tally.aggregates.counts import Counts
from tally.aggregates.fingerprint import fingerprint
from tally.config.pipeline import Pipeline
from tally.errors import MalformedFloodError
from tally.ledger.rules import Understood, records_in_sound_batches, replaces_only
from tally.model import Batch, BatchKind
from tally.mysql.transactions import Transaction
from tally.pipeline.context import Context

ENOUGH_RECORDS: Final = 1_000
"""A share of fewer records says little: no batch is stopped for it, and no rule is trusted."""


def check_understood(ctx: Context, pipeline: Pipeline, batch: Batch, counts: Counts) -> None:
    """Raise if most of a batch is malformed and its rule has not yet proven itself.

    Records that begin no line, where the pipeline leaves them out, say nothing about the others;
    but if there are no others, the line format is wrong, or the lines have changed: nothing else
    would tell, so it stops whatever the rule has proven.

    A rule has proven itself when batches under it that were within ``max_malformed_ratio`` have
    read a thousand records; from then on a larger share is a warning of the pipeline's health, as
    the lines have changed and not the rule. A replay of what was counted under the same rule finds
    what was found before, so it is never stopped.

    Raises:
        MalformedFloodError: With the share; nothing is committed.
    """
    records = sum(total.records for total in counts.totals.values())
    read = Understood(
        records=records,
        continuations=sum(total.continuations or 0 for total in counts.totals.values()),
        malformed=sum(total.malformed for total in counts.totals.values()),
    )
    if records < ENOUGH_RECORDS or read.ratio <= pipeline.max_malformed_ratio:
        return
    with ctx.database.transaction(read_only=True) as tx:
        if _is_trusted(tx, pipeline, batch, read):
            return
    if not read.lines:
        raise MalformedFloodError(
            f"pipeline {pipeline.name}: none of {records} records begins a line, so "
            f'continuation_lines = "unmatched" would leave all of them out: {pipeline.rules}',
            next_step=f"{find_format(pipeline)}, or leave continuation_lines out, or set "
            f"max_malformed_ratio = 1 if they are continuation lines, then tally run "
            f"{batch.batch_id}",
        )
    raise MalformedFloodError(
        f"pipeline {pipeline.name}: {read.malformed} of {read.lines} records are malformed, a "
        f"larger share than max_malformed_ratio = {pipeline.max_malformed_ratio:g}; these rules "
        f"have not yet read {ENOUGH_RECORDS} records within it: {pipeline.rules}",
        next_step=f"{find_format(pipeline)}, or raise max_malformed_ratio, then tally run "
        f"{batch.batch_id}",
    )


def _is_trusted(tx: Transaction, pipeline: Pipeline, batch: Batch, read: Understood) -> bool:
    rule = fingerprint(pipeline)
    if batch.kind is BatchKind.REPLAY and replaces_only(tx, batch.batch_id, rule):
        return True
    if not read.lines:
        return False
    sound = records_in_sound_batches(
        tx,
        pipeline.name,
        rule,
        pipeline.max_malformed_ratio,
        # A batch of records that begin no line shows nothing.
        least_matched=1 if pipeline.leaves_continuations else 0,
    )
    return sound >= ENOUGH_RECORDS
