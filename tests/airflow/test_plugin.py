"""The status page: it loads with Airflow, authenticates, and shows what the ledger says."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.airflow.dag_run import RunDag
from tests.world import World, make_settings

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

pytestmark = [
    pytest.mark.airflow,
    # Airflow's API server imports svcs, which imports Starlette's test client in any case.
    pytest.mark.filterwarnings("ignore:Using `httpx` with `starlette.testclient`"),
]

LINE = "2017-07-30 14:09:08 INFO all is well"


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> "Iterator[TestClient]":
    """Airflow's API server with its plugins, newly loaded."""
    from airflow.api_fastapi.app import create_app, purge_cached_app
    from fastapi.testclient import TestClient

    from airflow import plugins_manager

    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    for function in vars(plugins_manager).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()
    purge_cached_app()
    yield TestClient(create_app(apps="core"), follow_redirects=False)
    purge_cached_app()


def log_in(client: "TestClient", role: str | None) -> None:
    """Log Ann in; without a role she has no permission."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    manager: Any = get_auth_manager()
    token = manager.generate_jwt(SimpleAuthManagerUser(username="ann", role=role))
    client.cookies.set("_token", token)


def command(world: World, *words: str) -> "subprocess.CompletedProcess[str]":
    """Call ``tally`` where Airflow is configured as it is here."""
    return subprocess.run(
        [Path(sys.executable).with_name("tally"), "--config", str(world.config), *words],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def viewer(client: "TestClient") -> "TestClient":
    """The browser of a user who has logged in and may read."""
    log_in(client, "viewer")
    return client


@pytest.mark.usefixtures("config")
def test_the_plugin_loads(client: "TestClient") -> None:
    """Airflow skips a plugin that it does not like with no more than a line in the log."""
    from airflow import plugins_manager

    plugins, errors = plugins_manager._get_plugins()
    assert errors == {}
    assert "tally" in {plugin.name for plugin in plugins}
    views, _ = plugins_manager._get_ui_plugins()
    (view,) = [view for view in views if view["name"] == "Tally"]
    assert view["destination"] == "nav"
    # Relative: resolved against Airflow's own base address, which may have a path.
    assert view["href"] == "tally/"
    assert "/tally" in {getattr(route, "path", "") for route in client.app.routes}  # type: ignore[attr-defined]


@pytest.mark.usefixtures("config")
@pytest.mark.parametrize("credentials", [{}, {"Authorization": "Bearer forged"}])
def test_strangers_are_refused(credentials: dict[str, str], client: "TestClient") -> None:
    """Airflow mounts plugins' applications without authentication; the page brings its own."""
    answer = client.get("/tally/", headers=credentials)
    assert answer.status_code in {401, 403}
    assert "error_log" not in answer.text


@pytest.mark.usefixtures("config")
def test_a_user_without_the_permission_to_look_is_refused(client: "TestClient") -> None:
    """Being logged in is not enough."""
    log_in(client, role=None)
    assert client.get("/tally/").status_code == 403


@pytest.mark.usefixtures("config")
def test_the_page_describes_nothing_to_strangers(client: "TestClient") -> None:
    """No API description, no other route."""
    for path in ("docs", "redoc", "openapi.json"):
        assert client.get(f"/tally/{path}").status_code == 404


@pytest.mark.stack
def test_the_page_shows_what_the_ledger_says(world: World, viewer: "TestClient") -> None:
    """Offsets per partition, the open batch, open losses, the latest batches."""
    world.produce([LINE] * 3, 0)
    batch = world.plan().batch
    assert batch is not None
    world.execute(
        "insert into lost_range (incarnation_id, partition_id, from_offset, until_offset,"
        " detected_at) select incarnation_id, 1, 7, 9, now() from topic_incarnation"
        " where pipeline = %s",
        (world.name,),
    )
    answer = viewer.get("/tally/")
    assert answer.status_code == 200, answer.text
    assert world.name in answer.text
    assert f'<td>{world.topic}/0</td><td class="n">0</td>' in answer.text
    assert f"{world.topic}/1 [7, 9) was lost" in answer.text
    assert f'<a href="../dags/{world.name}_losses" target="_top">' in answer.text
    assert '<strong class="fail">fail</strong>' in answer.text
    assert f'<td class="n">{batch.batch_id}</td><td>ingest</td><td>planned</td>' in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.stack
@pytest.mark.usefixtures("stand_in")
def test_the_page_marks_what_was_replaced(
    world: World, run_dag: RunDag, viewer: "TestClient"
) -> None:
    """The counts of such a batch are no longer in the result."""
    world.produce([LINE] * 3, 0)
    run_dag(world.name)
    run_dag(f"{world.name}_replay", {"dry_run": False, "reason": "a test"})
    old, new = [batch["batch_id"] for batch in world.batches()]
    text = viewer.get("/tally/").text
    assert f'<td class="n">{old}</td><td>ingest</td><td>committed, replaced</td>' in text
    assert f'<td class="n">{new}</td><td>replay</td><td>committed</td>' in text


@pytest.mark.stack
def test_a_pipeline_that_is_configured_wrong_is_on_the_page(
    world: World, viewer: "TestClient"
) -> None:
    """With its mistakes, beside the others, for whom it changes nothing."""
    wrong = {"topics": ["a-topic"], "level": "ERROR"}
    make_settings(world.stack, world.config, {world.name: world.keys, "a_wrong_one": wrong})
    answer = viewer.get("/tally/")
    assert answer.status_code == 200, answer.text
    assert '<h2 id="a_wrong_one">' in answer.text
    assert "pipelines.a_wrong_one.level" in answer.text
    assert f'<h2 id="{world.name}">' in answer.text


