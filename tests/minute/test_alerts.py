"""Limits of complete minutes: when an alert begins, when it ends, and who is told of it."""

from datetime import datetime, timedelta
from functools import partial

import pytest

from tally.ledger.alerts import Alert, AlertRule, alerts_of, notified
from tally.status.status import Statuses
from tests.minute.steps import ERROR
from tests.world import World

pytestmark = pytest.mark.stack

MINUTE = timedelta(minutes=1)


def alerts(world: World, *, unnotified: bool = False) -> list[Alert]:
    with world.database.transaction(read_only=True) as tx:
        return alerts_of(tx, world.name, unnotified=unnotified)


def found(world: World) -> dict[str, tuple[bool, str, float]]:
    return {a.rule: (a.is_firing, a.log_time, a.value) for a in alerts(world)}


def complete(world: World, before: datetime) -> None:
    """Let minutes be complete before that one, and plan."""
    at = "update progress set complete_before = %s where pipeline = %s"
    world.execute(at, (before, world.name))
    world.plan()


def begun(world: World, **keys: object) -> datetime:
    """A first minute from which on the minutes are judged; it is later than today's."""
    world.configure(**keys)
    world.plan()
    first = datetime(2037, 1, 1, 12)  # noqa: DTZ001 - the lines' own clock
    at = "update progress set complete_before = %s, judged_before = %s where pipeline = %s"
    world.execute(at, (first, first, world.name))
    return first


def test_a_minute_that_breaks_a_limit_raises_an_alert_until_one_does_not(world: World) -> None:
    """Each minute is judged once, also of several that become complete at once."""
    first = begun(world, alert_above=2, alert_below=2)
    lines = {0: 3, 1: 2, 2: 2, 3: 1}
    world.produce(
        [
            f"{first + n * MINUTE:%Y-%m-%d %H:%M}:00 ERROR x"
            for n, k in lines.items()
            for _ in range(k)
        ]
    )
    world.minute()
    assert found(world) == {}
    complete(world, first + MINUTE)
    assert found(world) == {"above": (True, f"{first}", 3)}
    complete(world, first + MINUTE)
    (alert,) = alerts(world, unnotified=True)
    assert alert.text == "3 lines, more than 2, at 2037-01-01 12:00"
    world.database.run(partial(notified, pipeline=world.name, alert=alert))
    assert alerts(world, unnotified=True) == []
    complete(world, first + 2 * MINUTE)
    ended = {"above": (False, f"{first}", 3)}
    assert found(world) == ended
    (alert,) = alerts(world, unnotified=True)
    assert alert.text == "3 lines, more than 2, at 2037-01-01 12:00, and not since"
    complete(world, first + 4 * MINUTE)
    assert found(world) == ended | {"below": (True, f"{first + 3 * MINUTE}", 1)}


def test_what_has_changed_since_is_not_noted_as_notified(world: World) -> None:
    """An alert that has ended is told of, too, however late the word of its beginning is noted."""
    first = begun(world, alert_below=1)
    complete(world, first + MINUTE)
    (begins,) = alerts(world)
    world.database.run(partial(notified, pipeline=world.name, alert=begins))
    world.produce([f"{first + MINUTE:%Y-%m-%d %H:%M}:00 ERROR x"])
    world.minute()
    complete(world, first + 2 * MINUTE)
    world.database.run(partial(notified, pipeline=world.name, alert=begins))
    (ends,) = alerts(world, unnotified=True)
    assert not ends.is_firing


def test_what_ends_before_anybody_was_told_is_told(world: World) -> None:
    """Once, as what it was."""
    first = begun(world, alert_below=1)
    complete(world, first + MINUTE)
    world.produce([f"{first + MINUTE:%Y-%m-%d %H:%M}:00 ERROR x"])
    world.minute()
    complete(world, first + 2 * MINUTE)
    (alert,) = alerts(world, unnotified=True)
    assert alert.text == "0 lines, fewer than 1, at 2037-01-01 12:00, and not since"


