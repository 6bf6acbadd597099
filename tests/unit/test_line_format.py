"""Line formats: what the configuration may say, and what it is told when it may not."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tally.config.pipeline import PipelineSettings
from tally.errors import ConfigError
from tally.lines.format import (
    CATALOGUE,
    FIXED_LAYOUT,
    JSON_LINES,
    LineFormat,
    MalformedReason,
)
from tally.lines.json_fields import JsonField
from tally.lines.parsing import parse_line_format
from tally.lines.pattern import HEAD_BYTES, parse_pattern
from tally.lines.time_format import parse_time_format
from tally.lines.time_rule import check_time_rule

KEY = "pipelines.error_log.line_format"
PATTERN = r"(?<time>\S+ \S+) (?<level>\w+)"
TIME_FORMAT = "yyyy-MM-dd HH:mm:ss"
PATTERNS = [name for name, line_format in CATALOGUE.items() if line_format.pattern]


def json_lines(**fields: object) -> LineFormat:
    return parse_line_format(
        {"json": {"time": "ts", **fields}, "time_format": TIME_FORMAT}, key=KEY
    )


def refused(value: object) -> str:
    with pytest.raises(ConfigError) as raised:
        parse_line_format(value, key=KEY)
    return str(raised.value)


def refused_pattern(pattern: str) -> str:
    return refused({"pattern": pattern, "time_format": TIME_FORMAT})


def refused_time_format(time_format: str) -> str:
    return refused({"pattern": PATTERN, "time_format": time_format})


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_name_of_the_catalogue_is_a_configuration_value(name: str) -> None:
    """A name gives the format of that name, with its description and an example."""
    line_format = parse_line_format(name, key=KEY)
    assert line_format.name == name
    assert line_format.description
    assert line_format.example


def test_a_format_is_the_fixed_layout_a_pattern_or_json() -> None:
    """The fixed layout takes the fast path, JSON is parsed, all others go through their pattern."""
    assert [f.name for f in CATALOGUE.values() if f.is_fixed] == ["fixed"]
    assert [f.name for f in CATALOGUE.values() if f.is_json] == ["json"]
    assert ["fixed", *PATTERNS, "json"] == list(CATALOGUE)
    assert parse_line_format("fixed", key=KEY) is FIXED_LAYOUT


def test_an_unknown_name_is_told_which_names_there_are() -> None:
    """The error names the key, the value and every allowed name."""
    message = refused("log5j")
    assert KEY in message
    assert "'log5j'" in message
    assert all(name in message for name in CATALOGUE)


@pytest.mark.parametrize(
    "value",
    [
        {"time_format": TIME_FORMAT},
        {"pattern": PATTERN, "time_format": TIME_FORMAT, "colour": "red"},
        {"json": {"time": "ts"}, "pattern": PATTERN, "time_format": TIME_FORMAT},
        {},
        7,
        None,
        [PATTERN, TIME_FORMAT],
    ],
)
def test_a_table_has_a_pattern_or_json(value: object) -> None:
    """Anything else is refused and told the keys."""
    message = refused(value)
    assert KEY in message
    assert "pattern or json, and time_format" in message


@pytest.mark.parametrize(
    ("table", "names"),
    [
        ({"pattern": PATTERN}, "time"),
        ({"json": {"time": "ts"}}, "time"),
        ({"pattern": r"(?<date>\S+) (?<clock>\S+)"}, "date and clock"),
        ({"json": {"clock": "c", "date": "d"}}, "date and clock"),
    ],
)
def test_a_time_needs_its_format(table: dict[str, object], names: str) -> None:
    """The error names what has the time."""
    assert f"{KEY}.time_format is missing: say how the text of {names} is" in refused(table)


@pytest.mark.parametrize(
    "table",
    [{"pattern": r"(?<level>\w+)"}, {"json": {"level": "level"}}, {"pattern": "(?<date>x)"}],
)
def test_lines_may_have_no_time(table: dict[str, object]) -> None:
    """Their minute is then that of their record; half a time is a field like any other."""
    line_format = parse_line_format(table, key=KEY)
    assert (line_format.has_time, line_format.time_names) == (False, ())
    assert len(line_format.fields) == 1


def test_date_and_clock_may_stand_apart() -> None:
    """The time format describes both; beside a group for the whole time they are plain fields."""
    apart = parse_line_format(
        {"pattern": r"(?<clock>\S+) (?<level>\w+) (?<date>\S+)", "time_format": TIME_FORMAT},
        key=KEY,
    )
    assert (apart.time_names, apart.fields) == (("date", "clock"), ("level",))
    beside = json_lines(date="d", clock="c")
    assert (beside.time_names, beside.fields) == (("time",), ("date", "clock"))


@pytest.mark.parametrize("part", ["pattern", "time_format"])
@pytest.mark.parametrize("text", ["", 7])
def test_both_parts_of_a_table_are_texts(part: str, text: object) -> None:
    """An empty text or a number is refused under the part's own key."""
    table: dict[str, object] = {"pattern": PATTERN, "time_format": TIME_FORMAT} | {part: text}
    assert f"{KEY}.{part} = {text!r}" in refused(table)


