"""Lines of a pattern as Spark expressions: a regular expression runs for each group in use."""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (what every PySpark program calls it)

from tally.config.names import LEVEL
from tally.lines.format import LineFormat
from tally.lines.options import Accepted
from tally.lines.pattern import HEAD_BYTES, TIME
from tally.lines.places import Place, place_of
from tally.lines.time_rule import OFFSET_CHARS
from tally.spark.expressions import all_of, binary, looked_up, usual_blanks, valid_text
from tally.spark.parsed_line import JudgedLine, ParsedLine, why_malformed
from tally.spark.stages import Stages
from tally.spark.time_columns import (
    TimeColumns,
    TimeReader,
    is_out_of_range,
    literal_checks,
    normalised,
    time_checks,
)
from tally.spark.time_key import TimeKey, key_by_position

_JOINT: Final = " "
"""Between the groups date and clock in the text of a time."""


class _Groups:
    """What the groups of a pattern find in the records, each looked for once.

    Args:
        value: Binary column with the record's bytes.
        line_format: With a pattern.
        stages: Where the columns go.
    """

    def __init__(self, value: Column, line_format: LineFormat, stages: Stages) -> None:
        line = valid_text(F.substring(value, 1, HEAD_BYTES))
        self._text = stages.add(usual_blanks(line, line_format.options))
        self._stages = stages
        self._pattern = line_format.parsed_pattern
        self._line_format = line_format
        self._regex = rf"\A(?:{self._pattern.java})"
        self._found: dict[str, Column] = {}

    def text(self, name: str) -> Column:
        """String: what a group took; empty where it took no part or the pattern matches nothing."""
        if name not in self._found:
            number = self._pattern.python.groupindex[name]
            column = F.regexp_extract(self._text, self._regex, number)
            self._found[name] = self._stages.add(column)
        return self._found[name]

    def time(self) -> Column:
        """Binary: the text of the time."""
        pieces = [self.text(name) for name in self._line_format.time_names]
        joined = pieces[0] if len(pieces) == 1 else F.concat_ws(_JOINT, *pieces)
        return joined.cast("binary")

    def behind_time(self) -> Column:
        """String: what stands in the line behind its time, or a beginning of it."""
        end, number = self._pattern.ends[self._line_format.last_time_name]
        java = self._pattern.java
        taken = rf"(?=([^\r\n]{{0,{OFFSET_CHARS}}}))"
        regex = rf"\A(?:{java[:end]}{taken}{java[end:]})"
        return self._stages.add(F.regexp_extract(self._text, regex, number + 1))

    def match(self) -> Column:
        """Boolean: whether the pattern matches."""
        return F.rlike(self._text, F.lit(self._regex))


def pattern_line(
    value: Column, line_format: LineFormat, times: TimeReader, *, whole: bool, needs_level: bool
) -> ParsedLine:
    """Take the records in ``value`` apart.

    Args:
        value: Binary column with the record's bytes.
        line_format: With a pattern.
        times: How the minute follows.
        whole: Whether the pattern is asked for the time even where its place is known.
        needs_level: Whether a line without a level is malformed.
    """
    groups = _Groups(value, line_format, times.stages)
    has_level = [groups.text(LEVEL) != ""] if needs_level else []
    is_clock = not (times.rule.from_record or times.rule.by_offset)
    by_position = is_clock and line_format.parsed_time_format.is_read_by_position

    def judged() -> JudgedLine:
        # A time that exists was found by the pattern. An empty record may match, but has no line.
        matches = groups.match()
        is_line = [matches, F.length(value) > 0] if times.rule.from_record else []
        time = _time(groups, line_format, times)
        well_formed = all_of([*is_line, time.exists, time.in_range, *has_level])
        return JudgedLine(
            reason=why_malformed(value, well_formed=well_formed, no_match=~matches, time=time),
            well_formed=well_formed,
            time=time.normal,
        )

    def time_key() -> TimeKey:
        if not by_position:
            return judged().time_key
        time_format = line_format.parsed_time_format
        place = None if whole else _place_of_time(line_format)
        if place is None:
            # Where the pattern does not match there is no time, and where it does there is a level.
            time = groups.time()
            return key_by_position(
                time, time_format, [F.length(time) == time_format.width, *has_level]
            )
        checks = [*(has_level or [groups.match()]), *_is_behind(value, line_format, place)]
        return key_by_position(value, time_format, checks, skip=place.before)

    def field_of(name: str) -> Column:
        text = groups.text(name)
        if name != LEVEL:
            return text
        default = line_format.options.default_level
        level = looked_up(text, line_format.level_names) if line_format.level_names else text
        return F.when(text == "", F.lit(default)).otherwise(level) if default else level

    return ParsedLine(
        judged=judged,
        time_key=time_key,
        is_at=lambda levels: groups.text(LEVEL).isin(*levels),
        fields=field_of,
    )


def _place_of_time(line_format: LineFormat) -> Place | None:
    """Where a time stands that is read by position; None where the pattern must be asked."""
    # Blanks of several bytes move it, and the record still holds them.
    if line_format.time_names != (TIME,) or Accepted.BLANKS in line_format.options:
        return None
    time_format = line_format.parsed_time_format
    return place_of(line_format.parsed_pattern.parts, TIME, time_format.chars)


def _is_behind(value: Column, line_format: LineFormat, place: Place) -> list[Column]:
    """That a character follows without which the time might stand elsewhere."""
    if not place.behind:
        return []
    there = F.substring(value, place.before + line_format.parsed_time_format.width + 1, 1)
    return [there.isin(*[binary(char.encode()) for char in sorted(place.behind)])]


def _time(groups: _Groups, line_format: LineFormat, times: TimeReader) -> TimeColumns:
    if times.rule.from_record:
        return times.of_record()
    clock = _clock(groups, line_format, times)
    return times.at_offset(clock, groups.behind_time()) if times.rule.by_offset else clock


def _clock(groups: _Groups, line_format: LineFormat, times: TimeReader) -> TimeColumns:
    text = times.stages.add(groups.time())
    time_format = line_format.parsed_time_format
    if not time_format.is_read_by_position:
        return times.of_text(text.cast("string"), line_format, whole=True)
    normal = times.stages.add(normalised(text, time_format))
    is_whole = F.length(text) == time_format.width
    return TimeColumns(
        is_missing=text == binary(line_format.absent_time.encode()),
        exists=all_of([is_whole, *literal_checks(text, time_format), *time_checks(normal)]),
        in_range=~is_out_of_range(normal),
        normal=normal,
    )
