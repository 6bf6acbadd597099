"""The choice of a pipeline's delivery, and of what holds its lines."""

from tally.config.pipeline import Pipeline
from tally.deliveries.content import Content, Owner
from tally.deliveries.row_content import RowContent
from tally.deliveries.set_store import SetStore
from tally.errors import PackageMissingError
from tally.ledger.row_sets import ledger_id
from tally.mysql.transactions import Database


def store_by(ledger: Database, database: Database, pipeline: Pipeline) -> SetStore | None:
    """The sets of a pipeline's lines, with the ledger that decides which of them are shown.

    Args:
        ledger: The ledger's database.
        database: Where the tables of the sets are.
        pipeline: The pipeline.

    Raises:
        SchemaError: The ledger is not migrated.
    """
    if pipeline.rows_view is None:
        return None
    with ledger.transaction(read_only=True) as tx:
        return store_in(database, pipeline, ledger_id(tx))


def store_in(database: Database, pipeline: Pipeline, ledger_id: str) -> SetStore | None:
    """The sets of a pipeline's lines; None when it keeps none.

    Args:
        database: Where their tables are.
        pipeline: The pipeline.
        ledger_id: The ledger that decides which lines are shown.
    """
    if pipeline.rows_view is None:
        return None
    owner = Owner(pipeline=pipeline.name, ledger_id=ledger_id)
    content = _content_of(pipeline, pipeline.rows_view, owner)
    return SetStore(database=database, owner=owner, content=content)


def _content_of(pipeline: Pipeline, view: str, owner: Owner) -> Content:
    """What holds the lines. A new kind of content is added here."""
    if pipeline.delivery != "files" or pipeline.files_url is None:
        return RowContent(
            view=view, owner=owner, row_key=pipeline.row_key, procedure=pipeline.procedure
        )
    try:
        from tally.deliveries.file_content import FileContent  # noqa: PLC0415 - PyArrow is heavy
    except ImportError as error:
        raise PackageMissingError(
            f"pipeline {pipeline.name} keeps its lines in files, which PyArrow writes: {error}",
            next_step="pip install 'kafka-tally[spark]'",
        ) from error
    return FileContent(view=view, url=pipeline.files_url, owner=owner)
