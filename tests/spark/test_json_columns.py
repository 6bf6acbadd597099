"""JSON lines in Spark: every record is understood as an independent reader understands it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

from tally.lines import json_reading
from tally.lines.time_rule import TimeRule
from tally.spark.json_columns import RECORD_END
from tests.campaigns import share
from tests.spark import examples, outcomes
from tests.spark.examples import COUNTED, NO_LEVEL, NOT_COUNTED, TIME_INVALID, UNMATCHED
from tests.spark.json_documents import Documents
from tests.spark.odd_lines import micros
from tests.spark.oracle import Outcome
from tests.spark.outcomes import KEY, SEED, TIMES, Cases, Wanted, check, known, reader, settings

pytestmark = pytest.mark.spark

LINE = b'{"time":"2017-07-30T14:09:08Z","level":"ERROR"}'
ERRORS = reader("json")
LABELS = (
    *("level", "service", "log", "a.b", "a.a.a", "b.n", "Level", "n", "é", "it's", '"', "a/b"),
    *("b", "?", "x", "x.y"),
)
WITHOUT_LEVEL = (
    '{"time": "2017-07-30T14:09:08"}',
    '{"time": "2017-07-30T14:09:08", "level": null}',
)


def with_more(text: str | bytes) -> bytes:
    more = text.encode() if isinstance(text, str) else text
    return LINE[:-1] + b"," + more + b"}"


LEVEL_ALONE = {"json": {"level": "level"}}


def check_untimed(
    spark: SparkSession,
    wanted: Mapping[Any, Wanted],
    line_format: Any = LEVEL_ALONE,
    levels: Sequence[str] = ("ERROR",),
    **selection: Any,
) -> None:
    """Records whose time is not looked for, which takes Spark much less time; all of one minute."""
    untimed = reader(line_format, levels, TimeRule(from_record=True), **selection)
    at = micros(datetime(2017, 7, 30, 14, 9, 8, tzinfo=UTC))
    check(spark, untimed, wanted, [at] * len(wanted))


def test_json_lines_by_example(spark: SparkSession) -> None:
    """What ``docs/line-formats.md`` promises, record by record; the oracle knows it too."""
    by_example = examples.JSON_EXAMPLES
    assert known(ERRORS, map(str.encode, by_example)) == list(by_example.values())
    cases = Cases(spark)
    cases.add("by example", ERRORS, by_example)
    documents = Documents(SEED)
    odd = [None, b"", *(documents.record(TIMES) for _ in range(share(5000)))]
    reasons = {"no-match", "no-time", "time-invalid", "time-out-of-range", "no-level"}
    reasons |= {"null-value", "empty-value", "not counted"}
    cases.add_odd("odd documents", ERRORS, odd, reasons)
    cases.add("no level", ERRORS, dict.fromkeys(WITHOUT_LEVEL, NO_LEVEL))
    cases.check()


ESCAPED_END = f"\\u{ord(RECORD_END[0]):04x}{RECORD_END[1:]}"
ESCAPED_INSIDE = f"{RECORD_END[0]}\\u{ord(RECORD_END[1]):04x}{RECORD_END[2:]}"
SECONDS = (
    *(RECORD_END, f'"{RECORD_END}"', f'"{ESCAPED_END}"', f'"{ESCAPED_INSIDE}"'),
    *(f"{RECORD_END}.0", f"{RECORD_END[:-1]}.{RECORD_END[-1]}e1", f"{RECORD_END}e0"),
    *(f'{{"x":{RECORD_END}}}', f"[{RECORD_END}]", f'["{ESCAPED_INSIDE}"]', "null", "1"),
)


VALUES = (
    ('"two words"', "two words", ""),
    (r'"\u0041\n\u00e9\ud83d\ude00\/"', "A\né😀/", ""),
    (r'"\ud83d"', "?", ""),
    (r'"\uD83Da\ude00"', "?a?", ""),
    (r'"\ud83d\ud83d\uDE00\ude00"', "?😀?", ""),
    (r'"\\\ud83d\ude00\\\ude00"', "\\😀\\?", ""),
    (r'"\\ud83d\\\\ude00"', "\\ud83d\\\\ude00", ""),
    (r'{"\ud83d":1,"y":2,"\ude00":3}', '{"?":3,"y":2}', "2"),
    (r'"\\uĵ \\\\u004ĵ"', r"\uĵ \\u004ĵ", ""),
    ("null", "", ""),
    ("-0", "0", ""),
    ("1.50", "1.5", ""),
    ("1e400", "Infinity", ""),
    ('{ "y" : "z", "a": [1.0, null] }', '{"a":[1,null],"y":"z"}', "z"),
    (r'"{\"y\":1}"', '{"y":1}', ""),
    ('{"y":1,"y":2}', '{"y":2}', "2"),
    ('{"y":1},"x":5', "5", ""),
    ('{"y":1},"x.y":7', '{"y":1}', "7"),
    (r'1,"\u0078":2', "2", ""),
)
"""What a record writes as ``x``, and the labels ``x`` and ``x.y``; more are in the documents."""


def test_a_value_is_what_the_definition_says(spark: SparkSession) -> None:
    """Every label of every record: of any type, nested, duplicate, escaped, in a large object."""
    wanted: dict[bytes | str, Wanted] = {}
    keys = [f"k{number}é😀\uffff"[: number % 5 + 2] + str(number) for number in range(300)]
    some = keys[::37]
    names = [*LABELS, *some]

    def read(**labels: str) -> Wanted:
        """The outcome of a record that has these values, and the line's level."""
        assert set(labels) <= set(names)
        return (*COUNTED, *({"level": "ERROR", **labels}.get(name, "") for name in names))

    for x, of_x, of_y in VALUES:
        wanted[with_more(f'"x":{x}')] = read(**{"x": of_x, "x.y": of_y})
    wanted[with_more(b'"x":"a\xff\xc3b"')] = read(x="a\ufffd\ufffdb")  # what is no UTF-8
    wanted |= {record: read(**labels) for record, labels in large_objects()}
    wide = with_more(",".join(f'"{key}":"{key}"' for key in ["k7", *keys, "k7"]))
    wanted[wide] = read(**{key: key for key in some})
    wanted[b" \t\r\n" + LINE + b" \t\r\n"] = read()
    malformed = [*records_with_an_end(), *odd_escapes()]
    assert [json_reading.read_object(record) for record in malformed] == [None] * len(malformed)
    wanted |= dict.fromkeys(malformed, (*UNMATCHED, *[None] * len(names)))

    documents = Documents(f"{SEED} values")
    paths = {name: [[name], name.split(".")] for name in names}
    for record in (documents.record(TIMES[:1]) for _ in range(share(5000))):
        found = json_reading.read_object(record)
        labels = [
            None if found is None else json_reading.json_field(found, paths[n]) or "" for n in names
        ]
        wanted[record] = (*(UNMATCHED if found is None else COUNTED), *labels)
    for column in range(2, 2 + len(LABELS)):
        assert len({outcome[column] for outcome in wanted.values()}) >= 3
    check_untimed(spark, wanted, levels=[], labels=names, label_max_chars=2000)


