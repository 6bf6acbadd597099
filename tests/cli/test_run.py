"""`tally run`: batches through a real Spark."""

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import LINE, Call
from tests.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.stack, pytest.mark.spark]


@pytest.mark.usefixtures("lent_spark")
def test_one_batch_is_planned_and_counted_and_run_again_without_effect(
    tally: Call, world: World
) -> None:
    """A second run of the same batch says so, ends with 0 and counts nothing twice."""
    world.produce([LINE] * 3, 0)
    first = tally("run", "--json")
    assert first.exit_code == 0
    (ran,) = first.document["batches"]
    assert ran["committed_before"] is False
    assert [(r["partition"], r["records"], r["matched"]) for r in ran["ranges"]] == [(0, 3, 3)]

    again = tally("run", str(ran["batch_id"]))
    assert again.exit_code == 0
    (batch,) = world.batches()
    assert f"was committed before, by attempt 1 of {batch['claimed_by']}" in again.stdout
    assert tally("run", str(ran["batch_id"]), "--json").document["batches"][0]["committed_before"]
    assert sum(world.counts().values()) == 3
    assert tally("run").stdout == "nothing new\n"


@pytest.mark.usefixtures("lent_spark")
def test_that_not_one_line_matched_is_said_with_what_to_look_at(tally: Call, world: World) -> None:
    """It may be right; nothing is said when a line was counted, or nothing was understood."""
    for lines, is_said in (
        ([LINE.replace("ERROR", "error")] * 2, True),
        ([LINE.replace("ERROR", "error"), LINE], False),
        (["nothing"], False),
    ):
        world.produce(lines, 0)
        ran = tally("run")
        assert ran.exit_code == 0
        said = "none of 2 well-formed records matched"
        assert (said in ran.stderr, f"tally format try {world.topic} " in ran.stderr) == (
            is_said,
            is_said,
        )


@pytest.mark.usefixtures("lent_spark")
def test_a_backlog_is_counted_batch_by_batch_until_nothing_is_left(
    tally: Call, world: World
) -> None:
    """--all runs several batches of limited size; without it one batch is run."""
    world.configure(max_records_per_partition=4)
    world.produce([LINE] * 10, 0)
    assert len(tally("run", "--json").document["batches"]) == 1
    assert len(tally("run", "--all", "--json").document["batches"]) == 2
    assert sum(world.counts().values()) == 10
    assert tally("audit").exit_code == 0


@pytest.mark.usefixtures("lent_spark")
def test_what_is_blocked_ends_with_4_after_the_rest_was_counted(tally: Call, world: World) -> None:
    """A blocked partition never stops the healthy one."""
    world.produce([LINE] * 3, 0)
    world.produce([LINE] * 3, 1)
    assert tally("run").exit_code == 0
    world.produce([LINE] * 5, 0)
    world.produce([LINE] * 5, 1)
    world.delete_records(0, before=6)
    answer = tally("run", "--json")
    assert answer.exit_code == 4
    assert [b["reason"] for b in answer.document["blocks"]] == ["records-lost"]
    assert sum(world.counts().values()) == 11


@pytest.mark.usefixtures("lent_spark")
def test_an_abandoned_batch_ends_with_5(tally: Call, world: World) -> None:
    """An attempt that still uses its id is fenced."""
    world.produce([LINE] * 3, 0)
    planned = world.plan().batch
    assert planned is not None
    tally("abandon", str(planned.batch_id), "--reason", "test")
    answer = tally("run", str(planned.batch_id), "--json")
    assert answer.exit_code == 5
    assert answer.document["error"]["code"] == "fenced"
    assert world.counts() == {}


@pytest.mark.parametrize("words", [("--all",), ("--pipeline", "first")])
def test_a_batch_by_its_number_takes_no_other_choice(tally: Call, words: tuple[str, ...]) -> None:
    """--pipeline and --all choose what BATCH has chosen already."""
    assert tally("run", "1", *words).exit_code == 2


def test_as_a_program_it_starts_its_own_spark_and_says_little(world: World) -> None:
    """Stdout is the document, stderr has none of the lines that every Spark start writes."""
    world.produce([LINE] * 3, 0)
    done = subprocess.run(
        [sys.executable, "-c", "from tally.cli import main; main()", "run", "--json"],
        env={**os.environ, "TALLY_SPARK__MASTER": "local[1]"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["batches"][0]["ranges"][0]["records"] == 3
    assert sum(world.counts().values()) == 3
    assert done.stderr == "starting Spark on local[1]\n"


@pytest.mark.parametrize(
    ("master", "absent", "extra"),
    [
        ("local[1]", "pyspark", "spark"),
        ("local[1]", "py4j", "spark"),
        ("sc://localhost", "grpc", "connect"),
    ],
)
def test_without_sparks_packages_it_says_what_to_install(
    world: World, master: str, absent: str, extra: str
) -> None:
    """Before anything is claimed, and not by a traceback: Spark is an extra of the package."""
    world.produce([LINE] * 3, 0)
    hidden = f"import sys; sys.modules[{absent!r}] = None; from tally.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", hidden, "run"],
        env={**os.environ, "TALLY_SPARK__MASTER": master},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 4, done.stderr
    assert "package-missing" in done.stderr
    assert f"has no {absent}" in done.stderr
    assert f"pip install 'kafka-tally[{extra}]'" in done.stderr
    assert world.batches() == []


def test_lent_sessions_are_given_back_open(
    tally: Call, world: World, lent_spark: "SparkSession"
) -> None:
    """The tests above share one session: no command may stop it."""
    world.produce([LINE], 0)
    assert tally("run").exit_code == 0
    assert lent_spark.range(1).count() == 1
