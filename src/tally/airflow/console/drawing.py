"""Answers to the browser: pages and exports, a bounded number at a time.

Every value is escaped: a log line is no markup.
"""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from anyio import CapacityLimiter, to_thread
from fastapi import Response, status
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from tally.airflow.console.tables import Table, as_csv, as_json
from tally.clock import Clock
from tally.errors import UsageError

# The pages are shown in a frame of Airflow's own origin; scripts and styles come from there alone,
# and a script may talk to nobody else.
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self';"
        " img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
    ),
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}

RETRY_AFTER_S: Final = 10
"""Seconds after which a refused request may come again, as often as a page renews itself."""

_EXPORTS: Final = {"csv": (as_csv, "text/csv"), "json": (as_json, "application/json")}


class RequestLimit:
    """Requests in threads, a bounded number of them at a time. Belongs to one event loop.

    Airflow's own API shares the process.

    Args:
        at_a_time: Requests that are answered at a time, each in a thread of its own.
        queued_max: Requests that wait for a thread; further ones are refused.
    """

    def __init__(self, *, at_a_time: int, queued_max: int) -> None:
        self._limiter = CapacityLimiter(at_a_time)
        self._queued_max = queued_max

    @property
    def queued(self) -> int:
        """Requests that wait for a thread now."""
        return self._limiter.statistics().tasks_waiting

    async def run(self, work: Callable[[], Response]) -> Response:
        """Answer a request in a thread.

        Args:
            work: Makes the answer; may wait for servers.

        Returns:
            Its answer, or 503 when too many wait already.
        """
        if self.queued >= self._queued_max:
            return Response(
                "Tally answers too many requests at the moment; try again soon.",
                status.HTTP_503_SERVICE_UNAVAILABLE,
                {"Retry-After": str(RETRY_AFTER_S)},
                "text/plain",
            )
        return await to_thread.run_sync(work, limiter=self._limiter)


def draw(
    template: str,
    frame: Mapping[str, Any],
    values: Mapping[str, Any],
    code: int = status.HTTP_200_OK,
) -> HTMLResponse:
    """A page as HTML."""
    html = _ENVIRONMENT.get_template(template).render(**frame, **values, read_at=Clock().now())
    return HTMLResponse(html, code, HEADERS)


def export(table: Table, kind: str, pipeline: str) -> Response:
    """A table as a file.

    Raises:
        UsageError: There is no such kind of file.
    """
    if kind not in _EXPORTS:
        raise UsageError(f"as = {kind!r} is not known", next_step="csv or json")
    write, media_type = _EXPORTS[kind]
    name = quote(f"{pipeline}-{table.name}.{kind}")
    headers = {**HEADERS, "Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
    return Response(write(table), media_type=f"{media_type}; charset=utf-8", headers=headers)


def time_text(moment: datetime | None) -> str:
    """``2026-11-20 14:05:09``; a time with a zone in UTC."""
    if moment is None:
        return ""
    at = moment.astimezone(UTC) if moment.tzinfo else moment
    return f"{at:%Y-%m-%d %H:%M:%S}"


def minute_text(moment: datetime) -> str:
    """``2026-11-20 14:05``."""
    return f"{moment:%Y-%m-%d %H:%M}"


def cell_text(cell: object) -> str:
    """A cell as a person reads it."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, datetime):
        return time_text(cell)
    return f"{cell:,}" if isinstance(cell, int | float) else str(cell)


def rate_text(rate: float) -> str:
    """``0.0333``, ``2.5``, ``1,234,567``: three digits at least, and no exponent."""
    if rate >= 100:
        return f"{rate:,.0f}"
    return f"{rate:.3g}" if rate >= 0.001 or not rate else "less than 0.001"


def age_text(since: datetime | None, now: datetime) -> str:
    """``12 s``, ``3 min``, ``2 h``, ``4 days``; future times are written like past ones."""
    if since is None:
        return "unknown"
    seconds = abs((now - since).total_seconds())
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 86_400:.0f} days"


def link_of(pattern: str, row: Mapping[str, Any]) -> str:
    """The address behind a cell; empty when a value that it needs is missing."""
    names = [part.partition("}")[0] for part in pattern.split("{")[1:]]
    if any(row.get(name) in {None, ""} for name in names):
        return ""
    return pattern.format(**{name: quote(str(row[name]), safe="") for name in names})


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("tally.airflow.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "time": time_text,
        "minute": minute_text,
        "cell": cell_text,
        "number": lambda n: "" if n is None else f"{n:,}",
        "rate": rate_text,
        "json": json.dumps,
    }
    environment.globals |= {"age": age_text, "link_of": link_of}
    return environment


_ENVIRONMENT: Final = _environment()
