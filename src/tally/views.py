"""What the views of the use cases share, and how a view becomes the published JSON.

A view is a frozen dataclass; its fields are the keys of the published JSON, which are only ever
added. Times are UTC in ISO 8601; ``log_time`` is the log's own wall clock and has no zone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, ClassVar, Final, Protocol, Self, TypeVar, get_type_hints

from tally.errors import TallyError
from tally.model import OffsetRange, SegmentTotals, TopicPartition


class View(Protocol):
    """A frozen dataclass whose fields are values, other views, or collections of them."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


PARTS: Final = {"range": OffsetRange, "totals": SegmentTotals, "partition": TopicPartition}
"""What a view has of these, under these names, is written among the view's own keys."""


@cache
def parts_of(kind: Any) -> dict[str, type]:
    """The fields of a view that are written as keys of their own, with their types."""
    hints = get_type_hints(kind)
    named = [field.name for field in fields(kind) if field.name in PARTS]
    return {n: PARTS[n] for n in named if hints[n] in (PARTS[n], PARTS[n] | None)}


def keys_of(kind: Any) -> list[str]:
    """The keys that a view has in a document."""
    parts = parts_of(kind)
    return [
        key
        for field in fields(kind)
        for key in (keys_of(parts[field.name]) if field.name in parts else [field.name])
    ]


def document(view: View | Mapping[str, Any]) -> dict[str, Any]:
    """A view, or several by key, as JSON carries it, in plain values."""
    if isinstance(view, Mapping):
        return {str(key): _plain(one) for key, one in view.items()}
    found: dict[str, Any] = {}
    parts = parts_of(type(view))
    for field in fields(view):
        value = getattr(view, field.name)
        if field.name not in parts:
            if "omitted" not in field.metadata or value not in (None, {}):
                found[field.name] = _plain(value)
        elif value is None:
            found |= dict.fromkeys(keys_of(parts[field.name]))
        else:
            found |= document(value)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping) or is_dataclass(value):
        return document(value)  # type: ignore[arg-type]  # no class of one
    return value.value if isinstance(value, Enum) else value


R = TypeVar("R")


def view_of(kind: type[R], *records: Any, **more: Any) -> R:
    """A record of a kind: of its fields, those given here, and what others have by these names."""
    for name in (field.name for field in fields(kind)):  # type: ignore[arg-type]
        if name not in more:
            more[name] = getattr(next(one for one in records if hasattr(one, name)), name)
    return kind(**more)


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedRange:
    """A range and its counts; each is null until the range is counted."""

    range: OffsetRange
    """The range."""
    totals: SegmentTotals | None
    """What was found in it."""


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
    """What to do."""

    @classmethod
    def of(cls, error: TallyError) -> Self:
        """The view of an error."""
        return view_of(cls, error, next_step=error.next_step or None)
