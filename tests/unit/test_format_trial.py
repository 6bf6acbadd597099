"""Which records a format is tried on, which is recommended, and what is then to be configured."""

import tomllib
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError
from tests.unit.values import blank

from tally.config.servers import KafkaSettings
from tally.kafka.records import first_records
from tally.lines.format import NO_OPTIONS, Accepted, LineFormat, MalformedReason
from tally.lines.parsing import CATALOGUE, parse_options
from tally.lines.time_rule import WALL_CLOCK, TimeRule
from tally.model import TopicPartition
from tally.set_up.format_advice import (
    FormatTrial,
    accepting,
    comments_on,
    is_known,
    json_guess,
    keys_to_paste,
    levels_to_configure,
    no_known_level,
    option_guess,
)
from tally.set_up.format_trial import _rank


class _Consumer:
    """Answers with records of some sizes, a partition after the other, then with their ends."""

    def __init__(self, sizes: dict[int, list[int]]) -> None:
        self._left = {number: [b"x" * size for size in of] for number, of in sizes.items()}

    def __call__(self, *_: object, **__: object) -> "_Consumer":
        return self

    def assign(self, _: object) -> None: ...

    def close(self) -> None: ...

    def pause(self, _: object) -> None: ...

    def consume(self, _: int, __: float) -> list[Any]:
        number = next((n for n, left in self._left.items() if left), None)
        if number is None:
            number, _ends = self._left.popitem()
            error, value = KafkaError(KafkaError._PARTITION_EOF), None
        else:
            error, value = None, self._left[number].pop(0)
        message = Mock(spec=["error", "topic", "partition", "value", "key", "offset", "timestamp"])
        message.error.return_value, message.value.return_value = error, value
        message.topic.return_value, message.partition.return_value = "alog", number
        message.timestamp.return_value = (TIMESTAMP_NOT_AVAILABLE, 0)
        return [message]


