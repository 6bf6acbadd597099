"""The checker sees a single line that is lost, doubled or made up."""

from collections import Counter
from datetime import datetime, timedelta

import pytest

from tests.chaos.checker import check, check_so_far
from tests.chaos.completeness import CompleteMinutes, Event, announced_wrong
from tests.chaos.production import Kind, Produced, malformed, own_minute, owner_of

NOW = datetime(2026, 11, 21, 12, 0)  # noqa: DTZ001 - a line's time has no zone
KINDS = {0: bytes([Kind.OWN, Kind.QUIET, Kind.MALFORMED, Kind.OWN]), 1: bytes([Kind.OWN])}
PRODUCED = Produced(kinds=KINDS, shared=Counter({NOW: 3}))
RESULT = {own_minute(0, 0): 1, own_minute(0, 3): 1, own_minute(1, 0): 1, NOW: 3}
LETTERS = [malformed(0, 2)]
BETWEEN = own_minute(0, 0).replace(second=30)


@pytest.mark.parametrize("partition", [0, 1, 3, 7])
@pytest.mark.parametrize("number", [0, 59, 84_960, 5_000_000])
def test_a_minute_belongs_to_one_line(partition: int, number: int) -> None:
    """Also across leap years; a shared minute, and what is no whole minute, belong to none."""
    assert owner_of(own_minute(partition, number)) == (partition, number)
    assert (owner_of(NOW), owner_of(BETWEEN)) == (None, None)


@pytest.mark.parametrize(
    ("result", "letters", "lost", "duplicated", "invented"),
    [
        ({}, LETTERS, [], [], []),
        ({own_minute(0, 3): 0}, LETTERS, ["partition 0 number 3"], [], []),
        ({own_minute(1, 0): 2}, LETTERS, [], ["partition 1 number 0"], []),
        ({own_minute(0, 1): 1}, LETTERS, [], [], ["partition 0 number 1"]),  # another level
        ({own_minute(5, 0): 1}, LETTERS, [], [], ["partition 5 number 0"]),
        ({BETWEEN: 2}, LETTERS, [], [], [f"minute {BETWEEN}"] * 2),
        ({NOW: 2}, LETTERS, ["minute 2026-11-21 12:00:00"], [], []),
        ({NOW: 4}, LETTERS, [], ["minute 2026-11-21 12:00:00"], []),
        ({}, [], [repr(malformed(0, 2))], [], []),
        ({}, [*LETTERS, *LETTERS], [], [repr(malformed(0, 2))], []),
        ({}, [*LETTERS, b"?"], [], [], ["b'?'"]),
    ],
)
def test_each_line_is_known_by_itself(
    result: dict[datetime, int],
    letters: list[bytes],
    lost: list[str],
    duplicated: list[str],
    invented: list[str],
) -> None:
    """One line or dead letter too few, too many, or that nobody has produced is named."""
    findings = check(PRODUCED, {**RESULT, **result}, letters)
    assert (findings.lost, findings.duplicated, findings.invented) == (lost, duplicated, invented)
    assert bool(str(findings)) == bool(lost + duplicated + invented)
    assert PRODUCED.lines == 5


def test_a_line_that_counts_twice_is_seen_before_the_end() -> None:
    """No minute counts more lines than were written in it, at any time."""
    assert check_so_far(RESULT, PRODUCED.shared) == []
    result = {**RESULT, own_minute(1, 0): 2, NOW: 4}
    found = check_so_far(result, PRODUCED.shared)
    assert found == ["partition 1 number 0", "minute 2026-11-21 12:00:00"]


HOUR = datetime(1900, 1, 1, 5)  # noqa: DTZ001 - a line's time has no zone
NEXT = HOUR + timedelta(hours=1)


def test_a_complete_minute_changes_only_with_an_amendment() -> None:
    """Also more than once."""
    minutes = CompleteMinutes()
    for lines, amended_at in ((3, None), (3, None), (4, NOW), (5, NOW + timedelta(seconds=1))):
        minutes.look([{"log_time": HOUR, "log_count": lines, "amended_at": amended_at}])
    assert minutes.broken == []
    minutes.look([{"log_time": HOUR, "log_count": 4, "amended_at": NOW + timedelta(seconds=1)}])
    assert len(minutes.broken) == 1


def event(number: int, hour: datetime, state: str, lines: int) -> Event:
    key = hour.isoformat()
    hours = {key: {"state": state, "log_count": lines}}
    extra = {"hours": hours, "amended_at": NOW.isoformat()}
    return {"id": number, "partition_key": key, "extra": extra}


COMPLETE = event(1, HOUR, "complete", 3)
CHANGED = event(2, HOUR, "amended", 4)


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([COMPLETE, CHANGED], None),
        ([CHANGED, COMPLETE, event(3, NEXT, "complete", 0)], None),
        ([COMPLETE, event(2, HOUR, "complete", 4)], "as complete after"),
        ([event(1, NEXT, "complete", 0), event(2, HOUR, "complete", 4)], "as complete after"),
        ([COMPLETE, CHANGED, event(3, HOUR, "amended", 4)], "announced twice"),
        ([COMPLETE], "was announced with 3"),
        ([event(1, NEXT, "complete", 0)], "never announced"),
        ([], "never announced"),
    ],
)
def test_each_hour_is_announced_once_for_each_state(events: list[Event], said: str | None) -> None:
    """Whatever is announced twice, out of order, or not at all is named."""
    found = list(announced_wrong(events, {HOUR: 4}, {HOUR: NOW + timedelta(seconds=1)}))
    assert len(found) == (said is not None), found
    assert said is None or said in found[0]
