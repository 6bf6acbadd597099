"""Requests for a replay: by offsets, record times, batch or minutes. Pure."""

import csv
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tally.errors import ReplayRefusedError
from tally.model import OffsetRange, TopicPartition


@dataclass(frozen=True, kw_only=True, slots=True)
class RangesAsked:
    """A request for exactly these ranges."""

    ranges: tuple[OffsetRange, ...]
    """In any order; they may overlap."""

    def __str__(self) -> str:
        """``alog/0 [300, 310)``."""
        return ", ".join(map(str, self.ranges))


@dataclass(frozen=True, kw_only=True, slots=True)
class BoundsAsked:
    """A request for partitions between bounds.

    The default lower bound is the first segment that Kafka still holds whole, the default upper
    bound is the committed offset.
    """

    topic: str | None = None
    """The topic; all topics of the pipeline when None."""
    partitions: tuple[int, ...] = ()
    """Partitions; all that were counted when empty."""
    from_offset: int | None = None
    """First offset, the same in each partition."""
    until_offset: int | None = None
    """First offset that is left out, the same in each partition."""
    from_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    """First offsets of single partitions; they override ``from_offset``."""
    until_offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    """First offsets that are left out, of single partitions; they override ``until_offset``."""

    @property
    def chosen(self) -> list[TopicPartition]:
        """The requested partitions with bounds of their own; empty without such bounds."""
        return sorted(p for p in {*self.from_offsets, *self.until_offsets} if self._means(p))

    def _means(self, partition: TopicPartition) -> bool:
        is_topic = self.topic is None or self.topic == partition.topic
        return is_topic and (not self.partitions or partition.partition in self.partitions)

    def __str__(self) -> str:
        """``alog, partitions 0, 3, from 300 until the committed offset``."""
        if self.from_offsets or self.until_offsets:
            bounds = [
                f"{p} [{self.from_offsets.get(p, '…')}, {self.until_offsets.get(p, '…')})"
                for p in self.chosen
            ]
            return "by file: " + ", ".join(bounds)
        start = "what Kafka still holds" if self.from_offset is None else str(self.from_offset)
        until = "the committed offset" if self.until_offset is None else str(self.until_offset)
        return f"{_where(self.topic, self.partitions)}, from {start} until {until}"


@dataclass(frozen=True, kw_only=True, slots=True)
class TimesAsked:
    """A request for records by their times in Kafka."""

    since: datetime
    """An aware time; the first record at or after it is the first of the range."""
    before: datetime
    """An aware time; the first record at or after it is the first that is left out."""
    topic: str | None = None
    """The topic; all topics of the pipeline when None."""
    partitions: tuple[int, ...] = ()
    """Partitions; all that were counted when empty."""

    def __post_init__(self) -> None:
        if self.since >= self.before:
            raise ReplayRefusedError(
                f"{self.since.isoformat()} is not before {self.before.isoformat()}",
                next_step="the earlier time comes first",
            )

    def __str__(self) -> str:
        """``alog, all partitions, records since … before …``."""
        return (
            f"{_where(self.topic, self.partitions)}, records since {self.since.isoformat()} before "
            f"{self.before.isoformat()}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchAsked:
    """A request for the ranges of a batch, whatever has replaced its segments since."""

    batch_id: int
    """The ledger's key."""

    def __str__(self) -> str:
        """``batch 42``."""
        return f"batch {self.batch_id}"


@dataclass(frozen=True, kw_only=True, slots=True)
class MinutesAsked:
    """A request for every live segment with lines in a span of minutes, by the lines' own clock."""

    first: str
    """The first minute, ``YYYY-MM-DD HH:MM``."""
    last: str
    """The last minute, itself included."""

    def __post_init__(self) -> None:
        for name in ("first", "last"):
            object.__setattr__(self, name, parse_minute(getattr(self, name)))
        if self.first > self.last:
            raise ReplayRefusedError(
                f"{self.first} is after {self.last}", next_step="the earlier minute comes first"
            )

    def __str__(self) -> str:
        """``minute 2026-11-20 14:05``."""
        if self.first == self.last:
            return f"minute {self.first}"
        return f"minutes {self.first} to {self.last}"


Request = RangesAsked | BoundsAsked | TimesAsked | BatchAsked | MinutesAsked


def request_digest(request: Request) -> str:
    """A digest that identifies a request; it is the same in every process and release.

    Returns:
        A SHA-256 in hexadecimal.
    """
    told: dict[str, Any] = {"kind": type(request).__name__}
    for key in request.__slots__:
        value = getattr(request, key)
        is_by_partition = isinstance(value, Mapping)
        told[key] = {str(p): at for p, at in value.items()} if is_by_partition else value
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()


def read_bounds(path: Path) -> dict[TopicPartition, int]:
    """Offsets by partition from the CSV that ``kafka-consumer-groups --export`` writes.

    Lines are ``topic,partition,offset``, or ``group,topic,partition,offset`` for several groups.

    Raises:
        ReplayRefusedError: The file cannot be read, or a line has another form; with its number.
    """
    bounds: dict[TopicPartition, int] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for number, line in enumerate(csv.reader(file), start=1):
                if line:
                    partition, offset = _bound(line, f"{path}, line {number}")
                    if bounds.setdefault(partition, offset) != offset:
                        raise ReplayRefusedError(
                            f"{path}, line {number}: {partition} has two different offsets",
                            next_step="export one group alone",
                        )
    except (OSError, UnicodeDecodeError) as error:
        raise ReplayRefusedError(
            f"{path} cannot be read: {error}", next_step="name another file"
        ) from error
    if not bounds:
        raise ReplayRefusedError(f"{path} holds no offsets", next_step="name another file")
    return bounds


def _bound(line: list[str], where: str) -> tuple[TopicPartition, int]:
    match [text.strip() for text in line][-3:]:
        case [topic, partition, offset] if topic and partition.isdecimal() and offset.isdecimal():
            return TopicPartition(topic=topic, partition=int(partition)), int(offset)
    raise ReplayRefusedError(
        f"{where}: {','.join(line)!r} is not topic,partition,offset",
        next_step="write the file with: kafka-consumer-groups --reset-offsets … --export",
    )


def _where(topic: str | None, partitions: tuple[int, ...]) -> str:
    numbers = ", ".join(map(str, partitions))
    noun = "partition" if len(partitions) == 1 else "partitions"
    return f"{topic or 'all topics'}, {f'{noun} {numbers}' if numbers else 'all partitions'}"


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

    In this form minutes sort as text in the order of time. Zeros of seconds are left out.

    Raises:
        ReplayRefusedError: The text is not a minute.
    """
    plain = text.strip().replace("T", " ")
    if plain.count(":") == 2:
        plain = plain.removesuffix(":00")
    try:
        minute = datetime.strptime(plain, MINUTE)  # noqa: DTZ007 - a log's clock
    except ValueError:
        raise ReplayRefusedError(
            f"{text!r} is not a minute", next_step="write it as '2026-11-20 14:05'"
        ) from None
    return minute.isoformat(sep=" ", timespec="minutes")
