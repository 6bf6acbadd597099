"""What the DAGs look like: structure, policies, documentation, serialisation."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pymysql
import pytest

from tally.airflow.timeouts import Timeouts, bounded
from tally.config.pipeline import PipelineSettings
from tally.config.servers import KafkaSettings, MySQLSettings
from tally.config.settings import Settings
from tally.errors import ConfigError, MySQLUnavailableError

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

pytestmark = pytest.mark.airflow

MINUTE = ["error_log", "other"]
AUDIT = ["error_log_audit", "other_audit"]
SCHEDULED = [*MINUTE, *AUDIT]
REPLAY = ["error_log_replay", "other_replay"]
LOSSES = ["error_log_losses", "other_losses"]
BY_HAND = [*REPLAY, *LOSSES]
ALL = [*SCHEDULED, *BY_HAND]


@pytest.mark.parametrize("dag_id", MINUTE)
def test_the_minute_dag_plans_then_counts(dag_id: str, bag: "DagBag") -> None:
    """`plan` decides; `count` and `blocked` follow it side by side, and both end the run."""
    dag = bag.dags[dag_id]
    edges = {task.task_id: set(task.downstream_task_ids) for task in dag.tasks}
    assert edges == {"plan": {"count", "blocked"}, "count": set(), "blocked": set()}
    assert {task.trigger_rule.value for task in dag.tasks} == {"all_success"}


@pytest.mark.parametrize("dag_id", AUDIT)
def test_the_audit_dag_prunes_behind_a_green_audit(dag_id: str, bag: "DagBag") -> None:
    """Unless a pipeline keeps everything."""
    dag = bag.dags[dag_id]
    edges = {task.task_id: set(task.downstream_task_ids) for task in dag.tasks}
    prunes = dag_id.startswith("error_log")
    assert edges == ({"audit": {"prune"}, "prune": set()} if prunes else {"audit": set()})
    assert {task.trigger_rule.value for task in dag.tasks} == {"all_success"}


@pytest.mark.parametrize("dag_id", REPLAY)
def test_the_replay_dag_previews_requests_counts_and_reports(dag_id: str, bag: "DagBag") -> None:
    """A task for each batch, one driver at a time; the sum comes after failures, too."""
    dag = bag.dags[dag_id]
    edges = {task.task_id: set(task.downstream_task_ids) for task in dag.tasks}
    assert edges == {
        "preview": {"request"},
        "request": {"count"},
        "count": {"outcome"},
        "outcome": set(),
    }
    count: Any = dag.get_task("count")
    assert count.is_mapped
    assert count.max_active_tis_per_dag == 1
    assert count.map_index_template == "{{ task.batch_name }}"
    assert dag.get_task("outcome").trigger_rule.value == "all_done"


@pytest.mark.parametrize("dag_id", LOSSES)
def test_the_losses_dag_looks_asks_and_settles(dag_id: str, bag: "DagBag") -> None:
    """The operator's answer is written by a task that can be retried without asking again."""
    dag = bag.dags[dag_id]
    edges = {task.task_id: set(task.downstream_task_ids) for task in dag.tasks}
    # `settle` follows at once when the run was triggered with a decision.
    assert edges == {"look": {"decide", "settle"}, "decide": {"settle"}, "settle": set()}
    assert dag.get_task("settle").trigger_rule.value == "none_failed_min_one_success"


@pytest.mark.parametrize("dag_id", BY_HAND)
def test_manual_dags_have_no_schedule(dag_id: str, bag: "DagBag") -> None:
    """No schedule, no backfill, no run that another DAG triggers."""
    dag = bag.dags[dag_id]
    assert dag.schedule is None
    assert set(dag.allowed_run_types or ()) == {"manual"}


@pytest.mark.parametrize("dag_id", MINUTE)
def test_who_looks_for_a_backfill_is_shown_the_replay(dag_id: str, bag: "DagBag") -> None:
    """Airflow's refusal cannot name the replay; the DAG's description and documentation do."""
    dag = bag.dags[dag_id]
    assert f"{dag_id}_replay" in (dag.description or "")
    assert "_replay" in (dag.doc_md or "")


