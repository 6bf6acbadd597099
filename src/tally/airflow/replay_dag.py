"""Reprocesses ranges of a pipeline.

The new counts replace the old ones, so that each line stays counted exactly once.

1. **Trigger** it with *Dry run* on. The run ends green after `preview`, whose log shows what
   would be read and replaced. Nothing is changed.
2. **Trigger again with this config**, with the switch off. `request` writes the replay and its
   reason into the ledger, `count` runs batch after batch, `outcome` reports the whole replay.

The ranges are widened to whole segments. Offsets that the schedule has not counted yet, and
offsets that Kafka no longer holds, are refused. The minute DAG may run meanwhile; readers of
the result see a batch's old counts or its new ones. If a task is red, clear it: committed
batches are not run again.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from airflow.sdk import DAG, BaseOperatorLink, SkipMixin
from airflow.sdk import Context as TaskContext
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowFailException

from tally.airflow import policies
from tally.airflow.count import TallyCountOperator, count_options
from tally.airflow.replay_form import as_text, form, read_form, show
from tally.config.pipeline import Pipeline
from tally.errors import PreviewOutdatedError
from tally.formatting import continued, plural
from tally.model import OffsetRange, TopicPartition
from tally.planning.replay_request import parse_range

if TYPE_CHECKING:  # DAG parsing must not import Kafka and MySQL
    from tally.ledger.batches import Requester
    from tally.replay.run import ReplayOutcome

PREVIEW: Final = "preview"
REQUEST: Final = "request"
OUTCOME: Final = "outcome"

# XCom keys of the tasks; see replay_form.show and outcome_xcom.
SHOWN_KEY: Final = "preview"
REPLAY_KEY: Final = "replay_id"
SUMMARY_KEY: Final = "outcome"

# A preview need not wait for a long replay. Batches are still counted one at a time, in all runs
# together: each is a driver of its own.
ACTIVE_RUNS: Final = 4
DRIVERS: Final = 1

_NAME_MAX: Final = 60


def replay_dag(pipeline: Pipeline, *, config: Path, job: Path) -> DAG:
    """``preview >> request >> count (one task for each batch) >> outcome``, by hand only."""
    # The run has no timeout: its number of batches is not known here, and each batch has a timeout.
    with policies.tally_dag(
        pipeline,
        policies.REPLAY_SUFFIX,
        __doc__,
        config=config,
        description=f"Reprocesses offsets, times, batches or minutes of {pipeline.table}",
        params=form(pipeline),
        max_active_runs=ACTIVE_RUNS,
    ) as dag:
        preview = TallyReplayPreviewOperator(task_id=PREVIEW)
        request = TallyReplayRequestOperator(task_id=REQUEST)
        count = TallyCountOperator.partial(
            map_index_template="{{ task.batch_name }}",
            max_active_tis_per_dag=DRIVERS,
            **count_options(pipeline, config=config, job=job),
        ).expand_kwargs(request.output)
        outcome = TallyReplayOutcomeOperator(task_id=OUTCOME, trigger_rule="all_done")
        preview >> request >> count >> outcome
    return dag


class PreviewLink(BaseOperatorLink):
    """From the preview of a replay to the page that shows it as a table."""

    name = "Preview"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow's signature
        """The page of the plugin."""
        query = urlencode({"dag_id": ti_key.dag_id, "run_id": ti_key.run_id})
        return f"{policies.base_path()}{policies.RUN_PATH}?{query}"


class TallyReplayPreviewOperator(policies.TallyOperator, SkipMixin):
    """Show what the replay would do: what is read, what it replaces, which minutes may change.

    The preview is in the log, in XCom and in the run's tab *Tally*, which the button *Preview*
    under *Details* opens, too. A dry run ends here, green. Ranges that cannot be reprocessed, and a
    contradictory form, make it red.
    """

    operator_extra_links = (PreviewLink(),)

    def execute(self, context: TaskContext) -> None:
        """Preview; skip the other tasks after a dry run."""
        from tally.replay.run import find_requested

        params = context["params"]
        try:
            with policies.final_unless_retryable():
                request = read_form(params)
                ctx = self.open_context(_requester(context))
                shown = show(
                    ctx,
                    self.pipeline,
                    request,
                    batches_max=conf.getint("core", "max_map_length"),
                    seen=params.get("shown"),
                )
                recorded = find_requested(ctx, self.pipeline, shown["digest"])
        except AirflowFailException as error:
            _hand_on(context, {"refused": str(error)})
            raise
        self.log.info("preview\n%s", as_text(shown))
        _hand_on(context, shown)
        if recorded is not None:
            self.log.info("this run has recorded replay %s already", recorded.replay_id)
        elif shown["refused"]:
            raise policies.final(shown["refused"])
        if params["dry_run"]:
            self.log.info(
                "nothing was changed; to reprocess it: Trigger again with this config, "
                "with dry run off"
            )
            self.skip(ti=context["ti"], tasks=self.get_flat_relatives(upstream=False))


class TallyReplayRequestOperator(policies.TallyOperator):
    """Record the replay in the ledger: what was shown, who requested it, and why.

    Safe to retry and clear: a run records one replay, and a repeated request returns the same one.
    """

    @policies.final_unless_retryable()
    def execute(self, context: TaskContext) -> list[dict[str, str]]:
        """Record it and return its batches, one task each."""
        from tally.replay.run import request_replay

        ti = context["ti"]
        shown = ti.xcom_pull(task_ids=PREVIEW, key=SHOWN_KEY)
        ctx = self.open_context(_requester(context))
        try:
            recorded = request_replay(
                ctx,
                self.pipeline,
                request=str(shown["request"]),
                digest=str(shown["digest"]),
                asked=[parse_range(text) for text in shown["asked"]],
                plan=str(shown["plan"]),
                reason=context["params"]["reason"].strip(),
            )
        except PreviewOutdatedError as error:
            again = "trigger the DAG again: it shows what would be replaced now"
            raise PreviewOutdatedError(self.pipeline, next_step=again) from error
        batches = plural(len(recorded.batches), "batch")
        self.log.info("replay %s of %s: %s", recorded.replay_id, ctx.requester.name, batches)
        ti.xcom_push(key=REPLAY_KEY, value=recorded.replay_id)
        return [
            {
                "batch": str(one.batch_id),
                "batch_name": task_name(one.batch_id, one.ranges),
            }
            for one in recorded.batches
        ]


class TallyReplayOutcomeOperator(policies.TallyOperator):
    """Report the outcome of the replay from the ledger; red unless all of it is committed.

    It also runs after failures. To resume what is left, clear the red tasks or use
    `tally replay --resume 7`.
    """

    @policies.final_unless_retryable()
    def execute(self, context: TaskContext) -> None:
        """Read the outcome from the ledger; it goes to XCom."""
        from tally.replay.run import find_requested, replay_outcome

        ti = context["ti"]
        replay_id = ti.xcom_pull(task_ids=REQUEST, key=REPLAY_KEY)
        shown = ti.xcom_pull(task_ids=PREVIEW, key=SHOWN_KEY)
        if replay_id is None or "digest" not in shown:  # cleared, and refused since
            raise policies.final(
                f"no replay was recorded; the log of the task {PREVIEW} or {REQUEST} has the cause"
            )
        ctx = self.open_context(_requester(context))
        recorded = find_requested(ctx, self.pipeline, str(shown["digest"]))
        if recorded is None or recorded.replay_id != int(replay_id):
            raise policies.final(
                f"the ledger has no replay {replay_id} of this run: it was restored to an "
                "older state since. Next: trigger the DAG again"
            )
        outcome = replay_outcome(ctx, int(replay_id))
        text = outcome_text(outcome)
        self.log.info(text)
        ti.xcom_push(key=SUMMARY_KEY, value=outcome_xcom(outcome))
        if not outcome.is_done:
            again = f"clear the red tasks, or: tally replay --resume {replay_id}"
            raise policies.final(f"{text}. Next: {again}")


def _requester(context: TaskContext) -> "Requester":
    """The user who has triggered the run."""
    return policies.requester_of(context, context["dag_run"].triggering_user_name)


def _hand_on(context: TaskContext, shown: dict[str, Any]) -> None:
    """Write the preview to XCom, for the next task and for the page behind the button *Preview*."""
    dry_run = bool(context["params"]["dry_run"])
    context["ti"].xcom_push(key=SHOWN_KEY, value={**shown, "dry_run": dry_run})


def task_name(batch_id: int, ranges: "Sequence[OffsetRange]") -> str:
    """``batch 23: 14,440 offsets of alog/0-3``: short, as Airflow's tables are narrow."""
    what = f"batch {batch_id}: {plural(sum(r.offsets for r in ranges), 'offset')} of "
    partitions = sorted({r.partition for r in ranges})
    named = what + ", ".join(_runs(partitions))
    return named if len(named) < _NAME_MAX else what + plural(len(partitions), "partition")


