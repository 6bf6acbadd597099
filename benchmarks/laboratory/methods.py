"""The methods by name, and which faults there are for each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks.laboratory import others, tallys
from benchmarks.laboratory.bench import Bench
from benchmarks.laboratory.faults import OF_TASKS, Fault


@dataclass(frozen=True, kw_only=True, slots=True)
class Method:
    """A way to deliver."""

    title: str
    """As it stands in the table."""
    process_all: Callable[[Bench], None]
    """Processes all lines; called again by another process when this one was killed."""
    delivery: str = ""
    """Which delivery of Tally's it is; '' when it is none."""
    tasks_commit: bool = False
    """Whether Spark's tasks commit, and not the driver."""

    @property
    def faults(self) -> list[Fault]:
        """The faults that it can meet."""
        return [fault for fault in Fault if self.tasks_commit or fault not in OF_TASKS]


def _tally(delivery: str, judged: str = "") -> Method:
    """A delivery of Tally's; and what of it is judged, if not the counts."""
    return Method(
        title=f'Tally, `delivery = "{delivery}"`{judged}',
        process_all=tallys.process_all,
        delivery=delivery,
        tasks_commit=delivery != "batch",
    )


METHODS: Final = {
    "batch": _tally("batch"),
    "partition": _tally("partition"),
    "rows": _tally("rows", ": the lines that readers see"),
    "procedure": _tally("procedure", ": the lines that readers see"),
    "files": _tally("files", ": the lines of the live files"),
    "at-most-once": Method(
        title="at most once: offsets, then counts", process_all=others.at_most_once
    ),
    "at-least-once": Method(
        title="at least once: counts, then offsets", process_all=others.at_least_once
    ),
    "earliest": Method(
        title="no stored offsets, from `earliest`", process_all=others.from_earliest
    ),
    "latest": Method(title="no stored offsets, from `latest`", process_all=others.from_latest),
    "after-shuffle": Method(
        title="each task commits an offset, behind a shuffle",
        process_all=others.after_a_shuffle,
        tasks_commit=True,
    ),
    "unchecked": Method(
        title="each task commits its partition, unchecked",
        process_all=others.without_a_check,
        tasks_commit=True,
    ),
    "streaming": Method(title="Structured Streaming, the sink adds", process_all=others.streaming),
    "keyed-streaming": Method(
        title="Structured Streaming, the sink knows batch numbers",
        process_all=others.keyed_streaming,
    ),
}
