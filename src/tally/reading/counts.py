"""Reading the result."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from tally.context import Context
from tally.ledger.results import ResultRow, result_rows
from tally.ledger.tables import Tables, tables_to_read
from tally.reading.minute_rules import MinuteRules, Outdated, Rule
from tally.views import ErrorView, values_of


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedRowView(ResultRow):
    """A row of the result, and by which rules its minute was counted."""

    rule: Rule
    """``unknown``: some of its lines are of folded segments."""
    other_fingerprints: tuple[str, ...]
    """Fingerprints of the other rules; empty under today's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """The columns of a result besides the minute and its lines."""

    labels: tuple[str, ...]
    """Columns of the labels, including labels that are no longer configured."""
    has_bytes: bool
    """Whether bytes are measured."""

    @classmethod
    def of(cls, tables: Tables) -> Self:
        """The columns of some tables."""
        labels = tuple(label.column for label in tables.labels)
        return cls(labels=labels, has_bytes="log_bytes" in tables.sums)


@dataclass(frozen=True, kw_only=True, slots=True)
class CountsView:
    """Minutes of the result."""

    pipeline: str
    """The pipeline."""
    table: str
    """Its result table."""
    columns: Columns
    """Which columns it has."""
    levels: tuple[str, ...]
    """The levels that are counted now; empty for any."""
    rules: str
    """The rules that lines are counted by now, as text."""
    fingerprint: str
    """Of these rules."""
    outdated: Outdated | None
    """The minutes with lines that were counted under other rules; null when there is none."""
    other_offsets: int
    """Offsets that are counted under other rules, where today's may find more lines."""
    other_offsets_gone: int | None
    """How many of them Kafka no longer holds in whole segments; null when it did not answer."""
    minutes: tuple[CountedRowView, ...]
    """Oldest first, then by labels; a minute without lines has no row."""
    total: int
    """Lines of all these minutes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CountsListView:
    """The results of several pipelines."""

    counts: tuple[CountsView, ...]
    """The results that could be read, by pipeline."""
    errors: Mapping[str, ErrorView]
    """Why another pipeline is missing, by its name."""


def counts(
    ctx: Context,
    name: str,
    *,
    last: int | None = None,
    since: str | None = None,
    until: str | None = None,
) -> CountsView:
    """The result as it is now; all minutes by default.

    Args:
        ctx: What is needed from outside.
        name: The pipeline.
        last: Only this many of the latest minutes.
        since: The first minute, ``YYYY-MM-DD HH:MM`` on the lines' own clock.
        until: The last minute, inclusive.

    Raises:
        UnknownPipelineError: No such pipeline is configured.
        MySQLUnavailableError: The server did not answer.
    """
    pipeline = ctx.settings.pipeline(name)
    with ctx.database.transaction(read_only=True) as tx:
        tables = tables_to_read(tx, pipeline)
        found = result_rows(tx, tables, last=last, since=since, until=until)
        rules = MinuteRules.read(ctx, tx, tables, pipeline, [row.log_time for row in found])
    return CountsView(
        pipeline=pipeline.name,
        table=tables.result,
        columns=Columns.of(tables),
        levels=tuple(pipeline.levels),
        rules=pipeline.rules,
        fingerprint=rules.fingerprint,
        outdated=rules.outdated,
        other_offsets=sum(other.offsets for other in rules.other_offsets),
        other_offsets_gone=rules.offsets_gone,
        minutes=tuple(
            CountedRowView(
                **values_of(row),
                rule=rules.rule_of(row.log_time),
                other_fingerprints=rules.fingerprints_of(row.log_time),
            )
            for row in found
        ),
        total=sum(row.log_count for row in found),
    )
