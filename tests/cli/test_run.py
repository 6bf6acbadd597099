"""`tally plan`, and `tally run`: batches, one after another or by number."""

import subprocess
import sys

import pytest

from tests.cli.conftest import LINE, Answer, Call, commit
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


def test_a_batch_that_is_run_again_has_no_effect(tally: Call, world: World) -> None:
    world.produce([LINE] * 3, 0)
    first = tally("run", "--json").ends(0)
    (ran,) = first.document["batches"]
    assert ran["committed_before"] is False
    assert [(r["partition"], r["records"], r["matched"]) for r in ran["ranges"]] == [(0, 3, 3)]

    again = tally("run", str(ran["batch_id"])).ends(0)
    (batch,) = world.batches()
    assert f"was committed before, by attempt 1 of {batch['claimed_by']}" in again.stdout
    assert tally("run", str(ran["batch_id"]), "--json").document["batches"][0]["committed_before"]
    for words in (("--all",), ("--pipeline", world.name)):  # which BATCH has chosen already
        tally("run", str(ran["batch_id"]), *words).ends(2)
    assert sum(world.counts().values()) == 3
    assert tally("run").stdout == "nothing new\n"


def test_that_not_one_line_matched_is_said_with_what_to_look_at(tally: Call, world: World) -> None:
    """It may be right; nothing is said when a line was counted, or nothing was understood."""
    for lines, is_said in (
        ([LINE.replace("ERROR", "error")] * 2, True),
        ([LINE.replace("ERROR", "error"), LINE], False),
        (["nothing"], False),
    ):
        world.produce(lines, 0)
        ran = tally("run").ends(0)
        said = "none of 2 well-formed lines matched"
        assert (said in ran.stderr, f"tally format try {world.topic} " in ran.stderr) == (
            is_said,
            is_said,
        )


def test_a_backlog_is_counted_until_nothing_is_left(tally: Call, world: World) -> None:
    world.configure(max_records_per_partition=4)
    world.produce([LINE] * 10, 0)
    assert len(tally("run", "--json").document["batches"]) == 1
    assert len(tally("run", "--all", "--json").document["batches"]) == 2
    assert sum(world.counts().values()) == 10
    assert tally("audit").exit_code == 0


def test_without_sparks_packages_it_says_what_to_install(
    tally: Call, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is claimed, and not by a traceback: Spark is an extra of the package."""
    world.produce([LINE] * 3, 0)
    hidden = "import sys; sys.modules['pyspark'] = None; from tally.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", hidden, "run"], capture_output=True, text=True, check=False
    )
    answer = Answer(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)
    answer.ends(4, "package-missing: ", "has no pyspark", "pip install 'kafka-tally[spark]'")
    for master, absent, extra in (
        ("local[1]", "py4j", "spark"),
        ("sc://localhost", "grpc", "connect"),
    ):
        monkeypatch.setenv("TALLY_SPARK__MASTER", master)
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, absent, None)
            answer = tally("run").ends(4, f"has no {absent}", f"install 'kafka-tally[{extra}]'")
        assert answer.stderr.startswith("package-missing: ")
    assert world.batches() == []
