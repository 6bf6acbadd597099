"""What is in the server: the version of the ledger, and what its tables of counts look like.

Counts of one minute and the same labels meet in one row by the table's key alone, and two values of
a label are two rows only where the collation distinguishes them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tally import __version__
from tally.aggregates.aggregate import LINES, TIME
from tally.config.names import EXPANDS
from tally.errors import AccessDeniedError, SchemaError
from tally.ledger.rows import record
from tally.mysql.connection import is_mariadb
from tally.mysql.transactions import Database, Row, Transaction

MIGRATION: Final = int(__version__.split(".")[1])
"""The number of the newest migration that this code knows."""
ENGINE: Final = "InnoDB"
PRIMARY: Final = "PRIMARY"


def check_version(tx: Transaction) -> None:
    """Raise if the ledger was migrated by newer code, whose columns and totals this would not fill.

    Not after a migration that only expands it: beside it the code before counts right.

    Raises:
        SchemaError: With the version that is needed.
    """
    # Another application may keep its migrations in the same table, and yoyo its own.
    found = tx.scalar(
        "select max(migration_id) from _yoyo_migration where migration_id regexp '^[0-9]{4}[.]'"
        f" and right(migration_id, {len(EXPANDS)}) <> '{EXPANDS}'"
    )
    newest = int(found[:4]) if found else 0
    if newest > MIGRATION:
        raise SchemaError(
            f"the ledger was migrated for Tally 0.{newest}, and this is Tally {__version__}, which "
            "would write rows that lack what is new",
            next_step=f"install Tally 0.{newest} or newer here, too (in a checkout: git pull, then "
            "make setup), and restart what still runs the old one",
        )


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
    exact: str
    """The server's collation that distinguishes case, accents and trailing blanks."""

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
    return read_shapes(tx, [table]).get(table)


def read_shapes(tx: Transaction, tables: Sequence[str]) -> dict[str, Shape]:
    """Those of some tables that are in the ledger's database, by name."""
    shapes: dict[str, Shape] = {}
    rows = tx.rows(
        "select table_name as of_table, column_name as name, lower(data_type) as type,"
        " character_maximum_length as chars, collation_name as collation,"
        " column_default as `default`,"
        " is_nullable = 'YES' or column_default is not null or extra like '%%GENERATED%%'"
        "   as is_optional,"
        " extra like '%%auto_increment%%' or (is_nullable = 'YES'"
        "   and extra not like '%%GENERATED%%' and coalesce(column_default, 'NULL') = 'NULL')"
        "   as is_own"
        " from information_schema.columns where table_schema = database() and table_name in %s"
        " order by ordinal_position",
        (tables,),
    )
    if not rows:
        return shapes
    engines = tx.pairs(
        "select table_name, engine from information_schema.tables"
        " where table_schema = database() and table_name in %s",
        (tables,),
    )
    parts = tx.rows(
        "select table_name as of_table, index_name as name,"
        " concat(coalesce(column_name, 'an expression'),"
        "   if(sub_part is null, '', concat('(', sub_part, ')'))) as part"
        " from information_schema.statistics"
        " where table_schema = database() and table_name in %s and non_unique = 0"
        " order by index_name <> 'PRIMARY', index_name, seq_in_index",
        (tables,),
    )
    exact = "utf8mb4_nopad_bin" if is_mariadb(tx.scalar("select version()")) else "utf8mb4_0900_bin"
    for table, engine in engines.items():
        shapes[table] = Shape(engine=engine or "", columns={}, unique={}, exact=exact)
    # A table may come or go between these queries.
    for row in rows:
        if (shape := shapes.get(row["of_table"])) is not None:
            shape.columns[row["name"]] = record(Column, row)
    for row in parts:
        if (shape := shapes.get(row["of_table"])) is not None:
            shape.unique[row["name"]] = (*shape.unique.get(row["name"], ()), row["part"])
    return {table: shape for table, shape in shapes.items() if shape.columns}


def why_no_counts(shape: Shape, first: Sequence[str]) -> str:
    """Why a table that exists cannot become one of counts; '' when it can.

    Its key is that of a new table, or one that an interrupted migration has given it: with text
    columns that are '' in every row until the ledger knows them as labels.

    Args:
        shape: The table.
        first: The columns that its key begins with.

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
            label and label.collation == shape.exact and label.default in _EMPTY for label in labels
        )
    ):
        return f"is no table of counts: it {_other_keys(shape, first)}"
    return ""


def faults_of_keys(shape: Shape, keys: Sequence[str], labels: Sequence[str]) -> Iterator[str]:
    """What makes different counts meet in one row of a table.

    Args:
        shape: The table.
        keys: The columns in which its rows differ.
        labels: Those of them that are labels.
    """
    if not shape.joining or not all(set(keys) <= set(of) for of in shape.joining.values()):
        yield _other_keys(shape, keys)
    for name in labels:
        column = shape.columns.get(name)
        if column is None:
            yield f"has no column {name}"
        elif column.collation != shape.exact:
            yield f"compares {name} by {column.collation}, not by {shape.exact}"
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


def denied_rights(tx: Transaction, database: str, tables: Mapping[str, Sequence[str]]) -> list[str]:
    """Which rights on some tables are lacking, tried with statements that match no row."""
    denied = []
    for table in sorted(tables):
        names = tx.scalars(
            "select column_name from information_schema.columns where table_schema = %s"
            " and table_name = %s and extra not like %s order by ordinal_position",
            (database, table, "%GENERATED%"),
        )
        if not names:
            continue  # the table is missing
        some = ", ".join(f"`{name}`" for name in names)
        tries = {
            "select from": f"select {some} from `{table}`",
            "insert into": f"insert into `{table}` ({some}) select {some} from `{table}`",
            "update": f"update `{table}` set `{names[0]}` = `{names[0]}`",
            "delete from": f"delete from `{table}`",
        }
        for what, statement in tries.items():
            try:
                if what.split()[0] in tables[table]:
                    tx.execute(f"{statement} where false")
            except AccessDeniedError:
                denied.append(f"{what} {table}")
    return denied


def server_facts(database: Database) -> Row:
    """The server's properties that Tally depends on, for ``tally doctor``.

    Returns:
        ``version``; ``innodb``, whether it is usable; ``session`` and ``server``, the variables by
        name of Tally's own session and of the server.
    """
    with database.transaction() as tx:
        version = tx.one("select version() as version")
        engine = tx.scalar("select support from information_schema.engines where engine = 'InnoDB'")
        session, server = (
            {
                # MariaDB before 11.1 has only the old name of the isolation level.
                name.replace("tx_isolation", "transaction_isolation"): value
                for name, value in tx.pairs(f"show {scope} variables").items()
            }
            for scope in ("session", "global")
        )
    usable = engine in {"YES", "DEFAULT"}
    return {**version, "innodb": usable, "session": session, "server": server}


def grants(tx: Transaction) -> list[str]:
    """What this user is granted, as the server prints it.

    Raises:
        AccessDeniedError: It may not read the ledger.
        SchemaError: There is none.
    """
    tx.rows("select batch_id from batch limit 0")
    return [str(granted) for granted in tx.scalars("show grants")]
