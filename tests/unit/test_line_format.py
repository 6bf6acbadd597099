"""Line formats: what the configuration may say, and what it is told when it may not."""

import re
from dataclasses import replace

import pytest
from tests.unit.sources import DOCS, text

from tally.errors import ConfigError
from tally.lines.format import NO_OPTIONS, LineFormat, MalformedReason
from tally.lines.parsing import CATALOGUE, parse_line_format
from tally.lines.pattern import HEAD_BYTES, parse_pattern
from tally.lines.reading import begins_a_line, level_of, offset_of
from tally.lines.time_format import parse_time_format
from tally.lines.time_rule import offset_minutes

KEY = "pipelines.error_log.line_format"
PATTERN = r"(?<time>\S+ \S+) (?<level>\w+)"
TIME_FORMAT = "yyyy-MM-dd HH:mm:ss"
PATTERNS = [name for name, line_format in CATALOGUE.items() if line_format.pattern]


def json_lines(**fields: object) -> LineFormat:
    table = {"json": {"time": "ts", **fields}, "time_format": TIME_FORMAT}
    return parse_line_format(table, key=KEY)


def refused(value: object) -> str:
    """The error; empty if the value is accepted."""
    try:
        parse_line_format(value, key=KEY)
    except ConfigError as error:
        return str(error)
    return ""


def refused_pattern(pattern: str) -> str:
    return refused({"pattern": pattern, "time_format": TIME_FORMAT})


def refused_construct(construct: str) -> str:
    return refused_pattern(rf"(?<time>\S+ \S+)! {construct}")


def test_a_format_is_the_fixed_layout_a_pattern_or_json() -> None:
    """The fixed layout takes the fast path, JSON is parsed, all others go through their pattern."""
    assert [f.name for f in CATALOGUE.values() if f.is_fixed] == ["fixed"]
    assert [f.name for f in CATALOGUE.values() if f.is_json] == ["json"]
    assert ["fixed", *PATTERNS, "json"] == list(CATALOGUE)
    for name, line_format in CATALOGUE.items():
        assert parse_line_format(name, key=KEY) is line_format
        assert line_format.name == name
        assert line_format.description
        assert line_format.example
    # What is none is refused with the allowed names, or the keys of a table.
    message = refused("log5j")
    assert [part for part in (KEY, "'log5j'", *CATALOGUE) if part not in message] == []
    for value in (
        {"time_format": TIME_FORMAT},
        {"pattern": PATTERN, "time_format": TIME_FORMAT, "colour": "red"},
        {"json": {"time": "ts"}, "pattern": PATTERN, "time_format": TIME_FORMAT},
        *({}, 7, None, [PATTERN, TIME_FORMAT]),
    ):
        message = refused(value)
        assert KEY in message, value
        assert "pattern or json, and time_format" in message, value


def test_a_time_needs_its_format_and_lines_may_have_none() -> None:
    """The error names what has the time; half a time is a field like any other."""
    for table, names in (
        *(({"pattern": PATTERN}, "time"), ({"json": {"time": "ts"}}, "time")),
        ({"pattern": r"(?<date>\S+) (?<clock>\S+)"}, "date and clock"),
        ({"json": {"clock": "c", "date": "d"}}, "date and clock"),
    ):
        assert f"{KEY}.time_format is missing: say how the text of {names} is" in refused(table)
    half = {"pattern": "(?<date>x)"}
    for of_field in ({"pattern": r"(?<level>\w)"}, {"json": {"level": "l"}}, half):
        line_format = parse_line_format(of_field, key=KEY)
        assert (line_format.has_time, line_format.time_names) == (False, ())
        assert len(line_format.fields) == 1
    # A time format describes date and clock; beside a group for the whole time they are fields.
    table = {"pattern": r"(?<clock>\S+) (?<level>\w+) (?<date>\S+)", "time_format": TIME_FORMAT}
    apart, beside = parse_line_format(table, key=KEY), json_lines(date="d", clock="c")
    assert (apart.time_names, apart.fields) == (("date", "clock"), ("level",))
    assert (beside.time_names, beside.fields) == (("time",), ("date", "clock"))


