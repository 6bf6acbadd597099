"""The campaign: lines are written, batches and replays run, processes die, and the counts hold."""

import http.client
import json
import platform
import random
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

import psutil
import pymysql
from confluent_kafka import KafkaException

from tally.airflow.policies import REPLAY_SUFFIX
from tally.errors import EXIT_FENCED, EXIT_OPERATOR, EXIT_RETRYABLE, StackError
from tally.model import BatchKind
from tests.chaos import attack
from tests.chaos.checker import Findings, check, check_so_far
from tests.chaos.completeness import CompleteMinutes, announced_wrong
from tests.chaos.production import Produced, Production
from tests.chaos.system import FIRST_PARTITIONS, PIPELINE, PROGRAMS, TOPIC, Companion, Setup, System

PARTITIONS_MAX: Final = 8
CALM_S: Final = 600
"""Longest time without a commit while counting catches up at the end."""
FIRST_COMMIT_S: Final = 240
# How much longer to try kinds that have had no victim yet.
GRACE_S: Final = 600
LONG_S: Final = 300
"""A campaign of at least this duration must commit batches of each kind under faults."""
SOAK_S: Final = 3600
"""In a campaign of at least this duration memory must not grow."""
GROWTH_MAX: Final = 1.25
"""Allowed growth of a role's largest process, from the second quarter to the last."""
# Exit codes of commands under faults: done, killed, retryable, refused, fenced.
EXITS: Final = {0, -signal.SIGKILL, EXIT_RETRYABLE, EXIT_OPERATOR, EXIT_FENCED}
# Errors of a query while MySQL is down.
IS_DOWN: Final = (
    pymysql.err.OperationalError,
    pymysql.err.InterfaceError,
    pymysql.err.InternalError,
    OSError,
)
SAMPLE_S: Final = 10
LOOK_S: Final = 5
# Share of the moments, a second apart, at which a replay is triggered in Airflow.
REPLAY_SHARE: Final = 0.01


@dataclass(frozen=True, kw_only=True)
class Orders(Setup):
    """The parameters of a campaign."""

    seed: int
    duration_s: float
    """For how long faults come."""
    gap_s: tuple[float, float]
    """Shortest and longest time between two faults."""
    rate: int
    """Lines a second."""


@dataclass(slots=True)
class Report:
    """The report of a campaign."""

    seed: int
    machine: str
    duration_s: float = 0.0
    """Duration of the faults, without the end of the campaign."""
    catching_up_s: float = 0.0
    faults: dict[str, int] = field(default_factory=dict)
    commits: dict[str, int] = field(default_factory=dict)
    commits_under_fire: int = 0
    """How often, from the first fault to the last, new batches were seen to be committed."""
    batches: dict[str, int] = field(default_factory=dict)
    lines: int = 0
    partitions: int = 0
    looks: int = 0
    """How often the result was looked at while faults came."""
    to_next_commit_s: dict[str, dict[str, float]] = field(default_factory=dict)
    """By kind of fault: median and longest time until a batch was committed."""
    exits: dict[str, dict[str, int]] = field(default_factory=dict)
    airflow_runs: dict[str, int] = field(default_factory=dict)
    memory_mib: dict[str, list[float]] = field(default_factory=dict)
    """By role: resident memory of its largest process in each quarter of the time."""
    complete_minutes: int = 0
    """Minutes of the result that are complete at the end."""
    amended_minutes: int = 0
    """Those of them that have changed since they were."""
    announced: int = 0
    """Events of Airflow's about complete hours and about changed ones."""
    lost: int = 0
    duplicated: int = 0
    """Lines, at the end or at any check."""
    invented: int = 0
    problems: list[str] = field(default_factory=list)


