"""The DAG of the schedule: plans a batch and counts it; made by :mod:`tally.airflow.factory`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import DAG, BaseBranchOperator, BaseOperatorLink
from airflow.sdk import Context as TaskContext

from tally import __version__
from tally.airflow import policies
from tally.airflow.complete import (
    ALERT,
    COMPLETE,
    TallyAlertOperator,
    TallyCompleteOperator,
    to_announce,
)
from tally.airflow.count import COUNT, TallyCountOperator, count_options
from tally.config.pipeline import Pipeline
from tally.planning.blocks import blocked_error

if TYPE_CHECKING:  # DAG parsing must not import Kafka and MySQL
    from tally.counting.plan import Planned

PLAN: Final = "plan"
BLOCKED: Final = "blocked"

# The XCom key of `plan`; see plan_note.
NOTE_KEY: Final = "batch"


def minute_dag(pipeline: Pipeline, *, config: Path, job: Path, doc_md: str) -> DAG:
    """``plan >> [count, blocked, complete]``, on the pipeline's schedule.

    With notifiers also ``alert``, behind ``plan``.
    """
    hours = policies.hours_asset(pipeline)
    with policies.tally_dag(
        pipeline,
        "",
        doc_md,
        config=config,
        description=f"Counts {', '.join(pipeline.topics)} into {pipeline.table}, each line exactly "
        f"once. To reprocess, use {pipeline.name}{policies.REPLAY_SUFFIX}, not a backfill over "
        "dates.",
        schedule=pipeline.schedule,
        dagrun_timeout=policies.run_timeout(pipeline),
    ) as dag:
        plan = TallyPlanOperator(task_id=PLAN, inlets=[hours])
        count = TallyCountOperator(
            batch=from_note("batch_ids", " | join(',')"),
            catch_up=True,
            **count_options(pipeline, config=config, job=job),
        )
        blocked = TallyBlockedOperator(task_id=BLOCKED, message=from_note("blocked"), retries=0)
        # Of all runs' instances one at a time: each reads what the one before has told.
        one: dict[str, Any] = {"max_active_tis_per_dag": 1}
        complete = TallyCompleteOperator(task_id=COMPLETE, inlets=[hours], outlets=[hours], **one)
        alert = [TallyAlertOperator(task_id=ALERT, **one)] if pipeline.notifiers else []
        # In parallel on purpose: a run's state is that of its last tasks, and a `blocked` that is
        # skipped after a failed `count` would turn the run green.
        plan >> [count, blocked, complete, *alert]
    return dag


def from_note(field: str, then: str = "") -> str:
    """A template for a field of the XCom of ``plan``, followed by a filter of Jinja's."""
    return f"{{{{ ti.xcom_pull(task_ids='{PLAN}', key='{NOTE_KEY}')['{field}']{then} }}}}"


class TallyPlanOperator(policies.TallyOperator, BaseBranchOperator):
    """Fix the offset ranges of the next batch, before any data is read.

    An open batch is resumed with its planned ranges. If there is nothing new, the rest of the run
    is skipped and it ends green. Partitions on which Kafka and the ledger disagree are left out and
    make `blocked` run.
    """

    @policies.final_unless_retryable()
    def choose_branch(self, context: TaskContext) -> list[str]:
        """Plan, write the plan to XCom, and return the tasks that have something to do."""
        from tally.airflow import task_metrics
        from tally.counting.plan import plan
        from tally.ledger.batches import Requester
        from tally.status.alerts import unnotified

        run = context["dag_run"]
        if run.conf:
            raise policies.final(
                f"this DAG takes no configuration, and was given {', '.join(sorted(run.conf))}; to "
                f"reprocess ranges, trigger {self.pipeline}{policies.REPLAY_SUFFIX}"
            )
        requester = Requester(
            name=f"airflow:{run.dag_id}",
            version=__version__,
            run_id=run.run_id,
            scheduled_at=run.run_after,
        )
        ctx = self.open_context(requester)
        view = plan(ctx, self.pipeline)
        note = plan_note(view, ctx.settings.pipeline(self.pipeline).topics)
        self.log.info(note["text"])
        context["ti"].xcom_push(key=NOTE_KEY, value=note)
        task_metrics.send_state(ctx, self.pipeline)
        (hours,) = self.inlets
        wanted = {
            COUNT: note["batch_ids"],
            BLOCKED: note["blocked"],
            COMPLETE: to_announce(ctx, self.pipeline, context, hours),
            ALERT: ctx.settings.pipeline(self.pipeline).notifiers
            and unnotified(ctx, self.pipeline),
        }
        return [task_id for task_id, is_wanted in wanted.items() if is_wanted]


def plan_note(view: "Planned", topics: Sequence[str]) -> dict[str, Any]:
    """The XCom of ``plan``: the outcome of planning in plain values.

    Args:
        view: The outcome of planning.
        topics: The topics in which nothing is new, when there is no batch.
    """
    from tally.counting.plan import named_batches

    blocked = str(blocked_error(view.pipeline, view.blocks)) if view.blocks else None
    ranges = [str(r) for r in view.ranges]
    text = f"nothing new in {', '.join(topics)}"
    if view.batches:
        text = f"{named_batches(view.batch_ids)} {view.verb}: {', '.join(ranges)}"
    if view.abandoned:
        text += f"; the open batch is abandoned: {'; '.join(view.abandoned)}"
    if blocked:
        text += f"; {blocked}"
    return {"batch_ids": view.batch_ids, "ranges": ranges, "blocked": blocked, "text": text}


class LossesLink(BaseOperatorLink):
    """From the red task to the DAG in which an operator decides about lost records."""

    name = "Decide losses"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow's signature
        """The DAG's page."""
        return f"{policies.base_path()}/dags/{operator.pipeline}{policies.LOSSES_SUFFIX}"


class TallyBlockedOperator(policies.TallyOperator):
    """Make the run red while partitions wait for an operator's decision.

    The other partitions are counted all the same. The error names each blocked partition, what the
    ledger and Kafka say about it, and the command with which an operator decides. A loss can also
    be decided in Airflow, with `<pipeline>_losses`.
    """

    template_fields: Sequence[str] = ("message",)
    operator_extra_links = (LossesLink(),)

    def __init__(self, *, message: str, **options: Any) -> None:
        super().__init__(**options)
        self.message = message

    def execute(self, context: TaskContext) -> None:  # noqa: ARG002 - Airflow's signature
        """Fail without a retry."""
        # The DAG decides losses alone; another topic is adopted on the command line.
        losses_dag = f"{self.pipeline}{policies.LOSSES_SUFFIX}"
        also = f" A loss may also be decided in Airflow: trigger {losses_dag}"
        raise policies.final(self.message + (also if "tally losses accept" in self.message else ""))