def test_a_table_becomes_a_custom_line_format() -> None:
    """Its texts are kept as they were written; what is no text is refused under its own key."""
    table: dict[str, object] = {"pattern": PATTERN, "time_format": TIME_FORMAT}
    line_format = parse_line_format(table, key=KEY)
    assert line_format == LineFormat(name="custom", pattern=PATTERN, time_format=TIME_FORMAT)
    assert not line_format.is_fixed
    for part, value in (("pattern", ""), ("pattern", 7), ("time_format", ""), ("time_format", 7)):
        assert f"{KEY}.{part} = {value!r}" in refused(table | {part: value})
    for value in ("", 7, "HH:mm"):
        message = refused({"json": {"time": "ts"}, "time_format": value})
        assert f"{KEY}.time_format = {value!r}" in message
    # Construction checks what the configuration checks.
    for pattern, fields, time_format in (
        *((PATTERN, "", ""), ("", "", TIME_FORMAT), (PATTERN, "", "yyyy"), ("(", "", "x")),
        *(("", "time", ""), ("", "level", TIME_FORMAT), ("", "date", TIME_FORMAT)),
        *(("", "time", "yyyy"), (PATTERN, "time", TIME_FORMAT)),
    ):
        of_json = {name: ((name,),) for name in fields.split()}
        with pytest.raises(ValueError, match=r"."):
            LineFormat(name="own", pattern=pattern, json_fields=of_json, time_format=time_format)


def test_an_option_that_would_do_nothing_is_refused() -> None:
    """Under its own key, as is what it cannot be; a ready-made format takes them by its name."""
    table: dict[str, object] = {"name": "json", "skip_bytes": 5, "default_level": "Information"}
    line_format = parse_line_format(table | {"accept": ["nan", "byte_order_mark"]}, key=KEY)
    assert replace(line_format, options=NO_OPTIONS) == CATALOGUE["json"]
    assert line_format.options.line_of(b"12345\xef\xbb\xbf{}") == b"{}"
    assert line_format.printed_levels(["Information", "Error"]) == ("", "Error", "Information")
    assert line_format.printed_levels(["Error"]) == ("Error",)
    of_names = parse_line_format({"name": "rfc3164", "default_level": "err"}, key=KEY)
    assert of_names.printed_levels(["err"])[:3] == ("", "107", "11")
    capitals = parse_line_format({"name": "python", "default_level": "info"}, key=KEY)
    assert capitals.printed_levels(["INFO", "info"]) == ("", "INFO", "info")
    for changes, told in (
        ({"skip_bytes": -1}, "skip_bytes = -1: must be a number from 0 to 1,024"),
        ({"skip_bytes": 1025}, "skip_bytes = 1025: must be a number"),
        ({"skip_bytes": True}, "skip_bytes = True: must be a number"),
        ({"default_level": "two words"}, "default_level = 'two words': a level is one word"),
        ({"accept": "nan"}, "accept = 'nan': must be a list of some of byte_order_mark, "),
        ({"accept": ["bom"]}, "accept = ['bom']: must be a list"),
        ({"accept": [["nan"]]}, "accept = [['nan']]: must be a list"),
        ({"accept": {"nan": False}}, "accept = {'nan': False}: must be a list"),
        ({"accept": ["exponent"]}, 'accept: "exponent" is for lines with a number since 1970'),
        ({"name": "log4j", "accept": ["nan"]}, 'accept: "nan" is for lines with JSON'),
        (
            {"name": "fixed", "default_level": "E"},
            "default_level: lines of the fixed layout always",
        ),
        (
            {"name": "fixed", "accept": ["unicode_blanks"]},
            'accept: "unicode_blanks" is for lines with',
        ),
        ({"name": "text", "default_level": "E"}, "default_level: lines of this format never have"),
        ({"name": "jsn"}, "name = 'jsn': no such line format; did you mean json?"),
        ({"name": 7}, "name = 7: no such line format"),
        ({"time_format": TIME_FORMAT}, "time_format: a ready-made format has its own"),
    ):
        usual = {} if "name" in changes else {"name": "json"}
        assert f"{KEY}.{told}" in refused(usual | changes), changes


