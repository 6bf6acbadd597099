"""Commands that show or count all pipelines, and the health that they agree about."""

from collections.abc import Callable

import pytest

from tally.aggregates.aggregate import fingerprint
from tally.counting.run import run_batches
from tally.errors import UnansweredError
from tally.model import OffsetRange
from tally.planning.replay_request import RangesAsked
from tally.replay.run import run_replay
from tally.status.status import Statuses
from tests.cli.conftest import LINE, Call, commit
from tests.world import World

pytestmark = pytest.mark.stack

Add = Callable[..., str]


@pytest.fixture
def add(world: World, tally: Call) -> Add:
    """Adds a pipeline over the world's topic to the configuration; returns its name."""

    def added(suffix: str, keys: str = "", *, migrated: bool = True) -> str:
        name = f"{world.name}_{suffix}"
        with world.config.open("a", encoding="utf-8") as file:
            file.write(f'[pipelines.{name}]\ntopics = ["{world.topic}"]\n{keys}\n')
        if migrated:
            assert tally("migrate").exit_code == 0
        return name

    return added


def test_every_pipeline_has_a_line_and_a_wrong_one_too(tally: Call, world: World, add: Add) -> None:
    commit(world, *[LINE] * 3)
    world.produce([LINE] * 2, 0)
    second = add("second", migrated=False)
    wrong = add("wrong", 'lvels = ["WARN"]', migrated=False)
    first = f"applied table {second}\napplied view {second}_minutes\n"
    for done in (first, ""):  # not that everything is there
        migrated = tally("migrate").ends(2, f"prepared for what is disabled: {wrong}", "next: ")
        assert migrated.stdout == done
    answer = tally("pipelines", "--json").ends(0)
    assert tally("status", "--json").document == answer.document
    found = {p["pipeline"]: p for p in answer.document["pipelines"]}
    assert answer.document["health"] == "fail"
    assert {n: (p["health"], p["lag_offsets"]) for n, p in found.items()} == {
        world.name: ("ok", 2),
        second: ("ok", 5),
        wrong: ("fail", None),
    }
    assert found[world.name]["last_committed_at"] is not None
    assert found[second]["last_committed_at"] is None
    (problem,) = found[wrong]["problems"]
    assert problem["reason"] == "disabled"
    assert "did you mean levels?" in problem["detail"]
    text = tally("pipelines", "--check").ends(1)
    assert f"FAIL  {wrong}: disabled: " in text.stdout


def test_a_pipeline_that_was_never_migrated_is_not_well(tally: Call, add: Add) -> None:
    table = add("second", migrated=False)
    labelled = add("third", 'labels = ["level"]', migrated=False)
    for name in (table, labelled):
        document = tally("status", name, "--json").document
        (problem,) = document["problems"]
        assert (problem["reason"], problem["next_step"]) == ("unprepared", "tally migrate")
        assert f"has no table {name} yet" in problem["detail"]
        assert tally("status", name, "--check").exit_code == 1
    assert tally("migrate").exit_code == 0
    for name in (table, labelled):
        assert tally("status", name, "--json").document["problems"] == []


