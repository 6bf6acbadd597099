"""Answers to the browser: pages and exports, a bounded number at a time.

Every value is escaped: a log line is no markup.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote
from zoneinfo import ZoneInfo

from anyio import CapacityLimiter, to_thread
from fastapi import Response, status
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from tally.airflow.console.page import Page, Query, Table
from tally.clock import Clock

# The pages are shown in a frame of Airflow's own origin; scripts and styles come from there alone,
# and a script may connect to no other server.
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

# Where spreadsheets take what follows for a formula, whatever its source: at the beginning,
# also after what is not seen, in the full width of East Asian keyboards, and after a semicolon,
# which begins a cell in many countries. Signs alone are none, and a number is none.
_UNSEEN: Final = r"\s\u200b-\u200f\u2060\ufeff"
_SIGNS: Final = r"=+\-@\uff1d\uff0b\uff0d\uff20"
_FORMULA: Final = re.compile(
    r"^(?=[\t\r\n])"
    r"|(?:^|(?<=;))"
    rf"(?![{_UNSEEN}]*[+\-]?[0-9]+(?:[.,][0-9]+)?[{_UNSEEN}]*(?:;|$))"
    rf"(?=[{_UNSEEN}]*[{_SIGNS}][{_UNSEEN}{_SIGNS}]*[^;{_UNSEEN}{_SIGNS}])"
)


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


def draw(template: str, page: Page, frame: Mapping[str, Any]) -> HTMLResponse:
    """A page as HTML."""
    shown = {**frame, "title": page.title, **page.values, "page": page, "read_at": Clock().now()}
    return HTMLResponse(ENVIRONMENT.get_template(template).render(shown), page.code, HEADERS)


def export(table: Table, query: Query, pipeline: str) -> Response:
    """A table as a file of the kind that is asked for.

    Raises:
        UsageError: There is no such kind of file.
    """
    kind = query.one_of("as", _EXPORTS) or "csv"
    write, media_type = _EXPORTS[kind]
    name = quote(f"{pipeline}-{table.name}.{kind}")
    headers = {**HEADERS, "Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
    return Response(write(table), media_type=f"{media_type}; charset=utf-8", headers=headers)


def as_csv(table: Table) -> str:
    """The table as CSV with a heading; a text is never a formula to a spreadsheet.

    Where it would be one, an apostrophe stands before it; :func:`as_json` has the text as it is.
    """
    text = io.StringIO()
    # In quotes a text that ends with signs is no formula with the next cell, after any delimiter.
    writer = csv.writer(text, lineterminator="\r\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow([column.key for column in table.columns])
    writer.writerows([_harmless(cell) for cell in row.values()] for row in table.rows)
    return text.getvalue()


def _harmless(cell: Any) -> Any:
    if isinstance(cell, datetime):
        return cell.isoformat()
    return _FORMULA.sub("'", cell) if isinstance(cell, str) else cell


def as_json(table: Table) -> str:
    """The table as a JSON array of objects."""
    return json.dumps(table.rows, indent=1, default=datetime.isoformat)


_EXPORTS: Final = {"csv": (as_csv, "text/csv"), "json": (as_json, "application/json")}


def minute_text(moment: datetime) -> str:
    """``2026-11-20 14:05``."""
    return f"{moment:%Y-%m-%d %H:%M}"


def cell_text(cell: object) -> str:
    """A value for reading: ``2026-11-20 14:05:09`` in UTC, ``1,234,567``, ``yes``."""
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, datetime):
        return f"{cell.astimezone(UTC) if cell.tzinfo else cell:%Y-%m-%d %H:%M:%S}"
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


def moments(now: datetime, zone: str) -> list[tuple[str, datetime]]:
    """Times that are often asked for, each with its name, on the clock of a zone."""
    here = now.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    today = here.replace(hour=0, minute=0)
    before = {"now": 0, "an hour ago": 1, "six hours ago": 6, "a day ago": 24}
    days = {"today": 0, "yesterday": 1, "a week ago": 7}
    return [
        *((text, here - timedelta(hours=hours)) for text, hours in before.items()),
        *((f"{text}, 00:00", today - timedelta(days=number)) for text, number in days.items()),
    ]


def share_text(share: float) -> str:
    """``0.4 %``, ``< 0.1 %``, ``0 %``."""
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{100 * share:.1f} %" if share else "0 %"


def spark_points(values: Sequence[float]) -> str:
    """The points of a sparkline, 100 wide and 28 high, for SVG; a flat one of fewer than two."""
    drawn = [*values] if len(values) > 1 else [0.0, 0.0]
    most = max(*drawn, 1)
    step = 100 / (len(drawn) - 1)
    return " ".join(f"{n * step:.1f},{26 - 24 * value / most:.1f}" for n, value in enumerate(drawn))


ENVIRONMENT: Final = Environment(
    loader=PackageLoader("tally.airflow.console"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.filters |= {"cell": cell_text, "minute": minute_text, "rate": rate_text}
ENVIRONMENT.filters |= {"spark": spark_points, "share": share_text}
ENVIRONMENT.globals |= {"age": age_text, "moments": moments}
