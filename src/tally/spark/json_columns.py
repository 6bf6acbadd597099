"""JSON lines as Spark expressions: each record is parsed once, then its fields are looked up.

``from_json`` is not used: it reads no further than the end of the first document, keeps an object
that a later duplicate of another type should replace, and prints numbers as 64-bit floats.
"""

from functools import partial
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (what every PySpark program calls it)

from tally.config.names import LEVEL
from tally.lines.format import Accepted, JsonPath, LineOptions
from tally.spark.expressions import REPLACED, all_of, any_of, usual_blanks, valid_text
from tally.spark.line import Line
from tally.spark.time_columns import TimeColumns, behind_time

RECORD_END: Final = "807365129044172659"
"""The digits of a number that follows each record, in an array with it.

Spark stops reading where the outermost value ends. This number is the second element only where all
of the record is one value. A number can be written in one way only (a string could be escaped), so
a record without these digits cannot put the number there itself; one that has them is malformed.
"""


class JsonLine(Line):
    """A JSON document."""

    def __post_init__(self) -> None:
        """Parse it, followed by :data:`RECORD_END`."""
        stages = self.stages
        text = stages.add(readable(valid_text(self.value), self.line_format.options))
        document = F.concat(F.lit("["), text, F.lit(f",{RECORD_END}]"))
        self._parsed = stages.add(F.try_parse_json(document))
        # As JSON a string has its quotes: only the number itself is equal.
        second = F.to_json(F.try_variant_get(self._parsed, "$[1]", "variant"))
        self._is_whole = all_of([second == RECORD_END, ~F.contains(text, F.lit(RECORD_END))])
        self._is_object = F.try_variant_get(self._parsed, "$[0]", "map<string,variant>").isNotNull()

    def stated_time(self) -> TimeColumns:
        """What the text of a field starts with, or date and clock with a blank between them."""
        line_format, stages = self.line_format, self.stages
        texts = [self._stated(name) for name in line_format.time_names]
        text = texts[0] if len(texts) == 1 else F.array_join(F.array(*texts), " ", "")
        text = stages.add(usual_blanks(text, line_format.options))
        behind = partial(behind_time, text, line_format.parsed_time_format)
        return self.times.stated(text, line_format, behind, whole=False)

    def no_match(self) -> Column:
        """Whether it is anything but one whole object."""
        return ~F.coalesce(self._is_whole & self._is_object, F.lit(False))

    def is_line(self) -> list[Column]:
        """An object before all else: any path of another document has no value."""
        return [self._is_whole, *([self._is_object] if self.times.rule.from_record else [])]

    def has_level(self) -> Column:
        """Whether a field of the level has a text."""
        return F.length(self.field(LEVEL)) > 0

    def is_at_level(self) -> Column:
        """By the words that are printed; '' stands for the default level."""
        level, levels = self._stated(LEVEL), self.printed_levels
        return (F.coalesce(level, F.lit("")) if "" in levels else level).isin(*levels)

    def field(self, name: str) -> Column:
        """The first of its paths that has a value; a level may have a default one."""
        text, default = self._stated(name), self.line_format.options.default_level
        if name != LEVEL or not default:
            return text
        return F.coalesce(F.nullif(text, F.lit("")), F.lit(default))

    def is_written_so(self, text: Column) -> Column:
        """Nothing was replaced in the record, and no number rounded."""
        record = valid_text(self.value)
        is_unchanged = readable(record, self.line_format.options) == record
        return all_of([is_unchanged, ~F.contains(text, F.lit(REPLACED)), ~text.rlike(_ROUNDED)])

    def _stated(self, name: str) -> Column:
        return F.coalesce(*[_at(self._parsed, path) for path in self.line_format.paths_of(name)])


# A number of more digits than Spark keeps is read as a double, whose text shows nothing of that; it
# may be in an array or an object.
_ROUNDED: Final = (
    r"^-?([0-9]*\.[0-9]+(E-?[0-9]+)?|Infinity|NaN)$|(?s)^[\[{].*([0-9]\.[0-9]|Infinity|NaN)"
)


def readable(text: Column, options: LineOptions) -> Column:
    """A document as Spark reads it in the way of ``docs/line-formats.md``."""
    text = _without_odd_escapes(text)
    if Accepted.NAN not in options:
        return text
    may_have = F.contains(text, F.lit("NaN")) | F.contains(text, F.lit("Infinity"))
    return F.when(may_have, F.regexp_replace(text, _NO_NUMBER, "$1null")).otherwise(text)


# From the last one on, so that no string is looked into.
_NO_NUMBER: Final = (
    r'(?s)\G((?:[^"NI-]++|"(?:[^"\\]|\\.)*+"|-(?!Infinity))*+)(?:NaN|-?Infinity)(?![A-Za-z0-9])'
)


def _without_odd_escapes(text: Column) -> Column:
    r"""A document without the escapes that Spark reads in a way of its own.

    ``?`` stands for each escape of half a surrogate pair: Spark sorts an object's keys with their
    halves, stores ``?`` for each, and searches among 32 and more keys by order, so it would miss
    keys of such an object. An escape with a digit beyond ASCII is made one that no JSON has: of
    such a digit Spark looks at the last eight bits alone, so ``\u004ĵ`` would be ``E``.
    """
    # So that a backslash before "u" is never the second one of an escaped backslash.
    separate = F.regexp_replace(text, r"\\\\", r"\\u005c")
    usual = F.regexp_replace(F.regexp_replace(separate, _HALF, "?"), _BEYOND, r"\\x")
    may_have = F.contains(text, F.lit(r"\u")) & any_of(
        [
            F.contains(text, F.lit(r"\ud")),
            F.contains(text, F.lit(r"\uD")),
            F.rlike(text, F.lit(_BEYOND)),
        ]
    )
    return F.when(may_have, usual).otherwise(text)


_HIGH: Final = r"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW: Final = r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF: Final = rf"{_HIGH}(?!{_LOW})|(?<!{_HIGH}){_LOW}"
_BEYOND: Final = r"\\u(?=[0-9a-fA-F]{0,3}[^\x00-\x7f])"


def _at(parsed: Column, path: JsonPath) -> Column:
    """The value at a path of the record's object as a string; null when there is none."""
    keys = "".join(f'["{key}"]' if "'" in key else f"['{key}']" for key in path)
    return F.try_variant_get(parsed, f"$[0]{keys}", "string")
