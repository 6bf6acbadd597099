"""The task `count` with a connection of type `spark_connect`: a real server, the real job."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from tally.config.servers import SparkSettings
from tally.errors import SparkConnectionError
from tests.airflow.count_run import Run
from tests.connect_server import ConnectServer
from tests.waiting import wait_until
from tests.world import World

pytestmark = [pytest.mark.airflow]

JOB = Path(__file__).parents[2] / "jobs" / "count_errors.py"
LINES = ["2017-07-30 14:09:08 ERROR one", "2017-07-30 14:09:09 ERROR two", "nothing"]


def define(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    """Define the connection, as a worker's environment may."""
    connection = json.dumps({"conn_type": "spark_connect", **fields})
    monkeypatch.setenv("AIRFLOW_CONN_TALLY_SPARK", connection)


@pytest.fixture
def planned(world: World, connect: ConnectServer, monkeypatch: pytest.MonkeyPatch) -> int:
    """A planned batch of three lines, and a connection to the server under a name of its own."""
    user = {"login": world.name, "password": connect.token}
    define(monkeypatch, host="localhost", port=connect.port, **user)
    world.produce(LINES)
    batch = world.plan().batch
    assert batch is not None
    return batch.batch_id


def drivers(config: Path, batch_id: int) -> list[psutil.Process]:
    """The processes that work on the batch of that number in the ledger of this configuration."""
    wanted = [str(JOB), "--batch", str(batch_id)]
    return [
        p
        for p in psutil.process_iter(["cmdline", "environ"])
        if (p.info["cmdline"] or [])[-3:] == wanted
        and (p.info["environ"] or {}).get("TALLY_CONFIG") == str(config)
    ]


def test_a_driver_is_told_from_one_of_another_ledger(tmp_path: Path) -> None:
    """Each ledger numbers its own batches, so the number alone says nothing about a process."""
    mine, other = tmp_path / "mine.toml", tmp_path / "other.toml"
    with subprocess.Popen(
        [sys.executable, "-c", "input()", str(JOB), "--batch", "2"],
        env={**os.environ, "TALLY_CONFIG": str(other)},
        stdin=subprocess.PIPE,
    ) as process:
        try:
            assert [p.pid for p in drivers(other, 2)] == [process.pid]
            assert drivers(other, 3) == []
            assert drivers(mine, 2) == []
        finally:
            process.kill()


@pytest.mark.stack
def test_the_task_counts_on_the_server(
    world: World, connect: ConnectServer, planned: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The same outcome as with spark-submit; the token is shown nowhere."""
    run = Run(world, planned, JOB)
    seen: list[str] = []
    watcher = threading.Thread(target=watch, args=(world, planned, seen))
    watcher.start()
    with caplog.at_level("INFO"):
        run.execute()
    watcher.join()
    assert world.counts() == {"2017-07-30 14:09": 2}
    assert [row["value"] for row in world.dead_letters()] == [b"nothing"]
    assert run.pushed["outcome"]["records"] == 3
    assert world.audit().holds

    rendered = [getattr(run.operator, field) for field in run.operator.template_fields]
    assert f"batch {planned} committed 3 records" in caplog.text
    for shown in (caplog.text, repr(rendered), repr(run.pushed), *seen):
        assert connect.token not in shown
    assert len(seen) == 2


def watch(world: World, batch_id: int, seen: list[str]) -> None:
    """What other users of the machine, and what the owner, can see of the driver."""
    driver = wait_until(lambda: drivers(world.config, batch_id))[0]
    seen += [repr(driver.cmdline()), repr(driver.environ())]


def told(connect: ConnectServer, world: World, event: str) -> bool:
    """Whether the server has told of such an event of the world's own user."""
    lines = connect.events().splitlines()
    return any(event in line and world.name in line for line in lines)


@pytest.mark.stack
def test_killing_the_task_ends_what_the_server_does_for_it(
    world: World, connect: ConnectServer, planned: int
) -> None:
    """The driver closes its session; the next attempt counts each line once."""
    from airflow.sdk.exceptions import AirflowException

    # Spark waits for records that never come: long enough to be killed in the middle.
    world.execute("update segment set until_offset = 4 where batch_id = %s", (planned,))
    run = Run(world, planned, JOB)
    run.operator.driver_grace_s = 300.0  # a busy machine may need more than Airflow grants

    def kill() -> None:
        wait_until(lambda: told(connect, world, "ConnectOperationStarted"))
        run.operator.on_kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(AirflowException, match="exit code 143"):
        run.execute()
    killer.join()
    assert not drivers(world.config, planned)
    wait_until(lambda: told(connect, world, "ConnectOperationCanceled"))
    wait_until(lambda: told(connect, world, "ConnectSessionClosed"))
    assert world.counts() == {}

    world.execute("update segment set until_offset = 3 where batch_id = %s", (planned,))
    Run(world, planned, JOB).execute()
    assert world.counts() == {"2017-07-30 14:09": 2}


@pytest.mark.stack
def test_a_refused_token_fails_for_good(
    world: World, connect: ConnectServer, planned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another try would be refused, too."""
    from airflow.sdk.exceptions import AirflowFailException

    define(monkeypatch, host="localhost", port=connect.port, password="wr0ng")
    with pytest.raises(AirflowFailException, match=r"\[access-denied\]") as caught:
        Run(world, planned, JOB).execute()
    assert "wr0ng" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "master", "token"),
    [
        ({"host": "sc://spark", "port": 15002}, "sc://spark:15002/", ""),
        ({"host": "spark", "login": "ann b"}, "sc://spark/;user_id=ann%20b", ""),
        ({"host": "spark", "password": "a;b=c/ d"}, "sc://spark/", "a;b=c/ d"),
        (
            {"host": "spark", "password": "s3cret", "extra": {"use_ssl": True}},
            "sc://spark/;use_ssl=True",
            "s3cret",
        ),
    ],
)
def test_the_address_is_read_as_the_provider_reads_it(
    fields: dict[str, Any], master: str, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Except the token, which is a secret; a token for another server is dropped."""
    from tally.airflow.connect_driver import connect_settings
    from tally.airflow.connections import require_spark_connection

    define(monkeypatch, **fields)
    require_spark_connection()
    configured = SparkSettings.model_validate(
        {"connect_token": "an0ther", "conf": {"spark.a": "1"}}
    )
    settings = connect_settings("tally_spark", configured)
    assert settings.master == master
    assert settings.connect_token.get_secret_value() == token
    assert settings.conf == {"spark.a": "1"}
    assert not token or token not in repr(settings)


def test_an_address_of_no_server_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error does not contain the token."""
    from tally.airflow.connect_driver import connect_settings

    define(monkeypatch, host="spark host", password="s3cret")
    with pytest.raises(SparkConnectionError, match="gives no address") as caught:
        connect_settings("tally_spark", SparkSettings())
    assert "s3cret" not in str(caught.value)