def test_a_level_is_looked_for_in_some_places(spark: SparkSession) -> None:
    """As a label, too, whatever a line's own level is."""
    documents = Documents(f"{SEED} levels")
    records = [documents.record(TIMES[:1]) for _ in range(share(1000))]
    records += map(str.encode, WITHOUT_LEVEL)
    levels = [["level"], ["severity"], ["log.level"], ["log", "level"]]
    wanted: dict[bytes, Wanted] = {}
    for record in records:
        found = json_reading.read_object(record)
        level = (json_reading.json_field(found or {}, levels) or "")[:64]
        wanted[record] = (*UNMATCHED, None) if found is None else (*COUNTED, level)
    assert [wanted[text.encode()] for text in WITHOUT_LEVEL] == [(*COUNTED, "")] * 2
    check_untimed(spark, wanted, "json", [], labels=["level"])


def records_with_an_end() -> list[bytes]:
    """What stands behind the object writes the number that ends a record, or is odd in itself."""
    rests = [second + after for second in SECONDS for after in ("", "]", "],[", "] x")]
    records = [LINE + b"," + rest.encode() for rest in rests]
    # What would end the array in which Spark reads the record, and what is no blank to JSON.
    odd = [b"x", b"]", b"]]", b'],"x":[', b'," "]', b',"0123456789abcdef"]x', b",", b",1", LINE]
    odd += [b"," + LINE, b"}", b"\x00", b"\x0b", b"\xc2\xa0", b"\xef\xbb\xbf", b"//", b"null"]
    starts = [b"\x00", b"\xef\xbb\xbf", b"[", b"{},", b"1,", b"x", b",", b"]", b"> ", b"\xff"]
    return [*records, *(LINE + rest for rest in odd), *(start + LINE for start in starts)]