def test_a_table_becomes_a_custom_line_format() -> None:
    """The two texts are kept as they were written."""
    line_format = parse_line_format({"pattern": PATTERN, "time_format": TIME_FORMAT}, key=KEY)
    assert line_format == LineFormat(name="custom", pattern=PATTERN, time_format=TIME_FORMAT)
    assert not line_format.is_fixed


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        (r"(?<level>\w+)", "(?<time>…)"),
        (r"(\S+)", "(?<time>…)"),
        (r"(?<time>\S+) (?<level>\w+) (?<level>\w+)", "no regular expression"),
        (r"(?<time>\S+ (?<level>\w+)", "no regular expression"),
        (r"(?<time>\S+) (?<level>[z-a])", "no regular expression"),
        (r"(?<time>\S+)) (?<level>\w+)", "never opened"),
        (r"(?<time>[0-9+) (?<level>\w+)", "character class"),
        (r"(?<time>\S+) (?<level>\w{3,2})", "no regular expression"),
        (r"* (?<time>\S+) (?<level>\w+)", "nothing before it"),
        (r"{x} (?<time>\S+) (?<level>\w+)", r"\{"),
        ("(?<time>\\S+) (?<level>\\w+)\\", "escapes"),
    ],
)
def test_a_pattern_that_is_no_regular_expression_or_lacks_a_group_is_refused(
    pattern: str, complaint: str
) -> None:
    """The error names the key, the pattern and what is wrong with it."""
    message = refused_pattern(pattern)
    assert f"{KEY}.pattern = {pattern!r}" in message
    assert complaint in message


def test_a_pattern_without_a_level_counts_lines_at_any_level_only() -> None:
    """With levels it would silently count nothing."""
    table = {"pattern": r"(?<time>\S+ \S+) (?<service>\w+)", "time_format": TIME_FORMAT}
    line_format = parse_line_format(table, key=KEY)
    assert (line_format.fields, line_format.has_level) == (("service",), False)
    assert line_format.printed_levels([]) == ()
    with pytest.raises(ValueError, match=r"no group \(\?<level>…\).*levels = \[\]"):
        line_format.printed_levels(["ERROR"])


def test_a_pattern_may_name_further_groups() -> None:
    """Labels and filters are made of them."""
    table = {
        "pattern": r"(?<time>\S+ \S+) (?<level>[A-Z]+) \[(?<service>[^\]]*+)\] (?<status>\d+)",
        "time_format": TIME_FORMAT,
    }
    assert parse_line_format(table, key=KEY).fields == ("level", "service", "status")


@pytest.mark.parametrize(
    "construct",
    [
        r"\p{Alpha}",
        r"\h",
        r"\Z",
        r"\z",
        r"\A",
        r"\Qx\E",
        r"\1",
        r"\x4",
        r"(?s)",
        r"(?x: a )",
        r"(?P=time)",
        r"(?(1)a|b)",
        r"(?<a_b>x)",
        r"(?#note)",
        r"[a-z&&[^b]]",
        r"[[:alpha:]]",
        r"[]a]",
        r"[\b]",
        r"a{,3}",
        r"x(?i)",
    ],
)
def test_what_java_and_python_read_differently_is_refused(construct: str) -> None:
    """Else the configuration would be checked with another meaning than it is run with."""
    message = refused_pattern(rf"(?<time>\S+) (?<level>\w+) {construct}")
    assert f"{KEY}.pattern" in message