def test_pairs_in_any_order_are_a_pattern() -> None:
    """Its groups are the fields; what cannot be a field or a key is refused by its name."""
    table = {"logfmt": {"time": "at", "level": "l", "user": "a/b"}, "time_format": "epoch_seconds"}
    line_format = parse_line_format(table, key=KEY)
    assert (line_format.fields, line_format.time_names) == (("level", "user"), ("time",))
    found = line_format.parsed_pattern.python.match('l="E F" x a/b=1 at=1501423748')
    assert found is not None
    assert found.groupdict() == {"time": "1501423748", "level": "E F", "user": "1"}
    for keys, told in (
        ({"user_id": "u"}, "logfmt.user_id: a field's name is a letter"),
        ({"user": "a b"}, "logfmt.user = 'a b': a key is a text of ASCII"),
        ({"user": ["a"]}, "logfmt.user = ['a']: a key is a text"),
        ({"user": ""}, "logfmt.user = '': a key is a text"),
        ({}, "logfmt = {}: must be a table of fields"),
        ("time", "logfmt = 'time': must be a table of fields"),
        ({"user": "u"}, "logfmt = {'user': 'u'} lacks time, or date and clock"),
    ):
        assert f"{KEY}.{told}" in refused({**table, "logfmt": keys}), keys
    # Many fields are taken, too.
    many = {f"f{number}": f"k{number}" for number in range(30)}
    assert refused({"logfmt": many}) == ""


def test_a_line_is_read_by_python_to_be_shown() -> None:
    """Its level as it is configured, and the offset behind its time, behind what options skip."""
    short = {"json": {"time": "@t", "level": "@l"}, "time_format": "yyyy-MM-dd'T'HH:mm"}
    options = {"skip_bytes": 5, "default_level": "Information", "accept": ["byte_order_mark"]}
    for value, line, level, offset in (
        ("fixed", b"2017-07-30 14:09:08 ERROR\tx", "ERROR", None),
        ("fixed", b"2017-07-30 14:09:08  ERROR", None, None),
        ("fixed", b"x", None, None),
        ("fixed", b"no line, but some words ERROR", None, None),
        ("rfc5424", b"<131>1 2017-07-30T14:09:08+02:00 h a p m - x", "err", "+02:00"),
        ("spring-boot", b"2017-07-30T14:09:08.1Z INFO x\nERROR", "INFO", "Z"),
        ("spring-boot", b"\tat x", None, None),
        ({"pattern": "(?<level>[^|]*)"}, b"a b\r\nc|", "a b", None),
        ("access", b'h - - [30/Jul/2017:14:09:08 +0200] "GET / HTTP/1.1" 500 1', None, "+0200"),
        ("json", b'{"time":"2017-07-30T14:09:08.1234-01","level":null,"severity":3}', "3", "-01"),
        ("json", b'{"time":"2017-07-30T14:09:08"}', None, None),
        ("json", b"[]", None, None),
        ("json", b'{"level":"ERROR","x":NaN}', None, None),
        ({"name": "json", "accept": ["nan"]}, b'{"level":"ERROR","x":NaN}', "ERROR", None),
        (short | options, b"\0\0\0\0\n" + b'{"@t":"2017-07-30T14:09:08Z"}', "Information", "Z"),
        (short | options, b"12345\xef\xbb\xbf" + b'{"@l":"Error"}', "Error", None),
        (short | options, b"12345", None, None),
        ({"name": "log4j", "accept": ["unicode_blanks"]}, LOG4J_BLANKS.encode(), "WARN", None),
        (PAIR, b"14:09 30.7.2017+02:00", None, "+02:00"),
        (PAIR, b"14:09 Z", None, None),
        (PAIR_AHEAD, b"on=30.7.2017 at=14:09 +02:00", None, "+02:00"),
        ("thunderbird", CATALOGUE["thunderbird"].example.encode(), None, None),
        ("text", b"x", None, None),
    ):
        line_format = parse_line_format(value, key=KEY)
        assert (level_of(line_format, line), offset_of(line_format, line)) == (level, offset), line
    assert [offset_minutes(o) for o in ("Z", "UTC", "+02:30", "-0130", "+03")] == [
        0,
        0,
        150,
        -90,
        180,
    ]


def test_what_looks_like_the_beginning_of_a_line_is_no_continuation() -> None:
    """Behind what the options skip, and also of another format."""
    log4j = CATALOGUE["log4j"]
    skipping = parse_line_format({"name": "json", "skip_bytes": 5}, key=KEY)
    for line_format, line, begins in (
        (log4j, b"\xef\xbb\xbfx", True),
        (log4j, b'{"x":NaN}', True),
        (log4j, b"<11>1 - host app - - - disk died", True),
        (log4j, b"\tat c.e.Cart(Cart.java:7)", False),
        (log4j, b"\xff", False),
        (skipping, b'\0\0\0\0\x07{"x":NaN}', True),
        (skipping, b"2017-\tat", False),
    ):
        assert begins_a_line(line_format, line) is begins, line


