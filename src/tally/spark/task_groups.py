"""Groups within one Spark task, added up with Arrow: what a ``groupBy`` needs an exchange for.

Runs in the Python workers of Spark's executors.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tally.aggregates.sums import Sum
from tally.errors import ReadError

_ROWS_MAX: Final = 500_000
"""Partial groups that are kept before they are added up again."""

_ROWS_AT_ONCE: Final = 10_000

_FUNCTIONS: Final = {"count": "count_all", "sum": "sum", "min": "min", "max": "max"}


END: Final = "records"
"""The column that is null in the row behind the last one, and in no other."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A step of a task whose output tells the next step that it is whole.

    The end of a Python worker's input does not say that all of it came. When the JVM's side of the
    task fails or is killed, the worker sees an end like any other, goes on, and could commit a part
    of a range. But nothing that it yields from then on is passed on, as the thread that would do so
    has ended. So this step yields a row of nulls behind its output, and where the next step gets
    that row, this one has got all of its input.
    """

    step: Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]
    """What is done with the input; picklable."""
    schema: pa.Schema
    """Of what it yields; one column is :data:`END`."""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the output, and the row behind it."""
        for batch in self.step(batches):
            yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)
        yield pa.RecordBatch.from_arrays(
            [pa.nulls(1, field.type) for field in self.schema], schema=self.schema
        )


class Input:
    """The input of a step behind one that is :class:`Whole`.

    Args:
        batches: With the row behind the last one.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self._is_whole = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The rows, without the one behind them.

        Raises:
            ReadError: At the end, if they are not all.
        """
        for batch in self._batches:
            is_row = pc.is_valid(batch.column(END))
            self._is_whole |= pc.all(is_row).as_py() is False  # of an empty batch it is null
            yield batch.filter(is_row)
        if not self._is_whole:
            raise ReadError(
                "the records of a Spark task have come to an end too early: nothing of them is "
                "committed",
                next_step="run it again",
            )


def unchanged(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """A step that only passes on what it gets."""
    return batches


def add_up(
    batches: Iterable[pa.RecordBatch],
    places: Sequence[str],
    keys: Sequence[str],
    sums: Sequence[Sum],
) -> Iterator[pa.RecordBatch]:
    """The groups of all rows of a task.

    Args:
        batches: The rows.
        places: Columns that name the task's only partition; each has one value in all rows.
        keys: What the rows are grouped by.
        sums: What is added up.

    Yields:
        Rows with the columns of ``places``, ``keys`` and ``sums``; none without rows.

    Raises:
        ReadError: The task has rows of two partitions.
    """
    again = [total.again for total in sums]
    where: tuple[pa.Scalar, ...] | None = None
    partial: list[pa.Table] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        found = tuple(_only(batch, place) for place in places)
        if where is not None and found != where:
            raise _two_partitions(where, found)
        where = found
        partial.append(_grouped(pa.Table.from_batches([batch]), keys, sums))
        if sum(table.num_rows for table in partial) > _ROWS_MAX:
            partial = [_grouped(pa.concat_tables(partial), keys, again)]
    if where is None:
        return
    groups = _grouped(pa.concat_tables(partial), keys, again)
    for number, (place, value) in enumerate(zip(places, where, strict=True)):
        groups = groups.add_column(number, place, pa.repeat(value, groups.num_rows))
    yield from groups.to_batches(max_chunksize=_ROWS_AT_ONCE)


def _grouped(rows: pa.Table, keys: Sequence[str], sums: Sequence[Sum]) -> pa.Table:
    asked = [([], "count_all") if s.kind == "count" else (s.of, _FUNCTIONS[s.kind]) for s in sums]
    grouped = rows.group_by(list(keys), use_threads=False).aggregate(asked)
    # Arrow names its columns itself, and puts the keys first or last, as its version likes.
    named = ["count_all" if s.kind == "count" else f"{s.of}_{_FUNCTIONS[s.kind]}" for s in sums]
    columns = [*(grouped.column(key) for key in keys), *(grouped.column(name) for name in named)]
    return pa.table(columns, names=[*keys, *(s.name for s in sums)])


def _only(batch: pa.RecordBatch, place: str) -> pa.Scalar:
    extremes = pc.min_max(batch.column(place))
    if extremes["min"] != extremes["max"]:
        raise _two_partitions(extremes["min"], extremes["max"])
    return extremes["min"]


def _two_partitions(one: object, other: object) -> ReadError:
    return ReadError(
        f"a Spark task has read two partitions, {one} and {other}: nothing of it is committed",
        next_step="leave the options out of reader that divide or join tasks",
    )
