"""What is announced of complete hours, beside late lines and tasks that are killed."""

import random
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from tally.reading.hours import HOUR, Mark, announcement
from tests.chaos.completeness import Event, announced_wrong
from tests.world import World

pytestmark = pytest.mark.stack

STEPS = 80


@pytest.mark.parametrize("zones", [("UTC", "America/New_York"), ("Pacific/Chatham",) * 2])
def test_hours_are_of_a_zones_clock(world: World, zones: tuple[str, str]) -> None:
    """In another one they are announced anew; one of which a part is shown is announced."""
    world.configure(time_zone=zones[0])
    world.plan()
    set_to = "update progress set complete_before = %s where pipeline = %s"
    # Between 2:45 and 3:45 of that night no clock of the Chatham Islands shows a minute.
    world.execute(set_to, ("2037-09-27 02:00", world.name))
    first = announcement(world.context(), world.name, None)
    assert first is not None
    world.configure(time_zone=zones[1])
    if zones[0] != zones[1]:  # before a plan has read it
        assert announcement(world.context(), world.name, first.mark) is None
    world.plan()
    world.execute(set_to, ("2037-09-27 05:00", world.name))
    found = announcement(world.context(), world.name, first.mark)
    assert found is not None
    hours = [f"{hour:%H}" for hour in found.hours]
    assert hours == (["02", "03", "04"] if zones[0] == zones[1] else ["04"])


def hours_of(world: World, table: str, value: str) -> Mapping[datetime, Any]:
    """A value of each hour of the result, or of what has changed of it."""
    hour = "timestamp(date(log_time), maketime(hour(log_time), 0, 0))"
    return {
        row["at"]: row["found"]
        for row in world.rows(f"select {hour} as at, {value} as found from {table} group by at")
    }


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_state_of_an_hour_is_announced_once_and_by_the_next_run(
    world: World, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """As long as a run announces all that there is, nothing is left to a later one."""
    choose, ctx, most = random.Random(seed), world.context(), 6
    monkeypatch.setattr("tally.reading.hours.HOURS_MAX", most)
    world.plan()

    def first_open() -> datetime:
        of = "select complete_before from progress where pipeline = %s"
        (row,) = world.rows(of, (world.name,))
        found: datetime = row["complete_before"]
        return found.replace(minute=0)

    begun, mark, checked = first_open() - HOUR, None, 0
    events: list[Event] = []
    for _ in range(STEPS):
        match choose.choice(["announce", "announce", "late", "later"]):
            case "late":
                span = first_open() + HOUR - begun
                minutes = [
                    begun + timedelta(minutes=choose.randrange(-60, span // timedelta(minutes=1)))
                    for _ in range(choose.randrange(1, 9))
                ]
                world.produce([f"{at:%Y-%m-%d %H:%M}:00 ERROR late" for at in minutes])
                world.minute()
            case "later":
                later = "update progress set complete_before = complete_before + interval %s hour"
                world.execute(f"{later} where pipeline = %s", (choose.randrange(1, 4), world.name))
            case _:
                found = announcement(ctx, world.name, mark)
                if found is not None and choose.random() < 0.3:
                    continue  # the task was killed: Airflow has no event
                if found is not None:
                    mark = Mark.of(found.event)
                    events += [
                        {"id": len(events) + n, "partition_key": key, "extra": found.event}
                        for n, key in enumerate(found.event["hours"])
                    ]
                if found is None or len(found.hours) < most:
                    lines = hours_of(world, f"`{world.name}`", "sum(log_count)")
                    table = f"amendment where pipeline = '{world.name}'"
                    changed = hours_of(world, table, "max(amended_at)")
                    whole = {at: last for at, last in changed.items() if at < first_open()}
                    assert list(announced_wrong(events, lines, whole)) == []
                    told = {datetime.fromisoformat(event["partition_key"]) for event in events}
                    assert {begun + n * HOUR for n in range((first_open() - begun) // HOUR)} <= told
                    checked += 1
    assert checked > STEPS / 8
