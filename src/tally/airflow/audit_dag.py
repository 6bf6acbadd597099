"""The daily audit of the ledger and the result, and the pruning of the ledger after it."""

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from airflow.sdk import DAG
from airflow.sdk import Context as TaskContext

from tally.airflow import policies
from tally.clock import Clock
from tally.config.pipeline import Pipeline
from tally.formatting import plural

AUDIT: Final = "audit"
ERASE: Final = "erase"
"""The id of the task that erases texts by age."""
PRUNE: Final = "prune"

# Daily, at a minute that few others choose.
SCHEDULE: Final = "17 3 * * *"

# The XCom key of `audit`, for the console: also of an audit that has found something.
REPORT_KEY: Final = "report"

_VIOLATIONS_SHOWN: Final = 20
_VIOLATIONS_KEPT: Final = 500


def audit_dag(pipeline: Pipeline, *, config: Path, doc_md: str) -> DAG:
    """``audit >> prune``, daily, and ``erase`` beside them."""
    with policies.tally_dag(
        pipeline,
        policies.AUDIT_SUFFIX,
        doc_md,
        config=config,
        description=f"Proves that {pipeline.table} is what was counted",
        schedule=SCHEDULE,
        dagrun_timeout=policies.AUDIT_TIMEOUT * 3,
        task_timeout=policies.AUDIT_TIMEOUT,
    ) as dag:
        audit = TallyAuditOperator(task_id=AUDIT, inlets=[policies.result_asset(pipeline)])
        if pipeline.prune_after_days:
            older_than = timedelta(days=pipeline.prune_after_days)
            audit >> TallyPruneOperator(task_id=PRUNE, older_than=older_than)
        if pipeline.erase_after_days:
            age = timedelta(days=pipeline.erase_after_days)
            TallyEraseOperator(task_id=ERASE, older_than=age)
    return dag


class TallyAuditOperator(policies.TallyOperator):
    """Prove that the result is what the ledger says was counted, each line once.

    Red when there is a violation; the error names each with its place. It repairs nothing.
    """

    @policies.final_unless_retryable()
    def execute(self, context: TaskContext) -> dict[str, int]:
        """Check the ledger; what was checked, and the violations, go to XCom."""
        from tally.airflow.telemetry import send_audit
        from tally.audit.audit import audit

        report = audit(self.open_context(), self.pipeline)
        findings = report.findings
        checked = {
            key: int(getattr(report, key))
            for key in ("partitions", "segments", "records", "minutes", "matched")
        }
        checked["findings"] = len(findings)
        self.log.info("audit of %s: %s", self.pipeline, checked)
        kept = [asdict(one) for one in findings[:_VIOLATIONS_KEPT]]
        context["ti"].xcom_push(
            key=REPORT_KEY, value={**checked, "holds": report.holds, "violations": kept}
        )
        send_audit(self.pipeline, report.holds, len(findings), Clock().now())
        if not report.holds:
            shown = "; ".join(
                f"{violation.check}: {violation.where}: {violation.detail}"
                for violation in findings[:_VIOLATIONS_SHOWN]
            )
            raise policies.final(
                f"pipeline {self.pipeline}: {plural(len(findings), 'violation')}: {shown}. "
                f"Next: tally audit {self.pipeline}"
            )
        return checked


class _ByAge(policies.TallyOperator):
    """Works on what is older than some days."""

    def __init__(self, *, older_than: timedelta, **options: Any) -> None:
        super().__init__(**options)
        self.older_than = older_than


class TallyPruneOperator(_ByAge):
    """Fold old contributions that Kafka can no longer serve, so that the ledger does not grow on.

    The result does not change, and the audit still proves it. Runs behind a green audit alone: what
    a violation is found by stays. It may be ended and repeated at any time.
    """

    @policies.final_unless_retryable()
    def execute(self, context: TaskContext) -> dict[str, int]:  # noqa: ARG002 - Airflow's signature
        """Prune the ledger; what was folded and deleted goes to XCom."""
        from tally.maintenance.prune import prune

        view = prune(self.open_context(), self.pipeline, self.older_than)
        pruned = {"partitions": view.partitions, "segments": view.segments, "rows": view.rows}
        self.log.info("pruned the ledger of %s: %s", self.pipeline, pruned)
        return pruned


class TallyEraseOperator(_ByAge):
    """Erase the text of dead letters and kept lines that has been kept long enough.

    Whatever the audit says: it needs none of it. It may be ended and repeated at any time.
    """

    @policies.final_unless_retryable()
    def execute(self, context: TaskContext) -> dict[str, int]:  # noqa: ARG002 - Airflow's signature
        """Erase it; of how many dead letters goes to XCom."""
        from tally.maintenance.erase import erase_old

        letters = erase_old(self.open_context(), self.pipeline, self.older_than)
        self.log.info("erased the text of %d dead letters of %s", letters, self.pipeline)
        return {"dead_letters": letters}
