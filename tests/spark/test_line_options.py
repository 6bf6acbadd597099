"""What no format could read without an option: by examples, and as an independent reader does.

The minutes are worked out by hand.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from tally.lines.time_rule import WALL_CLOCK, TimeRule
from tally.spark.line_columns import read_line
from tests.campaigns import share
from tests.spark.examples import (
    COUNTED,
    NO_LEVEL,
    NO_TIME,
    NOT_COUNTED,
    TIME_INVALID,
    UNMATCHED,
)
from tests.spark.odd_lines import mutated
from tests.spark.oracle import Outcome
from tests.spark.outcomes import SEED, Cases, Reading, Wanted, check, kafka_records, known, reader

pytestmark = pytest.mark.spark

IN_BERLIN = TimeRule(by_offset=True, zone="Europe/Berlin")
IN_UTC = TimeRule(by_offset=True)
HEADER = b"\x00\x00\n\r\xff"
"""Of a schema registry: the number of a schema may hold what ends a line."""
MARK = b"\xef\xbb\xbf"
LINE = b"2017-07-30 14:09:08 ERROR x"
TIMED = r"(?<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?<level>\w+)"


def _at(clock: str) -> Outcome:
    return None, f"2017-07-30 {clock}:00"


@dataclass(frozen=True)
class Case:
    """Lines that one configuration understands, and others."""

    line_format: str | Mapping[str, Any]
    wanted: Mapping[str | bytes, Outcome]
    rule: TimeRule = WALL_CLOCK
    levels: Sequence[str] = ("ERROR",)
    others: bytes = b"0123456789 .:+-ZT"
    """What a byte is replaced by."""

    @property
    def reader(self) -> Reading:
        """Understands them."""
        return reader(self.line_format, self.levels, self.rule)

    @property
    def records(self) -> dict[bytes, Outcome]:
        """The lines as bytes."""
        return {v.encode() if isinstance(v, str) else v: of for v, of in self.wanted.items()}


def _json(time: str, level: str = "ERROR") -> str:
    return f'{{"@timestamp":"{time}","level":"{level}"}}'


CASES = {
    "offsets of JSON": Case(
        "json",
        {
            _json("2017-07-30T14:09:08Z"): _at("16:09"),
            _json("2017-07-30T14:09:08.1234567Z"): _at("16:09"),
            _json("2017-07-30T14:09:08+03:00"): _at("13:09"),
            _json("2017-07-30T14:09:08,5+0300"): _at("13:09"),
            _json("2017-07-30T14:09:08.5 +03"): _at("13:09"),
            _json("2017-07-30T14:09:08-02:30"): _at("18:39"),
            _json("2017-07-30T23:59:59-00:01"): (None, "2017-07-31 02:00:00"),
            _json("2017-01-01T00:00:00+05:45"): (None, "2016-12-31 19:15:00"),
            _json("2017-07-30T14:09:08Z", "INFO"): NOT_COUNTED,
            # An hour that the clock of the zone leaves out, and one that it has twice.
            _json("2017-03-26T02:30:00+01:00"): (None, "2017-03-26 03:30:00"),
            _json("2017-10-29T02:30:00+02:00"): (None, "2017-10-29 02:30:00"),
            _json("2017-10-29T02:30:00+01:00"): (None, "2017-10-29 02:30:00"),
            **dict.fromkeys(
                (
                    *(_json("2017-07-30T14:09:08"), _json("2017-07-30T14:09:08+19:00")),
                    *(_json("2017-07-30T14:09:08+02:60"), _json("2017-07-30T14:09:08 CEST")),
                    *(_json("2017-07-30T14:09:08UTC+3"), _json("2017-07-30T14:09:08+02:00:30")),
                    *(_json("2017-07-32T14:09:08Z"), _json("2017-07-30T14:09:08  Z")),
                ),
                TIME_INVALID,
            ),
        },
        IN_BERLIN,
    ),
    "offsets of a pattern": Case(
        "spring-boot",
        {
            "2017-07-30T14:09:08.123+02:00 ERROR x": _at("12:09"),
            "2017-07-30T12:09:59Z ERROR x": _at("12:09"),
            "2017-07-30T07:09:08.1-0500 ERROR x": _at("12:09"),
            "2017-07-31T06:09:08+18:00 ERROR x": _at("12:09"),
            "2017-07-29T18:09:08-1800 ERROR x": _at("12:09"),
            "2017-07-31T06:08:08+17:59 ERROR x": _at("12:09"),
            "2017-07-31T06:10:08+18:01 ERROR x": TIME_INVALID,
            "2017-07-29T18:10:08-1801 ERROR x": TIME_INVALID,
            "2017-07-31T06:09:08+1859 ERROR x": TIME_INVALID,
            "1000-01-01T00:00:00+00:01 ERROR x": ("time-out-of-range", None),
            "0999-12-31T23:59:00-00:01 ERROR x": (None, "1000-01-01 00:00:00"),
            "9999-12-31T23:59:00-00:01 ERROR x": ("time-out-of-range", None),
            "2017-07-30T14:09:08 ERROR x": TIME_INVALID,
        },
        IN_UTC,
    ),
    "offsets behind a clock that is no group's end": Case(
        {
            "pattern": r"(?:(?<date>[0-9.]+) )?(\[)?(?<clock>(\d+):\d+)(?: (?<zone>\S+))?",
            "time_format": "d.M.yyyy H:mm",
        },
        {
            "30.7.2017 [14:09 +02:00": _at("12:09"),
            "30.7.2017 9:09:59.5 GMT": _at("09:09"),
            "30.7.2017 9:09 MESZ": TIME_INVALID,
        },
        IN_UTC,
        (),
    ),
    "offsets behind a date": Case(
        {
            "pattern": r"(?<clock>\d+:\d+) (?<date>[0-9.]+\d)",
            "time_format": "d.M.yyyy H:mm",
        },
        {
            "14:09 30.7.2017+02:00": _at("12:09"),
            "9:09 30.7.2017 Z": _at("09:09"),
            "14:09 30.7.2017": TIME_INVALID,
        },
        IN_UTC,
        (),
    ),
    "offsets behind a clock that is looked ahead for": Case(
        {
            "logfmt": {"clock": "at", "date": "on"},
            "time_format": "yyyy-MM-dd HH:mm",
        },
        {
            "on=2017-07-30 at=14:09 +02:00": _at("12:09"),
            "on=2017-07-30 at=14:09": TIME_INVALID,
        },
        IN_UTC,
        (),
    ),
    "offsets of a year from elsewhere": Case(
        {"pattern": r"(?<time>\w+ \d+ [0-9:]+)", "time_format": "MMM d HH:mm:ss"},
        {
            "Jan 1 00:30:00 +01:00 x": (None, "2004-12-31 23:30:00"),
            "Feb 29 00:30:00 +01:00 x": TIME_INVALID,
        },
        TimeRule(by_offset=True, assume_year=2005),
        (),
    ),
    "a level that is left out": Case(
        {
            "json": {"time": "@t", "level": "@l"},
            "time_format": "yyyy-MM-dd'T'HH:mm:ss",
            "default_level": "Information",
        },
        {
            '{"@t":"2017-07-30T14:09:08.1234567Z","@mt":"x"}': COUNTED,
            '{"@t":"2017-07-30T14:09:08.1Z","@l":null}': COUNTED,
            '{"@t":"2017-07-30T14:09:08.1Z","@l":""}': COUNTED,
            '{"@t":"2017-07-30T14:09:08.1Z","@l":"Information"}': COUNTED,
            '{"@t":"2017-07-30T14:09:08.1Z","@l":"Error"}': NOT_COUNTED,
            '{"@l":"Error"}': NO_TIME,
            "{": UNMATCHED,
        },
        levels=("Information",),
        others=b'@tl"{}:,Infor',
    ),
    "a level of names that is left out": Case(
        {
            "pattern": rf"{TIMED.removesuffix('+)')}*+)",
            "time_format": "yyyy-MM-dd HH:mm:ss",
            "default_level": "ERROR",
        },
        {
            "2017-07-30 14:09:08  x": COUNTED,
            "2017-07-30 14:09:08 ERROR": COUNTED,
            "2017-07-30 14:09:08 INFO": NOT_COUNTED,
            "2017-07-30 14:09:08": UNMATCHED,
        },
        levels=("ERROR", "FATAL"),
    ),
    "pairs in any order": Case(
        "logfmt-any",
        {
            "level=ERROR ts=2017-07-30T14:09:08.123Z": COUNTED,
            'msg="a \\" level=INFO" x lvl="ERROR" time="2017-07-30T14:09:08+02:00"': COUNTED,
            "a= level=ERROR  time=2017-07-30T14:09:08Z level=INFO\n": COUNTED,
            "mylevel=INFO severity=ERROR timestamp=2017-07-30T14:09:08": COUNTED,
            'url=/?level=INFO&"x level=ERROR ts=2017-07-30T14:09:08': COUNTED,
            "ts=2017-07-30T14:09:08 lvl=INFO level=ERROR": NOT_COUNTED,
            'ts=2017-07-30T14:09:08 level="ERROR x"': NOT_COUNTED,
            'level=ERROR msg="ts=2017-07-30T14:09:08"': NO_TIME,
            'level=ERROR msg="open ts=2017-07-30T14:09:08': NO_TIME,
            "level=ERROR ts=": NO_TIME,
            "ts=2017-07-30T14:09:08 msg=x": NO_LEVEL,
            "ts=2017-07-30T14:09:08 level=": NO_LEVEL,
            "level=ERROR ts=2017-07-30T14:09:081": TIME_INVALID,
            "level=ERROR ts=2017-07-30": TIME_INVALID,
            'level=ERROR ts="2017-07-30 14:09:08"': TIME_INVALID,
            "goroutine 1 [running]: level=ERROR ts=2017-07-30T14:09:08": UNMATCHED,
            "=x level=ERROR ts=2017-07-30T14:09:08": UNMATCHED,
        },
        others=b'= "\\tslev\t',
    ),
    "pairs with an offset": Case(
        {
            "logfmt": {"time": "@at", "level": "log.level", "app": "app/name"},
            "time_format": "yyyy-MM-dd HH:mm",
        },
        {
            'log.level=ERROR app/name=x @at="2017-07-30 14:09:08.5 -01:00"': _at("15:09"),
            'log.level=ERROR @at="2017-07-30 14:09" +01:00': TIME_INVALID,
            'logXlevel=ERROR @at="2017-07-30 14:09Z"': NO_LEVEL,
        },
        IN_UTC,
        others=b'= "@a0123456789+-',
    ),
    "nanoseconds": Case(
        {"json": {"time": "t"}, "time_format": "epoch_nanoseconds"},
        {
            '{"t":1501423748123456789}': COUNTED,
            '{"t":"1501423748123456789.5"}': COUNTED,
            '{"t":59999999999}': (None, "1970-01-01 00:00:00"),
            '{"t":9223372036854775807}': (None, "2262-04-11 23:47:00"),
            '{"t":9223372036854775808}': TIME_INVALID,
            '{"t":15014237481234567890}': TIME_INVALID,
            '{"t":1.501423748123456789e18}': TIME_INVALID,
        },
        levels=(),
    ),
    "an exponent in JSON": Case(
        {"json": {"time": "t"}, "time_format": "epoch_seconds", "accept": ["exponent"]},
        {
            '{"t":1.501423748123E9}': COUNTED,
            '{"t":1501423748.123}': COUNTED,
            '{"t":15.01423748e+8}': COUNTED,
            '{"t":"1501423748000e-3"}': TIME_INVALID,
            '{"t":1e12}': ("time-out-of-range", None),
            '{"t":1e17}': ("time-out-of-range", None),
            '{"t":1e18}': TIME_INVALID,
            '{"t":1e400}': TIME_INVALID,
            '{"t":-1.7e9}': TIME_INVALID,
        },
        levels=(),
        others=b"0123456789eE.+-",
    ),
    "an exponent in a pattern": Case(
        {
            "pattern": "(?<time>[^ ]*) x",
            "time_format": "epoch_milliseconds",
            "accept": ["exponent"],
        },
        {
            "1.501423799999e12 x": COUNTED,
            "1.501423799999999999e12 x": COUNTED,
            "1.7e9 x": (None, "1970-01-20 16:13:00"),
            "123456789012345678E0 x": ("time-out-of-range", None),
            "1.5014237999999999999e12 x": TIME_INVALID,
            "999999999999999999e99 x": TIME_INVALID,
            "1e-3 x": TIME_INVALID,
            "1e x": TIME_INVALID,
        },
        levels=(),
        others=b"0123456789eE.+-",
    ),
    "an exponent of nanoseconds": Case(
        {"json": {"time": "t"}, "time_format": "epoch_nanoseconds", "accept": ["exponent"]},
        {
            '{"t":1.501423748123456789E18}': COUNTED,
            '{"t":1501423748123456789}': COUNTED,
            '{"t":"9.223372036854775807e18"}': (None, "2262-04-11 23:47:00"),
            '{"t":"9.223372036854775808e18"}': TIME_INVALID,
            '{"t":1e19}': TIME_INVALID,
        },
        levels=(),
        others=b"0123456789eE.+-",
    ),
    "blanks around a time in a known place": Case(
        {"name": "log4j", "accept": ["unicode_blanks"]},
        {
            "2017-07-30\u00a014:09:08,123 ERROR x": COUNTED,
            "2017-07-30 14:09:08,123\u3000ERROR x": COUNTED,
            "2017-07-30 14:09:08,123 INFO x": NOT_COUNTED,
        },
        others="0123456789 :-,\xa0".encode(),
    ),
    "blanks before a time in a known place": Case(
        {
            "pattern": r"[ \d]{3}(?<time>\d{12}) (?<level>\w+)",
            "time_format": "yyyyMMddHHmm",
            "accept": ["unicode_blanks"],
        },
        {
            "\u2009 1201707301409 ERROR": COUNTED,
            # From the byte at which it stands behind a usual blank on, there is a time, too.
            "\u200911101010101010 ERROR": (None, "1010-10-10 10:10:00"),
        },
    ),
    "blanks of a pattern": Case(
        {
            "pattern": r"(?<time>[^|]*) \| (?<level>\w+)",
            "time_format": "M/d/yy h:mm:ss a",
            "accept": ["unicode_blanks"],
        },
        {
            "7/30/17 2:09:08\u202fPM | ERROR": COUNTED,
            "7/30/17\u00a02:09:08 PM\u3000|\u2009ERROR": COUNTED,
            "7/30/17 2:09:08\u200bPM | ERROR": TIME_INVALID,
            "7/30/17 2:09:08\u2028PM | ERROR": TIME_INVALID,
        },
    ),
    "blanks of a time in JSON": Case(
        {
            "json": {"time": "time", "level": "level"},
            "time_format": "yyyy-MM-dd HH:mm:ss",
            "accept": ["unicode_blanks"],
        },
        {
            '{"time":"2017-07-30\u00a014:09:08","level":"ERROR"}': COUNTED,
            '{"time":"2017-07-30\\u202f14:09:08","level":"ERROR"}': COUNTED,
            '{"time":"2017-07-30 14:09:08","level":"ERROR\u00a0"}': NOT_COUNTED,
            '{"time":"2017-07-30\u00a014:09:08",\u00a0"level":"ERROR"}': UNMATCHED,
        },
    ),
    "a mark before the fixed layout": Case(
        {"name": "fixed", "accept": ["byte_order_mark"]},
        {
            MARK + LINE: COUNTED,
            LINE: COUNTED,
            MARK + MARK + LINE: NO_TIME,
            MARK[:2] + LINE: NO_TIME,
            MARK: ("empty-value", None),
        },
        others=MARK,
    ),
    "a header before the fixed layout": Case(
        {"name": "fixed", "skip_bytes": 5},
        {
            HEADER + LINE: COUNTED,
            HEADER + LINE.replace(b"ERROR", b"INFO"): NOT_COUNTED,
            LINE: NO_TIME,
            HEADER: ("empty-value", None),
            b"": ("empty-value", None),
            b"\x00": ("empty-value", None),
        },
        others=b"\n\x00\xff",
    ),
    "a header and a mark before a pattern": Case(
        {
            "pattern": TIMED,
            "time_format": "yyyy-MM-dd HH:mm:ss",
            "skip_bytes": 5,
            "accept": ["byte_order_mark"],
        },
        {HEADER + LINE: COUNTED, HEADER + MARK + LINE: COUNTED, MARK + HEADER + LINE: UNMATCHED},
    ),
    "a header before JSON": Case(
        {"name": "json", "skip_bytes": 5},
        {
            HEADER + _json("2017-07-30T14:09:08Z").encode(): COUNTED,
            b"12345" + _json("2017-07-30T14:09:08Z", "INFO").encode(): NOT_COUNTED,
            _json("2017-07-30T14:09:08Z"): UNMATCHED,
        },
    ),
    "no numbers": Case(
        {"name": "json", "accept": ["nan"]},
        {
            '{"x":NaN,"time":"2017-07-30T14:09:08","level":"ERROR"}': COUNTED,
            '{"x":[1,-Infinity , {"y":Infinity}],"time":"2017-07-30T14:09:08","level":"ERROR"}': (
                COUNTED
            ),
            '{"m":"\\"NaN, -Infinity","time":"2017-07-30T14:09:08","level":"ERROR"}': COUNTED,
            '{"x":-1,"time":"2017-07-30T14:09:08","level":"NaN"}': NOT_COUNTED,
            '{"time":NaN,"level":"ERROR"}': NO_TIME,
            '{"time":"2017-07-30T14:09:08","level":NaN}': NO_LEVEL,
            **dict.fromkeys(
                (
                    *('{"x":-NaN,"time":"2017-07-30T14:09:08"}', '{"x":NaNx}', '{"x":NaN1}'),
                    *('{"x":1NaN}', "{NaN:1}", '{"x":+Infinity}', '{"x":Inf}', "NaN", '{"x":nan}'),
                    *('{"x":NaN"}', '{"x":NaN', '{"x":"NaN', '{"x":NaNNaN}', '{"x":-InfinityNaN}'),
                ),
                UNMATCHED,
            ),
        },
        others=b'NaInfity-",:[]{}',
    ),
    "glog with a year": Case(
        "glog",
        {
            "E20170730 14:09:08.123456  1234 a.cc:1] x": COUNTED,
            "I20170730 14:09:08.123456  1234 a.cc:1] E": NOT_COUNTED,
            "E0730 14:09:08.123456  1234 a.cc:1] x": UNMATCHED,
        },
    ),
}
"""By what is unusual in the lines."""


@pytest.mark.parametrize("name", CASES)
def test_lines_that_need_an_option(spark: SparkSession, name: str) -> None:
    """Each example, and hundreds of lines like it of which some bytes are changed."""
    case, cases, rng = CASES[name], Cases(spark), random.Random(f"{SEED} {name}")
    examples = case.records
    assert known(case.reader, examples) == list(examples.values())
    cases.add(name, case.reader, examples)
    understood = [line for line, (reason, _) in examples.items() if reason is None]
    lines: list[bytes | None] = [None, b""]
    while len(lines) < share(800):
        line = rng.choice(understood if rng.random() < 0.7 else list(examples))
        times = rng.choice([0, 0, 1, 1, 2, 3])
        lines.append(mutated(rng, line, times, within=len(line), others=case.others))
    cases.add_odd(name, case.reader, lines, {"null-value", "empty-value"})
    cases.check()


def test_labels_and_filters_see_what_the_options_make_of_a_line(spark: SparkSession) -> None:
    """The default level, a pair's value as it is written, and the text behind the header."""
    cases = Cases(spark)
    table = {"json": {"level": "l", "time": "t"}, "time_format": "epoch_nanoseconds"}
    default = reader(
        {**table, "default_level": "Information", "skip_bytes": 1, "accept": ["nan"]},
        [],
        labels=["level", "x"],
        filter={"level": ["Info*", "E"], "text": ["x"]},
    )
    wanted: dict[str, Wanted] = {
        '{{"t":1501423748123456789,"x":[NaN]}': (*COUNTED, "Information", "[null]"),
        'x{"t":1501423748123456789,"l":"E","x":Infinity}': (*COUNTED, "E", ""),
        'x{"t":1501423748123456789,"l":"W","x":1}': (*NOT_COUNTED, None, None),
        'x{"t":1501423748123456789}': (*NOT_COUNTED, None, None),
    }
    cases.add("JSON", default, wanted)
    pairs = {
        "logfmt": {"time": "t", "level": "l", "who": "user.name"},
        "time_format": "epoch_seconds",
    }
    of_pairs = reader(pairs, [], labels=["who", "level"])
    wanted = {
        r't=1501423748 user.name="a \"b\" c=d"': (*COUNTED, r"a \"b\" c=d", ""),
        "user.name=a=b t=1501423748 l=E": (*COUNTED, "a=b", "E"),
        "username=a t=1501423748 user.name": (*COUNTED, "", ""),
    }
    cases.add("pairs", of_pairs, wanted)
    cases.check()