PAIR = {
    "pattern": r"(?<clock>\d+:\d+)(?: (?<date>[0-9.]+\d))?",
    "time_format": "d.M.yyyy H:mm",
}
PAIR_AHEAD = {"logfmt": {"clock": "at", "date": "on"}, "time_format": "d.M.yyyy H:mm"}
LOG4J_BLANKS = "2017-07-30\u00a014:09:08,123\u202fWARN x"


WRONG_PATTERNS = {
    "(?<time>…)": [r"(?<level>\w+)", r"(\S+)"],
    "no regular expression": [
        *(r"(?<time>\S+) (?<level>\w+) (?<level>\w+)", r"(?<time>\S+ (?<level>\w+)"),
        *(r"(?<time>\S+) (?<level>[z-a])", r"(?<time>\S+) (?<level>\w{3,2})"),
    ],
    "never opened": [r"(?<time>\S+)) (?<level>\w+)"],
    "character class": [r"(?<time>[0-9+) (?<level>\w+)"],
    "nothing before it": [r"* (?<time>\S+) (?<level>\w+)"],
    r"\{": [r"{x} (?<time>\S+) (?<level>\w+)"],
    "escapes": ["(?<time>\\S+) (?<level>\\w+)\\"],
    # Java would report a level from an alternative that did not match.
    "lookahead": [
        r"(?:(?=.*?(?<level>ERR|INF))x|y)(?<time>\d+)",
        r"(?=.*?(?<level>ERR|INF))x(?<time>\d+)|y",
        r"(?:(?=(?:.(?<level>ERR)))x)?(?<time>\d+)",
    ],
}


def test_a_pattern_that_is_no_regular_expression_or_lacks_a_group_is_refused() -> None:
    """The error names the key, the pattern and what is wrong with it."""
    for complaint, patterns in WRONG_PATTERNS.items():
        for pattern in patterns:
            message = refused_pattern(pattern)
            assert f"{KEY}.pattern = {pattern!r}" in message
            assert complaint in message, pattern
    # Without a level it counts at any level only, as JSON lines do: else it would count nothing.
    table = {"pattern": r"(?<time>\S+ \S+) (?<service>\w+)", "time_format": TIME_FORMAT}
    line_format = parse_line_format(table, key=KEY)
    assert (line_format.fields, line_format.has_level) == (("service",), False)
    for without, lack in ((line_format, r"no group \(\?<level>…\)"), (json_lines(), "lack level")):
        assert without.printed_levels([]) == ()
        with pytest.raises(ValueError, match=rf"{lack}.*levels = \[\]"):
            without.printed_levels(["ERROR"])


def test_what_java_and_python_read_differently_is_refused() -> None:
    """So is a repeat that one odd line could keep busy: it would stop every batch after it."""
    read_differently = r"""\p{Alpha} \h \Z \z \A \Qx\E \1 \x4 (?s) (?x:a) (?P=time) (?(1)a|b)
        (?<a_b>x) (?#note) [a-z&&[^b]] [[:alpha:]] []a] [\b] a{,3} x(?i) \ud800 \udfff"""
    for construct in read_differently.split():
        assert f"{KEY}.pattern" in refused_construct(construct), construct
    runaway = r"""(?:a+)+ (?:\w+\x20?)* (?:a|b)* (?:ab)+? (?:a*){9} (?:a|a){30} (?:ab){0,101}
        (?:ab){101} (?:(?:ab){9}c){9}"""
    for construct in runaway.split():
        assert re.search("repeats.*possessive", refused_construct(construct)), construct
    # What both read alike and in bounded time is accepted: there is a way to say the same.
    assert refused_construct("x") == ""
    for construct in (
        *(r"(?:a++)*+", r"(?:\w++ )*+", r"(?:\w++ ){0,9}", r"(?:ab){2}", r"(?:a|b)?"),
        *(r"(?>a|b){0,9}", r".*?x.*", r"\w* \w* \w* \w* x", r"(?>.*?x).*?y"),
        *(r"[a-z]*[0-9]*[-_]*x", r"\S{1,128}@\S{1,128}:", r"(?:[^,]*,){0,20}+x"),
        *(r"(?:[^\]]*\])?", r"\x41\u0042\-\.\[\]\{", r"[^\]\[\-a-f\d ]"),
        *(r"(?i:warn)(?=x)(?!y)(?<=z)(?<!z)", r"\bword\b$", r"^a|b", r"é\ud7ff\ue000"),
    ):
        assert refused_pattern(rf"(?<time>\S+ \S+) (?<level>\w+) {construct}") == "", construct


