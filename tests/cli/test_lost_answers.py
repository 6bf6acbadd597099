"""The connection breaks at the COMMIT of a plan or a decision: done or not, it can be seen."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import LINE, Call, commit
from tests.minute.steps import proxied
from tests.proxy import Cut
from tests.world import World

pytestmark = pytest.mark.stack

REASON = ("--reason", "ticket 17")


@pytest.mark.parametrize("cut", Cut)
def test_a_lost_answer_is_told_as_such_with_what_shows_the_outcome(
    tally: Call, world: World, cut: Cut
) -> None:
    def decide(
        *command: str, shown_by: str, is_done: Callable[[Any], bool], again: tuple[int, str]
    ) -> None:
        """With ``again`` ends a command that was applied, when it is called once more."""
        show = [*shown_by.split()[1:], *([command[1]] if command[0] == "abandon" else []), "--json"]
        with proxied(world, cut) as (proxy, broken):
            answer = tally(*command, open_context=lambda _: broken.context())
            assert proxy.fired == 1
        answer.ends(3, "outcome-unknown", "may have been applied or not", shown_by)
        assert is_done(tally(*show).document) is (cut is Cut.ANSWER_LOST)
        exit_code, said = again if cut is Cut.ANSWER_LOST else (0, "")
        tally(*command).ends(exit_code, said)
        assert is_done(tally(*show).document)

    world.produce([LINE] * 3, 0)
    decide(
        "plan",
        shown_by="tally status",
        is_done=lambda told: told["open_batches"] != [],
        again=(0, ""),
    )
    decide(
        *("abandon", str(world.batches()[0]["batch_id"]), *REASON),
        shown_by="tally show",
        is_done=lambda told: told["state"] == "abandoned",
        again=(5, "was abandoned by"),
    )
    commit(world)
    world.produce([LINE] * 5, 0)
    world.delete_records(0, before=6)
    assert world.plan().blocks
    decide(
        *("losses", "accept", *REASON, "--yes"),
        shown_by="tally losses list",
        is_done=lambda told: [loss["state"] for loss in told["losses"]] == ["accepted"],
        again=(2, "no such open loss"),
    )
    world.delete_topic()
    world.create_topic(1)
    decide(
        *("topics", "adopt", world.name, world.topic, *REASON, "--yes"),
        shown_by="tally status",
        is_done=lambda told: told["blocks"] == [],
        again=(2, "follows already"),
    )
