"""What watches a read from another thread: its deadline, and how far it is.

A count can run far longer than anybody waits for it: one line may keep a regular expression busy
for days, and Java's regular expressions heed no interrupt.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from threading import Event, Thread, Timer
from typing import Any, Final

from pyspark.sql import SparkSession

from tally.errors import CountTimeoutError
from tally.spark.errors import sentence_of, spark_errors
from tally.spark.session import is_remote

log = logging.getLogger(__name__)

OnRead = Callable[[int, int], None]
"""Called with the offsets that were read so far, and with their total."""

_PAUSE_S: Final = 0.5


@contextmanager
def watched(session: SparkSession, offsets: int, on_read: OnRead | None) -> Iterator[None]:
    """Report from another thread how far the read of the block is.

    Spark knows which of its tasks are done; each counts as an equal share of the offsets.

    Args:
        session: Works in the block for one read alone.
        offsets: All that is read.
        on_read: Called while the number grows; None watches nothing.
    """
    if on_read is None:
        yield
        return
    furthest = 0

    def tell(read: int) -> None:
        nonlocal furthest
        if min(read, offsets) > furthest:  # what is read a second time is not counted twice
            furthest = min(read, offsets)
            on_read(furthest, offsets)

    watch = _reported if is_remote(session) else _polled
    with watch(session, lambda share: tell(int(offsets * share))):
        yield


@contextmanager
def _polled(session: SparkSession, tell: Callable[[Fraction], None]) -> Iterator[None]:
    """By asking for the share of the tasks that are done, of the first stage that is at work."""
    ended, tracker = Event(), session.sparkContext.statusTracker()

    def poll() -> None:
        while not ended.wait(_PAUSE_S):
            try:
                stage = tracker.getStageInfo(min(tracker.getActiveStageIds(), default=-1))
            except spark_errors() as error:  # it is being stopped, or was killed
                log.debug("progress_unknown", extra={"cause": sentence_of(str(error))})
                return
            if stage:
                tell(Fraction(stage.numCompletedTasks, stage.numTasks))

    thread = Thread(target=poll, name="tally-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _reported(session: SparkSession, tell: Callable[[Fraction], None]) -> Iterator[None]:
    """As the server reports it."""

    def handler(stages: Any, **_: Any) -> None:
        if stages:
            reading = min(stages, key=lambda stage: stage.stage_id)
            tell(Fraction(reading.num_completed_tasks, max(1, reading.num_tasks)))

    registered: Any = handler  # its protocol is of classes
    session.registerProgressHandler(registered)
    try:
        yield
    finally:
        session.removeProgressHandler(registered)


@contextmanager
def deadline(session: SparkSession, seconds: float) -> Iterator[None]:
    """End Spark's work when the block has taken so many seconds.

    A JVM that this process has started is killed: it may not end otherwise. On a Spark Connect
    server the session's operations are cancelled. Where a JVM has started this process, as
    spark-submit does, there is no deadline here: that is for whoever has started it.

    Raises:
        CountTimeoutError: The time was over before the block had ended.
    """
    process = None
    if not is_remote(session):
        process = getattr(session.sparkContext._gateway, "proc", None)  # noqa: SLF001 - no other way
        if process is None:
            yield
            return
    passed = Event()
    error = CountTimeoutError(
        f"Spark has not counted the ranges in {seconds:g} s, and was ended",
        next_step="find out which: too large a batch (lower max_records_per_partition, or raise "
        "patience_s), other work on the same Spark (its log, top), or a line that keeps the "
        "pattern of line_format busy (make it stricter)",
    )

    def end() -> None:
        passed.set()
        try:
            if process is None:
                session.interruptAll()
            else:
                process.kill()
                process.wait()
        except spark_errors() as failure:
            log.warning("spark_not_ended", extra={"cause": sentence_of(str(failure))})

    timer = Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as failure:
        if passed.is_set():
            raise error from failure
        raise
    finally:
        timer.cancel()
        timer.join()  # a JVM that is being killed is dead afterwards
    if passed.is_set():  # all may have been read, but nobody knows
        raise error
