"""The DAG of the schedule: plans a batch and counts it; made by :mod:`tally.airflow.factory`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import DAG, BaseBranchOperator, BaseOperatorLink, TriggerRule
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
from tally.airflow.connections import connected_settings
from tally.airflow.count import COUNT, TallyCountOperator, count_options, listed, numbers
from tally.config.pipeline import Pipeline
from tally.planning.blocks import blocked_error

if TYPE_CHECKING:  # DAG parsing must not import Kafka and MySQL
    from tally.context import Context
    from tally.counting.plan import Planned
    from tally.ledger.batches import Requester

BLOCKED: Final = "blocked"

# The XCom key of what `count` has planned; see plan_note.
NOTE_KEY: Final = "plan"
# What the task has planned, which its next try finds again.
PLANNED_KEY: Final = "batch_ids"

# The part of the task's time in which batches of a backlog are counted back to back.
_CATCH_UP: Final = 0.8


def minute_dag(pipeline: Pipeline, *, config: Path, job: Path, doc_md: str) -> DAG:
    """``count >> [blocked, complete]``, on the pipeline's schedule.

    With notifiers also ``alert``, behind ``count``.
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
        options = count_options(pipeline, config=config, job=job)
        count = TallyMinuteOperator(**options | {"inlets": [*options["inlets"], hours]})
        message = f"{{{{ ti.xcom_pull(task_ids='{COUNT}', key='{NOTE_KEY}')['blocked'] }}}}"
        blocked = TallyBlockedOperator(task_id=BLOCKED, message=message, retries=0)
        # Of all runs' instances one at a time: each reads what the one before has told.
        one: dict[str, Any] = {"max_active_tis_per_dag": 1}
        complete = TallyCompleteOperator(task_id=COMPLETE, inlets=[hours], outlets=[hours], **one)
        # Also of a count that fails: then nothing is heard of the lines, and that may be an alert.
        always: dict[str, Any] = {**one, "trigger_rule": TriggerRule.ALL_DONE}
        alert = [TallyAlertOperator(task_id=ALERT, **always)] if pipeline.notifiers else []
        count >> [blocked, complete, *alert]
    return dag


class TallyMinuteOperator(TallyCountOperator, BaseBranchOperator):
    """Fix the offset ranges of the next batch, then count it with Spark and commit it.

    An open batch is resumed with its planned ranges. If there is nothing new, no driver is started
    and the run ends green. After a standstill batches are counted back to back, until all is
    counted or most of the task's time is over. Partitions on which Kafka and the ledger disagree
    are left out and make `blocked` run.

    Safe to clear, retry and run twice: a batch that the ledger has as committed is not read again,
    and of several attempts only the newest can commit. Whatever happens to Spark or to Airflow
    meanwhile, the ledger says whether the batch is in the result.

    The connection's type says how the driver is started: `spark` with spark-submit, `spark_connect`
    as a Python process that uses a Spark Connect server. Everything else is the same.
    """

    def execute(self, context: TaskContext) -> Any:
        """Plan and count, and skip the tasks that have nothing to do."""
        return self.do_branch(context, self.choose_branch(context))

    @policies.final_unless_retryable()
    def choose_branch(self, context: TaskContext) -> list[str]:
        """Plan and count; return the tasks that have something to do.

        Raises:
            AirflowException: As :meth:`TallyCountOperator.count`; the retry resumes what is open.
        """
        from tally.airflow import telemetry
        from tally.status.alerts import unnotified

        settings = connected_settings(Path(self.config))
        ctx = self.open_context(self._requester(context), settings)
        batch_ids, note = self._plan(ctx, context)
        telemetry.send_state(ctx, self.pipeline)
        if batch_ids:
            catch_up_s = _CATCH_UP * settings.pipeline(self.pipeline).patience_s
            self.count(context, settings, batch_ids, catch_up_s=catch_up_s)
        else:
            self.outlets = []  # of the copy that runs: nothing has changed, so there is no event
        context["task_state_store"].set(PLANNED_KEY, "")
        hours = self.inlets[-1]
        wanted = {
            BLOCKED: note["blocked"],
            COMPLETE: to_announce(ctx, self.pipeline, context, hours),
            ALERT: settings.pipeline(self.pipeline).notifiers and unnotified(ctx, self.pipeline),
        }
        return [task_id for task_id, is_wanted in wanted.items() if is_wanted]

    def _requester(self, context: TaskContext) -> "Requester":
        from tally.ledger.batches import Requester

        run = context["dag_run"]
        if run.conf:
            raise policies.final(
                f"this DAG takes no configuration, and was given {', '.join(sorted(run.conf))}; to "
                f"reprocess ranges, trigger {self.pipeline}{policies.REPLAY_SUFFIX}"
            )
        return Requester(
            name=f"airflow:{run.dag_id}",
            version=__version__,
            run_id=run.run_id,
            scheduled_at=run.run_after,
        )

    def _plan(self, ctx: "Context", context: TaskContext) -> tuple[list[int], dict[str, Any]]:
        """Plan; returns the batches of this run, and the plan as it is written to XCom.

        An earlier try may have been killed behind its commit: that is told, too.
        """
        from tally.counting.outcomes import committed_among
        from tally.counting.plan import plan

        kept = context["task_state_store"]
        before = committed_among(ctx, self.pipeline, numbers(str(kept.get(PLANNED_KEY, ""))))
        view = plan(ctx, self.pipeline)
        batch_ids = sorted({*before, *view.batch_ids})
        kept.set(PLANNED_KEY, listed(batch_ids))
        note = plan_note(view, ctx.settings.pipeline(self.pipeline).topics)
        self.log.info(note["text"])
        context["ti"].xcom_push(key=NOTE_KEY, value=note)
        return batch_ids, note


def plan_note(view: "Planned", topics: Sequence[str]) -> dict[str, Any]:
    """The outcome of planning in plain values.

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
