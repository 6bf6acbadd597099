"""The audit: checks the ledger against itself and the result, and with a recount against Kafka."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tally.audit.recount import Progress, Recount, recount
from tally.context import Context
from tally.deliveries.kept_lines import delivery_of
from tally.formatting import plural
from tally.ledger.invariants import CHECKS, Violation, extent
from tally.ledger.line_sets import check_lines
from tally.ledger.tables import tables_to_read
from tally.views import ErrorView


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditView:
    """What an audit checked, and the violations that it found."""

    pipeline: str
    """The pipeline."""
    holds: bool
    """Whether there is no violation."""
    partitions: int
    """Partitions whose tiling was checked, earlier topic generations included."""
    segments: int
    """Segments in the result, folded ones included."""
    records: int
    """Records that these segments hold."""
    minutes: int
    """Minutes of the result."""
    matched: int
    """Sum of the counts in the result."""
    findings: tuple[Violation, ...]
    """The violations."""
    recount: Recount | None
    """The recount from Kafka; null when it was not requested."""

    @property
    def conclusion(self) -> str:
        """The conclusion in one sentence; it claims only what was checked."""
        if self.findings:
            return f"{plural(len(self.findings), 'violation')}: see docs/runbook.md, audit-finding"
        if self.recount is None:
            return "the ledger is consistent (--recount compares it with Kafka)"
        if not self.segments:
            return "nothing is committed yet, so there was nothing to compare with Kafka"
        if not self.recount.segments:
            return "the ledger is consistent; nothing of it could be compared with Kafka"
        if not self.recount.complete:
            return "the ledger is consistent and agrees with all that could be compared with Kafka"
        return "the ledger is consistent and agrees with Kafka, record for record"


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditsView:
    """The audits of several pipelines."""

    holds: bool
    """Whether each pipeline was audited, and none has a violation."""
    audits: tuple[AuditView, ...]
    """The audits that could be made, by pipeline."""
    errors: Mapping[str, ErrorView]
    """Why another pipeline is missing, by its name."""


def audit(
    ctx: Context,
    name: str,
    *,
    with_recount: bool = False,
    progress: Progress = lambda _done, _total: None,
) -> AuditView:
    """Check a pipeline's ledger and result, and with a recount also Kafka's records.

    The invariants 1, 2 and 5 and the states are checked on one consistent snapshot of the ledger,
    and kept lines are compared with the counts.

    Args:
        ctx: What is needed from outside; a reader is opened for a recount only.
        name: The pipeline.
        with_recount: Whether the live segments are also recounted from Kafka.
        progress: Called with the number of offsets that are recounted, and with their total.

    Raises:
        ConfigError: ``delivery`` or ``rows_table`` has changed.
        SchemaError: The ledger is not migrated.
        MySQLUnavailableError: The server did not answer.
        TallyError: As :func:`tally.audit.recount.recount`.
    """
    pipeline = ctx.settings.pipeline(name)
    with ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
        tables = tables_to_read(tx, pipeline)
        check_lines(tx, tables, pipeline)
        violations = [found for check in CHECKS for found in check(tx, name, tables)]
        checked = extent(tx, name, tables)
    if tables.result != pipeline.table:
        said = f"{name} counts into {tables.result}, the configuration says otherwise"
        violations.append(Violation(check="result", where=pipeline.table, detail=said))
    violations += delivery_of(ctx, pipeline).violations()
    again = None
    if with_recount:
        again, others = recount(ctx, name, progress)
        violations += others
    return concluded(name, checked, violations, again)


def concluded(
    pipeline: str,
    checked: Mapping[str, int],
    violations: Sequence[Violation],
    again: Recount | None,
) -> AuditView:
    """The audit of a pipeline.

    Args:
        pipeline: The pipeline.
        checked: How much was checked (:func:`tally.ledger.invariants.extent`).
        violations: What is wrong with it.
        again: The recount, if one was made.
    """
    found = [*violations]
    if again and not again.segments and any(not one.by_other_rules for one in again.not_checkable):
        # What could compare nothing proves nothing, whatever the ledger says.
        causes = ", ".join(sorted({unchecked.cause for unchecked in again.not_checkable}))
        said = f"nothing could be compared with Kafka: {causes}"
        found.append(Violation(check="recount", where=pipeline, detail=said))
    return AuditView(
        pipeline=pipeline, holds=not found, **checked, findings=tuple(found), recount=again
    )
