"""One Spark session for all the batches of a command, started when the first one needs it."""

import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tally.settings import SparkSettings

if TYPE_CHECKING:  # heavy; most commands do without
    from pyspark.sql import SparkSession

    from tally.cli.output import Output
    from tally.minute import SparkFactory

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
LOGGING: Final = Path(__file__).with_name("log4j2.properties")


@contextmanager
def shared_session(settings: SparkSettings, out: "Output") -> Iterator["SparkFactory"]:
    """A factory that hands out the same session each time; it is stopped at the end."""
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
        from tally.spark import session_options, spark_session  # noqa: PLC0415 - see above

        options = session_options(self._settings).get(JAVA_OPTIONS, "")
        self._out.note(f"starting Spark on {self._settings.master}")
        with _interrupt_handler_kept():
            return self._cleanup.enter_context(
                spark_session(quiet(self._settings, options), "tally")
            )


@contextmanager
def _interrupt_handler_kept() -> Iterator[None]:
    # PySpark's own handler calls Java from inside a call to Java, which fails; stopping the session
    # cancels its jobs just as well.
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
