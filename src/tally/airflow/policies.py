"""What all DAGs and tasks of a pipeline share: timeouts, retries, errors, assets, addresses.

All timeouts follow from the pipeline's ``patience_s``. Each is shorter than the next: an answer of
Kafka or a lock wait, a statement, the task, the run. So the innermost timeout fires first, and its
error names the cause. The settings keep the same order where no task is involved.

Who retries what, and how often:

===========================================  ======================================================
MySQL rolled a transaction back              :meth:`tally.mysql.transactions.Database.run`: five
                                             tries in all, within the task
an answer to COMMIT is lost                  ``Database.run_answered`` asks what became of it, for
                                             two minutes at most
Kafka's answer may be stale                  :mod:`tally.counting.plan` asks three times
another replay was first                     :mod:`tally.counting.run` replans the batch, five times
an error of ``FINAL_ERRORS`` in a task       nobody: the task fails at once; also by fencing
an exit code of ``FINAL_EXITS``              nobody; it is a success if the batch is committed
any other error or exit code                 Airflow, ``RETRIES`` times, ``RETRY_DELAY`` apart
a task that waits for an operator            nobody: ``blocked`` and ``decide`` have no retry
===========================================  ======================================================
"""

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from airflow.sdk import DAG, Asset, BaseOperator, CronTriggerTimetable
from airflow.sdk import Context as TaskContext
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowFailException, AirflowTimetableInvalid

from tally import __version__, errors
from tally.airflow.connections import connected_settings, find_connection
from tally.config.names import DAG_SUFFIXES
from tally.config.pipeline import Pipeline
from tally.config.settings import Settings

if TYPE_CHECKING:  # DAG parsing must not import Kafka and MySQL
    from tally.context import Context
    from tally.ledger.batches import Requester

log = logging.getLogger(__name__)

TAG: Final = "tally"

REPLAY_SUFFIX, LOSSES_SUFFIX, AUDIT_SUFFIX = DAG_SUFFIXES

# A pipeline ignores dates: the ledger says what is counted next. A backfill over dates would only
# start the same batch many times.
RUN_TYPES: Final[list[Any]] = ["scheduled", "manual"]

# Soon: Airflow's default delay, 300 s, is five batches.
RETRIES: Final = 3
RETRY_DELAY: Final = timedelta(seconds=10)
# No retry corrects these errors of Tally's; of a newer attempt the next run resumes what is left.
FINAL_ERRORS: Final = (errors.UsageError, errors.OperatorError, errors.FencedError)
# The driver's exit code for fencing is not among these: the newer attempt commits the batch
# meanwhile, and the retry finds it committed; or it fails, and the retry commits.
FINAL_EXITS: Final = frozenset({errors.UsageError.exit_code, errors.OperatorError.exit_code})

AUDIT_TIMEOUT: Final = timedelta(hours=1)

# Parts of the patience: of what asks Kafka and writes a few rows, as a plan does; and of a run,
# which holds one count, what comes behind it, and what Airflow needs between them, attempts and
# pauses included.
SHORT_PART: Final = 0.2
RUN_PART: Final = 1.25

# The longest wait for one answer, as a part of its task's timeout.
_ANSWER: Final = 0.5

URL_PREFIX: Final = "/tally"
"""The address of the console, below Airflow's own."""
RUN_PATH: Final = f"{URL_PREFIX}/run"
"""A run of one of Tally's DAGs: its batches, or its preview and what has become of the replay."""


def patience(pipeline: Pipeline) -> timedelta:
    """One attempt of ``count``; the pipeline's other timeouts are parts of it."""
    return timedelta(seconds=pipeline.patience_s)


def run_timeout(pipeline: Pipeline) -> timedelta:
    """A whole run of the minute DAG."""
    return RUN_PART * patience(pipeline)


