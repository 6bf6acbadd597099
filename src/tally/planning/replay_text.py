"""Parsing ranges, times and minutes: one grammar for the command line, forms and files."""

import re
from datetime import UTC, datetime
from typing import Final

from tally.errors import ReplayRefusedError
from tally.model import OffsetRange, TopicPartition

# Both the form for requests and the printed form, so that printed ranges can be pasted.
_RANGE: Final = re.compile(
    r"(?P<topic>\S+)/(?P<partition>[0-9]{1,10})\s*"
    r"(?::\s*(?P<start>[0-9]{1,19})\s*-\s*(?P<until>[0-9]{1,19})"
    r"|\[\s*(?P<printed_start>[0-9]{1,19})\s*,\s*(?P<printed_until>[0-9]{1,19})\s*\))"
)
MINUTE: Final = "%Y-%m-%d %H:%M"


def parse_range(text: str) -> OffsetRange:
    """The range that ``alog/0:300-310`` or ``alog/0 [300, 310)`` means; 310 is left out.

    Raises:
        ReplayRefusedError: The text is not a range, or the range is empty.
    """
    found = _RANGE.fullmatch(text.strip())
    if found is None:
        raise ReplayRefusedError(
            f"{text!r} is not a range of offsets",
            next_step="write TOPIC/PARTITION:FROM-UNTIL, such as alog/0:300-310",
        )
    start = int(found["start"] or found["printed_start"])
    until = int(found["until"] or found["printed_until"])
    if start >= until:
        raise ReplayRefusedError(
            f"{text!r} is empty: {start} is not smaller than {until}",
            next_step="name the first offset, and the first one that is left out",
        )
    partition = TopicPartition(topic=found["topic"], partition=int(found["partition"]))
    return OffsetRange(partition=partition, from_offset=start, until_offset=until)


def format_range(r: OffsetRange) -> str:
    """``alog/0:300-310``, as :func:`parse_range` reads it."""
    return f"{r.partition}:{r.from_offset}-{r.until_offset}"


def parse_ranges(text: str) -> tuple[OffsetRange, ...]:
    """Ranges, one per line or between semicolons; blank ones are ignored.

    Raises:
        ReplayRefusedError: A line is not a range; with its number.
    """
    ranges = []
    for number, line in enumerate(re.split(r"\r\n|[\r\n;]", text), start=1):
        if not line.strip():
            continue
        try:
            ranges.append(parse_range(line.strip()))
        except ReplayRefusedError as error:
            raise ReplayRefusedError(
                f"line {number}: {error.what}", next_step=error.next_step
            ) from error
    return tuple(ranges)


def parse_time(text: str, *, assume_utc: bool = False) -> datetime:
    """An aware time from ISO 8601.

    Args:
        text: The time.
        assume_utc: Whether a time without a zone is taken as UTC; otherwise it is refused.

    Raises:
        ReplayRefusedError: The text is not a time, or has no zone.
    """
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ReplayRefusedError(
            f"{text!r} is not a time", next_step="write it as 2026-11-20T14:05:00Z"
        ) from None
    if time.tzinfo is not None:
        return time
    if assume_utc:
        return time.replace(tzinfo=UTC)
    naive = time.isoformat()
    raise ReplayRefusedError(
        f"{text!r} has no zone", next_step=f"write it as {naive}Z for UTC, or as {naive}+02:00"
    )


def parse_minute(text: str) -> str:
    """A minute of the lines' own clock as ``YYYY-MM-DD HH:MM``, with all its zeros.

    In this form minutes sort as text in the order of time.

    Raises:
        ReplayRefusedError: The text is not a minute.
    """
    try:
        minute = datetime.strptime(text.strip(), MINUTE)  # noqa: DTZ007 - a log's clock
    except ValueError:
        raise ReplayRefusedError(
            f"{text!r} is not a minute", next_step="write it as '2026-11-20 14:05'"
        ) from None
    return minute.isoformat(sep=" ", timespec="minutes")
