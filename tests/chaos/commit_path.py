"""The campaign against the commit path: every statement of it, and every fault that can meet it.

A seeded random walk. In each round an operation of one pipeline meets a fault of the connection,
the server or the process, played by :mod:`tests.properties.faults`; then it is called again, as
Airflow would, until it is done. After each call what was committed is checked against the protocol,
and the audit checks the ledger. Kafka is a model, MySQL is real.
"""

import logging
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

from tally_local.stack.server import Part
from tally_local.stack.stack import Stack
from tests.properties import operations as op
from tests.properties.disturbance import Disturbance
from tests.properties.fault_choice import EVERY, GAP, FaultChoice
from tests.properties.faults import PROFILES, SLOW, FaultKind, normalised
from tests.properties.finish import finish, is_changed
from tests.properties.operations import Operation
from tests.properties.oracle import AUDITS_EVERY, Oracle
from tests.properties.pipeline import PipelineUnderTest
from tests.properties.scenarios import FIRST_PLAN, SCENARIOS, Scenario, some_lines
from tests.properties.setup import NewPipeline, pipelines, settings_for
from tests.protocol.model import HARD_CASES
from tests.servers import PROJECT, free_home

ROUNDS_PER_LIFE: Final = 40
ACTIONS_MIN: Final = 6
"""A short pipeline comes to its end when it was in a scenario and its trace has so many actions."""
PRUNED: Final = 0.4
"""Share of short pipelines that are pruned at their end; there is a scenario for it, too."""
FIRST_PLANS_UNDER_FAULT: Final = 0.25
"""Share of short pipelines whose first plan already meets a fault."""
DELIVERIES_OF_TRACES: Final = ("batch", "partition") * 9 + ("rows", "procedure", "files")
"""To keep lines takes two to three times as long, and most of that is beside the protocol."""
CHEAP: Final = (
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-doublewrite=OFF",
    "--performance-schema=OFF",
)
"""For the server of short pipelines: a commit survives its death, and not the machine's."""
PIPELINES_PER_LOOK: Final = 200
"""After so many short pipelines it is checked that no transaction is left on the server."""
SELDOM: Final = {FaultKind.LOCK_HELD: 1500, FaultKind.SERVER_KILLED: 5000}
"""Faults between two of a slow kind, for short pipelines."""
TRIES: Final = 12
MISMATCHES_MAX: Final = 5
AGAIN_UNDER_FAULT: Final = 0.6
ALL_KINDS_IN: Final = 80
"""Faults among which each kind must be, as each has its turn."""
HARD_CASES_IN: Final = 400
"""Faults among which each of the model's hard cases must be."""
HARD_CASES_IN_SHORT: Final = 2_000
"""The same, where they come to short pipelines."""

# Outcomes after which an operation is called again.
AGAIN: Final = {
    *("killed", "mysql-unavailable", "mysql-refused", "outcome-unknown", "transaction-retry")
}


@dataclass(kw_only=True)
class CommitPathReport:
    """The report of a campaign."""

    seed: int
    seconds: float = 0.0
    rounds: int = 0
    faults: int = 0
    traces: int = 0
    """Pipelines; what each did to its ledger was checked as one trace."""
    actions: int = 0
    """Actions in all traces."""
    shortest: int = 0
    """Actions of the shortest trace."""
    different: int = 0
    """How many sequences of actions the traces have, by the actions' names and answers."""
    hard_cases: dict[str, int] = field(default_factory=dict)
    """How often each of the model's hard cases was in a trace."""
    complete_minutes: int = 0
    """Minutes with lines that were complete in a trace; each change of one was checked."""
    amended_minutes: int = 0
    """Those of them that changed afterwards."""
    commits: int = 0
    commits_under_fault: int = 0
    """Commits between a fault and the end of its operation."""
    kinds: dict[str, int] = field(default_factory=dict)
    coverage: dict[str, dict[str, int]] = field(default_factory=dict)
    """By operation and statement: how often each kind has happened there."""
    never: list[str] = field(default_factory=list)
    """Possible pairs of statement and kind that never happened."""
    recovery_s: dict[str, float] = field(default_factory=dict)
    """Duration of operations with a fault, with retries: median, 99 %, longest."""
    mismatches: list[str] = field(default_factory=list)
    """The oracle's disagreements; any entry is a bug."""
    problems: list[str] = field(default_factory=list)
    """Other failures: kinds that never happened, no progress."""
    history: list[tuple[str, str, str]] = field(default_factory=list)
    """Operation, statement and kind of each fault, in order."""