def odd_escapes() -> list[bytes]:
    """Digits beyond ASCII: Spark takes their last eight bits, so U+0135 would be the digit 5."""
    records = [
        rb'{"time":"2017-07-30T14:09:08Z","level":"\u%sRROR"}' % digits.encode()
        for at, digit in enumerate("0045")
        for beyond in (chr(0x100 + ord(digit)), chr(0x1F600 + ord(digit) % 256), "\uff14", "é")
        for digits in ["0045"[:at] + beyond + "0045"[at + 1 :], "0045"[:at] + beyond]
    ]
    return [*records, rb'{"time":"2017-07-30T14:09:0\u003\xc4\xb8Z","level":"ERROR"}']


def large_objects() -> Iterator[tuple[str, dict[str, str]]]:
    """Spark looks a key up by order among 32 and more; half a surrogate pair is stored as "?"."""
    halves = ["\\ud83d", "\\ude00", "?", "\\ud83d\\ude00", "\\uffff", "z", "日"]
    line = LINE[:-1].decode()
    for count in (8, 31, 32, 33, 64, 200):
        others = ",".join(f'"{halves[n % 7]}{chr(97 + n % 26)}{n}":{n}' for n in range(count))
        yield f'{line},"service":"cart",{others}}}', {"service": "cart"}
        yield f'{{{others},"service":"cart",{line[1:]}}}', {"service": "cart"}
        yield f'{line},"a":{{"b":"cart",{others}}}}}', {"a.b": "cart"}
        yield f'{line},"a":{{{others},"b":"cart"}}}}', {"a.b": "cart"}


def test_a_record_beyond_the_limits_is_a_dead_letter(spark: SparkSession) -> None:
    """Depth, and the length of texts, numbers and keys are bounded; nothing stops the batch."""
    wanted: dict[bytes, Outcome] = {}
    # What stands before a value, the value, what stands after it, and whether it is understood.
    limits = (
        ("[" * 998, "1", "]" * 998, True),
        ("[" * 999, "1", "]" * 999, False),
        ("[" * 100_000, "", "", False),
        ('{"a":' * 998, "1", "}" * 998, True),
        ("", "9" * 1_000, "", True),
        ("", "9" * 1_001, "", False),
        ("", "1e999999999", "", True),
        ('{"', "k" * 50_000, '":1}', True),
        ('{"', "k" * 50_001, '":1}', False),
        # A text may have forty megabytes in bytes; of characters twenty million.
        ('"', "é" * 20_000_000, '"', True),
        ('"', "x" * 20_000_001, '"', False),
    )
    for before, written, after, is_read in limits:
        beyond = with_more(f'"x":{before}{written}{after}')
        wanted[beyond] = COUNTED if is_read else UNMATCHED
    # JSON is read whole, whatever its bytes.
    large = b'{"m":"' + b"x\xff" * 5_000_000 + b'",' + LINE[1:]
    wanted |= {large: COUNTED, large[:-1]: UNMATCHED, LINE: COUNTED}
    check_untimed(spark, wanted)


def test_fields_of_ones_own_are_found_by_path(spark: SparkSession) -> None:
    """A text leads to a key or into objects, a list names the keys; a label may be a path."""
    own = {
        "json": {
            "time": "ts",
            "level": "log.level",
            "app": ["kubernetes", "labels", "app.kubernetes.io/name"],
        },
        "time_format": "yyyyMMddHHmmss",
    }
    record = (
        b'{"ts":20170730140908,"log":{"level":"WARN"},"kubernetes":{"pod":{"name":"cart-1"},'
        b'"labels":{"app.kubernetes.io/name":"cart"}},"app":"no"}'
    )
    cases = Cases(spark)
    labels = ["app", "level", "kubernetes.pod.name", "kubernetes.labels.app", "ts"]
    wanted = (*COUNTED, "cart", "WARN", "cart-1", "", "20170730140908")
    fields = {name: path for name, path in own["json"].items() if name != "time"}
    check_untimed(spark, {record: wanted}, {"json": fields}, [], labels=labels)
    error = record.replace(b"WARN", b"ERROR")
    cases.add("its level", reader(own, ["WARN"]), {record: COUNTED, error: NOT_COUNTED})
    # Without a level no line is malformed for want of one, and a label may still look for it.
    without = {"json": {"time": "time"}, "time_format": "yyyy-MM-dd'T'HH:mm"}
    records = {
        LINE: (*COUNTED, "ERROR"),
        b'{"time":"2017-07-30T14:09"}': (*COUNTED, ""),
        b'{"time":"2017-07-30T14"}': (*TIME_INVALID, None),
    }
    cases.add("no level", reader(without, [], labels=["level"]), records)
    cases.check()


