"""JSON lines in Spark: every record is understood as an independent reader understands it."""

import re
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tally.lines.format import CATALOGUE, LineFormat
from tally.lines.parsing import parse_line_format
from tally.spark.json_columns import RECORD_END
from tally.spark.line_columns import LineReader, Selection
from tests.spark import json_oracle
from tests.spark.examples import COUNTED, JSON_EXAMPLES, UNMATCHED
from tests.spark.json_documents import Documents
from tests.spark.oracle import expected
from tests.spark.outcomes import (
    SEED,
    TIMES,
    assert_as_expected,
    compiled_stages,
    grouping,
    kafka_records,
    outcomes,
    read_records,
    settings,
)

pytestmark = pytest.mark.spark

JSON = CATALOGUE["json"]
LINE = b'{"time":"2017-07-30T14:09:08Z","level":"ERROR"}'
REASONS = {"no-match", "no-time", "time-invalid", "time-out-of-range", "no-level", "counted"}
PATHS = {
    "level": [["level"], ["severity"], ["log.level"], ["log", "level"]],
    "service": [["service"]],
    "log": [["log"]],
    "a.b": [["a.b"], ["a", "b"]],
    "a.a.a": [["a.a.a"], ["a", "a", "a"]],
    "b.n": [["b.n"], ["b", "n"]],
    "Level": [["Level"]],
    "n": [["n"]],
    "é": [["é"]],
    "it's": [["it's"]],
    '"': [['"']],
    "a/b": [["a/b"]],
    "b": [["b"]],
    "?": [["?"]],
}
"""Some labels, and where their values are looked for."""


def read(
    spark: SparkSession,
    values: Sequence[bytes],
    labels: Sequence[str],
    line_format: LineFormat = JSON,
) -> list[tuple[Any, ...]]:
    """Reason, minute and labels of each record, at any level."""
    selection = Selection(labels=labels, label_chars=2000)
    reader = LineReader(line_format=line_format, levels=[], selection=selection)
    rows = read_records(spark, values, reader)
    return [(reason, minute, *found) for reason, minute, _, *found in rows]


def test_json_lines_by_example(spark: SparkSession) -> None:
    """What ``docs/line-formats.md`` promises, record by record; the oracle knows it too."""
    found = outcomes(spark, [line.encode() for line in JSON_EXAMPLES], JSON)
    assert dict(zip(JSON_EXAMPLES, found, strict=True)) == JSON_EXAMPLES
    known = {line: expected(line.encode(), JSON, {"ERROR"}) for line in JSON_EXAMPLES}
    assert known == JSON_EXAMPLES


def test_thousands_of_odd_documents_are_read_as_python_reads_them(spark: SparkSession) -> None:
    """Reason and minute are those of an independent reader, whatever the record looks like."""
    documents = Documents(SEED)
    lines: list[bytes | None] = [None, b"", *(documents.record(TIMES) for _ in range(5000))]
    reasons = REASONS | {"null-value", "empty-value", "not counted"}
    assert_as_expected(spark, lines, JSON, {"ERROR"}, reasons)


def test_the_values_of_odd_documents_are_those_that_python_finds(spark: SparkSession) -> None:
    """Nested, duplicate, escaped, of any type: every label of every record."""
    documents = Documents(f"{SEED} values")
    records = [documents.record(TIMES[:1]) for _ in range(5000)]
    wanted = []
    for record in records:
        reason, minute = expected(record, JSON, set())
        found = json_oracle.read_object(record) or {}
        labels = [json_oracle.field(found, paths) or "" for paths in PATHS.values()]
        wanted.append((reason, minute, *(labels if reason is None else [None] * len(labels))))
    rows = read(spark, records, list(PATHS))
    wrong = [(r, w, f) for r, w, f in zip(records, wanted, rows, strict=True) if w != f]
    assert wrong == [], f"seed {SEED}"
    for column in range(2, 2 + len(PATHS)):
        assert len({row[column] for row in rows}) >= 3


