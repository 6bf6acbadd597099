"""The choice of the next fault: the kind, and the statement, that were tried least.

Of kinds that an operation has met equally often the one comes that has happened least in all, so
that each has its turn in a short campaign, too.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import Final

from tests.properties import operations as op
from tests.properties.disturbance import Disturbance, Rival
from tests.properties.faults import PROFILES, SLOW, Fault, FaultKind, normalised
from tests.properties.operations import Operation
from tests.properties.scenarios import RIVALS, SUCCESSORS

GAP: Final = "(between two transactions)"
"""The place of a rival, in reports."""

EVERY: Final = {FaultKind.LOCK_HELD: 60, FaultKind.SERVER_KILLED: 150}
"""How many faults come between two of a slow kind."""
FIRST: Final = 15
"""How many faults come before the first of a slow kind."""

# These need a second session that can write.
NEEDS_A_WRITER: Final = {
    FaultKind.PAUSED,
    FaultKind.PAUSED_AND_LOST,
    FaultKind.TABLE_ALTERED,
    FaultKind.TABLE_REBUILT,
}


@dataclass(slots=True)
class FaultChoice:
    """Remembers the statements of each operation, and the faults at each."""

    random: Random
    every: Mapping[FaultKind, int] = field(default_factory=lambda: EVERY)
    """See :data:`EVERY`."""
    came: Counter[str] = field(default_factory=Counter)
    """How often each kind has happened."""
    _reach: dict[str, deque[tuple[str, ...]]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=6))
    )
    """By operation: the statements of its last undisturbed calls."""
    _said: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By operation: all statements of its undisturbed calls."""
    _tried: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """How often a fault was armed: by operation and kind, and by statement besides."""

    def learn(self, name: str, statements: Sequence[str]) -> None:
        """Record the statements of an undisturbed call."""
        self._reach[name].append(tuple(map(normalised, statements)))
        self._said[name].update(self._reach[name][-1])

    def points(self) -> Iterator[tuple[str, str]]:
        """Each operation with each statement of its undisturbed calls."""
        for name, said in self._said.items():
            for statement in said:
                yield name, statement

    def choose(self, name: str) -> Disturbance | None:
        """The disturbance that was tried least for an operation; sometimes None."""
        reach = self._reach[name]
        if not reach or self.random.random() < 0.04:
            return None
        statements = self.random.choice(reach)
        names = [kind.name for kind in FaultKind if kind in self._allowed()]
        kinds = [k for k in names if _points(FaultKind[k], statements)]
        kind = self._least((name,), [*kinds, "RIVAL"])
        if kind == "RIVAL":
            return Rival(self.random.randint(1, 6), self.random.choice(RIVALS))
        points = _points(FaultKind[kind], statements)
        wanted = self._least((name, kind), points)
        after = self.random.choice([i for i, s in enumerate(points, 1) if s == wanted])
        return self._fault(FaultKind[kind], after, again=self.random.random() < 0.4)

    def _allowed(self) -> set[FaultKind]:
        allowed = set(FaultKind) - set(SLOW)
        for kind, every in self.every.items():
            if self.came.total() >= FIRST + every * self.came[kind.name]:
                return {kind}
        return allowed

    def _least(self, where: tuple[str, ...], among: Sequence[str]) -> str:
        times = {one: (self._tried[*where, one], self.came[one]) for one in among}
        fewest = min(times.values())
        chosen = self.random.choice([one for one in times if times[one] == fewest])
        self._tried[*where, chosen] += 1
        return chosen

    def _fault(self, kind: FaultKind, after: int, *, again: bool) -> Fault:
        then: tuple[Operation, ...] = ()
        if kind in {FaultKind.PAUSED, FaultKind.PAUSED_AND_LOST}:
            then = self.random.choice(SUCCESSORS)
        if kind is FaultKind.CLOCK_MOVED:
            then = (op.SetClock(self.random.randint(-72, 72)),)
        second = None
        if again:
            quick = [k for k in FaultKind if k not in {*SLOW, *NEEDS_A_WRITER}]
            kind_then, after_then = self.random.choice(quick), self.random.randint(1, 6)
            second = self._fault(kind_then, after_then, again=False)
        return Fault(after, kind, then, second)


@lru_cache(maxsize=100_000)
def _points(kind: FaultKind, statements: tuple[str, ...]) -> list[str]:
    return [s for s in statements if PROFILES[kind].meets(s)]
