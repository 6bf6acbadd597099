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

from tests.airflow.stand_in import commit
from tests.airflow.tasks import JOB, Count
from tests.connect_server import ConnectServer
from tests.waiting import wait_until
from tests.world import World

pytestmark = [pytest.mark.airflow, pytest.mark.stack]

LINE = "2017-07-30 14:09:08 INFO all is well"


def plan(world: World, *lines: str) -> int:
    """A planned batch of these lines."""
    world.produce(lines)
    batch = world.plan().batch
    assert batch is not None
    return batch.batch_id


@pytest.fixture
def planned(world: World, stand_in: Path) -> int:
    """A planned batch of three lines in two partitions, and the stand-in."""
    assert stand_in.exists()
    world.produce([LINE], 1)
    return plan(world, LINE, LINE)


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """Where the stand-in reports what it was given; there is no file before it was started."""
    return tmp_path / "given"


def reported(given: Path) -> dict[str, Any]:
    """What the stand-in was given."""
    told: dict[str, Any] = json.loads(given.read_text(encoding="utf-8"))
    return told


def state(world: World) -> str:
    """What the ledger says of the batch."""
    (batch,) = world.batches()
    return str(batch["state"])


def test_a_committed_batch_is_told_to_the_asset_and_to_xcom(world: World, planned: int) -> None:
    """The event of the result's asset carries the batch, its ranges and its counts."""
    count = Count(world, planned)
    count.execute()
    (asset,) = count.operator.outlets
    event = dict(count.events[asset].extra)
    assert count.outcome == event
    assert list(event.pop("seconds_until")) == ["claimed", "read", "committed"]
    assert event == {
        "batch_ids": [planned],
        "ranges": [f"{world.topic}/0 [0, 2)", f"{world.topic}/1 [0, 1)"],
        "records": 3,
        "matched": 0,
        "malformed": 0,
    }


