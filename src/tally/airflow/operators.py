"""The tasks plan, blocked, audit and prune, which do not count. Airflow shows their docstrings."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any, Final

from airflow.sdk import BaseBranchOperator, BaseOperator, Context

from tally.airflow.connections import brief_context, daily_context
from tally.airflow.failures import final, final_unless_retryable
from tally.airflow.links import LossesLink
from tally.airflow.policies import REPLAY_SUFFIX
from tally.clock import Clock
from tally.formatting import plural

PLAN: Final = "plan"
COUNT: Final = "count"
BLOCKED: Final = "blocked"
AUDIT: Final = "audit"
PRUNE: Final = "prune"

# The XCom key of `plan`; see tally.airflow.work.PlanNote.
NOTE_KEY: Final = "batch"

# The XCom key of `audit`, for the console: also of an audit that has found something.
REPORT_KEY: Final = "report"

_VIOLATIONS_SHOWN: Final = 20
_VIOLATIONS_KEPT: Final = 500


def from_note(field: str, then: str = "") -> str:
    """A template for a field of the XCom of ``plan``, with a filter of Jinja's behind it."""
    return f"{{{{ ti.xcom_pull(task_ids='{PLAN}', key='{NOTE_KEY}')['{field}']{then} }}}}"


class TallyPlanOperator(BaseBranchOperator):
    """Fix the offset ranges of the next batch, before any data is read.

    An open batch is resumed with its planned ranges. If there is nothing new, the rest of the run
    is skipped and it ends green. Partitions on which Kafka and the ledger disagree are left out and
    make `blocked` run.
    """

    def __init__(self, *, pipeline: str, config: str, **options: Any) -> None:
        super().__init__(**options)
        self.pipeline = pipeline
        self.config = config

    def choose_branch(self, context: Context) -> Iterable[str]:
        """Plan, write the plan to XCom, and return the tasks that have something to do."""
        from tally.airflow import task_metrics, work  # DAG parsing must import no client

        ti = context["ti"]
        if given := context["dag_run"].conf:
            raise final(
                f"this DAG takes no configuration, and was given {', '.join(sorted(given))}; to "
                f"reprocess ranges, trigger {self.pipeline}{REPLAY_SUFFIX}"
            )
        with final_unless_retryable():
            asked = brief_context(self.config, self.pipeline)
            due = context["dag_run"].run_after
            note = work.plan(asked, self.pipeline, ti.dag_id, ti.run_id, due)
        self.log.info(note.text)
        ti.xcom_push(key=NOTE_KEY, value=note.to_xcom())
        task_metrics.send_state(asked, self.pipeline)
        wanted = {COUNT: bool(note.batch_ids), BLOCKED: note.blocked is not None}
        return [task_id for task_id, is_wanted in wanted.items() if is_wanted]


class TallyBlockedOperator(BaseOperator):
    """Make the run red while partitions wait for an operator's decision.

    The other partitions are counted all the same. The error names each blocked partition, what the
    ledger and Kafka say about it, and the command with which an operator decides. A loss can also
    be decided in Airflow, with `<pipeline>_losses`.
    """

    template_fields: Sequence[str] = ("message",)
    operator_extra_links = (LossesLink(),)

    def __init__(self, *, message: str, losses_dag: str, **options: Any) -> None:
        super().__init__(**options)
        self.message = message
        self.losses_dag = losses_dag

    def execute(self, context: Context) -> None:  # noqa: ARG002 - Airflow's signature
        """Fail without a retry."""
        # The DAG decides losses alone; another topic is adopted on the command line.
        also = f" A loss may also be decided in Airflow: trigger {self.losses_dag}"
        raise final(self.message + (also if "tally losses accept" in self.message else ""))


class TallyAuditOperator(BaseOperator):
    """Prove that the result is what the ledger says was counted, each line once.

    Red when there is a violation; the error names each with its place. It repairs nothing.
    """

    def __init__(self, *, pipeline: str, config: str, **options: Any) -> None:
        super().__init__(**options)
        self.pipeline = pipeline
        self.config = config

    def execute(self, context: Context) -> dict[str, int]:
        """Check the ledger; what was checked, and the violations, go to XCom."""
        from tally.airflow.task_metrics import send_audit  # DAG parsing must not import MySQL
        from tally.app.measurements import AuditOutcome
        from tally.audit.audit import audit

        with final_unless_retryable():
            report = audit(daily_context(self.config), self.pipeline)
        looked_at = {
            "partitions": report.partitions,
            "segments": report.segments,
            "records": report.records,
            "minutes": report.minutes,
            "matched": report.matched,
            "findings": len(report.findings),
        }
        self.log.info("audit of %s: %s", self.pipeline, looked_at)
        context["ti"].xcom_push(
            key=REPORT_KEY,
            value={
                **looked_at,
                "holds": report.holds,
                "violations": [asdict(one) for one in report.findings[:_VIOLATIONS_KEPT]],
            },
        )
        found = AuditOutcome(
            holds=report.holds, violations=len(report.findings), ended_at=Clock().now()
        )
        send_audit(self.pipeline, found)
        if not report.holds:
            shown = "; ".join(
                f"{violation.check}: {violation.where}: {violation.detail}"
                for violation in report.findings[:_VIOLATIONS_SHOWN]
            )
            raise final(
                f"pipeline {self.pipeline}: {plural(len(report.findings), 'violation')}: {shown}. "
                f"Next: tally audit {self.pipeline}"
            )
        return looked_at


class TallyPruneOperator(BaseOperator):
    """Fold old contributions that Kafka can no longer serve, so that the ledger does not grow on.

    The result does not change, and the audit still proves it. Runs behind a green audit alone: what
    a violation is found by stays. It may be ended and repeated at any time.
    """

    def __init__(
        self, *, pipeline: str, config: str, older_than: timedelta, **options: Any
    ) -> None:
        super().__init__(**options)
        self.pipeline = pipeline
        self.config = config
        self.older_than = older_than

    def execute(self, context: Context) -> dict[str, int]:  # noqa: ARG002 - Airflow's signature
        """Prune the ledger; what was folded and deleted goes to XCom."""
        from tally.maintenance.prune import prune  # DAG parsing must not import MySQL

        with final_unless_retryable():
            view = prune(daily_context(self.config), self.pipeline, self.older_than)
        pruned = {"partitions": view.partitions, "segments": view.segments, "rows": view.rows}
        self.log.info("pruned the ledger of %s: %s", self.pipeline, pruned)
        return pruned
