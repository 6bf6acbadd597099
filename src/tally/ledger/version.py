"""Whether this code may write to the ledger: its minor version is the newest migration it knows."""

from typing import Final

from tally import __version__
from tally.errors import SchemaError
from tally.mysql.transactions import Transaction

MIGRATION: Final = int(__version__.split(".")[1])
"""The number of the newest migration that this code knows."""


def check_version(tx: Transaction) -> None:
    """Raise if the ledger was migrated by newer code, whose columns and totals this would not fill.

    Raises:
        SchemaError: With the version that is needed.
    """
    # Another application may keep its migrations in the same table, and yoyo its own.
    row = tx.row(
        "select max(migration_id) as newest from _yoyo_migration"
        " where migration_id regexp '^[0-9]{4}[.]'"
    )
    newest = int(row["newest"][:4]) if row and row["newest"] else 0
    if newest > MIGRATION:
        raise SchemaError(
            f"the ledger was migrated for Tally 0.{newest}, and this is Tally {__version__}, which "
            "would write rows that lack what is new",
            next_step=f"install Tally 0.{newest} or newer here, too (in a checkout: git pull, then "
            "make setup), and restart what still runs the old one",
        )
