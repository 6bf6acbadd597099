"""Compares what was said to be complete with what was counted afterwards, and what was announced.

Nothing that decides it in the product is asked: only counts are compared, and times of commits.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Event = Mapping[str, Any]
"""An event of the asset of the hours, as Airflow's API has it."""


@dataclass(slots=True)
class CompleteMinutes:
    """What readers were told of minutes while lines came."""

    seen: dict[datetime, tuple[int, datetime | None]] = field(default_factory=dict)
    """Of each minute that was called complete how many lines it had, and its last amendment."""
    broken: list[str] = field(default_factory=list)
    """Minutes that have changed, and were not amended."""

    def look(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Compare what is not open with what was said of it before.

        Args:
            rows: Of the view of the minutes: ``log_time``, ``log_count`` and ``amended_at``.
        """
        for row in rows:
            now = (int(row["log_count"]), row["amended_at"])
            before = self.seen.setdefault(row["log_time"], now)
            if before[0] != now[0] and before[1] == now[1]:
                told = f"{before[0]} lines, then {now[0]}, last amended {now[1]}"
                self.broken.append(f"{row['log_time']} was complete with {told}")
            self.seen[row["log_time"]] = now


def announced_wrong(
    events: Iterable[Event], hours: Mapping[datetime, int], amended: Mapping[datetime, datetime]
) -> Iterator[str]:
    """What Airflow was told twice, out of order or not at all.

    Args:
        events: All events of the hours.
        hours: How many lines each hour has at the end.
        amended: Of each hour that has changed since it was complete when it last did.
    """
    told: dict[datetime, int] = {}
    latest, begun = datetime.min, None  # noqa: DTZ901 - a line's time has no zone
    for event in sorted(events, key=lambda event: event["id"]):
        extra, key = event["extra"], event["partition_key"]
        hour, of_hour = datetime.fromisoformat(key), extra["hours"][key]
        begun = begun or datetime.fromisoformat(extra["amended_at"])
        if of_hour["state"] == "complete":
            if hour <= latest:
                yield f"{hour} was announced as complete after {latest}"
            latest = max(latest, hour)
        elif told.get(hour) == of_hour["log_count"]:
            yield f"{hour} was announced twice with {told[hour]} lines"
        told[hour] = of_hour["log_count"]
    for hour, lines in told.items():
        if lines != hours.get(hour, 0):
            yield f"{hour} has {hours.get(hour, 0)} lines, and was announced with {lines}"
    for hour in amended.keys() - told.keys():
        if begun is None or amended[hour] > begun:
            yield f"{hour} has changed at {amended[hour]}, and was never announced"