def test_parts_that_can_share_a_text_in_many_ways_are_refused() -> None:
    """The error names the parts and what keeps them apart."""
    for construct, parts in (
        *((r".*.*x", ".*"), (r".*a.*c", ".*"), (r".*(?=.*x)y", ".*"), (r"\S+@\S+ ", r"\S+")),
        *((r"\w*\w*\w*\w*\w*\w* x", r"\w*"), (r"[^c]*[^d]*c", "[^c]* and [^d]*")),
        *((r"\s+x?\s+y", r"\s+"), (r"[a-z]*[0-9]*[a-z]*_", "[a-z]*")),
        *((r"(?:\w+ ?)?(?:\w+ ?)?x", r"\w+"), (".*?\\d*+x", r".*? and \d*+")),
        *((r"(?>\w*\w*x)y", r"\w*"), (r"(?:0(?=\w*x))*+y", r"\w*"), ("a?" * 30 + "b", "a?")),
        ("(?:a|ab)" * 30 + "c", "(?:a|ab)"),
        (r"(?:ab){0,99}(?:ab){0,99}(?:ab){0,99}(?:ab){0,99}c", "(?:ab){0,99}"),
        ("é*[а-я]*é*x", "é*"),  # noqa: RUF001 - Cyrillic on purpose
        (r"(?i:a*)A*b", "a* and A*"),
        (r"[a\xe9]*[b\u00e9]*[c\xe9]*x", r"[a\xe9]* and [b\u00e9]* and [c\xe9]*"),
        (r"[\u0660-\u0669]*[\u0660-\u0669]*x", r"[\u0660-\u0669]*"),
    ):
        message = refused_construct(construct)
        assert f"share a text in many ways ({parts})" in message, construct
        assert "possessive" in message, construct


def test_what_differs_in_spelling_only_is_translated() -> None:
    """What depends on Java's version and on line ends is; no part takes the end of a line."""
    java, python = parse_pattern(PATTERN), parse_pattern(PATTERN.replace("(?<", "(?P<"))
    assert (java.java, java.python) == (python.java, python.python)
    assert java.spelling == python.spelling == PATTERN
    java = parse_pattern(PATTERN + r"\b[$.]$")
    translated = PATTERN + r"(?:(?<=\w)(?!\w)|(?<!\w)(?=\w))[$.]"
    assert (java.java, java.spelling) == (translated + r"(?![^\r\n])", translated + r"\z")
    # Where a named group ends there, and how many groups begin before that.
    java = parse_pattern(r"(?:\()(a)?(?P<clock>(\d+):$)x(?<b>y)(z)")
    end = java.java.index("x")
    assert java.ends == {"clock": (end, 3), "b": (java.java.index("(z)"), 4)}
    assert java.java[:end].endswith(r":(?![^\r\n]))")
    for pattern, of_java in (
        *((r"[a-z]\S\w\d\. x", r"[a-z]\S\w\d\. x"), (".*", r"[^\r\n]*")),
        *((r"[^\]x]+", r"[^\r\n\]x]+"), ("[^-a]", r"[^\r\n\-a]"), ("[^^]", r"[^\r\n^]")),
        *((r"\D\s", r"[\D&&[^\r\n]][\s&&[^\r\n]]"), (r"[\s,]", r"[[\s,]&&[^\r\n]]")),
        (r"\x0a", r"[\x0a&&[^\r\n]]"),
    ):
        parsed = parse_pattern(pattern)
        assert (parsed.java, parsed.spelling) == (of_java, pattern)