class Watch(Companion):
    """Polls commits, the result and memory during the campaign."""

    def __init__(self, system: System, production: Production) -> None:
        super().__init__("watch")
        self._system, self._production = system, production
        self.commits: list[float] = []
        """When a new batch was seen to be committed, in seconds of the monotonic clock."""
        self.committed: Counter[str] = Counter()
        """How many were last seen, by kind."""
        self.looks = 0
        self.findings = Findings()
        self.complete = CompleteMinutes()
        self.falls: list[str] = []
        """Times at which the result or the dead letters had become fewer."""
        self.memory: dict[str, list[tuple[float, float]]] = {}
        """By role: moments, and MiB of its largest process."""
        self._sums = (0, 0)

    def run(self) -> None:
        """Run until it is stopped."""
        next_look = next_sample = 0.0
        while not self._stopping.wait(0.2):
            now = time.monotonic()
            try:
                self._look_for_commits()
                if now >= next_look:
                    next_look = now + LOOK_S
                    self._look_at_the_result()
                if now >= next_sample:
                    next_sample = now + SAMPLE_S
                    self._sample()
            except (*IS_DOWN, psutil.Error):
                continue  # it is restarted

    def _look_for_commits(self) -> None:
        rows = self._system.rows(
            "select kind, count(*) as n from batch where state = 'committed' group by kind"
        )
        committed = Counter({row["kind"]: row["n"] for row in rows})
        if committed.total() > self.committed.total():
            self.committed = committed
            self.commits.append(time.monotonic())

    def _look_at_the_result(self) -> None:
        for result in (self._system.result(more_than=1), self._system.kept_lines(more_than=1)):
            shared = self._production.so_far().shared
            self.findings.duplicated += check_so_far(result or {}, shared)
        self.complete.look(self._system.minutes())
        self.looks += 1
        # A replay counts the same lines again here, so neither sum may ever fall.
        sums = self._system.sums()
        if sums[0] < self._sums[0] or sums[1] < self._sums[1]:
            self.falls.append(f"from {self._sums} to {sums}")
        self._sums = sums

    def _sample(self) -> None:
        for role, processes in attack.processes_by_role(self._system).items():
            if largest := max(map(_resident, processes), default=0):
                self.memory.setdefault(role, []).append((time.monotonic(), largest / 2**20))


class AirflowRuns(Companion):
    """Triggers the minute DAG as soon as no run is active, and sometimes a replay."""

    def __init__(self, system: System, seed: int) -> None:
        super().__init__("airflow runs")
        self._system = system
        self._random = random.Random(seed)
        self._unanswered = 0

    def run(self) -> None:
        """Run until it is stopped."""
        while not self._stopping.wait(1):
            try:
                self._trigger_if_idle()
            except (StackError, OSError, http.client.HTTPException, pymysql.err.Error):
                self._unanswered += 1  # Airflow is down, or a run of the same moment exists

    def wait_for_last(self) -> bool:
        """Wait until no run is active; False if one does not end."""
        dags = (PIPELINE, f"{PIPELINE}{REPLAY_SUFFIX}")
        return _within(CALM_S, lambda: not any(map(self._is_active, dags)))

    def announce_all(self) -> bool:
        """Run the minute DAG until nothing is announced any more; False if that never comes."""
        told = -1
        while (now := len(self._system.announced())) > told:
            told = now
            self._trigger(PIPELINE, {})
            if not self.wait_for_last():
                return False
        return True

    def states(self) -> Counter[str]:
        """The runs of all DAGs by state, and how often Airflow did not answer."""
        states = Counter({"unanswered": self._unanswered})
        while True:
            path = f"/api/v2/dags/~/dagRuns?limit=100&offset={states.total() - self._unanswered}"
            found = self._system.airflow().ask("GET", path)["dag_runs"]
            if not found:
                return states
            states.update(f"{run['dag_id']} {run['state']}" for run in found)

    def _trigger_if_idle(self) -> None:
        if not self._is_active(PIPELINE):
            self._trigger(PIPELINE, {})
        if self._random.random() < REPLAY_SHARE:
            self._trigger_replay()

    def _trigger_replay(self) -> None:
        asked = random_range(self._system, self._random)
        if asked is None or self._is_active(f"{PIPELINE}{REPLAY_SUFFIX}"):
            return
        partition, start, until = asked
        conf = {
            "what": "ranges",
            "ranges": f"{TOPIC}/{partition}:{start}-{until}",
            "dry_run": False,
            "reason": "the fault campaign",
        }
        self._trigger(f"{PIPELINE}{REPLAY_SUFFIX}", conf)

    def _is_active(self, dag_id: str) -> bool:
        path = f"/api/v2/dags/{dag_id}/dagRuns?state=running&state=queued&limit=1"
        return bool(self._system.airflow().ask("GET", path)["dag_runs"])

    def _trigger(self, dag_id: str, conf: dict[str, Any]) -> None:
        path = f"/api/v2/dags/{dag_id}/dagRuns"
        self._system.airflow().ask("POST", path, logical_date=None, conf=conf)


