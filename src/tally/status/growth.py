"""How MySQL's tables grow with a pipeline, and when they reach a limit."""

from dataclasses import dataclass

from tally.context import Context
from tally.errors import SchemaError
from tally.ledger.growth import TableGrowth, kept_growth, ledger_growth
from tally.ledger.tables import find_tables


@dataclass(frozen=True, kw_only=True, slots=True)
class GrowthView:
    """How MySQL's tables grow with a pipeline, by the batches of the last 24 hours."""

    tables: tuple[TableGrowth, ...]
    """The tables, those that grow most first."""
    bytes_a_day: int
    """What those of which it is known gain in a day, before anything is pruned."""
    bytes: int
    """Their size now, with the rows of all pipelines."""
    days_left: float | None
    """Days until they have the size that was asked for; null when none was, or nothing grows."""


def growth_of(ctx: Context, name: str, limit_bytes: int | None = None) -> GrowthView:
    """How the tables of a pipeline grow.

    Args:
        ctx: What is needed from outside.
        name: The pipeline.
        limit_bytes: A size that they must not reach.

    Raises:
        SchemaError: It has no batch yet.
    """
    pipeline = ctx.settings.pipeline(name)
    with ctx.database.transaction(read_only=True) as tx:
        tables = find_tables(tx, name)
        if tables is None:
            raise SchemaError(
                f"pipeline {name} has no batch yet", next_step=f"tally run --pipeline {name}"
            )
        found = ledger_growth(tx, tables, name)
        if pipeline.rows_view and pipeline.delivery != "files":
            with ctx.rows.transaction(read_only=True) as lines:
                found += kept_growth(tx, lines, tables, name)
    a_day, now = sum(t.bytes_a_day or 0 for t in found), sum(t.bytes for t in found)
    left = None if limit_bytes is None or not a_day else max(limit_bytes - now, 0) / a_day
    return GrowthView(
        tables=tuple(sorted(found, key=lambda t: (-(t.bytes_a_day or 0), -t.rows_a_day))),
        bytes_a_day=a_day,
        bytes=now,
        days_left=None if left is None else round(left, 1),
    )
