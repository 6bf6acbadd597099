"""The task `count`: the ledger decides, then the driver's exit code. Spark is a stand-in here."""

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowTaskTimeout

from tests.airflow import ledgers
from tests.airflow.dag_run import use_spark
from tests.airflow.stand_in import commit
from tests.airflow.tasks import JOB, Count
from tests.connect_server import ConnectServer
from tests.minute.steps import abandoned
from tests.waiting import wait_until
from tests.world import World

pytestmark = [pytest.mark.airflow, pytest.mark.stack]

LINE = "2017-07-30 14:09:08 INFO all is well"


@pytest.fixture
def planned(world: World, stand_in: Path) -> int:
    """A planned batch of three lines in two partitions, and the stand-in."""
    world.produce([LINE], 1)
    return world.planned([LINE, LINE]).batch_id


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """Where the stand-in reports what it was given; there is no file before it was started."""
    return tmp_path / "given"


def reported(given: Path) -> Any:
    return json.loads(given.read_text(encoding="utf-8"))


def state(world: World) -> str:
    return str(world.batches()[0]["state"])


def test_a_batch_of_which_too_much_is_malformed_is_a_warning_of_the_log(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    batch_id = ledgers.count(world, {}, dead_letters=["garbage"] * 3)

    def warnings() -> list[str]:
        capsys.readouterr()
        Count(world, batch_id).execute()
        return [text for text in capsys.readouterr().out.splitlines() if "] malformed: " in text]

    (warning,) = warnings()
    assert "[warning" in warning
    assert "3 of the 3 records" in warning
    assert f"tally dead-letters {world.name}" in warning
    world.configure(max_malformed_ratio=1.0)
    assert warnings() == []


def test_a_batch_that_is_committed_already_starts_no_spark(
    world: World, planned: int, stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task cleared after its success does nothing, and still tells what the batch held."""
    commit(world.settings, planned)
    stand_in.write_text("#!/bin/bash\nexit 70\n", encoding="utf-8")
    monkeypatch.delenv("AIRFLOW_CONN_TALLY_SPARK")
    again = Count(world, planned)
    again.execute()
    assert again.outcome["records"] == 3


@pytest.mark.parametrize("code", [4, 137])
def test_a_driver_that_fails_after_the_commit_is_a_success(
    code: int, world: World, planned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an exit code that is final otherwise, and with another: the ledger decides."""
    monkeypatch.setenv("STAND_IN", f"commit,exit={code}")
    count = Count(world, planned)
    count.execute()
    assert count.outcome["batch_ids"] == [planned]


def test_the_exit_code_of_a_batch_without_a_commit_says_whether_a_retry_makes_sense(
    world: World, planned: int, stand_in: Path
) -> None:
    """Usage and data loss fail for good, in the job's words; what may pass is tried again."""
    words = "[data-loss] batch: gone. Next: tally plan"
    for code in (2, 4, 1, 3, 5, 70, 137, 0):
        stand_in.write_text(f"#!/bin/bash\necho '{words}'; exit {code}\n", encoding="utf-8")
        count = Count(world, planned)
        with pytest.raises(AirflowException) as caught:
            count.execute()
        assert isinstance(caught.value, AirflowFailException) == (code in {2, 4}), code
        assert (words if code else "batch is not committed in the ledger") in str(caught.value)
        assert ("SIGKILL, perhaps because memory" in str(caught.value)) == (code == 137), code
        assert (state(world), count.xcoms, dict(count.events)) == ("planned", {}, {})


def test_what_an_operator_must_change_fails_for_good_without_spark(
    world: World, planned: int, given: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing connection, which must not become master=yarn; a batch that was abandoned."""
    monkeypatch.setenv("STAND_IN", f"report={given}")
    with monkeypatch.context() as patch:
        patch.delenv("AIRFLOW_CONN_TALLY_SPARK")
        with pytest.raises(AirflowFailException, match=r"\[spark-connection\]"):
            Count(world, planned).execute()
    abandoned(world, planned)
    with pytest.raises(AirflowFailException, match="abandoned by me: a test"):
        Count(world, planned).execute()
    assert not given.exists()


@pytest.mark.parametrize("master", ["local[1]", "spark://master"])
def test_the_driver_works_with_the_connections_of_airflow(
    master: str, world: World, planned: int, given: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mysql = world.settings.mysql
    password = mysql.password.get_secret_value()
    user = {"login": mysql.user, "password": password, "schema": mysql.database}
    connection = {"conn_type": "mysql", "host": mysql.host, "port": mysql.port, **user}
    text = world.config.read_text(encoding="utf-8")
    world.config.write_text(text.replace(password, "wrong"), encoding="utf-8")
    monkeypatch.setenv("AIRFLOW_CONN_TALLY_MYSQL", json.dumps(connection))
    use_spark(monkeypatch, master)
    monkeypatch.setenv("TALLY_SPARK__MASTER", "local[7]")
    monkeypatch.setenv("STAND_IN", f"report={given},commit")
    count = Count(world, planned)
    count.execute()
    assert count.outcome["records"] == 3
    told = reported(given)
    assert told["master"].startswith(master)
    has_folder = any(word.startswith("spark.local.dir=") for word in told["argv"])
    assert has_folder == (master == "local[1]")
    assert told["secrets_mode"] == 0o600
    assert not Path(told["environment"]["TALLY_SECRETS_FILE"]).exists()
    rendered = [getattr(count.operator, field) for field in count.operator.template_fields]
    for stored in (told["argv"], told["environment"], rendered, count.outcome):
        assert password not in json.dumps(stored)


@contextmanager
def once(condition: Callable[[], object], action: Callable[[], object]) -> Iterator[None]:
    """Do something beside the block, as soon as a condition is true."""

    def act() -> None:
        wait_until(condition)
        action()

    thread = threading.Thread(target=act)
    thread.start()
    yield
    thread.join()


def left_of(given: Path) -> list[Path]:
    told = reported(given)
    places = (Path(told["environment"]["TALLY_SECRETS_FILE"]), Path(f"/proc/{told['pid']}"))
    return [place for place in places if place.exists()]


def test_killing_the_task_or_its_timeout_ends_the_driver_and_takes_its_secrets_away(
    world: World, planned: int, given: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Airflow does when a user marks the task as failed, and after the task's own time."""
    from airflow.sdk.execution_time import task_runner

    monkeypatch.setenv("STAND_IN", f"report={given},sleep")
    count = Count(world, planned)
    with once(given.exists, count.operator.on_kill), pytest.raises(AirflowException):
        count.execute()
    assert (left_of(given), state(world)) == ([], "planned")
    given.unlink()
    count = Count(world, planned)
    count.operator.execution_timeout = timedelta(hours=1)

    def let_it_be_over() -> None:
        # As Airflow's own alarm does after that hour.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

    with once(given.exists, let_it_be_over), pytest.raises(AirflowTaskTimeout):
        task_runner._run_execute_callable({}, lambda **_: count.execute(), count.operator)
    assert left_of(given) == []


def test_killing_the_task_while_its_driver_is_made_starts_none(
    world: World, planned: int, given: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal can come when there is no process yet."""
    from tally.airflow import driver as module

    monkeypatch.setenv("STAND_IN", f"report={given}")
    count = Count(world, planned)

    made = module.submit_command

    def asked_meanwhile(*arguments: Any, **options: Any) -> list[str]:
        count.operator.on_kill()
        return made(*arguments, **options)

    monkeypatch.setattr(module, "submit_command", asked_meanwhile)
    with pytest.raises(AirflowException, match="before the driver started"):
        count.execute()
    assert not given.exists()
    assert state(world) == "planned"


# --- with a connection of type `spark_connect`: a real server, the real job


def drivers(config: Path) -> list[psutil.Process]:
    return [
        p
        for p in psutil.process_iter(["cmdline", "environ"])
        if str(JOB) in (p.info["cmdline"] or [])
        and (p.info["environ"] or {}).get("TALLY_CONFIG") == str(config)
    ]


def told(connect: ConnectServer, world: World, event: str) -> bool:
    lines = connect.events().splitlines()
    return any(event in line and world.name in line for line in lines)


def test_a_killed_task_leaves_nothing_and_the_next_attempt_counts_on_the_server(
    world: World,
    connect: ConnectServer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The killed driver closes its session; each line counts once; the token is shown nowhere."""
    user = {"login": world.name, "password": connect.token}  # a name of the world's own
    server = {"conn_type": "spark_connect", "host": "localhost", "port": connect.port}
    monkeypatch.setenv("AIRFLOW_CONN_TALLY_SPARK", json.dumps({**server, **user}))
    lines = ["2017-07-30 14:09:08 ERROR one", "2017-07-30 14:09:09 ERROR two", "none"]
    batch_id = world.planned(lines).batch_id
    # Spark waits for records that never come: long enough to be killed in the middle.
    world.execute("update segment set until_offset = 4 where batch_id = %s", (batch_id,))
    count = Count(world, batch_id)
    count.operator.driver.grace_s = 300.0  # a busy machine may need more than Airflow grants
    begun = partial(told, connect, world, "ConnectOperationStarted")
    with once(begun, count.operator.on_kill), pytest.raises(AirflowException, match="code 143"):
        count.execute()
    assert not drivers(world.config)
    wait_until(partial(told, connect, world, "ConnectOperationCanceled"))
    wait_until(partial(told, connect, world, "ConnectSessionClosed"))
    assert world.counts() == {}

    world.execute("update segment set until_offset = 3 where batch_id = %s", (batch_id,))
    count, seen = Count(world, batch_id), list[str]()

    def watch() -> None:
        """What other users of the machine, and what the owner, can see of the driver."""
        driver = drivers(world.config)[0]
        seen.extend((repr(driver.cmdline()), repr(driver.environ())))

    with caplog.at_level("INFO"), once(partial(drivers, world.config), watch):
        count.execute()
    assert world.counts() == {"2017-07-30 14:09": 2}
    assert [row["value"] for row in world.dead_letters()] == [b"none"]
    assert count.outcome["records"] == 3
    assert world.audit().holds
    assert f"batch {batch_id} committed 3 records" in caplog.text
    rendered = [getattr(count.operator, field) for field in count.operator.template_fields]
    assert len(seen) == 2
    for shown in (caplog.text, repr(rendered), repr(count.xcoms), *seen):
        assert connect.token not in shown
