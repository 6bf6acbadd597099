"""Each check of `tally doctor`: when it is well, and when it is not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.values import AT, kafka, known, pipeline

from tally.config.servers import SparkSettings
from tally.model import TopicRights
from tally.status.doctor import diagnosis_of, examine, machine, servers
from tally.status.doctor.diagnosis import Diagnosis
from tally.status.health import Health
from tally.status.state import PipelineState
from tally.status.status import status_of
from tally.status.surroundings import UNKNOWN, Surroundings, is_configured

OK, WARN, FAIL, SKIP = Health.OK, Health.WARN, Health.FAIL, Health.SKIP
SNAPSHOT = kafka((0, 0))
SESSION = {
    "autocommit": "OFF",
    "transaction_isolation": "READ-COMMITTED",
    "time_zone": "+00:00",
    "sql_mode": "STRICT_TRANS_TABLES,STRICT_ALL_TABLES",
}
MIB = 1024 * 1024


def sound(diagnosis: Diagnosis) -> Health:
    """The health, once it is sure that what is not well says what to do."""
    assert bool(diagnosis.next_step) == (diagnosis.health in {WARN, FAIL})
    return diagnosis.health


def expect(*rows: tuple[Health, Diagnosis]) -> None:
    """Each diagnosis has its health; all that have another are named."""
    assert [(wanted, found) for wanted, found in rows if sound(found) is not wanted] == []


def of_server(what: str, *, of: str = "mysql", **facts: Any) -> Diagnosis:
    """One check of a server that is sound but for these facts."""
    sound = {"version": "8.4.0", "innodb": True, "session": SESSION, "server": {}}
    found = {d.check: d for d in servers.check_server(of, {**sound, **facts})}
    return found[f"{of}.{what}"]


def test_old_servers_and_those_without_transactions_are_refused() -> None:
    """MySQL and MariaDB count their versions differently; InnoDB must be usable."""
    expect(
        (FAIL, of_server("version", version="8.0.16")),
        (OK, of_server("version", version="8.0.17-0ubuntu1")),
        (OK, of_server("version", version="9.7.4-2")),
        (FAIL, of_server("version", version="10.5.29-MariaDB")),
        (OK, of_server("version", version="10.6.12-MariaDB-log")),
        (OK, of_server("version", version="11.4.5-MariaDB")),
        (FAIL, of_server("version", version="5.7.44")),
        (FAIL, of_server("version", version="unheard of")),
        (FAIL, of_server("innodb", innodb=False)),
        (OK, of_server("innodb", innodb=True)),
    )


def test_a_proxy_that_changes_the_session_is_found() -> None:
    """What Tally asked for must be what the session has; the server's default does not matter."""
    other = {"transaction_isolation": "SERIALIZABLE"}
    expect(
        (OK, of_server("session", server=other)),
        (FAIL, of_server("session", session={**SESSION, "autocommit": "ON"})),
        (
            FAIL,
            of_server("session", session={**SESSION, "transaction_isolation": "REPEATABLE-READ"}),
        ),
        (FAIL, of_server("session", session={**SESSION, "time_zone": "SYSTEM"})),
        (FAIL, of_server("session", session={**SESSION, "sql_mode": ""})),
    )


def test_a_server_must_be_writable_durable_and_take_large_packets() -> None:
    """MariaDB has more values for read-only; the binary log counts only where there is one."""
    flush, sync, log = "innodb_flush_log_at_trx_commit", "sync_binlog", "log_bin"
    expect(
        (OK, of_server("durability", server={flush: "1", sync: "1", log: "ON"})),
        (WARN, of_server("durability", server={flush: "2", sync: "1", log: "ON"})),
        (WARN, of_server("durability", server={flush: "1", sync: "0", log: "ON"})),
        (OK, of_server("durability", server={flush: "1", sync: "0", log: "OFF"})),
        (OK, of_server("writable", server={"read_only": "OFF", "super_read_only": "OFF"})),
        (FAIL, of_server("writable", server={"read_only": "ON", "super_read_only": "OFF"})),
        (FAIL, of_server("writable", server={"read_only": "NO_LOCK_NO_ADMIN"})),
        (OK, of_server("writable", server={"read_only": "0"})),
        # Escaping may double a dead letter's value; a batch of small ones needs room, too.
        (OK, servers.check_packet(64 * MIB, MIB)),
        (WARN, servers.check_packet(16 * MIB, 16 * MIB)),
        (WARN, servers.check_packet(MIB, 0)),
    )


