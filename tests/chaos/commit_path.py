"""The campaign against the commit path: every statement of it, and every fault that can meet it.

A seeded random walk. In each round an operation of one pipeline meets a fault of the connection,
the server or the process, played by :mod:`tests.properties.faults`; then it is called again, as
Airflow would, until it is done. After each call what was committed is checked against the protocol,
and the audit checks the ledger. Kafka is a model, MySQL is real.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

from tally_local.stack.server import Part
from tally_local.stack.stack import Stack
from tests.properties import operations as op
from tests.properties.disturbance import Disturbance
from tests.properties.fault_choice import GAP, FaultChoice
from tests.properties.faults import PROFILES, SLOW, FaultKind, normalised
from tests.properties.finish import finish, is_changed
from tests.properties.operations import Operation
from tests.properties.oracle import Oracle
from tests.properties.pipeline import PipelineUnderTest
from tests.properties.scenarios import FIRST_PLAN, SCENARIOS, Scenario, some_lines
from tests.properties.setup import NewPipeline, pipelines, settings_for
from tests.protocol.model import HARD_CASES
from tests.servers import PROJECT, free_home

ROUNDS_PER_LIFE: Final = 40
ROUNDS_PER_TRACE: Final = 4
TRIES: Final = 12
MISMATCHES_MAX: Final = 5
AGAIN_UNDER_FAULT: Final = 0.6
ALL_KINDS_IN: Final = 80
"""Faults among which each kind must be, as each has its turn."""
HARD_CASES_IN: Final = 400
"""Faults among which each of the model's hard cases must be."""

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
    hard_cases: dict[str, int] = field(default_factory=dict)
    """How often each of the model's hard cases was in a trace."""
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