def test_what_a_time_format_knows() -> None:
    """Whether it has a year, an instant, positions; its shape has a group for each field."""
    for time_format, *known in (
        *(("yyyy-MM-dd HH:mm", True, False, True), ("yy-MM-dd HH:mm", True, False, True)),
        *(("MMM dd HH:mm:ss", False, False, False), ("yyyy-M-d H:m", True, False, False)),
        *(("MMM ppd HH:mm:ss yyyy", True, False, False), ("epoch_seconds", True, True, False)),
    ):
        parsed = parse_time_format(time_format)
        found = [parsed.has_year, parsed.is_epoch, parsed.is_read_by_position]
        assert found == known, time_format
    for time_format, fields in (
        ("EEE MMM ppd HH:mm:ss.SSS yyyy", "MMM dd HH mm ss yyyy"),
        *(("d.M.yy h:m a", "dd MM yy hh mm a"), ("'('MM')'dd H:mm", "MM dd HH mm")),
    ):
        parsed = parse_time_format(time_format)
        read = [part.kind for part in parsed.parts if part.is_read]
        assert " ".join(read) == fields
        assert re.compile(parsed.shape).groups == len(read)
    # Cut at its parts, a time gives its literals and, for fields, no literal at all.
    for spelling, time in (
        ("yyyy-MM-dd HH:mm:ss", "2017-07-30 14:09:08"),
        *(("yyyy-MM-dd'T'HH:mm", "2017-07-30T14:09"), ("yyMMdd HHmmss", "170730 140908")),
        ("EEE MMM dd HH:mm:ss.SSSSSS yyyy", "Sun Jul 30 14:09:08.123456 2017"),
        ("dd.MM.yyyy 'um' hh:mm a", "30.07.2017 um 02:09 PM"),
        ("yyyy''MM''dd 'o''clock' HHmm", "2017'07'30 o'clock 1409"),
    ):
        time_format = parse_time_format(spelling)
        assert time_format.width == len(time)
        pieces = [(part, time[part.position - 1 :][: part.width]) for part in time_format.parts]
        assert "".join(piece for _, piece in pieces) == time
        assert all(piece == part.literal for part, piece in pieces if part.literal)
        assert all(re.fullmatch(r"\w+", piece) for part, piece in pieces if part.letters)


WRONG_TIME_FORMATS = """
no month: yyyy-dd HH:mm
no day: yyyy-MM HH:mm
no hour: yyyy-MM-dd mm:ss
no minute: yyyy-MM-dd HH
12-hour: yyyy-MM-dd hh:mm:ss
mixes: yyyy-MM-dd HH:mm a, yyyy-MM-dd HH hh:mm a, yyyy-MM-dd H:m a
twice: yyyy-yyyy-MM-dd HH:mm, yyyy yy-MM-dd HH:mm, yyyy-MM-dd MMM HH:mm, yyyy-MM-d d HH:mm
twice: yyyy-MM-dd HH:mm:ss.S SSS, yyyy-MM-ppd dd HH:mm
Java's letters: %Y-%m-%d %H:%M:%S, %m-%d %H:%M:%S
week: YYYY-MM-dd HH:mm
day of the year: yyyy-MM-DD HH:mm
Write HH if it has two digits: yyyy-MM-dd Hmm
Write MM if it has two digits: yyyyMdd HH:mm
right before '1': yyyy-M'1'-dd HH:mm
allowed are: yyyy-MM-ppdd HH:mm, epoch, epoch_minutes, yyyy-MMMM-dd HH:mm, yyyy-MM-ddTHH:mm
wall clock: yyyy-MM-dd HH:mm:ssXXX, yyyy-MM-dd HH:mm:ss z
HH: yyyy-MM-dd kk:mm
S: yyyy-MM-dd HH:mm:ss.SSSSSSSSSS
reserves: yyyy-MM-dd[ HH:mm]
never closed: yyyy-MM-dd'T HH:mm
ASCII: yyyy年MM月dd日 HH:mm, yyyy-MM-dd\tHH:mm, yyyy-MM-dd'\t'HH:mm
"""


def test_a_time_format_that_does_not_fix_the_minute_is_refused() -> None:
    """The error names the key, the time format and what is wrong with it."""
    for complaint, _, time_formats in (w.partition(": ") for w in WRONG_TIME_FORMATS.split("\n")):
        for time_format in filter(None, time_formats.split(", ")):
            message = refused({"pattern": PATTERN, "time_format": time_format})
            prefix = f"{KEY}.time_format = {time_format!r}"
            assert prefix in message, time_format
            assert complaint in message.replace(prefix, ""), time_format


