"""The audit: compares the result with the ledger, and with what Kafka holds."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from tally.app.views import ErrorView, RangeView
from tally.formatting import plural
from tally.ledger.invariants import Violation
from tally.pipeline import recount as step
from tally.pipeline.audit import AuditReport, audit_ledger
from tally.pipeline.context import Context
from tally.pipeline.recount import Recount

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class UncheckedView(RangeView):
    """A live range of which something could not be recounted."""

    cause: str
    """Why, and what."""


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
    not_checkable: tuple[UncheckedView, ...]
    """The live ranges of which something could not be recounted."""
    before_start: tuple[RangeView, ...]
    """What Kafka holds before the start offsets, of which nothing is counted or claimed."""

    @classmethod
    def of(cls, counted: Recount) -> Self:
        """The view of a recount."""
        return cls(
            complete=not counted.unchecked,
            segments=counted.segments,
            offsets=counted.offsets,
            records=counted.records,
            not_checkable=tuple(
                UncheckedView.of(u.range, cause=u.cause) for u in counted.unchecked
            ),
            before_start=tuple(map(RangeView.of, counted.before_start)),
        )

    @property
    def unchecked_offsets(self) -> list[tuple[str, int]]:
        """How many offsets could not be recounted, by partition and cause; sorted."""
        offsets: Counter[str] = Counter()
        for unchecked in self.not_checkable:
            offsets[f"{unchecked.place}: {unchecked.cause}"] += unchecked.offsets
        return sorted(offsets.items())


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditView:
    """What an audit checked, and the violations that it found."""

    pipeline: str
    """The pipeline."""
    holds: bool
    """Whether there is no violation."""
    partitions: int
    """Partitions whose tiling was checked, those of earlier topic generations included."""
    segments: int
    """Segments in the result, folded ones included."""
    records: int
    """Records that these segments hold."""
    minutes: int
    """Minutes of the result."""
    matched: int
    """Sum of the counts in the result."""
    findings: tuple[Violation, ...]
    """The violations; empty when the audit holds."""
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
    """The audit of each pipeline that could be audited, by name."""
    errors: Mapping[str, ErrorView]
    """Why another pipeline could not be audited, by its name."""


def audit(
    ctx: Context,
    pipeline: str,
    *,
    recount: bool = False,
    progress: Progress = lambda _done, _total: None,
) -> AuditView:
    """Check a pipeline's ledger and result, and with a recount also Kafka's records.

    Args:
        ctx: What is needed from outside; a reader is opened for a recount only.
        pipeline: The pipeline.
        recount: Whether the live segments are also recounted from Kafka.
        progress: Called with the number of offsets that are recounted, and with their total.

    Raises:
        TallyError: As :func:`tally.pipeline.audit.audit_ledger` and
            :func:`tally.pipeline.recount.recount`.
    """
    report = audit_ledger(ctx, pipeline)
    counted = step.recount(ctx, pipeline, progress) if recount else None
    return audit_view(report, counted)


def audit_view(report: AuditReport, counted: Recount | None = None) -> AuditView:
    """The view of an audit; violations in the ledger and in the recount are one list."""
    findings = (*report.violations, *(counted.violations if counted else ()))
    out_of_reach = counted and any(not one.by_other_rules for one in counted.unchecked)
    if counted is not None and out_of_reach and not counted.segments:
        findings = (*findings, _nothing_recounted(report.pipeline, counted))
    return AuditView(
        pipeline=report.pipeline,
        holds=not findings,
        partitions=report.partitions,
        segments=report.segments,
        records=report.records,
        minutes=report.minutes,
        matched=report.matched,
        findings=findings,
        recount=RecountView.of(counted) if counted else None,
    )


def _nothing_recounted(pipeline: str, counted: Recount) -> Violation:
    """A recount that could compare nothing proves nothing, whatever the ledger says."""
    causes = ", ".join(sorted({unchecked.cause for unchecked in counted.unchecked}))
    return Violation(
        check="recount",
        where=pipeline,
        detail=f"nothing could be compared with Kafka: {causes}",
    )