ESCAPED_END = f"\\u{ord(RECORD_END[0]):04x}{RECORD_END[1:]}"
ESCAPED_INSIDE = f"{RECORD_END[0]}\\u{ord(RECORD_END[1]):04x}{RECORD_END[2:]}"


SECONDS = (
    *(RECORD_END, f'"{RECORD_END}"', f'"{ESCAPED_END}"', f'"{ESCAPED_INSIDE}"'),
    *(f"{RECORD_END}.0", f"{RECORD_END[:-1]}.{RECORD_END[-1]}e1", f"{RECORD_END}e0"),
    *(f'{{"x":{RECORD_END}}}', f"[{RECORD_END}]", f'["{ESCAPED_INSIDE}"]', "null", "1"),
)


def test_no_record_writes_the_number_that_ends_it(spark: SparkSession) -> None:
    """A record with anything after its object is malformed, whatever it is."""
    rests = [second + after for second in SECONDS for after in ("", "]", "],[", "] x")]
    records = [LINE + b"," + rest.encode() for rest in rests]
    assert [json_oracle.read_object(record) for record in records] == [None] * len(records)
    assert [row[0] for row in read(spark, records, [])] == ["no-match"] * len(records)


def test_an_escape_has_digits_of_ascii_alone(spark: SparkSession) -> None:
    """Of others Spark takes the last eight bits: U+0135 would be the digit 5."""
    records = [
        rb'{"time":"2017-07-30T14:09:08Z","level":"\u%sRROR"}' % digits.encode()
        for at, digit in enumerate("0045")
        for beyond in (chr(0x100 + ord(digit)), chr(0x1F600 + ord(digit) % 256), "\uff14", "é")
        for digits in ["0045"[:at] + beyond + "0045"[at + 1 :], "0045"[:at] + beyond]
    ]
    records += [rb'{"time":"2017-07-30T14:09:0\u003\xc4\xb8Z","level":"ERROR"}']
    assert [json_oracle.read_object(record) for record in records] == [None] * len(records)
    assert [row[0] for row in read(spark, records, [])] == ["no-match"] * len(records)


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
    ("true", "true", ""),
    ("null", "", ""),
    ('""', "", ""),
    ("17", "17", ""),
    ("-0", "0", ""),
    ("1.50", "1.5", ""),
    ("100.00", "100", ""),
    ("12345678901234567890", "12345678901234567890", ""),
    ("1e3", "1000.0", ""),
    ("1e400", "Infinity", ""),
    ('{ "y" : "z", "a": [1.0, null] }', '{"a":[1,null],"y":"z"}', "z"),
    ('[ {"y": 1} ]', '[{"y":1}]', ""),
    (r'"{\"y\":1}"', '{"y":1}', ""),
    ('{"y":1,"y":2}', '{"y":2}', "2"),
    ('{"y":1,"y":null}', '{"y":null}', ""),
    ('{"y":1},"x":5', "5", ""),
    ('5,"x":{"y":1}', '{"y":1}', "1"),
    ('{"y":1},"x":{"z":2}', '{"z":2}', ""),
    ('{"y":1},"x.y":7', '{"y":1}', "7"),
    ('{"Y":1},"X":2', '{"Y":1}', ""),
    (r'1,"\u0078":2', "2", ""),
)
"""What a record writes as ``x``, and the labels ``x`` and ``x.y``."""


def test_a_value_is_what_the_definition_says(spark: SparkSession) -> None:
    """Of any type, the last of duplicates, by the key as it is written before nested ones."""
    records = [LINE.replace(b"}", b',"x":' + x.encode() + b"}") for x, *_ in VALUES]
    found = read(spark, records, ["x", "x.y"])
    assert [(value, *row) for (value, *_), row in zip(VALUES, found, strict=True)] == [
        (value, *COUNTED, *labels) for value, *labels in VALUES
    ]


SIZES = (8, 31, 32, 33, 64, 200)


