"""How far a read is, while Spark works."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from threading import Event, Thread
from typing import Any, Final

from pyspark.sql import SparkSession

from tally.spark.errors import sentence_of, spark_errors
from tally.spark.session import is_remote

log = logging.getLogger(__name__)

OnRead = Callable[[int, int], None]
"""Called with the offsets that were read so far, and with their total."""

_PAUSE_S: Final = 0.5


@contextmanager
def watched(session: SparkSession, offsets: int, on_read: OnRead | None) -> Iterator[None]:
    """Tell from another thread how far the read of the block is.

    Spark tells which of its tasks are done; each counts as an equal share of the offsets.

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

    watch = _told if is_remote(session) else _asked
    with watch(session, lambda share: tell(int(offsets * share))):
        yield


@contextmanager
def _asked(session: SparkSession, tell: Callable[[Fraction], None]) -> Iterator[None]:
    ended = Event()

    def ask() -> None:
        while not ended.wait(_PAUSE_S):
            try:
                tell(_share_done(session))
            except spark_errors() as error:  # it is being stopped, or was killed
                log.debug("progress_unknown", extra={"cause": sentence_of(str(error))})
                return

    thread = Thread(target=ask, name="tally-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _share_done(session: SparkSession) -> Fraction:
    """The share of the tasks that are done, of the first stage that is at work."""
    tracker = session.sparkContext.statusTracker()
    stage = tracker.getStageInfo(min(tracker.getActiveStageIds(), default=-1))
    return Fraction(stage.numCompletedTasks, stage.numTasks) if stage else Fraction(0)


@contextmanager
def _told(session: SparkSession, tell: Callable[[Fraction], None]) -> Iterator[None]:
    def told(stages: Any, **_: Any) -> None:
        if stages:
            reading = min(stages, key=lambda stage: stage.stage_id)
            tell(Fraction(reading.num_completed_tasks, max(1, reading.num_tasks)))

    handler: Any = told  # its protocol is of classes
    session.registerProgressHandler(handler)
    try:
        yield
    finally:
        session.removeProgressHandler(handler)
