"""What a table of counts looks like in the server: its columns, and what tells its rows apart.

Counts of one minute and the same labels meet in one row by the table's key alone, and two values of
a label are two rows only where the collation distinguishes them.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tally.aggregates.aggregate import LINES, TIME
from tally.mysql.transactions import Transaction

ENGINE: Final = "InnoDB"
PRIMARY: Final = "PRIMARY"


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """A column of a table."""

    type: str
    """In lower case, without a length: ``varchar``."""
    chars: int | None
    """How many code points fit; None for a column that is no text."""
    collation: str | None
    """How it is compared; None for a column that is no text."""
    default: str | None
    """As the server prints it; None when there is none."""
    is_optional: bool
    """Whether a row can be inserted without it."""
    is_own: bool
    """Whether rows that do not state it never have equal values: they are null, or numbered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """A table as it is."""

    engine: str
    """The storage engine; '' for a view."""
    columns: dict[str, Column]
    """By name."""
    unique: dict[str, tuple[str, ...]]
    """The columns of each unique index, by its name; ``name(9)`` where only a prefix counts."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the primary key."""
        return self.unique.get(PRIMARY, ())

    @property
    def joining(self) -> dict[str, tuple[str, ...]]:
        """The unique indexes by which two rows can be one, by their names."""
        own = {name for name, column in self.columns.items() if column.is_own}
        return {name: parts for name, parts in self.unique.items() if own.isdisjoint(parts)}


def read_shape(tx: Transaction, table: str) -> Shape | None:
    """A table of the ledger's database; None when there is none of that name."""
    columns = tx.rows(
        "select column_name as name, lower(data_type) as type, character_maximum_length as chars,"
        " collation_name as collation, column_default as stated,"
        " is_nullable = 'YES' or column_default is not null or extra like '%%GENERATED%%'"
        "   as is_optional,"
        " extra like '%%auto_increment%%' or (is_nullable = 'YES'"
        "   and extra not like '%%GENERATED%%' and coalesce(column_default, 'NULL') = 'NULL')"
        "   as is_own"
        " from information_schema.columns where table_schema = database() and table_name = %s"
        " order by ordinal_position",
        (table,),
    )
    if not columns:
        return None
    engine = tx.row(
        "select engine as name from information_schema.tables"
        " where table_schema = database() and table_name = %s",
        (table,),
    )
    parts = tx.rows(
        "select index_name as name, column_name as part, sub_part as chars"
        " from information_schema.statistics"
        " where table_schema = database() and table_name = %s and non_unique = 0"
        " order by index_name <> 'PRIMARY', index_name, seq_in_index",
        (table,),
    )
    unique: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
    for row in parts:
        # A part without a column is an expression.
        part = row["part"] or "an expression"
        unique[row["name"]] += (part if row["chars"] is None else f"{part}({row['chars']})",)
    return Shape(
        engine=(engine or {}).get("name") or "",
        columns={
            row["name"]: Column(
                type=row["type"],
                chars=row["chars"],
                collation=row["collation"],
                default=row["stated"],
                is_optional=bool(row["is_optional"]),
                is_own=bool(row["is_own"]),
            )
            for row in columns
        },
        unique=dict(unique),
    )


def visible_tables(tx: Transaction, names: Collection[str]) -> set[str]:
    """Those of some tables that exist and that the user has a right on."""
    asked = ", ".join(["%s"] * len(names))
    rows = tx.rows(
        "select table_name as name from information_schema.tables"
        f" where table_schema = database() and table_name in ({asked})",
        tuple(names),
    )
    return {row["name"] for row in rows}


def exact_collation(tx: Transaction) -> str:
    """The server's collation that distinguishes case, accents and trailing blanks."""
    row = tx.row("select version() as version") or {"version": ""}
    return "utf8mb4_nopad_bin" if "mariadb" in row["version"].lower() else "utf8mb4_0900_bin"


def why_no_counts(shape: Shape, first: Sequence[str], collation: str) -> str:
    """Why a table that exists cannot become one of counts; '' when it can.

    Its key is that of a new table, or one that an interrupted migration has given it: with text
    columns that are '' in every row until the ledger knows them as labels.

    Args:
        shape: The table.
        first: The columns that its key begins with.
        collation: The exact one.

    Returns:
        A clause that follows "this table exists and".
    """
    columns = shape.columns
    needed = {*first, LINES}
    if (
        not needed <= columns.keys()
        or columns[TIME].type != "datetime"
        or columns[LINES].type not in _INTEGERS
        or not all(column.is_optional for name, column in columns.items() if name not in needed)
    ):
        return f"is no table of counts: it has the columns {', '.join(columns)}"
    if shape.engine != ENGINE:
        return f"is no table of counts: it {_other_engine(shape)}"
    labels = [columns.get(name) for name in shape.key[len(first) :]]
    if (
        shape.unique.keys() != {PRIMARY}
        or shape.key[: len(first)] != tuple(first)
        or not all(
            label and label.collation == collation and label.default in _EMPTY for label in labels
        )
    ):
        return f"is no table of counts: it {_other_keys(shape, first)}"
    return ""


def faults_of_keys(
    shape: Shape, keys: Sequence[str], labels: Sequence[str], collation: str
) -> Iterator[str]:
    """What makes different counts meet in one row of a table.

    Args:
        shape: The table.
        keys: The columns that tell its rows apart.
        labels: Those of them that are labels.
        collation: The exact one.
    """
    if not shape.joining or not all(set(keys) <= set(of) for of in shape.joining.values()):
        yield _other_keys(shape, keys)
    for name in labels:
        column = shape.columns.get(name)
        if column is None:
            yield f"has no column {name}"
        elif column.collation != collation:
            yield f"compares {name} by {column.collation}, not by {collation}"
    if shape.engine != ENGINE:
        yield _other_engine(shape)


def _other_keys(shape: Shape, keys: Sequence[str]) -> str:
    there = " and by ".join(f"({', '.join(index)})" for index in shape.unique.values())
    return f"has rows that are unique by {there or 'nothing'}, not by ({', '.join(keys)})"


def _other_engine(shape: Shape) -> str:
    return f"is {f'of the engine {shape.engine}' if shape.engine else 'a view'}, not of {ENGINE}"


_INTEGERS: Final = frozenset({"int", "bigint"})
_EMPTY: Final = frozenset({"", "''"})
"""The default '' as servers print it: MySQL, MariaDB."""


def writable_columns(tx: Transaction, database: str, tables: Sequence[str]) -> dict[str, list[str]]:
    """The columns of each table that a statement may set; missing tables are left out."""
    rows = tx.rows(
        "select table_name as name, column_name as col from information_schema.columns"
        " where table_schema = %s and table_name in %s and extra not like %s"
        " order by table_name, ordinal_position",
        (database, list(tables), "%GENERATED%"),
    )
    columns: dict[str, list[str]] = {}
    for row in rows:
        columns.setdefault(row["name"], []).append(row["col"])
    return columns