@pytest.mark.parametrize(
    "construct",
    [
        r"(?:a+)+",
        r"(?:\w+ ?)*",
        r"(?:a|b)*",
        r"(?:ab)+?",
        r"(?:a*){9}",
        r"(?:a|a){30}",
        r"(?:ab){0,101}",
        r"(?:ab){101}",
        r"(?:(?:ab){9}c){9}",
    ],
)
def test_a_repeat_that_one_odd_line_could_keep_busy_is_refused(construct: str) -> None:
    """Backtracking without end would stop the batch, and every batch after it."""
    message = refused_pattern(rf"(?<time>\S+) (?<level>\w+) {construct}")
    assert "repeats" in message
    assert "possessive" in message


@pytest.mark.parametrize(
    ("construct", "parts"),
    [
        (r".*.*x", ".*"),
        (r".*a.*c", ".*"),
        (r"\w*\w*\w*\w*\w*\w* x", r"\w*"),
        (r"[^c]*[^d]*c", "[^c]* and [^d]*"),
        (r"\s+x?\s+y", r"\s+"),
        (r"[a-z]*[0-9]*[a-z]*_", "[a-z]*"),
        (r"(?:\w+ ?)?(?:\w+ ?)?x", r"\w+"),
        (r"\S+@\S+ ", r"\S+"),
        (".*?\\d*+x", r".*? and \d*+"),
        (r".*(?=.*x)y", ".*"),
        (r"(?>\w*\w*x)y", r"\w*"),
        (r"(?:0(?=\w*x))*+y", r"\w*"),
        ("a?" * 30 + "b", "a?"),
        ("(?:a|ab)" * 30 + "c", "(?:a|ab)"),
        (r"(?:ab){0,99}(?:ab){0,99}(?:ab){0,99}(?:ab){0,99}c", "(?:ab){0,99}"),
        ("é*[а-я]*é*x", "é*"),  # noqa: RUF001 - Cyrillic on purpose
        (r"(?i:a*)A*b", "a* and A*"),
        (r"[a\xe9]*[b\u00e9]*[c\xe9]*x", r"[a\xe9]* and [b\u00e9]* and [c\xe9]*"),
        (r"[\u0660-\u0669]*[\u0660-\u0669]*x", r"[\u0660-\u0669]*"),
    ],
)
def test_parts_that_can_share_a_text_in_many_ways_are_refused(construct: str, parts: str) -> None:
    """The error names the parts and what keeps them apart."""
    message = refused_pattern(rf"(?<time>\S+ \S+)! {construct}")
    assert f"share a text in many ways ({parts})" in message
    assert "possessive" in message


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?:(?=.*?(?<level>ERR|INF))x|y)(?<time>\d+)",
        r"(?=.*?(?<level>ERR|INF))x(?<time>\d+)|y",
        r"(?:(?=(?:.(?<level>ERR)))x)?(?<time>\d+)",
    ],
)
def test_a_group_in_a_lookahead_that_may_be_given_up_is_refused(pattern: str) -> None:
    """Java would report a level from an alternative that did not match."""
    assert "lookahead" in refused_pattern(pattern)


@pytest.mark.parametrize(
    "construct",
    [
        r"(?:a++)*+",
        r"(?:\w++ )*+",
        r"(?:\w++ ){0,9}",
        r"(?:ab){2}",
        r"(?:a|b)?",
        r"(?>a|b){0,9}",
        r".*?x.*",
        r"\w* \w* \w* \w* x",
        r"(?>.*?x).*?y",
        r"[a-z]*[0-9]*[-_]*x",
        r"\S{1,128}@\S{1,128}:",
        r"(?:[^,]*,){0,20}+x",
        r"(?:[^\]]*\])?",
        r"\x41\u0042\-\.\[\]\{",
        r"[^\]\[\-a-f\d ]",
        r"(?i:warn)(?=x)(?!y)(?<=z)(?<!z)",
        r"\bword\b$",
        r"^a|b",
        r"é",
    ],
)
def test_what_both_read_alike_and_in_bounded_time_is_accepted(construct: str) -> None:
    """The rules against runaway patterns leave a way to say the same."""
    pattern = rf"(?<time>\S+ \S+) (?<level>\w+) {construct}"
    parse_line_format({"pattern": pattern, "time_format": TIME_FORMAT}, key=KEY)


def test_both_spellings_of_a_named_group_mean_the_same() -> None:
    """Python's ``(?P<time>…)`` and Java's ``(?<time>…)`` give one line format."""
    java = parse_pattern(PATTERN)
    python = parse_pattern(PATTERN.replace("(?<", "(?P<"))
    assert java.java == python.java
    assert java.spelling == python.spelling == PATTERN
    assert java.python == python.python


