"""What the use cases return, and how it becomes the published JSON.

They return the ledger's records, and views: frozen dataclasses that hold records. Their fields are
the keys of the published JSON, which are only ever added. Times are UTC in ISO 8601; ``log_time``
is the log's own wall clock and has no zone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar, Final, Protocol, Self, cast

from tally.errors import TallyError
from tally.model import OffsetRange, SegmentTotals, TopicPartition


class View(Protocol):
    """A frozen dataclass whose fields are values, other views, or collections of them."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


FLAT: Final = frozenset({"partition", "range", "totals"})
"""Fields whose own fields, if they hold a record, are keys of the record that has them."""


def document(view: View) -> dict[str, Any]:
    """A view as JSON carries it, in plain values."""
    found: dict[str, Any] = {}
    for field in fields(view):
        value = getattr(view, field.name)
        if field.name in FLAT and is_dataclass(value):
            found |= _plain(value)
        elif field.name == "totals" and value is None:
            found |= dict.fromkeys(total.name for total in fields(SegmentTotals))
        elif "omitted" not in field.metadata or value not in (None, {}):
            found[field.name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return document(cast("View", value))
    if isinstance(value, Mapping):
        return {key: _plain(of) for key, of in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(of) for of in value]
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value.value if isinstance(value, Enum) else value


def values_of(record: View) -> dict[str, Any]:
    """The fields of a record by name, to make a view of it with additional fields."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


def span_of(r: OffsetRange) -> str:
    """``[300, 310)``."""
    return f"[{r.from_offset}, {r.until_offset})"


@dataclass(frozen=True, kw_only=True, slots=True)
class RangeView:
    """A half-open range of offsets of one partition."""

    topic: str
    """The topic."""
    partition: int
    """The partition's number."""
    from_offset: int
    """First offset of the range."""
    until_offset: int
    """First offset after the range."""

    @classmethod
    def of(cls, r: OffsetRange, **more: Any) -> Self:
        """The view of a range; ``more`` are the additional fields of a subclass."""
        return cls(
            topic=r.partition.topic,
            partition=r.partition.partition,
            from_offset=r.from_offset,
            until_offset=r.until_offset,
            **more,
        )

    @property
    def range(self) -> OffsetRange:
        """The range itself."""
        return OffsetRange(
            partition=TopicPartition(topic=self.topic, partition=self.partition),
            from_offset=self.from_offset,
            until_offset=self.until_offset,
        )

    @property
    def place(self) -> str:
        """``alog/0``."""
        return f"{self.topic}/{self.partition}"

    @property
    def span(self) -> str:
        """``[300, 310)``."""
        return span_of(self.range)

    @property
    def offsets(self) -> int:
        """How many offsets it spans."""
        return self.until_offset - self.from_offset

    def __str__(self) -> str:
        """``alog/0 [300, 310)``."""
        return f"{self.place} {self.span}"


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedRangeView(RangeView):
    """A range and its counts; each is null until the range is counted."""

    records: int | None = None
    """Records read."""
    matched: int | None = None
    """Lines that are counted."""
    unmatched: int | None = None
    """Lines that are understood and not counted."""
    malformed: int | None = None
    """Records that could not be understood."""
    continuations: int | None = None
    """Unmatched records that begin no line; null also where they were not counted by themselves."""
    first_offset: int | None = None
    """Smallest offset seen."""
    last_offset: int | None = None
    """Largest offset seen."""

    @classmethod
    def counted(cls, r: OffsetRange, totals: SegmentTotals | None, **more: Any) -> Self:
        """The view of a range with its totals, where there are any."""
        return cls.of(r, **(values_of(totals) if totals else {}), **more)


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorView:
    """An error."""

    code: str
    """Stable; the runbook has an entry for each."""
    exit_code: int
    """The exit code of the command line."""
    what: str
    """What was tried and what went wrong."""
    next_step: str | None
    """What to do next."""

    @classmethod
    def of(cls, error: TallyError) -> Self:
        """The view of an error."""
        return cls(
            code=error.code,
            exit_code=error.exit_code,
            what=error.what,
            next_step=error.next_step or None,
        )
