"""Operations of the commit path, each with its preparation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.properties import operations as op
from tests.properties.kafka_model import LEVELS, Kind
from tests.properties.operations import Operation


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """An operation, and the preparation that gives it something to do."""

    name: str
    prepare: Callable[[Random], Sequence[Operation]]
    operation: Callable[[Random], Operation]
    repair: bool = False
    """Whether an operator must decide something after it."""


def some_lines(random: Random, kinds: Sequence[Kind] = tuple(Kind)[:3]) -> tuple[op.Said, ...]:
    """A few lines."""
    return tuple((random.choice(kinds), random.randrange(4)) for _ in range(random.randint(2, 6)))


def produced(random: Random, kinds: Sequence[Kind] = tuple(Kind)[:3]) -> list[Operation]:
    """New lines in both partitions, or in one."""
    numbers = random.choice([(0,), (1,), (0, 1), (0, 1)])
    return [op.Produce(number, some_lines(random, kinds)) for number in numbers]


def counted(random: Random) -> list[Operation]:
    """New lines, and a batch that has counted them."""
    return [*produced(random), op.Plan(), op.RunMinute()]


def lost(random: Random) -> list[Operation]:
    """Lines that expire before they are counted."""
    return [*produced(random), op.Expire(0, 99), op.Expire(1, 99)]


def missing(random: Random) -> list[Operation]:
    """A range with a hole."""
    number = random.randrange(2)
    return [op.Produce(number, some_lines(random)), op.Compact(number, -1), op.Plan()]


def asked(random: Random) -> list[Operation]:
    """A recorded replay that changes the result, not run yet."""
    levels = tuple(sorted(random.sample(LEVELS, random.randint(1, 3))))
    return [
        *counted(random),
        op.Configure(levels=levels, line_format=random.choice(["fixed", "log4j"])),
        ask(random),
    ]


def ask(random: Random) -> Operation:
    """A replay of all, or of some ranges."""
    spans = tuple(
        op.Span(number, random.randint(6, 14), random.randint(1, 9)) for number in range(2)
    )
    ways: list[Operation] = [op.AskAll(), op.AskAll(0), op.AskRanges(spans), op.AskBatch(0)]
    return random.choice(ways)


def stopped(random: Random) -> list[Operation]:
    """A worker stopped before its commit; others may have gone on."""
    return [*produced(random), op.Plan(), op.Stop(0), *random.choice([(), *SUCCESSORS])]


NOTHING: Final = tuple[Operation, ...]()

# What others do while a process is paused.
SUCCESSORS: Final[Sequence[tuple[Operation, ...]]] = (
    (op.Age(), op.Plan(), op.RunMinute()),
    (op.Plan(), op.RunMinute()),
    (op.RunMinute(), op.RunReplay(0)),
    (op.RunReplayBatch(0), op.Age(), op.Plan()),
    (op.AskAll(), op.RunReplay(0)),
    (op.Age(), op.Abandon(0), op.Plan(), op.RunMinute()),
    (op.RunMinute(), op.Produce(0, ((Kind.ERROR, 1),) * 3), op.Plan(), op.RunMinute()) * 2,
)

RIVALS: Final[Sequence[Operation]] = (
    op.Plan(),
    op.RunMinute(),
    op.RunOpen(0),
    op.RunReplay(0),
    op.RunReplayBatch(0),
    op.AskAll(),
    op.Replan(0),
    op.Cancel(0),
    op.Abandon(0),
    op.Accept(None),
    op.Produce(0, ((Kind.ERROR, 2),)),
    op.Age(),
    op.GoOn(0),
)

FIRST_PLAN: Final = Scenario(
    name="first plan", prepare=lambda _: NOTHING, operation=lambda _: op.Plan()
)
SCENARIOS: Final[Sequence[Scenario]] = (
    Scenario(name="plan", prepare=produced, operation=lambda _: op.Plan()),
    Scenario(
        name="run minute",
        prepare=lambda r: [*produced(r), op.Plan()],
        operation=lambda _: op.RunMinute(),
    ),
    Scenario(
        name="run with dead letters",
        prepare=lambda r: [*produced(r, tuple(Kind)), op.Plan()],
        operation=lambda _: op.RunMinute(),
    ),
    Scenario(
        name="plan that finds a loss", prepare=lost, operation=lambda _: op.Plan(), repair=True
    ),
    Scenario(
        name="missing records", prepare=missing, operation=lambda _: op.RunMinute(), repair=True
    ),
    Scenario(
        name="accept",
        prepare=lambda r: [*lost(r), op.Plan()],
        operation=lambda _: op.Accept(None),
        repair=True,
    ),
    Scenario(name="replay request", prepare=counted, operation=ask),
    Scenario(name="replay run", prepare=asked, operation=lambda _: op.RunReplay(0)),
    Scenario(name="replan", prepare=asked, operation=lambda _: op.Replan(0)),
    Scenario(name="cancel", prepare=asked, operation=lambda _: op.Cancel(0)),
    Scenario(
        name="abandon",
        prepare=lambda r: [*produced(r), op.Plan()],
        operation=lambda _: op.Abandon(0),
    ),
    Scenario(name="resume late", prepare=stopped, operation=lambda _: op.GoOn(0)),
    Scenario(
        name="release",
        prepare=lambda r: [*produced(r), op.Plan(), op.Expire(0, 99), op.Expire(1, 99)],
        operation=lambda _: op.RunMinute(),
        repair=True,
    ),
    Scenario(
        name="adopt",
        prepare=lambda r: [op.Create(2, r.randrange(2), some_lines(r)), op.Plan()],
        operation=lambda r: op.Adopt(r.choice(["earliest", "latest"])),
        repair=True,
    ),
    Scenario(
        name="prune",
        prepare=lambda r: [*counted(r), op.Expire(0, 5), op.Expire(1, 5)],
        operation=lambda _: op.Prune(),
    ),
    Scenario(name="audit", prepare=counted, operation=lambda _: op.Audit()),
)