def test_the_example_of_a_pattern_format_matches_it() -> None:
    """Python finds each group in the example, and a time that has the shape of the time format."""
    for line_format in (CATALOGUE[name] for name in PATTERNS):
        found = line_format.parsed_pattern.python.match(line_format.example)
        assert found is not None, line_format.name
        assert all(found.groupdict().values())
        for group in line_format.time_names:
            time_format = line_format.parsed_time_format
            assert re.fullmatch(time_format.shape or "[0-9]+", found[group])
            assert len(found[group]) == time_format.width or not time_format.is_read_by_position
    # List, pattern and example agree; a level with names stands for what is printed.
    for line_format in (f for f in CATALOGUE.values() if f.levels):
        printed = line_format.printed_levels(line_format.levels)
        assert set(printed) == set(line_format.level_names or line_format.levels)
        found = line_format.parsed_pattern.python.match(line_format.example)
        assert found is not None, line_format.name
        assert found["level"] in printed
    assert CATALOGUE["log4j"].printed_levels(["WARN", "ERROR", "WARN"]) == ("ERROR", "WARN")
    errors = CATALOGUE["rfc5424"].printed_levels(["err"])
    assert (len(errors), {int(priority) % 8 for priority in errors}) == (24, {3})


def test_a_path_is_a_key_as_it_is_written_or_leads_into_objects() -> None:
    """The key itself first; a list names exactly the nested keys."""
    for path, *places in (
        *(("level", ("level",)), ("log.level", ("log.level",), ("log", "level"))),
        *(("a.b.c", ("a.b.c",), ("a", "b", "c")), (".a", (".a",)), ("a..b", ("a..b",))),
        *((["log.level"], ("log.level",)), (["a", "b/c", "it's"], ("a", "b/c", "it's"))),
    ):
        line_format = json_lines(level=path)
        assert line_format.paths_of("level") == tuple(places)
        assert line_format.paths_of("time") == (("ts",),)
        assert line_format.is_json
        assert not line_format.is_fixed
    # A declared field is found where it was declared, any other where its name leads.
    line_format = json_lines(level="lvl", service=["kubernetes", "labels", "app"])
    assert line_format.fields == ("level", "service")
    assert line_format.paths_of("service") == (("kubernetes", "labels", "app"),)
    assert line_format.paths_of("host.name") == (("host.name",), ("host", "name"))
    assert line_format.has_field("host.name")
    assert not line_format.has_field("time")
    for other in (CATALOGUE["fixed"], CATALOGUE["log4j"]):
        assert other.has_field("level")
        assert not other.has_field("host.name")
    # What is none is refused under the field's own name.
    for path in ("", [], [""], ["a", ""], 7, None, ["a", 7], {"a": "b"}, "'\""):
        told = refused({"json": {"time": "ts", "level": path}, "time_format": TIME_FORMAT})
        assert f"{KEY}.json.level = {path!r}: a " in told
    for fields in ({}, {"level": "level"}, "time", None, ["time"]):
        told = refused({"json": fields, "time_format": TIME_FORMAT})
        assert f"{KEY}.json = {fields!r}" in told
        assert "time among them" in told


def test_the_fingerprint_identifies_what_is_counted_in_every_release() -> None:
    """It is the same for the same meaning and differs in pattern, time format and level names."""
    base = LineFormat(name="a", pattern=PATTERN, time_format=TIME_FORMAT)
    same = replace(base, name="b", description="d", pattern=PATTERN.replace("?<", "?P<"))
    assert base.fingerprint() == same.fingerprint()
    others = [
        *(replace(base, pattern=PATTERN + " "), replace(base, time_format="yyyy/MM/dd HH:mm:ss")),
        *(replace(base, level_names={"3": "err"}), CATALOGUE["fixed"], json_lines()),
        *(json_lines(level="log.level"), json_lines(level=["log.level"])),
        *(json_lines(lvl="log.level"), replace(json_lines(), time_format="yyyy/MM/dd HH:mm")),
    ]
    assert len({f.fingerprint() for f in [base, *others]}) == 1 + len(others)
    one, other = json_lines(a="a", b="b"), json_lines(b="b", a="a")
    assert one.fingerprint() == other.fingerprint()
    # The ledger keeps it: a change here says that old counts meant something else.
    assert CATALOGUE["fixed"].fingerprint() == "fixed:1"
    assert base.fingerprint() == "pattern:1:71d080a6936c7c01"
    wanted = {"fixed": "fixed:1", "json": "json:1:de451b2f800ef3a2"}
    wanted |= {
        name: f"pattern:1:{digest}"
        for name, digest in (one.split("=") for one in FINGERPRINTS.split())
    }
    assert {name: f.fingerprint() for name, f in CATALOGUE.items()} == wanted


