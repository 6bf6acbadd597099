"""Groups within one Spark task, added up with Arrow: what a ``groupBy`` needs an exchange for.

Runs in the Python workers of Spark's executors.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from tally.aggregates.aggregate import Sum
from tally.errors import ReadError

_ROWS_MAX: Final = 500_000
"""Partial groups that are kept before they are added up again."""

_ROWS_AT_ONCE: Final = 10_000


Step = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What a task does with its rows."""

END: Final = "records"
"""The column that is null in the row after the last one, and in no other."""


def with_end(
    batches: Iterable[pa.RecordBatch], *, schema: pa.Schema, step: Step = iter
) -> Iterator[pa.RecordBatch]:
    """A step of a task, whose output shows the next step that it is complete.

    The end of a Python worker's input does not say that all of it came. When the JVM's side of the
    task fails or is killed, the worker sees an end like any other, goes on, and could commit a part
    of a range. But nothing that it yields from then on is passed on, as the thread that would do so
    has ended. So this step yields a row of nulls behind its output, and where the next step gets
    that row, this one has got all of its input.

    Args:
        batches: The input.
        schema: Of the output; one column is :data:`END`.
        step: What is done with the input; picklable.
    """
    for batch in step(batches):
        yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    yield pa.RecordBatch.from_arrays([pa.nulls(1, f.type) for f in schema], schema=schema)


def whole(frame: DataFrame, columns: Sequence[StructField], step: Step = iter) -> DataFrame:
    """A frame after a step in each of its tasks, :func:`with_end`.

    Args:
        frame: The input.
        columns: Names and types of the output.
        step: What is done with the input; picklable.
    """
    # Spark takes what may not be null for a value, and the last row is all nulls.
    schema = StructType([StructField(column.name, column.dataType) for column in columns])
    to_end = partial(with_end, schema=to_arrow_schema(schema, timezone="UTC"), step=step)
    return frame.mapInArrow(to_end, schema)


def without_end(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The input of a step after one that is :func:`with_end`, without its last row.

    Raises:
        ReadError: At the end, if that row has not come.
    """
    is_whole = False
    for batch in batches:
        is_row = pc.is_valid(batch.column(END))
        is_whole |= pc.all(is_row).as_py() is False  # of an empty batch it is null
        yield batch.filter(is_row)
    if not is_whole:
        raise ReadError(
            "the records of a Spark task have come to an end too early: nothing of them is "
            "committed",
            next_step="run it again",
        )


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
        Rows with the columns of ``places``, ``keys`` and ``sums``, in the order of ``keys``; none
        without rows.

    Raises:
        ReadError: The task has rows of two partitions.
    """
    again = [total.again for total in sums]
    found: set[tuple[pa.Scalar, ...]] = set()
    partial: list[pa.Table] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        extremes = [pc.min_max(batch.column(place)) for place in places]
        found |= {tuple(extreme[end] for extreme in extremes) for end in ("min", "max")}
        if len(found) > 1:
            named = " and ".join(sorted("/".join(map(str, where)) for where in found))
            raise ReadError(
                f"a Spark task has read two partitions, {named}: nothing of it is committed",
                next_step="leave the options out of reader that divide or join tasks",
            )
        partial.append(_grouped(pa.Table.from_batches([batch]), keys, sums))
        if sum(table.num_rows for table in partial) > _ROWS_MAX:
            partial = [_grouped(pa.concat_tables(partial), keys, again)]
    for where in found:
        groups = _grouped(pa.concat_tables(partial), keys, again)
        groups = groups.sort_by([(key, "ascending") for key in keys])
        for number, (place, value) in enumerate(zip(places, where, strict=True)):
            groups = groups.add_column(number, place, pa.repeat(value, groups.num_rows))
        yield from groups.to_batches(max_chunksize=_ROWS_AT_ONCE)


def _grouped(rows: pa.Table, keys: Sequence[str], sums: Sequence[Sum]) -> pa.Table:
    asked = [(s.of, s.kind) for s in sums]
    grouped = rows.group_by(list(keys), use_threads=False).aggregate(asked)
    # Arrow names its columns itself, and puts the keys first or last, as its version likes.
    columns = [grouped.column(name) for name in (*keys, *(f"{of}_{kind}" for of, kind in asked))]
    return pa.table(columns, names=[*keys, *(s.name for s in sums)])
