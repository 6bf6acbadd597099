"""`tally losses`, `topics` and `abandon` on real servers."""

from contextlib import closing

import pytest

from tests.cli.conftest import LINE, Call, commit
from tests.world import World

pytestmark = pytest.mark.stack

REASON = ("--reason", "ticket 17")


def lose_records(world: World) -> None:
    """Both partitions have lost the offsets [3, 6), and a plan has seen it."""
    for partition in (0, 1):
        world.produce([LINE] * 3, partition)
    commit(world)
    for partition in (0, 1):
        world.produce([LINE] * 5, partition)
        world.delete_records(partition, before=6)
    assert len(world.plan().blocks) == 2


def losses(world: World) -> list[tuple[int, str, str | None]]:
    """Partition, state and reason of each lost range."""
    rows = world.rows(
        "select l.partition_id, l.state, l.reason, l.decided_by from lost_range l"
        " join topic_incarnation i using (incarnation_id) where i.pipeline = %s"
        " order by l.partition_id",
        (world.name,),
    )
    assert all((row["decided_by"] is None) == (row["state"] == "open") for row in rows)
    return [(row["partition_id"], row["state"], row["reason"]) for row in rows]


UNDECIDED = [(0, "open", None), (1, "open", None)]


def test_losses_are_listed_with_what_is_missing(tally: Call, world: World) -> None:
    """The range, and that it is open."""
    lose_records(world)
    document = tally("losses", "list", "--open", "--json").document
    assert [(x["partition"], x["from_offset"], x["until_offset"]) for x in document["losses"]] == [
        (0, 3, 6),
        (1, 3, 6),
    ]
    assert "[3, 6)" in tally("losses", "list").stdout


def test_a_dry_run_accepts_nothing(tally: Call, world: World) -> None:
    """It shows the same ranges and leaves ledger and offsets alone."""
    lose_records(world)
    answer = tally("losses", "accept", *REASON, "--dry-run")
    assert answer.exit_code == 0
    assert "2 ranges would be accepted" in answer.stdout
    assert losses(world) == UNDECIDED
    assert world.offsets() == {0: (0, 3), 1: (0, 3)}


def test_without_a_terminal_and_without_yes_nothing_is_accepted(tally: Call, world: World) -> None:
    """A script must pass --yes."""
    lose_records(world)
    answer = tally("losses", "accept", *REASON)
    assert answer.exit_code == 2
    assert "--yes" in answer.stderr
    assert losses(world) == UNDECIDED


def test_accepted_losses_let_counting_continue(tally: Call, world: World) -> None:
    """The lost range takes its place in the tiling, with who and why."""
    lose_records(world)
    answer = tally("losses", "accept", *REASON, "--yes")
    assert answer.exit_code == 0
    assert losses(world) == [(0, "accepted", "ticket 17"), (1, "accepted", "ticket 17")]
    assert world.offsets() == {0: (0, 6), 1: (0, 6)}
    assert tally("plan", "--json").document["blocks"] == []
    assert tally("audit").exit_code == 0


def test_the_json_of_a_decision_is_what_was_decided(tally: Call, world: World) -> None:
    """A dry run carries what would be accepted; without --yes it is refused."""
    lose_records(world)
    refused = tally("losses", "accept", *REASON, "--json")
    assert (refused.exit_code, refused.document["error"]["code"]) == (2, "usage")
    dry = tally("losses", "accept", *REASON, "--dry-run", "--json").document
    assert [loss["state"] for loss in dry["losses"]] == ["open", "open"]
    assert losses(world) == UNDECIDED
    done = tally("losses", "accept", *REASON, "--yes", "--json").document
    assert [(x["partition"], x["state"], x["reason"]) for x in done["losses"]] == losses(world)


def test_one_partition_can_be_accepted_alone(tally: Call, world: World) -> None:
    """The other stays blocked."""
    lose_records(world)
    choice = ("--topic", world.topic, "--partition", "1")
    assert tally("losses", "accept", *choice, *REASON, "--yes").exit_code == 0
    assert losses(world) == [(0, "open", None), (1, "accepted", "ticket 17")]


def test_a_loss_that_grows_while_the_operator_decides_is_not_accepted(
    tally: Call, world: World
) -> None:
    """What is accepted is what was shown; both partitions stay as they were."""
    lose_records(world)

    def think(question: str) -> None:
        assert question == "Accept the loss in 6 offsets?"
        world.delete_records(1, before=7)
        world.plan()

    answer = tally("losses", "accept", *REASON, ask=think)
    assert answer.exit_code == 2
    assert "not what you saw" in answer.stderr
    assert losses(world) == UNDECIDED
    assert world.offsets() == {0: (0, 3), 1: (0, 3)}


