"""Which records a format is tried on, which is recommended, and what is then to be configured."""

import tomllib

from pyspark.sql import Row
from tests.unit.values import blank, span

from tally.app.format_keys import FormatKeys, is_known, keys_to_paste, levels_to_configure
from tally.app.format_trial import FormatTrial, _rank
from tally.app.json_guess import json_guess
from tally.app.option_guess import accepting, option_guess
from tally.lines.format import CATALOGUE, LineFormat
from tally.lines.options import NO_OPTIONS, Accepted, parse_options
from tally.lines.time_rule import WALL_CLOCK, TimeRule
from tally.spark.trial import newest_within


def test_the_newest_records_that_fit_are_tried() -> None:
    """Of each partition about as many; none behind a record that was left out."""
    for sizes, bytes_max, expected in (
        ({0: [1, 1, 1], 1: [1, 1, 1]}, 9, {0: 0, 1: 0}),
        ({0: [1, 1, 1], 1: [1, 1, 1]}, 4, {0: 1, 1: 1}),
        ({0: [1, 1, 1], 1: [9, 9, 2]}, 5, {0: 0, 1: 2}),
        ({0: [1, 9, 1], 1: [9]}, 8, {0: 2}),
        ({number: [3, 3] for number in range(256)}, 7, {0: 1, 1: 1}),
        ({0: [9], 1: [2]}, 7, {1: 0}),
        ({0: [9], 1: [9]}, 7, {}),
    ):
        rows, ranges = [], []
        for number, of in sizes.items():
            ranges.append(span(0, len(of), number))
            rows += [Row(partition=number, offset=at, size=size) for at, size in enumerate(of)]
        found = newest_within(rows, ranges, bytes_max)
        assert {r.partition.partition: r.from_offset for r in found} == expected
        assert all(r.until_offset == len(sizes[r.partition.partition]) for r in found)


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


def keys(**changes: object) -> str:
    usual = {"pipeline": None, "topic": "t", "line_format": "log4j", "time_rule": WALL_CLOCK}
    known = {"levels": None, "seen": ("ERROR",), "has_known_level": True, "continuations": 0}
    return keys_to_paste(FormatKeys(**{**usual, **known, **changes}))  # type: ignore[arg-type]


def test_no_configuration_is_printed_that_counts_nothing() -> None:
    """Only comments where no level is known; else it says that the sample lacks the levels."""
    unknown = keys(seen=("UTC",), has_known_level=False)
    assert tomllib.loads(unknown) == {}
    assert "no level that is known: UTC" in unknown
    assert "# no line of the sample is at ERROR: INFO, WARN" in keys(seen=("INFO", "WARN"))
    assert "no line of the sample" not in keys()
    # What is lost without an option is told with it.
    assert "# 2 lines without a level: if" in keys(lacking_level=2)
    assert "# times have different offsets (Z, +02:00), which" in keys(offsets=("Z", "+02:00"))
    assert "offset" not in keys(offsets=("Z",)) + keys(offsets=("Z", "+02"), time_rule=INSTANT)
    assert 'time = "instant"' in keys(time_rule=INSTANT)


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
