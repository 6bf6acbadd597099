"""The DAG of the schedule: plans a batch and counts it; made by :mod:`tally.airflow.factory`."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import DAG, Asset, BaseBranchOperator, BaseOperatorLink
from airflow.sdk import Context as TaskContext
from airflow.sdk.exceptions import AirflowSkipException

from tally import __version__
from tally.airflow import policies
from tally.airflow.count import COUNT, TallyCountOperator, count_options
from tally.config.pipeline import Pipeline
from tally.planning.blocks import blocked_error

if TYPE_CHECKING:  # DAG parsing must not import Kafka and MySQL
    from tally.context import Context
    from tally.counting.plan import Planned
    from tally.ledger.alerts import Alert
    from tally.reading.hours import Announcement

PLAN: Final = "plan"
BLOCKED: Final = "blocked"
COMPLETE: Final = "complete"
ALERT: Final = "alert"

_EVENTS_READ: Final = 20

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
        # Of all runs' instances one at a time: each reads what the one before has announced.
        complete = TallyCompleteOperator(
            task_id=COMPLETE, inlets=[hours], outlets=[hours], max_active_tis_per_dag=1
        )
        alert = [TallyAlertOperator(task_id=ALERT)] if pipeline.notifiers else []
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
            COMPLETE: _to_announce(ctx, self.pipeline, context, hours),
            ALERT: ctx.settings.pipeline(self.pipeline).notifiers
            and _to_notify(ctx, self.pipeline),
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


class TallyCompleteOperator(policies.TallyOperator):
    """Announce the hours of the result that are complete, and those that have changed since.

    One event of the asset `tally_<table>_hours` for each, in order, with the hour as its partition
    on the lines' own clock, such as `2026-11-27T14:00:00`. What was announced Airflow's own events
    say, and they are written as the task succeeds: whatever is cleared, retried or killed, nothing
    is announced twice.
    """

    @policies.final_unless_retryable()
    def execute(self, context: TaskContext) -> None:
        """Announce, or skip the task when nothing is new."""
        (hours,) = self.outlets
        found = _to_announce(self.open_context(), self.pipeline, context, hours)
        if found is None:
            # Without partitions a task that succeeds has an event, too.
            raise AirflowSkipException("all hours that are complete were announced")
        event = context["outlet_events"][hours]
        event.extra = found.event
        # A set has no order, and Airflow writes the events as this is iterated.
        event.partition_keys = dict.fromkeys(found.event["hours"]).keys()  # type: ignore[assignment]
        self.log.info("announced: %s", ", ".join(found.event["hours"]))


def _to_announce(
    ctx: "Context", pipeline: str, context: TaskContext, hours: Asset
) -> "Announcement | None":
    """What is to be announced after the latest event of the asset."""
    from tally.reading.hours import Announced, announcement

    latest = context["inlet_events"][hours].ascending(False).limit(_EVENTS_READ)
    # Anyone can write an event by hand, with anything in it.
    ours = (event.extra for event in latest if event.extra and "hours_before" in event.extra)
    before = next((Announced.of(extra) for extra in ours), None)
    return announcement(ctx, pipeline, before)


class TallyAlertOperator(policies.TallyOperator):
    """Notify what the ledger has of alerts that began or ended, by the pipeline's notifiers.

    Each is notified once, whatever is cleared; a task that was killed between a notifier and the
    ledger notifies again.
    """

    @policies.final_unless_retryable()
    def execute(self, context: TaskContext) -> None:
        """Call each notifier, and note in the ledger that it was called."""
        from tally.ledger.alerts import notified

        ctx = self.open_context()
        pipeline = ctx.settings.pipeline(self.pipeline)
        for alert in _to_notify(ctx, self.pipeline):
            text = f"{pipeline.name}: {alert.text}"
            about = {**asdict(alert), "pipeline": pipeline.name, "text": text}
            for keys in pipeline.notifiers:
                arguments = {key: value for key, value in keys.items() if key != "class"}
                notifier = resolve_name(keys["class"])(**arguments)
                # Not by calling it: that would only log what goes wrong.
                told: Any = {**context, "alert": about}
                notifier.render_template_fields(told)
                notifier.notify(told)
            ctx.database.run(partial(notified, pipeline=pipeline.name, alert=alert))
            self.log.info("notified: %s", text)


def _to_notify(ctx: "Context", pipeline: str) -> "list[Alert]":
    from tally.ledger.alerts import alerts_of

    with ctx.database.transaction(read_only=True) as tx:
        return alerts_of(tx, pipeline, unnotified=True)


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