@pytest.mark.stack
@pytest.mark.usefixtures("config")
def test_page_check_and_doctor_say_that_a_dag_is_paused(world: World, viewer: "TestClient") -> None:
    """It is a warning; the page knows it from Airflow, a command with ``--check`` asks for it."""
    from airflow.models import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.utils.session import create_session

    world.plan()
    bundle = f"b_{world.name}"
    with create_session() as session:
        session.add(DagBundleModel(name=bundle))
        session.flush()
        session.add(DagModel(dag_id=world.name, bundle_name=bundle, is_paused=True, is_stale=False))
    said = f"the DAG {world.name} is paused in Airflow"
    assert said in viewer.get("/tally/").text
    for words in (["status", world.name, "--check"], ["pipelines", "--check"], ["doctor"]):
        assert said in command(world, *words).stdout
    assert command(world, "status", world.name, "--check").returncode == 1
    assert said not in command(world, "status", world.name).stdout  # which does not ask Airflow
    with create_session() as session:
        session.query(DagModel).filter_by(dag_id=world.name).update({"is_paused": False})
    assert command(world, "pipelines", "--check").returncode == 0
    text = viewer.get("/tally/").text
    assert "is paused in Airflow" not in text
    assert '<strong class="ok">ok</strong>' in text


@pytest.mark.stack
def test_a_pipeline_is_shown_only_to_those_who_may_read_its_dag(
    world: World, viewer: "TestClient", monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page opens no way around Airflow's permissions."""
    from airflow.api_fastapi.app import get_auth_manager

    asked: list[str] = []

    def refuse(*, method: str, details: Any, user: Any, **_: Any) -> bool:
        asked.append(f"{user.get_name()} {method} {details.id}")
        return False

    # Airflow's simple auth manager knows no rights to single DAGs; others do.
    monkeypatch.setattr(get_auth_manager(), "is_authorized_dag", refuse)
    answer = viewer.get("/tally/")
    assert answer.status_code == 200, answer.text
    assert asked == [f"ann GET {world.name}"]
    assert world.name not in answer.text


@pytest.mark.usefixtures("config")
def test_a_ledger_that_does_not_answer_is_said_without_a_password(
    viewer: "TestClient", monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page comes with the error on it; it does not hang, and it names no secret."""
    monkeypatch.setenv("TALLY_MYSQL__PORT", "1")
    monkeypatch.setenv("TALLY_MYSQL__PASSWORD", "s3cret")
    answer = viewer.get("/tally/")
    assert answer.status_code == 503
    assert "[mysql-unavailable]" in answer.text
    assert "s3cret" not in answer.text


@pytest.mark.stack
@pytest.mark.usefixtures("stand_in")
def test_the_preview_of_a_replay_is_a_page(
    world: World, run_dag: RunDag, viewer: "TestClient"
) -> None:
    """The task's XCom as a table, behind the task's button, for users who may read XComs."""
    from urllib.parse import urlencode

    world.produce([LINE] * 3)
    run_dag(world.name)
    run = run_dag(f"{world.name}_replay", {"reason": "a test"})
    link = run.xcom("preview", "_link_PreviewLink")
    query = urlencode({"dag_id": f"{world.name}_replay", "run_id": run.run_id})
    assert link == f"/tally/preview?{query}"
    answer = viewer.get(link)
    assert answer.status_code == 200, answer.text
    assert f"<td>{world.topic}/0</td><td>[0, 3)</td>" in answer.text
    assert "Nothing was changed" in answer.text
    assert viewer.get(f"{link}x").status_code == 404
    log_in(viewer, role=None)
    assert viewer.get(link).status_code == 403


@pytest.mark.stack
def test_the_page_says_why_there_is_no_preview(
    world: World, run_dag: RunDag, viewer: "TestClient"
) -> None:
    """The sentence of the error with what to do next, not the way to a log."""
    from urllib.parse import urlencode

    run = run_dag(f"{world.name}_replay", {"reason": "a test", "what": "batch"})
    query = urlencode({"dag_id": f"{world.name}_replay", "run_id": run.run_id})
    answer = viewer.get(f"/tally/preview?{query}")
    assert answer.status_code == 200, answer.text
    assert "batch_id is not given" in answer.text
    assert "Next: fill in the field batch_id" in answer.text
    assert "Asked for" not in answer.text


@pytest.mark.usefixtures("config")
def test_strangers_see_no_preview(client: "TestClient") -> None:
    """The page brings its own authentication, as the other does."""
    assert client.get("/tally/preview?dag_id=error_log_replay&run_id=r").status_code == 401


def test_loading_the_plugin_imports_neither_the_page_nor_mysql(
    in_fresh_python: Callable[[str], str],
) -> None:
    """Every process of Airflow loads plugins; only the API server shows the page."""
    printed = in_fresh_python(
        """
import sys
from airflow import plugins_manager
plugins, errors = plugins_manager._get_plugins()
assert not errors, errors
assert "tally" in {plugin.name for plugin in plugins}
late = {"tally.airflow.status_page", "pymysql", "pyspark", "confluent_kafka"}
print(sorted(late & set(sys.modules)))
"""
    )
    assert printed.splitlines()[-1] == "[]"
