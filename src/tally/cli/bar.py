"""The progress bar that a terminal shows."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text


class _BarMeter:
    def __init__(self, progress: Progress, what: str) -> None:
        self._progress, self._what = progress, what
        self._task: TaskID | None = None

    def update(self, done: int, total: int) -> None:
        if self._task is None:  # until the first update, a starting Spark may write to stderr
            self._progress.start()
            self._task = self._progress.add_task(self._what, total=total)
        self._progress.update(self._task, completed=done, total=total)

    def clear(self) -> None:
        if self._task is not None:
            self._progress.stop()
            self._progress.remove_task(self._task)
            self._task = None

    def say(self, text: str) -> None:
        """Write a line above the bar; written to stderr directly, it would break the bar."""
        self._progress.console.print(Text(text), soft_wrap=True)


@contextmanager
def bar(what: str, unit: str) -> Iterator[_BarMeter]:
    """A bar on stderr with counts and the time that is left.

    It appears with the first update and is removed when the block ends.
    """
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,} of {task.total:,} " + unit),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        transient=True,
    )
    try:
        yield _BarMeter(progress, what)
    finally:
        progress.stop()
