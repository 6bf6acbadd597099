"""The task that counts batches in a process of their own; the ledger decides its outcome."""

import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import Context as TaskContext
from airflow.sdk.exceptions import AirflowException

from tally.airflow import driver, policies
from tally.airflow.connections import connected_settings, spark_settings
from tally.config.pipeline import Pipeline
from tally.config.servers import SparkSettings
from tally.config.settings import Settings
from tally.formatting import continued
from tally.spark.java import driver_flags, java, scratch_folder, with_archive, with_scratch

if TYPE_CHECKING:  # DAG parsing must not import Kafka and MySQL
    from tally.counting.outcomes import BatchOutcome

COUNT: Final = "count"

# The XCom key of `count`; see event_of.
OUTCOME_KEY: Final = "outcome"

_COUNTS: Final = ("records", "matched", "malformed", "continuations")

# Of the driver itself, and as Java and shells report it.
_SIGKILL_EXITS: Final = frozenset({-signal.SIGKILL, 128 + signal.SIGKILL})


class TallyCountOperator(policies.TallyOperator):
    """Count the planned batch with Spark and commit it, each line exactly once.

    Safe to clear, retry and run twice: a batch that the ledger has as committed is not read again,
    and of several attempts only the newest can commit. Whatever happens to Spark or to Airflow
    meanwhile, the ledger says whether the batch is in the result.

    The connection's type says how the driver is started: `spark` with spark-submit, `spark_connect`
    as a Python process that uses a Spark Connect server. Everything else is the same.
    """

    template_fields: Sequence[str] = ("application", "batch")

    def __init__(
        self, *, application: str, batch: str = "", batch_name: str = "", **options: Any
    ) -> None:
        super().__init__(**options)
        self.application = application
        self.batch = batch
        self.batch_name = batch_name
        self.driver = driver.Driver()
        self._secrets: Path | None = None

    @policies.final_unless_retryable()
    def execute(self, context: TaskContext) -> Any:
        """Count the batches that are named.

        Raises:
            AirflowException: As :meth:`count`.
        """
        try:
            batch_ids = numbers(self.batch)
        except ValueError:
            batch_ids = []
        if not batch_ids:
            raise policies.final(
                f"{self.batch!r} names no batch: clear the task before, which plans it again"
            )
        self.count(context, connected_settings(Path(self.config)), batch_ids)

    def count(
        self,
        context: TaskContext,
        settings: Settings,
        batch_ids: Sequence[int],
        *,
        catch_up_s: float = 0,
    ) -> None:
        """Run batches unless they are committed; write the counts to the result's asset and XCom.

        Args:
            context: Airflow's context of the task.
            settings: The file and the connections.
            batch_ids: The ledger's keys, of one pipeline.
            catch_up_s: For how long the batches of a backlog may be counted back to back.

        Raises:
            AirflowFailException: An operator must decide.
            RetryableError: Kafka or MySQL did not answer.
            AirflowException: The driver failed in a way that may pass, or a newer attempt owns the
                batch; the retry asks the ledger again.
        """
        from tally.airflow import telemetry
        from tally.context import open_context
        from tally.counting.outcomes import batch_outcome

        ctx = open_context(settings)
        outcome = batch_outcome(ctx, batch_ids)
        if outcome.is_committed:
            self.log.info("batch %s is committed already; nothing to do", listed(batch_ids))
        else:
            # The connection says where Spark runs, in the driver too.
            settings = settings.model_copy(update={"spark": spark_settings(settings.spark)})
            arguments = ["--catch-up-s", f"{catch_up_s:g}", "--batch", listed(batch_ids)]
            failure = self._drive(settings, arguments, outcome.offsets)
            outcome = batch_outcome(ctx, batch_ids)
            self._judge(outcome, failure, settings.spark)
            telemetry.send_batches(outcome)
        if outcome.abandoned:
            raise policies.final("; ".join(outcome.abandoned))
        self.log.info(outcome_text(outcome))
        if warning := warning_of(outcome, settings.pipeline(outcome.pipeline)):
            self.log.warning(warning)
        context["ti"].xcom_push(key=OUTCOME_KEY, value=event_of(outcome))
        for asset in self.outlets:
            context["outlet_events"][asset].extra = event_of(outcome)

    def on_kill(self) -> None:
        """End the driver with all its processes, and delete its secrets."""
        # The secrets first: the driver has read them already, and Airflow soon kills this process.
        if self._secrets is not None:
            self._secrets.unlink(missing_ok=True)
        self.driver.kill()

    def _drive(
        self, settings: Settings, arguments: Sequence[str], offsets: int
    ) -> AirflowException | None:
        """Run the driver; returns how it failed, None when it did not."""
        with ExitStack() as stack:
            # This late, so that Airflow stores none of it.
            self._secrets = stack.enter_context(driver.secrets_file(settings))
            command = [sys.executable, self.application, *arguments]
            if not settings.spark.is_connect:
                conf = _driver_conf(settings, offsets, stack)
                command = driver.submit_command(
                    self.application, arguments, name=f"tally_{self.dag_id}", conf=conf
                )
            try:
                environment = driver.driver_environment(Path(self.config), self._secrets)
                self.driver.run(command, environment)
            except AirflowException as error:
                return error
        return None

    def _judge(
        self, outcome: "BatchOutcome", failure: AirflowException | None, spark: SparkSettings
    ) -> None:
        """Raise unless all is committed: the ledger decides before the driver's exit code."""
        if outcome.is_committed and failure is None:
            return  # the caller reports what was abandoned
        if outcome.is_committed and not outcome.abandoned:
            self.log.warning("the driver failed after the commit: %s", failure)
            return
        batches = listed(outcome.batch_ids)
        if failure is None:
            raise AirflowException(
                f"batch {batches}: the driver ended with exit code 0, but the batch is "
                "not committed in the ledger"
            )
        code, error_line = self.driver.exit_code, self.driver.error_line
        if code in policies.FINAL_EXITS:
            raise policies.final(f"batch {batches}: {error_line}")
        if code in _SIGKILL_EXITS and not self.driver.killed:
            raise AirflowException(
                f"batch {batches}: the driver was ended by SIGKILL, perhaps because memory "
                f"ran out: {error_line}. Next: nothing, the retry counts it; if it happens again, "
                "see the kernel's log (dmesg), and give the worker more memory"
            )
        if not spark.is_connect:
            java()  # without one no retry helps
        raise failure


