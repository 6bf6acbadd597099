"""What all tasks of Tally's share: a pipeline, its connections, and what becomes of errors."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import BaseOperator
from airflow.sdk import Context as TaskContext
from airflow.sdk.exceptions import AirflowFailException

from tally import __version__
from tally.airflow.connections import connected_settings, find_connection
from tally.airflow.policies import FINAL_ERRORS, bounded, check_patience, patience
from tally.errors import AccessDeniedError, TallyError

if TYPE_CHECKING:  # DAG parsing must not import Kafka and MySQL
    from tally.context import Context
    from tally.ledger.batches import Requester

log = logging.getLogger(__name__)

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

    def open_context(self, requester: "Requester | None" = None) -> "Context":
        """The context of the task: its statements time out before the task does.

        Args:
            requester: Recorded in the ledger with what is done; this process when None.

        Raises:
            ConfigError: As :func:`connected_settings`, or the timeouts are not in order: a
                connection may have other ones than the file that the DAG was made from.
        """
        from tally.context import open_context

        settings = connected_settings(Path(self.config))
        pipeline = settings.pipeline(self.pipeline)
        task = self.execution_timeout or patience(pipeline)
        if task <= patience(pipeline):  # the daily ones have hours
            check_patience(pipeline, settings)
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
        if isinstance(error, AccessDeniedError):
            _name_connection(error)
        # Without the error as its cause: of an expected state the sentence says all, and Airflow
        # would show two tracebacks.
        log.debug("the error", exc_info=error)
        raise final(str(error)) from None
    except TallyError as error:
        log.warning("%s", error)
        raise


def _name_connection(error: AccessDeniedError) -> None:
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
