"""What the DAGs look like, and that parsing them is cheap and safe."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.exceptions import AirflowFailException
from airflow.serialization.serialized_objects import DagSerialization

from tally.airflow.policies import SHORT_PART, bounded, check_patience, patience
from tally.config.pipeline import Pipeline
from tally.config.servers import MySQLSettings
from tally.config.settings import Settings
from tally.errors import ConfigError
from tests.airflow.conftest import Parse
from tests.servers import PROJECT

pytestmark = pytest.mark.airflow

MINUTE = ("error_log", "other")
KINDS = ("", "_audit", "_replay", "_losses")
BEHIND = ("blocked", "complete")
BY_HAND = ("_replay", "_losses")
GOOD = '[pipelines.good]\ntopics = ["a"]\n'


def edges(dag: Any) -> dict[str, set[str]]:
    return {task.task_id: set(task.downstream_task_ids) for task in dag.tasks}


def of_kind(bag: DagBag, *suffixes: str) -> Iterator[Any]:
    return (bag.dags[name + suffix] for name in MINUTE for suffix in suffixes)


def test_each_dag_has_its_tasks_in_order(bag: DagBag) -> None:
    requested = {"request": {"count"}, "count": {"outcome"}, "outcome": set[str]()}
    wanted: dict[str, Any] = {
        "": {"count": {*BEHIND}} | {task: set() for task in BEHIND},
        "_audit": {"audit": {"prune"}, "prune": set()},
        "_replay": {"preview": {"request"}, **requested},
        # `settle` follows at once when the run was triggered with a decision.
        "_losses": {"look": {"decide", "settle"}, "decide": {"settle"}, "settle": set()},
    }
    rules = {"outcome": "all_done", "settle": "none_failed_min_one_success"}
    assert edges(bag.dags["other_audit"]) == {"audit": set()}
    for suffix in KINDS:
        for dag in of_kind(bag, suffix):
            assert dag.dag_id == "other_audit" or edges(dag) == wanted[suffix]
            for task in dag.tasks:
                assert task.trigger_rule.value == rules.get(task.task_id, "all_success")
    for dag in of_kind(bag, "_replay"):
        count: Any = dag.get_task("count")
        assert count.is_mapped
        assert count.max_active_tis_per_dag == 1
        assert count.map_index_template == "{{ task.batch_name }}"
    for dag in of_kind(bag, ""):
        assert dag.get_task("complete").max_active_tis_per_dag == 1


def test_scheduled_dags_do_not_pile_up_and_manual_ones_need_not_be_unpaused(bag: DagBag) -> None:
    """The configured timetable, one run at a time, no backfill over dates; new DAGs start paused.

    A run of a paused DAG by hand would wait without a word.
    """
    from airflow.sdk import CronTriggerTimetable

    crons = {"error_log": "* * * * *", "other": "*/5 * * * *", "error_log_audit": "17 3 * * *"}
    for dag_id, cron in crons.items():
        assert bag.dags[dag_id].timetable == CronTriggerTimetable(cron, timezone="UTC")
    for dag in of_kind(bag, "", "_audit"):
        assert dag.catchup is False
        assert dag.max_active_runs == 1
        assert set(dag.allowed_run_types or ()) == {"scheduled", "manual"}
        assert dag.is_paused_upon_creation is not False
        assert not any(task.depends_on_past or task.wait_for_downstream for task in dag.tasks)
        assert dag.fail_fast is False  # it would end `count` because `blocked` is red
    for dag in of_kind(bag, *BY_HAND):
        assert dag.schedule is None
        assert set(dag.allowed_run_types or ()) == {"manual"}
        assert dag.is_paused_upon_creation is False


@pytest.mark.parametrize(("name", "patience_s"), [("error_log", 600), ("other", 1200)])
def test_timeouts_follow_from_the_patience(name: str, patience_s: int, bag: DagBag) -> None:
    """Lock wait < what is short < count = patience < run; an operator alone has days."""
    for task in (task for suffix in KINDS for task in bag.dags[name + suffix].tasks):
        assert task.retries == (0 if task.task_id in {"blocked", "decide"} else 3)
        assert task.retry_delay == timedelta(seconds=10)
        assert not task.retry_exponential_backoff
    dag, audit = bag.dags[name], bag.dags[f"{name}_audit"]
    like: dict[str, Any] = {task.task_id: task.execution_timeout for task in dag.tasks}
    lock_wait = timedelta(seconds=MySQLSettings().lock_wait_timeout_s)
    assert like["count"] == timedelta(seconds=patience_s)
    assert dag.dagrun_timeout == 1.25 * like["count"]
    assert lock_wait < like["blocked"] < like["count"]
    assert like["blocked"] + like["count"] < dag.dagrun_timeout
    for suffix in BY_HAND:
        for task in bag.dags[name + suffix].tasks:
            answer: Any = task
            if task.task_id == "decide":
                assert answer.response_timeout < bag.dags[name + suffix].dagrun_timeout
            else:
                assert task.execution_timeout == like.get(task.task_id, like["blocked"])
    assert timedelta(0) < audit.get_task("audit").execution_timeout < audit.dagrun_timeout  # type: ignore[operator]


@pytest.mark.parametrize(
    "key", ["mysql.lock_wait_timeout_s", "mysql.connect_timeout_s", "kafka.request_timeout_s"]
)
def test_a_patience_too_short_for_an_answer_is_refused(key: str) -> None:
    """A task must not be killed while a server would still have told it what is wrong."""
    section, _, field = key.partition(".")
    waits: dict[str, dict[str, Any]] = {"kafka": {}, "mysql": {"statement_timeout_s": 60}}
    waits[section][field] = 25
    pipelines = {"p": {"topics": ["a"], "patience_s": 250}}
    settings = Settings.model_validate({**waits, "pipelines": pipelines})
    short = settings.pipeline("p")
    with pytest.raises(ConfigError, match=rf"pipelines\.p\.patience_s = 250: .*{key} = 25"):
        check_patience(short, settings)
    longer = short.model_copy(update={"patience_s": 251})
    check_patience(longer, settings)
    assert SHORT_PART * patience(longer) > 2 * timedelta(seconds=25)


def test_a_statement_times_out_before_its_task(bag: DagBag, config: Path) -> None:
    for configured, task_s, left in ((300, 120, 60), (30, 120, 30)):
        mysql = MySQLSettings(statement_timeout_s=configured)
        settings = Settings(mysql=mysql, pipelines={"p": Pipeline(topics=["a"])})
        mysql = bounded(settings, timedelta(seconds=task_s)).mysql
        assert mysql.statement_timeout_s == left
        assert mysql.lock_wait_timeout_s < mysql.statement_timeout_s < task_s
    with config.open("a", encoding="utf-8") as file:
        file.write("[mysql]\nstatement_timeout_s = 599\n")
    count: Any = bag.dags["error_log"].get_task("count")
    blocked: Any = bag.dags["error_log"].get_task("blocked")
    audit: Any = bag.dags["error_log_audit"].get_task("audit")
    bounds = [task.open_context().database.settings.statement_timeout_s for task in (count, audit)]
    assert bounds == [blocked.execution_timeout.total_seconds() / 2, 599]
    assert bounds[0] < 599 < audit.execution_timeout.total_seconds() / 2


def test_dags_say_whose_they_are_and_what_they_do(bag: DagBag) -> None:
    """By configuration and docstrings; each parameter but a replay's reason has a default."""
    for dag in of_kind(bag, *KINDS):
        ours = dag.dag_id.startswith("error_log")
        assert dag.tags == ({"tally", "web"} if ours else {"tally"})
        assert {task.owner for task in dag.tasks} == {"ann" if ours else "tally"}
        assert "each line" in (dag.doc_md or "")
        assert dag.description
        if dag.dag_id in MINUTE:  # Airflow's refusal of a backfill cannot name the replay
            assert f"{dag.dag_id}_replay" in dag.description
            assert "_replay" in dag.doc_md
        assert all(task.doc_md for task in dag.tasks)
        if dag.dag_id.endswith("_replay"):
            dag.params["reason"] = "a corrected level"
        dag.params.validate()
    count = bag.dags["other_replay"].get_task("count")
    topics = [("kafka_one", "tally://kafka/one"), ("kafka_two", "tally://kafka/two")]
    assert [(a.name, a.uri) for a in count.inlets] == topics
    table = ("tally_other_counts", "tally://mysql/other_counts")
    assert [(a.name, a.uri) for a in count.outlets] == [table]


