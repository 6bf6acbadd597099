"""Creating result tables, and adding columns to those of pipelines with labels.

MySQL commits DDL at once, so every statement can be run again. Running batches are not affected
until the last step: new columns have a default, and the switch to the pipeline's own tables is one
transaction.
"""

import json
from dataclasses import replace
from typing import Final

from tally.aggregates.aggregate import TIME, Aggregate
from tally.config.names import LABEL_CHARS_MAX, LABELS_MAX, MINUTES_SUFFIX, tables_beside
from tally.config.pipeline import Pipeline
from tally.errors import ConfigError, SchemaError
from tally.ledger import tables
from tally.ledger.contributions import copy_shared
from tally.ledger.line_sets import check_lines
from tally.ledger.positions import check_owner, lock_pipeline
from tally.ledger.progress import minutes_query
from tally.ledger.schema import PRIMARY, read_shape
from tally.mysql.transactions import Database, Transaction

_NAME_MAX: Final = 64
"""Characters of a name that MySQL knows."""

FIRST_RESULT: Final = "error_log"
"""The result table that the migrations create."""

MINUTE_INDEX: Final = "contributions_by_minute"
"""Finds the segments with lines of a minute; the migrations create that of the shared table."""

# Not LIKE the first result table: that one may have labels. Names are validated settings.
_RESULT: Final = """
    create table if not exists `{table}` (
        log_time datetime not null,
        log_count int not null default 0,
        primary key (log_time),
        check (log_count >= 0)
    ) engine = InnoDB default character set utf8mb4
"""


_MINUTES_COLUMNS: Final = [
    *("log_time", "log_count", "state", "complete_at", "amended_at", "amended_by")
]


def create_result_table(database: Database, table: str) -> None:
    """Create a result table, without labels."""
    with database.transaction() as tx:
        tx.execute(_RESULT.format(table=table))


def minutes_view(pipeline: Pipeline) -> str | None:
    """The name of the view of a pipeline's minutes; None where it would be too long."""
    name = pipeline.table + MINUTES_SUFFIX
    return name if len(name) <= _NAME_MAX else None


def create_minutes_view(database: Database, pipeline: Pipeline) -> None:
    """Create the view of a pipeline's minutes, or change it."""
    with database.transaction() as tx:
        own = tables.tables_to_read(tx, pipeline)
        query = minutes_query(own, pipeline.name)
        tx.execute(
            f"create or replace sql security invoker view `{minutes_view(pipeline)}` as {query}"
        )


def check_minutes_view(database: Database, pipeline: Pipeline) -> None:
    """Raise SchemaError where something else has the name of the view of the minutes."""
    name = minutes_view(pipeline)
    with database.transaction(read_only=True) as tx:
        columns = tx.scalars(
            "select column_name from information_schema.columns"
            " where table_schema = database() and table_name = %s order by ordinal_position",
            (name,),
        )
    # A view has none while one of its tables is gone.
    if columns not in ([], _MINUTES_COLUMNS):
        raise SchemaError(
            f"{name} is there, and is not the view of the minutes of {pipeline.table}",
            next_step=f"rename {name}, or count into another table; then: tally migrate",
        )


def prepare_tables(database: Database, pipeline: Pipeline) -> None:
    """Create or widen the tables of a pipeline that has labels, or a measure besides lines.

    The caller holds the migrators' lock. Rows from before a label was added have '' in its column;
    a replay fills it.

    Raises:
        ConfigError, SchemaError: As :func:`check_preparation`; also where a batch was opened
            meanwhile. No column is recorded.
    """
    wanted = check_preparation(database, pipeline)
    if wanted is None:
        return

    def create(tx: Transaction) -> None:
        tx.execute(_RESULT.format(table=wanted.result))
        # LIKE keeps one definition, but for the foreign key.
        for table, like in (
            (wanted.contributions, tables.SHARED_CONTRIBUTIONS),
            (wanted.folded, tables.SHARED_FOLDED),
        ):
            tx.execute(f"create table if not exists `{table}` like `{like}`")
        for table, key in wanted.whole_keys.items():
            _widen(tx, table, key, wanted)
        _refer_to_segments(tx, wanted.contributions)

    database.run_between_readers(create)
    database.run(lambda tx: _switch(tx, pipeline, wanted))


def lacks_index(database: Database, pipeline: Pipeline) -> str | None:
    """The pipeline's own contributions, if they lack the index by minute.

    Tables that are made now have it; those from before it was thought of do not.
    """
    with database.transaction(read_only=True) as tx:
        found = tables.find_tables(tx, pipeline.name)
        if found is None or not found.has_own:
            return None
        is_there = tx.exists(
            "select 1 from information_schema.statistics where table_schema = database()"
            " and table_name = %s and index_name = %s limit 1",
            (found.contributions, MINUTE_INDEX),
        )
    return None if is_there else found.contributions


def create_index(database: Database, table: str) -> None:
    """Create the index by minute; readers and writers go on meanwhile."""
    with database.transaction() as tx:
        tx.execute(f"alter table `{table}` add key {MINUTE_INDEX} (`{TIME}`)")


