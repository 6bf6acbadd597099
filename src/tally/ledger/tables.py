"""The tables and columns of a pipeline's counts.

Pipelines that only count lines per minute share the tables ``segment_count`` and ``folded_count``.
A pipeline with labels, or a measure besides lines, has tables of its own beside its result table.
The table ``pipeline`` records which columns they have; a label that is no longer configured keeps
its column.
"""

import json
from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass
from typing import Final, NamedTuple

from tally.aggregates.aggregate import LINES, MEASURES, TIME, Aggregate, Measure
from tally.config.names import tables_beside
from tally.config.pipeline import Pipeline
from tally.errors import AccessDeniedError, ConfigError, SchemaError
from tally.formatting import plural
from tally.ledger.schema import read_shape, why_no_counts
from tally.mysql.transactions import Transaction

SHARED_CONTRIBUTIONS: Final = "segment_count"
SHARED_FOLDED: Final = "folded_count"

OWN_TABLES: Final = "+"
"""Suffix of the result table's name in the ledger when a pipeline has tables of its own. Code from
before labels existed then finds a table other than the configured one, and refuses to count."""


class LabelColumn(NamedTuple):
    """A column that holds a label's values; the ledger records these values as a list in JSON."""

    column: str
    """Its name."""
    chars: int
    """How many code points fit."""
    is_used: bool = True
    """Whether the label is configured; if not, new rows have '' here."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tables:
    """The tables of one pipeline; all names are validated settings, safe in statements."""

    result: str
    """Sums per minute and labels: what users read."""
    contributions: str = SHARED_CONTRIBUTIONS
    """What each segment contributed. A join of it comes last: a label may have the name of a column
    that the tables before are joined by."""
    folded: str = SHARED_FOLDED
    """Sums of what folded segments contributed."""
    labels: tuple[LabelColumn, ...] = ()
    """Label columns, in the order in which they were added."""
    measures: tuple[Measure, ...] = ()
    """What is added up besides lines."""
    rows_view: str | None = None
    """The view of the lines, where they are kept."""

    @property
    def has_own(self) -> bool:
        """Whether its contributions are in tables of its own."""
        return self.contributions != SHARED_CONTRIBUTIONS

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns of a row's key: the minute, then the labels."""
        return (TIME, *(label.column for label in self.labels))

    @property
    def whole_keys(self) -> dict[str, tuple[str, ...]]:
        """The columns of the primary key of each table, by the table's name."""
        return {
            self.result: self.keys,
            self.contributions: ("segment_id", *self.keys),
            self.folded: ("pipeline", *self.keys),
        }

    @property
    def sums(self) -> tuple[str, ...]:
        """Columns that are added up: lines, and what is measured of them."""
        return (LINES, *(measure.column for measure in self.measures))

    @property
    def columns(self) -> tuple[str, ...]:
        """Keys and sums."""
        return self.keys + self.sums


SPAN: Final = (
    "count(distinct log_time) as minutes,"
    " date_format(min(log_time), '%%Y-%%m-%%d %%H:%%i') as first_minute,"
    " date_format(max(log_time), '%%Y-%%m-%%d %%H:%%i') as last_minute"
)
"""How many minutes some rows have, the first and the last one."""


def listed(columns: Sequence[str], table: str = "") -> str:
    """Quoted columns for a statement: ``c.`log_time`, c.`service```."""
    prefix = f"{table}." if table else ""
    return ", ".join(f"{prefix}`{column}`" for column in columns)


def summed(columns: Sequence[str], table: str = "") -> str:
    """Sums of columns for a statement: ``sum(c.`log_count`) as `log_count```."""
    prefix = f"{table}." if table else ""
    return ", ".join(f"sum({prefix}`{column}`) as `{column}`" for column in columns)


def find_tables(tx: Transaction, pipeline: str) -> Tables | None:
    """The tables of a pipeline; None before its first plan."""
    row = tx.row(
        "select result_table, labels, measure, rows_table from pipeline where pipeline = %s",
        (pipeline,),
    )
    if row is None:
        return None
    result = row["result_table"].removesuffix(OWN_TABLES)
    has_own = result != row["result_table"]
    shared = (SHARED_CONTRIBUTIONS, SHARED_FOLDED)
    contributions, folded = tables_beside(result) if has_own else shared
    return Tables(
        result=result,
        contributions=contributions,
        folded=folded,
        labels=tuple(LabelColumn(*label) for label in json.loads(row["labels"] or "[]")),
        measures=MEASURES[row["measure"]],
        rows_view=row["rows_table"],
    )


def tables_to_read(tx: Transaction, pipeline: Pipeline) -> Tables:
    """The tables to read a pipeline's counts from; before its first plan the configured one."""
    return find_tables(tx, pipeline.name) or Tables(result=pipeline.table)


def tables_of(tx: Transaction, pipeline: str) -> Tables:
    """The tables of a pipeline that has planned before.

    Raises:
        SchemaError: The ledger does not know the pipeline.
    """
    found = find_tables(tx, pipeline)
    if found is None:
        raise SchemaError(f"the ledger has no pipeline {pipeline}", next_step="tally migrate")
    return found


def check_tables(tx: Transaction, tables: Tables, pipeline: Pipeline) -> None:
    """Raise unless what the configuration counts fits into the tables.

    Raises:
        ConfigError: The pipeline has counted into another table, or by another measure.
        SchemaError: A label has no column yet, or one that is too narrow.
    """
    check_result_table(tables.result, pipeline.name, pipeline.table)
    aggregate, lacking = Aggregate.of(pipeline), ""
    if aggregate.measures and not tables.has_own:
        lacking = f"pipeline {pipeline.name} has no tables for its measure yet"
    else:
        check_target(tables, pipeline)
        chars = {label.column: label.chars for label in tables.labels}
        if narrow := [c for c in aggregate.columns if chars.get(c, 0) < aggregate.label_chars]:
            lacking = (
                f"{tables.result} has no column {', '.join(narrow)} of {aggregate.label_chars} "
                f"characters for pipelines.{pipeline.name}.labels"
            )
    if lacking:
        check_idle(tx, pipeline.name)
        raise SchemaError(lacking, next_step="tally migrate")


