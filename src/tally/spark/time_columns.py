r"""The time of a record as Spark expressions: normalised, and whether it exists.

A time whose fields have fixed widths and a year is read by position (:func:`normalised`).

A time that is read by position is checked by casting nineteen bytes to TIMESTAMP_NTZ. The cast
alone is too lenient (``2017-7-3``, a ``T``, a trailing blank, a zone). But when ``-`` stands fifth,
a blank eleventh, ``:`` seventeenth and a digit last, every field that it accepts has its full
width; the tests compare this with an independent implementation.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (what every PySpark program calls it)

from tally.lines.format import Accepted, LineFormat
from tally.lines.time_format import MONTHS, NORMAL, WEEKDAYS, TimeFormat, TimePart
from tally.lines.time_rule import AHEAD_MAX, FROM_RECORD, OFFSET, OFFSET_CHARS, UTC, TimeRule
from tally.spark.expressions import Stages, all_of, binary, looked_up

_MICROS: Final = 1_000_000
# 9999-12-30 23:59:59 in UTC: the last second that is in year 9999 in every time zone.
_LAST_SECOND: Final = 253_402_214_399


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeColumns:
    """When a record was written, and what may be wrong with that."""

    is_missing: Column
    """Boolean: there is no text where the time should be, or no timestamp of the record."""
    exists: Column
    """Boolean: the text is in the time format, and calendar and clock have this time."""
    in_range: Column
    """Boolean: MySQL's DATETIME holds its year."""
    normal: Column
    """Binary, starts with ``YYYY-MM-DD HH:MM:SS`` where the three above allow it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeReader:
    """Reads times in a rule's way."""

    rule: TimeRule
    """How the minute follows."""
    record_micros: Column
    """Long: microseconds from 1970 to Kafka's timestamp of the record; below 0 for none."""
    stages: Stages
    """Where columns go that are used many times."""

    def of_record(self) -> TimeColumns:
        """The record's own timestamp, in the rule's time zone."""
        is_missing = self.record_micros < 0
        seconds = F.when(~is_missing, _divided(self.record_micros, _MICROS))
        return self._of_instant(seconds, is_missing)

    def stated(
        self, text: Column, line_format: LineFormat, behind: Callable[[], Column], *, whole: bool
    ) -> TimeColumns:
        """The time that a text states.

        Args:
            text: String with the time.
            line_format: How the time is written, and what the text is when there is none.
            behind: String, what stands behind the time; asked for an offset alone.
            whole: Whether the text must end with the time; else a fraction or a zone may follow a
                written time, though no digit.
        """
        clock = self._clock(text, line_format, whole=whole)
        return self._at_offset(clock, behind()) if self.rule.by_offset else clock

    def _clock(self, text: Column, line_format: LineFormat, *, whole: bool) -> TimeColumns:
        time_format = line_format.parsed_time_format
        joints = " " * (len(line_format.time_names) - 1)  # between date and clock
        is_missing = F.coalesce(text, F.lit("")) == joints
        if time_format.is_read_by_position:
            stated, width = text.cast("binary"), time_format.width
            after = F.substring(stated, width + 1, 1)
            no_digit = (after < binary(b"0")) | (after > binary(b"9"))
            ends = F.length(stated) == width if whole else no_digit
            checks = [*literal_checks(stated, time_format), ends]
            return self._of_normal(normalised(stated, time_format), is_missing, checks)
        if time_format.is_epoch:
            accepts_exponent = Accepted.EXPONENT in line_format.options
            units = _units(text, time_format.digits_max, accepts_exponent=accepts_exponent)
            return self._of_instant(_divided(units, time_format.per_second), is_missing)
        fields = self._fields_of(text, time_format, whole=whole)
        if self.rule.assume_year == FROM_RECORD:
            is_missing |= self.record_micros < 0
            normal = F.when(self.record_micros >= 0, self._in_latest_year(fields))
        elif self.rule.assume_year is not None:
            normal = _assembled(fields, F.lit(f"{self.rule.assume_year:04d}"))
        else:
            normal = _assembled(fields)
        return self._of_normal(normal, is_missing)

    def _fields_of(
        self, text: Column, time_format: TimeFormat, *, whole: bool
    ) -> dict[str, Column]:
        r"""The fields of a time by kind, with their full widths; null without a match.

        They are cut out as lines of one text. A ``\n`` of the text itself becomes what no format
        has: none can pass itself off as a result.
        """
        end = r"\z" if whole else "(?![0-9]).*+"
        read = [part for part in time_format.parts if part.is_read]
        groups = "".join(f"\n${number}" for number, _ in enumerate(read, start=1))
        one_line = F.translate(text, "\n", "\x01")
        shape = rf"(?s)\A{time_format.shape}{end}"
        found = self.stages.add(F.split(F.regexp_replace(one_line, shape, groups), "\n"))
        fields = {}
        for number, part in enumerate(read, start=1):
            piece = F.get(found, F.lit(number))
            if part.kind != part.letters:
                piece = F.lpad(F.trim(piece), 2, "0")
            fields[part.kind] = piece
        return fields

    def _of_normal(
        self, normal: Column, is_missing: Column, checks: Sequence[Column] = ()
    ) -> TimeColumns:
        """A normalised time that exists if some checks hold besides."""
        normal = self.stages.add(normal)
        return TimeColumns(
            is_missing=is_missing,
            exists=all_of([*checks, is_normalised(normal)]),
            in_range=~is_out_of_range(normal),
            normal=normal,
        )

    def _at_offset(self, clock: TimeColumns, behind: Column) -> TimeColumns:
        """The instant that a wall clock states with the offset after it, in the rule's time zone.

        Args:
            clock: What the line prints.
            behind: String, what stands behind it.
        """
        offset = self.stages.add(F.regexp_extract(behind, OFFSET, 1))
        digits = F.rpad(F.regexp_replace(offset, "[^0-9]", ""), 4, "0")
        minutes = F.substring(digits, 1, 2).cast("int") * 60 + F.substring(digits, 3, 2).cast("int")
        back = F.when(offset.startswith("-"), minutes).otherwise(-minutes)
        shown = self._shown(F.timestamp_add("MINUTE", back, timestamp(clock.normal)))
        shown = self.stages.add(shown)
        return TimeColumns(
            is_missing=clock.is_missing,
            exists=clock.exists & (offset != ""),
            in_range=~is_out_of_range(shown),
            normal=shown,
        )

    def _shown(self, instant: Column) -> Column:
        """A time in UTC as the normalised time of the rule's zone."""
        if self.rule.zone_name != UTC:
            instant = F.convert_timezone(F.lit(UTC), F.lit(self.rule.zone_name), instant)
        return instant.cast("string").cast("binary")

    def _of_instant(self, seconds: Column, is_missing: Column) -> TimeColumns:
        return TimeColumns(
            is_missing=is_missing,
            exists=seconds.isNotNull(),
            in_range=seconds <= _LAST_SECOND,
            normal=self._shown(_since_1970(F.least(seconds, F.lit(_LAST_SECOND)))),
        )

    def _in_latest_year(self, fields: Mapping[str, Column]) -> Column:
        """The time in the latest year in which it is not too far ahead of the record.

        It may be the year before, no earlier: a line is not kept for longer.
        """
        ahead_s = int(AHEAD_MAX.total_seconds())
        seconds = _divided(self.record_micros, _MICROS) + ahead_s
        latest = _since_1970(F.least(seconds, F.lit(_LAST_SECOND))).cast("string").cast("binary")
        limit = self.stages.add(latest)
        year = F.substring(limit, 1, 4).cast("string")
        this = self.stages.add(_assembled(fields, year))
        before = _assembled(fields, (year.cast("int") - 1).cast("string"))
        return F.when(is_normalised(this) & (this <= limit), this).otherwise(before)


