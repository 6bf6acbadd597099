"""`tally plan` on real servers."""

import pytest

from tests.cli.conftest import LINE, Call, commit
from tests.world import World

pytestmark = pytest.mark.stack


def test_a_dry_run_shows_what_a_plan_then_does_and_writes_nothing(
    tally: Call, world: World
) -> None:
    """The preview is the plan itself, rolled back."""
    world.produce([LINE] * 3, 0)
    world.produce([LINE] * 4, 1)
    preview = tally("plan", "--dry-run", "--json")
    assert preview.exit_code == 0
    assert preview.document["dry_run"] is True
    assert preview.document["batches"][0]["batch_id"] is None
    assert world.batches() == []
    assert world.offsets() == {}

    planned = tally("plan", "--json").document
    assert planned["batches"][0]["ranges"] == preview.document["batches"][0]["ranges"]
    assert [r["until_offset"] for r in planned["batches"][0]["ranges"]] == [3, 4]
    assert [b["batch_id"] for b in world.batches()] == [planned["batches"][0]["batch_id"]]


def test_an_open_batch_is_resumed_unchanged(tally: Call, world: World) -> None:
    """More records do not change a batch that is planned."""
    world.produce([LINE] * 3, 0)
    first = tally("plan", "--json").document
    world.produce([LINE] * 3, 0)
    again = tally("plan", "--json").document
    assert (first["resumed"], again["resumed"]) == (False, True)
    assert again["batches"] == first["batches"]
    assert "is resumed" in tally("plan").stdout


def test_nothing_new_is_no_batch_and_no_error(tally: Call) -> None:
    """The usual answer for a quiet topic."""
    answer = tally("plan")
    assert answer.exit_code == 0
    assert "nothing new" in answer.stdout


def test_a_missing_topic_is_not_called_nothing_new(tally: Call, world: World) -> None:
    """Where nothing could be asked, nothing is claimed."""
    world.configure(topics=["no_such_topic"])
    for words in (("plan",), ("run",)):
        answer = tally(*words)
        assert answer.exit_code == 4
        assert "nothing new" not in answer.stdout
        assert answer.stderr.startswith("topic-missing: ")


def test_a_blocked_partition_ends_with_4_after_the_others_were_planned(
    tally: Call, world: World
) -> None:
    """Retention took records of one partition before they were counted."""
    world.produce([LINE] * 3, 0)
    world.produce([LINE] * 3, 1)
    commit(world)
    world.produce([LINE] * 5, 0)
    world.produce([LINE] * 5, 1)
    world.delete_records(0, before=6)

    dry = tally("plan", "--dry-run", "--json")
    assert dry.exit_code == 4
    assert (
        world.rows(
            "select * from lost_range l join topic_incarnation i using (incarnation_id)"
            " where i.pipeline = %s",
            (world.name,),
        )
        == []
    )

    answer = tally("plan", "--json")
    assert answer.exit_code == 4
    assert [r["partition"] for r in answer.document["batches"][0]["ranges"]] == [1]
    assert [(b["partition"], b["reason"]) for b in answer.document["blocks"]] == [
        (0, "records-lost")
    ]
    assert answer.stderr.startswith("partitions-blocked: ")
    assert f"tally losses accept {world.name}" in answer.stderr


def test_without_tables_the_next_step_is_to_migrate(
    tally: Call, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty database is an operator's matter, and the error says the command."""
    monkeypatch.setenv("TALLY_MYSQL__DATABASE", _empty_database(world))
    monkeypatch.setenv("TALLY_MYSQL__USER", "root")
    monkeypatch.setenv("TALLY_MYSQL__PASSWORD", world.stack.credentials().mysql_root)
    answer = tally("plan")
    assert answer.exit_code == 4
    assert answer.stderr.splitlines()[-1] == "next: tally migrate"


def _empty_database(world: World) -> str:
    name = f"empty_{world.name}"
    with world.connect_as_root() as connection, connection.cursor() as cursor:
        cursor.execute(f"create database `{name}`")
    return name