class Campaign:
    """One seeded walk."""

    def __init__(
        self,
        new: NewPipeline,
        seed: int,
        say: Callable[[str], None],
        *,
        rounds_per_life: int = ROUNDS_PER_LIFE,
    ) -> None:
        self.new, self.seed, self.say = new, seed, say
        self.rounds_per_life = rounds_per_life
        self.report = CommitPathReport(seed=seed)
        self.random = Random(seed)
        self.pipeline: PipelineUnderTest
        self.oracle: Oracle
        self._lives = self._turn = 0
        self._choice = FaultChoice(self.random)
        self._coverage: dict[str, Counter[str]] = defaultdict(Counter)
        self._recoveries: list[float] = []
        self._cases: Counter[str] = Counter()
        self._story: list[str] = []
        """The events of this round."""

    def walk(
        self, faults: int | None, duration_s: float | None, traces: int | None = None
    ) -> CommitPathReport:
        """Run pipelines until the number of faults or traces, or the duration is reached."""
        begun = time.monotonic()
        while (
            (faults is None or self.report.faults < faults)
            and (traces is None or self.report.traces < traces)
            and (duration_s is None or time.monotonic() - begun < duration_s)
            and len(self.report.mismatches) < MISMATCHES_MAX
        ):
            self._live()
            self.report.seconds = time.monotonic() - begun
            self.say(
                f"{self.report.seconds:.0f} s: {self.report.faults} faults in "
                f"{self.report.rounds} rounds, {self.report.commits} commits, "
                f"{len(self.report.mismatches)} mismatches"
            )
        self._sum_up()
        return self.report

    def _live(self) -> None:
        """Run one pipeline from its first plan to its end."""
        self._lives += 1
        self.pipeline = self.new()
        self.oracle = Oracle(self.pipeline)
        try:
            self.pipeline.begin(self._beginning())
            self._round(FIRST_PLAN)
            for _ in range(self.rounds_per_life - 1):
                self._round(SCENARIOS[self._turn % len(SCENARIOS)])
                self._turn += 1
            self._story = ["come to rest"]
            finish(self.pipeline, self.oracle)
            assert not self.pipeline.facts.planned(), "a batch is still planned"
            self.pipeline.wire.close_all()
        except Exception as error:  # noqa: BLE001 - told at the end, with all of the evidence
            story = "\n    ".join([f"{type(error).__name__}: {error}", *self._story])
            self.report.mismatches.append(f"seed {self.seed}, round {self.report.rounds}: {story}")
            self.say(f"MISMATCH {self.report.mismatches[-1]}")
        recorder = self.pipeline.recorder
        self.report.commits += self.oracle.commits
        self.report.traces += 1
        self.report.actions += len(recorder.trace)
        self._cases.update(recorder.model.cases)

    def _beginning(self) -> op.Beginning:
        return op.Beginning(
            start=self.random.choice(["earliest", "earliest", "latest"]),
            offsets=self.random.choice(["dense", "dense", "dense", "sparse"]),
            limit=self.random.choice([1000, 1000, 4]),
            delivery=self.random.choice(op.DELIVERIES),
            said=some_lines(self.random),
        )

    def _round(self, scenario: Scenario) -> None:
        self.report.rounds += 1
        self._story = []
        # A repeated replay request returns the recorded replay, as the run id is the same.
        self.pipeline.run_id = f"round-{self._lives}-{self.report.rounds}"
        for operation in scenario.prepare(self.random):
            self._do(operation)
        self.oracle.check()
        self._play(scenario.name, scenario.operation(self.random))
        if scenario.repair:
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
            self._recoveries.append(time.monotonic() - begun)
            self.report.commits_under_fault += self.oracle.commits - before

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
        self._check_nothing_is_asked_twice()
        return ended, bool(came)

    def _note(self, name: str, statement: str, kind: str) -> None:
        self.report.faults += 1
        self.report.history.append((name, statement, kind))
        self._choice.came[kind] += 1
        self._coverage[f"{name}: {statement}"][kind] += 1

    def _check_nothing_is_asked_twice(self) -> None:
        """A replay request that was repeated is in the ledger once."""
        twice = self.pipeline.rows(
            "select run_id, request, count(*) as times from replay where pipeline = %s"
            " group by run_id, request having count(*) > 1",
            (self.pipeline.name,),
        )
        assert not twice, twice

    def _sum_up(self) -> None:
        report = self.report
        report.kinds = {kind: self._choice.came[kind] for kind in [*FaultKind.__members__, "RIVAL"]}
        report.hard_cases = {case: self._cases[case] for case in HARD_CASES}
        report.coverage = {point: dict(of) for point, of in sorted(self._coverage.items())}
        report.never = sorted(self._never())
        report.problems = list(self._problems())
        if times := sorted(self._recoveries):
            parts = {"median": 0.5, "99 %": 0.99, "longest": 1.0}
            at = {what: int((len(times) - 1) * part) for what, part in parts.items()}
            report.recovery_s = {what: round(times[n], 3) for what, n in at.items()}

    def _never(self) -> Iterator[str]:
        for name, statement in self._choice.points():
            came = self._coverage[f"{name}: {statement}"]
            for kind in FaultKind:
                if kind not in SLOW and PROFILES[kind].meets(statement) and not came[kind.name]:
                    yield f"{name}: {statement}: {kind.name}"

    def _problems(self) -> Iterator[str]:
        absent = [kind for kind, came in self.report.kinds.items() if not came]
        if absent and self.report.faults >= ALL_KINDS_IN:
            yield f"these never came: {absent}"
        lacking = [case for case, came in self.report.hard_cases.items() if not came]
        if lacking and self.report.faults >= HARD_CASES_IN:
            yield f"no trace has these: {lacking}"
        if self.report.commits_under_fault <= self.report.rounds / 8:
            yield (
                f"nothing moves: {self.report.commits_under_fault} commits by operations that met "
                f"a fault, in {self.report.rounds} rounds"
            )


def run(
    faults: int | None,
    duration_s: float | None,
    seed: int,
    say: Callable[[str], None],
    *,
    traces: int | None = None,
    by_level: bool = False,
) -> CommitPathReport:
    """A campaign on a MySQL of its own, until so many faults, seconds or traces have come.

    An equal seed plays the same faults again. By level, the pipelines also count in bytes. Where
    traces are counted, they are short.
    """
    rounds = ROUNDS_PER_LIFE if traces is None else ROUNDS_PER_TRACE
    with free_home() as home, TemporaryDirectory() as folder:
        stack = Stack(project=PROJECT, home=home, announce=say)
        with stack.foreground([Part.MYSQL]):
            counting = settings_for(stack, Path(folder), by_level=by_level, in_bytes=by_level)
            with pipelines(counting, stack) as new:
                campaign = Campaign(new, seed, say, rounds_per_life=rounds)
                return campaign.walk(faults, duration_s, traces)
