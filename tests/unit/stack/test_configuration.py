"""The configuration of the servers."""

import os
import re
import tomllib
from configparser import ConfigParser
from pathlib import Path

import pytest
from tests.unit.sources import DOCS, text

from tally.spark.java import major_version
from tally_local.stack.addresses import spark_connection, write_addresses
from tally_local.stack.airflow_server import airflow_cfg
from tally_local.stack.home import Credentials, Layout
from tally_local.stack.kafka_server import properties
from tally_local.stack.mysql_program import mysql_version, system_mysqld
from tally_local.stack.mysql_server import GRANTS, init_sql

PORTS = {"kafka": 20_001, "kafka_controller": 20_002, "mysql": 20_003, "airflow": 20_004}


def test_the_versions_of_java_and_mysql_are_read() -> None:
    """Java's old numbering and early builds; a MariaDB that calls itself mysqld is none."""
    assert major_version('openjdk version "17.0.15" 2025-04-15') == 17
    assert major_version('openjdk version "21-ea" 2023-09-19') == 21
    assert major_version('java version "1.8.0_402"') == 8
    assert major_version("command not found") is None
    debian = "/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))"
    assert mysql_version(debian) == (9, 7, 4)
    mariadb = "mysqld  Ver 10.11.6-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64"
    assert mysql_version(mariadb) is mysql_version("") is None


def test_an_old_mysqld_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor would refuse an older one."""
    program = tmp_path / "mysqld"
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for version, taken in (("8.0.16", None), ("8.0.17", str(program))):
        program.write_text(f"#!/bin/sh\necho mysqld  Ver {version} for Linux on x86_64\n")
        program.chmod(0o755)
        assert system_mysqld() == taken


def test_kafka_makes_no_topic_for_the_asking_and_listens_on_loopback() -> None:
    """It keeps one copy, for there is one node; its data are at any path, with Java's escapes."""
    lines = properties(PORTS, data=Path("/my check out/ü\\😀")).splitlines()
    assert "auto.create.topics.enable=false" in lines
    assert "listeners=PLAINTEXT://127.0.0.1:20001,CONTROLLER://127.0.0.1:20002" in lines
    assert "transaction.state.log.min.isr=1" in lines
    assert "log.dirs=/my check out/\\u00fc\\\\\\ud83d\\ude00" in lines


def test_mysql_grants_the_application_its_database_alone() -> None:
    """The runbook's rights, no more; both accounts get a password at each start."""
    credentials = Credentials(mysql_root="r00t", mysql_tally="t4lly")
    statements = init_sql(credentials).splitlines()
    grants = [line for line in statements if line.startswith("GRANT") and "'tally'" in line]
    assert len(grants) == 1
    assert " ON `tally`.* " in grants[0]
    documented = re.findall(r"grant (.*) on tally\.\* to 'tally_admin'", text(DOCS / "runbook.md"))
    assert documented == [GRANTS.lower()]
    assert "GRANT OPTION" not in grants[0]
    assert "ALTER USER 'root'@'localhost' IDENTIFIED BY 'r00t';" in statements
    assert "ALTER USER 'tally'@'127.0.0.1' IDENTIFIED BY 't4lly';" in statements


def test_the_overlay_is_toml_for_the_owner_alone(tmp_path: Path) -> None:
    """Whatever the path of the jars looks like; a server without a port is left out."""
    layout = Layout(tmp_path, tmp_path / "home")
    path = layout.overlay
    jars = tmp_path / 'über "quoted" \\ 😀'
    credentials = Credentials(mysql_tally="t4lly")
    write_addresses(layout, ports=PORTS, credentials=credentials, jars=jars)
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    assert found["kafka"] == {"bootstrap_servers": "127.0.0.1:20001"}
    assert found["mysql"]["password"] == "t4lly"  # noqa: S105
    assert found["mysql"]["port"] == 20_003
    assert found["spark"] == {"jars_dir": str(jars)}
    assert path.stat().st_mode & 0o777 == layout.connections.stat().st_mode & 0o777 == 0o600
    write_addresses(layout, ports={}, credentials=credentials, jars=jars)
    assert tomllib.loads(path.read_text(encoding="utf-8")).keys() == {"spark"}


def test_airflow_has_its_own_keys_and_connections_and_listens_on_loopback(tmp_path: Path) -> None:
    """A dead task is noticed within a minute; connections are of the types the DAGs look for."""
    credentials = Credentials(mysql_tally="t4lly")
    parser = ConfigParser()  # with interpolation, as Airflow reads it
    layout = Layout(tmp_path / "100% mine")
    parser.read_string(airflow_cfg(layout, 20_004, credentials))
    assert parser["core"]["dags_folder"] == str(tmp_path / "100% mine" / "dags")
    assert parser["core"]["fernet_key"] == credentials.airflow_fernet
    assert parser["api"]["host"] == "127.0.0.1"
    assert parser["api_auth"]["jwt_secret"] == credentials.airflow_jwt
    assert int(parser["scheduler"]["task_instance_heartbeat_timeout"]) <= 60
    spark = spark_connection(PORTS, credentials)
    assert (spark["conn_type"], spark["host"]) == ("spark", "local[2]")