@dataclass(kw_only=True)
class Met:
    """What a walk has met; that of several walks can be added up."""

    sums: Counter[str] = field(default_factory=Counter)
    """Fields of the report that are sums."""
    kinds: Counter[str] = field(default_factory=Counter)
    cases: Counter[str] = field(default_factory=Counter)
    coverage: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    points: set[tuple[str, str]] = field(default_factory=set)
    """Operations, each with each statement of its undisturbed calls."""
    recoveries: list[float] = field(default_factory=list)
    traces: Counter[bytes] = field(default_factory=Counter)
    """How many traces have a sequence of actions, by its digest."""
    shortest: list[int] = field(default_factory=list)
    mismatches: list[str] = field(default_factory=list)
    history: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, other: "Met") -> None:
        """Add what another walk has met."""
        for name in ("sums", "kinds", "cases", "traces", "points"):
            getattr(self, name).update(getattr(other, name))
        for name in ("recoveries", "shortest", "mismatches"):
            getattr(self, name).extend(getattr(other, name))
        for point, of in other.coverage.items():
            self.coverage[point].update(of)

    def report(
        self, seed: int, seconds: float, hard_cases_in: int = HARD_CASES_IN
    ) -> CommitPathReport:
        """The report of all of it."""
        found = CommitPathReport(
            seed=seed,
            seconds=seconds,
            traces=self.traces.total(),
            shortest=min(self.shortest, default=0),
            different=len(self.traces),
            hard_cases={case: self.cases[case] for case in HARD_CASES},
            kinds={kind: self.kinds[kind] for kind in [*FaultKind.__members__, "RIVAL"]},
            coverage={point: dict(of) for point, of in sorted(self.coverage.items())},
            never=sorted(self._never()),
            mismatches=self.mismatches,
            history=self.history,
        )
        for name, count in self.sums.items():
            setattr(found, name, count)
        found.problems = list(_problems(found, hard_cases_in))
        if times := sorted(self.recoveries):
            parts = {"median": 0.5, "99 %": 0.99, "longest": 1.0}
            at = {what: int((len(times) - 1) * part) for what, part in parts.items()}
            found.recovery_s = {what: round(times[n], 3) for what, n in at.items()}
        return found

    def _never(self) -> Iterator[str]:
        for name, statement in self.points:
            came = self.coverage[f"{name}: {statement}"]
            for kind in FaultKind:
                if kind not in SLOW and PROFILES[kind].meets(statement) and not came[kind.name]:
                    yield f"{name}: {statement}: {kind.name}"


def _problems(report: CommitPathReport, hard_cases_in: int) -> Iterator[str]:
    absent = [kind for kind, came in report.kinds.items() if not came]
    if absent and report.faults >= ALL_KINDS_IN:
        yield f"these never came: {absent}"
    lacking = [case for case, came in report.hard_cases.items() if not came]
    if lacking and report.faults >= hard_cases_in:
        yield f"no trace has these: {lacking}"
    if report.commits_under_fault <= report.rounds / 8:
        yield (
            f"nothing moves: {report.commits_under_fault} commits by operations that met "
            f"a fault, in {report.rounds} rounds"
        )