def test_a_topic_must_be_there_readable_and_not_compacted() -> None:
    """Compaction leaves holes that a dense pipeline would take for losses."""

    def topic(*, readable: bool = True, compacted: bool | None, offsets: str) -> Diagnosis:
        rights = {"alog": TopicRights(readable=readable, compacted=compacted)}
        return servers.check_topic(pipeline(offsets=offsets), "alog", SNAPSHOT, rights)

    expect(
        (OK, topic(compacted=False, offsets="dense")),
        (OK, topic(compacted=None, offsets="dense")),
        (FAIL, topic(readable=False, compacted=False, offsets="dense")),
        (FAIL, topic(compacted=True, offsets="dense")),
        (OK, topic(compacted=True, offsets="sparse")),
        (FAIL, servers.check_topic(pipeline(), "b", SNAPSHOT, {})),
    )


def test_another_cluster_and_a_re_created_topic_are_found() -> None:
    """The ledger's offsets belong to one topic of one cluster."""
    ledgers = ({}, known(), known(topic_id="old"), known(cluster_id="other"))
    views = [
        status_of(PipelineState(pipeline=pipeline(), now=AT, known=of, kafka=SNAPSHOT))
        for of in ledgers
    ]
    assert [sound(diagnosis_of(view)) for view in views] == [OK, OK, FAIL, FAIL]


def test_airflow_needs_a_scheduler_the_dags_and_a_connection_to_spark() -> None:
    """Each is named by itself; without the connection Airflow would submit to YARN."""
    spark = {"tally_spark": "spark", "tally_mysql": None, "tally_kafka": None}
    runs = Surroundings(types=spark, paused={"first": True}, scheduler_alive=True)
    stands = Surroundings(types={}, paused={}, scheduler_alive=False)
    unknown = Surroundings(types={}, paused=None, scheduler_alive=None)
    silent = replace(runs, unusable={"no.such.Notifier": "No module named 'no'"})
    (told,) = [d for d in machine.check_airflow(silent, ["first"]) if "notifiers" in d.check]
    assert (sound(told), "no.such.Notifier" in told.detail) == (WARN, True)
    checks = ("connections", "tally_spark", "scheduler", "dags")
    for answer, healths in (
        (UNKNOWN, (WARN, None, None, None)),
        (runs, (None, OK, OK, OK)),
        (stands, (None, FAIL, WARN, WARN)),
        (unknown, (None, FAIL, SKIP, None)),
    ):
        found = {d.check: sound(d) for d in machine.check_airflow(answer, ["first"])}
        wanted = {f"airflow.{c}": h for c, h in zip(checks, healths, strict=True) if h}
        assert {check: found.get(check) for check in wanted} == wanted
    expect(
        (FAIL, machine.check_connection("tally_spark", None)),
        (OK, machine.check_connection("tally_spark", "spark")),
        (OK, machine.check_connection("tally_spark", "spark_connect")),
        (FAIL, machine.check_connection("tally_spark", "http")),
        (OK, machine.check_connection("tally_mysql", None)),
        (OK, machine.check_connection("tally_kafka", "kafka")),
    )


def test_spark_its_client_its_server_and_the_connector_fit_together(tmp_path: Path) -> None:
    """A client may be older than its server; a wrong connector fails obscurely at a read."""
    old, same, patch = (f"spark-sql-kafka-0-10_2.13-{v}.jar" for v in ("4.0.0", "4.2.0", "4.2.1"))
    expect(
        (OK, machine.check_pyspark("4.2.0", "4.2.0")),
        (OK, machine.check_pyspark("4.2.0", None)),
        (FAIL, machine.check_pyspark("4.2.0", "4.1.0")),
        (OK, machine.compare_server("4.2.0", "4.2.0")),
        (OK, machine.compare_server("4.10.0", "4.2.0")),
        (WARN, machine.compare_server("4.1.1", "4.2.0")),
        (OK, machine.compare_connector([same], "4.2.0")),
        (OK, machine.compare_connector([patch], "4.2.0")),
        (FAIL, machine.compare_connector([old], "4.2.0")),
        (FAIL, machine.compare_connector([same, old], "4.2.0")),
        # No folder is a question for Spark's own class path, an empty one is wrong.
        (WARN, machine.check_connector(SparkSettings(), "4.2.0")),
        (FAIL, machine.check_connector(SparkSettings(jars_dir=tmp_path), "4.2.0")),
    )