FINGERPRINTS = """
log4j=8f69a0f0ae1c7093 logback=1c43dc4462226dd8 spring-boot=5c30f7f4fa295b58
zookeeper=d22937a4200a3c02 kafka=3d4b43e9bc189b19 spark=2e9a5e0bace41881 hdfs=57ca7bd6a20fe388
tomcat=69e755efd907294e apache-2.2=c44a0b2fd107b526 apache-2.4=810114ca2090cc3b
nginx=af22b51c895c0b58 python=5d11a8aa932862aa airflow=7a76296e27479640
postgresql=501f60d21cad1a4b mysql=6b4c8e7b01e9f8ca elasticsearch=53f40700c25538bb
serilog=08357e52b0c4c795 rfc5424=0461ec1da70da04e logfmt=4c76089a005ec71d rfc3164=46f91892b48041df
syslog=d6824cb833dbf128 klog=3a6b517e76eb7bd0 android=5f684a7880d27c3b access=5c430a80c76f053c
glog=6b34ac43ef42794c logfmt-any=1265f3ccc7dbb664
openstack=4ffb08148d571212 windows-cbs=31a1ff2558e882f2 bgl=a5626468d393711e
thunderbird=28b733dc952a02af hpc=4faae1d7cf3dbb26 healthapp=31d22f4b74b6d279
proxifier=22da4a666c471a8c text=9be691ae203a26f6
"""
"""Of the patterns of the catalogue."""


def test_a_level_that_the_format_can_never_print_is_refused() -> None:
    """The default too: what is asked for and never counted is a mistake, beside right ones too."""
    for name, level in (
        *(("apache-2.2", "ERROR"), ("apache-2.4", "ERROR"), ("nginx", "ERROR"), ("hdfs", "Error")),
        *(("tomcat", "ERROR"), ("serilog", "ERROR"), ("rfc5424", "ERROR"), ("mysql", "NOTE")),
        *(("mysql", "WARNING"), ("postgresql", "WARN"), ("postgresql", "DEBUG1")),
        *(("elasticsearch", "WARNING"), ("kafka", "error"), ("zookeeper", "SEVERE")),
    ):
        levels = CATALOGUE[name].levels  # docs/line-formats.md lists them, too
        told = f"{level}: not a level of {name}; it has {', '.join(levels)}"
        with pytest.raises(ValueError, match=told):
            CATALOGUE[name].printed_levels([levels[0], level])
    # An application's own are allowed where there can be any and the pattern can find them.
    names = ("log4j", "logback", "spring-boot", "spark", "python", "airflow", "logfmt", "json")
    for name in names:
        assert CATALOGUE[name].printed_levels(["NOTICE", "AUDIT"]) == ("AUDIT", "NOTICE")
    for name, level in (
        *(("python", "error"), ("airflow", "Error"), ("log4j", "ERROR:")),
        *(("logback", "[ERROR]"), ("logfmt", "level=ERROR")),
    ):
        with pytest.raises(ValueError, match=f"cannot stand where {name} has its level"):
            CATALOGUE[name].printed_levels(["ERROR", level])
    custom = LineFormat(name="custom", pattern=PATTERN, time_format=TIME_FORMAT)
    for line_format in (CATALOGUE["fixed"], CATALOGUE["json"], custom):
        assert line_format.printed_levels(["[error]:"]) == ("[error]:",)


def test_the_documentation_lists_every_format_and_every_reason() -> None:
    """The page and the code say the same; the reasons stand in the ledger's dead letters, too."""
    reasons = "null-value empty-value no-match no-time time-invalid time-out-of-range no-level"
    assert " ".join(MalformedReason) == reasons
    page = text(DOCS / "line-formats.md")
    for line_format in CATALOGUE.values():
        levels = ", ".join(f"`{level}`" for level in line_format.levels)
        levels = levels or ("any" if line_format.has_level else "none")
        about = f"| `{line_format.name}` | {line_format.description} | {levels}"
        assert f"{about} | `{line_format.example}` |" in page
    _, _, malformed = page.partition("## Malformed records")
    documented = re.findall(r"^\| `([a-z-]+)` \|", malformed.partition("## ")[0], re.MULTILINE)
    assert documented == [str(reason) for reason in MalformedReason]
    assert f"first {HEAD_BYTES:,} bytes" in page