def test_an_alert_ends_with_its_limit(world: World) -> None:
    """Also the last one of a pipeline; while it lasts it is a problem of the pipeline's health."""
    first = begun(world, alert_below=1)
    complete(world, first + MINUTE)

    def reasons() -> list[str]:
        return [p.reason for p in Statuses(ctx=world.context()).of(world.name).problems]

    assert "limit" in reasons()
    world.configure(alert_below=None)
    world.plan()
    assert found(world) == {"below": (False, f"{first}", 0)}
    assert "limit" not in reasons()


def test_minutes_that_no_clock_shows_are_not_judged(world: World) -> None:
    """Where it is set forward."""
    begun(world, alert_below=1, time_zone="Europe/Berlin")
    first = datetime(2037, 3, 29, 1, 59)  # noqa: DTZ001 - the lines' own clock
    at = "update progress set complete_before = %s, judged_before = %s where pipeline = %s"
    world.execute(at, (first, first, world.name))
    world.produce([f"{first:%Y-%m-%d %H:%M}:00 ERROR x", "2037-03-29 03:00:00 ERROR x"])
    world.minute()
    complete(world, first + 62 * MINUTE)
    assert found(world) == {}


def test_the_share_of_counted_lines_and_silence_are_judged(world: World) -> None:
    first = begun(world, alert_counted_share=0.5, alert_silent_minutes=5)
    world.produce([ERROR, ERROR, "2017-07-30 14:09:08 INFO x"])
    world.minute()
    complete(world, first + MINUTE)
    (alert,) = alerts(world)
    assert (alert.rule, alert.text) == (
        AlertRule.SHARE,
        "66.7% of the lines counted, more than 50.0%, at 2037-01-01 12:00",
    )
    ago = "update progress set found_at = found_at - interval 7 minute where pipeline = %s"
    world.execute(ago, (world.name,))
    complete(world, first + 2 * MINUTE)
    assert {rule: firing for rule, (firing, _, _) in found(world).items()} == {
        "share": True,
        "silent": True,
    }
    assert [rule for rule, (firing, _, _) in found(world).items() if firing] == ["share", "silent"]
    (silent,) = [a for a in alerts(world) if a.rule is AlertRule.SILENT]
    assert silent.text == "no record for 7 minutes, longer than 5, at 2037-01-01 12:01"


def test_silence_is_noticed_while_no_minute_becomes_complete(world: World) -> None:
    """As while a partition waits for a decision; and it ends then, too."""
    begun(world, alert_silent_minutes=5)
    ago = "update progress set found_at = found_at - interval 7 minute where pipeline = %s"
    world.execute(ago, (world.name,))
    world.plan()
    assert [alert.is_firing for alert in alerts(world)] == [True]
    world.produce([ERROR])
    world.minute()
    assert [alert.is_firing for alert in alerts(world)] == [False]


def test_without_limits_for_a_while_what_came_meanwhile_is_not_judged(world: World) -> None:
    first = begun(world, alert_above=0)
    world.configure(alert_above=None)
    world.produce([f"{first:%Y-%m-%d %H:%M}:00 ERROR x"])
    world.minute()
    complete(world, first + MINUTE)
    world.configure(alert_above=0)
    complete(world, first + 2 * MINUTE)
    assert found(world) == {}


def test_limits_are_of_the_minutes_from_then_on(world: World) -> None:
    """And of the last day, where nothing was judged for longer."""
    world.configure(alert_below=1)
    world.plan()
    assert found(world) == {}
    first = begun(world, alert_below=None)
    line = first + timedelta(days=1, hours=12)
    world.produce([f"{line:%Y-%m-%d %H:%M}:00 ERROR x"])
    world.minute()
    world.configure(alert_above=0)
    complete(world, line + timedelta(days=1) + MINUTE)
    assert found(world) == {}
    world.execute("update progress set judged_before = %s where pipeline = %s", (first, world.name))
    complete(world, line + timedelta(days=1))
    assert found(world) == {"above": (True, f"{line}", 1)}
