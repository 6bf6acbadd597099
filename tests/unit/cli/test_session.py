"""The Spark session of a command: one, started when needed, quiet, and stopped at the end."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tally.cli.bar import bar
from tally.cli.output import Output
from tally.cli.session import JAVA_OPTIONS, LOGGING, quiet, shared_session
from tally.settings import SparkSettings


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens to the session, in order; like PySpark's it takes the handler of Ctrl-C."""
    seen: list[str] = []

    @contextmanager
    def spark_session(_: SparkSettings, __: str) -> Iterator[str]:
        seen.append("started")
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        yield "session"
        seen.append("stopped")

    monkeypatch.setattr("tally.spark.spark_session", spark_session)
    return seen


def test_batches_share_one_session_that_is_stopped_at_the_end(events: list[str]) -> None:
    """Starting Spark takes longer than counting a minute."""
    with shared_session(SparkSettings(), Output()) as lend:
        for _ in range(3):
            with lend():
                assert events == ["started"]
    assert events == ["started", "stopped"]


def test_spark_is_not_started_when_there_is_nothing_to_read(events: list[str]) -> None:
    """A batch that was committed before costs no session."""
    with shared_session(SparkSettings(), Output()):
        pass
    assert events == []


@pytest.mark.usefixtures("events")
def test_ctrl_c_still_is_pythons_own_while_spark_works() -> None:
    """PySpark's handler calls Java in the middle of a call to Java."""
    before = signal.getsignal(signal.SIGINT)
    with shared_session(SparkSettings(), Output()) as lend, lend():
        assert signal.getsignal(signal.SIGINT) is before


def test_spark_logs_warnings_in_one_line_and_keeps_javas_other_options() -> None:
    """The options that the configuration sets stay; logging is added to them."""
    settings = SparkSettings(conf={"spark.a": "1"})
    options = quiet(settings, "-Xss4m").conf[JAVA_OPTIONS]
    assert options == f'-Xss4m "-Dlog4j2.configurationFile={LOGGING.as_uri()}"'
    assert quiet(settings, "-Xss4m").conf["spark.a"] == "1"
    assert LOGGING.is_file()


def test_whoever_sets_up_logging_himself_is_left_alone() -> None:
    """The configuration wins."""
    settings = SparkSettings(conf={JAVA_OPTIONS: "-Dlog4j2.configurationFile=mine.xml"})
    assert quiet(settings, settings.conf[JAVA_OPTIONS]) is settings


def test_the_bar_shows_counts_and_appears_with_the_first_update(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While Spark starts it would be in the way."""
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes the stream for a terminal
    monkeypatch.setenv("TERM", "xterm")
    with bar("counting again", "offsets") as meter:
        assert capsys.readouterr().err == ""
        meter.update(1_000, 2_000)
        meter.update(2_000, 2_000)
    assert "2,000 of 2,000 offsets" in capsys.readouterr().err
