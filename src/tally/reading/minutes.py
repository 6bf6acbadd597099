"""The result as a chart, and the segments behind a minute of it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tally.aggregates.aggregate import fingerprint
from tally.context import Context
from tally.errors import UsageError
from tally.ledger import results as ledger
from tally.ledger.parts import Of, Part, folded_lines, parts_of
from tally.ledger.tables import tables_to_read

MINUTE: Final = timedelta(minutes=1)

SPAN_MAX: Final = timedelta(days=92)
"""The longest span that is shown at once."""

AHEAD_MAX: Final = timedelta(days=1)
"""How far lines may be dated ahead of UTC, as their clocks are of other zones."""

_STEPS: Final = tuple(MINUTE * minutes for minutes in (1, 5, 15, 60, 360))
_BARS_MAX: Final = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class BarView:
    """Lines of some minutes, one after another, and how they were counted."""

    first_minute: datetime
    """The first of them, on the lines' own clock."""
    lines: int
    """Lines of all of them."""
    replayed: bool
    """Whether a replay has counted lines of them."""
    outdated: bool
    """Whether lines of them were counted under other rules than today's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MinutesView:
    """A span of a result."""

    first_minute: datetime | None
    """The first minute of the span, on the lines' own clock; null while the result is empty."""
    until_minute: datetime | None
    """The first minute after the span."""
    step_minutes: int
    """How many minutes a bar has."""
    bars: tuple[BarView, ...]
    """In order; steps without a line are left out."""
    outdated: tuple[datetime, ...]
    """Its minutes with lines that were counted under other rules than today's."""
    marked_since: datetime | None
    """The minute from which on it is known what was replayed, and what is under other rules; null
    for the whole span, ``until_minute`` for nothing of it."""
    latest_minute: datetime | None
    """The latest minute of the result that is not dated ahead; null without one."""
    ahead_minute: datetime | None
    """The latest minute of the result, if it is dated ahead."""

    @property
    def lines(self) -> int:
        """Lines of the whole span."""
        return sum(bar.lines for bar in self.bars)

    @property
    def step(self) -> timedelta:
        """How long a bar is."""
        return self.step_minutes * MINUTE


@dataclass(frozen=True, kw_only=True, slots=True)
class MinuteView:
    """What is behind a minute of a result."""

    pipeline: str
    """The pipeline."""
    minute: datetime
    """The minute, on the lines' own clock."""
    lines: int
    """Its lines in the result."""
    parts: tuple[Part, ...]
    """The segments that contribute most, most lines first."""
    folded_lines: int
    """Lines whose segments are no longer known by themselves, as they were pruned."""

    @property
    def other_lines(self) -> int:
        """Lines of further segments, which are not shown."""
        return self.lines - self.folded_lines - sum(part.lines for part in self.parts)


def minutes(
    ctx: Context,
    name: str,
    *,
    span: timedelta = timedelta(hours=1),
    first: datetime | None = None,
    last: datetime | None = None,
) -> MinutesView:
    """A span of the result in up to some hundred bars.

    Args:
        ctx: What is needed from outside.
        name: The pipeline.
        span: How much of it, up to its latest minute or to ``last``; ignored with ``first``.
        first: The first minute, on the lines' own clock.
        last: The last minute, itself included; when None the latest of the result that is not dated
            ahead (:data:`AHEAD_MAX`).

    Raises:
        UnknownPipelineError: No such pipeline is configured.
        UsageError: The span is empty, or too long.
        MySQLUnavailableError: The server did not answer.
    """
    pipeline = ctx.settings.pipeline(name)
    with ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
        tables = tables_to_read(tx, pipeline)
        ahead = ctx.clock.now().replace(tzinfo=None) + AHEAD_MAX
        latest = ledger.latest_minute(tx, tables, ahead)
        newest = ledger.latest_minute(tx, tables)
        bars: list[BarView] = []
        replayed: list[datetime] = []
        outdated: list[datetime] = []
        since, step = None, MINUTE
        shown = _shown(span, first, last or latest)
        if shown is not None:
            step = next((s for s in _STEPS if (shown[1] - shown[0]) / s <= _BARS_MAX), _STEPS[-1])
            replayed, outdated, since = ledger.marks(
                tx, tables, pipeline.name, fingerprint(pipeline), shown
            )
            marked = [
                {minute - (minute - shown[0]) % step for minute in minutes}
                for minutes in (replayed, outdated)
            ]
            bars = [
                BarView(
                    first_minute=at, lines=lines, replayed=at in marked[0], outdated=at in marked[1]
                )
                for at, lines in ledger.buckets(tx, tables, shown, step).items()
            ]
    return MinutesView(
        first_minute=shown[0] if shown else None,
        until_minute=shown[1] if shown else None,
        step_minutes=step // MINUTE,
        bars=tuple(bars),
        outdated=tuple(outdated),
        marked_since=since,
        latest_minute=latest,
        ahead_minute=None if newest == latest else newest,
    )


def minute(ctx: Context, pipeline: str, moment: datetime) -> MinuteView:
    """What is behind a minute.

    Raises:
        UnknownPipelineError: No such pipeline is configured.
        MySQLUnavailableError: The server did not answer.
    """
    settings = ctx.settings.pipeline(pipeline)
    with ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
        tables = tables_to_read(tx, settings)
        here = ledger.buckets(tx, tables, (moment, moment + MINUTE), MINUTE)
        return MinuteView(
            pipeline=pipeline,
            minute=moment,
            lines=sum(here.values()),
            parts=tuple(parts_of(tx, tables, pipeline, Of(minute=moment))),
            folded_lines=folded_lines(tx, tables, pipeline, moment),
        )


def _shown(
    span: timedelta, first: datetime | None, last: datetime | None
) -> tuple[datetime, datetime] | None:
    """What is shown, as ``[first, until)``; None while the result is empty and no end is given."""
    if last is None:
        return None
    until = last + MINUTE
    first = first or until - span
    if not first < until:
        raise UsageError(
            f"the span ends at {last:%Y-%m-%d %H:%M}, before it begins at {first:%Y-%m-%d %H:%M}",
            next_step="give the earlier minute first",
        )
    if until - first > SPAN_MAX:
        raise UsageError(
            f"a span of {(until - first).days} days is longer than the {SPAN_MAX.days} that are "
            "shown at once",
            next_step="give a shorter one; all of the result is in its table",
        )
    return first, until