def minute_of(time: Column) -> Column:
    """The minute of a normalised time, as a string ``YYYY-MM-DD HH:MM:00``."""
    return F.concat(F.substring(time, 1, 16).cast("string"), F.lit(":00"))


def is_out_of_range(time: Column) -> Column:
    """Whether a normalised time lies in a year below 1000."""
    return time < binary(b"1")


def _divided(number: Column, divisor: int) -> Column:
    """The integer quotient of a number that is not negative."""
    return number if divisor == 1 else F.call_function("div", number, F.lit(divisor))


def _units(text: Column, digits_max: int, *, accepts_exponent: bool) -> Column:
    """The whole units of a number since 1970; null when it is none, or too long."""
    digits = F.regexp_extract(text, rf"\A([0-9]{{1,{digits_max}}})(?:\.[0-9]+)?\z", 1)
    units = digits.try_cast("bigint")
    if not accepts_exponent:
        return units
    # Exact: no more digits after the point than the type has.
    written = F.regexp_extract(text, r"\A[0-9]{1,18}(?:\.[0-9]{1,18})?[eE]\+?[0-9]{1,2}\z", 0)
    whole = F.floor(written.try_cast("decimal(38,18)"))
    in_digits = whole < F.lit(Decimal(10**digits_max))  # with 19 digits no long holds the bound
    return F.coalesce(units, F.when(in_digits, whole.try_cast("bigint")))