def test_the_ledger_is_shown_though_kafka_is_down(
    tally: Call, world: World, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the status the ledger's side, with the exit code of Kafka's error; and the counts.

    Whether Kafka still holds the records of minutes under other rules is not known then. Of all
    pipelines each names it as its problem, though it is asked once.
    """
    commit(world, *[LINE] * 3)
    before = fingerprint(world.pipeline)
    world.configure(levels=["ERROR", "WARN"])
    second = add("second")
    monkeypatch.setenv("TALLY_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("TALLY_KAFKA__REQUEST_TIMEOUT_S", "1")
    answer = tally("status", world.name, "--json").ends(3)
    assert answer.stderr.startswith("kafka-unavailable: ")
    shown = tally("status", world.name).ends(3)
    assert (shown.stdout + shown.stderr).count("did not answer") == 1
    statuses = Statuses(ctx=world.context())
    statuses.of(world.name)
    (error,) = statuses.errors
    assert isinstance(error, UnansweredError)
    assert error.is_unexplained
    document = answer.document
    assert document["kafka_answered"] is False
    assert document["kafka_error"]["code"] == "kafka-unavailable"
    (first, _) = document["partitions"]
    assert (first["next_offset"], first["lag_offsets"]) == (3, None)
    document = tally("counts", world.name, "--json").ends(0).document
    assert (document["outdated"]["gone"], document["other_offsets_gone"]) == (None, None)
    assert document["minutes"][0]["other_fingerprints"] == [before]
    told = tally("counts", world.name).stdout
    assert "brought up to date, if Kafka holds them, with: tally replay" in told
    answer = tally("pipelines", "--json").ends(3)
    assert answer.stderr.count("kafka-unavailable") == 1
    reasons = [[p["reason"] for p in x["problems"]] for x in answer.document["pipelines"]]
    assert [x["pipeline"] for x in answer.document["pipelines"]] == [world.name, second]
    assert reasons == [["kafka-unanswered"]] * 2


def test_all_are_counted_and_one_stops_no_other(tally: Call, world: World, add: Add) -> None:
    world.produce([LINE] * 3, 0)
    second = add("second")
    assert tally("audit").exit_code == 0
    ran = tally("run").ends(0)
    assert ran.stdout.count("is committed") == 2
    assert tally("run").stdout.splitlines() == [
        f"{name}: nothing new" for name in (world.name, second)
    ]
    shown = tally("counts")
    *rows, told = shown.stdout.splitlines()[1:]
    assert [line.split() for line in rows] == [
        [name, "1", "2017-07-30", "14:09", "2017-07-30", "14:09", "3", "today"]
        for name in (world.name, second)
    ]
    assert told == "the latest 10 minutes of each; see --last"
    wrong = add("a_wrong", 'lvels = ["WARN"]', migrated=False)
    world.produce([LINE] * 2, 0)
    again = tally("run", "--json").ends(2)
    assert [run["pipeline"] for run in again.document["runs"]] == [world.name, second]
    assert list(again.document["errors"]) == [wrong]
    world.execute(f"update `{second}` set log_count = 9")
    audited = tally("audit", "--json").ends(1)  # a violation is worse than what could not be read
    holds = {a["pipeline"]: a["holds"] for a in audited.document["audits"]}
    assert holds == {world.name: True, second: False}
    assert audited.document["holds"] is False
    assert list(tally("counts", "--json").document["errors"]) == [wrong]
    assert tally("audit", world.name).exit_code == 0


def test_health_is_the_same_wherever_it_is_asked_for(tally: Call, world: World) -> None:
    """A loss that nobody has decided about: status, list, doctor and exit codes agree."""
    tally("status", "--check").ends(0)
    commit(world, *[LINE] * 3)
    world.produce([LINE] * 5, 0)
    world.delete_records(0, before=6)
    tally("status", "--json").ends(0)
    status = tally("status", "--json", "--check").ends(1).document
    (problem,) = status["problems"]
    assert (problem["reason"], problem["health"]) == ("blocked", "fail")
    listed = tally("pipelines", "--json").document
    assert (listed["health"], listed["pipelines"][0]["problems"]) == ("fail", [problem])
    doctor = tally("doctor", "--json").ends(1).document
    (check,) = [c for c in doctor["checks"] if c["check"] == f"pipeline.{world.name}"]
    assert (check["health"], check["detail"]) == ("fail", problem["detail"])
    assert check["next_step"] == problem["next_step"]
    place = status["partitions"][0]
    assert (place["blocked"], place["open_loss"]) == ("records-lost", None)
    world.plan()
    loss = tally("status", "--json").document["partitions"][0]["open_loss"]
    assert (loss["from_offset"], loss["until_offset"]) == (3, 6)


def understood(records: int, malformed: int) -> dict[str, object]:
    """What is told of records that are counted unless they are malformed."""
    matched = {"matched": records - malformed, "has_matched": True}
    return {"records": records, "malformed": malformed, "continuations": 0, **matched}


def test_malformed_records_are_told_where_one_looks(tally: Call, world: World) -> None:
    """In the status, with a warning beyond the configured share; those of other rules are not."""
    commit(world, LINE, "what", "is this")
    assert "3 records, 1 matched, 2 malformed" in tally("status").stdout
    of_today = tally("status", "--json", "--check").ends(1).document
    assert of_today["understood"] == understood(3, 2)
    (problem,) = of_today["problems"]
    assert (problem["reason"], problem["health"]) == ("malformed", "warn")
    world.configure(levels=["WARN"])
    of_another = tally("status", "--json", "--check").ends(0).document
    assert of_another["understood"] == understood(0, 0)
    assert of_another["health"] == "ok"


def test_levels_of_which_no_line_was_ever_counted_are_told(tally: Call, world: World) -> None:
    """Until the first line is counted: then a batch without one is a quiet minute."""
    world.configure(levels=["Error"])
    commit(world, *[LINE] * 3, LINE.replace("ERROR", "WARN"), "what is this")
    (problem,) = tally("status", "--json", "--check").ends(1).document["problems"]
    assert (problem["reason"], problem["health"]) == ("nothing-matched", "warn")
    assert "none of 4 lines" in problem["detail"]
    assert "the newest have the levels ERROR (3), WARN (1)" in problem["detail"]
    assert "last committed minute batch: " in tally("status").stdout
    world.configure(levels=["ERROR"])
    commit(world, LINE)
    for _ in range(20):
        commit(world, LINE.replace("ERROR", "INFO"))
    assert tally("status", "--json", "--check").ends(0).document["understood"]["has_matched"]


PARTITIONS = 21
"""One more than the plans that are recent: by their number, batches of partitions are none."""


def commit_each(world: World, lines: dict[int, list[str]]) -> None:
    """Plan and count lines of several partitions."""
    for partition, of_partition in lines.items():
        world.produce(of_partition, partition)
    list(run_batches(world.context(world.reader), world.plan().batch_ids))


@pytest.mark.parametrize("delivery", ["batch", "partition"])
def test_two_installations_that_count_by_other_rules_in_turn_are_told(
    tally: Call, world: World, delivery: str
) -> None:
    """Each counts right, and what the result means changes from minute to minute."""
    world.add_partitions(PARTITIONS)
    for levels in (["ERROR"], ["WARN"]) * 2:
        world.configure(levels=levels, delivery=delivery)
        assert "rules-alternate" not in tally("status", "--json").stdout
        commit_each(world, {partition: [LINE] for partition in range(PARTITIONS)})
    told = tally("status", "--json", "--check").ends(1).document
    assert [one["reason"] for one in told["problems"]] == ["nothing-matched", "rules-alternate"]


def test_a_plan_of_which_rules_change_half_way_is_one_change(tally: Call, world: World) -> None:
    """A correction; but if each plan is shared by two installations, its rules alternate."""
    world.configure(delivery="partition")
    for of_partition in (["ERROR"] * 2, ["ERROR", "WARN"], ["WARN"] * 2, ["WARN"] * 2):
        _count_by(world, of_partition)
    assert "rules-alternate" not in tally("status", "--json").stdout
    for _ in range(2):
        _count_by(world, ["ERROR", "WARN"])
    assert "rules-alternate" in tally("status", "--json").stdout


def _count_by(world: World, levels: list[str]) -> None:
    """Count a line of each partition in one plan, each by the rules of its own level."""
    for partition in range(len(levels)):
        world.produce([LINE], partition)
    for batch, level in zip(world.plan().batches, levels, strict=True):
        world.configure(levels=[level])
        world.run(batch.batch_id)


def test_all_partitions_of_the_latest_plans_say_what_is_malformed(
    tally: Call, world: World
) -> None:
    """Also where each is a batch by itself, more of them than plans; older plans say nothing."""
    world.add_partitions(PARTITIONS)
    world.configure(delivery="partition")
    for _ in range(2):
        lines = {partition: [LINE] for partition in range(1, PARTITIONS)}
        commit_each(world, {0: ["what is this"] * 30} | lines)
    told = tally("status", "--json", "--check").ends(1).document
    assert told["understood"] == understood(100, 60)
    assert [one["reason"] for one in told["problems"]] == ["malformed"]
    for _ in range(20):
        commit_each(world, {0: [LINE], 1: [LINE]})
    told = tally("status", "--json", "--check").ends(0).document
    assert told["understood"] == understood(40, 0)


def test_a_replay_does_not_hide_what_is_malformed_now(tally: Call, world: World) -> None:
    """What it reads again was read before; 4 of the 6 records of minute batches are malformed."""
    commit(world, LINE, LINE)
    commit(world, *["what is this"] * 4)
    where = OffsetRange(partition=world.partition(0), from_offset=0, until_offset=2)
    requested = world.ask_replay(RangesAsked(ranges=(where,)))
    assert [ran.committed for ran in run_replay(world.context(world.reader), requested.replay_id)]
    told = tally("status", "--json", "--check").ends(1).document
    assert told["understood"] == understood(6, 4)
    assert [one["reason"] for one in told["problems"]] == ["malformed"]
