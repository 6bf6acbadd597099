"""What a task does with Tally's errors: try again, or stop and show them."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from airflow.sdk.exceptions import AirflowFailException

from tally.airflow.connections import find_connection
from tally.errors import AccessDeniedError, FencedError, OperatorError, TallyError, UsageError

_LOG: Final = logging.getLogger(__name__)


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
    except (UsageError, OperatorError, FencedError) as error:
        if isinstance(error, AccessDeniedError):
            _name_connection(error)
        # Without the error as its cause: of an expected state the sentence says all, and Airflow
        # would show two tracebacks.
        _LOG.debug("the error", exc_info=error)
        raise final(str(error)) from None
    except TallyError as error:
        _LOG.warning("%s", error)
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
    _LOG.error("%s", sentence)
    return AirflowFailException(sentence)