def test_a_key_that_an_option_fills_in_hides_no_line(spark: SparkSession) -> None:
    """Lines at the default level, numbers that are none, unusual blanks: no other reads like it."""
    table = {"json": {"time": "t", "level": "l"}, "time_format": "epoch_seconds"}
    json_lines = {**table, "default_level": "Information", "accept": ["nan"], "skip_bytes": 1}
    pattern = {"pattern": r"(?<time>\d+) (?<x>\S+)", "time_format": "epoch_seconds"}
    for line_format, key, lines in (
        (json_lines, ["level"], {'x{"t":1}': 0, 'x{"t":1,"l":"Information"}': 0}),
        (json_lines, ["level"], {'x{"t":1,"l":"E"}': 1}),
        (json_lines, ["x"], {'x{"t":1,"x":[NaN]}': 0, 'x{"t":1,"x":[null]}': 1}),
        ({**pattern, "accept": ["unicode_blanks"]}, ["x"], {"1 a\u2009": 0, "1 a b": 1}),
        ({**pattern, "skip_bytes": 3}, ["x"], {"12 1 " + "a" * 4094: 1, "12 1 " + "a" * 4095: 0}),
    ):
        of_key = reader(line_format, [], row_key=key)
        line = read_line(of_key)
        records = kafka_records(spark, [value.encode() for value in lines])
        judged = line.stages.select(records, line.minute, line.key_digest)
        found = [(minute, digest is not None) for minute, digest in judged.collect()]
        assert found == [("1970-01-01 00:00:00", bool(has)) for has in lines.values()], lines


def test_a_line_of_many_pairs_is_read_to_its_bound(spark: SparkSession) -> None:
    """Two hundred pairs may stand before a key."""
    for pairs, outcome in ((200, COUNTED), (201, NO_TIME)):
        line = "level=ERROR " + "a=1 " * (pairs - 1) + "ts=2017-07-30T14:09:08"
        check(spark, reader("logfmt-any"), {line: outcome})