def check_preparation(database: Database, pipeline: Pipeline) -> tables.Tables | None:
    """What :func:`prepare_tables` would make of the tables; None when nothing is missing.

    Raises:
        ConfigError: A label was renamed, the result table or the measure has changed, or the result
            table holds the counts of another pipeline.
        SchemaError: A batch is open, or a unique index of a table is in the way.
    """
    with database.transaction(read_only=True) as tx:
        check_owner(tx, pipeline.name, pipeline.table)
        before = tables.find_tables(tx, pipeline.name)
        if before is None:
            tables.check_unowned(tx, pipeline.name, pipeline.table)
        else:
            tables.check_target(before, pipeline)
            tables.check_kept(tx.table_names(), (before.contributions, before.folded))
            check_lines(tx, before, pipeline)
        if not (pipeline.has_own_tables or (before is not None and before.has_own)):
            return None
        wanted = _wanted(before, pipeline)
        shape = read_shape(tx, wanted.result)
        if wanted == before and shape and set(wanted.columns) <= shape.columns.keys():
            return None
        if before is None or not before.has_own:
            tables.check_unowned_beside(tx, pipeline.name, wanted)
        if wanted != before:
            tables.check_idle(tx, pipeline.name)
        for table, key in wanted.whole_keys.items():
            _check_indexes(tx, table, key)
        return wanted


def _wanted(before: tables.Tables | None, pipeline: Pipeline) -> tables.Tables:
    """The tables that the configuration asks for; columns of labels that were taken out stay."""
    aggregate = Aggregate.of(pipeline)
    now = before or tables.Tables(result=pipeline.table, measures=aggregate.measures)
    known = {label.column for label in now.labels}
    added = [column for column in aggregate.columns if column not in known]
    gone = [
        label.column
        for label in now.labels
        if label.is_used and label.column not in aggregate.columns
    ]
    if added and gone:
        raise ConfigError(
            f"pipelines.{pipeline.name}.labels: {', '.join(gone)} was removed and "
            f"{', '.join(added)} added, which looks like a label that was renamed; its column "
            "would keep the old values",
            next_step="take the label out, tally migrate, then add the other and migrate again",
        )
    labels = tuple(
        label._replace(is_used=True, chars=max(label.chars, aggregate.label_chars))
        if label.column in aggregate.columns
        else label._replace(is_used=False)
        for label in (*now.labels, *(tables.LabelColumn(column, 0) for column in added))
    )
    chars = sum(label.chars for label in labels)
    if chars > LABEL_CHARS_MAX or len(labels) > LABELS_MAX:
        raise ConfigError(
            f"pipelines.{pipeline.name}.labels: with the columns of labels that were taken out "
            f"there would be {len(labels)} of {chars} characters together; {LABELS_MAX} and "
            f"{LABEL_CHARS_MAX} are the most",
            next_step="give the pipeline another name and another result_table",
        )
    contributions, folded = tables_beside(pipeline.table)
    return replace(now, contributions=contributions, folded=folded, labels=labels)


def _check_indexes(tx: Transaction, table: str, key: tuple[str, ...]) -> None:
    """Raise if another unique index would merge rows that differ in a longer key."""
    shape = read_shape(tx, table)
    for name, parts in (shape.joining if shape else {}).items():
        if name != PRIMARY and not set(key) <= set(parts):
            raise SchemaError(
                f"table {table}: its unique index {name} ({', '.join(parts)}) lets only one row "
                f"of a minute in; the labels need several",
                next_step=f"alter table `{table}` drop index `{name}`; then tally migrate",
            )


def _widen(tx: Transaction, table: str, key: tuple[str, ...], wanted: tables.Tables) -> None:
    """Add missing columns to a table and to its key."""
    shape = read_shape(tx, table)
    if shape is None:
        raise SchemaError(f"table {table} is gone while it is widened", next_step="tally migrate")
    there = shape.columns
    text = f"character set utf8mb4 collate {shape.exact} not null default ''"
    changes = [
        f"{'modify' if label.column in there else 'add'} column `{label.column}`"
        f" varchar({label.chars}) {text}"
        for label in wanted.labels
        if label.column not in there
        or (there[label.column].chars, there[label.column].collation) != (label.chars, shape.exact)
    ]
    changes += [
        f"add column `{column}` bigint not null default 0 check (`{column}` >= 0)"
        for column in (measure.column for measure in wanted.measures)
        if column not in there
    ]
    if not set(key) <= set(shape.key):
        changes += ["drop primary key"] * bool(shape.key)
        changes.append(f"add primary key ({tables.listed(key)})")
    if changes:
        tx.execute(f"alter table `{table}` {', '.join(changes)}")


def _refer_to_segments(tx: Transaction, contributions: str) -> None:
    """Add the foreign key to segments, which LIKE does not copy."""
    name = f"{contributions}_of"
    there = tx.scalar(
        "select constraint_name from information_schema.table_constraints"
        " where table_schema = database() and table_name = %s and constraint_type = 'FOREIGN KEY'",
        (contributions,),
    )
    if there is None:
        tx.execute(
            f"alter table `{contributions}` add constraint `{name[-64:]}`"
            " foreign key (segment_id) references segment (segment_id)"
        )


def _switch(tx: Transaction, pipeline: Pipeline, wanted: tables.Tables) -> None:
    """Record the new columns in the ledger, and move the pipeline's rows out of shared tables."""
    lock_pipeline(tx, pipeline.name, pipeline.table)
    before = tables.find_tables(tx, pipeline.name)
    if before == wanted:
        return
    tables.check_idle(tx, pipeline.name)
    if before is not None and not before.has_own:
        copy_shared(tx, before, wanted, pipeline.name)
    recorded = (wanted.result + tables.OWN_TABLES, json.dumps(wanted.labels), pipeline.measure)
    tx.execute(
        "update pipeline set result_table = %s, labels = %s, measure = %s where pipeline = %s",
        (*recorded, pipeline.name),
    )
