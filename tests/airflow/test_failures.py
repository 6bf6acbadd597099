"""What a task does with Tally's errors."""

import pytest

from tally.airflow.failures import final, final_unless_retryable
from tally.errors import AccessDeniedError, KafkaUnavailableError, ReplayRefusedError

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


@pytest.mark.parametrize(
    ("uri", "source"),
    [
        ("mysql://ann:wr0ng@127.0.0.1", "the connection tally_mysql"),
        (None, "the configuration, as there is no connection tally_mysql"),
    ],
)
def test_a_refused_login_says_where_the_password_comes_from(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, uri: str | None, source: str
) -> None:
    """A connection wins over the configuration, so this is the one to correct."""
    from airflow.sdk.exceptions import AirflowFailException

    monkeypatch.delenv("AIRFLOW_CONN_TALLY_MYSQL", raising=False)
    if uri:
        monkeypatch.setenv("AIRFLOW_CONN_TALLY_MYSQL", uri)
    refused = AccessDeniedError("refused", next_step="correct them")
    refused.credentials = ("mysql.user", "mysql.password")
    with pytest.raises(AirflowFailException), final_unless_retryable():
        raise refused
    (said,) = [message for message in caplog.messages if "refused" in message]
    assert said.endswith(f"correct them; mysql.user and mysql.password come from {source}")
