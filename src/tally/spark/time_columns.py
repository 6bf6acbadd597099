r"""The time of a line as Spark expressions: normalised, and whether it exists.

The time is checked by casting nineteen bytes to TIMESTAMP_NTZ. The cast alone is too lenient
(``2017-7-3``, a ``T``, a trailing blank, a zone). But when ``-`` stands fifth, a blank eleventh,
``:`` seventeenth and a digit last, every field that it accepts has its full width; the tests
compare this with an independent implementation.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (what every PySpark program calls it)

from tally.lines.time_format import MONTHS, WEEKDAYS, TimeFormat, TimePart
from tally.spark.expressions import binary, looked_up


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


def literal_checks(text: Column, time_format: TimeFormat, *, skip: int = 0) -> list[Column]:
    """That literals, fractions and weekdays of a time stand where they should.

    Args:
        text: Binary, holds the time.
        time_format: How it is written.
        skip: Bytes that stand before it.
    """
    checks = []
    for part in time_format.parts:
        piece = _piece(text, part, skip)
        if part.literal:
            checks.append(piece == F.lit(part.literal))
        elif part.letters == "EEE":
            checks.append(piece.isin(*WEEKDAYS))
        elif part.letters[0] == "S":
            checks.append(piece.rlike(rf"\A[0-9]{{{part.width}}}\z"))
    return checks


def normalised(text: Column, time_format: TimeFormat, *, skip: int = 0) -> Column:
    """The time as binary ``YYYY-MM-DD HH:MM:SS``; null or misshapen when a field is.

    Args:
        text: Binary, holds the time.
        time_format: How it is written.
        skip: Bytes that stand before it.
    """
    fields = {part.letters: _piece(text, part, skip) for part in time_format.parts if part.letters}
    year = fields.get("yyyy")
    if year is None:
        year = F.concat(F.lit("20"), fields["yy"])
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


def _piece(text: Column, part: TimePart, skip: int) -> Column:
    return F.substring(text, part.position + skip, part.width).cast("string")