def test_what_follows_a_time_is_not_read_unless_it_is_a_digit(spark: SparkSession) -> None:
    """A fraction or a zone may follow; a digit is of another format. A line feed is no blank."""
    times = (
        ("yyyy-MM-dd HH:mm", "2017-07-30 14:09", COUNTED),
        ("yyyy-MM-dd HH:mm", "2017-07-30 14:09:08", COUNTED),
        ("yyyy-MM-dd HH:mm", "2017-07-30 14:091", TIME_INVALID),
        ("yyyyMMddHHmm", "20170730140908", TIME_INVALID),
        ("yyyy-MM-dd HH:mm:ss.SSS", "2017-07-30 14:09:08.123Z", COUNTED),
        ("yyyy-MM-dd HH:mm:ss.SSS", "2017-07-30 14:09:08.123456", TIME_INVALID),
        ("yyyy-MM-dd HH:mm:ss.SSS", "2017-07-30 14:09:08", TIME_INVALID),
        ("dd.MM.yyyy hh:mm a", "30.07.2017 02:09 PM CEST", COUNTED),
        ("yyyy-MM-dd HH:mm", "2017-07-30 14:09٣", COUNTED),
        ("d.M.yyyy H:mm", "30.7.2017 14:09", COUNTED),
        ("d.M.yyyy H:mm", "30.7.2017\\n14:09", TIME_INVALID),
    )
    cases = Cases(spark)
    for time_format, time, outcome in times:
        own = {"json": {"time": "time"}, "time_format": time_format}
        cases.add(time_format, reader(own, []), {f'{{"time":"{time}","level":"ERROR"}}': outcome})
    cases.check()


def test_filters_and_kafkas_fields_serve_json_lines(spark: SparkSession) -> None:
    """By a path, by the text of the record, by what Kafka knows; ``key`` is always Kafka's."""
    wanted = {
        '"service":{"name":"cart"},"status":503,"key":"a"': (*COUNTED, KEY, "cart"),
        '"service":{"name":"cart"},"status":404,"key":"b"': (*NOT_COUNTED, None, None),
        '"service":{"name":"shop"},"status":500,"key":"c"': (*NOT_COUNTED, None, None),
        '"service":"cart","status":500,"key":"d"': (*NOT_COUNTED, None, None),
    }
    filters = {"service.name": ["ca*"], "status": ["5*"], "text": ['"name"']}
    lines = {f"{{{more},".encode() + LINE[1:]: of for more, of in wanted.items()}
    check_untimed(spark, lines, filter=filters, labels=["key", "service.name"])


def test_a_session_without_our_settings_makes_dead_letters(spark: SparkSession) -> None:
    """Duplicate keys are refused there, never read in another way."""
    twice, half = with_more('"level":"INFO"'), b'{"m":"\\ud800",' + LINE[1:]
    check_untimed(spark, {LINE: COUNTED, twice: NOT_COUNTED, half: COUNTED})
    with settings(spark, variant__allowDuplicateKeys="false"):
        check_untimed(spark, {LINE: COUNTED, twice: UNMATCHED, half: COUNTED})


def test_a_record_is_parsed_once(spark: SparkSession) -> None:
    """Spark shares the document between all columns; too long a method is never compiled."""
    selecting = reader("json", labels=["service", "level"], filter={"a.b": ["x*"]})
    with settings(spark, adaptive__enabled="false"):
        counts = outcomes.grouping(selecting).counts(outcomes.kafka_records(spark, [b"x"]))
        first, *_ = outcomes.compiled_stages(counts)
    assert len(re.findall(r"^/\* \d+ \*/.*\.parseJson\(", first, re.MULTILINE)) == 1
