"""How long the console's pages wait for a large ledger, and what MySQL reads for them.

Usage: ``.tally/venv/bin/python -m benchmarks.console_pages [--rounds 5] [--explain]``

Fills a ledger with a year of minutes, a thousand partitions and a million dead letters
(:mod:`benchmarks.large_ledger`). Then reads each page's data as the console does, with its user and
its bounds, without Kafka and without drawing, and prints the median and the longest of some rounds,
the number of its statements and the most rows that MySQL's EXPLAIN expects one of them to read.
Fails when a page takes longer than 300 ms.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch

import pymysql.cursors

from benchmarks.large_ledger import BEGAN, MINUTES, PIPELINE, fill
from benchmarks.page import Table
from benchmarks.servers import Bench, bench, say
from tally.app.measurements import of_status
from tally.app.surroundings import UNKNOWN
from tally.context import console_context
from tally.mysql.pool import ConnectionPool

LIMIT_MS: Final = 300
TABLE: Final = "pages"


def main() -> int:
    """Run it once and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--explain", action="store_true", help="print each statement's plan")
    asked = parser.parse_args()
    table, slowest = measure(asked.rounds, explain=asked.explain)
    say("\n".join(table.lines()))
    if slowest > LIMIT_MS:
        say(f"a page took {slowest:.0f} ms, longer than {LIMIT_MS} ms")
        return 1
    return 0


def measure(rounds: int, *, explain: bool = False) -> tuple[Table, float]:
    """Fill the ledger and read each page; the table, and the longest median in milliseconds.

    Raises:
        RuntimeError: The audit found violations.
    """
    with bench([PIPELINE]) as servers, TemporaryDirectory() as home:
        _airflow(home)
        began = time.monotonic()
        fill(servers)
        say(f"the ledger is filled, and its audit holds ({time.monotonic() - began:.0f} s)")
        rows, slowest = [], 0.0
        for title, read in _pages(servers):
            statements = _statements(read)
            taken = []
            for _ in range(rounds):
                started = time.perf_counter()
                read()
                taken.append((time.perf_counter() - started) * 1e3)
            expected = max(_rows_read(servers, one, explain=explain) for one in statements)
            slowest = max(slowest, statistics.median(taken))
            cells = (statistics.median(taken), max(taken), len(statements), expected)
            rows.append([title, *(f"{cell:,.0f}" for cell in cells)])
    headers = ["page", "median, ms", "longest, ms", "statements", "rows expected, at most"]
    return Table(name=TABLE, headers=headers, rows=rows), slowest


def _pages(servers: Bench) -> Iterator[tuple[str, Any]]:
    """What each page reads: a function for each."""
    from tally.airflow.console import steering_pages  # noqa: PLC0415 - after AIRFLOW_HOME is set
    from tally.airflow.console.app import PAGES, Asked  # noqa: PLC0415
    from tally.airflow.console.pages import ledger_status  # noqa: PLC0415

    ctx = console_context(servers.settings, ConnectionPool())

    def page(path: str, **query: str) -> Any:
        asked = Asked(ctx=ctx, pipeline=PIPELINE, query=query, path=query, user=None)
        return partial(PAGES[path], asked)

    last = BEGAN + timedelta(minutes=MINUTES - 1)
    other = BEGAN + timedelta(minutes=MINUTES // 4)
    at = f"{last:%Y-%m-%dT%H:%M}"
    yield "overview, 1 h", page("")
    yield "overview, 24 h", page("", span="24h")
    yield "overview, 7 days", page("", span="7d")
    yield (
        "overview, 31 days under other rules",
        page(
            "",
            first=f"{other:%Y-%m-%dT%H:%M}",
            last=f"{other + timedelta(days=31) - timedelta(minutes=1):%Y-%m-%dT%H:%M}",
        ),
    )
    yield "behind a minute", page("minute", at=at)
    yield "partitions", page("partitions")
    yield "batches", page("batches")
    yield "batches, planned replays", page("batches", state="planned", kind="replay")
    yield "batches, abandoned", page("batches", state="abandoned")
    yield "batches, half a year ago", page("batches", before=str(MINUTES // 2))
    yield "a batch of 2 partitions", page("batches/{batch_id}", batch_id=str(MINUTES // 2))
    yield "a batch of 1,000 partitions", page("batches/{batch_id}", batch_id=str(MINUTES + 10))
    yield "dead letters", page("dead-letters")
    yield "dead letters of a partition", page("dead-letters", partition=f"{servers.topic}/7")
    yield (
        "a text in the dead letters of a partition",
        page("dead-letters", partition=f"{servers.topic}/7", text="not there"),
    )
    yield (
        "a text in the dead letters of a day",
        page(
            "dead-letters",
            since=f"{last - timedelta(days=1):%Y-%m-%dT%H:%M}",
            until=at,
            text="not there",
        ),
    )
    yield "dead letters of a reason", page("dead-letters", reason="no-time")
    yield "replay", page("replay")
    yield "losses", page("losses")
    run_id = f"run-{MINUTES // 2}"
    yield "a run", partial(steering_pages.batches_of_run, ctx, PIPELINE, PIPELINE, run_id)
    yield "metrics", lambda: list(of_status(ledger_status(ctx, PIPELINE, UNKNOWN)))


def _airflow(home: str) -> None:
    """An empty Airflow, whose own database the pages ask, too."""
    os.environ |= {"AIRFLOW_HOME": home, "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    from airflow.utils.db import initdb  # noqa: PLC0415 - reads the environment

    initdb()


def _statements(read: Any) -> list[str]:
    """The statements that a function sends."""
    sent: list[str] = []
    execute = pymysql.cursors.Cursor.execute

    def note(cursor: Any, query: str, args: Any = None) -> int:
        sent.append(cursor.mogrify(query, args))
        return execute(cursor, query, args)

    with patch.object(pymysql.cursors.Cursor, "execute", note):
        read()
    return [text for text in sent if text.lstrip().lower().startswith(("select", "with"))]


def _rows_read(servers: Bench, statement: str, *, explain: bool) -> int:
    """The rows that MySQL expects to read for a statement: of its steps, the most."""
    with servers.context().database.transaction(read_only=True) as tx:
        steps = tx.rows("explain format=traditional " + statement.replace("%", "%%"), ())
    if explain:
        say(f"\n{statement}")
        for step in steps:
            say(f"  {step['table']}: {step['type']} {step['key']} {step['rows']} {step['Extra']}")
    # What is estimated for a step that another one bounds is for each row of that one.
    return max((int(step["rows"] or 0) for step in steps), default=0)


if __name__ == "__main__":
    sys.exit(main())
