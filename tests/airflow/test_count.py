"""The task `count`: the ledger decides, then the driver's exit code. Spark is a stand-in here."""

import json
import os
import shlex
import signal
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.count_run import Run
from tests.waiting import wait_until
from tests.world import World

pytestmark = [pytest.mark.airflow, pytest.mark.stack, pytest.mark.usefixtures("spark")]

STAND_IN = Path(__file__).with_name("stand_in.py")
LINE = "2017-07-30 14:09:08 INFO all is well"


@pytest.fixture
def planned(world: World) -> int:
    """A planned batch of three lines in two partitions."""
    world.produce([LINE, LINE], 0)
    world.produce([LINE], 1)
    batch = world.plan().batch
    assert batch is not None
    return batch.batch_id


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A spark-submit that is the stand-in, and the connection that leads to it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "spark-submit"
    program.write_text(
        f'#!/bin/bash\nexec {shlex.join([sys.executable, str(STAND_IN)])} "$@"\n', encoding="utf-8"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    connection = {"conn_type": "spark", "host": "local[1]"}
    monkeypatch.setenv("AIRFLOW_CONN_TALLY_SPARK", json.dumps(connection))
    return folder


def state(world: World, batch_id: int) -> str:
    """What the ledger says of a batch."""
    (row,) = world.rows("select state from batch where batch_id = %s", (batch_id,))
    return str(row["state"])


def test_a_committed_batch_is_told_to_the_asset_and_to_xcom(
    world: World, planned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event of the result's asset carries the batch, its ranges and its counts."""
    monkeypatch.setenv("STAND_IN", "commit")
    run = Run(world, planned, STAND_IN)
    run.execute()
    wanted = {
        "batch_ids": [planned],
        "ranges": [f"{world.topic}/0 [0, 2)", f"{world.topic}/1 [0, 1)"],
        "records": 3,
        "matched": 0,
        "malformed": 0,
    }
    (asset,) = run.operator.outlets
    event = dict(run.events[asset].extra)
    assert run.pushed == {"outcome": event}
    assert list(event.pop("seconds_until")) == ["claimed", "committed"]  # its read is not known
    assert event == wanted


def test_a_batch_of_which_too_much_is_malformed_is_a_warning_of_the_log(
    world: World, planned: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the rule of the health: a share above the limit, none at it."""
    monkeypatch.setenv("STAND_IN", "malformed")

    def warnings() -> list[str]:
        capsys.readouterr()
        Run(world, planned, STAND_IN).execute()
        return [text for text in capsys.readouterr().out.splitlines() if "] malformed: " in text]

    (warning,) = warnings()
    assert "[warning" in warning
    assert "3 of the 3 records" in warning
    assert f"tally dead-letters {world.name}" in warning
    world.configure(max_malformed_ratio=1.0)
    assert warnings() == []


def test_a_batch_that_is_committed_already_starts_no_spark(
    world: World, planned: int, spark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task cleared after its success does nothing, and still tells what the batch held."""
    monkeypatch.setenv("STAND_IN", "commit")
    Run(world, planned, STAND_IN).execute()
    (spark / "spark-submit").write_text("#!/bin/bash\nexit 70\n", encoding="utf-8")
    monkeypatch.delenv("AIRFLOW_CONN_TALLY_SPARK")
    again = Run(world, planned, STAND_IN)
    again.execute()
    assert again.pushed["outcome"]["records"] == 3


@pytest.mark.parametrize("code", [1, 3, 4, 5, 70, 137])
def test_a_driver_that_fails_after_the_commit_is_a_success(
    code: int, world: World, planned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With any exit code of spark-submit: the ledger decides."""
    monkeypatch.setenv("STAND_IN", f"commit,exit={code}")
    run = Run(world, planned, STAND_IN)
    run.execute()
    assert run.pushed["outcome"]["batch_ids"] == [planned]


@pytest.mark.parametrize("code", [2, 4])
def test_an_exit_that_a_retry_cannot_change_fails_for_good(
    code: int, world: World, planned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the job's own message, so that the task's error says what to do."""
    from airflow.sdk.exceptions import AirflowFailException

    words = "[data-loss] batch: gone. Next: tally plan"
    monkeypatch.setenv("STAND_IN", f"say={words},exit={code}")
    run = Run(world, planned, STAND_IN)
    with pytest.raises(AirflowFailException) as caught:
        run.execute()
    assert words in str(caught.value)
    assert state(world, planned) == "planned"
    assert not run.pushed
    assert not dict(run.events)


@pytest.mark.parametrize("code", [1, 3, 5, 70, 137])
def test_an_exit_that_may_pass_is_retried(
    code: int, world: World, planned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed driver, a crash, no answer of a server, a batch of another attempt."""
    from airflow.sdk.exceptions import AirflowException, AirflowFailException

    monkeypatch.setenv("STAND_IN", f"exit={code}")
    with pytest.raises(AirflowException) as caught:
        Run(world, planned, STAND_IN).execute()
    assert not isinstance(caught.value, AirflowFailException)
    assert state(world, planned) == "planned"


def test_a_driver_that_ends_well_without_a_commit_is_not_believed(
    world: World, planned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Success is what the ledger says, not an exit code of 0."""
    from airflow.sdk.exceptions import AirflowException

    monkeypatch.setenv("STAND_IN", "exit=0")
    with pytest.raises(AirflowException, match="batch is not committed in the ledger"):
        Run(world, planned, STAND_IN).execute()


def test_an_abandoned_batch_fails_for_good_without_spark(
    world: World, planned: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its offsets are planned again by the next run."""
    from airflow.sdk.exceptions import AirflowFailException

    world.execute(
        "update batch set state = 'abandoned', abandoned_at = now(), abandoned_by = 'ann',"
        " reason = 'a test' where batch_id = %s",
        (planned,),
    )
    monkeypatch.setenv("STAND_IN", f"report={tmp_path / 'started'}")
    with pytest.raises(AirflowFailException, match="abandoned by ann: a test"):
        Run(world, planned, STAND_IN).execute()
    assert not (tmp_path / "started").exists()


def test_without_a_spark_connection_nothing_is_submitted(
    world: World, planned: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A missing connection must not become master=yarn."""
    from airflow.sdk.exceptions import AirflowFailException

    monkeypatch.delenv("AIRFLOW_CONN_TALLY_SPARK")
    monkeypatch.setenv("STAND_IN", f"report={tmp_path / 'started'}")
    with pytest.raises(AirflowFailException, match=r"\[spark-connection\]"):
        Run(world, planned, STAND_IN).execute()
    assert not (tmp_path / "started").exists()


def test_the_driver_works_with_the_connections_of_airflow(
    world: World, planned: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Credentials that only Airflow knows reach the driver, by a private file that then is gone."""
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
    monkeypatch.setenv("STAND_IN", f"report={tmp_path / 'given'},commit")
    run = Run(world, planned, STAND_IN)
    run.execute()
    assert run.pushed["outcome"]["records"] == 3

    given = json.loads((tmp_path / "given").read_text(encoding="utf-8"))
    assert given["secrets_mode"] == 0o600
    assert not Path(given["environment"]["TALLY_SECRETS_FILE"]).exists()
    assert password not in json.dumps([given["argv"], given["environment"]])
    rendered = [getattr(run.operator, field) for field in run.operator.template_fields]
    assert password not in json.dumps(rendered)
    assert password not in json.dumps(run.pushed)


def test_the_connection_decides_where_the_driver_runs_spark(
    world: World, planned: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also inside the driver, whose configuration may name another master."""
    monkeypatch.setenv("TALLY_SPARK__MASTER", "local[7]")
    monkeypatch.setenv("STAND_IN", f"report={tmp_path / 'given'},commit")
    Run(world, planned, STAND_IN).execute()
    given = json.loads((tmp_path / "given").read_text(encoding="utf-8"))
    assert given["master"] == "local[1]"


@pytest.mark.parametrize(("master", "named"), [("local[1]", True), ("spark://master", False)])
def test_a_folder_for_temporary_files_is_named_to_a_local_spark_alone(
    world: World,
    planned: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    master: str,
    named: bool,
) -> None:
    """Executors on other machines do not have the task's folder."""
    connection = {"conn_type": "spark", "host": master}
    monkeypatch.setenv("AIRFLOW_CONN_TALLY_SPARK", json.dumps(connection))
    monkeypatch.setenv("STAND_IN", f"report={tmp_path / 'given'},commit")
    Run(world, planned, STAND_IN).execute()
    given = json.loads((tmp_path / "given").read_text(encoding="utf-8"))
    assert given["master"].startswith(master)
    assert any(word.startswith("spark.local.dir=") for word in given["argv"]) == named


def test_killing_the_task_ends_the_driver_and_takes_its_secrets_away(
    world: World, planned: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What Airflow does on a timeout, or when a user marks the task as failed."""
    from airflow.sdk.exceptions import AirflowException

    monkeypatch.setenv("STAND_IN", f"report={tmp_path / 'given'},sleep")
    run = Run(world, planned, STAND_IN)

    def kill() -> None:
        wait_until((tmp_path / "given").exists)
        run.operator.on_kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(AirflowException):
        run.execute()
    killer.join()
    given = json.loads((tmp_path / "given").read_text(encoding="utf-8"))
    assert not Path(given["environment"]["TALLY_SECRETS_FILE"]).exists()
    assert not Path(f"/proc/{given['pid']}").exists()
    assert state(world, planned) == "planned"


def test_killing_the_task_while_its_driver_is_made_starts_none(
    world: World, planned: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The signal can come when there is a driver that the task does not know yet."""
    from airflow.sdk.exceptions import AirflowException

    from tally.airflow import count

    monkeypatch.setenv("STAND_IN", f"report={tmp_path / 'given'}")
    run = Run(world, planned, STAND_IN)

    class AskedMeanwhile(count.DriverHook):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            run.operator.on_kill()

    monkeypatch.setattr(count, "DriverHook", AskedMeanwhile)
    with pytest.raises(AirflowException, match="before the driver started"):
        run.execute()
    assert not (tmp_path / "given").exists()
    assert state(world, planned) == "planned"


def test_a_timeout_ends_the_driver_too(
    world: World, planned: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Airflow's own timeout, as it runs a task; no process of the driver is left."""
    from airflow.sdk.exceptions import AirflowTaskTimeout
    from airflow.sdk.execution_time import task_runner

    monkeypatch.setenv("STAND_IN", f"report={tmp_path / 'given'},sleep")
    run = Run(world, planned, STAND_IN)
    run.operator.execution_timeout = timedelta(hours=1)

    def let_it_be_over() -> None:
        wait_until((tmp_path / "given").exists)
        # As Airflow's own alarm does after that hour.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

    clock = threading.Thread(target=let_it_be_over)
    clock.start()
    with pytest.raises(AirflowTaskTimeout):
        task_runner._run_execute_callable({}, lambda **_: run.execute(), run.operator)
    clock.join()
    given = json.loads((tmp_path / "given").read_text(encoding="utf-8"))
    assert not Path(given["environment"]["TALLY_SECRETS_FILE"]).exists()
    assert not Path(f"/proc/{given['pid']}").exists()