@pytest.mark.parametrize(
    ("dag_id", "cron"),
    [("error_log", "* * * * *"), ("other", "*/5 * * * *"), ("error_log_audit", "17 3 * * *")],
)
def test_the_timetable_is_the_configured_one_in_utc(dag_id: str, cron: str, bag: "DagBag") -> None:
    """A cron trigger, in UTC, that catches nothing up."""
    from airflow.sdk import CronTriggerTimetable

    dag = bag.dags[dag_id]
    assert dag.timetable == CronTriggerTimetable(cron, timezone="UTC")
    assert dag.catchup is False


@pytest.mark.parametrize("dag_id", SCHEDULED)
def test_runs_do_not_pile_up_and_dates_are_refused(dag_id: str, bag: "DagBag") -> None:
    """One run at a time, scheduled or by hand; no backfill over dates; new DAGs start paused."""
    dag = bag.dags[dag_id]
    assert dag.max_active_runs == 1
    assert set(dag.allowed_run_types or ()) == {"scheduled", "manual"}
    assert dag.is_paused_upon_creation is not False
    assert not any(task.depends_on_past or task.wait_for_downstream for task in dag.tasks)
    assert dag.fail_fast is False  # it would end `count` because `blocked` is red


@pytest.mark.parametrize("name", ["error_log", "other"])
def test_what_only_runs_by_hand_need_not_be_unpaused_first(name: str, bag: "DagBag") -> None:
    """A run of a paused DAG waits without a word; a DAG without a schedule does nothing unasked."""
    for suffix in ("_replay", "_losses"):
        assert bag.dags[name + suffix].is_paused_upon_creation is False


@pytest.mark.parametrize("dag_id", ALL)
def test_retries_suit_a_minute(dag_id: str, bag: "DagBag") -> None:
    """Retries come soon and at an even pace; `blocked` has no retry, and neither has an answer."""
    for task in bag.dags[dag_id].tasks:
        assert task.retries == (0 if task.task_id in {"blocked", "decide"} else 3)
        assert task.retry_delay == timedelta(seconds=10)
        assert not task.retry_exponential_backoff


@pytest.mark.parametrize(("dag_id", "patience_s"), [("error_log", 600), ("other", 1200)])
def test_timeouts_follow_from_the_patience(dag_id: str, patience_s: int, bag: "DagBag") -> None:
    """Lock wait < plan < count = patience < run."""
    dag = bag.dags[dag_id]
    plan = dag.get_task("plan").execution_timeout
    count = dag.get_task("count").execution_timeout
    blocked = dag.get_task("blocked").execution_timeout
    assert plan
    assert count
    assert blocked
    assert dag.dagrun_timeout
    lock_wait = timedelta(seconds=MySQLSettings().lock_wait_timeout_s)
    assert count == timedelta(seconds=patience_s)
    assert lock_wait < plan < count < plan + count < dag.dagrun_timeout
    assert dag.dagrun_timeout == 1.25 * count
    assert blocked <= plan


@pytest.mark.parametrize("dag_id", BY_HAND)
def test_tasks_of_manual_dags_have_timeouts(dag_id: str, bag: "DagBag") -> None:
    """Every task has a timeout; only the wait for an operator lasts days."""
    dag = bag.dags[dag_id]
    minute = bag.dags[dag_id.removesuffix("_replay").removesuffix("_losses")]
    for task in dag.tasks:
        if task.task_id == "decide":
            answer: Any = task
            assert answer.response_timeout < dag.dagrun_timeout
            continue
        like = minute.get_task("count" if task.task_id == "count" else "plan")
        assert task.execution_timeout == like.execution_timeout


@pytest.mark.parametrize("dag_id", AUDIT)
def test_the_audit_has_timeouts_too(dag_id: str, bag: "DagBag") -> None:
    """Every task and every run has a timeout."""
    dag = bag.dags[dag_id]
    timeout = dag.get_task("audit").execution_timeout
    assert timeout
    assert dag.dagrun_timeout
    assert timeout < dag.dagrun_timeout


