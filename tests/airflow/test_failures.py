"""What a task does with Tally's errors."""

import pytest

from tally.airflow.failures import final, final_unless_retryable
from tally.errors import KafkaUnavailableError, ReplayRefusedError

pytestmark = pytest.mark.airflow


def test_a_final_error_is_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Its sentence with the next step, once: the traceback that Airflow shows may hide both."""
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException) as failed, final_unless_retryable():
        raise ReplayRefusedError("a replay needs a reason", next_step="fill in the field Reason")
    assert caplog.messages == [
        "[replay-refused] a replay needs a reason Next: fill in the field Reason"
    ]
    assert failed.value.__suppress_context__, "one traceback is enough for an expected state"


def test_what_was_said_already_is_not_said_again(caplog: pytest.LogCaptureFixture) -> None:
    """A task that fails for good inside keeps its own message."""
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException), final_unless_retryable():
        raise final("batch 7: abandoned")
    assert caplog.messages == ["batch 7: abandoned"]


def test_what_may_pass_is_a_line_of_the_log_and_left_to_airflow(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It tries again."""
    with pytest.raises(KafkaUnavailableError), final_unless_retryable():
        raise KafkaUnavailableError("no answer")
    assert caplog.messages == ["[kafka-unavailable] no answer Next: tally doctor"]
