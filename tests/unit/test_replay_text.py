"""How ranges, times and minutes are written, on the command line and in forms alike."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.unit.values import span

from tally.errors import ReplayRefusedError
from tally.model import TopicPartition
from tally.planning.replay_request import (
    format_range,
    parse_minute,
    parse_range,
    parse_ranges,
    parse_time,
)

RANGE = replace(span(300, 310), partition=TopicPartition(topic="a.b-c", partition=12))


def test_a_range_is_read_as_it_is_asked_for_and_as_it_is_printed() -> None:
    """A printed range can be pasted into a command."""
    for text in (
        *("a.b-c/12:300-310", " a.b-c/12 : 300 - 310 ", "a.b-c/12 [300, 310)"),
        *("a.b-c/12[300,310)", str(RANGE), format_range(RANGE)),
    ):
        assert parse_range(text) == RANGE
    # Ranges stand one a line; blank lines are ignored; an error has the number of its line.
    text = "alog/0:3-5\n\n  alog/1 [0, 1)\n"
    assert list(map(format_range, parse_ranges(text))) == ["alog/0:3-5", "alog/1:0-1"]
    assert parse_ranges("") == ()
    assert parse_ranges("alog/0:3-5; alog/1 [0, 1);") == parse_ranges(text)
    with pytest.raises(ReplayRefusedError, match="line 3: 'alog 0 3 5'"):
        parse_ranges("alog/0:3-5\n\nalog 0 3 5")


def test_what_is_no_range_is_refused_with_how_one_looks() -> None:
    """Only ASCII digits and matching brackets are accepted; no range is empty."""
    for text in (
        *("alog", "alog/3", "alog/3:300", "alog/x:1-2", "/3:1-2", "alog/3:-1-2", "alog/3:1-٢"),
        *("alog/3 [1, 2]", "alog/3 (1, 2)", "a log/3:1-2", "alog/3:1-2 x", ""),
    ):
        with pytest.raises(ReplayRefusedError) as refused:
            parse_range(text)
        assert "alog/0:300-310" in refused.value.next_step
    for text in ("alog/3:310-300", "alog/3:300-300", "alog/3 [5, 5)"):
        with pytest.raises(ReplayRefusedError, match="is not smaller than") as refused:
            parse_range(text)
        assert "first one that is left out" in refused.value.next_step


def test_a_time_without_a_zone_is_utc_only_where_that_is_said() -> None:
    """The command line requires a zone; the form takes UTC."""
    at = datetime(2026, 11, 20, 14, 5, tzinfo=UTC)
    assert parse_time("2026-11-20T16:05+02:00") == at
    assert parse_time(" 2026-11-20 14:05 ", assume_utc=True) == at
    with pytest.raises(ReplayRefusedError, match="has no zone") as refused:
        parse_time("2026-11-20 14:05")
    assert "2026-11-20T14:05:00Z for UTC" in refused.value.next_step
    with pytest.raises(ReplayRefusedError, match="is not a time") as refused:
        parse_time("yesterday", assume_utc=True)
    assert "2026-11-20T14:05:00Z" in refused.value.next_step
    assert parse_minute("2026-1-2 3:04") == "2026-01-02 03:04"  # so that minutes sort as text
    for text in ("2026-01-02T03:00", "2026-01-02 03:00:00", "2026-01-02T03:00:00"):  # as shown
        assert parse_minute(text) == "2026-01-02 03:00"
    with pytest.raises(ReplayRefusedError, match="is not a minute"):
        parse_minute("14:05")