def test_a_batch_of_which_too_much_is_malformed_is_a_warning_of_the_log(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the rule of the health: a share above the limit, none at it."""
    world.produce(["garbage"] * 3)
    ran = world.minute()
    assert ran is not None

    def warnings() -> list[str]:
        capsys.readouterr()
        Count(world, ran.batch.batch_id).execute()
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
    for code in (2, 4, 1, 3, 5, 70, 137):
        stand_in.write_text(f"#!/bin/bash\necho '{words}'; exit {code}\n", encoding="utf-8")
        count = Count(world, planned)
        with pytest.raises(AirflowException) as caught:
            count.execute()
        assert isinstance(caught.value, AirflowFailException) == (code in {2, 4}), code
        assert words in str(caught.value)
        assert (state(world), count.xcoms, dict(count.events)) == ("planned", {}, {})


def test_a_driver_that_ends_well_without_a_commit_is_not_believed(
    world: World, planned: int, stand_in: Path
) -> None:
    """Success is what the ledger says, not an exit code of 0."""
    stand_in.write_text("#!/bin/bash\nexit 0\n", encoding="utf-8")
    with pytest.raises(AirflowException, match="batch is not committed in the ledger"):
        Count(world, planned).execute()


def test_what_an_operator_must_change_fails_for_good_without_spark(
    world: World, planned: int, given: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing connection, which must not become master=yarn; a batch that was abandoned."""
    monkeypatch.setenv("STAND_IN", f"report={given}")
    with monkeypatch.context() as patch:
        patch.delenv("AIRFLOW_CONN_TALLY_SPARK")
        with pytest.raises(AirflowFailException, match=r"\[spark-connection\]"):
            Count(world, planned).execute()
    world.execute(
        "update batch set state = 'abandoned', abandoned_at = now(), abandoned_by = 'ann',"
        " reason = 'a test' where batch_id = %s",
        (planned,),
    )
    with pytest.raises(AirflowFailException, match="abandoned by ann: a test"):
        Count(world, planned).execute()
    assert not given.exists()


@pytest.mark.parametrize("master", ["local[1]", "spark://master"])
def test_the_driver_works_with_the_connections_of_airflow(
    master: str, world: World, planned: int, given: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials come by a private file that is gone then; the connection names Spark's master."""
    mysql = world.settings.mysql
    password = mysql.password.get_secret_value()
    connection = {
        "conn_type": "mysql",
        "host": mysql.host,
        "port": mysql.port,
        "login": mysql.user,
        "password": password,
        "schema": mysql.database,
    }
    world.config.write_text(
        world.config.read_text(encoding="utf-8").replace(password, "wrong"), encoding="utf-8"
    )
    monkeypatch.setenv("AIRFLOW_CONN_TALLY_MYSQL", json.dumps(connection))
    monkeypatch.setenv(
        "AIRFLOW_CONN_TALLY_SPARK", json.dumps({"conn_type": "spark", "host": master})
    )
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
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Do something in a thread, until it and the block have ended."""
    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join()


@contextmanager
def meanwhile(given: Path, action: Callable[[], object]) -> Iterator[None]:
    """Do something as soon as the driver runs; then no process and no secret of it is left."""

    def act() -> None:
        wait_until(given.exists)
        action()

    with beside(act):
        yield
    told = reported(given)
    assert not Path(told["environment"]["TALLY_SECRETS_FILE"]).exists()
    assert not Path(f"/proc/{told['pid']}").exists()


def test_killing_the_task_ends_the_driver_and_takes_its_secrets_away(
    world: World, planned: int, given: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Airflow does when a user marks the task as failed."""
    monkeypatch.setenv("STAND_IN", f"report={given},sleep")
    count = Count(world, planned)
    with meanwhile(given, count.operator.on_kill), pytest.raises(AirflowException):
        count.execute()
    assert state(world) == "planned"


def test_a_timeout_ends_the_driver_too(
    world: World, planned: int, given: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow's own timeout, as it runs a task; no process of the driver is left."""
    from airflow.sdk.execution_time import task_runner

    monkeypatch.setenv("STAND_IN", f"report={given},sleep")
    count = Count(world, planned)
    count.operator.execution_timeout = timedelta(hours=1)

    def let_it_be_over() -> None:
        # As Airflow's own alarm does after that hour.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

    with meanwhile(given, let_it_be_over), pytest.raises(AirflowTaskTimeout):
        task_runner._run_execute_callable({}, lambda **_: count.execute(), count.operator)


def test_killing_the_task_while_its_driver_is_made_starts_none(
    world: World, planned: int, given: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal can come when there is a driver that the task does not know yet."""
    from tally.airflow import count as module

    monkeypatch.setenv("STAND_IN", f"report={given}")
    count = Count(world, planned)

    class AskedMeanwhile(module.DriverHook):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            count.operator.on_kill()

    monkeypatch.setattr(module, "DriverHook", AskedMeanwhile)
    with pytest.raises(AirflowException, match="before the driver started"):
        count.execute()
    assert not given.exists()
    assert state(world) == "planned"


# --- with a connection of type `spark_connect`: a real server, the real job


def drivers(config: Path, batch_id: int) -> list[psutil.Process]:
    """The processes that work on the batch of that number in the ledger of this configuration."""
    wanted = [str(JOB), "--batch", str(batch_id)]
    return [
        p
        for p in psutil.process_iter(["cmdline", "environ"])
        if (p.info["cmdline"] or [])[-3:] == wanted
        and (p.info["environ"] or {}).get("TALLY_CONFIG") == str(config)
    ]


def told(connect: ConnectServer, world: World, event: str) -> bool:
    """Whether the server has told of such an event of the world's own user."""
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
    batch_id = plan(world, "2017-07-30 14:09:08 ERROR one", "2017-07-30 14:09:09 ERROR two", "none")
    # Spark waits for records that never come: long enough to be killed in the middle.
    world.execute("update segment set until_offset = 4 where batch_id = %s", (batch_id,))
    count = Count(world, batch_id)
    count.operator.driver_grace_s = 300.0  # a busy machine may need more than Airflow grants

    def kill() -> None:
        wait_until(partial(told, connect, world, "ConnectOperationStarted"))
        count.operator.on_kill()

    with beside(kill), pytest.raises(AirflowException, match="exit code 143"):
        count.execute()
    assert not drivers(world.config, batch_id)
    wait_until(partial(told, connect, world, "ConnectOperationCanceled"))
    wait_until(partial(told, connect, world, "ConnectSessionClosed"))
    assert world.counts() == {}

    world.execute("update segment set until_offset = 3 where batch_id = %s", (batch_id,))
    count, seen = Count(world, batch_id), list[str]()

    def watch() -> None:
        """What other users of the machine, and what the owner, can see of the driver."""
        driver = wait_until(partial(drivers, world.config, batch_id))[0]
        seen.extend((repr(driver.cmdline()), repr(driver.environ())))

    with caplog.at_level("INFO"), beside(watch):
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