def test_what_differs_in_spelling_only_is_translated_for_java() -> None:
    r"""``$`` and ``\b`` depend on Java's version and on line ends; their translations do not."""
    java = parse_pattern(PATTERN + r"\b[$.]$")
    translated = PATTERN + r"(?:(?<=\w)(?!\w)|(?<!\w)(?=\w))[$.]"
    assert java.java == translated + r"(?![^\r\n])"
    assert java.spelling == translated + r"\z"


@pytest.mark.parametrize(
    ("pattern", "java"),
    [
        (r"[a-z]\S\w\d\. x", r"[a-z]\S\w\d\. x"),
        (".*", r"[^\r\n]*"),
        (r"[^\]x]+", r"[^\r\n\]x]+"),
        ("[^-a]", r"[^\r\n\-a]"),
        ("[^^]", r"[^\r\n^]"),
        (r"\D\s", r"[\D&&[^\r\n]][\s&&[^\r\n]]"),
        (r"[\s,]", r"[[\s,]&&[^\r\n]]"),
        (r"\x0a", r"[\x0a&&[^\r\n]]"),
    ],
)
def test_java_sees_a_line_up_to_its_end(pattern: str, java: str) -> None:
    """No part takes a line feed or a carriage return; a fingerprint does not depend on that."""
    parsed = parse_pattern(pattern)
    assert parsed.java == java
    assert parsed.spelling == pattern


@pytest.mark.parametrize(
    ("text", "has_year", "is_epoch", "by_position"),
    [
        ("yyyy-MM-dd HH:mm", True, False, True),
        ("yy-MM-dd HH:mm", True, False, True),
        ("MMM dd HH:mm:ss", False, False, False),
        ("yyyy-M-d H:m", True, False, False),
        ("MMM ppd HH:mm:ss yyyy", True, False, False),
        ("epoch_seconds", True, True, False),
    ],
)
def test_what_a_time_format_knows(
    text: str, *, has_year: bool, is_epoch: bool, by_position: bool
) -> None:
    """Whether it needs a year from elsewhere, states an instant, and can be read by position."""
    parsed = parse_time_format(text)
    assert (parsed.has_year, parsed.is_epoch) == (has_year, is_epoch)
    assert parsed.is_read_by_position == by_position


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("EEE MMM ppd HH:mm:ss.SSS yyyy", ("MMM", "dd", "HH", "mm", "ss", "yyyy")),
        ("d.M.yy h:m a", ("dd", "MM", "yy", "hh", "mm", "a")),
        ("'('MM')'dd H:mm", ("MM", "dd", "HH", "mm")),
    ],
)
def test_the_shape_has_a_group_for_each_field(text: str, fields: tuple[str, ...]) -> None:
    """In order; literals, fractions and weekdays are no groups."""
    parsed = parse_time_format(text)
    assert parsed.fields == fields
    assert re.compile(parsed.shape).groups == len(fields)


