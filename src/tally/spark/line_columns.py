r"""Line formats as Spark expressions: built-in ones only, no Python in the executors.

The fixed layout is read by byte positions. Of a pattern, a regular expression runs for each group
in use. JSON is in :mod:`tally.spark.json_columns`.

No expression asks for the session's time zone, a locale or the time parser policy, and none raises
under ANSI mode, so the result depends on the record and the configuration alone. JSON needs a
setting of :data:`tally.spark.session.SESSION_DEFAULTS`.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (what every PySpark program calls it)

from tally.config.names import LEVEL
from tally.config.pipeline import Pipeline
from tally.lines.format import BYTE_ORDER_MARK, Accepted, LineOptions
from tally.lines.pattern import HEAD_BYTES, TIME
from tally.lines.places import Place, place_of
from tally.lines.time_format import NORMAL, TimeFormat, parse_time_format
from tally.lines.time_rule import OFFSET_CHARS
from tally.spark import expressions as ex
from tally.spark import time_columns
from tally.spark.json_columns import JsonLine
from tally.spark.line import Line, TimeKey
from tally.spark.time_columns import TimeColumns, TimeReader

_TO_THE_END: Final = 2**31 - 1
_SHAPE: Final = r"\A[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\z"
_TIME: Final = parse_time_format(NORMAL)
_LEVEL: Final = r"\A[^ \t\r\n]*+"
_LEVEL_ENDS: Final = (b" ", b"\t", b"\r", b"\n", b"")
_JOINT: Final = " "
"""Between the groups date and clock in the text of a time."""


class FixedLine(Line):
    """A line of the fixed layout."""

    def __post_init__(self) -> None:
        """Cut out the level, as many bytes as the longest one takes."""
        # Spark cuts them out once for both questions.
        width = max((len(level.encode()) for level in self.printed_levels), default=0) + 2
        self._before_level = F.substring(self.value, 20, width)

    def stated_time(self) -> TimeColumns:
        """By position."""
        value = self.value
        return TimeColumns(
            is_missing=~F.substring(value, 1, 19).cast("string").rlike(_SHAPE),
            exists=ex.all_of(time_columns.time_checks(value)),
            in_range=value >= ex.binary(b"1"),
            normal=value,
        )

    def no_match(self) -> Column:
        """Never: what is wrong is the time or the level."""
        return F.lit(False)

    def is_line(self) -> list[Column]:
        """An empty record has no time of its own."""
        return [F.length(self.value) > 0] if self.times.rule.from_record else []

    def has_level(self) -> Column:
        """A blank and a word follow the time."""
        return ex.all_of(
            [self._before_level >= ex.binary(b" !"), self._before_level < ex.binary(b"!")]
        )

    def is_at_level(self) -> Column:
        """By comparing bytes."""
        return ex.any_of(map(self._is_level, self.printed_levels))

    def field(self, name: str) -> Column:  # noqa: ARG002 - there is but the level
        """No label is longer than some hundred characters: the level is looked for no further."""
        rest = ex.valid_text(F.substring(self.value, 21, HEAD_BYTES))
        return F.when(self.has_level(), F.regexp_extract(rest, _LEVEL, 0))

    def time_key(self) -> TimeKey:
        """By position."""
        if self.times.rule.from_record:
            return self.minute_key()
        return key_by_position(self.value, _TIME, self.level_checks())

    def _is_level(self, level: str) -> Column:
        """Whether a blank, ``level`` and the end of the word follow the time."""
        word, before = b" " + level.encode(), self._before_level
        # Two comparisons rule out nearly all other levels; every end sorts before "!".
        may_be = (before >= ex.binary(word)) & (before < ex.binary(word + b"!"))
        with_end = F.substring(self.value, 20, len(word) + 1)
        return may_be & with_end.isin(*[ex.binary(word + end) for end in _LEVEL_ENDS])


class PatternLine(Line):
    """A line that a pattern matches; each of its groups is looked for once."""

    def __post_init__(self) -> None:
        """Take the head of the line as text."""
        line = ex.valid_text(F.substring(self.value, 1, HEAD_BYTES))
        self._text = self.stages.add(ex.usual_blanks(line, self.line_format.options))
        self._pattern = self.line_format.parsed_pattern
        self._regex = rf"\A(?:{self._pattern.java})"
        self._found: dict[str, Column] = {}

    def stated_time(self) -> TimeColumns:
        """In the groups of the time."""
        text = self._time_text()
        return self.times.stated(text, self.line_format, self._behind_time, whole=True)

    def no_match(self) -> Column:
        """Whether the pattern does not match."""
        return ~self._match()

    def is_line(self) -> list[Column]:
        """A time that exists was found by the pattern. An empty record may match, but has no line.

        Without a time in the line, both are asked.
        """
        if not self.times.rule.from_record:
            return []
        return [self._match(), F.length(self.value) > 0]

    def has_level(self) -> Column:
        """Whether the group took a text."""
        return self._group(LEVEL) != ""

    def is_at_level(self) -> Column:
        """By the words that are printed."""
        return self._group(LEVEL).isin(*self.printed_levels)

    def field(self, name: str) -> Column:
        """The text of a group; a level by its name, or the default one."""
        text = self._group(name)
        if name != LEVEL:
            return text
        names, default = self.line_format.level_names, self.line_format.options.default_level
        level = ex.looked_up(text, names) if names else text
        return F.when(text == "", F.lit(default)).otherwise(level) if default else level

    def is_cut(self, name: str) -> Column:
        """Whether the text of a group ends where the head of a longer line does."""
        end, number = self._pattern.ends[name]
        java = self._pattern.java
        regex = rf"\A(?:{java[:end]}(?=([\s\S]?)){java[end:]})"
        is_last = F.regexp_extract(self._text, regex, number + 1) == ""
        return (F.length(self.value) > HEAD_BYTES) & (self._group(name) != "") & is_last

    def time_key(self) -> TimeKey:
        """By position, where the time format allows it: in the record, or in what a group took."""
        if self.times.rule.from_record or self.times.rule.by_offset:
            return self.minute_key()
        time_format = self.line_format.parsed_time_format
        if not time_format.is_read_by_position:
            return self.minute_key()
        place = self._place_of_time()
        if place is None:
            # Where the pattern does not match there is no time, and where it does there is a level.
            time = self._time_text().cast("binary")
            checks = [F.length(time) == time_format.width, *self.level_checks()]
            return key_by_position(time, time_format, checks)
        checks = [*(self.level_checks() or [self._match()]), *self._is_behind(place)]
        return key_by_position(self.value, time_format, checks, skip=place.before)

    def _group(self, name: str) -> Column:
        """String: what a group took; empty where it took no part or the pattern matches nothing."""
        if name not in self._found:
            number = self._pattern.python.groupindex[name]
            column = F.regexp_extract(self._text, self._regex, number)
            self._found[name] = self.stages.add(column)
        return self._found[name]

    def _match(self) -> Column:
        return F.rlike(self._text, F.lit(self._regex))

    def _time_text(self) -> Column:
        pieces = [self._group(name) for name in self.line_format.time_names]
        if len(pieces) == 1:
            return pieces[0]
        return self.stages.add(F.concat_ws(_JOINT, *pieces))

    def _behind_time(self) -> Column:
        """String: what follows the time in the line, or a beginning of it."""
        end, number = self._pattern.ends[self.line_format.last_time_name]
        java = self._pattern.java
        taken = rf"(?=([^\r\n]{{0,{OFFSET_CHARS}}}))"
        regex = rf"\A(?:{java[:end]}{taken}{java[end:]})"
        return self.stages.add(F.regexp_extract(self._text, regex, number + 1))

    def _place_of_time(self) -> Place | None:
        """Where a time stands that is read by position; None where the pattern must be asked."""
        # Blanks of several bytes move it, and the record still holds them.
        if self.line_format.time_names != (TIME,) or Accepted.BLANKS in self.line_format.options:
            return None
        return place_of(self._pattern.parts, TIME, self.line_format.parsed_time_format.chars)

    def _is_behind(self, place: Place) -> list[Column]:
        """That a character follows without which the time might stand elsewhere."""
        if not place.behind:
            return []
        end = place.before + self.line_format.parsed_time_format.width
        chars = [ex.binary(char.encode()) for char in sorted(place.behind)]
        return [F.substring(self.value, end + 1, 1).isin(*chars)]


def key_by_position(
    text: Column, time_format: TimeFormat, checks: Sequence[Column], *, skip: int = 0
) -> TimeKey:
    """The key of a time that is read by position: its text, with zeros for what no minute needs.

    That is the last digit of the seconds, and those of a fraction. The first digit of the seconds
    stays: six keys for each minute cost less than two more comparisons for each record.

    Args:
        text: Binary, holds the time.
        time_format: How it is written.
        checks: What must hold besides for the record to be well-formed.
        skip: Bytes that stand before it.
    """
    pieces: list[Column] = []
    digits: list[Column] = []
    at = 1
    for part in time_format.parts:
        if part.letters != "ss" and not part.letters.startswith("S"):
            continue
        end = part.position + part.width
        dropped = end - 1 if part.letters == "ss" else part.position
        if dropped > at:
            pieces.append(F.substring(text, at + skip, dropped - at))
        pieces.append(ex.binary(b"0" * (end - dropped)))
        digits += _are_digits(F.substring(text, dropped + skip, end - dropped), end - dropped)
        at = end
    if rest := time_format.width + 1 - at:
        pieces.append(F.substring(text, at + skip, rest))
    elif digits:
        del pieces[-1]  # zeros at the end are added to each key, not to each record

    def minute(key: Column, stages: ex.Stages) -> Column:
        time = key.cast("binary")
        if digits and not rest:
            time = F.rpad(time, time_format.width, ex.binary(b"0"))
        time = stages.add(time)
        normal = stages.add(time_columns.normalised(time, time_format))
        exists = [
            F.length(time) == time_format.width,
            *time_columns.literal_checks(time, time_format),
            time_columns.is_normalised(normal),
            ~time_columns.is_out_of_range(normal),
        ]
        return F.when(ex.all_of(exists), time_columns.minute_of(normal))

    key = (pieces[0] if len(pieces) == 1 else F.concat(*pieces)).cast("string")
    # What is always evaluated first: Spark shares its parts with other columns.
    conditions = [*checks, *digits]
    return TimeKey(
        of_record=F.when(ex.all_of(conditions), key) if conditions else key, minute=minute
    )


def _are_digits(piece: Column, width: int) -> list[Column]:
    if width > 1:
        return [piece.cast("string").rlike(rf"\A[0-9]{{{width}}}\z")]
    return [piece >= ex.binary(b"0"), piece <= ex.binary(b"9")]


def read_line(pipeline: Pipeline, topic: str | None = None, *, each: bool = False) -> Line:
    """The columns for records of Spark's Kafka source.

    Args:
        pipeline: How they are understood.
        topic: The topic of all of them; None when the records say it.
        each: See :attr:`tally.spark.line.Line.each`.
    """
    stages, line_format = ex.Stages(), pipeline.format
    kinds = ((line_format.is_fixed, FixedLine), (line_format.is_json, JsonLine))
    kind = next((kind for is_it, kind in kinds if is_it), PatternLine)
    micros = F.unix_micros(F.col("timestamp"))
    return kind(
        pipeline=pipeline,
        line_format=line_format,
        each=each,
        value=_line_of(F.col("value"), line_format.options, stages),
        record={
            "topic": F.col("topic") if topic is None else F.lit(topic),
            "partition": F.col("partition").cast("string"),
            "key": F.col("key").cast("string"),
        },
        times=TimeReader(rule=pipeline.time_rule, record_micros=micros, stages=stages),
    )


def _line_of(value: Column, options: LineOptions, stages: ex.Stages) -> Column:
    """A record's value without what stands before its line."""
    line = value
    if options.skip_bytes:
        line = F.substring(value, options.skip_bytes + 1, _TO_THE_END)
    if Accepted.BYTE_ORDER_MARK in options:
        marked = F.substring(line, 1, len(BYTE_ORDER_MARK)) == ex.binary(BYTE_ORDER_MARK)
        rest = F.substring(line, len(BYTE_ORDER_MARK) + 1, _TO_THE_END)
        line = F.when(marked, rest).otherwise(line)
    return value if line is value else stages.add(line)
