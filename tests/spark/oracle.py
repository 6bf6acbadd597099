"""What Python makes of a record (:mod:`tally.lines.reading`), as reason and minute."""

from tally.lines.format import LineFormat
from tally.lines.reading import NO_TIMESTAMP, read_line
from tally.lines.time_rule import WALL_CLOCK, TimeRule

Outcome = tuple[str | None, str | None]
"""Reason and minute."""


def expected(
    value: bytes | None,
    line_format: LineFormat,
    levels: set[str],
    rule: TimeRule = WALL_CLOCK,
    micros: int = NO_TIMESTAMP,
) -> Outcome:
    """Reason and minute of one record; ``micros`` is its timestamp."""
    read = read_line(value, line_format, rule, micros, needs_level=bool(levels))
    is_counted = read.reason is None and (not levels or read.level in levels)
    return read.reason, read.minute if is_counted else None
