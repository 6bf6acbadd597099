"""Bringing the ledger and the result tables up to the code and the configuration."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain

from tally.aggregates.aggregate import Aggregate
from tally.config.names import RESERVED_TABLES
from tally.config.settings import Settings
from tally.context import results_database
from tally.deliveries.kept_lines import open_store
from tally.deliveries.set_store import SetStore
from tally.each import for_each
from tally.errors import SchemaError
from tally.ledger import table_changes
from tally.ledger.line_sets import has_lines
from tally.ledger.schema import check_version
from tally.ledger.tables import check_idle, check_kept
from tally.mysql import migrations
from tally.mysql.transactions import Database


def migrate(database: Database, settings: Settings, *, expand_only: bool = False) -> list[str]:
    """Apply ``sql/``, make result tables, and give labels their columns.

    Several processes may run it at once: the others wait, then find nothing to do.

    Args:
        database: Of the ledger.
        settings: The configuration.
        expand_only: Only those of ``sql/`` beside which older code keeps counting, and no tables.

    Returns:
        What was done, in order; empty when all was there.

    Raises:
        StatementError: A statement was refused; correct the cause and migrate again.
        ConfigError: A label was renamed, a result table or a measure has changed, or a result table
            holds the counts of another pipeline, or counts that the ledger does not know. Nothing
            is changed for this pipeline, and all is done for the others.
        SchemaError: A pipeline that needs a column has an open batch, or a unique index that is in
            the way, or a table of what was counted is gone. As above.
        MySQLUnavailableError: The server did not answer, or another migrator did not end in time.
    """
    with migrations.one_at_a_time(database):
        applied = migrations.apply(database, expand_only=expand_only)
        if expand_only:
            return applied
        _check_ledger(database)
        with migrations.rights_explained():
            return [*applied, *prepare(database, settings)]


def prepare(database: Database, settings: Settings) -> list[str]:
    """The part of :func:`migrate` after ``sql/``: what the configured pipelines need.

    The caller holds the migrators' lock, or prepares pipelines that no other process prepares.
    """

    def work(name: str) -> list[str]:
        done = []
        for text, step in _steps(database, settings, name):
            step()
            done.append(text)
        return done

    each = for_each(sorted(settings.pipelines), work)
    if each.errors:
        raise next(iter(each.errors.values()))
    return list(chain.from_iterable(each.done))


def missing(database: Database, settings: Settings) -> list[str]:
    """What :func:`migrate` would do, in order; empty when all is there.

    Raises:
        ConfigError, SchemaError: As :func:`migrate`, once the migrations are applied.
    """
    lacking = migrations.pending(database)
    if not lacking:
        _check_ledger(database)
    steps = [_steps(database, settings, n, before=lacking) for n in sorted(settings.pipelines)]
    return [*lacking, *(text for text, _ in chain.from_iterable(steps))]


def check_rights(database: Database) -> None:
    """Raise AccessDeniedError where the user may not do what a migration does, which is tried."""
    with migrations.one_at_a_time(database):
        migrations.check_rights(database)


_Step = tuple[str, Callable[[], object]]
"""What is missing, as a text, and what makes it."""


def _steps(
    database: Database, settings: Settings, name: str, *, before: Sequence[str] = ()
) -> Iterator[_Step]:
    """What a pipeline lacks, in order; a step that is taken is taken before the next one is asked.

    Args:
        database: Of the ledger.
        settings: The configuration.
        name: The pipeline.
        before: Migrations that are still to be applied; then what cannot be looked at is missing.
    """
    pipeline = settings.pipeline(name)
    there = {table_changes.FIRST_RESULT} if before else set()  # which comes with the migrations
    lacks_own = pipeline.has_own_tables
    unknown = (SchemaError,) if before else ()
    with suppress(*unknown):  # there may be no ledger yet, or an older one
        with database.transaction(read_only=True) as tx:
            there |= tx.table_names()
        lacks_own = table_changes.check_preparation(database, pipeline) is not None
    if pipeline.table not in there:
        create = partial(table_changes.create_result_table, database, pipeline.table)
        yield f"table {pipeline.table}", create
    if lacks_own:
        columns = ", ".join(Aggregate.of(pipeline).columns)
        text = f"columns of {pipeline.table}" + (f" for {columns}" if columns else "")
        yield text, partial(table_changes.prepare_tables, database, pipeline)
    view = table_changes.minutes_view(pipeline)
    if view is not None and view not in there:
        yield f"view {view}", partial(table_changes.create_minutes_view, database, pipeline)
    elif view is not None:
        table_changes.check_minutes_view(database, pipeline)
    with suppress(*unknown):
        if table := table_changes.lacks_index(database, pipeline):
            index = f"index {table_changes.MINUTE_INDEX} of {table}"
            yield index, partial(table_changes.create_index, database, table)
    if pipeline.rows_view is not None:
        try:
            _store(database, settings, name).check()
        except SchemaError:  # also of a database or a ledger that is not there yet
            view = f"view {pipeline.rows_view} of the lines of {name}"
            yield view, partial(_prepare_rows, database, settings, name)


def _check_ledger(database: Database) -> None:
    """Raise if a table of the ledger is gone, or newer code has migrated it."""
    with database.transaction(read_only=True) as tx:
        check_version(tx)
        check_kept(tx.table_names(), RESERVED_TABLES)


def _prepare_rows(database: Database, settings: Settings, name: str) -> None:
    """Make the view of a pipeline's lines, and the tables behind it."""
    store = _store(database, settings, name)
    with database.transaction(read_only=True) as tx:
        keeps = has_lines(tx, name)
        if store.is_moved():
            # A set that is sealed in the old place could be committed after the move.
            check_idle(tx, name, "the place of its lines changes")
    store.prepare(has_lines=keeps)


def _store(database: Database, settings: Settings, name: str) -> SetStore:
    return open_store(database, results_database(settings) or database, settings.pipeline(name))