class Campaign:
    """One seeded walk; with ``is_short`` of pipelines that end with the first trace."""

    def __init__(
        self,
        new: NewPipeline,
        seed: int,
        say: Callable[[str], None],
        *,
        is_short: bool = False,
    ) -> None:
        self.new, self.seed, self.say = new, seed, say
        self.is_short = is_short
        self.met = Met()
        self.random = Random(seed)
        self.pipeline: PipelineUnderTest
        self.oracle: Oracle
        self._lives = self._turn = 0
        self._choice = FaultChoice(self.random, SELDOM if is_short else EVERY)
        self._story: list[str] = []
        """The events of this round."""

    def walk(
        self, faults: int | None, duration_s: float | None, traces: int | None = None
    ) -> CommitPathReport:
        """Run pipelines until the number of faults or traces, or the duration is reached."""
        begun = time.monotonic()
        sums = self.met.sums
        while (
            (faults is None or sums["faults"] < faults)
            and (traces is None or self._lives < traces)
            and (duration_s is None or time.monotonic() - begun < duration_s)
            and len(self.met.mismatches) < MISMATCHES_MAX
        ):
            self._live()
            if not self.is_short or self._lives % PIPELINES_PER_LOOK == 0 or self._lives == traces:
                self.pipeline.wire.close_all()
                self.say(
                    f"{time.monotonic() - begun:.0f} s: {self._lives} pipelines, "
                    f"{sums['faults']} faults in {sums['rounds']} rounds, "
                    f"{sums['commits']} commits, {len(self.met.mismatches)} mismatches"
                )
        self.met.kinds, self.met.points = self._choice.came, set(self._choice.points())
        return self.met.report(self.seed, time.monotonic() - begun)

    def _live(self) -> None:
        """Run one pipeline from its first plan to its end."""
        self._lives += 1
        self.pipeline = self.new()
        self.oracle = Oracle(self.pipeline, None if self.is_short else AUDITS_EVERY)
        trace, met = self.pipeline.recorder.trace, self.met
        try:
            self.pipeline.begin(self._beginning())
            if not self.is_short or self.random.random() < FIRST_PLANS_UNDER_FAULT:
                self._round(FIRST_PLAN)
            else:
                self._do(op.Plan())
            rounds = 1
            while rounds == 1 or self._goes_on(rounds):
                self._round(SCENARIOS[self._turn % len(SCENARIOS)])
                self._turn += 1
                rounds += 1
            self._story = ["come to rest"]
            is_pruned = not self.is_short or self.random.random() < PRUNED
            finish(self.pipeline, self.oracle, with_prune=is_pruned)
            assert not self.pipeline.facts.planned(), "a batch is still planned"
            self._check_nothing_is_asked_twice()
        except Exception as error:  # noqa: BLE001 - told at the end, with all of the evidence
            told = "".join(traceback.format_exception(error)[-12:])
            story = "\n    ".join([f"{type(error).__name__}: {error}", *self._story, told])
            met.mismatches.append(f"seed {self.seed}, round {met.sums['rounds']}: {story}")
            self.say(f"MISMATCH {met.mismatches[-1]}")
        met.sums.update(commits=self.oracle.commits, actions=len(trace))
        facts = self.pipeline.recorder.model.facts
        complete = {key[0] for key in facts.result if key[0] < facts.complete} | {*facts.amended}
        met.sums.update(complete_minutes=len(complete), amended_minutes=len(facts.amended))
        met.cases.update(self.pipeline.recorder.model.cases)
        names = " ".join(f"{action.name}:{action.answer}" for action in trace)
        met.traces[blake2b(names.encode(), digest_size=8).digest()] += 1
        met.shortest = [min([*met.shortest, len(trace)])]

    def _goes_on(self, rounds: int) -> bool:
        if self.is_short:
            return len(self.pipeline.recorder.trace) < ACTIONS_MIN
        return rounds < ROUNDS_PER_LIFE

    def _beginning(self) -> op.Beginning:
        return op.Beginning(
            start=self.random.choice(["earliest", "earliest", "latest"]),
            offsets=self.random.choice(["dense", "dense", "dense", "sparse"]),
            limit=self.random.choice([1000, 1000, 4]),
            delivery=self.random.choice(DELIVERIES_OF_TRACES if self.is_short else op.DELIVERIES),
            said=some_lines(self.random),
        )

    def _round(self, scenario: Scenario) -> None:
        self.met.sums["rounds"] += 1
        self._story = []
        # A repeated replay request returns the recorded replay, as the run id is the same.
        self.pipeline.run_id = f"round-{self._lives}-{self.met.sums['rounds']}"
        for operation in scenario.prepare(self.random):
            self._do(operation)
        self.oracle.check()
        self._play(scenario.name, scenario.operation(self.random))
        if scenario.repair and not self.is_short:  # its end does the same
            for operation in self._repairs():
                self._do(operation)
            self.oracle.check()

    def _do(self, operation: Operation) -> None:
        """Run an operation without a fault."""
        self._story.append(f"{operation}: {self.pipeline.do(operation)}")

    def _repairs(self) -> Iterator[Operation]:
        yield from (op.Plan(), op.Accept(None))
        if is_changed(self.pipeline):
            yield op.Adopt("earliest")
        yield from (op.Plan(), op.RunMinute())

    def _play(self, name: str, operation: Operation) -> None:
        """Call it with a fault, and again until it is done."""
        disturbance = self._choice.choose(name)
        begun: float | None = None
        before = self.oracle.commits
        for attempt in range(TRIES):
            called = time.monotonic()
            ended, came = self._call(name, operation, disturbance, first=attempt == 0)
            begun = called if came and begun is None else begun
            if ended not in AGAIN:
                break
            under_fault = attempt < TRIES // 2 and self.random.random() < AGAIN_UNDER_FAULT
            disturbance = self._choice.choose(name) if under_fault else None
        else:
            raise AssertionError(f"{operation} is not done after {TRIES} calls")
        if begun is not None:
            self.met.recoveries.append(time.monotonic() - begun)
            self.met.sums["commits_under_fault"] += self.oracle.commits - before

    def _call(
        self, name: str, operation: Operation, disturbance: Disturbance | None, *, first: bool
    ) -> tuple[str, bool]:
        """Call it once; returns the outcome, and the faults that happened."""
        faults = self.pipeline.wire.faults
        seen: list[str] = []
        faults.seen = seen
        self._story.append(f"{operation} under {disturbance}")
        ended = "?"
        try:
            ended = self.pipeline.do(operation, disturbance)
        finally:
            faults.seen = None
            came = [(fired.kind.name, normalised(fired.statement)) for fired in faults.fired]
            if self.pipeline.wire.rival_came:
                came.append(("RIVAL", GAP))
            self._story[-1] += f": {ended}, {len(came)} came"
            for kind, statement in came:
                self._note(name, statement, kind)
        if first and not came:
            self._choice.learn(name, seen)
        self.oracle.check()
        return ended, bool(came)

    def _note(self, name: str, statement: str, kind: str) -> None:
        self.met.sums["faults"] += 1
        self.met.history.append((name, statement, kind))
        self._choice.came[kind] += 1
        self.met.coverage[f"{name}: {statement}"][kind] += 1

    def _check_nothing_is_asked_twice(self) -> None:
        """A replay request that was repeated is in the ledger once."""
        twice = self.pipeline.rows(
            "select run_id, request, count(*) as times from replay where pipeline = %s"
            " group by run_id, request having count(*) > 1",
            (self.pipeline.name,),
        )
        assert not twice, twice


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What a campaign does."""

    seed: int
    """An equal seed plays the same faults again."""
    faults: int | None = None
    """It ends after so many faults, with the pipeline that has met the last one."""
    duration_s: float | None = None
    """It ends after so many seconds."""
    traces: int | None = None
    """How many short pipelines are run; None for long ones."""
    by_level: bool = False
    """Whether the pipelines also count by level, and in bytes."""


def run(orders: Orders, say: Callable[[str], None], processes: int = 1) -> CommitPathReport:
    """A campaign in several processes, each on a MySQL of its own.

    Each has a share of the traces, and the seed that follows the one of the process before.
    """
    begun, met = time.monotonic(), Met()
    share, rest = divmod(orders.traces or 0, processes)
    parts = [
        replace(orders, seed=orders.seed + number, traces=share + (number < rest) or None)
        for number in range(processes)
    ]
    if processes == 1:
        met = _walk(orders, say)
    else:
        with ProcessPoolExecutor(processes, get_context("fork")) as pool:
            for part in pool.map(_walk, parts, repeat(say)):
                met.add(part)
    hard_cases_in = HARD_CASES_IN if orders.traces is None else HARD_CASES_IN_SHORT
    return met.report(orders.seed, time.monotonic() - begun, hard_cases_in)


def _walk(orders: Orders, say: Callable[[str], None]) -> Met:
    if orders.traces is not None:
        logging.disable(logging.WARNING)
    options = () if orders.traces is None else CHEAP
    with free_home() as home, TemporaryDirectory() as folder:
        stack = Stack(project=PROJECT, home=home, announce=say, mysql_options=options)
        with stack.foreground([Part.MYSQL]):
            more = orders.by_level
            counting = settings_for(stack, Path(folder), by_level=more, in_bytes=more)
            with pipelines(counting, stack) as new:
                campaign = Campaign(new, orders.seed, say, is_short=orders.traces is not None)
                campaign.walk(orders.faults, orders.duration_s, orders.traces)
                return campaign.met