@pytest.mark.parametrize(
    ("section", "wait", "key"),
    [
        ("mysql", {"lock_wait_timeout_s": 25}, "mysql.lock_wait_timeout_s = 25"),
        ("mysql", {"connect_timeout_s": 25}, "mysql.connect_timeout_s = 25"),
        ("kafka", {"request_timeout_s": 25}, "kafka.request_timeout_s = 25"),
    ],
)
def test_a_patience_too_short_for_an_answer_is_refused(
    section: str, wait: dict[str, int], key: str
) -> None:
    """A task must not be killed while a server would still have told it what is wrong."""
    settings = Settings(
        kafka=KafkaSettings(**wait if section == "kafka" else {}),
        mysql=MySQLSettings(statement_timeout_s=60, **wait if section == "mysql" else {}),
        pipelines={"p": PipelineSettings(topics=["a"], patience_s=250)},
    )
    short = settings.pipeline("p")
    with pytest.raises(ConfigError, match=rf"pipelines\.p\.patience_s = 250: .*{key}"):
        Timeouts.of(short, settings)
    longer = short.model_copy(update={"patience_s": 251})
    assert Timeouts.of(longer, settings).plan > 2 * timedelta(seconds=25)


@pytest.mark.parametrize(("configured", "task_s", "left"), [(300, 120, 60), (30, 120, 30)])
def test_a_statement_times_out_before_its_task(configured: int, task_s: int, left: int) -> None:
    """Half of the task's timeout, and less where the configuration says so."""
    settings = Settings(
        mysql=MySQLSettings(statement_timeout_s=configured),
        pipelines={"p": PipelineSettings(topics=["a"])},
    )
    mysql = bounded(settings, timedelta(seconds=task_s)).mysql
    assert mysql.statement_timeout_s == left
    assert mysql.lock_wait_timeout_s < mysql.statement_timeout_s < task_s


