"""The Spark session of a command: one, started when needed, quiet, and stopped at the end."""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tally.cli.app import App
from tally.cli.bar import bar
from tally.cli.failures import terminable
from tally.cli.output import Output
from tally.cli.session import shared_session
from tally.config.servers import SparkSettings
from tally.spark.java import JAVA_OPTIONS, LOGGING, with_logging

Captured = pytest.CaptureFixture[str]


def command(folder: Path, open_spark: Callable[..., AbstractContextManager[Any]]) -> App:
    """A command that needs no server, with a Spark of the test's own."""
    path = folder / "tally.toml"
    path.write_text('[pipelines.p]\ntopics = ["alog"]\n', encoding="utf-8")
    return App(config=path, open_spark=open_spark)


def test_batches_share_one_session_and_ctrl_c_stays_pythons_own(tmp_path: Path) -> None:
    """Starting Spark takes longer than counting a minute; what reads nothing costs no session.

    PySpark's handler calls Java in the middle of a call to Java.
    """
    events = []

    @contextmanager
    def open_spark(_: SparkSettings, *, needs_kafka: bool) -> Iterator[Any]:
        events.append("started")
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as PySpark does
        yield "session"
        events.append("stopped")

    app = command(tmp_path, open_spark)
    with shared_session(app):
        pass
    assert events == []
    before = signal.getsignal(signal.SIGINT)
    with shared_session(app) as ctx:
        for _ in range(3):
            with ctx.open_reader():
                assert events == ["started"]
                assert signal.getsignal(signal.SIGINT) is before
    assert events == ["started", "stopped"]


@pytest.fixture
def a_commands_handlers() -> Iterator[None]:
    """The handlers that a command starts with; other tests' Spark sessions leave theirs behind."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with terminable():
        yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("a_commands_handlers")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("signals", "events"), [(1, ["started", "stopped"]), (2, [])])
def test_a_signal_while_spark_starts_waits_until_it_can_be_stopped(
    tmp_path: Path, number: signal.Signals, signals: int, events: list[str]
) -> None:
    """Otherwise the JVM would never end; a second signal is not delayed."""
    before = signal.getsignal(number)
    seen = []

    @contextmanager
    def open_spark(_: SparkSettings, *, needs_kafka: bool) -> Iterator[Any]:
        for _each in range(signals):
            signal.raise_signal(number)
        seen.append("started")
        try:
            yield "session"
        finally:
            seen.append("stopped")

    app = command(tmp_path, open_spark)
    with pytest.raises(KeyboardInterrupt), shared_session(app) as ctx, ctx.open_reader():
        pytest.fail("it continues")
    assert seen == events
    assert signal.getsignal(number) is before


def test_spark_logs_warnings_in_one_line_unless_logging_is_configured() -> None:
    """Java's other options stay; the configuration wins."""
    conf = {"spark.a": "1", JAVA_OPTIONS: "-Xss4m"}
    options = f'"-Dlog4j2.configurationFile={LOGGING.as_uri()}" -Xss4m'
    assert with_logging(conf) == {"spark.a": "1", JAVA_OPTIONS: options}
    assert LOGGING.is_file()
    own = {JAVA_OPTIONS: "-Dlog4j2.configurationFile=mine.xml"}
    assert with_logging(own) == own


@pytest.fixture
def terminal(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> Captured:
    """What is written to a stderr that rich takes for a terminal."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    return capsys


def test_the_bar_is_there_from_the_first_update_until_it_is_cleared(terminal: Captured) -> None:
    """Before that, Spark writes its own lines; a bar would break the lines of results."""
    with bar("reprocessing", "offsets") as meter:
        assert terminal.readouterr().err == ""
        meter.update(1_000, 2_000)
        meter.update(2_000, 2_000)
        meter.clear()
        err = terminal.readouterr().err
        assert "2,000 of 2,000 offsets" in err
        assert err.endswith("\x1b[2K")  # the line is erased
        meter.update(10, 30)
    assert "10 of 30 offsets" in terminal.readouterr().err


def test_a_note_stands_above_the_bar(terminal: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stands above the bar, as it is, and afterwards notes go to stderr as before."""
    # The stream is pytest's own, which is no terminal and cannot be told to be one.
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    out = Output()
    with out.progress("reprocessing", "offsets") as meter:
        out.note("starting Spark")
        meter.update(1_000, 2_000)
        out.note("batch 1: [0, 10) [bold]x[/bold]")
    out.note("done")
    lines = terminal.readouterr().err.splitlines()
    assert lines[0] == "starting Spark"
    assert any(line.endswith("\x1b[2Kbatch 1: [0, 10) [bold]x[/bold]") for line in lines)
    assert lines[-1].endswith("done")
