"""The connection breaks at the COMMIT of a plan or a decision: done or not, it can be seen."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.cli.conftest import LINE, Answer, Call, commit
from tests.proxy import CommitProxy, Cut
from tests.world import World

pytestmark = pytest.mark.stack

REASON = ("--reason", "ticket 17", "--yes")

Prepare = Callable[[World], tuple[str, ...]]


def something_new(world: World) -> tuple[str, ...]:
    """Lines to plan."""
    world.produce([LINE] * 3, 0)
    return ("plan",)


def something_lost(world: World) -> tuple[str, ...]:
    """An open loss to accept."""
    world.produce([LINE] * 3, 0)
    commit(world)
    world.produce([LINE] * 5, 0)
    world.delete_records(0, before=6)
    assert world.plan().blocks
    return ("losses", "accept", *REASON)


def something_else(world: World) -> tuple[str, ...]:
    """A topic that was created again."""
    world.produce([LINE] * 3, 0)
    commit(world)
    world.delete_topic()
    world.create_topic(1)
    return ("topics", "adopt", world.name, world.topic, *REASON)


def something_planned(world: World) -> tuple[str, ...]:
    """A batch to abandon."""
    world.produce([LINE] * 3, 0)
    batch = world.plan().batch
    assert batch is not None
    return ("abandon", str(batch.batch_id), *REASON[:2])


def planned(tally: Call, world: World) -> bool:
    """Whether `tally status` shows an open batch."""
    return tally("status", world.name, "--json").document["open_batches"] != []


def accepted(tally: Call, world: World) -> bool:
    """Whether `tally losses list` shows the loss as accepted."""
    (loss,) = tally("losses", "list", world.name, "--json").document["losses"]
    return bool(loss["state"] == "accepted")


def adopted(tally: Call, world: World) -> bool:
    """Whether `tally status` shows the topic as one that can be read."""
    return not tally("status", world.name, "--json").document["blocks"]


def abandoned(tally: Call, world: World) -> bool:
    """Whether `tally show` shows the batch as abandoned."""
    (batch,) = world.batches()
    shown = tally("show", str(batch["batch_id"]), "--json").document
    return bool(shown["state"] == "abandoned")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A command that writes."""

    prepare: Prepare
    """Makes something to decide; returns the command."""
    applied: Callable[[Call, World], bool]
    """Whether the command that shows it says that it was done."""
    shown_by: str
    """That command."""
    again: tuple[int, str]
    """How the same command ends when it is called once more."""


CASES = [
    Case(prepare=something_new, applied=planned, shown_by="tally status", again=(0, "")),
    Case(
        prepare=something_lost,
        applied=accepted,
        shown_by="tally losses list",
        again=(2, "no such open loss"),
    ),
    Case(
        prepare=something_else,
        applied=adopted,
        shown_by="tally status",
        again=(2, "follows already"),
    ),
    Case(
        prepare=something_planned,
        applied=abandoned,
        shown_by="tally show",
        again=(5, "was abandoned by"),
    ),
]


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.prepare.__name__)
def test_a_lost_answer_is_told_as_such_with_what_shows_the_outcome(
    tally: Call, world: World, monkeypatch: pytest.MonkeyPatch, cut: Cut, case: Case
) -> None:
    """Exit code 3, "may have been applied", and the command that tells; once more is harmless."""
    command = case.prepare(world)
    answer = cut_off(tally, world, monkeypatch, cut, command)
    assert answer.exit_code == 3
    assert "outcome-unknown" in answer.stderr
    assert "may have been applied or not" in answer.stderr
    assert case.shown_by in answer.stderr
    assert case.applied(tally, world) is (cut is Cut.ANSWER_LOST)

    once_more = tally(*command)
    exit_code, words = case.again if cut is Cut.ANSWER_LOST else (0, "")
    assert once_more.exit_code == exit_code
    assert words in once_more.stderr
    assert case.applied(tally, world)


def cut_off(
    tally: Call, world: World, monkeypatch: pytest.MonkeyPatch, cut: Cut, command: tuple[str, ...]
) -> Answer:
    """Call the command by way of a proxy that breaks at its COMMIT."""
    mysql = world.settings.mysql
    with CommitProxy(mysql.host, mysql.port, cut) as proxy, monkeypatch.context() as patch:
        patch.setenv("TALLY_MYSQL__PORT", str(proxy.port))
        patch.setenv("TALLY_MYSQL__TLS", "disabled")
        answer = tally(*command)
        assert proxy.fired == 1
    return answer
