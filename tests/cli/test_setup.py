"""`tally migrate` and `tally doctor` on real servers."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from tally.config.loading import load_settings
from tally.mysql import migrations
from tally.mysql.transactions import Database
from tally.packaged import packaged
from tests.cli.conftest import LINE, Call, commit
from tests.servers import PROJECT
from tests.world import World

pytestmark = pytest.mark.stack

NOT_DURABLE = {"mysql.durability"}
"""What is not well with MySQL: that of the tests writes nothing to the disk before it answers."""


def examined(tally: Call) -> dict[str, Any]:
    """What the doctor says, by check; the exit code tells whether one has failed."""
    answer = tally("doctor", "--json")
    checks = {check["check"]: check for check in answer.document["checks"]}
    healthy = all(check["health"] != "fail" for check in checks.values())
    assert (answer.exit_code, answer.document["healthy"]) == (0 if healthy else 1, healthy)
    return checks


def not_well(checks: dict[str, Any], *begins: str) -> set[str]:
    return {n for n, check in checks.items() if n.startswith(begins) and check["health"] != "ok"}


def test_migrate_says_before_what_it_does(tally: Call, world: World, empty_database: str) -> None:
    """The preview changes nothing, and a second migrate finds nothing to do."""
    with pytest.MonkeyPatch.context() as elsewhere:
        elsewhere.setenv("TALLY_MYSQL__DATABASE", "no_such_database")
        elsewhere.setenv("TALLY_MYSQL__USER", "root")
        elsewhere.setenv("TALLY_MYSQL__PASSWORD", world.stack.credentials().mysql_root)
        tally("migrate").ends(4, "next: create the database")
    checks = examined(tally)
    tables = checks["mysql.tables"]
    assert (tables["health"], tables["next_step"]) == ("fail", "tally migrate")
    for labels, said in (([], f"table {world.name}"), (["level"], "level")):
        world.configure(labels=labels)
        preview = tally("migrate", "--dry-run").stdout
        assert tally("migrate", "--check").ends(1).stdout == preview
        refused = tally("plan").ends(4)
        assert refused.stderr.splitlines()[-1].startswith("next: tally migrate")
        done = tally("migrate").ends(0)
        assert done.stdout == preview.replace("would apply", "applied")
        assert said in done.stdout
        assert tally("migrate", "--check").ends(0).stdout == "everything is there\n"
        assert tally("plan").exit_code == 0
    commit(world, LINE)
    assert tally("audit", world.name).exit_code == 0
    checks = examined(tally)
    assert not_well(checks, "mysql.") == NOT_DURABLE
    counted = world.rows(f"select log_count from `{empty_database}`.`{world.name}`")
    assert counted == [{"log_count": 1}]


def test_what_expands_can_be_applied_first(
    tally: Call,
    world: World,
    empty_database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Up to the first migration that older code would not count beside."""
    tally("migrate").ends(0)
    sql = shutil.copytree(packaged("sql"), tmp_path / "sql")
    for name in ("0097.more.expand", "0098.other", "0099.later.expand"):
        (sql / f"{name}.sql").write_text(f"create table t{name[:4]} (id int)", encoding="utf-8")
    monkeypatch.setattr(migrations, "packaged", lambda _: sql)
    tally("migrate", "--check").ends(1, "after 0098.other older versions of Tally no longer count")
    tally("migrate", "--check", "--expand").ends(2, "next: leave out one")
    left = "left for tally migrate: 0098.other, 0099.later.expand"
    for done in ("applied 0097.more.expand", "nothing to apply"):
        assert tally("migrate", "--expand").ends(0, left).stdout == f"{done}\n"
    assert world.plan() is not None
    assert migrations.apply(world.database) == ["0098.other", "0099.later.expand"]
    tally("plan").ends(4, "migrated for Tally 0.98")


def test_the_grants_of_the_runbook_suffice(tally: Call, world: World, empty_database: str) -> None:
    """One of them to migrate, another to count, prune and audit; no further right."""
    runbook = (PROJECT / "docs" / "runbook.md").read_text(encoding="utf-8")
    count, migrate, read = (
        re.search(rf"grant (.*) on tally\.\* to '{user}'@", runbook)[1]
        for user in ("tally", "tally_admin", "tally_console")
    )
    assert read == "select"  # the console's, which shows and changes nothing
    user = f"'{world.name}'@'%'"
    revoke = f"revoke all on `{empty_database}`.* from {user}"
    for right in ("create", "drop", "references", "alter", "create view"):
        rest = re.sub(rf"\b{right}, ", "", migrate)
        assert rest != migrate
        world.as_root(revoke, f"grant {rest} on `{empty_database}`.* to {user}")
        for words in (("migrate", "--check"), ("migrate",)):
            tally(*words).ends(4, f"{right.upper()} command denied", "under Rights")
    world.as_root(revoke, f"grant {migrate} on `{empty_database}`.* to {user}")
    assert tally("migrate").exit_code == 0
    world.as_root(revoke, f"grant {count} on `{empty_database}`.* to {user}")
    commit(world, LINE)
    for words in (
        ("prune", world.name, "--older-than", "1d"),
        ("audit", world.name),
        ("status", world.name),
    ):
        assert tally(*words).exit_code == 0
    checks = examined(tally)
    assert checks["mysql.grants"]["health"] == "ok"
    world.as_root(
        revoke,
        f"grant select, insert, update on `{empty_database}`.* to {user}",
        f"grant delete on `{empty_database}`.dead_letter to {user}",
    )
    checks = examined(tally)
    grants = checks["mysql.grants"]
    assert grants["health"] == "fail"
    assert f"delete from {world.name}" in grants["detail"]
    assert "delete from dead_letter," not in grants["detail"]
    assert "insert" not in grants["detail"]


