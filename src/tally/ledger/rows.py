"""Rows of the ledger as values: a value's fields say which columns it has, and how each is read.

In all of the ledger's statements ``i`` is the table of topic generations, which has the columns
``topic``, ``topic_id`` and ``cluster_id``.
"""

import types
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from typing import Any, Final, TypeVar, cast, get_args, get_origin, get_type_hints

from tally.mysql.transactions import Parameters, Row, Transaction

T = TypeVar("T")

SEGMENTS: Final = (
    "segment s join batch b using (batch_id) join topic_incarnation i using (incarnation_id)"
)
"""Segments with their batch and their generation."""

_COLUMN_OF: Final = {
    "partition": "partition_id",
    "offset": "record_offset",
    "generation_id": "incarnation_id",
    "line_set": "row_set",
}
"""Columns that have another name than the field."""
_OF_GENERATION: Final = {
    "topic": "i.topic",
    "topic_id": "i.topic_id",
    "cluster_id": "i.cluster_id",
    "is_current": "i.state = 'current'",
}


def record(kind: type[T], row: Row, /, **known: Any) -> T:
    """A row as a value of a dataclass.

    A time is UTC, and a number that may not be None is 0 instead. A field that is a dataclass
    itself, such as a range, is read from columns of the same row; it is None where the first of
    them is, if it may be.

    Args:
        kind: The dataclass.
        row: Has the columns that :func:`columns` lists; others are left out.
        known: Fields that are not read from the row.
    """
    readers = _readers(cast("Any", kind))
    read = {name: read(row) for name, read in readers.items() if name not in known}
    return kind(**read, **known)


def records(
    tx: Transaction,
    kind: type[T],
    among: str,
    parameters: Parameters = (),
    table: str = "s",
    /,
    **expressions: str,
) -> list[T]:
    """All rows of a query as values.

    Args:
        tx: An open transaction.
        kind: The dataclass.
        among: The query without its columns: it begins with ``from``.
        parameters: Those of the query.
        table: As of :func:`columns`.
        expressions: As of :func:`columns`.
    """
    rows = tx.rows(f"select {columns(kind, table, **expressions)} {among}", parameters)
    return [record(kind, row) for row in rows]


def columns(kind: type, table: str, /, **expressions: str) -> str:
    """The columns of a dataclass for a statement; fields with several values have none.

    Args:
        kind: The dataclass.
        table: The alias of the table that has all columns but those of the generation.
        expressions: What is selected instead of a column, by its name.
    """
    named = {name: f"{table}.{name}" for name in _names(kind)} | _OF_GENERATION | expressions
    return ", ".join(
        named[name] if named[name].endswith(f".{name}") else f"{named[name]} as `{name}`"
        for name in _names(kind)
    )


def _names(kind: Any) -> Iterator[str]:
    for name, (of, _) in _types(kind).items():
        if is_dataclass(of):
            yield from _names(of)
        elif get_origin(of) is None:
            yield _COLUMN_OF.get(name, name)


@cache
def _types(kind: Any) -> dict[str, tuple[Any, bool]]:
    """The type of each field, and whether it may be None."""
    hints = get_type_hints(kind)
    found = {}
    for name in (field.name for field in fields(kind)):
        among = get_args(hints[name]) if isinstance(hints[name], types.UnionType) else ()
        of = next((one for one in among if one is not types.NoneType), hints[name])
        found[name] = (of, types.NoneType in among)
    return found


@cache
def _readers(kind: Any) -> dict[str, Callable[[Row], Any]]:
    return {
        name: _reader(_COLUMN_OF.get(name, name), of, is_optional=is_optional)
        for name, (of, is_optional) in _types(kind).items()
    }


def _reader(column: str, kind: Any, *, is_optional: bool) -> Callable[[Row], Any]:
    if isinstance(kind, type) and is_dataclass(kind):
        first = next(_names(kind))
        return lambda row: None if is_optional and row[first] is None else record(kind, row)
    if kind is datetime:
        return lambda row: row[column] and row[column].replace(tzinfo=UTC)
    if kind is int and not is_optional:
        return lambda row: int(row[column] or 0)
    if kind in {int, str, bool} or (isinstance(kind, type) and issubclass(kind, Enum)):
        return lambda row: None if is_optional and row[column] is None else kind(row[column])
    return lambda row: row[column]
