"""Commands that show or count all pipelines, and the health that they agree about."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from tally.aggregates.fingerprint import fingerprint
from tests.cli.conftest import LINE, Call, commit
from tests.world import World

pytestmark = pytest.mark.stack

Add = Callable[..., str]


@pytest.fixture
def add(world: World, tally: Call) -> Iterator[Add]:
    """Adds a pipeline over the world's topic to the configuration; returns its name."""
    names: list[str] = []

    def added(suffix: str, keys: str = "", *, migrated: bool = True) -> str:
        names.append(f"{world.name}_{suffix}")
        with world.config.open("a", encoding="utf-8") as file:
            file.write(f'[pipelines.{names[-1]}]\ntopics = ["{world.topic}"]\n{keys}\n')
        if migrated:
            assert tally("migrate").exit_code == 0
        return names[-1]

    yield added
    with closing(world.connect(autocommit=True)) as connection, connection.cursor() as cursor:
        for name in names:
            cursor.execute(f"drop table if exists `{name}`")


def test_every_pipeline_has_a_line_and_a_wrong_one_too(tally: Call, world: World, add: Add) -> None:
    """`tally pipelines`, and `tally status` without a name; the wrong one says what is wrong."""
    world.produce([LINE] * 3, 0)
    commit(world)
    world.produce([LINE] * 2, 0)
    second, wrong = add("second"), add("wrong", 'lvels = ["WARN"]')
    answer = tally("pipelines", "--json")
    assert answer.exit_code == 0
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
    text = tally("pipelines", "--check")
    assert text.exit_code == 1
    assert f"FAIL  {wrong}: disabled: " in text.stdout


def test_a_pipeline_that_was_never_migrated_is_not_well(tally: Call, add: Add) -> None:
    """Nor is one whose new labels have no columns yet; `tally migrate` is named."""
    table = add("second", migrated=False)
    labelled = add("third", 'labels = ["level"]', migrated=False)
    for name, said in ((table, f"has no table {table} yet"), (labelled, "has no column level")):
        document = tally("status", name, "--json").document
        (problem,) = document["problems"]
        assert (problem["reason"], problem["next_step"]) == ("unprepared", "tally migrate")
        assert said in problem["detail"]
        assert tally("status", name, "--check").exit_code == 1
    assert tally("migrate").exit_code == 0
    for name in (table, labelled):
        assert tally("status", name, "--json").document["problems"] == []


def test_kafka_is_asked_once_when_it_does_not_answer(
    tally: Call, world: World, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pipeline names it as its problem, and the exit code is that of the error."""
    second = add("second")
    monkeypatch.setenv("TALLY_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("TALLY_KAFKA__REQUEST_TIMEOUT_S", "1")
    answer = tally("pipelines", "--json")
    assert answer.exit_code == 3
    assert answer.stderr.count("kafka-unavailable") == 1
    found = {
        p["pipeline"]: [x["reason"] for x in p["problems"]] for p in answer.document["pipelines"]
    }
    assert found == {key: ["kafka-unanswered"] for key in (world.name, second)}


def test_a_refused_login_is_told_once(
    tally: Call, add: Add, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the same for all pipelines; where the password comes from is said with it."""
    add("second")
    with monkeypatch.context() as patched:  # the world drops its tables later
        patched.setenv("TALLY_MYSQL__PASSWORD", "wrong")
        answer = tally("counts")
    assert answer.exit_code == 4
    assert answer.stderr.count("access-denied") == 1
    assert answer.stderr.count("TALLY_MYSQL__PASSWORD") == 1


@pytest.mark.usefixtures("lent_spark")
def test_all_pipelines_are_counted_and_audited_and_one_stops_no_other(
    tally: Call, world: World, add: Add
) -> None:
    """What is wrong with one is told, and is the exit code."""
    world.produce([LINE] * 3, 0)
    second = add("second")
    assert tally("audit").exit_code == 0
    ran = tally("run")
    assert ran.exit_code == 0
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
    wrong = add("a_wrong", 'lvels = ["WARN"]')
    world.produce([LINE] * 2, 0)
    again = tally("run", "--json")
    assert again.exit_code == 2
    assert [run["pipeline"] for run in again.document["runs"]] == [world.name, second]
    assert list(again.document["errors"]) == [wrong]
    world.execute(f"update `{second}` set log_count = 9")
    audited = tally("audit", "--json")
    assert audited.exit_code == 2
    holds = {a["pipeline"]: a["holds"] for a in audited.document["audits"]}
    assert holds == {world.name: True, second: False}
    assert audited.document["holds"] is False
    assert list(tally("counts", "--json").document["errors"]) == [wrong]
    assert tally("audit", world.name).exit_code == 0


def test_health_is_the_same_wherever_it_is_asked_for(tally: Call, world: World) -> None:
    """A loss that nobody has decided about: status, list, doctor and exit codes agree."""
    assert tally("status", "--check").exit_code == 0
    world.produce([LINE] * 3, 0)
    commit(world)
    world.produce([LINE] * 5, 0)
    world.delete_records(0, before=6)
    status = tally("status", "--json", "--check")
    assert status.exit_code == 1
    (problem,) = status.document["problems"]
    assert (problem["reason"], problem["health"]) == ("blocked", "fail")
    listed = tally("pipelines", "--json").document
    assert (listed["health"], listed["pipelines"][0]["problems"]) == ("fail", [problem])
    doctor = tally("doctor", "--json")
    (check,) = [c for c in doctor.document["checks"] if c["check"] == f"pipeline.{world.name}"]
    assert (check["health"], check["detail"]) == ("fail", problem["detail"])
    assert check["next_step"] == problem["next_step"]
    assert doctor.exit_code == 1


def test_malformed_records_are_told_where_one_looks(tally: Call, world: World) -> None:
    """In the status, with a warning beyond the configured share."""
    world.produce([LINE] * 3, 0)
    commit(world, malformed=(b"what", b"is this"))
    assert "3 records, 1 matched, 2 malformed" in tally("status").stdout

    def counted_under(rule: str) -> Any:
        world.execute(
            "update batch set format_fingerprint = %s where pipeline = %s", (rule, world.name)
        )
        return tally("status", "--json").document

    of_today = counted_under(fingerprint(world.pipeline))
    assert of_today["understood"] == {"records": 3, "malformed": 2}
    (problem,) = of_today["problems"]
    assert (problem["reason"], problem["health"]) == ("malformed", "warn")
    assert tally("status", "--check").exit_code == 1
    of_another = counted_under("x")
    assert of_another["understood"] == {"records": 0, "malformed": 0}
    assert of_another["health"] == "ok"
