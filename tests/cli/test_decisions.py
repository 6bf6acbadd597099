"""`tally losses`, `topics`, `abandon` and `prune` on real servers."""

from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tally.model import TopicPartition
from tally.planning.blocks import BlockReason
from tests.cli.conftest import LINE, MINUTE, Call, commit
from tests.fakes import ManualClock
from tests.minute.steps import follow_another, losses
from tests.world import World

pytestmark = pytest.mark.stack

REASON = ("--reason", "ticket 17")


def lose_records(world: World) -> None:
    """Both partitions have lost the offsets [3, 6), and a plan has seen it."""
    for partition in (0, 1):
        commit(world, *[LINE] * 3, partition=partition)
    for partition in (0, 1):
        world.produce([LINE] * 5, partition)
        world.delete_records(partition, before=6)
    assert len(world.plan().blocks) == 2


UNDECIDED = [(0, 3, 6, "expired", "open"), (1, 3, 6, "expired", "open")]


def test_a_loss_is_shown_and_stays_open_until_yes_is_said(
    tally: Call, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script must pass --yes; a dry run and a refusal leave ledger and offsets alone.

    So does a decision that has waited too long for the planner, which is retryable: planning and
    deciding are serialised by the pipeline's row.
    """
    lose_records(world)
    listed = tally("losses", "list", "--open", "--json").document["losses"]
    found = [(x["partition"], x["from_offset"], x["until_offset"]) for x in listed]
    assert found == [(0, 3, 6), (1, 3, 6)]
    assert "[3, 6)" in tally("losses", "list").stdout
    accept = ("losses", "accept", *REASON)
    assert "2 ranges would be accepted" in tally(*accept, "--dry-run").ends(0).stdout
    dry = tally(*accept, "--dry-run", "--json").document["losses"]
    assert [loss["state"] for loss in dry] == ["open", "open"]
    tally(*accept).ends(2, "--yes")
    assert tally(*accept, "--json").ends(2).document["error"]["code"] == "usage"
    monkeypatch.setenv("TALLY_MYSQL__LOCK_WAIT_TIMEOUT_S", "1")
    with closing(world.connect()) as planner, planner.cursor() as cursor:
        cursor.execute("select * from pipeline where pipeline = %s for update", (world.name,))
        assert tally(*accept, "--yes").ends(3).stderr.startswith("transaction-retry: ")
    assert losses(world) == UNDECIDED
    assert world.offsets() == {0: (0, 3), 1: (0, 3)}


def test_accepted_losses_let_counting_continue(tally: Call, world: World) -> None:
    """The lost range takes its place in the tiling, with who and why; each by itself, or all."""
    lose_records(world)
    accept = ("losses", "accept", *REASON, "--yes")
    one = ("--topic", world.topic, "--partition", "1")
    other = ("--topic", "other")
    for wrong in (other, ("--partition", "0"), (*other, "--partition", "0")):
        assert tally(*accept, *wrong).exit_code == 2
    assert losses(world) == UNDECIDED
    assert tally(*accept, *one).exit_code == 0
    assert [state for *_, state in losses(world)] == ["open", "accepted"]
    (done,) = tally(*accept, "--json").document["losses"]
    assert (done["partition"], done["state"], done["reason"]) == (0, "accepted", "ticket 17")
    assert done["decided_by"]
    assert [state for *_, state in losses(world)] == ["accepted", "accepted"]
    assert world.offsets() == {0: (0, 6), 1: (0, 6)}
    tally(*accept).ends(2, "no such open loss", f"tally plan {world.name}")
    assert tally("plan", "--json").document["blocks"] == []
    assert tally("audit").exit_code == 0


def test_a_loss_that_grows_while_the_operator_decides_is_not_accepted(
    tally: Call, world: World
) -> None:
    lose_records(world)

    def think(question: str) -> None:
        assert question == "Accept the loss in 6 offsets?"
        world.delete_records(1, before=7)
        world.plan()

    tally("losses", "accept", *REASON, ask=think).ends(2, "not what you saw")
    assert [state for *_, state in losses(world)] == ["open", "open"]
    assert world.offsets() == {0: (0, 3), 1: (0, 3)}


def create_again(world: World, lines: int = 10) -> None:
    world.delete_topic()
    world.create_topic(2)
    world.produce([LINE] * lines, 0)


def test_a_re_created_topic_is_counted_once_it_is_adopted(tally: Call, world: World) -> None:
    """From its start, or from now on; blocked before, and the old counts stay."""
    commit(world, *[LINE] * 3)
    for topic in (world.topic, "another"):
        tally("topics", "adopt", world.name, topic, *REASON, "--yes").ends(2)
    create_again(world)
    tally("plan").ends(4)
    words = ("topics", "adopt", world.name, world.topic, *REASON)
    preview = tally(*words, "--dry-run", "--json").document
    assert (preview["adopted"], preview["was_followed_before"]) == (False, False)
    assert preview["partitions"][0] == {"partition": 0, "offset": 0}
    tally("plan").ends(4)

    assert tally(*words, "--yes", "--json").document == {**preview, "adopted": True}
    assert tally("plan", "--json").document["batches"][0]["ranges"][0]["until_offset"] == 10
    commit(world)
    assert sum(world.counts().values()) == 13
    tally("audit").ends(0)
    minute = next(iter(world.counts()))
    replay = tally("replay", "--minute", minute[:16], "--dry-run")
    assert "an earlier generation of a topic, which Kafka no longer has" in replay.stdout

    create_again(world)
    tally(*words, "--start", "latest", "--yes").ends(0)
    assert world.offsets()[0] == (10, 10)


def test_an_adoption_says_what_is_lost_with_it(tally: Call, world: World) -> None:
    """What was planned of the old generation, and what the new one had lost before."""
    commit(world, LINE)
    world.planned([LINE] * 9)
    create_again(world, lines=5)
    world.delete_records(0, before=3)
    words = ("topics", "adopt", world.name, world.topic, *REASON)
    text = tally(*words, "--dry-run").ends(0).stdout
    assert f"{world.topic}/0 [1, 10) of the id " in text
    assert "9 offsets (expired)" in text
    assert "would be adopted; 12 offsets accepted as lost" in text
    preview = tally(*words, "--dry-run", "--json").document
    (old,) = world.rows("select topic_id from topic_incarnation where pipeline = %s", (world.name,))
    assert [(r["topic_id"], r["from_offset"], r["until_offset"]) for r in preview["lost"]] == [
        (old["topic_id"], 1, 10),
        (preview["topic_id"], 0, 3),
    ]
    assert tally(*words, "--yes", "--json").document == {**preview, "adopted": True}
    assert world.offsets()[0] == (0, 3)
    commit(world)
    assert sum(world.counts().values()) == 1 + 2
    tally("audit", "--recount").ends(0)

    create_again(world)
    world.delete_records(0, before=3)
    assert tally(*words, "--start", "latest", "--yes", "--json").document["lost"] == []
    assert world.offsets()[0] == (10, 10)


def test_a_moved_topic_is_counted_on_where_its_copies_begin(tally: Call, world: World) -> None:
    """By time or by offset; a preview says what would be counted twice or never."""
    commit(world, *[LINE] * 3)
    through = datetime.fromisoformat(tally("status", "--json").document["counted_through"])
    copied = int((through - timedelta(minutes=5)).timestamp() * 1000)
    later = int((through + timedelta(minutes=5)).timestamp() * 1000)
    world.delete_topic()
    world.create_topic(2)
    # Two that the old cluster no longer had come first; so the offsets are others.
    world.produce([LINE] * 5, 0, fields={"timestamp": copied})
    world.produce([LINE] * 4, 0, fields={"timestamp": later})
    world.produce([LINE] * 2, 1, fields={"timestamp": later})
    words = ("topics", "adopt", world.name, world.topic, *REASON)

    def previewed(*start: str) -> tuple[list[int], int, int]:
        view = tally(*words, *start, "--dry-run", "--json").ends(0).document
        assert datetime.fromisoformat(view["counted_through"]) == through
        begins = [one["offset"] for one in view["partitions"]]
        return begins, view["counted_twice"], view["never_counted"]

    assert previewed() == ([0, 0], 5, 0)
    assert previewed("--start", "latest") == ([9, 2], 0, 6)
    assert previewed("--offset", "0=2", "--offset", "1=1") == ([2, 1], 3, 1)
    at = through.isoformat()
    assert previewed("--start", at) == ([5, 0], 0, 0)
    told = tally(*words, "--dry-run").ends(0)
    assert "5 records would be counted twice, and 0 records never" in told.stdout
    assert "no record of that moment" not in told.stderr
    tally(*words, "--start", at, "--offset", "0=2").ends(2, "exclude each other")
    tally(*words, "--start", "yesterday", "--dry-run").ends(2, "a time with its zone")
    tally(*words, "--offset", "0=2", "--dry-run").ends(2, f"{world.topic}/1: Kafka has [0, 2)")
    tally(*words, "--offset", "0=10", "--offset", "1=0", "--dry-run").ends(2, "Kafka has [0, 9)")
    assert tally(*words, "--start", at, "--yes").exit_code == 0
    commit(world)
    assert sum(world.counts().values()) == 3 + 6
    tally("audit", "--recount").ends(0)


def test_copies_that_are_still_on_their_way_are_told(tally: Call, world: World) -> None:
    """Begun at the end of the partition, each of them would be counted twice."""
    commit(world, *[LINE] * 3)
    at = tally("status", "--json").document["counted_through"]
    create_again(world, 0)
    world.produce([LINE] * 2, 0, fields={"timestamp": 1_000})
    words = ("topics", "adopt", world.name, world.topic, *REASON, "--start", at, "--dry-run")
    assert "or later in 0, 1: of copies that still come" in tally(*words).ends(0).stderr
    view = tally(*words, "--json").document
    assert (view["counted_twice"], view["behind"]) == (0, [0, 1])


def test_an_earlier_topic_goes_on_where_it_stopped(tally: Call, world: World) -> None:
    """Nowhere else, and nothing of it counts twice; what else is counted there is foretold."""
    commit(world, *[LINE] * 3)
    follow_another(world, topic_id="AAAAAAAAAAAAAAAAAAAAAQ")
    world.execute(
        "insert into partition_offset (incarnation_id, partition_id, start_offset, next_offset,"
        " seen_at, seen_end, counted_through) select i.incarnation_id, o.partition_id, 0, 0,"
        " o.seen_at, 0, now(6) from partition_offset o join topic_incarnation f using"
        " (incarnation_id) join topic_incarnation i on i.pipeline = f.pipeline and"
        " i.state = 'current' where f.pipeline = %s and f.state = 'retired'",
        (world.name,),
    )
    words = ("topics", "adopt", world.name, world.topic, *REASON)
    offsets = ("--offset", "0=1", "--offset", "1=0")
    tally(*words, *offsets, "--dry-run").ends(2, "was followed before: counting resumes where")
    view = tally(*words, "--dry-run", "--json").ends(0).document
    assert [one["offset"] for one in view["partitions"]] == [3, 0]
    assert (view["was_followed_before"], view["counted_twice"]) == (True, 0)
    assert tally(*words, "--yes", "--json").document == {**view, "adopted": True}
    commit(world, LINE)
    assert sum(world.counts().values()) == 4


def test_a_topic_that_a_restored_ledger_lacks_does_not_begin_at_its_end(
    tally: Call, world: World
) -> None:
    """Else it would begin at today's end; the mirrored offsets of another ledger say nothing."""
    commit(world, LINE)
    kafka, group = world.context().kafka, f"tally-{world.name}"
    (ledger,) = set(kafka.notes_of(group).values())
    counted, foreign = topics = [f"{world.topic}_{n}" for n in range(2)]
    for topic, note in ((counted, ledger), (foreign, "another")):
        world.create_topic(1, topic)
        world.produce([LINE] * 4, topic=topic)
        kafka.commit_offsets(group, {TopicPartition(topic=topic, partition=0): 2}, note)
    world.configure(topics=[world.topic, *topics], start="latest")
    told = tally("plan", "--json").ends(4).document["blocks"]
    assert [(block["topic"], block["reason"]) for block in told] == [(counted, "topic-forgotten")]
    world.configure(start="earliest")
    commit(world)
    assert sum(world.counts().values()) == 1 + 4
    assert world.context().kafka.notes_of("tally-nobody") == {}


def test_an_abandoned_batch_gives_its_offsets_back(tally: Call, world: World) -> None:
    """First shown, then done; the next plan takes the same offsets."""
    planned = world.planned([LINE] * 3)
    batch_id = str(planned.batch_id)
    assert "would be abandoned" in tally("abandon", batch_id, *REASON, "--dry-run").stdout
    tally("abandon", batch_id, "--reason", "…").ends(2, "say why")  # a next step, pasted as it is
    assert [b["state"] for b in world.batches()] == ["planned"]

    view = tally("abandon", batch_id, *REASON, "--json").document
    assert (view["batch_id"], view["dry_run"], view["kind"]) == (int(batch_id), False, "ingest")
    assert [(r["from_offset"], r["until_offset"]) for r in view["ranges"]] == [(0, 3)]
    assert [(b["state"], b["reason"]) for b in world.batches()] == [("abandoned", "ticket 17")]
    again = tally("plan", "--json").document["batches"][0]
    assert again["batch_id"] > planned.batch_id
    assert again["ranges"][0]["until_offset"] == 3
    counted = commit(world)
    instead = f"tally replay {world.name} --batch {counted} --dry-run"
    tally("abandon", str(counted), *REASON).ends(2, instead)
    assert [b["state"] for b in world.batches()] == ["abandoned", "committed"]


def test_a_cluster_that_is_adopted_back_counts_nothing_twice(tally: Call, world: World) -> None:
    """Fail-over and fail-back: counting resumes where it stopped, for either value of --start."""
    commit(world, *[LINE] * 3)
    follow_another(world, cluster_id="another")
    world.produce([LINE] * 4, 0)
    assert [block.reason for block in world.plan().blocks] == [BlockReason.CLUSTER_CHANGED]
    words = ("topics", "adopt", world.name, world.topic, "--start", "latest", *REASON, "--yes")
    assert "counting resumes where it stopped" in tally(*words).ends(0).stdout
    assert world.offsets()[0] == (0, 3)
    commit(world)
    assert world.counts() == {MINUTE[:16]: 7}
    tally("audit").ends(0)


def test_what_kafka_has_lost_is_folded(tally: Call, world: World) -> None:
    """A dry run says what the real one does; the audit holds, and nothing is left to do."""
    before = datetime.now(UTC) - timedelta(days=2)
    earlier = world.through(database=replace(world.database, clock=ManualClock(before)))
    for _ in range(3):
        commit(earlier, LINE, LINE)
    assert {b["committed_at"] for b in world.batches()} == {before.replace(tzinfo=None)}
    world.delete_records(0, before=4)
    assert tally("prune", "--older-than", "3d", "--json").document["segments"] == 0
    dry = tally("prune", "--older-than", "1d", "--dry-run").ends(0)
    assert "2 segments of 1 partition would be folded" in dry.stdout
    done = tally("prune", "--older-than", "1d", "--json").document
    assert (done["segments"], done["partitions"], done["dry_run"]) == (2, 1, False)
    tally("audit").ends(0)
    assert tally("prune", "--older-than", "0h", "--json").document["segments"] == 0
    tally("prune", "--older-than", "30").ends(2, "write 30d")  # it could be days or hours
