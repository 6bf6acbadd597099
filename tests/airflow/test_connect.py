"""The task `count` with a connection of type `spark_connect`: a real server, the real job."""

import json
import threading
import time
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
    """A planned batch of three lines, and a connection to the server."""
    define(monkeypatch, host="localhost", port=connect.port, login="ann", password=connect.token)
    world.produce(LINES)
    batch = world.plan().batch
    assert batch is not None
    return batch.batch_id


def drivers(batch_id: int) -> list[psutil.Process]:
    """The processes that work on the batch."""
    wanted = [str(JOB), "--batch", str(batch_id)]
    return [p for p in psutil.process_iter(["cmdline"]) if (p.info["cmdline"] or [])[-3:] == wanted]


@pytest.mark.stack
def test_the_task_counts_on_the_server(
    world: World, connect: ConnectServer, planned: int, caplog: pytest.LogCaptureFixture
) -> None:
    """As with spark-submit, to the last word; and the token shows nowhere."""
    run = Run(world, planned, JOB)
    seen: list[str] = []
    watcher = threading.Thread(target=watch, args=(planned, seen))
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


def watch(batch_id: int, seen: list[str]) -> None:
    """What everybody on the machine, and what the owner, sees of the driver."""
    while not (found := drivers(batch_id)):
        time.sleep(0.02)
    seen += [repr(found[0].cmdline()), repr(found[0].environ())]


@pytest.mark.stack
def test_killing_the_task_ends_what_the_server_does_for_it(
    world: World, connect: ConnectServer, planned: int
) -> None:
    """The driver gives its session back; the next attempt counts, each line once."""
    from airflow.sdk.exceptions import AirflowException

    # Spark waits for records that never come: long enough to be killed in the middle.
    world.execute("update segment set until_offset = 4 where batch_id = %s", (planned,))
    before = len(connect.events())
    run = Run(world, planned, JOB)

    def kill() -> None:
        wait_until(lambda: "ConnectOperationStarted" in connect.events()[before:], 60)
        run.operator.on_kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(AirflowException, match="exit code 143"):
        run.execute()
    killer.join()
    assert not drivers(planned)
    wait_until(lambda: "ConnectOperationCanceled" in connect.events()[before:], 60)
    assert "ConnectSessionClosed" in connect.events()[before:]
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
    """But the token, which is a secret; one that was meant for another server is forgotten."""
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
    """Without telling the token."""
    from tally.airflow.connect_driver import connect_settings

    define(monkeypatch, host="spark host", password="s3cret")
    with pytest.raises(SparkConnectionError, match="gives no address") as caught:
        connect_settings("tally_spark", SparkSettings())
    assert "s3cret" not in str(caught.value)
