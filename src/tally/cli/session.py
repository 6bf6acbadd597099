"""One Spark session for all the batches of a command, started when the first one needs it."""

import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from tally.config.servers import SparkSettings
from tally.spark.packages import check_packages

if TYPE_CHECKING:  # heavy; most commands do without
    from pyspark.sql import SparkSession

    from tally.cli.output import Output
    from tally.pipeline.minute import SparkFactory

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
LOGGING: Final = Path(__file__).with_name("log4j2.properties")


@contextmanager
def shared_session(settings: SparkSettings, out: "Output") -> Iterator["SparkFactory"]:
    """A factory that hands out the same session each time; it is stopped at the end.

    Raises:
        PackageMissingError: Spark is not installed; nothing has been claimed yet.
    """
    check_packages(settings)
    with ExitStack() as cleanup:
        session = _Session(settings, out, cleanup)
        yield session.lend


def quiet(settings: SparkSettings, options: str) -> SparkSettings:
    """The settings with logging for a terminal, unless they set up logging themselves.

    Args:
        settings: How Spark is started.
        options: Java's options as they would be without.
    """
    if "log4j" in options:
        return settings
    option = f'"-Dlog4j2.configurationFile={LOGGING.as_uri()}"'
    conf = {**settings.conf, JAVA_OPTIONS: f"{options} {option}".strip()}
    return settings.model_copy(update={"conf": conf})


class _Session:
    def __init__(self, settings: SparkSettings, out: "Output", cleanup: ExitStack) -> None:
        self._settings, self._out, self._cleanup = settings, out, cleanup

    def lend(self) -> AbstractContextManager["SparkSession"]:
        return nullcontext(self._opened)

    @cached_property
    def _opened(self) -> "SparkSession":
        from tally.spark.session import session_options, spark_session  # noqa: PLC0415 - see above

        options = session_options(self._settings).get(JAVA_OPTIONS, "")
        self._out.note(f"starting Spark on {self._settings.master}")
        with _interrupts_wait(self._out):
            return self._cleanup.enter_context(
                spark_session(quiet(self._settings, options), "tally")
            )


@contextmanager
def _interrupts_wait(out: "Output") -> Iterator[None]:
    """Ctrl-C waits until Spark has started, and can be stopped; a second one does not wait.

    A JVM that PySpark has stopped to wait for while it starts never ends by itself. Afterwards the
    handler from before holds again: PySpark's own calls Java from inside a call to Java, which
    fails; stopping the session cancels its jobs just as well.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    is_waiting = False

    def wait(_: int, __: FrameType | None) -> None:
        nonlocal is_waiting
        if is_waiting:
            raise KeyboardInterrupt
        is_waiting = True
        out.note("stopping as soon as Spark has started")

    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if is_waiting:
        raise KeyboardInterrupt