@pytest.mark.parametrize(
    ("time_format", "complaint"),
    [
        ("yyyy-dd HH:mm", "no month"),
        ("yyyy-MM HH:mm", "no day"),
        ("yyyy-MM-dd mm:ss", "no hour"),
        ("yyyy-MM-dd HH", "no minute"),
        ("yyyy-MM-dd hh:mm:ss", "12-hour"),
        ("yyyy-MM-dd HH:mm a", "mixes"),
        ("yyyy-MM-dd HH hh:mm a", "mixes"),
        ("yyyy-yyyy-MM-dd HH:mm", "twice"),
        ("yyyy yy-MM-dd HH:mm", "twice"),
        ("yyyy-MM-dd MMM HH:mm", "twice"),
        ("yyyy-MM-dd HH:mm:ss.S SSS", "twice"),
        ("YYYY-MM-dd HH:mm", "week"),
        ("yyyy-MM-DD HH:mm", "day of the year"),
        ("yyyy-MM-dd H:m a", "mixes"),
        ("yyyy-MM-d d HH:mm", "twice"),
        ("yyyy-MM-ppd dd HH:mm", "twice"),
        ("yyyy-MM-dd Hmm", "Write HH if it has two digits"),
        ("yyyyMdd HH:mm", "Write MM if it has two digits"),
        ("yyyy-M'1'-dd HH:mm", "right before '1'"),
        ("yyyy-MM-ppdd HH:mm", "allowed are"),
        ("epoch", "allowed are"),
        ("epoch_minutes", "allowed are"),
        ("yyyy-MMMM-dd HH:mm", "allowed are"),
        ("yyyy-MM-ddTHH:mm", "allowed are"),
        ("yyyy-MM-dd HH:mm:ssXXX", "wall clock"),
        ("yyyy-MM-dd HH:mm:ss z", "wall clock"),
        ("yyyy-MM-dd kk:mm", "HH"),
        ("yyyy-MM-dd HH:mm:ss.SSSSSSSSSS", "S"),
        ("yyyy-MM-dd[ HH:mm]", "reserves"),
        ("yyyy-MM-dd'T HH:mm", "never closed"),
        ("yyyy年MM月dd日 HH:mm", "ASCII"),
        ("yyyy-MM-dd\tHH:mm", "ASCII"),
        ("yyyy-MM-dd'\t'HH:mm", "ASCII"),
    ],
)
def test_a_time_format_that_does_not_fix_the_minute_is_refused(
    time_format: str, complaint: str
) -> None:
    """The error names the key, the time format and what is wrong with it."""
    message = refused_time_format(time_format)
    assert f"{KEY}.time_format = {time_format!r}" in message
    assert complaint in message


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("yyyy-MM-dd HH:mm:ss", "2017-07-30 14:09:08"),
        ("yyyy-MM-dd'T'HH:mm", "2017-07-30T14:09"),
        ("yyMMdd HHmmss", "170730 140908"),
        ("EEE MMM dd HH:mm:ss.SSSSSS yyyy", "Sun Jul 30 14:09:08.123456 2017"),
        ("dd.MM.yyyy 'um' hh:mm a", "30.07.2017 um 02:09 PM"),
        ("yyyy''MM''dd 'o''clock' HHmm", "2017'07'30 o'clock 1409"),
    ],
)
def test_the_parts_of_a_time_format_tell_where_its_fields_stand(text: str, time: str) -> None:
    """Cut at its parts, a time gives its literals and, for fields, no literal at all."""
    time_format = parse_time_format(text)
    assert time_format.width == len(time)
    pieces = [(part, time[part.position - 1 :][: part.width]) for part in time_format.parts]
    assert "".join(piece for _, piece in pieces) == time
    assert all(piece == part.literal for part, piece in pieces if part.literal)
    assert all(re.fullmatch(r"\w+", piece) for part, piece in pieces if part.letters)


@pytest.mark.parametrize("name", PATTERNS)
def test_the_example_of_a_pattern_format_matches_it(name: str) -> None:
    """Python finds each group in the example, and a time that has the shape of the time format."""
    line_format = CATALOGUE[name]
    found = line_format.parsed_pattern.python.match(line_format.example)
    assert found is not None
    assert all(found.groupdict().values())
    for group in line_format.time_names:
        time_format = line_format.parsed_time_format
        shape = time_format.shape or "[0-9]+"
        assert re.fullmatch(shape, found[group])
        assert len(found[group]) == time_format.width or not time_format.is_read_by_position


@pytest.mark.parametrize(
    ("pattern", "fields", "time_format"),
    [
        (PATTERN, "", ""),
        ("", "", TIME_FORMAT),
        (PATTERN, "", "yyyy"),
        ("(", "", "x"),
        ("", "time", ""),
        ("", "level", TIME_FORMAT),
        ("", "date", TIME_FORMAT),
        ("", "time", "yyyy"),
        (PATTERN, "time", TIME_FORMAT),
    ],
)
def test_a_line_format_cannot_be_built_wrong(pattern: str, fields: str, time_format: str) -> None:
    """Construction checks what the configuration checks."""
    json_fields = tuple(JsonField(name=name, paths=((name,),)) for name in fields.split())
    with pytest.raises(ValueError, match=r"."):
        LineFormat(name="custom", pattern=pattern, json_fields=json_fields, time_format=time_format)


