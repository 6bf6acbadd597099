"""Bringing the ledger and the result tables up to the code and the configuration."""

from contextlib import suppress

from tally.config.names import RESERVED_TABLES
from tally.config.settings import Settings
from tally.context import results_database
from tally.deliveries.kept_lines import open_store
from tally.deliveries.set_store import SetStore
from tally.errors import ConfigError, SchemaError, TallyError
from tally.ledger.line_sets import has_lines
from tally.ledger.schema import check_version
from tally.ledger.table_changes import (
    FIRST_RESULT,
    check_preparation,
    create_index,
    create_result_tables,
    missing_index,
    missing_tables,
    prepare_tables,
)
from tally.ledger.tables import Tables, check_idle, gone_error
from tally.mysql import migrations
from tally.mysql.transactions import Database


def migrate(database: Database, settings: Settings) -> list[str]:
    """Apply ``sql/``, make result tables, and give labels their columns.

    Several processes may run it at once: the others wait, then find nothing to do.

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
        applied = migrations.apply(database)
        _check_kept(database)
        return [*applied, *prepare(database, settings)]


def prepare(database: Database, settings: Settings) -> list[str]:
    """The part of :func:`migrate` after ``sql/``: what the configured pipelines need.

    The caller holds the migrators' lock, or prepares pipelines that nobody else does.
    """
    errors: list[TallyError] = []
    ready: dict[str, Tables | None] = {}
    for name in sorted(settings.pipelines):
        try:
            ready[name] = check_preparation(database, settings.pipeline(name))
        except (ConfigError, SchemaError) as error:
            errors.append(error)
    done = create_result_tables(database, {settings.pipeline(name).table for name in ready})
    for name, wanted in ready.items():
        if wanted is not None:
            done += prepare_tables(database, settings.pipeline(name), wanted)
        done += create_index(database, settings.pipeline(name))
        try:
            done += _prepare_rows(database, settings, name)
        except TallyError as error:  # the lines of one are in nobody else's way
            errors.append(error)
    if errors:
        raise errors[0]
    return done


def missing(database: Database, settings: Settings) -> list[str]:
    """What :func:`migrate` would do, in order; empty when all is there.

    Raises:
        ConfigError, SchemaError: As :func:`migrate`, once the migrations are applied.
    """
    lacking = migrations.pending(database)
    if not lacking:
        _check_kept(database)
        for name in settings.pipelines:
            check_preparation(database, settings.pipeline(name))
    there = {FIRST_RESULT} if lacking else set()  # which comes with the migrations
    with suppress(SchemaError), database.transaction() as tx:  # there may be no database yet
        there |= tx.table_names()
    results = {settings.pipeline(name).table for name in settings.pipelines}
    lacking += [f"table {table}" for table in sorted(results - there)]
    for name in sorted(settings.pipelines):
        lacking += missing_tables(database, settings.pipeline(name))
        with suppress(SchemaError):  # there is no ledger yet, or an older one
            lacking += missing_index(database, settings.pipeline(name))
        lacking += _missing_rows(database, settings, name)
    return lacking


def _check_kept(database: Database) -> None:
    """Raise if a table of the ledger is gone, or newer code has migrated it."""
    with database.transaction(read_only=True) as tx:
        check_version(tx)
        gone = sorted(RESERVED_TABLES - tx.table_names())
    if gone:
        raise gone_error(gone)


def _missing_rows(database: Database, settings: Settings, name: str) -> list[str]:
    """The view of a pipeline's lines, as a text, if it is to be made."""
    view = settings.pipeline(name).rows_view
    if view is None:
        return []
    try:
        _store(database, settings, name).check()
    except SchemaError:  # also of a database or a ledger that is not there yet
        return [f"view {view} of the lines of {name}"]
    return []


def _prepare_rows(database: Database, settings: Settings, name: str) -> list[str]:
    """Make the view of a pipeline's lines, and the tables behind it."""
    lacking = _missing_rows(database, settings, name)
    if lacking:
        store = _store(database, settings, name)
        with database.transaction(read_only=True) as tx:
            keeps = has_lines(tx, name)
            if store.is_moved():
                # A set that is sealed in the old place could be committed after the move.
                check_idle(tx, name, "the place of its lines changes")
        store.prepare(has_lines=keeps)
    return lacking


def _store(database: Database, settings: Settings, name: str) -> SetStore:
    return open_store(database, results_database(settings) or database, settings.pipeline(name))
