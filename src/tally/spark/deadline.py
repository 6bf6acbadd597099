"""The end of a count that takes too long, with everything of it that runs in Spark.

A count can run far longer than anybody waits for it: one line may keep a regular expression busy
for days, and Java's regular expressions heed no interrupt.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Timer

from pyspark.sql import SparkSession

from tally.errors import CountTimeoutError
from tally.spark.errors import sentence_of, spark_errors
from tally.spark.session import is_remote

log = logging.getLogger(__name__)


@contextmanager
def deadline(session: SparkSession, seconds: float) -> Iterator[None]:
    """End Spark's work when the block has taken so many seconds.

    A JVM that this process has started is killed: it may not end otherwise. On a Spark Connect
    server the session's operations are cancelled. Where a JVM has started this process, as
    spark-submit does, there is no deadline here: that is for whoever has started it.

    Raises:
        CountTimeoutError: The time was over before the block had ended.
    """
    end_work = _ending(session)
    if end_work is None:
        yield
        return
    passed = Event()

    def end() -> None:
        passed.set()
        try:
            end_work()
        except spark_errors() as error:
            log.warning("spark_not_ended", extra={"cause": sentence_of(str(error))})

    timer = Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if passed.is_set():
            raise _timeout(seconds) from error
        raise
    finally:
        timer.cancel()
        timer.join()  # a JVM that is being killed is dead afterwards
    if passed.is_set():  # what was read may be whole, but nobody could tell
        raise _timeout(seconds)


def _timeout(seconds: float) -> CountTimeoutError:
    return CountTimeoutError(
        f"Spark has not counted the ranges in {seconds:g} s, and was ended",
        next_step="find out which: too large a batch (lower max_records_per_partition, or raise "
        "patience_s), other work on the same Spark (its log, top), or a line that keeps the "
        "pattern of line_format busy (make it stricter)",
    )


def _ending(session: SparkSession) -> Callable[[], object] | None:
    """What ends the session's work; None where this process cannot."""
    if is_remote(session):
        return session.interruptAll
    process = getattr(session.sparkContext._gateway, "proc", None)  # noqa: SLF001 - no other way
    if process is None:
        return None

    def kill() -> None:
        process.kill()
        process.wait()

    return kill
