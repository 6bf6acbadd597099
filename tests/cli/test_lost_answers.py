"""The connection breaks at the COMMIT of a plan or a decision: done or not, it can be seen."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import LINE, Call, commit
from tests.minute.steps import proxied
from tests.proxy import Cut
from tests.world import World

pytestmark = pytest.mark.stack


@pytest.mark.parametrize("cut", Cut)
def test_a_lost_answer_names_what_shows_the_outcome(tally: Call, world: World, cut: Cut) -> None:
    was_applied = cut is Cut.ANSWER_LOST

    def decide(
        command: str, show: str, is_done: Callable[[Any], bool], again: int, said: str = ""
    ) -> None:
        """With ``again`` and these words ends a command that was applied, when it is repeated."""
        with proxied(world, cut) as (proxy, broken):
            answer = tally(*command.split(), open_context=lambda _: broken.context())
            assert proxy.fired == 1
        shown_by = re.sub(r"\d+", "BATCH", f"tally {show}")
        answer.ends(3, "outcome-unknown", "may have been applied or not", shown_by)
        assert is_done(tally(*show.split(), "--json").document) is was_applied
        exit_code, words = (again, said) if was_applied else (0, "")
        tally(*command.split()).ends(exit_code, words)
        assert is_done(tally(*show.split(), "--json").document)

    world.produce([LINE] * 3, 0)
    decide("plan", "status", lambda told: told["open_batches"] != [], 0)
    batch_id = world.batches()[0]["batch_id"]
    decide(
        f"abandon {batch_id} --reason test",
        f"show {batch_id}",
        lambda told: told["state"] == "abandoned",
        5,
        "was abandoned by",
    )
    commit(world)
    world.produce([LINE] * 5, 0)
    world.delete_records(0, before=6)
    assert world.plan().blocks
    decide(
        "losses accept --reason test --yes",
        "losses list",
        lambda told: [loss["state"] for loss in told["losses"]] == ["accepted"],
        2,
        "no such open loss",
    )
    world.delete_topic()
    world.create_topic(1)
    decide(
        f"topics adopt {world.name} {world.topic} --reason test --yes",
        "status",
        lambda told: told["blocks"] == [],
        2,
        "follows already",
    )
