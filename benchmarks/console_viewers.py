"""What viewers of the console cost a batch.

Usage: ``.tally/venv/bin/python -m benchmarks.console_viewers [--batches 30 --viewers 5]``

Starts Kafka, MySQL, a warm Spark server and Airflow, and counts batches of 10,000 lines, one after
the other: in turn without anybody who looks, and while viewers renew the overview and what Kafka
says every five seconds, faster than the pages do by themselves. The viewers are on the same
machine. Prints median and 95th percentile of both, and fails when the median of the batches changes
by more than 5 percent. Every line must be counted.
"""

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import httpx
from confluent_kafka import Producer

from benchmarks.airflow_minutes import PIPELINE, TOPIC, System, checkout
from benchmarks.page import Table
from benchmarks.servers import say
from tally.context import Context, open_context
from tally.counting.batch import run_batch
from tally.counting.plan import plan_batch
from tally_local.demo.airflow_api import AirflowApi
from tally_local.stack.server import Part

TABLE: Final = "viewers"
LINES: Final = 10_000
PARTITIONS: Final = 4
EVERY_S: Final = 5.0
WARM: Final = 5
"""Batches before those that are measured: Spark's server compiles for a while."""
CHANGE_MAX: Final = 0.05
PAGES: Final = ("", "kafka")


def main() -> int:
    """Run it once and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=30, help="with viewers; as many without")
    parser.add_argument("--viewers", type=int, default=5)
    asked = parser.parse_args()
    taken, looks = measure(asked.batches, asked.viewers)
    alone, watched = (statistics.median(taken[watching]) for watching in (False, True))
    say(f"{looks} pages were shown")
    say("\n".join(_table(taken, asked.viewers).lines()))
    change = watched / alone - 1
    say(f"the median changes by {change:+.1%}")
    return 0 if abs(change) <= CHANGE_MAX else 1


def _table(taken: dict[bool, list[float]], viewers: int) -> Table:
    rows = []
    for watching, title in ((False, "nobody looks"), (True, f"{viewers} viewers")):
        seconds = sorted(taken[watching])
        p95 = seconds[int(0.95 * (len(seconds) - 1))]
        rows.append([title, f"{len(seconds)}", f"{statistics.median(seconds):.3f}", f"{p95:.3f}"])
    return Table(name=TABLE, headers=["batches", "number", "median, s", "95 %, s"], rows=rows)


def measure(batches: int, viewers: int) -> tuple[dict[bool, list[float]], int]:
    """The seconds of batches without and with viewers, and how many pages were shown.

    Raises:
        RuntimeError: A page was not shown, or a line was not counted.
    """
    taken: dict[bool, list[float]] = {False: [], True: []}
    with checkout() as project:
        system = System(project)
        with system.stack.foreground([Part.KAFKA, Part.MYSQL, Part.SPARK]):
            system.prepare()
            with system.stack.foreground([Part.AIRFLOW]):
                ctx = open_context(system.settings)
                with _watching(AirflowApi.of(system.stack), viewers) as audience:
                    for number in range(WARM + 2 * batches):
                        audience.looks = number % 2 == 1
                        seconds = _batch(ctx)
                        if number >= WARM:
                            taken[audience.looks].append(seconds)
                if audience.errors:
                    raise RuntimeError(f"pages were not shown: {audience.errors[:3]}")
                return taken, audience.shown


def _batch(ctx: Context) -> float:
    """Write lines, and count them; the seconds from the plan to the commit."""
    producer = Producer({"bootstrap.servers": ctx.settings.kafka.bootstrap_servers})
    now = datetime.now(UTC)
    for number in range(LINES):
        level = "ERROR" if number % 3 == 0 else "INFO"
        line = f"{now:%Y-%m-%d %H:%M:%S} {level} request {number} failed"
        producer.produce(TOPIC, line, partition=number % PARTITIONS)
        producer.poll(0)
    if producer.flush(60):
        raise RuntimeError("Kafka did not take all lines")
    began = time.perf_counter()
    planned = plan_batch(ctx, PIPELINE).batch
    if planned is None:
        raise RuntimeError("there is nothing to count")
    ran = run_batch(ctx, planned.batch_id)
    seconds = time.perf_counter() - began
    if (counted := sum(totals.records for totals in ran.totals.values())) != LINES:
        raise RuntimeError(f"{counted} of {LINES} lines were counted")
    return seconds


@dataclass(kw_only=True, slots=True)
class _Audience:
    """Viewers, who look at the pages or not."""

    address: str
    headers: dict[str, str]
    looks: bool = False
    shown: int = 0
    errors: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def view(self, late_s: float) -> None:
        """Renew the pages at even times, as long as somebody looks at that moment."""
        due = time.monotonic() + late_s
        with httpx.Client(headers=self.headers, timeout=30, trust_env=False) as client:
            while not self.over.wait(max(0.0, due - time.monotonic())):
                due += EVERY_S
                if not self.looks:
                    continue
                for page in PAGES:
                    answer = client.get(f"{self.address}/tally/pipelines/{PIPELINE}/{page}")
                    if answer.status_code == httpx.codes.OK:
                        self.shown += 1
                    else:
                        self.errors.append(f"{page}: {answer.status_code}")


@contextmanager
def _watching(airflow: AirflowApi, viewers: int) -> Iterator[_Audience]:
    audience = _Audience(address=airflow.address, headers=airflow.login())
    threads = [
        threading.Thread(target=audience.view, args=(EVERY_S * number / viewers,))
        for number in range(viewers)
    ]
    for thread in threads:
        thread.start()
    try:
        yield audience
    finally:
        audience.over.set()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    sys.exit(main())
