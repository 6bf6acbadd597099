"""Which of the formats that understand a sample is recommended, and what is guessed of JSON."""

import tomllib

from tests.unit.values import blank

from tally.app.format_keys import FormatKeys, is_known, keys_to_paste
from tally.app.format_trial import FormatTrial, _rank
from tally.app.json_guess import json_guess
from tally.lines.format import CATALOGUE
from tally.lines.time_rule import WALL_CLOCK


def test_a_format_whose_levels_are_none_comes_last() -> None:
    """A free level takes any word; of formats that know as many, one with levels comes first."""
    understood_and_known = ((5, 0), (5, 5), (5, None), (4, 4), (9, None))
    trials = [blank(FormatTrial, understood=n, known_levels=k) for n, k in understood_and_known]
    ranked = [(t.understood, t.known_levels) for t in sorted(trials, key=_rank)]
    assert ranked == [(9, None), (5, 5), (5, None), (4, 4), (5, 0)]
    log4j, postgres = CATALOGUE["log4j"], CATALOGUE["postgresql"]
    assert [is_known(log4j, level) for level in ("Warn", "UTC", "10.0.0.7")] == [True, False, False]
    assert is_known(postgres, "LOG")


def keys(**changes: object) -> str:
    usual = {"pipeline": None, "topic": "t", "line_format": "log4j", "time_rule": WALL_CLOCK}
    known = {"levels": None, "seen": {"ERROR": 1}, "has_known_level": True, "continuations": 0}
    return keys_to_paste(FormatKeys(**{**usual, **known, **changes}))  # type: ignore[arg-type]


def test_no_configuration_is_printed_that_counts_nothing() -> None:
    """Only comments where no level is known; else it says that the sample lacks the levels."""
    unknown = keys(seen={"UTC": 5}, has_known_level=False)
    assert tomllib.loads(unknown) == {}
    assert "no level that is known: UTC" in unknown
    assert "# no line of the sample is at ERROR: INFO, WARN" in keys(seen={"INFO": 3, "WARN": 1})
    assert "no line of the sample" not in keys()


def test_keys_and_digits_of_a_json_line_are_guessed() -> None:
    for line, guess in (
        (
            '{"ts": 1501423748123, "lvl": "E", "time_taken": 3}',
            {"time": "ts", "level": "lvl", "time_format": "epoch_milliseconds"},
        ),
        ('{"a": {"t": "1501423748.5"}}', {"time": "a.t", "time_format": "epoch_seconds"}),
        (
            '{"when": "2017-07-30 14:09:08,1"}',
            {"time": "when", "time_format": "yyyy-MM-dd HH:mm:ss"},
        ),
        ('{"severityText": "x", "time": "soon"}', {"level": "severityText", "time": "time"}),
        ('{"shop": 1}', {}),
        ("2017", {}),
    ):
        assert json_guess(line) == guess