def test_statements_of_plan_and_audit_time_out_before_their_tasks(
    bag: "DagBag", config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait follows from the tasks' own timeouts, not from `[mysql]` alone."""
    with config.open("a", encoding="utf-8") as file:
        file.write("[mysql]\nstatement_timeout_s = 599\n")
    waits: list[float] = []

    def connect(_: Any, *, read_timeout: float, write_timeout: float, **__: Any) -> Any:
        assert write_timeout == read_timeout
        waits.append(read_timeout)
        raise pymysql.err.OperationalError(2003, "there is no server")

    # The audit's is half an hour: what the driver is told is all that can be seen of it.
    monkeypatch.setattr(pymysql.Connection, "__init__", connect)
    context: Any = {
        "ti": SimpleNamespace(dag_id="error_log", run_id="r"),
        "dag_run": SimpleNamespace(run_after=datetime.now(UTC)),
    }
    tasks: dict[str, Any] = {
        "plan": bag.dags["error_log"].get_task("plan"),
        "audit": bag.dags["error_log_audit"].get_task("audit"),
    }
    for work in (tasks["plan"].choose_branch, tasks["audit"].execute):
        with pytest.raises(MySQLUnavailableError, match="there is no server"):
            work(context)
    longest = {name: task.execution_timeout.total_seconds() / 2 for name, task in tasks.items()}
    assert waits == [min(599, longest["plan"]), min(599, longest["audit"])]
    assert longest["plan"] < 599 < longest["audit"]


@pytest.mark.parametrize("dag_id", ALL)
def test_dags_say_whose_they_are_and_what_they_do(dag_id: str, bag: "DagBag") -> None:
    """Owner, tags and documentation come from the configuration and the docstrings."""
    dag = bag.dags[dag_id]
    ours = dag_id.startswith("error_log")
    assert dag.tags == ({"tally", "web"} if ours else {"tally"})
    assert {task.owner for task in dag.tasks} == {"ann" if ours else "tally"}
    assert "each line" in (dag.doc_md or "")
    assert dag.description
    assert all(task.doc_md for task in dag.tasks)


def test_assets_are_named_after_topics_and_table(bag: "DagBag") -> None:
    """`count` reads the topics' assets and writes the table's; no URI holds an address."""
    count = bag.dags["other"].get_task("count")
    assert [(a.name, a.uri) for a in count.inlets] == [
        ("kafka_one", "tally://kafka/one"),
        ("kafka_two", "tally://kafka/two"),
    ]
    assert [(a.name, a.uri) for a in count.outlets] == [
        ("tally_other_counts", "tally://mysql/other_counts")
    ]


@pytest.mark.parametrize("dag_id", ALL)
def test_params_have_valid_defaults(dag_id: str, bag: "DagBag") -> None:
    """Each parameter has a default that its own rule allows; a replay's reason alone has none."""
    params = bag.dags[dag_id].params
    if dag_id.endswith("_replay"):
        params["reason"] = "a corrected level"
    params.validate()


@pytest.mark.parametrize("dag_id", ALL)
def test_a_dag_survives_serialisation(dag_id: str, bag: "DagBag") -> None:
    """What the scheduler reads back is what was parsed: tasks, edges, timeouts, run types."""
    dag = bag.dags[dag_id]
    back = _deserialised(_serialised(dag))
    assert back.dag_id == dag.dag_id
    assert back.task_dict.keys() == dag.task_dict.keys()
    assert back.max_active_runs == dag.max_active_runs
    assert back.catchup is False
    assert set(back.allowed_run_types or ()) == set(dag.allowed_run_types or ())
    assert back.dagrun_timeout == dag.dagrun_timeout
    for task in dag.tasks:
        assert back.get_task(task.task_id).downstream_task_ids == task.downstream_task_ids
        assert back.get_task(task.task_id).execution_timeout == task.execution_timeout
        assert back.get_task(task.task_id).retries == task.retries


@pytest.mark.parametrize("dag_id", ALL)
def test_two_parses_serialise_alike(dag_id: str, load_bag: Callable[[], "DagBag"]) -> None:
    """Nothing in a DAG changes by itself: no new version of it at each parse."""
    first, second = (_serialised(load_bag().dags[dag_id]) for _ in range(2))
    assert json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)


@pytest.mark.parametrize("dag_id", ALL)
def test_rendered_fields_hold_no_credentials(dag_id: str, bag: "DagBag") -> None:
    """What Airflow stores and shows of a task: paths, names and the batch's id, nothing else."""
    shown = {
        f"{task.task_id}.{field}": value
        for task in bag.dags[dag_id].tasks
        for field in task.template_fields
        if (value := _argument(task, field)) is not None
    }
    allowed = {"count.application", "count.name", "count.application_args", "blocked.message"}
    allowed |= {"decide.subject", "decide.body"}
    assert set(shown) <= allowed
    if dag_id in MINUTE:
        assert shown["count.application"].endswith("jobs/count_errors.py")
        key, seconds, batch, _ = shown["count.application_args"]
        assert (key, batch) == ("--catch-up-s", "--batch")
        assert float(seconds) > 0


def test_the_tasks_read_the_configuration_that_was_parsed(bag: "DagBag", config: Path) -> None:
    """The very same file, by its absolute path, wherever the worker runs from."""
    readers: list[Any] = [
        task
        for dag in bag.dags.values()
        for task in dag.tasks
        if task.task_id not in {"blocked", "decide"}
    ]
    assert {_argument(task, "config") for task in readers} == {str(config)}
    assert config.is_absolute()


def _argument(task: Any, name: str) -> Any:
    """An operator's argument, of a mapped one too."""
    return task.partial_kwargs.get(name) if task.is_mapped else getattr(task, name)


def _serialised(dag: Any) -> dict[str, Any]:
    from airflow.serialization.serialized_objects import DagSerialization

    return DagSerialization.to_dict(dag)


def _deserialised(stored: dict[str, Any]) -> Any:
    from airflow.serialization.serialized_objects import DagSerialization

    return DagSerialization.from_dict(stored)