def run_campaign(orders: Orders, say: Callable[[str], None]) -> Report:
    report = Report(
        seed=orders.seed,
        machine=f"{psutil.cpu_count()} cores, {platform.machine()}, Python "
        f"{platform.python_version()}",
    )
    with closing(System(orders, say)) as system:
        system.start()
        _run(system, orders, report, say)
    left = [" ".join(attack.arguments(p))[:100] for p in system.processes()]
    report.problems += [f"a process is left behind: {line}" for line in left]
    return report


def random_range(system: System, choose: random.Random) -> tuple[int, int, int] | None:
    """A partition and some offsets that are counted; None when there are none yet."""
    rows = system.rows("select partition_id, next_offset from partition_offset")
    counted = [row for row in rows if row["next_offset"] > 1]
    if not counted:
        return None
    row = choose.choice(counted)
    start = choose.randrange(row["next_offset"])
    until = min(row["next_offset"], start + choose.randrange(1, 3000))
    return row["partition_id"], start, until


def _run(system: System, orders: Orders, report: Report, say: Callable[[str], None]) -> None:
    production = Production(
        system.settings.kafka,
        TOPIC,
        partitions=FIRST_PARTITIONS,
        rate=orders.rate,
        seed=orders.seed,
    )
    production.start()
    choose = random.Random(orders.seed)
    watch = Watch(system, production)
    watch.start()
    runs = AirflowRuns(system, orders.seed) if orders.with_airflow else None
    system.add_lane("run", lambda: ["run"] if runs is None or choose.random() < 0.4 else None)
    system.add_lane("replay", lambda: _replay_command(system, choose))
    if runs is not None:
        runs.start()
    try:
        if not _within(FIRST_COMMIT_S, lambda: bool(watch.commits)):
            report.problems.append(f"no batch was committed in {FIRST_COMMIT_S} s")
        before, moments = watch.committed, len(watch.commits)
        struck = _strike(system, orders, production, report, say)
        report.commits_under_fire = len(watch.commits) - moments
        if orders.duration_s >= LONG_S:
            report.problems += [
                f"no {kind} batch was committed under fire"
                for kind in (BatchKind.INGEST, BatchKind.REPLAY)
                if watch.committed[kind] == before[kind]
            ]
        begun = time.monotonic()
        produced = production.close()
        _calm_down(system, produced, report)
        report.catching_up_s = round(time.monotonic() - begun, 1)
        if runs is not None:
            _end_runs(runs, report)
        _end_lanes(system, report)
        _within(CALM_S, lambda: not counting(system))
        report.problems += [f"without a parent it still counts: {one}" for one in counting(system)]
        if not watch.stop():
            report.problems.append("the result was no longer checked: the watch had ended")
        _conclude(system, produced, watch, report)
        _conclude_minutes(system, watch, report)
        report.to_next_commit_s = _recovery(struck, watch.commits)
        for name, wait in report.to_next_commit_s.items():
            if wait["longest"] > CALM_S:
                report.problems.append(
                    f"after {name} nothing was committed for {wait['longest']} s"
                )
    finally:
        production.abort()


def _replay_command(system: System, choose: random.Random) -> Sequence[str] | None:
    try:
        if open_ := system.rows("select replay_id from replay where state = 'open'"):
            return ["replay", "--resume", str(choose.choice(open_)["replay_id"])]
        asked = random_range(system, choose)
    except IS_DOWN:
        return None
    if asked is None:
        return None
    partition, start, until = map(str, asked)
    where = ["--topic", TOPIC, "--partition", partition, "--from", start, "--until", until]
    return ["replay", PIPELINE, *where, "--reason", "the fault campaign", "--yes"]


