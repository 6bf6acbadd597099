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


METHODS: Final = {
    "batch": Method(
        title='Tally, `delivery = "batch"`', process_all=tallys.process_all, delivery="batch"
    ),
    "partition": Method(
        title='Tally, `delivery = "partition"`',
        process_all=tallys.process_all,
        delivery="partition",
        tasks_commit=True,
    ),
    "rows": Method(
        title='Tally, `delivery = "rows"`: the lines that readers see',
        process_all=tallys.process_all,
        delivery="rows",
        tasks_commit=True,
    ),
    "procedure": Method(
        title='Tally, `delivery = "procedure"`: the lines that readers see',
        process_all=tallys.process_all,
        delivery="procedure",
        tasks_commit=True,
    ),
    "files": Method(
        title='Tally, `delivery = "files"`: the lines of the live files',
        process_all=tallys.process_all,
        delivery="files",
        tasks_commit=True,
    ),
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