def test_every_key_of_a_large_object_is_found(spark: SparkSession) -> None:
    """Spark looks a key up by order among 32 and more; half a surrogate pair is stored as "?"."""
    halves = ["\\ud83d", "\\ude00", "?", "\\ud83d\\ude00", "\\uffff", "z", "日"]
    line = LINE[:-1].decode()
    records = []
    for count in SIZES:
        others = ",".join(f'"{halves[n % 7]}{chr(97 + n % 26)}{n}":{n}' for n in range(count))
        records += [
            f'{line},"service":"cart",{others}}}'.encode(),
            f'{{{others},"service":"cart",{line[1:]}}}'.encode(),
            f'{line},"a":{{"b":"cart",{others}}}}}'.encode(),
            f'{line},"a":{{{others},"b":"cart"}}}}'.encode(),
        ]
    found = read(spark, records, ["service", "a.b", "level"])
    labels = [("cart", "", "ERROR")] * 2 + [("", "cart", "ERROR")] * 2
    assert found == [(*COUNTED, *of) for _ in SIZES for of in labels]


LIMITS = (
    ("[" * 998, "1", "]" * 998, True),
    ("[" * 999, "1", "]" * 999, False),
    ("[" * 100_000, "", "", False),
    ('{"a":' * 998, "1", "}" * 998, True),
    ("", "9" * 1_000, "", True),
    ("", "9" * 1_001, "", False),
    ("", "1e999999999", "", True),
    ('{"', "k" * 50_000, '":1}', True),
    ('{"', "k" * 50_001, '":1}', False),
)
"""What stands before a value, the value, what stands after it, and whether it is understood."""


def beyond(before: str, written: str, after: str) -> bytes:
    return LINE.replace(b"}", f',"x":{before}{written}{after}}}'.encode())


def test_a_record_beyond_the_limits_is_a_dead_letter(spark: SparkSession) -> None:
    """Depth, and the length of numbers and keys are bounded; nothing stops the batch."""
    records = [beyond(before, written, after) for before, written, after, _ in LIMITS]
    found = outcomes(spark, [*records, LINE], JSON)
    assert found == [COUNTED if is_read else UNMATCHED for *_, is_read in LIMITS] + [COUNTED]


@pytest.mark.parametrize(
    ("written", "outcome"),
    [("é" * 20_000_000, COUNTED), ("x" * 20_000_001, UNMATCHED)],
    ids=["largest", "too large"],
)
def test_a_text_may_have_forty_megabytes(
    spark: SparkSession, written: str, outcome: tuple[str | None, str | None]
) -> None:
    """In bytes; of characters twenty million."""
    assert outcomes(spark, [beyond('"', written, '"'), LINE], JSON) == [outcome, COUNTED]


def test_a_record_cannot_pass_itself_off_as_a_whole_one(spark: SparkSession) -> None:
    """Whatever follows the object, be it what would end the array in which Spark reads it."""
    rests = [b"x", b"]", b"]]", b'],"x":[', b'," "]', b',"0123456789abcdef"]x', b",", b",1", LINE]
    rests += [b"," + LINE, b"}", b"\x00", b"\x0b", b"\xc2\xa0", b"\xef\xbb\xbf", b"//", b"null"]
    assert outcomes(spark, [LINE + rest for rest in rests], JSON) == [UNMATCHED] * len(rests)
    starts = [b"\x00", b"\xef\xbb\xbf", b"[", b"{},", b"1,", b"x", b",", b"]", b"> ", b"\xff"]
    assert outcomes(spark, [start + LINE for start in starts], JSON) == [UNMATCHED] * len(starts)
    whole = [b" \t\r\n" + LINE + b" \t\r\n"]
    assert outcomes(spark, whole, JSON) == [COUNTED]


def test_a_document_of_ten_megabytes_with_odd_bytes_is_counted(spark: SparkSession) -> None:
    """JSON is read whole; bytes that are no UTF-8 become replacement characters."""
    record = b'{"m":"' + b"x\xff" * 5_000_000 + b'",' + LINE[1:]
    cut = record[:-1]
    assert outcomes(spark, [record, cut], JSON) == [COUNTED, UNMATCHED]
    ((_, _, text),) = read(spark, [b'{"m":"a\xff\xc3b",' + LINE[1:]], ["m"])
    assert text == "a\ufffd\ufffdb"


