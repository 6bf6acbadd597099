"""What Python reads in a line: the shapes of times, and the values of filters."""

import pytest

from tally.aggregates.judgement import is_value
from tally.lines.parsing import CATALOGUE
from tally.lines.reading import shape_of
from tally.lines.time_format import MONTHS, parse_time_format

_DATE = r"(?P<Y>\d{4})-(?P<m>\d\d)-(?P<d>\d\d)"
_CLOCK = r"(?P<H>\d\d):(?P<M>\d\d):(?P<S>\d\d)"

_NAMED = rf"(?P<b>{'|'.join(MONTHS)})"
_WEEKDAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
SHAPES = {
    "yyyy-MM-dd HH:mm:ss": rf"{_DATE} {_CLOCK}",
    "yyyy-MM-dd'T'HH:mm:ss": rf"{_DATE}T{_CLOCK}",
    "yyyy/MM/dd HH:mm:ss": rf"(?P<Y>\d{{4}})/(?P<m>\d\d)/(?P<d>\d\d) {_CLOCK}",
    "yy/MM/dd HH:mm:ss": rf"(?P<y>\d\d)/(?P<m>\d\d)/(?P<d>\d\d) {_CLOCK}",
    "yyMMdd HHmmss": r"(?P<y>\d\d)(?P<m>\d\d)(?P<d>\d\d) (?P<H>\d\d)(?P<M>\d\d)(?P<S>\d\d)",
    "dd-MMM-yyyy HH:mm:ss": rf"(?P<d>\d\d)-{_NAMED}-(?P<Y>\d{{4}}) {_CLOCK}",
    "dd/MMM/yyyy:HH:mm:ss": rf"(?P<d>\d\d)/{_NAMED}/(?P<Y>\d{{4}}):{_CLOCK}",
    "EEE MMM dd HH:mm:ss yyyy": rf"{_WEEKDAY} {_NAMED} (?P<d>\d\d) {_CLOCK} (?P<Y>\d{{4}})",
    "EEE MMM dd HH:mm:ss.SSSSSS yyyy": rf"{_WEEKDAY} {_NAMED} (?P<d>\d\d) {_CLOCK}\.\d{{6}} "
    r"(?P<Y>\d{4})",
    "dd.MM.yyyy 'at' hh:mm a": r"(?P<d>\d\d)\.(?P<m>\d\d)\.(?P<Y>\d{4}) at (?P<I>\d\d):(?P<M>\d\d) "
    r"(?P<p>[AP]M|[ap]m)",
    "yyyy-MM-dd-HH.mm.ss": rf"{_DATE}-(?P<H>\d\d)\.(?P<M>\d\d)\.(?P<S>\d\d)",
    "yyyyMMdd-H:m:s": r"(?P<Y>\d{4})(?P<m>\d\d)(?P<d>\d\d)-(?P<H>\d\d?):(?P<M>\d\d?):(?P<S>\d\d?)",
    "d.M.yy h:m a": r"(?P<d>\d\d?)\.(?P<m>\d\d?)\.(?P<y>\d\d) (?P<I>\d\d?):(?P<M>\d\d?) "
    r"(?P<p>[AP]M|[ap]m)",
    "M/d/yy h:mm:ss a": r"(?P<m>\d\d?)/(?P<d>\d\d?)/(?P<y>\d\d) (?P<I>\d\d?):(?P<M>\d\d):"
    r"(?P<S>\d\d) (?P<p>[AP]M|[ap]m)",
    "d.M.yyyy H:mm": r"(?P<d>\d\d?)\.(?P<m>\d\d?)\.(?P<Y>\d{4}) (?P<H>\d\d?):(?P<M>\d\d)",
    "yyyyMMddHHmm": r"(?P<Y>\d{4})(?P<m>\d\d)(?P<d>\d\d)(?P<H>\d\d)(?P<M>\d\d)",
    "yyyy-MM-dd HH:mm": rf"{_DATE} (?P<H>\d\d):(?P<M>\d\d)",
    "yyyyMMdd HH:mm:ss": rf"(?P<Y>\d{{4}})(?P<m>\d\d)(?P<d>\d\d) {_CLOCK}",
    "MMM ppd HH:mm:ss": rf"{_NAMED} (?P<d> \d|\d\d) {_CLOCK}",
    "MMM d HH:mm:ss": rf"{_NAMED} (?P<d>\d\d?) {_CLOCK}",
    "MMdd HH:mm:ss": rf"(?P<m>\d\d)(?P<d>\d\d) {_CLOCK}",
    "MM-dd HH:mm:ss": rf"(?P<m>\d\d)-(?P<d>\d\d) {_CLOCK}",
    "MM.dd HH:mm:ss": rf"(?P<m>\d\d)\.(?P<d>\d\d) {_CLOCK}",
}


def test_the_shape_of_a_time_follows_from_its_format() -> None:
    """As it was written down by hand, also of each ready-made format."""
    for text, shape in SHAPES.items():
        found = shape_of(parse_time_format(text)).pattern
        for digits, short in (("{1,2}", r"\d\d?"), ("{2}", r"\d\d"), ("{4}", r"\d{4}")):
            found = found.replace(f"[0-9]{digits}", short)
        found = found.replace("[0-9]", r"\d").replace(r"\ ", " ")
        for sign in "-/:":
            found = found.replace(f"\\{sign}", sign)
        assert found == shape + r"\Z", text
    formats = [line_format.time_format for line_format in CATALOGUE.values()]
    assert [one for one in formats if one and one not in SHAPES and "epoch" not in one] == []


@pytest.mark.parametrize(
    ("value", "yes", "no"),
    [
        ("5*", ("5", "50", "5\n"), ("", "15")),
        ("*", ("", "x"), ()),
        ("a*b", ("ab", "axb"), ("a", "b", "abc")),
        ("a*a", ("aa", "aba"), ("a",)),
        ("a*b*c", ("abc", "abbc", "a\nb c"), ("acb", "ab", "ac")),
        ("a**b", ("ab",), ("a",)),
        ("ab*bc", ("abbc",), ("abc",)),
        ("x", ("x",), ("xx", "")),
        ("", ("",), ("x",)),
    ],
)
def test_a_star_in_a_filter_stands_for_any_characters(
    value: str, yes: tuple[str, ...], no: tuple[str, ...]
) -> None:
    """Its parts follow one another, and do not overlap."""
    assert [text for text in yes if not is_value(text, value)] == []
    assert [text for text in no if is_value(text, value)] == []
