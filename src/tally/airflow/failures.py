"""What a task does with Tally's errors: try again, or stop and show them."""

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.sdk.exceptions import AirflowFailException

from tally.errors import FencedError, OperatorError, UsageError


@contextmanager
def final_unless_retryable() -> Iterator[None]:
    """Fail the task at once, with Tally's own words, on errors that a retry cannot mend.

    A :class:`tally.errors.RetryableError`, and whatever is no error of Tally's, passes unchanged:
    Airflow then retries as the DAG says.

    Raises:
        AirflowFailException: A person must decide, the request is wrong, or somebody newer owns
            the batch; the run that comes next takes up what is left.
    """
    try:
        yield
    except (UsageError, OperatorError, FencedError) as error:
        raise AirflowFailException(str(error)) from error
