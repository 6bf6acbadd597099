"""`tally replay` and `tally replays`: preview, request, run, stop, resume, cancel."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from tally.errors import KafkaUnavailableError
from tests.cli.conftest import LINE, MINUTE, Call, commit
from tests.world import World

pytestmark = pytest.mark.stack

WARN = "2017-07-30 14:09:08 WARN some message"
WHY = ("--reason", "ticket 17", "--yes")


def count(world: World, *sizes: int, partition: int = 0) -> list[int]:
    return [commit(world, *[LINE] * size, partition=partition) for size in sizes]


def replays(world: World) -> list[tuple[int, str]]:
    return [(row["replay_id"], row["state"]) for row in world.replays()]


def test_a_dry_run_shows_all_and_writes_nothing(tally: Call, world: World, tmp_path: Path) -> None:
    """Ranges asked and widened, what is replaced, what Kafka holds; no reason is needed."""
    count(world, 3, 3, 3)
    count(world, 2, partition=1)
    words = ("replay", "--range", f"{world.topic}/0:4-5", "--dry-run")
    assert "to be replaced  1 segment" in tally(*words).ends(0).stdout
    shown = tally(*words, "--json").document
    assert shown["replay_id"] is None
    preview = shown["preview"]
    for key, offsets in (("asked", (4, 5)), ("read", (3, 6))):
        assert [(r["from_offset"], r["until_offset"]) for r in preview[key]] == [offsets]
    assert preview["first_minute"] == preview["last_minute"] == MINUTE[:16]
    assert (preview["offsets"], preview["segments_replaced"], preview["minutes"]) == (3, 1, 1)
    (held,) = preview["kafka_holds"]
    assert held == {"topic": world.topic, "partition": 0, "earliest": 0, "end": 9}

    before, after = tmp_path / "before.csv", tmp_path / "after.csv"
    before.write_text(f'"{world.topic}",0,3\n"{world.topic}",1,2\n')
    after.write_text(f'"{world.topic}",0,5\n"{world.topic}",1,2\n')
    words = ("replay", "--from-file", str(before), "--until-file", str(after), "--dry-run")
    preview = tally(*words, "--json").document["preview"]
    asked = [(r["partition"], r["from_offset"], r["until_offset"]) for r in preview["asked"]]
    assert asked == [(0, 3, 5)]
    assert preview["notes"] == [f"{world.topic}/1: nothing was counted from 2 until 2"]
    other = tally(*words, "--topic", "other", "--json").ends(2)
    assert other.document["preview"]["asked"] == []
    missing = str(tmp_path / "none.csv")
    tally("replay", "--from-file", missing, "--dry-run").ends(2, "cannot be read")
    # A name that is unknown is told before what else is missing.
    tally("replay", world.topic + "x", "--dry-run").ends(2, "pipeline-unknown")
    tally("replay", "--range", "alo/0:0-1", "--dry-run").ends(2, "unknown topic alo: ")
    tally("replay", "--range", f"{world.topic}/9:0-1", "--dry-run").ends(2, "unknown partition")
    tally("replay", "--batch", "2").ends(2, "say why", "next: the same command with --reason '…'")
    assert replays(world) == []
    assert len(world.batches()) == 4


def test_a_replay_shows_asks_counts_and_says_what_has_changed(tally: Call, world: World) -> None:
    world.configure(levels=["ERROR", "WARN"])
    first = commit(world, LINE, WARN, WARN)
    world.configure(levels=["ERROR"])
    (second,) = count(world, 2)
    unconfirmed = tally("replay", "--all", "--reason", "r")  # without a terminal --yes is needed
    assert unconfirmed.exit_code == 2
    assert "to be replaced  2 segments" in unconfirmed.stdout
    assert "add --yes" in unconfirmed.stderr
    assert tally("replay", "--all", "--reason", "r", "--json").exit_code == 2
    assert replays(world) == []
    answer = tally("replay", "--all", *WHY).ends(0)
    ((replay_id, state),) = replays(world)
    assert state == "done"
    assert f"replay {replay_id} of {world.name} is done: 1 batch, 5 offsets" in answer.stdout
    assert "1 minute of the result changed, 2017-07-30 14:09:" in answer.stdout
    assert "5 records, 3 matched, 0 malformed" in answer.stderr
    assert world.counts() == {MINUTE[:16]: 3}

    batch_id = world.batches()[-1]["batch_id"]
    text = tally("show", str(batch_id)).stdout
    assert f"replay        {replay_id}, all topics, all partitions, from what Kafka" in text
    assert f"has replaced  2 segments of batches {first}, {second}" in text
    shown = tally("show", str(batch_id), "--json").document
    assert shown["replay"]["reason"] == "ticket 17"
    assert [r["batch_id"] for r in shown["ranges"][0]["replaces"]] == [first, second]
    old = tally("show", str(first), "--json").document["ranges"][0]
    assert (old["state"], old["superseded_by_batch"]) == ("superseded", batch_id)
    assert tally("batches").stdout.splitlines()[1].split()[1:3] == ["replay", str(replay_id)]

    last = tally("status", "--json").document["last_committed_batch"]
    assert last["batch_id"] == second  # the last minute batch, whatever was replayed

    (listed,) = tally("replays", "--json").document["replays"]
    assert (listed["state"], listed["committed"], listed["offsets"]) == ("done", 1, 5)
    assert tally("replays", "--wide").stdout.splitlines()[1].endswith("  ticket 17")
    assert "was committed before" in tally("run", str(batch_id)).stdout
    assert world.audit().holds

    words = ("replay", "--topic", world.topic, "--partition", "0", "--from", "0", "--json", *WHY)
    document = tally(*words).document  # nothing changes now, and it says so
    assert document["replay"]["replay_id"] == document["replay_id"] != replay_id
    assert [b["ranges"][0]["records"] for b in document["batches"]] == [5]
    assert document["preview"]["segments_replaced"] == 1
    assert (document["changes"]["minutes"], document["error"]) == (0, None)


def test_a_replay_that_stops_says_how_to_resume_it(tally: Call, world: World) -> None:
    """After an error, which keeps its own code and next step, and after Ctrl-C between batches."""
    count(world, 2, 2, 2)
    world.configure(max_records_per_partition=2)
    claims = []

    def fail() -> NoReturn:
        raise KafkaUnavailableError("Kafka did not answer")

    def stop_at_the_second(statement: str) -> None:
        if statement.startswith("update batch set attempt = attempt + 1"):
            claims.append(statement)
            if len(claims) == 2:
                raise KeyboardInterrupt

    answer = tally("replay", "--all", *WHY, "--json", read_with=lambda *_: fail)
    ((replay_id, state),) = replays(world)
    resume = ("replay", "--resume", str(replay_id))
    answer.ends(3, f"tally {' '.join(resume)}")
    assert answer.document["replay_id"] == replay_id
    assert answer.document["error"]["code"] == "kafka-unavailable"

    ctx = world.context(database=replace(world.database, listen=stop_at_the_second))
    answer = tally(*resume, open_context=lambda _: ctx)
    answer.ends(130, f"tally {' '.join(resume)}", "(1 of 3) is committed")
    assert replays(world) == [(replay_id, state)] == [(replay_id, "open")]

    again = f"replay {replay_id} is open, 1 of 3 batches committed"
    tally("replay", "--all", "--dry-run").ends(0, again)
    left = tally(*resume, "--dry-run").stdout
    assert "1 of 3 batches committed, 4 offsets left" in left
    tally(*resume).ends(0, "(3 of 3) is committed")
    assert replays(world) == [(replay_id, "done")]
    assert tally(*resume, "--json").document["batches"] == []
    assert world.counts() == {MINUTE[:16]: 6}


def test_what_is_refused_is_shown_with_its_cause(tally: Call, world: World) -> None:
    count(world, 3, 3)
    world.delete_records(0, before=2)
    where = f"{world.topic}/0"
    answer = tally("replay", "--range", f"{where}:0-2", "--range", f"{where}:3-9", *WHY).ends(2)
    assert "Kafka's first offset is now 2; what was counted stays" in answer.stdout
    assert "counted up to 6 so far" in answer.stdout
    assert "[2, 6)" in answer.stdout
    assert answer.stderr.startswith("replay-refused: ")
    offered = shlex.split(answer.stderr.strip().rpartition("it: ")[2])
    assert offered == ["tally", "replay", world.name, "--range", f"{where}:3-6", "--reason", "…"]
    assert tally(*offered[1:-2], "--dry-run").exit_code == 0
    shown = tally("replay", "--range", f"{where}:4-7", "--dry-run", "--json").ends(2)
    assert shown.document["error"]["code"] == "replay-refused"
    assert [r["until_offset"] for r in shown.document["preview"]["refusals"]] == [7]
    (possible,) = shown.document["preview"]["possible"]
    assert (possible["from_offset"], possible["until_offset"]) == (4, 6)
    tally("replay", "--minute", "2020-01-01 00:00", "--dry-run").ends(
        2, "no live segment of the current topics has lines of it"
    )
    assert replays(world) == []


def test_a_replay_is_cancelled_as_a_whole(tally: Call, world: World) -> None:
    """First shown, then done, in one transaction; it cannot be resumed afterwards."""
    count(world, 2, 2, 2)
    world.configure(max_records_per_partition=2)
    requested = world.ask_replay()
    replay_id, first = str(requested.replay_id), requested.batch_ids[0]
    words = ("replay", "--cancel", replay_id, "--reason", "wrong levels")
    assert "3 batches abandoned, 0 committed before" in tally(*words, "--dry-run").stdout
    assert replays(world) == [(int(replay_id), "open")]
    abandoned = tally("abandon", str(first), "--reason", "wrong levels").stdout
    assert abandoned.splitlines()[-1] == (
        f"batch {first} of {world.name} is abandoned; what it was to replace stays as it is"
    )
    assert tally(*words, "--json").document["replay"]["state"] == "cancelled"
    assert [(b["state"], b["reason"]) for b in world.batches()[3:]] == [
        ("abandoned", "wrong levels")
    ] * 3
    last = world.batches()[-1]["batch_id"]
    assert tally(*words).exit_code == 5
    for late in (("replay", "--resume", replay_id), ("run", str(last))):
        answer = tally(*late, "--json").ends(5)
        assert answer.document["error"]["code"] == "fenced"
        assert "tally plan" not in answer.stderr
    tally("run", str(last)).ends(5, "what it was to replace stays")
    advice = f"tally replay {world.name} --all --dry-run"
    assert advice in tally("replay", "--resume", replay_id).stderr
    assert tally(*advice.split()[1:]).exit_code == 0
    for unknown in (("--resume", "4000000000"), ("--cancel", "4000000000", "--reason", "r")):
        answer = tally("replay", *unknown, "--json").ends(2)
        assert answer.document["error"]["code"] == "replay-unknown"
    assert world.counts() == {MINUTE[:16]: 6}
    assert world.audit().holds


@pytest.mark.parametrize("held", [True, False], ids=["replaced counts", "its own counts"])
def test_what_a_pruned_replay_has_changed_is_unknown(tally: Call, world: World, held: bool) -> None:
    """What it replaced is deleted, or what it counted is folded."""
    world.configure(levels=["ERROR", "WARN"])
    commit(world, LINE, LINE, "2017-07-30 14:09:08 WARN some message")
    world.configure(levels=["ERROR"])
    done = tally("replay", "--all", "--reason", "r", "--yes", "--json").document
    resume = ("replay", "--resume", str(done["replay_id"]))
    assert done["changes"]["lines_fewer"] == 1
    assert "1 fewer" in tally(*resume).stdout
    if not held:
        world.delete_records(0, before=3)
    assert tally("prune", "--older-than", "0h").exit_code == 0
    said = tally(*resume).stdout
    assert "what it has changed is no longer known" in said
    assert "fewer" not in said
    again = tally(*resume, "--json").document
    assert again["changes"] is None
    assert again["replay"]["pruned_at"] is not None
    assert tally("audit").exit_code == 0
