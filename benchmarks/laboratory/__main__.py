"""``make lab``: what each way to deliver loses and doubles, under the same faults.

Each method counts the same lines once for each fault, in a process of its own that is started again
when it was killed, with real servers and Spark. A line has a minute of its own, so its count says
what became of it. Prints a table, and with ``--write`` puts it into ``docs/delivery.md``. Ends with
exit code 1 when a delivery of Tally's is not exact, or a fault did not strike.

With ``--cluster`` the tasks run on a Spark cluster of two workers, which has faults of its own.
"""

import argparse
import itertools
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.deliveries import delivery
from benchmarks.laboratory.bench import (
    LINES,
    PARTITIONS,
    PER_BATCH,
    PER_SMALLER_BATCH,
    Verdict,
    judge,
    write,
)
from benchmarks.laboratory.child import ON_CLUSTER
from benchmarks.laboratory.faults import FAULT, FOLDER, OF_CLUSTERS, OF_COPIES, Fault
from benchmarks.laboratory.methods import METHODS, Method
from benchmarks.page import Table, put, say
from benchmarks.peers.store import Store
from benchmarks.servers import PROJECT, Bench, serving
from tally.audit.audit import audit
from tally_local.stack.server import Part

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
        return keys + delivery(self.method.delivery or "batch", f"laboratory/{self.topic}")

    def __str__(self) -> str:
        return f"{self.name}, {self.fault}"


def main() -> int:
    """Run the laboratory."""
    parser = argparse.ArgumentParser(prog="make lab", description=__doc__.splitlines()[0])
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=list(METHODS))
    parser.add_argument("--faults", nargs="*", choices=[f.name for f in Fault])
    parser.add_argument("--cluster", action="store_true", help="on a Spark cluster of two workers")
    parser.add_argument("--write", action="store_true", help="put the table into docs/delivery.md")
    asked = parser.parse_args()
    faults = [
        fault
        for fault in Fault
        if (fault.name in asked.faults if asked.faults else (fault in OF_CLUSTERS) == asked.cluster)
    ]
    trials = [
        Trial(number=number, name=name, fault=fault)
        for number, (name, fault) in enumerate(itertools.product(asked.methods, faults))
        if fault in METHODS[name].faults
    ]
    found: dict[str, dict[Fault, Verdict]] = {name: {} for name in asked.methods}
    wrong = []
    topics = {trial.topic: PARTITIONS for trial in trials}
    parts = (Part.KAFKA, Part.MYSQL, *([Part.CLUSTER] if asked.cluster else []))
    seconds: dict[str, float] = {}
    with serving({trial.pipeline: trial.keys for trial in trials}, topics, parts) as servers:
        for trial in trials:
            began = time.monotonic()
            verdict, took, problems = run(servers, trial, on_cluster=asked.cluster)
            found[trial.name][trial.fault] = verdict
            if trial.fault is Fault.NONE:
                seconds[trial.name] = took
            wrong += [f"{trial}: {problem}" for problem in problems]
            say(f"{time.monotonic() - began:6.1f} s  {trial}: {verdict}")
    table = table_of(found, faults, seconds, is_cluster=asked.cluster)
    say(str(table))
    if asked.write:
        put(table, PAGE)
    for problem in wrong:
        say(f"PROBLEM: {problem}")
    return 1 if wrong else 0


def run(servers: Bench, trial: Trial, *, on_cluster: bool) -> tuple[Verdict, float, list[str]]:
    """Let a method count all lines under a fault.

    Returns:
        What became of the lines, for how long the last process has worked, and what must not be.
    """
    write(servers.settings.kafka.bootstrap_servers, trial.topic)
    Store(servers.login(), "lab").create()
    with tempfile.TemporaryDirectory() as folder:
        has_struck = _until_done(servers, trial, Path(folder), on_cluster=on_cluster)
        took = float(Path(folder, "seconds").read_text(encoding="ascii"))
    verdict = judge(_counts(servers.login(), trial))
    problems = [] if has_struck or trial.fault is Fault.NONE else ["the fault did not strike"]
    if trial.method.delivery:
        audited = audit(servers.context(), trial.pipeline)
        problems += [f"the audit says {v}" for v in audited.findings]
        problems += [str(verdict)] if verdict != Verdict(0, 0) else []
    return verdict, took, problems


def _until_done(servers: Bench, trial: Trial, folder: Path, *, on_cluster: bool) -> bool:
    """Start the method until it ends by itself; whether the fault has struck."""
    command = [sys.executable, "-m", "benchmarks.laboratory.child", trial.name]
    command += [str(servers.config), trial.pipeline, trial.topic]
    environment = {
        **servers.environment(),
        FAULT: trial.fault.value,
        FOLDER: str(folder),
        ON_CLUSTER: "1" if on_cluster else "",
    }
    happened = "copied" if trial.fault in OF_COPIES else "struck"
    for _ in range(STARTS_MAX):
        log = folder / "log"
        with log.open("w", encoding="utf-8") as stream:
            ended = subprocess.run(
                command, env=environment, stdout=stream, stderr=stream, check=False
            )
        if ended.returncode == 0:
            return (folder / happened).exists()
        if ended.returncode > 0:
            raise RuntimeError(f"{trial} has failed: {log.read_text(encoding='utf-8')[-3000:]}")
        if trial.fault is Fault.CODE_CHANGED:
            _make_batches_smaller(servers.config, trial)
        if trial.fault is Fault.STATE_LOST:
            shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    raise RuntimeError(f"{trial}: it was killed {STARTS_MAX} times")


def _make_batches_smaller(config: Path, trial: Trial) -> None:
    """Change the settings of a pipeline, as a new version of a program would."""
    text = config.read_text(encoding="utf-8")
    smaller = trial.keys.replace(f"= {PER_BATCH}\n", f"= {PER_SMALLER_BATCH}\n")
    config.write_text(text.replace(trial.keys, smaller), encoding="utf-8")


def _counts(login: Mapping[str, Any], trial: Trial) -> Mapping[str, int]:
    """What the method has counted, by minute; of kept lines those that readers see."""
    name = trial.method.delivery
    store = Store(login, trial.pipeline if name else "lab")
    if name in {"", "batch", "partition"}:
        return store.counts()
    with store.transaction() as tx:
        if name == "files":
            tx.execute(f"select file from {trial.pipeline}_files")
            files = [str(file).removeprefix("file://") for (file,) in tx.fetchall()]
            times = [at for file in files for at in pq.read_table(file)["log_time"].to_pylist()]
        else:
            tx.execute(f"select log_time from {trial.pipeline}_rows")
            times = [at for (at,) in tx.fetchall()]
    return Counter(str(at)[:16] for at in times)


def table_of(
    found: Mapping[str, Mapping[Fault, Verdict]],
    faults: Sequence[Fault],
    seconds: Mapping[str, float],
    *,
    is_cluster: bool = False,
) -> Table:
    """A row for each method, a column for each fault; - where there is no such fault.

    Args:
        found: What became of the lines, by method and fault.
        faults: The columns.
        seconds: How long each method has taken without a fault; empty when that was not tried.
        is_cluster: Whether the tasks were on a cluster.
    """
    return Table(
        name="laboratory-cluster" if is_cluster else "laboratory",
        headers=["method", *faults, *(["seconds", "lines/s"] if seconds else [])],
        rows=[
            [METHODS[name].title, *(str(of.get(fault, "-")) for fault in faults)]
            + ([f"{seconds[name]:.1f}", f"{LINES / seconds[name]:,.0f}"] if seconds else [])
            for name, of in found.items()
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