def test_a_dropped_table_of_the_ledger_is_named(
    tally: Call, world: World, empty_database: str
) -> None:
    """Its migration was applied, so none makes it again, and none could fill it."""
    tally("migrate").ends(0)
    world.as_root(f"drop table `{empty_database}`.lost_range")
    for words in (("migrate",), ("migrate", "--dry-run")):
        tally(*words).ends(4, "has lost lost_range", "restore the database from its backup")
    assert "lost_range" in examined(tally)["mysql.tables"]["detail"]


def test_the_rights_of_a_backup_show_all_that_a_dump_holds(
    world: World, empty_database: str
) -> None:
    """Without one of them the client that dumps leaves something out, and says nothing."""
    if "mariadb" in world.rows("select lower(version()) as it")[0]["it"]:
        pytest.skip("MariaDB has other rights")
    runbook = (PROJECT / "docs" / "runbook.md").read_text(encoding="utf-8")
    (rights,) = re.findall(r"grant (.*) on tally\.\* to 'tally_backup'", runbook)
    (everywhere,) = re.findall(r"grant (.*) on \*\.\* to 'tally_backup'", runbook)
    user = f"'{world.name}'@'%'"
    world.as_root(
        f"use `{empty_database}`",
        "create table kept (number int)",
        "create view shown as select * from kept",
        "create procedure keep() select 1",
        "create trigger checked before insert on kept for each row set new.number = 1",
        f"revoke all on `{empty_database}`.* from {user}",
        f"grant {rights} on `{empty_database}`.* to {user}",
        f"grant {everywhere} on *.* to {user}",
    )
    mysql = load_settings(world.config).mysql
    with Database(settings=mysql).transaction(read_only=True) as tx:
        shown = [tx.rows(f"show create {what}")[0] for what in ("view shown", "procedure keep")]
        (trigger,) = tx.rows("show triggers")
    assert "select 1" in shown[1]["Create Procedure"]
    assert "`kept`" in shown[0]["Create View"]
    assert trigger["Statement"] == "set new.number = 1"


def test_the_doctor_finds_nothing_wrong_with_a_healthy_stack(tally: Call, world: World) -> None:
    """Every check of MySQL and Kafka is well, before and after something was counted."""
    for counted in (False, True):
        if counted:
            commit(world, LINE)
        checks = examined(tally)
        assert "fail" not in {check["health"] for check in checks.values()}
        assert not_well(checks, "mysql.", "kafka.") == NOT_DURABLE
        assert len([name for name in checks if name.startswith("mysql.")]) == 9
        assert checks["console.rights"]["health"] == "ok"
    assert "0 failed" in tally("doctor").stdout


def test_the_doctor_finds_a_compacted_topic_and_a_user_of_the_console_who_may_write(
    tally: Call, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read from the topic's own settings; the user who counts is one who may do more."""
    topic = f"{world.topic}_compacted"
    world.create_topic(1, topic, **{"cleanup.policy": "compact"})
    world.configure(topics=[topic])
    mysql = world.settings.mysql
    monkeypatch.setenv("TALLY_CONSOLE__USER", mysql.user)
    monkeypatch.setenv("TALLY_CONSOLE__PASSWORD", mysql.password.get_secret_value())
    checks = examined(tally)
    assert checks[f"kafka.topic.{topic}"]["health"] == "fail"
    rights = checks["console.rights"]
    assert rights["health"] == "fail"
    assert f"{mysql.user} may do more than read" in rights["detail"]
    assert "grant select on" in rights["next_step"]
    world.configure(offsets="sparse")
    monkeypatch.setenv("TALLY_CONSOLE__PASSWORD", "wrong")
    checks = examined(tally)
    assert checks[f"kafka.topic.{topic}"]["health"] == "ok"
    rights = checks["console.rights"]
    assert rights["health"] == "fail"
    assert rights["next_step"] == (
        "check console.user, its password, its grants, and mysql.ssl_cert if it is to have one"
    )
    # Also where another server does not answer.
    for key, value in {"HOST": "127.0.0.1", "PORT": "1", "USER": "any", "DATABASE": "kept"}.items():
        monkeypatch.setenv(f"TALLY_RESULTS__{key}", value)
    world.configure(offsets="sparse", delivery="rows")
    checks = examined(tally)
    assert checks["results.reachable"]["health"] == "fail"
    assert checks["console.rights"] == rights


def test_the_doctor_finds_stopped_servers(tally: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is one failed check with what to do; the others are still made."""
    monkeypatch.setenv("TALLY_MYSQL__PORT", "1")
    monkeypatch.setenv("TALLY_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("TALLY_KAFKA__REQUEST_TIMEOUT_S", "1")
    checks = examined(tally)
    assert not_well(checks, "mysql.", "kafka.") == {"mysql.reachable", "kafka.reachable"}
    assert checks["spark.pyspark"]["health"] == "ok"
    tally("migrate").ends(3, "127.0.0.1:1")
    steps = [c["next_step"] for c in checks.values() if c["health"] == "fail"]
    assert all(step and step != "tally doctor" for step in steps)
