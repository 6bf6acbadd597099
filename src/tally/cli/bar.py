"""The progress bar that a terminal shows."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class _BarMeter:
    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress, self._task = progress, task

    def update(self, done: int, total: int) -> None:
        self._progress.update(self._task, completed=done, total=total)


@contextmanager
def bar(what: str, unit: str) -> Iterator[_BarMeter]:
    """A bar on stderr with counts and the time that is left; gone when the block ends."""
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,} of {task.total:,} " + unit),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        transient=True,
    )
    with progress:
        yield _BarMeter(progress, progress.add_task(what, total=1))
