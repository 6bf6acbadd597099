"""One Spark session for all the batches of a command, started when the first one needs it."""

import dataclasses
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from tally.cli.app import App
from tally.cli.output import Output
from tally.context import Context, OpenSession, shared
from tally.spark.jars import check_packages
from tally.spark.java import is_noise, with_logging

if TYPE_CHECKING:  # heavy, and most commands do without
    from pyspark.sql import SparkSession

    from tally.spark.reading import OnRead


STDERR: Final = 2


@contextmanager
def shared_session(app: App, on_read: "OnRead | None" = None) -> Iterator[Context]:
    """A context whose readers share one Spark session; it is stopped at the end.

    Args:
        app: The command.
        on_read: Called with the offsets of a read that are done, and with all.

    Raises:
        PackageMissingError: Spark is not installed; nothing has been claimed yet.
    """
    with lazy_session(app, needs_kafka=True) as lend:
        open_reader = app.read_with(app.settings, lend, on_read)
        yield dataclasses.replace(app.context, open_reader=open_reader)


@contextmanager
def lazy_session(app: App, *, needs_kafka: bool = False) -> Iterator[OpenSession]:
    """A function that opens one Spark session, and says so; it is stopped at the end.

    Args:
        app: The command.
        needs_kafka: Whether the session is to read Kafka.

    Raises:
        PackageMissingError: Spark is not installed.
    """
    settings, out = app.settings.spark, app.out
    check_packages(settings)

    @contextmanager
    def opened() -> Iterator["SparkSession"]:
        quiet = settings.model_copy(update={"conf": with_logging(settings.conf)})
        out.note(f"starting Spark on {settings.master}")
        with ExitStack() as scope:
            with _interrupts_wait(out), filtered_stderr(is_noise):
                opening = app.open_spark(quiet, needs_kafka=needs_kafka)
                session = scope.enter_context(opening)
            yield session

    with shared(opened) as lend:
        yield lend


@contextmanager
def _interrupts_wait(out: Output) -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM until Spark can be stopped; a second signal is not delayed.

    A JVM never ends by itself when PySpark stops waiting for its start. Afterwards the previous
    handler is restored: PySpark's own handler calls Java from inside a call to Java, which fails,
    and stopping the session cancels its jobs as well.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    waiting: list[int] = []

    def wait(number: int, frame: FrameType | None) -> None:
        if waiting:
            _raise(before[signal.Signals(number)], number, frame)
        waiting.append(number)
        out.note("stopping as soon as Spark has started")

    for number, handler in before.items():
        if callable(handler):  # not of a process that ignores it
            signal.signal(number, wait)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for waited in waiting:
        _raise(before[signal.Signals(waited)], waited, None)


def _raise(handler: Any, number: int, frame: FrameType | None) -> None:
    """What the signal would have done, or Ctrl-C."""
    if callable(handler):
        handler(number, frame)
    raise KeyboardInterrupt


@contextmanager
def filtered_stderr(is_noise: Callable[[bytes], bool]) -> Iterator[threading.Thread]:
    """Inside the block stderr leaves lines out, and for processes started there it stays so.

    Yields the thread that copies the lines; it ends after the last of those processes.

    Args:
        is_noise: Whether a line, with its end, is left out.
    """
    sys.stderr.flush()
    real = os.dup(STDERR)
    reader, writer = os.pipe()
    os.dup2(writer, STDERR)
    os.close(writer)
    # Not waited for: a process that was started inside may outlive the block, and this one too.
    copying = threading.Thread(target=_copy, args=(reader, real, is_noise), daemon=True)
    copying.start()
    try:
        yield copying
    finally:
        sys.stderr.flush()
        os.dup2(real, STDERR)


def _copy(source: int, target: int, is_noise: Callable[[bytes], bool]) -> None:
    """Copy lines until all writers are gone."""
    with os.fdopen(source, "rb") as lines, os.fdopen(target, "wb", buffering=0) as kept:
        for line in lines:
            if not is_noise(line):
                kept.write(line)