@pytest.mark.parametrize(
    ("path", "places"),
    [
        ("level", (("level",),)),
        ("log.level", (("log.level",), ("log", "level"))),
        ("a.b.c", (("a.b.c",), ("a", "b", "c"))),
        (".a", ((".a",),)),
        ("a..b", (("a..b",),)),
        (["log.level"], (("log.level",),)),
        (["a", "b/c", "it's"], (("a", "b/c", "it's"),)),
    ],
)
def test_a_path_is_a_key_as_it_is_written_or_leads_into_objects(
    path: object, places: tuple[tuple[str, ...], ...]
) -> None:
    """The key itself first; a list names exactly the nested keys."""
    line_format = json_lines(level=path)
    assert line_format.paths_of("level") == places
    assert line_format.paths_of("time") == (("ts",),)
    assert line_format.is_json
    assert not line_format.is_fixed


@pytest.mark.parametrize("path", ["", [], [""], ["a", ""], 7, None, ["a", 7], {"a": "b"}, "'\""])
def test_what_is_no_path_is_refused(path: object) -> None:
    """Under the field's own name."""
    with pytest.raises(ConfigError) as raised:
        json_lines(level=path)
    assert f"{KEY}.json.level = {path!r}: a " in str(raised.value)


@pytest.mark.parametrize("fields", [{}, {"level": "level"}, "time", None, ["time"]])
def test_json_fields_are_a_table_with_a_time(fields: object) -> None:
    """With a time format they need what it describes."""
    message = refused({"json": fields, "time_format": TIME_FORMAT})
    assert f"{KEY}.json = {fields!r}" in message
    assert "time among them" in message


@pytest.mark.parametrize("time_format", ["", 7, "HH:mm"])
def test_json_fields_need_a_time_format(time_format: object) -> None:
    """It is checked as that of a pattern is."""
    message = refused({"json": {"time": "ts"}, "time_format": time_format})
    assert f"{KEY}.time_format = {time_format!r}" in message


def test_json_lines_have_a_field_for_any_path() -> None:
    """A declared field is found where it was declared, any other where its name leads."""
    line_format = json_lines(level="lvl", service=["kubernetes", "labels", "app"])
    assert line_format.fields == ("level", "service")
    assert line_format.paths_of("service") == (("kubernetes", "labels", "app"),)
    assert line_format.paths_of("host.name") == (("host.name",), ("host", "name"))
    assert line_format.has_field("host.name")
    assert not line_format.has_field("time")
    for other in (FIXED_LAYOUT, CATALOGUE["log4j"]):
        assert other.has_field("level")
        assert not other.has_field("host.name")


def test_json_lines_without_a_level_count_at_any_level_only() -> None:
    """With levels they would silently count nothing."""
    line_format = json_lines()
    assert not line_format.has_level
    assert line_format.printed_levels([]) == ()
    with pytest.raises(ValueError, match=r"JSON fields lack level.*levels = \[\]"):
        line_format.printed_levels(["ERROR"])


def test_the_fingerprint_identifies_what_is_counted() -> None:
    """It is the same for the same meaning and differs in pattern, time format and level names."""
    base = LineFormat(name="a", pattern=PATTERN, time_format=TIME_FORMAT)
    same = LineFormat(
        name="b", description="d", pattern=PATTERN.replace("?<", "?P<"), time_format=TIME_FORMAT
    )
    others = [
        LineFormat(name="a", pattern=PATTERN + " ", time_format=TIME_FORMAT),
        LineFormat(name="a", pattern=PATTERN, time_format="yyyy/MM/dd HH:mm:ss"),
        LineFormat(name="a", pattern=PATTERN, time_format=TIME_FORMAT, level_names={"3": "err"}),
        FIXED_LAYOUT,
    ]
    assert base.fingerprint() == same.fingerprint()
    others += [
        json_lines(),
        json_lines(level="log.level"),
        json_lines(level=["log.level"]),
        json_lines(lvl="log.level"),
        LineFormat(name="a", json_fields=json_lines().json_fields, time_format="yyyy/MM/dd HH:mm"),
    ]
    assert len({f.fingerprint() for f in [base, *others]}) == 1 + len(others)
    one, other = json_lines(a="a", b="b"), json_lines(b="b", a="a")
    assert one.fingerprint() == other.fingerprint()