def _driver_conf(settings: Settings, offsets: int, stack: ExitStack) -> Mapping[str, str]:
    """Spark's configuration for spark-submit; folders are deleted with the stack."""
    from tally.spark.session import is_local, session_options

    conf = driver.submit_conf(session_options(settings.spark), driver_flags(offsets))
    if not is_local(settings.spark):  # executors on other machines do not have the folder
        return conf
    return with_archive(
        with_scratch(conf, stack.enter_context(scratch_folder())), settings.spark.jars_dir
    )


def count_options(pipeline: Pipeline, *, config: Path, job: Path) -> dict[str, Any]:
    """What the tasks that count have in all DAGs of a pipeline."""
    return {
        "task_id": COUNT,
        "pipeline": pipeline.name,
        "config": str(config),
        "application": str(job),
        "execution_timeout": policies.patience(pipeline),
        "inlets": policies.topic_assets(pipeline),
        "outlets": [policies.result_asset(pipeline)],
        "doc_md": cleandoc(TallyCountOperator.__doc__ or ""),
    }


def listed(batch_ids: Sequence[int]) -> str:
    """Batches as the driver is given them: ``3``, or ``3,4``."""
    return ",".join(map(str, batch_ids))


def numbers(text: str) -> list[int]:
    """The batches of such a text.

    Raises:
        ValueError: It is another text.
    """
    return [int(number) for number in text.split(",") if number]


def outcome_text(outcome: "BatchOutcome") -> str:
    """A committed batch in one line for the log."""
    from tally.counting.plan import named_batches

    total = outcome.total
    instead = f" as {list(outcome.standing)}" if outcome.is_replanned else ""
    behind = f" and {list(outcome.followed_by)} behind it" if outcome.followed_by else ""
    are = "is" if len(outcome.batch_ids) == 1 else "are"
    return (
        f"{named_batches(outcome.batch_ids)} {are} committed{instead}{behind}: "
        f"{total.records} records, {total.matched} matched, {total.malformed} malformed"
        f"{continued(total.continuations)}, from "
        f"{', '.join(map(str, outcome.ranges))}"
    )


def warning_of(outcome: "BatchOutcome", pipeline: Pipeline) -> str | None:
    """What the health of the pipeline says of a batch of which too much is malformed."""
    from tally.ledger.rules import Understood
    from tally.status.health import malformed_problem

    problem = malformed_problem(pipeline, Understood.of(outcome.total))
    if problem is None:
        return None
    return f"{problem.reason}: {problem.detail}. Next: {problem.next_step}"


def event_of(outcome: "BatchOutcome") -> dict[str, Any]:
    """A committed batch, with those that caught up after it, for XCom and the asset's event."""
    event: dict[str, Any] = {
        "batch_ids": list(outcome.batch_ids),
        "ranges": [str(r) for r in outcome.ranges],
        **{key: getattr(outcome.total, key) for key in _COUNTS},
        "seconds_until": dict(outcome.steps),
    }
    if outcome.is_replanned:
        event["replanned_as"] = list(outcome.standing)
    if outcome.followed_by:
        event["followed_by"] = list(outcome.followed_by)
    return event
