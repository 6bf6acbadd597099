"""Tasks of the minute DAG behind ``count``: what is complete is announced, alerts are notified."""

from collections.abc import Mapping
from dataclasses import asdict
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Asset
from airflow.sdk import Context as TaskContext
from airflow.sdk.exceptions import AirflowSkipException

from tally.airflow import policies

if TYPE_CHECKING:  # DAG parsing must not import Kafka and MySQL
    from tally.context import Context
    from tally.reading.hours import Announcement

COMPLETE: Final = "complete"
ALERT: Final = "alert"

_EVENTS_READ: Final = 1_000


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
        found = to_announce(self.open_context(), self.pipeline, context, hours)
        if found is None:
            # Without partitions a task that succeeds has an event, too.
            raise AirflowSkipException("all hours that are complete were announced")
        event = context["outlet_events"][hours]
        event.extra = found.event
        # A set has no order, and Airflow writes the events as this is iterated.
        event.partition_keys = dict.fromkeys(found.event["hours"]).keys()  # type: ignore[assignment]
        self.log.info("announced: %s", ", ".join(found.event["hours"]))


def to_announce(
    ctx: "Context", pipeline: str, context: TaskContext, hours: Asset
) -> "Announcement | None":
    """What is to be announced after the latest event of the asset that the task has written."""
    from tally.reading.hours import Mark, announcement

    ours = (context["dag_run"].dag_id, COMPLETE)
    latest = context["inlet_events"][hours].ascending(False).limit(_EVENTS_READ)
    # Anyone can write an event by hand, with anything in it.
    made = (e.extra or {} for e in latest if (e.source_dag_id, e.source_task_id) == ours)
    before = next((Mark.of(extra) for extra in made), None)
    return announcement(ctx, pipeline, before)


class TallyAlertOperator(policies.TallyOperator):
    """Notify what the ledger has of alerts that began or ended, by the pipeline's notifiers.

    Each is notified once, whatever is cleared, and though one of several notifiers fails; a task
    that was killed between a notifier and the ledger notifies again.
    """

    @policies.final_unless_retryable()
    def execute(self, context: TaskContext) -> None:
        """Call each notifier, and note in the ledger that it was called."""
        from tally.status.alerts import note_notified, unnotified

        ctx = self.open_context()
        pipeline = ctx.settings.pipeline(self.pipeline)
        failures: list[Exception] = []
        untold = 0
        for alert in unnotified(ctx, self.pipeline):
            text = f"{pipeline.name}: {alert.text}"
            about = {**asdict(alert), "pipeline": pipeline.name, "text": text}
            failed = 0
            for keys in pipeline.notifiers:
                try:
                    _notify(keys, {**context, "alert": about})
                except Exception as error:
                    failed += 1
                    failures.append(error)
                    self.log.exception("%s has not notified: %s", keys["class"], text)
            # Of one that some were told of, they are not told again.
            if failed < len(pipeline.notifiers) or not pipeline.notifiers:
                note_notified(ctx, self.pipeline, alert)
                self.log.info("notified: %s", text)
            else:
                untold += 1
        if untold:
            raise failures[0]
        if failures:
            # A retry would find nothing to notify, and hide it.
            raise policies.final("a notifier has failed: see above") from failures[0]


def _notify(keys: Mapping[str, Any], told: Any) -> None:
    """Call a notifier of the configuration."""
    arguments = {key: value for key, value in keys.items() if key != "class"}
    notifier = resolve_name(keys["class"])(**arguments)
    # Not by calling it: that would only log what goes wrong.
    notifier.render_template_fields(told)
    notifier.notify(told)
