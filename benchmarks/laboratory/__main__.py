"""``make lab``: what each way to deliver loses and doubles, under the same faults.

Each method counts the same lines once for each fault, in a process of its own that is started again
when it was killed, with real servers and Spark. A line has a minute of its own, so its count says
what became of it. Prints a table, and with ``--write`` puts it into ``docs/delivery.md``. Ends with
exit code 1 when a delivery of Tally's is not exact, or a fault did not strike.
"""

import argparse
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.laboratory.faults import FAULT, FOLDER, Fault
from benchmarks.laboratory.lines import PARTITIONS, PER_BATCH, Verdict, counted, judge, write
from benchmarks.laboratory.methods import METHODS, Method
from benchmarks.laboratory.store import CREATE, Store
from benchmarks.page import Table, put
from benchmarks.servers import PROJECT, Bench, login, say, serving
from tally.pipeline.audit import audit_ledger

PAGE = PROJECT / "docs" / "delivery.md"
STARTS_MAX = 4
"""A fault strikes once, so that a process is started twice; each more is a bug."""
_RUN = time.time_ns()


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """A method under a fault."""

    number: int
    """Of the trial in this run."""
    name: str
    """The method's."""
    fault: Fault
    """The fault."""

    @property
    def method(self) -> Method:
        """The method."""
        return METHODS[self.name]

    @property
    def pipeline(self) -> str:
        """A pipeline of Tally's that reads the topic; Tally's methods count with it."""
        return f"lab{self.number}"

    @property
    def topic(self) -> str:
        """The topic; Kafka keeps those of earlier runs."""
        return f"lab-{_RUN}-{self.number}"

    @property
    def keys(self) -> str:
        """Of the pipeline, as TOML."""
        keys = f'topics = ["{self.topic}"]\nmax_records_per_partition = {PER_BATCH}\n'
        return keys + (f'delivery = "{self.method.delivery}"' if self.method.delivery else "")

    def __str__(self) -> str:
        return f"{self.name}, {self.fault}"


def main() -> int:
    """Run the laboratory."""
    parser = argparse.ArgumentParser(prog="make lab", description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS))
    parser.add_argument(
        "--faults", nargs="*", choices=[f.name for f in Fault], default=[f.name for f in Fault]
    )
    parser.add_argument("--write", action="store_true", help="put the table into docs/delivery.md")
    asked = parser.parse_args()
    faults = [fault for fault in Fault if fault.name in asked.faults]
    trials = [
        Trial(number=number, name=name, fault=fault)
        for number, (name, fault) in enumerate(itertools.product(asked.methods, faults))
        if fault in METHODS[name].faults
    ]
    found: dict[str, dict[Fault, Verdict]] = {name: {} for name in asked.methods}
    wrong = []
    topics = {trial.topic: PARTITIONS for trial in trials}
    with serving({trial.pipeline: trial.keys for trial in trials}, topics) as servers:
        for trial in trials:
            began = time.monotonic()
            verdict, problems = run(servers, trial)
            found[trial.name][trial.fault] = verdict
            wrong += [f"{trial}: {problem}" for problem in problems]
            say(f"{time.monotonic() - began:6.1f} s  {trial}: {verdict}")
    table = table_of(found, faults)
    say("\n".join(table.lines()))
    if asked.write:
        put(table, PAGE)
    for problem in wrong:
        say(f"PROBLEM: {problem}")
    return 1 if wrong else 0


def run(servers: Bench, trial: Trial) -> tuple[Verdict, list[str]]:
    """Let a method count all lines under a fault.

    Returns:
        What became of the lines, and what must not be.
    """
    write(servers.settings.kafka.bootstrap_servers, trial.topic)
    store = Store(login(servers))
    with store.transaction() as tx:
        for statement in CREATE:
            tx.execute(statement)
    with tempfile.TemporaryDirectory() as folder:
        has_struck = _until_done(servers, trial, Path(folder))
    verdict = judge(_counts(store, trial))
    problems = [] if has_struck or trial.fault is Fault.NONE else ["the fault did not strike"]
    if trial.method.delivery:
        audit = audit_ledger(servers.context(), trial.pipeline)
        problems += [f"the audit says {v}" for v in audit.violations]
        problems += [str(verdict)] if verdict != Verdict(0, 0) else []
    return verdict, problems


def _until_done(servers: Bench, trial: Trial, folder: Path) -> bool:
    """Start the method until it ends by itself; whether the fault has struck."""
    child = [sys.executable, "-m", "benchmarks.laboratory.child"]
    command = [*child, trial.name, str(servers.config), trial.pipeline, trial.topic]
    environment = {
        **os.environ,
        FAULT: trial.fault.value,
        FOLDER: str(folder),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(PROJECT),  # of Spark's Python workers, too
    }
    for _ in range(STARTS_MAX):
        log = folder / "log"
        with log.open("w", encoding="utf-8") as stream:
            ended = subprocess.run(
                command, env=environment, stdout=stream, stderr=stream, check=False
            )
        if ended.returncode == 0:
            return (folder / "struck").exists()
        if ended.returncode > 0:
            raise RuntimeError(f"{trial} has failed: {log.read_text(encoding='utf-8')[-3000:]}")
        if trial.fault is Fault.STATE_LOST:
            shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    raise RuntimeError(f"{trial}: it was killed {STARTS_MAX} times")


def _counts(store: Store, trial: Trial) -> dict[str, int]:
    """What the method has counted, by minute; of kept lines those that readers see."""
    source = {
        "": "select log_time, n from lab_count",
        "rows": f"select log_time, count(*) as n from {trial.pipeline}_rows group by log_time",
    }
    counts = f"select log_time, log_count as n from {trial.pipeline}"
    with store.transaction() as tx:
        tx.execute(source.get(trial.method.delivery, counts))
        return counted(tx.fetchall())


def table_of(found: Mapping[str, Mapping[Fault, Verdict]], faults: Sequence[Fault]) -> Table:
    """A row for each method, a column for each fault; - where there is no such fault."""
    return Table(
        name="laboratory",
        headers=["method", *faults],
        rows=[
            [METHODS[name].title, *(str(of.get(fault, "-")) for fault in faults)]
            for name, of in found.items()
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
