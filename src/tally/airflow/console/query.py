"""Reading what the address of a page asks for."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tally.app.dead_letters import read_partition
from tally.errors import UsageError
from tally.model import TopicPartition

Query = Mapping[str, str]
"""The parameters of an address; one that is empty is as one that is not there."""

ROWS: Final = 50
"""Rows of a page of a table."""
ROWS_MAX: Final = 500
"""Rows of an export, and of a page whose address asks for more."""

_YEARS: Final = range(1000, 9999)

SPANS: Final = {
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
}


def chart_span(query: Query) -> dict[str, Any]:
    """The span of a chart, as arguments of :func:`tally.app.minutes.minutes`.

    Raises:
        UsageError: It is not known, or a time is none.
    """
    name = query.get("span") or "1h"
    if name not in SPANS:
        raise UsageError(f"span = {name!r} is not known", next_step=f"one of {', '.join(SPANS)}")
    first, last = moment_of(query, "first"), moment_of(query, "last")
    return {"span": SPANS[name], "first": first, "last": last}


def limit_of(query: Query) -> int:
    """Rows that are asked for, bounded."""
    usual = ROWS_MAX if query.get("export") else ROWS
    return min(max(number_of(query, "limit") or usual, 1), ROWS_MAX)


def number_of(query: Query, name: str) -> int | None:
    """A whole number; None without one.

    Raises:
        UsageError: It is another text.
    """
    text = query.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise UsageError(f"{name} = {text!r} is not a whole number", next_step="such as 42")
    return int(text)


def one_of(query: Query, name: str, known: Any) -> Any:
    """One of the values of an enumeration; None without one.

    Raises:
        UsageError: It is another text.
    """
    text = query.get(name, "").strip()
    if not text:
        return None
    try:
        return known(text)
    except ValueError:
        names = ", ".join(known)
        raise UsageError(f"{name} = {text!r} is not known", next_step=f"one of {names}") from None


def partition_of(query: Query) -> TopicPartition | None:
    """A partition, ``alog/0``; None without one.

    Raises:
        UsageError: It is another text.
    """
    text = query.get("partition", "").strip()
    return read_partition(text, "partition") if text else None


def moment_of(query: Query, name: str, *, needed: bool = False, zone: bool = False) -> Any:
    """A time of an address, as browsers write it: ``2026-11-20T14:05``.

    Args:
        query: The address.
        name: Its parameter.
        needed: Whether an empty one is an error.
        zone: Whether it is a time of the machines', UTC unless it says otherwise; else it is a
            minute on the lines' own clock.

    Raises:
        UsageError: It is none.
    """
    text = query.get(name, "").strip()
    if not text and not needed:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{name} = {text!r} is not a time", next_step="such as 2026-11-20T14:05"
        ) from None
    if found.year not in _YEARS:
        raise UsageError(
            f"{name} = {text!r} is far away",
            next_step=f"a year from {_YEARS[0]} to {_YEARS[-1]}",
        )
    if zone:
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    if found.tzinfo is not None:
        raise UsageError(
            f"{name} = {text!r} has a zone",
            next_step="leave it out: lines have their own clock",
        )
    return found.replace(second=0, microsecond=0)


def without(query: Query, name: str) -> dict[str, str]:
    """The parameters but one, from the first row on."""
    return {key: value for key, value in query.items() if key not in {name, "skip"}}
