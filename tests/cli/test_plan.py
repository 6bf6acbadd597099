"""`tally plan` on real servers."""

import pytest

from tests.cli.conftest import LINE, Call, commit
from tests.world import World

pytestmark = pytest.mark.stack


def test_a_dry_run_shows_what_a_plan_then_does(tally: Call, world: World) -> None:
    """The preview is the plan itself, rolled back; more records do not change what is planned."""
    world.produce([LINE] * 3, 0)
    world.produce([LINE] * 4, 1)
    preview = tally("plan", "--dry-run", "--json").ends(0)
    assert preview.document["dry_run"] is True
    assert preview.document["batches"][0]["batch_id"] is None
    assert (world.batches(), world.offsets()) == ([], {})

    planned = tally("plan", "--json").document
    assert planned["batches"][0]["ranges"] == preview.document["batches"][0]["ranges"]
    assert [r["until_offset"] for r in planned["batches"][0]["ranges"]] == [3, 4]
    assert [b["batch_id"] for b in world.batches()] == [planned["batches"][0]["batch_id"]]

    world.produce([LINE] * 3, 0)
    again = tally("plan", "--json").document
    assert (planned["resumed"], again["resumed"]) == (False, True)
    assert again["batches"] == planned["batches"]
    assert "is resumed" in tally("plan").stdout


def test_nothing_new_is_told_and_a_missing_topic_is_named(tally: Call, world: World) -> None:
    """Where nothing could be asked, nothing is claimed."""
    world.configure(topics=["no_such_topic"])
    for command in ("plan", "run"):
        answer = tally(command).ends(4)
        assert "nothing new" not in answer.stdout
        assert answer.stderr.startswith("topic-missing: ")
    status = tally("status", "--json").ends(0).document
    assert status["partitions"] == []
    assert status["blocks"][0]["reason"] == "topic-missing"
    world.configure(topics=[world.topic])
    assert "nothing new" in tally("plan").ends(0).stdout


def test_what_is_blocked_ends_with_4_after_the_rest_was_planned(tally: Call, world: World) -> None:
    """Retention took records of one partition before they were counted; `run` ends so as well."""
    world.produce([LINE] * 3, 0)
    commit(world, *[LINE] * 3, partition=1)
    for partition in (0, 1):
        world.produce([LINE] * 5, partition)
    world.delete_records(0, before=6)

    tally("plan", "--dry-run", "--json").ends(4)
    assert tally("losses", "list", "--json").document["losses"] == []

    answer = tally("plan", "--json").ends(4)
    assert [r["partition"] for r in answer.document["batches"][0]["ranges"]] == [1]
    assert [(b["partition"], b["reason"]) for b in answer.document["blocks"]] == [
        (0, "records-lost")
    ]
    assert answer.stderr.startswith("partitions-blocked: ")
    assert f"tally losses accept {world.name}" in answer.stderr

    ran = tally("run", "--json").ends(4)
    assert [b["reason"] for b in ran.document["blocks"]] == ["records-lost"]
    assert sum(world.counts().values()) == 11
