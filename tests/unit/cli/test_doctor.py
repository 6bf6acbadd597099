"""Each check of `tally doctor`: when it is well, and when it is not."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tally.app.doctor import Diagnosis, Health
from tally.app.doctor.broker import check_topic
from tally.app.doctor.database import (
    check_durability,
    check_engine,
    check_packet,
    check_session,
    check_version,
    check_writable,
)
from tally.app.doctor.engine import (
    check_connector,
    check_pyspark,
    compare_connector,
    compare_server,
)
from tally.app.doctor.environment import check_distribution
from tally.app.doctor.examination import examine
from tally.app.doctor.orchestration import check_airflow, check_connection, no_airflow
from tally.app.doctor.pipelines import diagnosis_of
from tally.app.ledger_state import LedgerState
from tally.app.orchestration import Orchestration, is_configured
from tally.app.status import Facts, compose
from tally.config.loading import load_settings
from tally.config.pipeline import Pipeline
from tally.config.servers import SparkSettings
from tally.model import KafkaSnapshot, KnownTopic, PartitionSnapshot, TopicRights, TopicSnapshot

NOW = datetime(2026, 11, 20, 14, 0, tzinfo=UTC)
SPARK_ONLY = {"tally_spark": "spark", "tally_mysql": None, "tally_kafka": None}

OK, WARN, FAIL, SKIP = Health.OK, Health.WARN, Health.FAIL, Health.SKIP


def sound(diagnosis: Diagnosis) -> Health:
    """The health, once it is sure that what is not well says what to do."""
    assert bool(diagnosis.next_step) == (diagnosis.health in {WARN, FAIL})
    return diagnosis.health


@pytest.mark.parametrize(
    ("version", "health"),
    [
        ("8.0.15", FAIL),
        ("8.0.16-0ubuntu1", OK),
        ("9.7.4-2", OK),
        ("10.5.29-MariaDB", FAIL),
        ("10.6.12-MariaDB-log", OK),
        ("11.4.5-MariaDB", OK),
        ("5.7.44", FAIL),
        ("unheard of", FAIL),
    ],
)
def test_old_servers_are_refused(version: str, health: Health) -> None:
    """MySQL and MariaDB count their versions differently."""
    assert sound(check_version(version)) is health


def test_a_server_without_innodb_is_refused() -> None:
    """Without it there are no transactions."""
    assert sound(check_engine(usable=False)) is FAIL
    assert sound(check_engine(usable=True)) is OK


GOOD_SESSION = {
    "autocommit": "OFF",
    "transaction_isolation": "READ-COMMITTED",
    "time_zone": "+00:00",
    "sql_mode": "STRICT_TRANS_TABLES,STRICT_ALL_TABLES",
}


@pytest.mark.parametrize(
    "change",
    [
        {"autocommit": "ON"},
        {"transaction_isolation": "REPEATABLE-READ"},
        {"time_zone": "SYSTEM"},
        {"sql_mode": ""},
    ],
)
def test_a_proxy_that_changes_the_session_is_found(change: dict[str, str]) -> None:
    """What Tally asked for must be what the session has; the server's default does not matter."""
    assert sound(check_session({**GOOD_SESSION, **change}, {})) is FAIL
    assert sound(check_session(GOOD_SESSION, {"transaction_isolation": "SERIALIZABLE"})) is OK


@pytest.mark.parametrize(
    ("server", "health"),
    [
        ({"innodb_flush_log_at_trx_commit": "1", "sync_binlog": "1", "log_bin": "ON"}, OK),
        ({"innodb_flush_log_at_trx_commit": "2", "sync_binlog": "1", "log_bin": "ON"}, WARN),
        ({"innodb_flush_log_at_trx_commit": "1", "sync_binlog": "0", "log_bin": "ON"}, WARN),
        ({"innodb_flush_log_at_trx_commit": "1", "sync_binlog": "0", "log_bin": "OFF"}, OK),
    ],
)
def test_a_commit_that_is_not_on_disk_is_worth_a_warning(
    server: dict[str, str], health: Health
) -> None:
    """The binary log counts only where there is one."""
    assert sound(check_durability(server)) is health


