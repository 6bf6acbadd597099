"""The task that counts one batch in a process of its own; the ledger decides its outcome."""

import signal
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException

from tally.airflow.connect_driver import ConnectDriver, connect_settings
from tally.airflow.connections import (
    CONNECT_TYPE,
    SPARK,
    connected_context,
    connected_settings,
    require_spark_connection,
)
from tally.airflow.driver import (
    GRACE_S,
    KILLED,
    DriverHook,
    driver_environment,
    submit_conf,
    submit_settings,
)
from tally.airflow.failures import final, final_unless_retryable
from tally.airflow.operators import from_note
from tally.airflow.secrets_file import secrets_file
from tally.config.settings import Settings
from tally.errors import EXIT_OPERATOR, EXIT_USAGE
from tally.spark.class_archive import with_archive
from tally.spark.java import java
from tally.spark.scratch import scratch_folder, with_scratch

# The XCom key of `count`; see tally.airflow.work.event_of.
OUTCOME_KEY: Final = "outcome"

# Exit codes of the job that a retry does not change. Fencing is not among them: the newer attempt
# commits the batch meanwhile, and the retry finds it committed; or it fails, and the retry commits.
_FINAL_EXITS: Final = frozenset({EXIT_USAGE, EXIT_OPERATOR})

# Of the driver itself, and as Java and shells tell it.
_KILLED_EXITS: Final = frozenset({-signal.SIGKILL, 128 + signal.SIGKILL})


