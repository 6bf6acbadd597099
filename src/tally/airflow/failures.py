"""What a task does with Tally's errors: try again, or stop and show them."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from airflow.sdk.exceptions import AirflowFailException

from tally.errors import FencedError, OperatorError, UsageError

_LOG: Final = logging.getLogger(__name__)


@contextmanager
def final_unless_retryable() -> Iterator[None]:
    """Fail the task at once, with Tally's own message, on errors that a retry cannot correct.

    A :class:`tally.errors.RetryableError`, a :class:`tally.errors.OutcomeUnknownError` and errors
    that are not Tally's pass unchanged: Airflow then retries as the DAG says.

    Raises:
        AirflowFailException: An operator must decide, the request is wrong, or a newer attempt owns
            the batch; the next run resumes what is left.
    """
    try:
        yield
    except (UsageError, OperatorError, FencedError) as error:
        raise final(str(error)) from error


def final(sentence: str) -> AirflowFailException:
    """The error that fails a task without a retry; its message is in the log on lines of its own.

    Airflow shows an error as the end of a traceback, where what to do next is easily missed.
    """
    _LOG.error("%s", sentence)
    return AirflowFailException(sentence)
