"""`tally migrate` and `tally doctor` on real servers."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import LINE, MINUTE, Call, commit
from tests.world import World

pytestmark = pytest.mark.stack

RUNBOOK = Path(__file__).parents[2] / "docs" / "runbook.md"
PASSWORD = "only-for-this-test"  # noqa: S105 - a user that lives as long as the test


@pytest.fixture
def empty_database(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The configuration points at an empty database and a user that may do everything there."""
    with database(world, f"empty_{world.name}", monkeypatch) as name:
        yield name


@contextmanager
def database(world: World, name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty database of that name, and a user that may do everything there, configured."""
    world.as_root(
        f"create database `{name}`",
        f"create user '{world.name}'@'%' identified by '{PASSWORD}'",
        f"grant all on `{name}`.* to '{world.name}'@'%'",
    )
    monkeypatch.setenv("TALLY_MYSQL__DATABASE", name)
    monkeypatch.setenv("TALLY_MYSQL__USER", world.name)
    monkeypatch.setenv("TALLY_MYSQL__PASSWORD", PASSWORD)
    try:
        yield name
    finally:
        world.as_root(f"drop database `{name}`", f"drop user '{world.name}'@'%'")


def healths(document: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    """Health by check."""
    return {check["check"]: check["health"] for check in document["checks"]}


@pytest.mark.usefixtures("empty_database")
@pytest.mark.parametrize("labels", [[], ["level"]], ids=["plain", "labelled"])
def test_migrate_says_beforehand_what_it_then_does(
    tally: Call, world: World, labels: list[str]
) -> None:
    """The preview changes nothing, and a second migrate finds nothing to do."""
    world.configure(labels=labels)
    preview = tally("migrate", "--dry-run").stdout
    assert tally("plan").exit_code == 4
    done = tally("migrate")
    assert done.exit_code == 0
    assert done.stdout == preview.replace("would apply", "applied")
    assert f"table {world.name}" in done.stdout
    assert tally("migrate").stdout == "everything is there\n"
    assert tally("plan").exit_code == 0


def test_a_database_whose_name_needs_quotes_is_migrated_and_counted_into(
    tally: Call, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dash is common in names of databases; every statement meets it, the doctor's too."""
    with database(world, "my-db", monkeypatch):
        assert tally("migrate").exit_code == 0
        assert tally("migrate").stdout == "everything is there\n"
        world.produce([LINE], 0)
        assert tally("plan").exit_code == 0
        commit(world)
        assert world.counts() == {MINUTE[:16]: 1}
        assert tally("audit", world.name).exit_code == 0
        doctor = healths(tally("doctor", "--json").document)
        assert {h for c, h in doctor.items() if c.startswith("mysql.")} == {"ok"}
        root = world.connect_as_root(database="my-db")
        with root as connection, connection.cursor() as cursor:
            cursor.execute(f"select log_count from `my-db`.`{world.name}`")
            assert cursor.fetchall() == [{"log_count": 1}]


def test_migrate_in_a_database_that_does_not_exist_says_to_create_it(
    tally: Call, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tally migrate` as its own next step would lead nowhere."""
    monkeypatch.setenv("TALLY_MYSQL__DATABASE", "no_such_database")
    monkeypatch.setenv("TALLY_MYSQL__USER", "root")
    monkeypatch.setenv("TALLY_MYSQL__PASSWORD", world.stack.credentials().mysql_root)
    answer = tally("migrate")
    assert answer.exit_code == 4
    assert "next: create the database" in answer.stderr


def test_the_doctor_finds_nothing_wrong_with_a_healthy_stack(tally: Call, world: World) -> None:
    """Every check of MySQL and Kafka is well, before and after something was counted."""
    before = tally("doctor", "--json")
    world.produce([LINE], 0)
    commit(world)
    after = tally("doctor", "--json")
    for answer in (before, after):
        assert answer.exit_code == 0, answer.stdout
        assert answer.document["healthy"] is True
        found = healths(answer.document)
        assert {h for c, h in found.items() if c.startswith(("mysql.", "kafka."))} == {"ok"}
        assert len([c for c in found if c.startswith("mysql.")]) == 9
    assert "0 failed" in tally("doctor").stdout


@pytest.mark.usefixtures("empty_database")
def test_the_doctor_sends_to_migrate_first(tally: Call) -> None:
    """Rights on tables that are not there cannot be tried."""
    answer = tally("doctor", "--json")
    assert answer.exit_code == 1
    (check,) = [c for c in answer.document["checks"] if c["check"] == "mysql.tables"]
    assert (check["health"], check["next_step"]) == ("fail", "tally migrate")


def test_the_doctor_tries_every_right_and_names_the_missing_ones(
    tally: Call, world: World, empty_database: str
) -> None:
    """A user that may not delete, and may not write one table, is found before the first count."""
    assert tally("migrate").exit_code == 0
    user = f"'{world.name}'@'%'"
    world.as_root(
        f"revoke all on `{empty_database}`.* from {user}",
        f"grant select, insert, update on `{empty_database}`.* to {user}",
        f"grant delete on `{empty_database}`.dead_letter to {user}",
    )
    answer = tally("doctor", "--json")
    assert answer.exit_code == 1
    (check,) = [c for c in answer.document["checks"] if c["check"] == "mysql.grants"]
    assert check["health"] == "fail"
    assert f"delete from {world.name}" in check["detail"]
    assert "delete from dead_letter," not in check["detail"]
    assert "insert" not in check["detail"]


def test_the_grants_of_the_runbook_suffice(tally: Call, world: World, empty_database: str) -> None:
    """One of them to migrate, another to count, prune and audit; no further right."""
    count, migrate, read = re.findall(r"grant (.*) on tally\.\* to", RUNBOOK.read_text("utf-8"))
    assert read == "select"  # the console's, which shows and changes nothing
    user = f"'{world.name}'@'%'"
    revoke = f"revoke all on `{empty_database}`.* from {user}"
    world.as_root(revoke, f"grant {migrate} on `{empty_database}`.* to {user}")
    assert tally("migrate").exit_code == 0
    world.as_root(revoke, f"grant {count} on `{empty_database}`.* to {user}")
    world.produce([LINE], 0)
    commit(world)
    for words in (
        ("prune", world.name, "--older-than", "1d"),
        ("audit", world.name),
        ("status", world.name),
    ):
        assert tally(*words).exit_code == 0
    found = healths(tally("doctor", "--json").document)
    assert found["mysql.grants"] == "ok"


def test_the_doctor_finds_a_user_of_the_console_who_may_do_more_than_read(
    tally: Call, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or less; the user who counts is one who may do more."""
    found = healths(tally("doctor", "--json").document)
    assert found["console.rights"] == "ok"
    mysql = world.settings.mysql
    monkeypatch.setenv("TALLY_CONSOLE__USER", mysql.user)
    monkeypatch.setenv("TALLY_CONSOLE__PASSWORD", mysql.password.get_secret_value())
    answer = tally("doctor", "--json")
    assert answer.exit_code == 1
    (check,) = [c for c in answer.document["checks"] if c["check"] == "console.rights"]
    assert check["health"] == "fail"
    assert f"{mysql.user} may do more than read" in check["detail"]
    assert "grant select on" in check["next_step"]
    monkeypatch.setenv("TALLY_CONSOLE__PASSWORD", "wrong")
    found = healths(tally("doctor", "--json").document)
    assert found["console.rights"] == "fail"


def test_the_doctor_finds_servers_that_are_down(
    tally: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is one failed check with what to do; the others are still made."""
    monkeypatch.setenv("TALLY_MYSQL__PORT", "1")
    monkeypatch.setenv("TALLY_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("TALLY_KAFKA__REQUEST_TIMEOUT_S", "1")
    answer = tally("doctor", "--json")
    assert answer.exit_code == 1
    found = healths(answer.document)
    assert found["mysql.reachable"] == found["kafka.reachable"] == "fail"
    assert found["spark.pyspark"] == "ok"
    steps = [c["next_step"] for c in answer.document["checks"] if c["health"] == "fail"]
    assert all(step and step != "tally doctor" for step in steps)


def test_the_doctor_finds_a_topic_that_was_created_again(tally: Call, world: World) -> None:
    """The ledger follows another generation, and the next step is the decision."""
    world.produce([LINE], 0)
    commit(world)
    world.delete_topic()
    world.create_topic(2)
    answer = tally("doctor", "--json")
    assert answer.exit_code == 1
    (check,) = [c for c in answer.document["checks"] if c["health"] == "fail"]
    assert check["check"] == f"pipeline.{world.name}"
    assert "tally topics adopt" in check["next_step"]


def test_the_doctor_finds_a_compacted_topic(tally: Call, world: World) -> None:
    """Read from the topic's own settings."""
    topic = f"{world.topic}_compacted"
    world.create_topic(1, topic, **{"cleanup.policy": "compact"})
    world.configure(topics=[topic])
    answer = tally("doctor", "--json")
    assert healths(answer.document)[f"kafka.topic.{topic}"] == "fail"
    world.configure(offsets="sparse")
    assert healths(tally("doctor", "--json").document)[f"kafka.topic.{topic}"] == "ok"
