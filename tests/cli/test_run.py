"""`tally run`: batches, one after another or by number."""

import subprocess
import sys

import pytest

from tests.cli.conftest import LINE, Answer, Call
from tests.world import World

pytestmark = pytest.mark.stack


def test_a_batch_that_is_run_again_has_no_effect(tally: Call, world: World) -> None:
    """A second run of the same batch says so, ends with 0 and counts nothing twice."""
    world.produce([LINE] * 3, 0)
    first = tally("run", "--json").ends(0)
    (ran,) = first.document["batches"]
    assert ran["committed_before"] is False
    assert [(r["partition"], r["records"], r["matched"]) for r in ran["ranges"]] == [(0, 3, 3)]

    again = tally("run", str(ran["batch_id"])).ends(0)
    (batch,) = world.batches()
    assert f"was committed before, by attempt 1 of {batch['claimed_by']}" in again.stdout
    assert tally("run", str(ran["batch_id"]), "--json").document["batches"][0]["committed_before"]
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
        said = "none of 2 well-formed records matched"
        assert (said in ran.stderr, f"tally format try {world.topic} " in ran.stderr) == (
            is_said,
            is_said,
        )


def test_a_backlog_is_counted_until_nothing_is_left(tally: Call, world: World) -> None:
    """--all runs several batches of limited size; without it one batch is run."""
    world.configure(max_records_per_partition=4)
    world.produce([LINE] * 10, 0)
    assert len(tally("run", "--json").document["batches"]) == 1
    assert len(tally("run", "--all", "--json").document["batches"]) == 2
    assert sum(world.counts().values()) == 10
    assert tally("audit").exit_code == 0


def test_an_abandoned_batch_ends_with_5(tally: Call, world: World) -> None:
    """An attempt that still uses its id is fenced; it takes neither --all nor --pipeline."""
    world.produce([LINE] * 3, 0)
    planned = world.plan().batch
    assert planned is not None
    batch = str(planned.batch_id)
    for words in (("--all",), ("--pipeline", world.name)):  # which BATCH has chosen already
        assert tally("run", batch, *words).exit_code == 2
    tally("abandon", batch, "--reason", "test")
    answer = tally("run", batch, "--json").ends(5)
    assert answer.document["error"]["code"] == "fenced"
    assert world.counts() == {}


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
