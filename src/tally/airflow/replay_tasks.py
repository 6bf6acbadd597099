"""The tasks of a replay before and after its counting. Airflow shows their docstrings."""

from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import BaseOperator, Context, SkipMixin
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowFailException

from tally import __version__
from tally.airflow.connections import brief_context
from tally.airflow.failures import final, final_unless_retryable
from tally.airflow.links import PreviewLink
from tally.airflow.replay_form import read_form
from tally.formatting import plural

if TYPE_CHECKING:
    from tally.airflow.replay_work import Shown
    from tally.ledger.batches import Requester

PREVIEW: Final = "preview"
REQUEST: Final = "request"
OUTCOME: Final = "outcome"

# XCom keys of the tasks; see tally.airflow.replay_work.
SHOWN_KEY: Final = "preview"
REPLAY_KEY: Final = "replay_id"
SUMMARY_KEY: Final = "outcome"

_REQUESTER_MAX: Final = 250


class TallyReplayPreviewOperator(BaseOperator, SkipMixin):
    """Show what the replay would do: what is read, what it replaces, which minutes may change.

    The preview is in the log, in XCom and in the run's tab *Tally*, which the button *Preview*
    under *Details* opens, too. A dry run ends here, green. Ranges that cannot be reprocessed, and a
    contradictory form, make it red.
    """

    operator_extra_links = (PreviewLink(),)

    def __init__(self, *, pipeline: str, config: str, **options: Any) -> None:
        super().__init__(**options)
        self.pipeline = pipeline
        self.config = config

    def execute(self, context: Context) -> None:
        """Preview; skip the other tasks after a dry run."""
        from tally.airflow import replay_work  # DAG parsing must not import Kafka and MySQL

        params = context["params"]
        dry_run = bool(params["dry_run"])
        try:
            with final_unless_retryable():
                request = read_form(params)
                ctx = brief_context(self.config, self.pipeline)
                shown = replay_work.show(
                    ctx,
                    self.pipeline,
                    request,
                    batches_max=conf.getint("core", "max_map_length"),
                    seen=params.get("shown"),
                )
                written = replay_work.find_written(
                    ctx, self.pipeline, _requester(context), shown.digest
                )
        except AirflowFailException as error:
            _hand_on(context, replay_work.Shown.refusal(str(error)))
            raise
        self.log.info("preview\n%s", shown)
        _hand_on(context, shown)
        if written is not None:
            self.log.info("this run has recorded replay %s already", written.replay_id)
        elif shown.refused:
            raise final(shown.refused)
        if dry_run:
            self.log.info(
                "nothing was changed; to reprocess it: Trigger again with this config, "
                "with dry run off"
            )
            self.skip(ti=context["ti"], tasks=self.get_flat_relatives(upstream=False))


class TallyReplayRequestOperator(BaseOperator):
    """Record the replay in the ledger: what was shown, who requested it, and why.

    Safe to retry and clear: a run records one replay, and a repeated request returns the same one.
    """

    def __init__(self, *, pipeline: str, config: str, **options: Any) -> None:
        super().__init__(**options)
        self.pipeline = pipeline
        self.config = config

    def execute(self, context: Context) -> list[dict[str, str]]:
        """Record it and return its batches, one task each."""
        from tally.airflow import replay_work  # DAG parsing must not import Kafka and MySQL

        ti = context["ti"]
        shown = ti.xcom_pull(task_ids=PREVIEW, key=SHOWN_KEY)
        requester = _requester(context)
        with final_unless_retryable():
            reason = context["params"]["reason"].strip()
            ctx = brief_context(self.config, self.pipeline)
            written = replay_work.write_down(ctx, self.pipeline, shown, requester, reason)
        self.log.info(
            "replay %s of %s: %s",
            written.replay_id,
            requester.name,
            plural(len(written.batches), "batch"),
        )
        ti.xcom_push(key=REPLAY_KEY, value=written.replay_id)
        return written.batches


class TallyReplayOutcomeOperator(BaseOperator):
    """Report the outcome of the replay from the ledger; red unless all of it is committed.

    It also runs after failures. To resume what is left, clear the red tasks or use
    `tally replay --resume 7`.
    """

    def __init__(self, *, pipeline: str, config: str, **options: Any) -> None:
        super().__init__(**options)
        self.pipeline = pipeline
        self.config = config

    def execute(self, context: Context) -> None:
        """Read the outcome from the ledger; it goes to XCom."""
        from tally.airflow import replay_work  # DAG parsing must not import Kafka and MySQL
        from tally.replay.run import replay_outcome

        ti = context["ti"]
        replay_id = ti.xcom_pull(task_ids=REQUEST, key=REPLAY_KEY)
        if replay_id is None:
            raise final("no replay was recorded; see the task before")
        digest = str(ti.xcom_pull(task_ids=PREVIEW, key=SHOWN_KEY)["digest"])
        with final_unless_retryable():
            ctx = brief_context(self.config, self.pipeline)
            written = replay_work.find_written(ctx, self.pipeline, _requester(context), digest)
            if written is None or written.replay_id != int(replay_id):
                raise final(
                    f"the ledger has no replay {replay_id} of this run: it was restored to an "
                    "older state since. Next: trigger the DAG again"
                )
            outcome = replay_outcome(ctx, int(replay_id))
        text = replay_work.outcome_text(outcome)
        self.log.info(text)
        context["ti"].xcom_push(key=SUMMARY_KEY, value=replay_work.outcome_xcom(outcome))
        if not outcome.is_done:
            raise final(f"{text}. Next: clear the red tasks, or: tally replay --resume {replay_id}")


def _hand_on(context: Context, shown: "Shown") -> None:
    """Write the preview to XCom, for the next task and for the page behind the button *Preview*."""
    dry_run = bool(context["params"]["dry_run"])
    context["ti"].xcom_push(key=SHOWN_KEY, value={**shown.to_xcom(), "dry_run": dry_run})


def _requester(context: Context) -> "Requester":
    """The user who has triggered the run."""
    from tally.ledger.batches import Requester  # DAG parsing must not import MySQL

    run = context["dag_run"]
    user = run.triggering_user_name or "unknown"
    return Requester(
        name=f"airflow:{run.dag_id}:{user}"[:_REQUESTER_MAX], version=__version__, run_id=run.run_id
    )