@pytest.mark.parametrize(
    ("server", "health"),
    [
        ({"read_only": "OFF", "super_read_only": "OFF"}, OK),
        ({"read_only": "ON", "super_read_only": "OFF"}, FAIL),
        ({"read_only": "NO_LOCK_NO_ADMIN"}, FAIL),
        ({"read_only": "0"}, OK),
    ],
)
def test_a_replica_is_refused(server: dict[str, str], health: Health) -> None:
    """MariaDB has further values for read-only."""
    assert sound(check_writable(server)) is health


def test_dead_letters_must_fit_into_a_packet() -> None:
    """Escaping may double a value; a batch of small ones needs room, too."""
    assert sound(check_packet(64 * 1024 * 1024, 1024 * 1024)) is OK
    assert sound(check_packet(16 * 1024 * 1024, 16 * 1024 * 1024)) is WARN
    assert sound(check_packet(1024 * 1024, 0)) is WARN


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A pipeline with the defaults over the topic `a`."""
    path = tmp_path / "tally.toml"
    path.write_text('[pipelines.first]\ntopics = ["a"]\n', encoding="utf-8")
    return load_settings(path).pipeline("first")


SNAPSHOT = KafkaSnapshot(
    cluster_id="cluster",
    topics={
        "a": TopicSnapshot(topic_id="id", partitions={0: PartitionSnapshot(earliest=0, end=0)})
    },
)


@pytest.mark.parametrize(
    ("rights", "health"),
    [
        (TopicRights(readable=True, compacted=False), OK),
        (TopicRights(readable=True, compacted=None), OK),
        (TopicRights(readable=False, compacted=False), FAIL),
        (TopicRights(readable=True, compacted=True), FAIL),
    ],
)
def test_a_topic_must_be_readable_and_not_compacted(
    pipeline: Pipeline, rights: TopicRights, health: Health
) -> None:
    """Compaction leaves holes that a dense pipeline would take for losses."""
    assert sound(check_topic(pipeline, "a", SNAPSHOT, {"a": rights})) is health


def test_a_compacted_topic_is_well_for_a_sparse_pipeline(pipeline: Pipeline) -> None:
    """The configuration expects the holes."""
    sparse = pipeline.model_copy(update={"offsets": "sparse"})
    rights = {"a": TopicRights(readable=True, compacted=True)}
    assert sound(check_topic(sparse, "a", SNAPSHOT, rights)) is OK


def test_a_missing_topic_is_found(pipeline: Pipeline) -> None:
    """Kafka answers, but not for this one."""
    assert sound(check_topic(pipeline, "b", SNAPSHOT, {})) is FAIL


@pytest.mark.parametrize(
    ("cluster_id", "topic_id", "health"),
    [("cluster", "id", OK), ("cluster", "old", FAIL), ("other", "id", FAIL)],
)
def test_another_cluster_and_a_re_created_topic_are_found(
    pipeline: Pipeline, cluster_id: str, topic_id: str, health: Health
) -> None:
    """The ledger's offsets belong to one topic of one cluster."""
    topic = KnownTopic(incarnation_id=1, topic_id=topic_id, cluster_id=cluster_id, positions={})
    for known in ({"a": topic}, {}):
        view = compose(
            pipeline,
            LedgerState(known=known),
            Facts(now=NOW, overdue_before=NOW, kafka=SNAPSHOT),
        )
        assert sound(diagnosis_of(view)) is (health if known else OK)


@pytest.mark.parametrize(
    ("answer", "healths"),
    [
        (None, {"airflow.connections": WARN}),
        (
            Orchestration(types=SPARK_ONLY, paused={"first": True}, scheduler_alive=True),
            {"airflow.tally_spark": OK, "airflow.scheduler": OK, "airflow.dags": OK},
        ),
        (
            Orchestration(types={}, paused={}, scheduler_alive=False),
            {"airflow.tally_spark": FAIL, "airflow.scheduler": WARN, "airflow.dags": WARN},
        ),
        (
            Orchestration(types={}, paused=None, scheduler_alive=None),
            {"airflow.tally_spark": FAIL, "airflow.scheduler": SKIP},
        ),
    ],
)
def test_airflow_needs_a_scheduler_a_connection_and_the_dags(
    answer: Orchestration | None, healths: dict[str, Health]
) -> None:
    """Each is named by itself; an Airflow that does not answer is one warning."""
    found = {d.check: sound(d) for d in check_airflow(answer, ["first"])}
    assert {check: found.get(check) for check in healths} == healths