def _within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Wait so long for a condition; returns whether it has come."""
    deadline = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return holds


def _strike(
    system: System,
    orders: Orders,
    production: Production,
    report: Report,
    say: Callable[[str], None],
) -> list[tuple[str, float]]:
    """Play faults; returns which, and when."""
    repairer = attack.Repairer()
    attacker = attack.Attacker(system, orders.seed, repairer)
    faults = [fault for fault in attack.FAULTS if fault.is_possible(system)]
    waited_for = attacker.random.sample(faults, len(faults))
    struck: list[tuple[str, float]] = []

    def add_partition() -> None:
        production.use_partition(system.add_partition())

    begun = time.monotonic()
    end = begun + orders.duration_s
    for n in range(1, PARTITIONS_MAX - FIRST_PARTITIONS + 1):
        wait = orders.duration_s * n / (PARTITIONS_MAX - FIRST_PARTITIONS + 1)
        repairer.later(wait, attack.persistently(add_partition, KafkaException))
    try:
        while time.monotonic() < (end + GRACE_S if waited_for else end):
            # Kinds that have not happened come first; after the time is up only they are played.
            some = attacker.some_order(faults) if time.monotonic() < end else []
            order = waited_for + some
            fault = next((fault for fault in order if attacker.strike(fault)), None)
            if fault is None:
                time.sleep(attack.POLL_S)
                continue
            struck.append((fault.name, time.monotonic()))
            say(f"{time.monotonic() - begun:7.1f} s  {fault.name}")
            if fault in waited_for:
                waited_for.remove(fault)
            time.sleep(attacker.random.uniform(*orders.gap_s))
    finally:
        repairer.finish()
    report.duration_s = round(time.monotonic() - begun, 1)
    report.faults = dict(Counter(name for name, _ in struck))
    never = [fault.name for fault in faults if fault.name not in report.faults]
    report.problems += [f"{name} was never done" for name in never]
    report.problems += [f"not repaired: {failure}" for failure in repairer.failures]
    return struck


def _calm_down(system: System, produced: Produced, report: Report) -> None:
    """Wait until counting has come to the end of all that was produced."""
    system.repair()
    last, last_offsets = time.monotonic(), -1
    while (offsets := system.offsets()) < produced.lines:
        if offsets > last_offsets:
            last, last_offsets = time.monotonic(), offsets
        if time.monotonic() > last + CALM_S:
            report.problems.append(f"counting has stopped at {offsets} offsets for {CALM_S} s")
            return
        time.sleep(1)


def _end_runs(runs: AirflowRuns, report: Report) -> None:
    if not runs.stop():
        report.problems.append("Airflow was no longer triggered: the thread had ended")
    if not runs.wait_for_last():
        report.problems.append(f"a run of Airflow has not ended after {CALM_S} s")
    if not runs.announce_all():
        report.problems.append(f"what is complete was not announced within {CALM_S} s")
    report.airflow_runs = dict(runs.states())
    if f"{PIPELINE} success" not in report.airflow_runs:
        report.problems.append("no run of Airflow's has succeeded")


def _end_lanes(system: System, report: Report) -> None:
    """Wait for the commands, and resume the replays that are still open."""
    for name, lane in system.lanes.items():
        if not lane.stop(CALM_S):
            report.problems.append(f"tally {name} was no longer called: the thread had ended")
        if lane.is_alive():
            report.problems.append(f"a tally {name} has not ended after {CALM_S} s")
        report.exits[name] = {str(code): n for code, n in sorted(lane.exits.items())}
        report.problems += [
            f"a command has ended with {code}: {lane.last_output[code]}"
            for code in sorted(lane.exits.keys() - EXITS)
        ]
    for row in system.rows("select replay_id from replay where state = 'open'"):
        ended = system.command("replay", "--resume", str(row["replay_id"]))
        if ended.returncode:
            report.problems.append(f"replay {row['replay_id']} cannot be ended: {ended.stderr}")
    if system.rows("select 1 from batch where state = 'planned'"):
        ended = system.command("run")
        if ended.returncode:
            report.problems.append(f"the last tally run has failed: {ended.stderr}")


def counting(system: System) -> list[str]:
    """Command lines of all processes that plan, count or commit."""
    servers = system.spark_servers()
    lines = [attack.arguments(p) for p in system.processes() if p not in servers]
    return [" ".join(line)[:100] for line in lines if _counts(line)]


def _counts(line: Sequence[str]) -> bool:
    is_command = any(program in line for program in PROGRAMS)
    return is_command or any(word.endswith("/count_errors.py") for word in line)


def _conclude(system: System, produced: Produced, watch: Watch, report: Report) -> None:
    """Check the result, and for leftovers in the ledger and in MySQL."""
    findings = check(produced, system.result(), system.dead_letters())
    report.lost, report.invented = len(findings.lost), len(findings.invented)
    report.duplicated = len(findings.duplicated) + len(watch.findings.duplicated)
    report.lines, report.partitions = produced.lines, len(produced.kinds)
    report.looks = watch.looks
    told = [(findings, "at the end"), (watch.findings, "while faults came")]
    if (kept := system.kept_lines()) is not None:
        told.append((check(produced, kept, system.dead_letters()), "of the lines that are kept"))
    report.problems += [f"{where}: {found}" for found, where in told if str(found)]
    report.problems += [f"there was less than before: {fall}" for fall in watch.falls]
    if not watch.looks:
        report.problems.append("the result was never checked while faults came")
    audit = system.command("audit", PIPELINE, "--recount", "--json")
    if audit.returncode:
        report.problems.append(f"the audit ends with {audit.returncode}: {audit.stdout}")
    else:
        again = json.loads(audit.stdout)["recount"]
        if not again["complete"] or again["records"] != produced.lines:
            report.problems.append(f"of {produced.lines} lines not all were recounted: {again}")
    for row in system.rows("select kind, state, count(*) as n from batch group by kind, state"):
        report.batches[f"{row['kind']} {row['state']}"] = row["n"]
        if row["state"] == "committed":
            report.commits[row["kind"]] = row["n"]
        if row["state"] == "planned":
            report.problems.append(f"{row['n']} {row['kind']} batches stay open")
    transactions = system.rows(
        "select t.trx_id from information_schema.innodb_trx t"
        " join information_schema.processlist p on p.id = t.trx_mysql_thread_id where p.user = %s",
        (system.settings.mysql.user,),
    )
    report.problems += [f"a transaction is left: {row['trx_id']}" for row in transactions]
    report.memory_mib = {role: quarters(of_role) for role, of_role in watch.memory.items()}
    if report.duration_s >= SOAK_S:
        report.problems += [
            f"the memory of {role} grows: {mib} MiB"
            for role, mib in report.memory_mib.items()
            if mib[3] > mib[1] * GROWTH_MAX > 0
        ]


def _conclude_minutes(system: System, watch: Watch, report: Report) -> None:
    """Check what was called complete, what of it was amended, and what Airflow was told."""
    (row,) = system.rows(
        f"select count(*) as n, count(amended_at) as amended from `{PIPELINE}_minutes`"
        " where state <> 'open'"
    )
    report.complete_minutes, report.amended_minutes = row["n"], row["amended"]
    watch.complete.look(system.minutes())
    report.problems += watch.complete.broken
    silent = system.silently_changed()
    report.problems += [
        f"{minute} was complete, has changed, and is not amended" for minute in silent
    ]
    if system.setup.with_airflow:
        events = system.announced()
        report.announced = len(events)
        report.problems += announced_wrong(events, *system.hours())


def _recovery(struck: list[tuple[str, float]], commits: list[float]) -> dict[str, dict[str, float]]:
    waits: dict[str, list[float]] = {}
    for name, moment in struck:
        later = [commit - moment for commit in commits if commit > moment]
        if later:
            waits.setdefault(name, []).append(min(later))
    return {
        name: {"median": round(statistics.median(some), 1), "longest": round(max(some), 1)}
        for name, some in sorted(waits.items())
    }


def quarters(samples: Sequence[tuple[float, float]]) -> list[float]:
    """The largest value in each quarter of the time; 0 where there is none."""
    begun, ended = samples[0][0], samples[-1][0]
    largest = [0.0] * 4
    for moment, value in samples:
        quarter = min(3, int(4 * (moment - begun) / max(ended - begun, 1)))
        largest[quarter] = max(largest[quarter], value)
    return [round(value, 1) for value in largest]


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0