class TallyCountOperator(SparkSubmitOperator):
    """Count the planned batch with Spark and commit it, each line exactly once.

    Safe to clear, retry and run twice: a batch that the ledger has as committed is not read again,
    and of several attempts only the newest can commit. Whatever happens to Spark or to Airflow
    meanwhile, the ledger says whether the batch is in the result. After a standstill batches are
    counted back to back, until all is counted or most of the task's time is over.

    The connection's type says how the driver is started: `spark` with spark-submit, `spark_connect`
    as a Python process that uses a Spark Connect server. Everything else is the same.
    """

    driver_grace_s: float = GRACE_S
    """Seconds that a driver of Spark Connect has to close its session when the task is ended."""

    def __init__(
        self,
        *,
        config: str,
        batch: str = from_note("batch_ids", " | join(',')"),
        batch_name: str = "",
        catch_up: timedelta = timedelta(0),
        **options: Any,
    ) -> None:
        arguments = ["--catch-up-s", f"{catch_up.total_seconds():g}"] if catch_up else []
        super().__init__(conn_id=SPARK, application_args=[*arguments, "--batch", batch], **options)
        self.config = config
        self.batch_name = batch_name
        self._secrets: Path | None = None
        self._environment: dict[str, str] = {}
        self._plain: ConnectDriver | None = None
        self._killed = False

    def execute(self, context: Context) -> None:
        """Run the batch unless it is committed; write its counts to the result's asset and XCom.

        Raises:
            AirflowFailException: An operator must decide.
            RetryableError: Kafka or MySQL did not answer.
            AirflowException: The driver failed in a way that may pass, or a newer attempt owns the
                batch; the retry asks the ledger again.
        """
        from tally.airflow import task_metrics, work  # DAG parsing must import no client
        from tally.counting.outcomes import batch_outcome

        with final_unless_retryable():
            settings = connected_settings(Path(self.config))
            batch_ids = self._batch_ids()
            outcome = batch_outcome(connected_context(settings), batch_ids)
            if outcome.is_committed:
                self.log.info("batch %s is committed already; nothing to do", self._batches)
            else:
                self._run_driver(settings, batch_ids, context)
                outcome = batch_outcome(connected_context(settings), batch_ids)
                task_metrics.send_batches(outcome)
        if outcome.abandoned:
            raise final("; ".join(outcome.abandoned))
        self.log.info(work.outcome_text(outcome))
        if warning := work.warning_of(outcome, settings.pipeline(outcome.pipeline)):
            self.log.warning(warning)
        context["ti"].xcom_push(key=OUTCOME_KEY, value=work.event_of(outcome))
        for asset in self.outlets:
            context["outlet_events"][asset].extra = work.event_of(outcome)

    def on_kill(self) -> None:
        """End the driver with all its processes, and delete its secrets."""
        self._killed = True
        # The secrets first: the driver has read them already, and Airflow soon kills this process.
        if self._secrets is not None:
            self._secrets.unlink(missing_ok=True)
        for driver in (self._hook, self._plain):
            if driver is not None:
                driver.on_kill()

    @property
    def _batches(self) -> str:
        """As the driver is told: ``3``, or ``3,4``."""
        return str((self.application_args or [""])[-1])

    def _batch_ids(self) -> list[int]:
        try:
            return [int(number) for number in self._batches.split(",")]
        except ValueError:
            raise final(
                f"{self._batches!r} names no batch: clear the task before, which plans it again"
            ) from None

    def _run_driver(self, settings: Settings, batch_ids: Sequence[int], context: Context) -> None:
        connection = require_spark_connection()
        # The connection says where Spark runs, in the driver too.
        spark = (
            connect_settings(SPARK, settings.spark)
            if connection.conn_type == CONNECT_TYPE
            else submit_settings(SPARK, settings.spark)
        )
        settings = settings.model_copy(update={"spark": spark})
        with ExitStack() as stack:
            self._prepare(settings, batch_ids, stack)
            if self._killed:
                raise AirflowException(f"batch {self._batches}: {KILLED}")
            failure = self._drive(context)
        self._judge(settings, batch_ids, failure)

    def _prepare(self, settings: Settings, batch_ids: Sequence[int], stack: ExitStack) -> None:
        """Set what the driver is started with; this late, so that Airflow stores none of it."""
        self._secrets = stack.enter_context(secrets_file(settings))
        self._environment = driver_environment(Path(self.config), self._secrets)
        if settings.spark.is_connect:
            self._plain = ConnectDriver(
                environment=self._environment,
                application_args=self.application_args or [],
                grace_s=self.driver_grace_s,
            )
            return
        from tally.counting.outcomes import (
            batch_outcome,  # DAG parsing must not import Kafka and MySQL
        )
        from tally.spark.session import driver_flags, is_local, session_options  # nor Spark

        flags = driver_flags(batch_outcome(connected_context(settings), batch_ids).offsets)
        self.conf = submit_conf(session_options(settings.spark), flags)
        if is_local(settings.spark):  # executors on other machines do not have the folder
            with_folder = with_scratch(self.conf, stack.enter_context(scratch_folder()))
            self.conf = with_archive(with_folder, settings.spark)

    def _drive(self, context: Context) -> AirflowException | None:
        try:
            if self._plain is not None:
                self._plain.submit(self.application)
            else:
                super().execute(context)
        except AirflowException as error:
            return error
        return None

    def _judge(
        self, settings: Settings, batch_ids: Sequence[int], failure: AirflowException | None
    ) -> None:
        """Raise unless all is committed: the ledger decides before the driver's exit code."""
        from tally.counting.outcomes import (
            batch_outcome,  # DAG parsing must not import Kafka and MySQL
        )

        outcome = batch_outcome(connected_context(settings), batch_ids)
        if outcome.is_committed and not outcome.abandoned:
            if failure is not None:
                self.log.warning("the driver failed after the commit: %s", failure)
            return
        if failure is None and outcome.is_committed:
            return  # what was abandoned is told by whoever has asked for the outcome
        if failure is None:
            raise AirflowException(
                f"batch {self._batches}: the driver ended with exit code 0, but the batch is "
                "not committed in the ledger"
            )
        driver = self._driver()
        if driver.exit_code in _FINAL_EXITS:
            raise final(f"batch {self._batches}: {driver.error_line}") from None
        if driver.exit_code in _KILLED_EXITS and not self._killed:
            raise AirflowException(
                f"batch {self._batches}: the driver was ended by SIGKILL, perhaps because memory "
                f"ran out: {driver.error_line}. Next: nothing, the retry counts it; if it happens "
                "again, see the kernel's log (dmesg), and give the worker more memory"
            ) from None
        if self._plain is None:
            java()  # without one no retry helps
        raise failure

    def _driver(self) -> DriverHook | ConnectDriver:
        driver = self._plain or self._hook
        if not isinstance(driver, DriverHook | ConnectDriver):
            raise AirflowException("the driver was never started")
        return driver

    def _get_hook(self) -> DriverHook:
        hook = self._hook = DriverHook(
            environment=self._environment,
            conf=self.conf,
            conn_id=self._conn_id,
            name=self.name,
            application_args=self.application_args,
        )
        if self._killed:  # asked after: on_kill finds the hook by itself
            raise AirflowException(KILLED)
        return hook
