"""Hours of a result that are complete, or have changed since, and were not announced so far."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Self

from tally.context import Context
from tally.ledger.progress import (
    MinuteState,
    amended_hours,
    last_amended,
    lines_of_hours,
    progress_of,
)
from tally.ledger.tables import tables_to_read
from tally.lines.time_rule import UTC
from tally.planning.completeness import MINUTE, is_shown

HOUR: Final = timedelta(hours=1)
HOURS_MAX: Final = 100
"""Hours of one announcement: Airflow writes all of it with each of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """How far a pipeline's hours were announced; it never goes back."""

    hours_before: datetime
    """The first hour that was not announced as complete, on the lines' own clock."""
    amended_at: datetime
    """The last change of a complete minute that was announced, by the clock of the ledger."""
    amended_hour: datetime
    """The last hour that was announced of those with this change."""
    time_zone: str
    """The zone in which the lines' clock was read; hours of another one are others."""

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Self:
        """As :attr:`Announcement.event` has it."""
        moments = ("hours_before", "amended_at", "amended_hour")
        found = {key: datetime.fromisoformat(event[key]) for key in moments}
        return cls(**found, time_zone=event["time_zone"])


@dataclass(frozen=True, kw_only=True, slots=True)
class Announcement:
    """What is to be announced."""

    mark: Mark
    """How far all will have been announced then."""
    hours: Mapping[datetime, MinuteState]
    """Those that have changed since they were announced, then those that became complete."""
    lines: Mapping[datetime, int]
    """How many lines each has."""

    @property
    def event(self) -> dict[str, Any]:
        """In plain values."""
        mark = {
            key: value if isinstance(value, str) else value.isoformat()
            for key, value in asdict(self.mark).items()
        }
        hours = {
            hour.isoformat(): {"state": str(state), "log_count": self.lines[hour]}
            for hour, state in self.hours.items()
        }
        return {**mark, "hours": hours}


def announcement(ctx: Context, name: str, before: Mark | None) -> Announcement | None:
    """What is to be announced of a pipeline, of a backlog the first part; None when nothing is.

    What changes before it was announced is announced once.

    Args:
        ctx: What is needed from outside.
        name: The pipeline.
        before: How far it was announced; without it, and after a change of the zone, the latest
            complete hour is the first one.

    Raises:
        UnknownPipelineError: No such pipeline is configured.
    """
    pipeline = ctx.settings.pipeline(name)
    zone = pipeline.time_zone or UTC
    if before is not None and before.time_zone != zone:
        before = None
    with ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
        known = progress_of(tx, name)
        if known.complete_before is None or known.time_zone != zone:  # no plan has read it yet
            return None
        until = datetime.fromisoformat(known.complete_before).replace(minute=0)
        first = before.hours_before if before else until - HOUR
        amended = before and amended_hours(
            tx, name, first, (before.amended_at, before.amended_hour), HOURS_MAX
        )
        hours = dict.fromkeys((hour for _, hour in amended or ()), MinuteState.AMENDED)
        if amended and len(amended) == HOURS_MAX:
            at, hour = amended[-1]
        else:
            # A change of an hour that is announced only from now on is announced with it.
            at, hour = last_amended(tx, name), until
            while first < until and len(hours) < HOURS_MAX:
                if any(is_shown(first + MINUTE * n, zone) for n in range(60)):
                    hours[first] = MinuteState.COMPLETE
                first += HOUR
        if not hours:
            return None
        lines = lines_of_hours(tx, tables_to_read(tx, pipeline), hours)
    mark = Mark(hours_before=first, amended_at=at, amended_hour=hour, time_zone=zone)
    return Announcement(mark=mark, hours=hours, lines=lines)
