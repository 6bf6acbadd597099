"""Operations of the commit path, each with its preparation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.properties import operations as op
from tests.properties.kafka_model import LEVELS, Kind
from tests.properties.operations import Operation


@dataclass(frozen=True, slots=True)
class Scenario:
    """An operation, and the preparation that gives it something to do."""

    name: str
    prepare: Callable[[Random], Sequence[Operation]]
    operation: Callable[[Random], Operation]
    repair: bool = False
    """Whether an operator must decide something after it."""


EXPIRY: Final = (op.Expire(0, 99), op.Expire(1, 99))


def some_lines(random: Random, kinds: Sequence[Kind] = tuple(Kind)[:3]) -> tuple[op.Said, ...]:
    return tuple((random.choice(kinds), random.randrange(4)) for _ in range(random.randint(2, 6)))


def produced(random: Random, kinds: Sequence[Kind] = tuple(Kind)[:3]) -> list[Operation]:
    """New lines in both partitions, or in one."""
    numbers = random.choice([(0,), (1,), (0, 1), (0, 1)])
    return [op.Produce(number, some_lines(random, kinds)) for number in numbers]


def planned(random: Random) -> list[Operation]:
    return [*produced(random), op.Plan()]


def counted(random: Random) -> list[Operation]:
    return [*planned(random), op.RunMinute()]


def lost(random: Random) -> list[Operation]:
    return [*produced(random), *EXPIRY]


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


def expired(random: Random) -> list[Operation]:
    """Batches that Kafka no longer holds; a newer one may be planned to be replayed."""
    newest = random.choice([(), (*counted(random), op.AskBatch(0))])
    return [*counted(random), op.Expire(0, 99), op.Expire(1, 99), *newest]


def ask(random: Random) -> Operation:
    spans = [op.Span(number, random.randint(6, 14), random.randint(1, 9)) for number in range(2)]
    return random.choice([op.AskAll(), op.AskAll(0), op.AskRanges(spans), op.AskBatch(0)])


def stopped(random: Random) -> list[Operation]:
    """A worker stopped before its commit; others may have gone on."""
    return [*planned(random), op.Stop(0), *random.choice([(), *SUCCESSORS])]


def restored(random: Random) -> list[Operation]:
    """A worker that has read a batch; the restored ledger has another one of its number."""
    others = [(), (op.Stop(0),), (op.RunMinute(),)]
    before = [op.Dump(), *planned(random), op.Stop(0), op.RestoreDump()]
    return [*before, *planned(random), *random.choice(others)]


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

FIRST_PLAN: Final = Scenario("first plan", lambda _: [], lambda _: op.Plan())
SCENARIOS: Final[Sequence[Scenario]] = (
    Scenario("plan", produced, lambda _: op.Plan()),
    Scenario("run minute", planned, lambda _: op.RunMinute()),
    Scenario(
        "run with dead letters",
        lambda r: [*produced(r, tuple(Kind)), op.Plan()],
        lambda _: op.RunMinute(),
    ),
    Scenario("plan that finds a loss", lost, lambda _: op.Plan(), repair=True),
    Scenario("missing records", missing, lambda _: op.RunMinute(), repair=True),
    Scenario("accept", lambda r: [*lost(r), op.Plan()], lambda _: op.Accept(None), repair=True),
    Scenario("replay request", counted, ask),
    Scenario("replay run", asked, lambda _: op.RunReplay(0)),
    Scenario("replan", asked, lambda _: op.Replan(0)),
    Scenario("cancel", asked, lambda _: op.Cancel(0)),
    Scenario("abandon", planned, lambda _: op.Abandon(0)),
    Scenario("resume late", stopped, lambda _: op.GoOn(0)),
    Scenario("resume after a restore", restored, lambda _: op.GoOn(0)),
    Scenario("minute after a restore", restored, lambda _: op.RunMinute()),
    Scenario("release", lambda r: [*planned(r), *EXPIRY], lambda _: op.RunMinute(), repair=True),
    Scenario(
        "adopt",
        lambda r: [op.Create(2, r.randrange(2), some_lines(r)), op.Plan()],
        lambda r: op.Adopt(r.choice(["earliest", "latest"])),
        repair=True,
    ),
    Scenario("prune", expired, lambda _: op.Prune()),
    Scenario("audit", counted, lambda _: op.Audit()),
)