def test_a_wide_object_is_looked_up_by_any_of_its_keys(spark: SparkSession) -> None:
    """Spark searches a wide object in another way than a narrow one."""
    keys = [f"k{number}é😀\uffff"[: number % 5 + 2] + str(number) for number in range(300)]
    pairs = ",".join(f'"{key}":"{key}"' for key in ["k7", *keys, "k7"])
    record = LINE.replace(b"}", f",{pairs}}}".encode())
    some = keys[::37]
    assert read(spark, [record], some) == [(*COUNTED, *some)]


def test_fields_of_ones_own_are_found_by_path(spark: SparkSession) -> None:
    """A text leads to a key or into objects, a list names the keys; a label may be a path."""
    own = parse_line_format(
        {
            "json": {
                "time": "ts",
                "level": "log.level",
                "app": ["kubernetes", "labels", "app.kubernetes.io/name"],
            },
            "time_format": "yyyyMMddHHmmss",
        },
        key="line_format",
    )
    record = (
        b'{"ts":20170730140908,"log":{"level":"WARN"},"kubernetes":{"pod":{"name":"cart-1"},'
        b'"labels":{"app.kubernetes.io/name":"cart"}},"app":"no"}'
    )
    labels = ["app", "level", "kubernetes.pod.name", "kubernetes.labels.app", "ts"]
    wanted = (None, "2017-07-30 14:09:00", "cart", "WARN", "cart-1", "", "20170730140908")
    assert read(spark, [record], labels, own) == [wanted]
    assert outcomes(spark, [record], own, {"WARN"}) == [COUNTED]
    assert outcomes(spark, [record], own, {"ERROR"}) == [(None, None)]


def test_fields_without_a_level_do_without(spark: SparkSession) -> None:
    """Then no line is malformed for want of one, and a label may still look for it."""
    fields = {"json": {"time": "time"}, "time_format": "yyyy-MM-dd'T'HH:mm"}
    own = parse_line_format(fields, key="line_format")
    records = [LINE, b'{"time":"2017-07-30T14:09"}', b'{"time":"2017-07-30T14"}']
    assert read(spark, records, ["level"], own) == [
        (*COUNTED, "ERROR"),
        (*COUNTED, ""),
        ("time-invalid", None, None),
    ]


@pytest.mark.parametrize(
    ("time_format", "time", "outcome"),
    [
        ("yyyy-MM-dd HH:mm", "2017-07-30 14:09", COUNTED),
        ("yyyy-MM-dd HH:mm", "2017-07-30 14:09:08", COUNTED),
        ("yyyy-MM-dd HH:mm", "2017-07-30 14:091", ("time-invalid", None)),
        ("yyyyMMddHHmm", "20170730140908", ("time-invalid", None)),
        ("yyyy-MM-dd HH:mm:ss.SSS", "2017-07-30 14:09:08.123Z", COUNTED),
        ("yyyy-MM-dd HH:mm:ss.SSS", "2017-07-30 14:09:08.123456", ("time-invalid", None)),
        ("yyyy-MM-dd HH:mm:ss.SSS", "2017-07-30 14:09:08", ("time-invalid", None)),
        ("EEE MMM dd HH:mm:ss yyyy", "Sun Jul 30 14:09:08 2017", COUNTED),
        ("dd.MM.yyyy hh:mm a", "30.07.2017 02:09 PM CEST", COUNTED),
        ("yyyy-MM-dd HH:mm", "2017-07-30 14:09٣", COUNTED),
    ],
)
def test_what_follows_a_time_is_not_read_unless_it_is_a_digit(
    spark: SparkSession, time_format: str, time: str, outcome: tuple[str | None, str | None]
) -> None:
    """A fraction or a zone may follow; a digit says that the time is written otherwise."""
    fields = {"json": {"time": "time", "level": "level"}, "time_format": time_format}
    own = parse_line_format(fields, key="line_format")
    record = f'{{"time":"{time}","level":"ERROR"}}'.encode()
    assert outcomes(spark, [record], own) == [outcome]


