"""`tally connect-server`: a server for an Airflow of one's own, kept running."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

pytest.importorskip("pyspark")

from tally.config.servers import SparkSettings
from tally.errors import AccessDeniedError, SparkUnavailableError
from tally.spark.connect import ConnectPatience, connect_session
from tally_local.stack.stack import Stack
from tests.chaos.attack import arguments
from tests.chaos.system import TALLY
from tests.conftest import PROJECT
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:.*RETRIES_EXCEEDED"),
]

TOKEN = "a token"  # noqa: S105 - of a server that only this test asks


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration without pipelines, with the connector's jars."""
    path = tmp_path / "a folder" / "tally.toml"
    path.parent.mkdir()
    path.write_text(f'[spark]\njars_dir = "{Stack(project=PROJECT).jars_dir}"\n', encoding="utf-8")
    return path


@pytest.fixture
def server(config: Path) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """The command, which has just been started, and its port."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
    scratch, defaults = config.parent / "tmp", config.parent / "conf" / "spark-defaults.conf"
    scratch.mkdir()
    defaults.parent.mkdir()
    defaults.write_text("spark.sql.debug.maxToStringFields 77\n", encoding="utf-8")
    with subprocess.Popen(
        [TALLY, "--config", config, "connect-server", "--master", "local[1]", "--port", str(port)],
        env={
            **os.environ,
            "TALLY_SPARK__CONNECT_TOKEN": TOKEN,
            "TMPDIR": str(scratch),
            "SPARK_CONF_DIR": str(defaults.parent),
            "SPARK_REMOTE": "sc://localhost:1",
        },
    ) as process:
        yield process, port
        process.kill()


def count(port: int, token: str = TOKEN) -> int:
    """Count on the server, which must have Spark's Kafka connector."""
    settings = SparkSettings.model_validate(
        {"master": f"sc://localhost:{port}", "connect_token": token}
    )
    with connect_session(settings, {}, ConnectPatience(tries=1)) as session:
        assert session.conf.get("spark.sql.debug.maxToStringFields") == "77"
        return session.range(7).count()


def counts(port: int) -> bool:
    try:
        return count(port) == 7
    except SparkUnavailableError:
        return False


def test_a_server_of_ones_own_counts_until_it_is_told_to_end(
    server: tuple["subprocess.Popen[bytes]", int], config: Path
) -> None:
    """It asks for its token, which no command line has, and leaves nothing behind.

    Spark's own defaults apply to it, and no variable makes a client of it.
    """
    process, port = server
    wait_until(lambda: counts(port))
    with pytest.raises(AccessDeniedError):
        count(port, "another")
    family = [psutil.Process(process.pid)]
    family += family[0].children(recursive=True)
    commands = list(map(arguments, family))
    assert sum("spark-internal" in command for command in commands) == 1
    assert all(TOKEN not in " ".join(command) for command in commands)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert not any(map(arguments, family))
    assert list((config.parent / "tmp").iterdir()) == []


def test_a_server_without_a_token_is_refused(config: Path) -> None:
    """Everybody on the machine could count on it."""
    done = subprocess.run(
        [TALLY, "--config", config, "connect-server"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "spark.connect_token is missing" in done.stderr
    assert "TALLY_SPARK__CONNECT_TOKEN" in done.stderr