def check_there(tx: Transaction, tables: Tables, pipeline: str) -> None:
    """Raise unless the tables of a pipeline are there; nobody can alter them in the transaction.

    It waits for whoever alters them now. :func:`check_listed` does not, and costs ten times as
    much.

    Raises:
        SchemaError: A table is missing, or this user may not read it.
    """
    try:
        tx.rows(f"select 1 from {listed([*tables.whole_keys])} limit 0")
    except (AccessDeniedError, SchemaError):
        check_listed(tx, tables, pipeline)
        raise


def check_listed(tx: Transaction, tables: Tables, pipeline: str) -> None:
    """Raise unless the server lists the tables of a pipeline for this user.

    Raises:
        SchemaError: A table is missing, or this user has no right on it.
    """
    there = tx.table_names({tables.result, tables.contributions, tables.folded})
    check_kept(there, (tables.contributions, tables.folded))
    if tables.result not in there:
        raise SchemaError(
            f"pipeline {pipeline} has no table {tables.result} yet, or may not read it",
            next_step="tally migrate",
        )


def check_kept(there: Set[str], tables: Collection[str]) -> None:
    """Raise if a table of the ledger is gone, which no migration can fill again.

    Raises:
        SchemaError: With the names of those that are.
    """
    if gone := sorted(set(tables) - there):
        raise SchemaError(
            f"the ledger has lost {', '.join(gone)}: dropped, or this user has no right on it",
            next_step="restore the database from its backup: docs/runbook.md, Backup (tally "
            "migrate cannot fill it again)",
        )


def check_idle(tx: Transaction, pipeline: str, what: str = "labels and measure change") -> None:
    """Raise if a batch of a pipeline is open.

    Raises:
        SchemaError: One is, and ``what`` only between batches.
    """
    found = tx.pairs(
        "select batch_id, replay_id from batch where pipeline = %s and state = 'planned'"
        " order by batch_id",
        (pipeline,),
    )
    if ids := list(found):
        abandon = ", ".join(f"tally abandon {batch_id} --reason '…'" for batch_id in ids)
        replays = sorted(set(found.values()) - {None})
        again = f"request replay {', '.join(map(str, replays))} again" if replays else "tally run"
        raise SchemaError(
            f"pipeline {pipeline}: {plural(len(ids), 'open batch')}: {', '.join(map(str, ids))}; "
            f"{what} between batches",
            next_step=f"{abandon}, then tally migrate, then {again}: nothing is lost",
        )


def check_target(tables: Tables, pipeline: Pipeline) -> None:
    """Raise unless the tables are those of the configured result table and measure.

    Raises:
        ConfigError: The pipeline has counted into another table, or by another measure.
    """
    check_result_table(tables.result, pipeline.name, pipeline.table)
    if Aggregate.of(pipeline).measures != tables.measures:
        raise ConfigError(
            f"pipelines.{pipeline.name}.measure = {pipeline.measure!r}: {tables.result} was made "
            "for another measure",
            next_step="set it back, or give the pipeline another name and another result_table",
        )


def check_result_table(recorded: str, pipeline: str, configured: str) -> None:
    """Raise unless the configured result table is the one that the ledger has for the pipeline.

    Raises:
        ConfigError: The pipeline has counted into another table.
    """
    if recorded != configured:
        raise ConfigError(
            f"pipelines.{pipeline}.result_table = {configured!r}: this pipeline has counted into "
            f"{recorded} so far",
            next_step=f"set it back to {recorded!r}, or give the pipeline another name",
        )


def check_unowned(tx: Transaction, pipeline: str, result_table: str) -> None:
    """Raise unless a table that the ledger does not know may become a pipeline's result table.

    It may not exist yet. One that exists has the columns and the key of a result, and no rows: the
    ledger could not account for them.

    Raises:
        ConfigError: It is another table, or has rows.
    """
    if wrong := _why_not_free(tx, result_table, (TIME,)):
        raise ConfigError(
            f"pipelines.{pipeline}.result_table = {result_table!r}: this table exists and {wrong}",
            next_step="name a table that does not exist yet, or rename this one, as that of a "
            "pipeline which is younger than the dump of a ledger that was restored; tally migrate "
            "creates it, and its lines are counted again",
        )


def check_unowned_beside(tx: Transaction, pipeline: str, wanted: Tables) -> None:
    """Raise unless a pipeline may have tables of its own beside its result table.

    Raises:
        ConfigError: A table of such a name exists and is another, or has rows.
    """
    for table in (wanted.contributions, wanted.folded):
        if wrong := _why_not_free(tx, table, wanted.whole_keys[table][:2]):
            raise ConfigError(
                f"pipelines.{pipeline}: its labels or its measure need a table {table}, which "
                f"exists and {wrong}",
                next_step=f"rename the table {table}, then tally migrate",
            )


def _why_not_free(tx: Transaction, table: str, first: tuple[str, ...]) -> str:
    """Why a table that exists may not be taken, as a clause; '' when it may be."""
    shape = read_shape(tx, table)
    if shape is None:
        return ""
    if wrong := why_no_counts(shape, first):
        return wrong
    # The name was validated with the configuration.
    has_rows = tx.exists(f"select 1 from `{table}` limit 1")
    return "has rows that the ledger knows nothing of" if has_rows else ""