def test_filters_and_kafkas_fields_serve_json_lines(spark: SparkSession) -> None:
    """By a path, by the text of the record, by what Kafka knows; ``key`` is always Kafka's."""
    records = [
        b'{"service":{"name":"cart"},"status":503,"key":"a",' + LINE[1:],
        b'{"service":{"name":"cart"},"status":404,"key":"b",' + LINE[1:],
        b'{"service":{"name":"shop"},"status":500,"key":"c",' + LINE[1:],
        b'{"service":"cart","status":500,"key":"d",' + LINE[1:],
    ]
    selection = Selection(
        filters={"service.name": ["ca*"], "status": ["5*"], "text": ['"name"']},
        labels=["key", "service.name"],
    )
    reader = LineReader(line_format=JSON, levels=["ERROR"], selection=selection)
    line = reader.judged(F.col("value"), record={"key": F.lit("Kafka's")})
    rows = spark.createDataFrame([(bytearray(record),) for record in records], "value binary")
    found = rows.select(line.minute.alias("minute"), *line.labels).collect()
    assert [tuple(row) for row in found] == [
        (COUNTED[1], "Kafka's", "cart"),
        (None, None, None),
        (None, None, None),
        (None, None, None),
    ]


@pytest.mark.parametrize(
    ("zone", "ansi", "policy"),
    [("Europe/Berlin", "true", "EXCEPTION"), ("Asia/Kolkata", "false", "LEGACY")],
)
def test_session_settings_change_nothing(
    spark: SparkSession, zone: str, ansi: str, policy: str
) -> None:
    """Time zone of the session, ANSI mode and the time parser policy play no part."""
    documents = Documents(f"{SEED} {zone}")
    lines: list[bytes | None] = [documents.record(TIMES) for _ in range(500)]
    with settings(
        spark,
        session__timeZone=zone,
        ansi__enabled=ansi,
        legacy__timeParserPolicy=policy,
        caseSensitive="true",
    ):
        assert_as_expected(spark, lines, JSON, {"ERROR"}, {"counted", "no-match"})


def test_a_session_without_our_settings_makes_dead_letters_and_no_other_counts(
    spark: SparkSession,
) -> None:
    """Duplicate keys are refused there, never read in another way."""
    records = [LINE, LINE.replace(b"}", b',"level":"INFO"}'), b'{"m":"\\ud800",' + LINE[1:]]
    assert outcomes(spark, records, JSON) == [COUNTED, (None, None), COUNTED]
    with settings(spark, variant__allowDuplicateKeys="false"):
        assert outcomes(spark, records, JSON) == [COUNTED, UNMATCHED, COUNTED]


@pytest.mark.parametrize("star", ["", "*"])
def test_a_filter_may_have_many_values(spark: SparkSession, star: str) -> None:
    """Spark walks conditions by recursion, and its stack is small."""
    names = [f"s{n}{star}" for n in range(2_000)]
    records = [LINE[:-1] + f',"service":"{name}"}}'.encode() for name in ("s0", "s1999", "t", "")]
    selection = Selection(filters={"service": names})
    reader = LineReader(line_format=JSON, levels=["ERROR"], selection=selection)
    rows = read_records(spark, records, reader)
    assert [minute is not None for _, minute, _ in rows] == [True, True, False, False]


def test_a_record_is_parsed_once(spark: SparkSession) -> None:
    """Spark shares the document between all columns; too long a method is never compiled."""
    selection = Selection(labels=["service", "level"], filters={"a.b": ["x*"]})
    reader = LineReader(line_format=JSON, levels=["ERROR"], selection=selection)
    with settings(spark, adaptive__enabled="false"):
        first, *_ = compiled_stages(grouping(reader).counts(kafka_records(spark, [b"x"])))
    assert len(re.findall(r"^/\* \d+ \*/.*\.parseJson\(", first, re.MULTILINE)) == 1
