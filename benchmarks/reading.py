"""How long a user waits for what the console shows: the data of its pages, without Airflow's part.

Usage: ``.tally/venv/bin/python -m benchmarks.reading [--lines 1000000] [--pipelines 20]
[--rounds 9]``

Counts lines in one batch of one partition, and prints the median and the longest of so many rounds
of each: the list of pipelines, of the ledger alone and with Kafka; a pipeline's status with Kafka;
a chart of an hour; and the lines behind a random minute of that one segment, bounded as the console
bounds them. As written they all came at once, so that no time of Kafka's tells where a minute is.
"""

import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial

from benchmarks.page import Table, command
from benchmarks.servers import count, new_topic, serving, write_lines
from tally.context import open_context
from tally.ledger.parts import Of
from tally.reading import lines as behind
from tally.reading.minutes import last_hour, minutes
from tally.spark.session import spark_session
from tally.status.overview import overview
from tally.status.status import Statuses
from tally_local.stack.server import Part


def measure(lines: int = 1_000_000, pipelines: int = 20, rounds: int = 9) -> Iterator[Table]:
    """Measure each."""
    topic = new_topic("reading")
    names = [f"reading{number}" for number in range(pipelines)]
    keys = f'topics = ["{topic}"]\nlevels = ["ERROR"]\nline_format = "fixed"'
    parts = (Part.KAFKA, Part.MYSQL, Part.SPARK)
    with serving(dict.fromkeys(names, keys), {topic: 1}, parts) as servers:
        spark = servers.settings.spark
        ctx = open_context(servers.settings, open_session=lambda: spark_session(spark, "reading"))
        written = write_lines(servers, lines, 1)
        count(ctx, names[0], lines)
        of_ledger, of_all = Statuses(ctx=ctx, ask_kafka=False), Statuses(ctx=ctx)
        choose = random.Random(1)

        def some_lines() -> None:
            at = datetime.fromisoformat(choose.choice([*written.errors]))
            behind.lines(ctx, names[0], Of(minute=at), behind.PAGE_BOUNDS)

        asked: dict[str, Callable[[], object]] = {
            f"list of {pipelines} pipelines, the ledger's side": lambda: (
                overview(of_ledger, names),
                last_hour(ctx, names),
            ),
            f"list of {pipelines} pipelines, with Kafka": lambda: (
                overview(of_all, names, with_times=True),
                last_hour(ctx, names),
            ),
            "a pipeline's status, with Kafka": partial(of_all.waiting, names[0]),
            "the chart": partial(minutes, ctx, names[0]),
            f"lines of a minute in a segment of {lines:,}": some_lines,
        }
        rows = [[name, *_seconds(ask, rounds)] for name, ask in asked.items()]
    yield Table(headers=("asked for", "median, s", "longest, s"), rows=rows)


def _seconds(ask: Callable[[], object], rounds: int) -> list[str]:
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        ask()
        took.append(time.perf_counter() - began)
    return [f"{statistics.median(took):.3f}", f"{max(took):.3f}"]


if __name__ == "__main__":
    sys.exit(command(measure))