def test_a_dag_is_stored_whole(bag: DagBag, parse: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the scheduler reads back is what was parsed, and the same at each parse."""
    again = parse()
    for dag in of_kind(bag, *KINDS):
        stored = DagSerialization.to_dict(dag)
        once_more = DagSerialization.to_dict(again.dags[dag.dag_id])
        assert json.dumps(stored, sort_keys=True) == json.dumps(once_more, sort_keys=True)
        back: Any = DagSerialization.from_dict(stored)
        assert edges(back) == edges(dag)
        assert back.catchup is False
        assert set(back.allowed_run_types or ()) == set(dag.allowed_run_types or ())
        for name in ("dag_id", "max_active_runs", "dagrun_timeout"):
            assert getattr(back, name) == getattr(dag, name)
        for task in dag.tasks:
            for name in ("execution_timeout", "retries"):
                assert getattr(back.get_task(task.task_id), name) == getattr(task, name)
    monkeypatch.setenv("TALLY_MYSQL__PASSWORD", "s3cret-env")
    sasl = 'security_protocol = "SASL_SSL"\nsasl_mechanism = "PLAIN"\nsasl_username = "u"\n'
    secret = parse(f'{GOOD}[kafka]\n{sasl}sasl_password = "s3cret-file"\n')
    assert secret.import_errors == {}
    text = "".join(str(DagSerialization.serialize_dag(dag)) for dag in secret.dags.values())
    assert "good_replay" in text
    assert "s3cret" not in text


def test_rendered_fields_hold_paths_names_and_the_batch_alone(bag: DagBag, config: Path) -> None:
    """What Airflow stores of a task has no credentials; it reads the very file that was parsed."""
    allowed = {"count.application", "count.batch", "blocked.message"}
    allowed |= {"decide.subject", "decide.body"}
    assert config.is_absolute()
    for dag in of_kind(bag, *KINDS):
        shown: dict[str, Any] = {}
        for task in dag.tasks:
            fields = {name: _argument(task, name) for name in task.template_fields}
            shown |= {f"{task.task_id}.{k}": v for k, v in fields.items() if v is not None}
            if task.task_id not in {"blocked", "decide"}:
                assert _argument(task, "config") == str(config)
        assert set(shown) <= allowed
        if dag.dag_id in MINUTE:
            assert shown["count.application"].endswith("jobs/count_errors.py")


def _argument(task: Any, name: str) -> Any:
    return task.partial_kwargs.get(name) if task.is_mapped else getattr(task, name)


# --- parsing: no server, no heavy import, no secret, clear errors

LOAD = """
import socket, sys

def refuse(*args, **kwargs):
    raise AssertionError(f"asked the network: {args}")

for name in ("connect", "connect_ex", "sendto"):
    setattr(socket.socket, name, refuse)
socket.create_connection = socket.getaddrinfo = refuse

from airflow import plugins_manager
plugins, errors = plugins_manager._get_plugins()
assert not errors, errors
assert "tally" in {plugin.name for plugin in plugins}

from airflow.configuration import conf
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(dag_folder=conf.get("core", "dags_folder"))
assert not bag.import_errors, bag.import_errors
assert len(bag.dags) == 8, bag.dags

heavy = {"fastapi.applications", *sys.argv[1:]}
print(sorted(name for name in sys.modules for one in heavy if f"{name}.".startswith(f"{one}.")))
"""


def test_loading_dags_and_plugin_asks_no_server_and_imports_nothing_heavy(config: Path) -> None:
    """With every way into the network closed: every process of Airflow does it."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
    banned = project["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-module-level-imports"]
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *banned],  # a Python that has imported nothing yet
        env={**os.environ, "TALLY_CONFIG": str(config)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "[]"


def test_every_pipeline_has_its_dags(parse: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four DAGs each, which a pipeline of one's name leaves as they are."""
    bag = parse()
    assert (bag.import_errors, bag.captured_warnings) == ({}, {})
    assert set(bag.dags) == {name + suffix for name in MINUTE for suffix in KINDS}
    for name in ("good_audit", "good_replay"):
        bag = parse(f'{GOOD}[pipelines.{name}]\ntopics = ["b"]\n')
        assert set(bag.dags) == {f"good{suffix}" for suffix in KINDS}
        assert all("disabled" not in dag.tags for dag in bag.dags.values())
    monkeypatch.delenv("TALLY_CONFIG")
    bag = parse()
    assert bag.import_errors == {}
    assert {"error_log", "error_log_audit"} <= set(bag.dags)


def test_a_wrong_pipeline_has_one_dag_that_says_so_and_the_others_have_theirs(parse: Parse) -> None:
    servers = "[mysql]\nstatement_timeout_s = 200\nlock_wait_timeout_s = 26\n"
    too_short = "patience_s = 100 must be more than mysql.statement_timeout_s = 200"
    for text, said in (
        ('patience_s = "soon"', "pipelines.p.patience_s = 'soon'"),
        ('schedule = "often"', "pipelines.p.schedule = 'often'"),
        ("patience_s = 100", too_short),
        ("patience_s = 250", "pipelines.p.patience_s = 250: a tenth of it"),
        ('level = ["ERROR"]', "pipelines.p.level: is no known key; did you mean levels?"),
    ):
        bag = parse(f'{GOOD}[pipelines.p]\ntopics = ["a"]\n{text}\n{servers}')
        assert bag.import_errors == {}
        assert set(bag.dags) == {"p", "good", "good_replay", "good_losses", "good_audit"}
        disabled = bag.dags["p"]
        assert said in str(disabled.description)
        assert "disabled" in disabled.tags
        (task,) = disabled.tasks
        assert task.task_id == "count"
        run = SimpleNamespace(dag_id="p", run_id="r", run_after=None, conf={})
        with pytest.raises(AirflowFailException) as failed:
            task.choose_branch({"ti": run, "dag_run": run})
        assert said in str(failed.value)
    # What is wrong for all pipelines is shown where Airflow shows a broken DAG file.
    for text, said in (
        (f"{GOOD}[mysql]\nport = 0\n", "mysql.port = 0"),
        ("[pipelines]\n", "pipelines: at least one is needed"),
        ("[pipelines", "is no valid TOML"),
    ):
        bag = parse(text)
        assert not bag.dags
        (error,) = bag.import_errors.values()
        assert "[config-invalid]" in error
        assert said in error