def test_the_fingerprint_is_the_same_in_every_release() -> None:
    """The ledger keeps it: a change here says that old counts meant something else."""
    assert FIXED_LAYOUT.fingerprint() == "fixed:1"
    base = LineFormat(name="a", pattern=PATTERN, time_format=TIME_FORMAT)
    assert base.fingerprint() == "pattern:1:71d080a6936c7c01"
    assert {name: f.fingerprint() for name, f in CATALOGUE.items()} == {
        "fixed": "fixed:1",
        "log4j": "pattern:1:8f69a0f0ae1c7093",
        "logback": "pattern:1:1c43dc4462226dd8",
        "spring-boot": "pattern:1:5c30f7f4fa295b58",
        "zookeeper": "pattern:1:d22937a4200a3c02",
        "kafka": "pattern:1:3d4b43e9bc189b19",
        "spark": "pattern:1:2e9a5e0bace41881",
        "hdfs": "pattern:1:57ca7bd6a20fe388",
        "tomcat": "pattern:1:69e755efd907294e",
        "apache-2.2": "pattern:1:c44a0b2fd107b526",
        "apache-2.4": "pattern:1:810114ca2090cc3b",
        "nginx": "pattern:1:af22b51c895c0b58",
        "python": "pattern:1:5d11a8aa932862aa",
        "airflow": "pattern:1:7a76296e27479640",
        "postgresql": "pattern:1:501f60d21cad1a4b",
        "mysql": "pattern:1:6b4c8e7b01e9f8ca",
        "elasticsearch": "pattern:1:53f40700c25538bb",
        "serilog": "pattern:1:08357e52b0c4c795",
        "rfc5424": "pattern:1:0461ec1da70da04e",
        "logfmt": "pattern:1:4c76089a005ec71d",
        "rfc3164": "pattern:1:46f91892b48041df",
        "syslog": "pattern:1:d6824cb833dbf128",
        "klog": "pattern:1:3a6b517e76eb7bd0",
        "android": "pattern:1:5f684a7880d27c3b",
        "access": "pattern:1:5c430a80c76f053c",
        "openstack": "pattern:1:4ffb08148d571212",
        "windows-cbs": "pattern:1:31a1ff2558e882f2",
        "bgl": "pattern:1:a5626468d393711e",
        "thunderbird": "pattern:1:28b733dc952a02af",
        "hpc": "pattern:1:4faae1d7cf3dbb26",
        "healthapp": "pattern:1:31d22f4b74b6d279",
        "proxifier": "pattern:1:22da4a666c471a8c",
        "text": "pattern:1:9be691ae203a26f6",
        "json": "json:1:de451b2f800ef3a2",
    }


def test_levels_are_what_the_line_prints_unless_the_format_names_them() -> None:
    """Without names a level is compared as it is; with names it stands for what is printed."""
    assert CATALOGUE["log4j"].printed_levels(["WARN", "ERROR", "WARN"]) == ("ERROR", "WARN")
    errors = CATALOGUE["rfc5424"].printed_levels(["err"])
    assert len(errors) == 24
    assert {int(priority) % 8 for priority in errors} == {3}


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("apache-2.2", "emerg, alert, crit, error, warn, notice, info, debug"),
        ("apache-2.4", "emerg, alert, crit, error, warn, notice, info, debug, trace1, trace2"),
        ("nginx", "debug, info, notice, warn, error, crit, alert, emerg"),
        ("tomcat", "FINEST, FINER, FINE, CONFIG, INFO, WARNING, SEVERE"),
        ("serilog", "VRB, DBG, INF, WRN, ERR, FTL"),
        ("rfc5424", "emerg, alert, crit, err, warning, notice, info, debug"),
    ],
)
def test_the_usual_level_is_refused_where_the_format_prints_another(name: str, known: str) -> None:
    """The default would silently count nothing; the error names the levels there are."""
    line_format = CATALOGUE[name]
    with pytest.raises(ValueError, match=f"ERROR: not a level of {name}; it has {known}"):
        line_format.printed_levels([line_format.levels[0], "ERROR"])


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("mysql", "WARNING"),
        ("mysql", "NOTE"),
        ("postgresql", "WARN"),
        ("postgresql", "DEBUG1"),
        ("elasticsearch", "WARNING"),
        ("kafka", "error"),
        ("zookeeper", "SEVERE"),
        ("hdfs", "Error"),
    ],
)
def test_a_level_that_the_producer_never_prints_is_refused(name: str, level: str) -> None:
    """Beside the right ones too: what is asked for and never counted is a mistake."""
    with pytest.raises(ValueError, match=f"{level}: not a level of {name}; it has .*ERROR"):
        CATALOGUE[name].printed_levels(["ERROR", level])


