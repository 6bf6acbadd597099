"""The audit: checks the ledger against itself and the result, and with a recount against Kafka."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

from tally.audit.recount import Recount, Unchecked, recount
from tally.config.pipeline import Pipeline
from tally.context import Context
from tally.deliveries.kept_lines import delivery_of
from tally.formatting import plural
from tally.ledger.invariants import CHECKS, Violation, extent
from tally.ledger.line_sets import check_lines
from tally.ledger.tables import Tables, tables_to_read
from tally.model import OffsetRange
from tally.views import ErrorView

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class RecountView:
    """The recount of the live segments from Kafka."""

    complete: bool
    """Whether the whole result was recounted."""
    segments: int
    """Live segments that were recounted."""
    offsets: int
    """Offsets that they span."""
    records: int
    """Records that Kafka holds in them."""
    not_checkable: tuple[Unchecked, ...]
    """The live ranges of which something could not be recounted."""
    before_start: tuple[OffsetRange, ...]
    """What Kafka holds before the start offsets."""

    @classmethod
    def of(cls, counted: Recount) -> Self:
        """The view of a recount."""
        return cls(
            complete=not counted.unchecked,
            segments=counted.segments,
            offsets=counted.offsets,
            records=counted.records,
            not_checkable=tuple(counted.unchecked),
            before_start=tuple(counted.before_start),
        )

    @property
    def unchecked_offsets(self) -> list[tuple[str, int]]:
        """How many offsets could not be recounted, by partition and cause; sorted."""
        offsets: Counter[str] = Counter()
        for unchecked in self.not_checkable:
            offsets[f"{unchecked.range.place}: {unchecked.cause}"] += unchecked.range.offsets
        return sorted(offsets.items())


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
    recount: RecountView | None
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
        findings = list(_check_table(pipeline, tables))
        findings += [found for check in CHECKS for found in check(tx, name, tables)]
        counted = extent(tx, name, tables)
    findings += delivery_of(ctx, pipeline).violations()
    found = AuditView(
        pipeline=name, holds=not findings, **counted, findings=tuple(findings), recount=None
    )
    return joined(found, recount(ctx, name, progress)) if with_recount else found


def joined(found: AuditView, again: Recount) -> AuditView:
    """An audit of the ledger with a recount: their violations are one list."""
    findings = [*found.findings, *again.violations]
    if not again.segments and any(not one.by_other_rules for one in again.unchecked):
        findings.append(_nothing_recounted(found.pipeline, again))
    return replace(
        found, holds=not findings, findings=tuple(findings), recount=RecountView.of(again)
    )


def _nothing_recounted(pipeline: str, counted: Recount) -> Violation:
    """A recount that could compare nothing proves nothing, whatever the ledger says."""
    causes = ", ".join(sorted({unchecked.cause for unchecked in counted.unchecked}))
    return Violation(
        check="recount",
        where=pipeline,
        detail=f"nothing could be compared with Kafka: {causes}",
    )


def _check_table(pipeline: Pipeline, tables: Tables) -> Iterator[Violation]:
    """The configured result table must be the one that the pipeline counts into."""
    if tables.result != pipeline.table:
        yield Violation(
            check="result",
            where=pipeline.table,
            detail=f"{pipeline.name} counts into {tables.result}, the configuration says otherwise",
        )