def bounded(settings: Settings, task: timedelta) -> Settings:
    """The settings with which statements time out before their task does."""
    longest = math.ceil(task.total_seconds() * _ANSWER)
    statement_s = min(settings.mysql.statement_timeout_s, longest)
    bound = {"statement_timeout_s": statement_s}
    servers = {"mysql": settings.mysql, "results": settings.results}
    update = {name: one.model_copy(update=bound) for name, one in servers.items() if one}
    return settings.model_copy(update=update)


def check_patience(pipeline: Pipeline, settings: Settings) -> None:
    """Raise where a plan could take longer than its part of the task while it waits for an answer.

    Raises:
        ConfigError: ``patience_s`` is too short for that.
    """
    longest = pipeline.patience_s * SHORT_PART * _ANSWER
    waits = {
        "mysql.lock_wait_timeout_s": settings.mysql.lock_wait_timeout_s,
        "mysql.connect_timeout_s": settings.mysql.connect_timeout_s,
        "kafka.request_timeout_s": settings.kafka.request_timeout_s,
    }
    for key, seconds in waits.items():
        if seconds >= longest:
            raise errors.ConfigError(
                f"pipelines.{pipeline.name}.patience_s = {pipeline.patience_s}: a tenth of it, "
                f"half of a plan's part of the task count, must be more than {key} = {seconds:g}",
                next_step=f"raise patience_s or lower {key}",
            )


def tally_dag(
    pipeline: Pipeline,
    suffix: str,
    doc_md: str,
    *,
    config: Path,
    schedule: str | None = None,
    task_timeout: timedelta | None = None,
    **options: Any,
) -> DAG:
    """One of the DAGs of a pipeline, without its tasks.

    Args:
        pipeline: The pipeline.
        suffix: What stands behind its name in the DAG's.
        doc_md: The DAG's documentation.
        config: The configuration file.
        schedule: A cron expression. Without one it runs by hand alone, and is not paused at first:
            its runs would wait until an operator unpauses it, and by itself it does nothing.
        task_timeout: One attempt of a task that has no timeout of its own; a fifth of the patience
            when None.
        options: As :class:`airflow.sdk.DAG` takes them.
    """
    given: dict[str, Any] = {
        "catchup": False,
        "is_paused_upon_creation": None if schedule else False,
        "max_active_runs": 1,
        "allowed_run_types": RUN_TYPES if schedule else ["manual"],
        "doc_md": cleandoc(doc_md),
        "tags": [TAG, *pipeline.tags],
        "default_args": {
            "pipeline": pipeline.name,
            "config": str(config),
            "owner": pipeline.owner,
            "execution_timeout": task_timeout or SHORT_PART * patience(pipeline),
            "retries": RETRIES,
            "retry_delay": RETRY_DELAY,
        },
    }
    cron = schedule and timetable(schedule, f"pipelines.{pipeline.name}.schedule")
    return DAG(pipeline.name + suffix, schedule=cron, **given | options)


def timetable(cron: str, key: str) -> CronTriggerTimetable:
    """The schedule of a DAG.

    Raises:
        ConfigError: The key of the configuration is no cron expression.
    """
    found = CronTriggerTimetable(cron, timezone="UTC")
    try:
        found.validate()
    except AirflowTimetableInvalid as error:
        raise errors.ConfigError(
            f"{key} = {cron!r}: {error}",
            next_step='a cron expression of five fields, such as "* * * * *"',
        ) from None
    return found


# Assets name no server: an address would differ between environments, and Airflow stores and shows
# URIs in the clear.


def topic_assets(pipeline: Pipeline) -> list[Asset]:
    """One asset for each topic of the pipeline."""
    return [
        Asset(name=f"kafka_{topic}", uri=f"tally://kafka/{topic}", group="tally")
        for topic in pipeline.topics
    ]


def result_asset(pipeline: Pipeline) -> Asset:
    """The result table; its events carry the batch, its ranges and its counts."""
    table = pipeline.table
    return Asset(name=f"tally_{table}", uri=f"tally://mysql/{table}", group="tally")


