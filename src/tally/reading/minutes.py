"""The result as a chart, and the segments behind a minute of it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from tally.aggregates.aggregate import fingerprint
from tally.config.pipeline import Pipeline
from tally.context import Context, Transaction
from tally.errors import ConfigError, SchemaError, UsageError
from tally.ledger import series as ledger
from tally.ledger.decisions import find_losses
from tally.ledger.parts import Of, Part, folded_lines, parts_of
from tally.ledger.progress import (
    NO_LINES,
    Completion,
    MinuteState,
    amended_minutes,
    completion_of,
    progress_of,
)
from tally.ledger.series import Reads
from tally.ledger.tables import Tables, tables_to_read
from tally.lines.time_rule import UTC as UTC_NAME

MINUTE: Final = timedelta(minutes=1)

SPAN_MAX: Final = timedelta(days=92)
"""The longest span that is shown at once."""

READS_MAX: Final = timedelta(days=1)
"""The longest span of which it is shown what was read meanwhile."""

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
    state: MinuteState
    """``open`` while one of them is; ``amended`` where one has changed since it was complete."""
    parts: tuple[int, ...]
    """The lines of each of the values that the chart is divided by, in their order."""


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
    labels: tuple[str, ...]
    """The labels that a chart can be divided by."""
    by: str | None
    """The label that the bars are divided by; null for none."""
    values: dict[str, int]
    """Its values with most lines in the span, ten at most, and how many these are."""
    reads: tuple[Reads, ...]
    """What minute batches have read meanwhile, by the step of the span; empty for a span of more
    than a day."""
    lost: dict[int, int]
    """How many offsets were found to be lost meanwhile, by the step of the span."""
    complete_before: datetime | None
    """The first minute that is open; null before the first one is complete."""

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
    largest: dict[str, dict[str, int]]
    """Of each label the values with most lines, ten at most, and how many these are."""
    completion: Completion
    """Whether it is complete."""

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
    by: str | None = None,
) -> MinutesView:
    """A span of the result in up to some hundred bars.

    Args:
        ctx: What is needed from outside.
        name: The pipeline.
        span: How much of it, up to its latest minute or to ``last``; ignored with ``first``.
        first: The first minute, on the lines' own clock.
        last: The last minute, itself included; when None the latest of the result that is not dated
            ahead (:data:`AHEAD_MAX`).
        by: A label that the bars are divided by; by none when None.

    Raises:
        UnknownPipelineError: No such pipeline is configured.
        UsageError: The span is empty, or too long; or no such label is counted.
        MySQLUnavailableError: The server did not answer.
    """
    pipeline = ctx.settings.pipeline(name)
    with ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
        tables = tables_to_read(tx, pipeline)
        ahead = ctx.clock.now().replace(tzinfo=None) + AHEAD_MAX
        latest = ledger.latest_minute(tx, tables, ahead)
        newest = ledger.latest_minute(tx, tables)
        labels = [label.column for label in tables.labels if label.is_used]
        if by is not None and by not in labels:
            raise UsageError(
                f"{by!r} is no label of {tables.result}",
                next_step=f"it has: {', '.join(labels) or 'none'}",
            )
        chart = _Chart()
        shown = _shown(span, first, last or latest)
        if shown is not None:
            chart = _chart(tx, tables, pipeline, shown, by)
    return MinutesView(
        first_minute=shown[0] if shown else None,
        until_minute=shown[1] if shown else None,
        step_minutes=chart.step // MINUTE,
        bars=chart.bars,
        outdated=chart.outdated,
        marked_since=chart.marked_since,
        latest_minute=latest,
        ahead_minute=None if newest == latest else newest,
        labels=tuple(labels),
        by=by,
        values=chart.values,
        reads=chart.reads,
        lost=chart.lost,
        complete_before=chart.complete_before,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Chart:
    """The parts of a :class:`MinutesView` that an empty result lacks."""

    step: timedelta = MINUTE
    bars: tuple[BarView, ...] = ()
    outdated: tuple[datetime, ...] = ()
    marked_since: datetime | None = None
    values: dict[str, int] = field(default_factory=dict)
    reads: tuple[Reads, ...] = ()
    lost: dict[int, int] = field(default_factory=dict)
    complete_before: datetime | None = None


def _chart(
    tx: Transaction, tables: Tables, pipeline: Pipeline, shown: ledger.Span, by: str | None
) -> _Chart:
    step = next((s for s in _STEPS if (shown[1] - shown[0]) / s <= _BARS_MAX), _STEPS[-1])
    replayed, outdated, since = ledger.marks(
        tx, tables, pipeline.name, fingerprint(pipeline), shown
    )
    amended = amended_minutes(tx, pipeline.name, shown)
    marked = [
        {minute - (minute - shown[0]) % step for minute in minutes}
        for minutes in (replayed, outdated, amended)
    ]
    complete = progress_of(tx, pipeline.name).complete_before
    complete_before = datetime.fromisoformat(complete) if complete else None

    def state_of(at: datetime) -> MinuteState:
        if complete_before is None or at + step > complete_before:
            return MinuteState.OPEN
        return MinuteState.AMENDED if at in marked[2] else MinuteState.COMPLETE

    values = ledger.largest_values(tx, tables, by, shown) if by else {}
    parts = ledger.buckets_by(tx, tables, shown, step, by, list(values)) if by else {}
    zone = ZoneInfo(pipeline.time_zone or UTC_NAME)
    # Where the clock is set back, an hour is in two of the machines'.
    first = shown[0].replace(tzinfo=zone).astimezone(UTC)
    until = shown[1].replace(tzinfo=zone, fold=1).astimezone(UTC)

    def step_of(moment: datetime) -> int:
        return (moment.astimezone(zone).replace(tzinfo=None) - shown[0]) // step

    lost = Counter[int]()
    for loss in find_losses(tx, pipeline.name):
        if first <= loss.detected_at < until and loss.state != "restored":
            lost[step_of(loss.detected_at)] += loss.range.offsets
    is_short = shown[1] - shown[0] <= READS_MAX
    return _Chart(
        step=step,
        bars=tuple(
            BarView(
                first_minute=at,
                lines=lines,
                replayed=at in marked[0],
                outdated=at in marked[1],
                state=state_of(at),
                parts=tuple(parts.get((at, value), 0) for value in values),
            )
            for at, lines in ledger.buckets(tx, tables, shown, step).items()
        ),
        outdated=tuple(outdated),
        marked_since=since,
        values=values,
        reads=tuple(
            ledger.reads(tx, pipeline.name, (first, until), step, step_of) if is_short else ()
        ),
        lost=dict(lost),
        complete_before=complete_before,
    )


def last_hour(ctx: Context, names: Sequence[str]) -> dict[str, list[int]]:
    """The lines of each of the last sixty complete minutes, of several pipelines.

    Before one is complete, of those before now, as the pipeline's time zone reads it. A pipeline
    whose tables are not there is left out.

    Raises:
        MySQLUnavailableError: The server did not answer.
    """
    found: dict[str, list[int]] = {}
    now = ctx.clock.now()
    with ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
        for name in names:
            pipeline = ctx.settings.pipeline(name)
            here = now.astimezone(ZoneInfo(pipeline.time_zone or UTC_NAME)).replace(tzinfo=None)
            until = here.replace(second=0, microsecond=0)
            if complete := progress_of(tx, name).complete_before:
                until = min(until, datetime.fromisoformat(complete))
            try:
                tables = tables_to_read(tx, pipeline)
                counted = ledger.buckets(tx, tables, (until - 60 * MINUTE, until), MINUTE)
            except (ConfigError, SchemaError):
                continue
            found[name] = [counted.get(until - n * MINUTE, 0) for n in range(60, 0, -1)]
    return found


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
        known = completion_of(tx, tables, pipeline, f"{moment}", f"{moment}")
        return MinuteView(
            pipeline=pipeline,
            minute=moment,
            lines=sum(here.values()),
            parts=tuple(parts_of(tx, tables, pipeline, Of(minute=moment))),
            folded_lines=folded_lines(tx, tables, pipeline, moment),
            largest={
                label.column: ledger.largest_values(
                    tx, tables, label.column, (moment, moment + MINUTE)
                )
                for label in tables.labels
                if label.is_used
            },
            completion=known.get(f"{moment}") or _without_lines(tx, pipeline, moment),
        )


def _without_lines(tx: Transaction, pipeline: str, moment: datetime) -> Completion:
    complete = progress_of(tx, pipeline).complete_before
    is_complete = complete is not None and f"{moment}" < complete
    return replace(NO_LINES, state=MinuteState.COMPLETE) if is_complete else NO_LINES


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
