"""The checker sees a single line that is lost, doubled or made up."""

from collections import Counter
from datetime import datetime

import pytest

from tests.chaos.checker import check, check_so_far
from tests.chaos.production import Kind, Produced, malformed, own_minute, owner_of

NOW = datetime(2026, 11, 21, 12, 0)  # noqa: DTZ001 - a line's time has no zone
KINDS = {0: bytes([Kind.OWN, Kind.QUIET, Kind.MALFORMED, Kind.OWN]), 1: bytes([Kind.OWN])}
PRODUCED = Produced(kinds=KINDS, shared=Counter({NOW: 3}))
RESULT = {own_minute(0, 0): 1, own_minute(0, 3): 1, own_minute(1, 0): 1, NOW: 3}
LETTERS = [malformed(0, 2)]


def test_what_was_produced_is_right() -> None:
    """A result with each line once has no findings."""
    findings = check(PRODUCED, RESULT, LETTERS)
    assert (findings.lost, findings.duplicated, findings.invented) == ([], [], [])
    assert (PRODUCED.lines, PRODUCED.errors) == (5, 3)


@pytest.mark.parametrize("partition", [0, 1, 3, 7])
@pytest.mark.parametrize("number", [0, 59, 84_960, 5_000_000])
def test_a_minute_belongs_to_one_line(partition: int, number: int) -> None:
    """Also across leap years and other irregularities of the calendar."""
    assert owner_of(own_minute(partition, number)) == (partition, number)


def test_a_minute_that_lines_share_belongs_to_none() -> None:
    """A line of the current time has no minute of its own."""
    assert owner_of(NOW) is None


@pytest.mark.parametrize("count", [1, 7])
def test_a_row_that_is_no_whole_minute_hides_nothing(count: int) -> None:
    """A row that is not on a whole minute is a finding."""
    between = own_minute(0, 0).replace(second=30)
    assert owner_of(between) is None
    findings = check(PRODUCED, {**RESULT, between: count}, LETTERS)
    assert (findings.lost, findings.duplicated) == ([], [])
    assert findings.invented == [f"minute {between}"] * count


def test_a_lost_line_is_named() -> None:
    """The checker names its partition and its number."""
    result = {minute: n for minute, n in RESULT.items() if minute != own_minute(0, 3)}
    findings = check(PRODUCED, result, LETTERS)
    assert findings.lost == ["partition 0 number 3"]
    assert findings.total == 1


def test_a_line_that_counts_twice_is_named() -> None:
    """At the end, and at a check in between."""
    result = {**RESULT, own_minute(1, 0): 2}
    assert check(PRODUCED, result, LETTERS).duplicated == ["partition 1 number 0"]
    assert check_so_far(result, PRODUCED.shared).duplicated == ["partition 1 number 0"]
    assert check_so_far(RESULT, PRODUCED.shared).total == 0


def test_a_line_that_nobody_has_produced_is_named() -> None:
    """A line of another level or of an unknown partition is found."""
    result = {**RESULT, own_minute(0, 1): 1, own_minute(5, 0): 1}
    findings = check(PRODUCED, result, LETTERS)
    assert sorted(findings.invented) == ["partition 0 number 1", "partition 5 number 0"]


def test_a_minute_that_lines_share_is_counted_through() -> None:
    """One line too few and one too many are found."""
    assert check(PRODUCED, {**RESULT, NOW: 2}, LETTERS).lost == ["minute 2026-11-21 12:00:00"]
    more = check(PRODUCED, {**RESULT, NOW: 4}, LETTERS)
    assert more.duplicated == ["minute 2026-11-21 12:00:00"]
    so_far = check_so_far({NOW: 4}, PRODUCED.shared)
    assert so_far.duplicated == ["minute 2026-11-21 12:00:00"]


def test_dead_letters_are_lines_too() -> None:
    """A lost, a duplicate and an invented dead letter are found."""
    assert check(PRODUCED, RESULT, []).lost == [repr(malformed(0, 2))]
    assert check(PRODUCED, RESULT, [*LETTERS, *LETTERS]).duplicated == [repr(malformed(0, 2))]
    assert check(PRODUCED, RESULT, [*LETTERS, b"?"]).invented == ["b'?'"]