def behind_time(text: Column, time_format: TimeFormat) -> Column:
    """What follows in a text after the time that it starts with; anything where it has none."""
    if time_format.width:
        return F.substring(text, time_format.width + 1, OFFSET_CHARS)
    return F.regexp_replace(text, rf"(?s)\A{time_format.shape}(?![0-9])", "")


def _since_1970(seconds: Column) -> Column:
    return F.timestamp_add("SECOND", seconds, F.lit("1970-01-01 00:00:00").cast("timestamp_ntz"))


def time_checks(line: Column) -> list[Column]:
    """That binary ``line`` starts with a time that exists; see the module's docstring."""
    last = F.substring(line, 19, 1)
    return [
        F.substring(line, 5, 1) == binary(b"-"),
        F.substring(line, 11, 1) == binary(b" "),
        F.substring(line, 17, 1) == binary(b":"),
        last >= binary(b"0"),
        last <= binary(b"9"),
        timestamp(line).isNotNull(),
    ]


def is_normalised(time: Column) -> Column:
    """Whether all of binary ``time`` is a time that exists, as Spark itself writes it.

    The checks above read ``time`` once for each; where it is a large expression, the plan would
    grow with them.
    """
    return timestamp(time).cast("string").cast("binary") == time


def timestamp(line: Column) -> Column:
    """The first nineteen bytes as a time; null when Spark finds none in them."""
    return F.substring(line, 1, 19).cast("string").try_cast("timestamp_ntz")


def literal_checks(text: Column, time_format: TimeFormat) -> list[Column]:
    """That literals, fractions and weekdays of a time stand where they should.

    Not those within :func:`normalised` where that is cut out of the text: the question whether such
    a time exists answers for them, too.

    Args:
        text: Binary, starts with the time.
        time_format: How it is written.
    """
    checks = []
    for part in time_format.parts:
        if time_format.is_normal and part.position <= len(NORMAL):
            continue
        piece = _piece(text, part)
        if part.literal:
            checks.append(piece == F.lit(part.literal))
        elif part.letters == "EEE":
            checks.append(piece.isin(*WEEKDAYS))
        elif part.letters[0] == "S":
            checks.append(piece.rlike(rf"\A[0-9]{{{part.width}}}\z"))
    return checks


def normalised(text: Column, time_format: TimeFormat) -> Column:
    """The time as binary ``YYYY-MM-DD HH:MM:SS``; null or misshapen when a field is.

    Args:
        text: Binary, starts with the time.
        time_format: How it is written.
    """
    if time_format.is_normal:
        return F.substring(text, 1, len(NORMAL))
    fields = {part.letters: _piece(text, part) for part in time_format.parts if part.letters}
    return _assembled(fields)


def _assembled(fields: Mapping[str, Column], year: Column | None = None) -> Column:
    """The normalised time of fields by kind; without a year theirs."""
    if year is None:
        year = fields["yyyy"] if "yyyy" in fields else F.concat(F.lit("20"), fields["yy"])
    month = _month_number(fields["MMM"]) if "MMM" in fields else fields["MM"]
    hour = _hour_of_day(fields["hh"], fields["a"]) if "hh" in fields else fields["HH"]
    second = fields.get("ss", F.lit("00"))
    dash, colon = F.lit("-"), F.lit(":")
    day = F.concat(year, dash, month, dash, fields["dd"])
    clock = F.concat(hour, colon, fields["mm"], colon, second)
    return F.concat(day, F.lit(" "), clock).cast("binary")


def _month_number(name: Column) -> Column:
    """The month from 01 to 12; null when the name is none."""
    return looked_up(name, {month: f"{number:02d}" for number, month in enumerate(MONTHS, start=1)})


def _hour_of_day(hour: Column, marker: Column) -> Column:
    """The hour from 00 to 23 of a 12-hour clock; null when hour or marker is none."""
    hours = {
        f"{twelve:02d}{half}": f"{twelve % 12 + noon:02d}"
        for half, noon in (("AM", 0), ("am", 0), ("PM", 12), ("pm", 12))
        for twelve in range(1, 13)
    }
    return looked_up(F.concat(hour, marker), hours)


def _piece(text: Column, part: TimePart) -> Column:
    return F.substring(text, part.position, part.width).cast("string")