def test_spark_and_its_client_must_be_one_version() -> None:
    """Both install into the same folder."""
    assert sound(check_pyspark("4.2.0", "4.2.0")) is OK
    assert sound(check_pyspark("4.2.0", None)) is OK
    assert sound(check_pyspark("4.2.0", "4.1.0")) is FAIL


def test_a_client_may_be_older_than_its_server_and_not_newer() -> None:
    """That much Spark promises of Connect."""
    assert sound(compare_server("4.2.0", "4.2.0")) is OK
    assert sound(compare_server("4.10.0", "4.2.0")) is OK
    assert sound(compare_server("4.1.1", "4.2.0")) is WARN


def test_the_connector_must_be_one_and_of_sparks_version() -> None:
    """Two connectors, or one of another Spark, fail at the first read with obscure words."""
    name = "spark-sql-kafka-0-10_2.13-{}.jar"
    assert sound(compare_connector([name.format("4.2.0")], "4.2.0")) is OK
    assert sound(compare_connector([name.format("4.2.1")], "4.2.0")) is OK
    assert sound(compare_connector([name.format("4.0.0")], "4.2.0")) is FAIL
    assert sound(compare_connector([name.format("4.2.0"), name.format("4.0.0")], "4.2.0")) is FAIL


def test_a_missing_connector_is_found(tmp_path: Path) -> None:
    """No folder is a question for Spark's own class path, an empty one is wrong."""
    assert sound(check_connector(SparkSettings(), "4.2.0")) is WARN
    assert sound(check_connector(SparkSettings(jars_dir=tmp_path), "4.2.0")) is FAIL


@pytest.mark.parametrize(
    ("name", "conn_type", "health"),
    [
        ("tally_spark", None, FAIL),
        ("tally_spark", "spark", OK),
        ("tally_spark", "spark_connect", OK),
        ("tally_spark", "http", FAIL),
        ("tally_mysql", None, OK),
        ("tally_kafka", "kafka", OK),
    ],
)
def test_only_the_connection_to_spark_is_needed(
    name: str, conn_type: str | None, health: Health
) -> None:
    """Without it Airflow would submit to YARN; for the others the configuration stands in."""
    assert sound(check_connection(name, conn_type)) is health


def test_airflow_is_not_asked_where_it_is_not_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Importing Airflow would create its home; a machine without one is left alone."""
    monkeypatch.delenv("AIRFLOW_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not is_configured({})
    assert sound(no_airflow()) is SKIP
    assert list(tmp_path.iterdir()) == []


def test_a_broken_configuration_is_a_diagnosis_and_the_rest_is_not_asked(tmp_path: Path) -> None:
    """The doctor works where nothing else does."""
    path = tmp_path / "tally.toml"
    path.write_text("[pipelines.first]\ntopics = []\n[mysql]\nport = 0\n", encoding="utf-8")
    found: dict[str, Any] = {d.check: sound(d) for d in examine(path, {})}
    assert found["config.valid"] is FAIL
    assert not any(check.startswith(("mysql.", "kafka.")) for check in found)


@pytest.mark.parametrize(
    ("name", "files", "command", "health"),
    [
        ("tally", "tally/__init__.py,,\n", "", FAIL),
        ("other", "other.py,,\n", "tally = other:main", FAIL),
        ("other", "other.py,,\ntally.txt,,\n", "tallying = other:main", OK),
        ("kafka_tally", "tally/__init__.py,,\n", "tally = tally.cli:main", OK),
    ],
)
def test_another_distribution_that_claims_the_name_is_found(
    tmp_path: Path, name: str, files: str, command: str, health: Health
) -> None:
    """By its files, or by its command."""
    folder = tmp_path / f"{name}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (folder / "RECORD").write_text(files)
    (folder / "entry_points.txt").write_text(f"[console_scripts]\n{command}\n")
    diagnosis = check_distribution([str(tmp_path)])
    assert sound(diagnosis) is health
    assert (name in diagnosis.detail) is (health is FAIL)
