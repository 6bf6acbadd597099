"""Hours of a result that are complete, or have changed since, and were not announced so far."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Self

from tally.context import Context
from tally.ledger.progress import MinuteState, amended_hours, lines_of_hours, progress_of
from tally.ledger.tables import tables_to_read

HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Announced:
    """How far a pipeline's hours were announced; neither goes back."""

    hours_before: datetime
    """The first hour that was not announced as complete, on the lines' own clock."""
    amended_through: datetime | None
    """The latest change of a complete minute that was announced, by the clock of the ledger."""

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Self:
        """As :attr:`Announcement.event` has it."""
        moments = (event["hours_before"], event["amended_through"])
        before, through = (moment and datetime.fromisoformat(moment) for moment in moments)
        return cls(hours_before=before, amended_through=through)


@dataclass(frozen=True, kw_only=True, slots=True)
class Announcement:
    """What is to be announced."""

    until: Announced
    """What will have been announced then."""
    hours: Mapping[datetime, MinuteState]
    """Those that have changed since they were announced, then those that became complete."""
    lines: Mapping[datetime, int]
    """How many lines each has."""

    @property
    def event(self) -> dict[str, Any]:
        """In plain values."""
        until = {key: moment and moment.isoformat() for key, moment in asdict(self.until).items()}
        hours = {
            hour.isoformat(): {"state": str(state), "log_count": self.lines[hour]}
            for hour, state in self.hours.items()
        }
        return {**until, "hours": hours}


def announcement(ctx: Context, name: str, announced: Announced | None) -> Announcement | None:
    """What is to be announced of a pipeline; None when nothing is.

    What changes before it was announced is announced once.

    Args:
        ctx: What is needed from outside.
        name: The pipeline.
        announced: What was announced before; without it the latest complete hour is the first one.

    Raises:
        UnknownPipelineError: No such pipeline is configured.
    """
    pipeline = ctx.settings.pipeline(name)
    with ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
        complete = progress_of(tx, name).complete_before
        if complete is None:
            return None
        before = datetime.fromisoformat(complete).replace(minute=0)
        first = announced.hours_before if announced else before - HOUR
        since = announced.amended_through if announced else None
        amended, through = amended_hours(tx, name, since, first)
        hours = dict.fromkeys(amended if announced else (), MinuteState.AMENDED)
        while first < before:
            hours[first] = MinuteState.COMPLETE
            first += HOUR
        if not hours:
            return None
        lines = lines_of_hours(tx, tables_to_read(tx, pipeline), hours)
    until = Announced(hours_before=first, amended_through=through or since)
    return Announcement(until=until, hours=hours, lines=lines)