def hours_asset(pipeline: Pipeline) -> Asset:
    """The hours of the result table; a partition is an hour on the lines' own clock."""
    table = pipeline.table
    uri = f"tally://mysql/{table}/hours"
    return Asset(name=f"tally_{table}_hours", uri=uri, group="tally")


def base_path() -> str:
    """The path of Airflow's base URL; a link without an origin uses the browser's."""
    return urlsplit(conf.get("api", "base_url", fallback="/") or "/").path.rstrip("/")


# --- tasks, and what becomes of their errors

_REQUESTER_MAX: Final = 250


class TallyOperator(BaseOperator):
    """A task of a pipeline.

    The docstring of each operator is the documentation that Airflow shows of its task.

    Args:
        pipeline: The pipeline. Like the next one it is a default argument of the DAG.
        config: The configuration file; it and Airflow's connections are read when the task runs.
        options: As Airflow's operators take them.
    """

    def __init__(self, *, pipeline: str = "", config: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.pipeline = pipeline
        self.config = config
        self.doc_md = cleandoc(type(self).__doc__ or "")

    def open_context(
        self, requester: "Requester | None" = None, settings: Settings | None = None
    ) -> "Context":
        """The context of the task: its statements time out before the task does.

        Args:
            requester: Recorded in the ledger with what is done; this process when None.
            settings: The file and the connections; read when None.

        Raises:
            ConfigError: As :func:`connected_settings`, or the timeouts are not in order: a
                connection may have other ones than the file that the DAG was made from.
        """
        from tally.context import open_context

        settings = settings or connected_settings(Path(self.config))
        pipeline = settings.pipeline(self.pipeline)
        task = self.execution_timeout or patience(pipeline)
        if task <= patience(pipeline):  # the daily ones have hours
            check_patience(pipeline, settings)
            task = min(task, SHORT_PART * patience(pipeline))
        return open_context(bounded(settings, task), requester=requester)


def requester_of(context: TaskContext, user: str | None) -> "Requester":
    """Whom the ledger records for what a run does that a user has triggered or answered."""
    from tally.ledger.batches import Requester

    run = context["dag_run"]
    name = f"airflow:{run.dag_id}:{user or 'unknown'}"[:_REQUESTER_MAX]
    return Requester(name=name, version=__version__, run_id=run.run_id)


@contextmanager
def final_unless_retryable() -> Iterator[None]:
    """Fail the task at once, with Tally's own message, on errors that a retry cannot correct.

    Each error of Tally's is a line of the log, with what to do next. A
    :class:`tally.errors.RetryableError`, a :class:`tally.errors.OutcomeUnknownError` and errors
    that are not Tally's pass unchanged: Airflow then retries as the DAG says.

    Raises:
        AirflowFailException: An operator must decide, the request is wrong, or a newer attempt owns
            the batch; the next run resumes what is left.
    """
    try:
        yield
    except FINAL_ERRORS as error:
        if isinstance(error, errors.AccessDeniedError):
            _name_connection(error)
        # Without the error as its cause: of an expected state the sentence says all, and Airflow
        # would show two tracebacks.
        log.debug("the error", exc_info=error)
        raise final(str(error)) from None
    except errors.TallyError as error:
        log.warning("%s", error)
        raise


def _name_connection(error: errors.AccessDeniedError) -> None:
    """Add to the next step of a refused login where user and password come from."""
    if error.credentials:
        connection = f"tally_{error.credentials[0].partition('.')[0]}"
        source = (
            f"the connection {connection}"
            if find_connection(connection)
            else f"the configuration, as there is no connection {connection}"
        )
        error.next_step += f"; {' and '.join(error.credentials)} come from {source}"


def final(sentence: str) -> AirflowFailException:
    """The error that fails a task without a retry; its message is in the log on lines of its own.

    Airflow shows an error as the end of a traceback, where what to do next is easily missed.
    """
    log.error("%s", sentence)
    return AirflowFailException(sentence)
