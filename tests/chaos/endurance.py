"""Hours of Airflow's own schedule: all lines must be counted, in time, and nothing may grow.

Usage: ``.tally/venv/bin/python -m tests.chaos.endurance [--minutes 120] [--rate 5000]
[--pipelines 10] [--celery] [--json FILE]``

Starts Kafka, MySQL, a warm Spark server and Airflow, writes to all pipelines, each with a label,
and lets the minute DAGs run. With ``--celery`` Airflow has two Celery workers, tasks go through
Redis, its metadata are in PostgreSQL, and a worker (while it counts), the scheduler, Redis and
PostgreSQL are killed twice each; what has ended is started again, as systemd or Kubernetes does.

Prints what was measured, and ends with 1 if a line was not counted once, a minute was committed
more than three minutes late, a run of Airflow failed or, without ``--celery``, something grew.
"""

import argparse
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

import psutil

from tally.audit.audit import audit
from tally.audit.recount import recount
from tally.config.loading import load_settings
from tally.context import open_context
from tally.counting.plan import plan
from tally.counting.run import run_batches
from tally.errors import TallyError
from tally.kafka.client import Kafka
from tally.mysql.transactions import Database
from tally.set_up.migrate import migrate
from tally.status.growth import growth_of
from tally_local.demo.airflow_api import AirflowApi
from tally_local.demo.traffic import Traffic
from tally_local.demo.writer import LineWriter
from tally_local.stack.server import Part
from tally_local.stack.stack import Stack
from tests.chaos.campaign import GROWTH_MAX, quarters
from tests.chaos.celery import CeleryAirflow
from tests.first_use.pages import checkout

PARTITIONS: Final = 2
LATE_MAX_S: Final = 180
"""How long after its end a minute may be committed."""
SAMPLE_S: Final = 30
KILLS: Final = 2
"""Of each part."""
AWAY_S: Final = {"redis": 20, "postgresql": 60}
"""Seconds before a killed server is started again; the others are at once."""


@dataclass(kw_only=True)
class Report:
    """What came of it."""

    options: dict[str, Any]
    lines: int = 0
    minutes: int = 0
    late_s: dict[str, float] = field(default_factory=dict)
    """From the end of a minute to its last commit: median and longest."""
    kills: list[str] = field(default_factory=list)
    restarts: dict[str, int] = field(default_factory=dict)
    """How often a part was started again, kills included."""
    runs: dict[str, int] = field(default_factory=dict)
    """Airflow's runs by state."""
    grown: dict[str, list[float]] = field(default_factory=dict)
    """By what was measured, the largest value of each quarter of the time."""
    rows_a_day: dict[str, int] = field(default_factory=dict)
    """What the ledger and the results gain: as foretold half-way, and as measured from then on.
    Bytes are foretold of tables with more rows than these hours have."""
    problems: list[str] = field(default_factory=list)


