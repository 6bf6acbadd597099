"""The audit: checks that the ledger agrees with itself and with the result.

:mod:`tally.ledger.invariants` has the checks, :mod:`tally.pipeline.recount` compares with Kafka.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tally.config.pipeline import Pipeline
from tally.deliveries.choice import delivery_of
from tally.ledger.invariants import LEDGER_CHECKS, Violation, extent
from tally.ledger.row_sets import check_lines
from tally.ledger.tables import Tables, tables_to_read
from tally.pipeline.context import Context
from tally.pipeline.publish import row_violations


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditReport:
    """What an audit has checked, and the violations that it found."""

    pipeline: str
    """The pipeline."""
    partitions: int
    """Partitions whose tiling was checked, those of retired generations included."""
    segments: int
    """Segments in the result, folded ones included."""
    records: int
    """Records they counted."""
    minutes: int
    """Rows of the result."""
    matched: int
    """Sum of the result."""
    violations: tuple[Violation, ...]
    """Empty when everything holds."""

    @property
    def holds(self) -> bool:
        """Whether there is no violation."""
        return not self.violations


def audit_ledger(ctx: Context, name: str) -> AuditReport:
    """Check invariants 1, 2 and 5, and the states, on one consistent snapshot of the ledger.

    Lines that are kept are compared with the counts besides.

    Raises:
        ConfigError: ``delivery`` or ``rows_table`` has changed.
        SchemaError: The ledger is not migrated.
        MySQLUnavailableError: The server did not answer.
    """
    pipeline = ctx.settings.pipeline(name)
    with ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
        tables = tables_to_read(tx, pipeline)
        check_lines(tx, tables, pipeline)
        violations = list(_check_table(pipeline, tables))
        violations += [found for check in LEDGER_CHECKS for found in check(tx, name, tables)]
        violations += delivery_of(pipeline).violations(tx, tables)
        counted = extent(tx, name, tables)
    violations += row_violations(ctx, pipeline)
    return AuditReport(
        pipeline=name,
        violations=tuple(violations),
        **counted,
    )


def _check_table(pipeline: Pipeline, tables: Tables) -> Iterator[Violation]:
    """The configured result table must be the one that the pipeline counts into."""
    if tables.result != pipeline.table:
        yield Violation(
            check="result",
            where=pipeline.table,
            detail=f"{pipeline.name} counts into {tables.result}, the configuration says otherwise",
        )