def test_a_decision_waits_for_the_planner_and_gives_up_as_retryable(
    tally: Call, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planning and deciding are serialised by the pipeline's row."""
    lose_records(world)
    monkeypatch.setenv("TALLY_MYSQL__LOCK_WAIT_TIMEOUT_S", "1")
    with closing(world.connect()) as planner, planner.cursor() as cursor:
        cursor.execute("select * from pipeline where pipeline = %s for update", (world.name,))
        answer = tally("losses", "accept", *REASON, "--yes")
    assert answer.exit_code == 3
    assert answer.stderr.startswith("transaction-retry: ")
    assert losses(world) == UNDECIDED


@pytest.mark.parametrize(
    "words", [("--topic", "other"), ("--partition", "0"), ("--topic", "other", "--partition", "0")]
)
def test_nothing_to_accept_is_a_wrong_request(
    tally: Call, world: World, words: tuple[str, ...]
) -> None:
    """A typing error in the choice accepts nothing."""
    lose_records(world)
    assert tally("losses", "accept", *words, *REASON, "--yes").exit_code == 2
    assert losses(world) == UNDECIDED


def create_again(world: World) -> None:
    """The topic is deleted and created again with other records."""
    world.produce([LINE] * 3, 0)
    commit(world)
    world.delete_topic()
    world.create_topic(2)
    world.produce([LINE] * 10, 0)


def topic_ids(world: World) -> list[str]:
    """States of the topic's generations, oldest first."""
    rows = world.rows(
        "select state from topic_incarnation where pipeline = %s order by incarnation_id",
        (world.name,),
    )
    return [row["state"] for row in rows]


def test_a_re_created_topic_is_counted_from_its_start_once_it_is_adopted(
    tally: Call, world: World
) -> None:
    """Blocked before; afterwards the result has old and new counts, and the audit holds."""
    create_again(world)
    assert tally("plan").exit_code == 4
    words = ("topics", "adopt", world.name, world.topic, *REASON)
    preview = tally(*words, "--dry-run", "--json").document
    assert (preview["adopted"], preview["was_followed_before"]) == (False, False)
    assert preview["partitions"][0] == {"partition": 0, "offset": 0}
    assert topic_ids(world) == ["current"]

    assert tally(*words, "--yes", "--json").document == {**preview, "adopted": True}
    assert topic_ids(world) == ["retired", "current"]
    assert tally("plan", "--json").document["batches"][0]["ranges"][0]["until_offset"] == 10
    commit(world)
    assert sum(world.counts().values()) == 13
    assert tally("audit").exit_code == 0


def test_a_re_created_topic_can_be_counted_from_now_on(tally: Call, world: World) -> None:
    """--start latest leaves out what it holds already."""
    create_again(world)
    words = ("topics", "adopt", world.name, world.topic, "--start", "latest", *REASON, "--yes")
    assert tally(*words).exit_code == 0
    assert world.offsets()[0] == (10, 10)


@pytest.mark.parametrize("topic", ["the same", "another"])
def test_only_another_generation_of_a_topic_that_is_read_can_be_adopted(
    tally: Call, world: World, topic: str
) -> None:
    """The generation that is followed already, and a topic that is not read, are refused."""
    world.produce([LINE], 0)
    commit(world)
    name = world.topic if topic == "the same" else topic
    assert tally("topics", "adopt", world.name, name, *REASON, "--yes").exit_code == 2
    assert topic_ids(world) == ["current"]


def test_an_abandoned_batch_gives_its_offsets_back(tally: Call, world: World) -> None:
    """First shown, then done; the next plan takes the same offsets."""
    world.produce([LINE] * 3, 0)
    planned = world.plan().batch
    assert planned is not None
    batch_id = str(planned.batch_id)
    assert "would be abandoned" in tally("abandon", batch_id, *REASON, "--dry-run").stdout
    assert [b["state"] for b in world.batches()] == ["planned"]

    view = tally("abandon", batch_id, *REASON, "--json").document
    assert (view["batch_id"], view["dry_run"], view["kind"]) == (int(batch_id), False, "ingest")
    assert [(r["from_offset"], r["until_offset"]) for r in view["ranges"]] == [(0, 3)]
    assert [(b["state"], b["reason"]) for b in world.batches()] == [("abandoned", "ticket 17")]
    again = tally("plan", "--json").document["batches"][0]
    assert again["batch_id"] > planned.batch_id
    assert again["ranges"][0]["until_offset"] == 3


def test_what_is_counted_cannot_be_abandoned(tally: Call, world: World) -> None:
    """The request is wrong; what can be done instead is named."""
    world.produce([LINE] * 3, 0)
    batch_id = commit(world)
    refused = tally("abandon", str(batch_id), *REASON)
    assert refused.exit_code == 2
    assert f"tally replay {world.name} --batch {batch_id} --dry-run" in refused.stderr
    assert [b["state"] for b in world.batches()] == ["committed"]


def test_a_topic_that_is_adopted_back_resumes_where_it_stopped(tally: Call, world: World) -> None:
    """For either value of --start; the preview says so."""
    world.produce([LINE] * 3, 0)
    commit(world)
    world.execute(
        "insert into topic_incarnation (pipeline, topic, topic_id, cluster_id, seen_at, state)"
        " select pipeline, topic, 'another', cluster_id, now(), 'retired' from topic_incarnation"
        " where pipeline = %s",
        (world.name,),
    )
    # As if the other id had been followed meanwhile, and this one was there again.
    world.execute(
        "update topic_incarnation set state = 'retired' where pipeline = %s", (world.name,)
    )
    world.execute(
        "update topic_incarnation set state = 'current'"
        " where pipeline = %s and topic_id = 'another'",
        (world.name,),
    )
    world.produce([LINE] * 4, 0)
    words = ("topics", "adopt", world.name, world.topic, "--start", "latest", *REASON, "--yes")
    answer = tally(*words)
    assert answer.exit_code == 0
    assert "counting resumes where it stopped" in answer.stdout
    assert world.offsets()[0] == (0, 3)