@pytest.mark.parametrize("name", [name for name, f in CATALOGUE.items() if f.levels])
def test_each_level_of_a_closed_list_can_stand_in_the_line(name: str) -> None:
    """The list and the pattern agree, and the example is at one of them."""
    line_format = CATALOGUE[name]
    printed = line_format.printed_levels(line_format.levels)
    assert set(printed) == set(line_format.level_names or line_format.levels)
    found = line_format.parsed_pattern.python.match(line_format.example)
    assert found is not None
    assert found["level"] in printed


@pytest.mark.parametrize(
    "name", ["log4j", "logback", "spring-boot", "spark", "python", "airflow", "logfmt", "json"]
)
def test_levels_of_an_applications_own_are_allowed_where_there_can_be_any(name: str) -> None:
    """Log4j, Python's logging and whoever writes JSON let a program name levels itself."""
    assert CATALOGUE[name].printed_levels(["NOTICE", "AUDIT"]) == ("AUDIT", "NOTICE")


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("python", "error"),
        ("airflow", "Error"),
        ("log4j", "ERROR:"),
        ("logback", "[ERROR]"),
        ("logfmt", "level=ERROR"),
    ],
)
def test_a_level_that_cannot_stand_in_the_line_is_refused(name: str, level: str) -> None:
    """Also where any level is allowed: this one the pattern can never find."""
    with pytest.raises(ValueError, match=f"cannot stand where {name} has its level"):
        CATALOGUE[name].printed_levels(["ERROR", level])


def test_any_level_is_allowed_where_nothing_is_known_of_the_lines() -> None:
    """The fixed layout and JSON take every word, and a pattern of one's own has no example."""
    custom = LineFormat(name="custom", pattern=PATTERN, time_format=TIME_FORMAT)
    for line_format in (FIXED_LAYOUT, JSON_LINES, custom):
        assert line_format.printed_levels(["[error]:"]) == ("[error]:",)


def test_the_reasons_are_stable() -> None:
    """They stand in the ledger's dead letters and in the documentation."""
    assert [str(reason) for reason in MalformedReason] == [
        "null-value",
        "empty-value",
        "no-match",
        "no-time",
        "time-invalid",
        "time-out-of-range",
        "no-level",
    ]


def test_the_documentation_lists_every_format_and_every_reason() -> None:
    """The page and the code say the same."""
    page = (Path(__file__).parents[2] / "docs" / "line-formats.md").read_text(encoding="utf-8")
    for line_format in CATALOGUE.values():
        levels = ", ".join(f"`{level}`" for level in line_format.levels)
        levels = levels or ("any" if line_format.has_level else "none")
        about = f"| `{line_format.name}` | {line_format.description} | {levels}"
        assert f"{about} | `{line_format.example}` |" in page
    _, _, malformed = page.partition("## Malformed records")
    documented = re.findall(r"^\| `([a-z-]+)` \|", malformed.partition("## ")[0], re.MULTILINE)
    assert documented == [str(reason) for reason in MalformedReason]
    assert f"first {HEAD_BYTES:,} bytes" in page


def test_the_configuration_in_the_documentation_is_valid() -> None:
    """Copied from the page, it works."""
    page = (Path(__file__).parents[2] / "docs" / "line-formats.md").read_text(encoding="utf-8")
    examples = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    pipelines = [p for text in examples for p in tomllib.loads(text)["pipelines"].values()]
    for pipeline in pipelines:
        settings = PipelineSettings(**pipeline)
        check_time_rule(settings.format, settings.time_rule)
        settings.format.printed_levels(settings.levels)
    log4j, custom, own, *others = (parse_line_format(p["line_format"], key=KEY) for p in pipelines)
    assert len(others) == 3
    assert own.paths_of("service")[0][-1] == "app.kubernetes.io/name"
    assert log4j is CATALOGUE["log4j"]
    found = custom.parsed_pattern.python.match("|30.07.2017 14:09:08|SEVERE| no such item")
    assert found is not None
    assert (len(found["time"]), found["level"]) == (custom.parsed_time_format.width, "SEVERE")


def test_a_line_format_costs_no_heavy_import() -> None:
    """The configuration is parsed in every Airflow process: neither Spark nor a client comes in."""
    program = (
        "import sys, tally.lines.format; "
        "print(sorted({'pyspark', 'confluent_kafka', 'pymysql', 'airflow'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