@pytest.mark.parametrize("found", [("4.10.0", "4.2.0"), ("4.2.0", "4.10.0")])
def test_of_two_versions_of_pyspark_the_older_is_installed_twice(found: tuple[str, str]) -> None:
    """The newer one may have come out alone, and what both need must stay as it is."""
    remedy = str(machine.check_pyspark(*found).next_step)
    assert "--no-deps pyspark==4.2.0 pyspark-client==4.2.0" in remedy


def test_an_absent_airflow_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing Airflow would create its home; a machine without one is left alone."""
    monkeypatch.delenv("AIRFLOW_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not is_configured({})
    assert sound(machine.no_airflow()) is SKIP
    assert list(tmp_path.iterdir()) == []


def test_a_broken_configuration_is_a_diagnosis_and_the_rest_is_not_asked(tmp_path: Path) -> None:
    """The doctor works where nothing else does."""
    path = tmp_path / "tally.toml"
    path.write_text("[pipelines.first]\ntopics = []\n[mysql]\nport = 0\n", encoding="utf-8")
    found = {d.check: sound(d) for d in examine(path, {})}
    assert found["config.valid"] is FAIL
    assert not any(check.startswith(("mysql.", "kafka.")) for check in found)


def test_another_distribution_that_claims_the_name_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its files, or by its command."""
    for number, (name, files, command, health) in enumerate(
        (
            ("tally", "tally/__init__.py,,\n", "", FAIL),
            ("other", "other.py,,\n", "tally = other:main", FAIL),
            ("other", "other.py,,\ntally.txt,,\n", "tallying = other:main", OK),
            ("kafka_tally", "tally/__init__.py,,\n", "tally = tally.cli:main", OK),
        )
    ):
        site = tmp_path / str(number)
        folder = site / f"{name}-1.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "RECORD").write_text(files)
        for file in files.split(",,\n")[:-1]:
            (site / file).parent.mkdir(exist_ok=True)
            (site / file).touch()
        (folder / "entry_points.txt").write_text(f"[console_scripts]\n{command}\n")
        monkeypatch.setattr("sys.path", [str(site)])
        diagnosis = machine.check_distribution()
        expect((health, diagnosis))
        assert (name in diagnosis.detail) is (health is FAIL)


def test_of_the_consoles_grants_only_reading_is_harmless() -> None:
    """What is not understood counts as more."""
    grants: dict[str, list[str]] = {
        "GRANT USAGE ON *.* TO `c`@`%`": [],
        "GRANT SELECT ON `tally`.* TO `c`@`%`": [],
        "GRANT SELECT, SHOW VIEW ON `tally`.* TO `c`@`%`": [],
        "GRANT SELECT (`a`, `b`) ON `tally`.`batch` TO `c`@`%`": [],
        "GRANT SELECT, INSERT ON `tally`.* TO `c`@`%`": ["INSERT on `tally`.*"],
        "GRANT SELECT (`a`), UPDATE (`b`) ON `t`.`x` TO `c`@`%`": ["UPDATE on `t`.`x`"],
        "GRANT ALL PRIVILEGES ON *.* TO `c`@`%`": ["ALL PRIVILEGES on *.*"],
        "GRANT EXECUTE ON PROCEDURE `t`.`p` TO `c`@`%`": ["EXECUTE on PROCEDURE `t`.`p`"],
        "GRANT `writer`@`%` TO `c`@`%`": ["the role `writer`@`%`"],
        "GRANT PROXY ON ''@'' TO 'c'@'%'": ["PROXY on ''@''"],
        "GRANT SELECT ON `t`.* TO `c`@`%` WITH GRANT OPTION": ["with grant option on `t`.*"],
        "GRANT USAGE ON *.* TO `c`@`%` WITH MAX_USER_CONNECTIONS 5": [],
        "REVOKE SELECT ON `mysql`.* FROM `c`@`%`": [],
        "SET DEFAULT ROLE NONE TO `c`@`%`": [],
        "GRANT `r`@`%` TO `c`@`%` WITH ADMIN OPTION": ["the role `r`@`%`"],
        "something new": ["something new"],
    }
    assert {grant: list(servers.changing([grant])) for grant in grants} == grants