def _runs(partitions: Sequence[TopicPartition]) -> Iterator[str]:
    """``alog/0-3``, ``alog/7``: adjacent partitions of a topic are joined."""
    # Partition minus position in the list is the same for all partitions of a run.
    far = enumerate(partitions)
    for _, run in groupby(far, key=lambda at: (at[1].topic, at[1].partition - at[0])):
        first, *others = [partition for _, partition in run]
        yield f"{first}-{others[-1].partition}" if others else str(first)


def outcome_text(outcome: "ReplayOutcome") -> str:
    """The outcome of a replay, in one line for the log."""
    return (
        f"replay {outcome.replay_id} is {outcome.state}: {outcome.committed} of "
        f"{plural(outcome.batches, 'batch')} committed, {plural(outcome.records, 'record')}, "
        f"{outcome.matched:,} matched in {plural(outcome.minutes, 'minute')}, "
        f"{outcome.malformed:,} malformed{continued(outcome.continuations)}; {outcome.changed}"
    )


def outcome_xcom(outcome: "ReplayOutcome") -> dict[str, Any]:
    """The outcome of a replay, as plain values; the changes are None after they were pruned."""
    counts = ("records", "matched", "malformed", "continuations", "minutes")
    changes = outcome.changes
    return {
        **{key: getattr(outcome, key) for key in ("replay_id", "batches", "committed", *counts)},
        "state": str(outcome.state),
        "changed": outcome.changed,
        "minutes_changed": changes.minutes if changes else None,
        "lines_more": changes.lines_more if changes else None,
        "lines_fewer": changes.lines_fewer if changes else None,
    }