def test_the_newest_records_that_fit_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each partition by itself; none before a record that was left out."""
    for sizes, bytes_max, expected in (
        ({0: [1, 1, 1], 1: [1, 1, 1]}, 3, {0: [1, 1, 1], 1: [1, 1, 1]}),
        ({0: [1, 1, 1], 1: [1, 1, 1]}, 2, {0: [1, 1], 1: [1, 1]}),
        ({0: [1, 1, 1], 1: [9, 9, 2]}, 5, {0: [1, 1, 1], 1: [2]}),
        ({0: [1, 9, 1], 1: [9]}, 8, {0: [1], 1: []}),
        ({0: [9, 1, 2]}, 3, {0: [1, 2]}),
    ):
        monkeypatch.setattr("tally.kafka.records.Consumer", _Consumer(sizes))
        places = {number: TopicPartition(topic="alog", partition=number) for number in sizes}
        offsets = dict.fromkeys(places.values(), 0)
        found = first_records(KafkaSettings(), offsets, 3, bytes_max, read_committed=True)
        kept = {n: [len(r.value or b"") for r in found[place]] for n, place in places.items()}
        assert kept == expected


OF_TOMCAT_AND_ANDROID = {"tomcat": ["SEVERE"], "android": ["E"]}


def test_the_levels_to_configure_are_never_all_of_a_format_that_has_errors() -> None:
    """Also of a sample without any: the format knows its own; others have ERROR, the default."""
    for name, line_format in CATALOGUE.items():
        levels = line_format.levels or tuple(line_format.level_names.values())
        for seen in ([], levels[-1:], levels):
            found = levels_to_configure(line_format, seen)
            if not line_format.has_level:
                assert found == [], name
                continue
            assert line_format.printed_levels(found or ["ERROR"])
            if name in OF_TOMCAT_AND_ANDROID:
                assert found == OF_TOMCAT_AND_ANDROID[name]
            elif found is not None:
                assert [level[:3].casefold() for level in found] == ["err"], name
    # Of levels of which none is known to be an error all are shown: none would count any line.
    pattern, levels = "(?<level>(?:ALPHA|BETA)) x", ("ALPHA", "BETA")
    line_format = LineFormat(name="custom", pattern=pattern, example="BETA x", levels=levels)
    assert levels_to_configure(line_format, ["BETA", "ALPHA"]) == ["BETA", "ALPHA"]


def test_a_format_whose_levels_are_none_comes_last() -> None:
    """A free level takes any word; of formats that know as many, one with levels comes first."""
    understood_and_known = ((5, 0), (5, 5), (5, None), (4, 4), (9, None))
    trials = [blank(FormatTrial, understood=n, known_levels=k) for n, k in understood_and_known]
    ranked = [(t.understood, t.known_levels) for t in sorted(trials, key=_rank)]
    assert ranked == [(9, None), (5, 5), (5, None), (4, 4), (5, 0)]
    log4j, postgres = CATALOGUE["log4j"], CATALOGUE["postgresql"]
    assert [is_known(log4j, level) for level in ("Warn", "UTC", "10.0.0.7")] == [True, False, False]
    assert is_known(postgres, "LOG")


INSTANT = TimeRule(by_offset=True)


def comments(rule: TimeRule = WALL_CLOCK, **changes: Any) -> str:
    """What is said below the keys, of a sample at ERROR."""
    levels = dict.fromkeys(changes.pop("seen", ("ERROR",)), 1)
    malformed = {MalformedReason.NO_LEVEL: changes.pop("lacking_level", 0)}
    offsets = dict.fromkeys(changes.pop("offsets", ()), 1)
    trial = blank(FormatTrial, levels=levels, malformed=malformed, offsets=offsets)
    return "\n".join(comments_on(trial, rule, None))


def test_no_configuration_is_printed_that_counts_nothing() -> None:
    """Only comments where no level is known; else it says that the sample lacks the levels."""
    unknown = no_known_level(("UTC",))
    assert tomllib.loads(unknown) == {}
    assert "no level that is known: UTC" in unknown
    assert "no line of the sample is at ERROR: INFO, WARN" in comments(seen=("INFO", "WARN"))
    assert comments() == ""
    # What is lost without an option is told with it.
    assert "2 lines without a level: if" in comments(lacking_level=2)
    assert "times have different offsets (Z, +02:00), which" in comments(offsets=("+02:00", "Z"))
    assert comments(offsets=("Z", "UTC")) + comments(INSTANT, offsets=("Z", "+02")) == ""
    pasted = keys_to_paste("log4j", INSTANT, None, ["x = 1"], topic="t", pipeline=None)
    wanted = {"topics": ["t"], "line_format": "log4j", "time": "instant"}
    assert tomllib.loads(pasted) == {"pipelines": {"NAME": wanted}}


def test_the_option_that_a_record_needs_is_guessed() -> None:
    """By its bytes, unless it is set already."""
    header, mark, nan = "skip_bytes = 5", 'accept = ["byte_order_mark"]', 'accept = ["nan"]'
    blanks = 'accept = ["unicode_blanks"]'
    all_set = parse_options({"skip_bytes": 5, "accept": list(Accepted)})
    for value, option in (
        *((b"\0\0\0\0\x07{}", header), (b"\0\0\0\0\x07", None), (b"\xef\xbb\xbfx", mark)),
        *((b'{"a":[-Infinity]}', nan), (b'{"a":"NaN"}', None), (b'{"a":NaN', None), (b"NaN", None)),
        *(
            ("1:00\u202fPM x".encode(), blanks),
            ((" " * 40 + "\xa0").encode(), None),
            (b"\xa0", None),
        ),
    ):
        assert option_guess(value, NO_OPTIONS) == option, value
        assert option_guess(b"12345" + value, all_set) is None


def test_what_malformed_lines_seem_to_need_is_configured_where_it_does_something() -> None:
    mark, nan, plain = b"\xef\xbb\xbfx", b'{"a":NaN}', b"x"
    both = {"name": "json", "accept": ["byte_order_mark", "nan"]}
    for configured, malformed, found in (
        ("json", [plain], "json"),
        ("json", [nan, mark, nan], both),
        (both, [nan, mark], both),
        ({"name": "json", "accept": ["byte_order_mark"]}, [nan], both),
        ("log4j", [nan, mark], {"name": "log4j", "accept": ["byte_order_mark"]}),
    ):
        assert accepting(configured, malformed) == found  # type: ignore[arg-type]


def test_keys_and_digits_of_a_json_line_are_guessed() -> None:
    for line, guess in (
        (
            '{"ts": 1501423748123, "lvl": "E", "time_taken": 3}',
            {"time": "ts", "level": "lvl", "time_format": "epoch_milliseconds"},
        ),
        ('{"@t": 1501423748123456789}', {"time": "@t", "time_format": "epoch_nanoseconds"}),
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
