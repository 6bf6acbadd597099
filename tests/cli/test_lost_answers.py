"""The connection breaks at the COMMIT of a plan or a decision: done or not, it can be seen."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import LINE, Call, commit
from tests.proxy import CommitProxy, Cut
from tests.world import World

pytestmark = pytest.mark.stack

REASON = ("--reason", "ticket 17", "--yes")


def something_new(world: World) -> tuple[str, ...]:
    """Lines to plan."""
    world.produce([LINE] * 3, 0)
    return ("plan",)


def something_lost(world: World) -> tuple[str, ...]:
    """An open loss to accept."""
    commit(world, *[LINE] * 3)
    world.produce([LINE] * 5, 0)
    world.delete_records(0, before=6)
    assert world.plan().blocks
    return ("losses", "accept", *REASON)


def something_else(world: World) -> tuple[str, ...]:
    """A topic that was created again."""
    commit(world, *[LINE] * 3)
    world.delete_topic()
    world.create_topic(1)
    return ("topics", "adopt", world.name, world.topic, *REASON)


def something_planned(world: World) -> tuple[str, ...]:
    """A batch to abandon."""
    world.produce([LINE] * 3, 0)
    batch = world.plan().batch
    assert batch is not None
    return ("abandon", str(batch.batch_id), *REASON[:2])


Case = tuple[
    Callable[[World], tuple[str, ...]], str, Callable[[dict[str, Any]], bool], tuple[int, str]
]
"""Makes something to decide; the command that shows the outcome, and whether it says that it was
done; how the same command ends when it is called once more."""

CASES: list[Case] = [
    (something_new, "tally status", lambda d: d["open_batches"] != [], (0, "")),
    (
        something_lost,
        "tally losses list",
        lambda d: [loss["state"] for loss in d["losses"]] == ["accepted"],
        (2, "no such open loss"),
    ),
    (something_else, "tally status", lambda d: d["blocks"] == [], (2, "follows already")),
    (something_planned, "tally show", lambda d: d["state"] == "abandoned", (5, "was abandoned by")),
]


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].__name__)
def test_a_lost_answer_is_told_as_such_with_what_shows_the_outcome(
    tally: Call, world: World, monkeypatch: pytest.MonkeyPatch, cut: Cut, case: Case
) -> None:
    """Exit code 3, "may have been applied", and the command that tells; once more is harmless."""
    prepare, shown_by, is_done, again = case
    command, mysql = prepare(world), world.settings.mysql
    show = (*shown_by.split()[1:], command[1] if shown_by == "tally show" else world.name, "--json")
    with CommitProxy(mysql.host, mysql.port, cut) as proxy, monkeypatch.context() as patch:
        patch.setenv("TALLY_MYSQL__PORT", str(proxy.port))
        patch.setenv("TALLY_MYSQL__TLS", "disabled")
        answer = tally(*command)
        assert proxy.fired == 1
    answer.ends(3, "outcome-unknown", "may have been applied or not", shown_by)
    assert is_done(tally(*show).document) is (cut is Cut.ANSWER_LOST)
    exit_code, said = again if cut is Cut.ANSWER_LOST else (0, "")
    tally(*command).ends(exit_code, said)
    assert is_done(tally(*show).document)
