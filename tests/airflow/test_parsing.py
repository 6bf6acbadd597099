"""The DAG file is cheap and safe to parse: no server, no heavy import, no secret, clear errors."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

pytestmark = pytest.mark.airflow

LOAD = """
from airflow.dag_processing.dagbag import DagBag
from airflow.configuration import conf
bag = DagBag(dag_folder=conf.get("core", "dags_folder"))
assert not bag.import_errors, bag.import_errors
assert len(bag.dags) == 8, bag.dags
"""


def test_every_pipeline_has_its_dags(bag: "DagBag") -> None:
    """Four DAGs for each pipeline, and no import error."""
    assert bag.import_errors == {}
    assert bag.captured_warnings == {}
    suffixes = ("", "_replay", "_losses", "_audit")
    assert set(bag.dags) == {f"{name}{end}" for name in ("error_log", "other") for end in suffixes}


def test_parsing_asks_no_server(in_fresh_python: Callable[[str], str]) -> None:
    """With every way into the network closed the DAGs still load."""
    in_fresh_python(
        """
import socket
def refuse(*args, **kwargs):
    raise AssertionError(f"asked the network: {args}")
for name in ("connect", "connect_ex", "sendto"):
    setattr(socket.socket, name, refuse)
socket.create_connection = socket.getaddrinfo = refuse
"""
        + LOAD
    )


def test_parsing_imports_nothing_heavy(in_fresh_python: Callable[[str], str]) -> None:
    """Neither Spark nor a client of Kafka or MySQL is imported to parse the DAGs."""
    printed = in_fresh_python(
        LOAD
        + """
import sys
heavy = {"pyspark", "py4j", "confluent_kafka", "pymysql", "pandas", "yoyo", "fastapi.applications"}
ours = {"tally.kafka.client", "tally.mysql.transactions", "tally.app.context"}
ours |= {"tally.spark.session", "tally.spark.counting"}
ours |= {"tally.pipeline.plan", "tally.pipeline.run", "tally.pipeline.replay"}
ours |= {"tally.airflow.work", "tally.airflow.replay_work", "tally.airflow.losses_work"}
print(sorted((heavy | ours) & set(sys.modules)))
"""
    )
    assert printed.splitlines()[-1] == "[]"


def test_the_checkouts_own_configuration_is_found_without_a_variable(
    load_bag: Callable[[], "DagBag"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without TALLY_CONFIG the file beside the DAG folder is used."""
    monkeypatch.delenv("TALLY_CONFIG")
    bag = load_bag()
    assert bag.import_errors == {}
    assert {"error_log", "error_log_audit"} <= set(bag.dags)


GOOD = '[pipelines.good]\ntopics = ["a"]\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('patience_s = "soon"\n', "pipelines.p.patience_s = 'soon'"),
        ('schedule = "often"\n', "pipelines.p.schedule = 'often'"),
        (
            "patience_s = 100\n",
            "patience_s = 100 must be more than mysql.statement_timeout_s = 200",
        ),
        ("patience_s = 250\n", "pipelines.p.patience_s = 250: a tenth of it"),
        ('level = ["ERROR"]\n', "pipelines.p.level: is no known key; did you mean levels?"),
    ],
)
def test_a_wrong_pipeline_has_one_dag_that_says_so_and_the_others_have_theirs(
    text: str, said: str, config: Path, load_bag: Callable[[], "DagBag"]
) -> None:
    """The reason is the DAG's description; a misspelt key takes no other pipeline away."""
    servers = "[mysql]\nstatement_timeout_s = 200\nlock_wait_timeout_s = 26\n"
    config.write_text(f'{GOOD}[pipelines.p]\ntopics = ["a"]\n{text}{servers}', encoding="utf-8")
    bag = load_bag()
    assert bag.import_errors == {}
    assert set(bag.dags) == {"p", "good", "good_replay", "good_losses", "good_audit"}
    disabled = bag.dags["p"]
    assert said in str(disabled.description)
    assert "disabled" in disabled.tags
    assert [task.task_id for task in disabled.tasks] == ["plan"]


def test_the_runs_of_a_wrong_pipeline_are_red_with_the_reason(
    config: Path, load_bag: Callable[[], "DagBag"]
) -> None:
    """Its only task fails before it asks any server."""
    from airflow.sdk.exceptions import AirflowFailException

    config.write_text(f'{GOOD}[pipelines.p]\ntopics = ["a"]\ncolour = 3\n', encoding="utf-8")
    (task,) = load_bag().dags["p"].tasks
    with pytest.raises(AirflowFailException, match=r"pipelines\.p\.colour: is no known key"):
        task.choose_branch({"ti": SimpleNamespace(dag_id="p", run_id="r")})


@pytest.mark.parametrize("name", ["p_audit", "p_replay"])
def test_a_pipeline_with_the_name_of_another_ones_dag_takes_nothing_away(
    name: str, config: Path, load_bag: Callable[[], "DagBag"]
) -> None:
    """The DAG of that name stays what it was."""
    text = '[pipelines.p]\ntopics = ["a"]\n'
    config.write_text(f'{text}[pipelines.{name}]\ntopics = ["b"]\n', encoding="utf-8")
    bag = load_bag()
    assert set(bag.dags) == {"p", "p_replay", "p_losses", "p_audit"}
    assert all("disabled" not in dag.tags for dag in bag.dags.values())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{GOOD}[mysql]\nport = 0\n", "mysql.port = 0"),
        ("[pipelines]\n", "pipelines: at least one is needed"),
        ("[pipelines", "is no valid TOML"),
    ],
)
def test_what_is_wrong_for_all_pipelines_is_an_import_error(
    text: str, said: str, config: Path, load_bag: Callable[[], "DagBag"]
) -> None:
    """Airflow shows what is wrong where it shows a broken DAG file."""
    config.write_text(text, encoding="utf-8")
    bag = load_bag()
    assert not bag.dags
    (error,) = bag.import_errors.values()
    assert "[config-invalid]" in error
    assert said in error


def test_secrets_do_not_reach_the_dags(
    config: Path, load_bag: Callable[[], "DagBag"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password in the configuration or the environment is in no serialised DAG."""
    from airflow.serialization.serialized_objects import DagSerialization

    monkeypatch.setenv("TALLY_MYSQL__PASSWORD", "s3cret-env")
    with config.open("a", encoding="utf-8") as file:
        file.write(
            '[kafka]\nsecurity_protocol = "SASL_SSL"\nsasl_mechanism = "PLAIN"\n'
            'sasl_username = "u"\nsasl_password = "s3cret-file"\n'
        )
    bag = load_bag()
    assert bag.import_errors == {}
    stored = "".join(str(DagSerialization.serialize_dag(dag)) for dag in bag.dags.values())
    assert "error_log" in stored
    assert "s3cret" not in stored