class Trial:
    """The system, and what is measured of it."""

    def __init__(self, options: argparse.Namespace, project: Path) -> None:
        self.options, self.config = options, project / "tally.toml"
        self.pipelines = [f"service_{n}" for n in range(options.pipelines)]
        self.config.write_text(
            "".join(
                f'[pipelines.{name}]\ntopics = ["{name}"]\nlabels = ["level"]\n'
                for name in self.pipelines
            ),
            encoding="utf-8",
        )
        self.stack = Stack(project=project, announce=_say)
        self.report = Report(options={k: v for k, v in vars(options).items() if k != "json"})
        self.samples: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        self.celery: CeleryAirflow | None = None

    def run(self) -> Report:
        """All of it; the servers are stopped at the end."""
        with ExitStack() as open_:
            open_.enter_context(self.stack.foreground([Part.KAFKA, Part.MYSQL, Part.SPARK]))
            self._prepare()
            if self.options.celery:
                self.celery = open_.enter_context(CeleryAirflow(self.stack))
                api = self.celery.api()
            else:
                open_.enter_context(self.stack.foreground([Part.AIRFLOW]))
                api = AirflowApi.of(self.stack, timeout_s=60)
            for name in self.pipelines:
                api.unpause(name)
            self._last(open_)
            for name in self.pipelines:
                api.pause(name)
            self._check(api)
        return self.report

    def _prepare(self) -> None:
        secrets = {"TALLY_CONFIG": str(self.config)}
        secrets["TALLY_SECRETS_FILE"] = str(self.stack.layout.overlay)
        os.environ.update(secrets)
        self.settings = load_settings(self.config)
        self.database = Database(settings=self.settings.mysql)
        migrate(self.database, self.settings)
        for name in self.pipelines:
            Kafka(self.settings.kafka).create_topic(name, PARTITIONS)

    def _last(self, open_: ExitStack) -> None:
        """Write, kill and measure until the time is up."""
        options = self.options
        self.traffic = {
            name: open_.enter_context(
                Traffic(
                    LineWriter(self.settings.kafka),
                    name,
                    partitions=PARTITIONS,
                    levels=self.settings.pipeline(name).levels,
                    rate=max(1, options.rate // options.pipelines),
                    seed=seed,
                )
            )
            for seed, name in enumerate(self.pipelines)
        }
        begun = time.monotonic()
        end = begun + 60 * options.minutes
        faults = ["worker", "scheduler", "redis", "postgresql"] * KILLS if self.celery else []
        gap = 60 * options.minutes / (len(faults) + 1)
        choose = Random(options.seed)
        next_fault, foretold = begun + gap, None
        while (now := time.monotonic()) < end:
            if faults and now >= next_fault:
                time.sleep(choose.uniform(0, SAMPLE_S))
                self._strike(faults.pop(0))
                next_fault += gap
            self._sample()
            if foretold is None and now > (begun + end) / 2:
                foretold = (*self._rows(), now)
            time.sleep(SAMPLE_S)
        for traffic in self.traffic.values():
            traffic.close()
        assert foretold is not None
        grown = self._rows()[1] - foretold[1]
        self.report.rows_a_day = {
            "foretold": foretold[0],
            "measured": round(grown / (time.monotonic() - foretold[2]) * 86_400),
        }
        time.sleep(90)  # the last minute's run

    def _strike(self, part: str) -> None:
        """Kill a part of Airflow; of the workers the one that counts."""
        assert self.celery is not None
        name = self.celery.counting_worker() if part == "worker" else part
        self.celery.kill(name, away_s=AWAY_S.get(part, 0))
        self.report.kills.append(name)
        _say(f"killed {name}")

    def _sample(self) -> None:
        now = time.monotonic()
        parts = {str(p): self.stack.processes.members(p) for p in Part}
        if self.celery:
            parts |= self.celery.members()
        for name, processes in parts.items():
            if not processes:
                continue
            resident = files = 0
            for process in processes:
                with suppress(psutil.Error):
                    resident += process.memory_info().rss
                    files += process.num_fds()
            self.samples[f"{name}, MiB"].append((now, resident / 2**20))
            self.samples[f"{name}, open files"].append((now, files))
        with suppress(TallyError), self.database.transaction(read_only=True) as tx:
            (row,) = tx.rows("show global status like 'Threads_connected'")
            self.samples["MySQL, connections"].append((now, float(row["Value"])))

    def _rows(self) -> tuple[int, int]:
        """How many rows ``tally status --growth`` foretells for a day, and how many there are."""
        ctx = open_context(self.settings)
        grown = [table for name in self.pipelines for table in growth_of(ctx, name).tables]
        with self.database.transaction(read_only=True) as tx:
            there = sum(
                int(tx.scalar(f"select count(*) from `{table}`"))
                for table in {table.table for table in grown}
            )
        return sum(table.rows_a_day for table in grown), there

    def _check(self, api: AirflowApi) -> None:
        """Count the rest, and compare the counts with what was written."""
        report, rows = self.report, self.report.rows_a_day
        for state in ("success", "failed", "running", "queued"):
            path = f"/api/v2/dags/~/dagRuns?limit=1&state={state}"
            report.runs[state] = api.ask("GET", path)["total_entries"]
        for name in self.pipelines:
            self._check_counts(name)
        delays = self._delays()  # after the checks, which commit what Airflow has left
        report.minutes = len(delays)
        report.late_s = {"median": round(median(delays), 1), "longest": round(max(delays), 1)}
        if max(delays) > LATE_MAX_S:
            report.problems.append(f"a minute was committed {max(delays):.0f} s after its end")
        if report.runs["failed"]:
            report.problems.append(f"{report.runs['failed']} runs of Airflow failed")
        self.report.grown = {name: quarters(found) for name, found in self.samples.items()}
        if self.celery:
            report.restarts = dict(self.celery.restarts)
            report.problems += self.celery.problems
        else:
            report.problems += [
                f"{name} grows: {of}"
                for name, of in report.grown.items()
                if of[3] > of[1] * GROWTH_MAX > 0
            ]
            if not 1 / GROWTH_MAX < rows["measured"] / rows["foretold"] < GROWTH_MAX:
                report.problems.append(f"the ledger grows otherwise than foretold: {rows}")

    def _delays(self) -> list[float]:
        """Of each minute and pipeline the seconds from its end to its last commit.

        Without the first two, in which Airflow has parsed the DAGs, and the last.
        """
        with self.database.transaction(read_only=True) as tx:
            delays: list[float] = []
            for name in self.pipelines:
                rows = tx.rows(
                    "select timestampdiff(second, c.log_time, max(b.committed_at)) - 60 as late"
                    f" from `{name}__segments` c join segment s using (segment_id)"
                    " join batch b using (batch_id) where c.log_time > date_sub("
                    "utc_timestamp(), interval 1 day) group by c.log_time order by c.log_time"
                )
                delays += [float(row["late"]) for row in rows[2:-1]]
        return delays

    def _check_counts(self, name: str) -> None:
        ctx = open_context(self.settings)
        while batch_ids := plan(ctx, name).batch_ids:
            list(run_batches(ctx, batch_ids))
        found, wrong = recount(ctx, name, lambda *_: None)
        counted = audit(ctx, name)
        traffic, problems = self.traffic[name], self.report.problems
        self.report.lines += traffic.sent
        if wrong or not counted.holds or counted.records != traffic.sent or not found.complete:
            problems.append(f"{name}: {traffic.sent} lines were sent; {counted}; {wrong}")
        with self.database.transaction(read_only=True) as tx:
            rows: Mapping[str, Any] = tx.pairs(
                f"select date_format(log_time, '%%Y-%%m-%%d %%H:%%i'), sum(log_count) from `{name}`"
                " group by log_time"
            )
            offsets = tx.pairs(
                "select partition_id, next_offset from partition_offset join topic_incarnation"
                " using (incarnation_id) where pipeline = %s",
                (name,),
            )
        if {minute: int(n) for minute, n in rows.items()} != traffic.lines_before(offsets):
            problems.append(f"{name}: the counts are not those of the lines that were written")


def main() -> int:
    """Run it; returns 0 when all holds."""
    parser = argparse.ArgumentParser(prog="tests.chaos.endurance", description=__doc__)
    parser.add_argument("--minutes", type=int, default=120)
    parser.add_argument("--rate", type=int, default=5_000, help="lines a second, of all pipelines")
    parser.add_argument("--pipelines", type=int, default=10)
    parser.add_argument(
        "--celery", action="store_true", help="CeleryExecutor, and parts are killed"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where the report is written, too")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="tally-endurance-") as folder:
        report = Trial(options, checkout(Path(folder).resolve() / "checkout")).run()
    found = vars(report)
    for key, value in found.items():
        _say(f"{key}: {json.dumps(value, default=str)}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1, default=str) + "\n", encoding="utf-8")
    return 1 if report.problems else 0


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
