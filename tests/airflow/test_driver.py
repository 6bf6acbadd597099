"""Starting and ending spark-submit, with a small program in its place."""

import json
import os
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tally.errors import SparkConnectionError
from tests.spark_submit import SPARK_HOME, spark_environment
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tally.airflow.connect_driver import ConnectDriver
    from tally.airflow.driver import DriverHook

pytestmark = pytest.mark.airflow


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the PATH, besides the system's; and a connection to local Spark."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv(
        "AIRFLOW_CONN_TALLY_SPARK", json.dumps({"conn_type": "spark", "host": "local[1]"})
    )
    return folder


def write_program(folder: Path, body: str) -> None:
    """Put a spark-submit of our own there."""
    program = folder / "spark-submit"
    program.write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
    program.chmod(0o755)


def hook(folder: Path, **environment: str) -> "DriverHook":
    """A hook that finds the program."""
    from tally.airflow.driver import DriverHook

    return DriverHook(
        environment={"PATH": f"{folder}:/usr/bin:/bin", **environment},
        conn_id="tally_spark",
        application_args=["--batch", "7"],
    )


@pytest.mark.parametrize("code", [1, 3, 4, 5, 70])
def test_the_jobs_exit_code_and_error_are_known(code: int, programs: Path) -> None:
    """They decide whether a retry makes sense, and what the operator reads."""
    from airflow.sdk.exceptions import AirflowException

    write_program(
        programs,
        f"echo '26/11/21 INFO noise'; echo '[data-loss] batch 7: gone. Next: look'; "
        f"echo '26/11/21 INFO ShutdownHookManager'; exit {code}",
    )
    driver = hook(programs)
    with pytest.raises(AirflowException):
        driver.submit("job.py")
    assert driver.exit_code == code
    assert driver.error_line == "[data-loss] batch 7: gone. Next: look"


def test_without_an_error_of_tally_the_last_line_is_shown(programs: Path) -> None:
    """A JVM that does not start prints its own error."""
    from airflow.sdk.exceptions import AirflowException

    write_program(programs, "echo first; echo 'Error: no JVM'; exit 1")
    driver = hook(programs)
    with pytest.raises(AirflowException):
        driver.submit("job.py")
    assert driver.error_line == "Error: no JVM"


def test_the_driver_gets_just_the_environment_it_was_given(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other variable of the worker reaches it."""
    monkeypatch.setenv("LEAK", "s3cret")
    write_program(programs, f'env > "{tmp_path}/env"; printf "%s " "$@" > "{tmp_path}/args"')
    hook(programs, WANTED="yes").submit("job.py")
    environment = (tmp_path / "env").read_text(encoding="utf-8")
    assert "WANTED=yes" in environment
    assert "s3cret" not in environment
    arguments = (tmp_path / "args").read_text(encoding="utf-8").split()
    assert arguments[:2] == ["--master", "local[1]"]
    assert arguments[-3:] == ["job.py", "--batch", "7"]


def test_a_missing_spark_submit_is_said_plainly(programs: Path) -> None:
    """Instead of a FileNotFoundError."""
    with pytest.raises(SparkConnectionError, match="not on the worker's PATH"):
        hook(programs, PATH=str(programs)).submit("job.py")


@pytest.mark.parametrize("stubborn", [False, True])
def test_killing_ends_every_process_of_the_driver(
    stubborn: bool, programs: Path, tmp_path: Path
) -> None:
    """spark-submit, the JVM and the Python driver: children too, and those that ignore SIGTERM."""
    from airflow.sdk.exceptions import AirflowException

    trap = "trap '' TERM; " if stubborn else ""
    pids = tmp_path / "pids"
    write_program(
        programs,
        f"bash -c \"{trap}echo \\$\\$ >> '{pids}'; while true; do sleep 0.1; done\" &\n"
        f"{trap}echo $$ >> '{pids}'\nwait; while true; do sleep 0.1; done",
    )
    driver = hook(programs)

    def kill() -> None:
        wait_until(lambda: pids.exists() and len(pids.read_text(encoding="utf-8").split()) >= 2)
        driver.on_kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(AirflowException):
        driver.submit("job.py")
    killer.join()
    for pid in pids.read_text(encoding="utf-8").split():
        assert not alive(int(pid))


def test_killing_a_driver_that_has_ended_does_nothing(programs: Path) -> None:
    """Airflow may ask at any moment."""
    write_program(programs, "exit 0")
    driver = hook(programs)
    driver.submit("job.py")
    driver.on_kill()
    assert driver.exit_code == 0


@pytest.mark.parametrize("connect", [False, True])
def test_a_driver_that_was_asked_to_end_is_not_started(
    connect: bool, programs: Path, tmp_path: Path
) -> None:
    """Airflow may ask before there is a process."""
    from airflow.sdk.exceptions import AirflowException

    driver, job = sleeper(programs, tmp_path, connect=connect)
    driver.on_kill()
    with pytest.raises(AirflowException, match="before the driver started"):
        driver.submit(job)
    assert driver.exit_code is None
    assert not (tmp_path / "pid").exists()


@pytest.mark.parametrize("connect", [False, True])
def test_a_driver_that_is_asked_to_end_while_it_starts_ends(
    connect: bool, programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow's signal can come when the process runs and the driver does not know it yet."""
    from airflow.sdk.exceptions import AirflowException

    driver, job = sleeper(programs, tmp_path, connect=connect)

    class AskedMeanwhile(subprocess.Popen[str]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            wait_until((tmp_path / "pid").exists)
            driver.on_kill()

    monkeypatch.setattr(subprocess, "Popen", AskedMeanwhile)
    with pytest.raises(AirflowException):
        driver.submit(job)
    assert not alive(int((tmp_path / "pid").read_text(encoding="utf-8")))


def sleeper(
    programs: Path, tmp_path: Path, *, connect: bool
) -> tuple["DriverHook | ConnectDriver", str]:
    """A driver and its job, which writes its process id to ``pid`` and sleeps."""
    from tally.airflow.connect_driver import ConnectDriver

    script = f"echo $$ > '{tmp_path}/new' && mv '{tmp_path}/new' '{tmp_path}/pid' && sleep 120"
    if not connect:
        write_program(programs, script)
        return hook(programs), "job.py"
    job = tmp_path / "job.py"
    job.write_text(
        f"import os; os.execv('/bin/bash', ['bash', '-c', {script!r}])\n", encoding="utf-8"
    )
    return ConnectDriver(environment={"PATH": "/usr/bin:/bin"}, application_args=[]), str(job)


def test_the_driver_does_not_die_with_its_workers_group(programs: Path, tmp_path: Path) -> None:
    """A signal to the worker's group ends the task by Tally's rules, not the driver behind them."""
    write_program(programs, f"ps -o pgid= -p $$ > '{tmp_path}/group'")
    hook(programs).submit("job.py")
    group = int((tmp_path / "group").read_text(encoding="utf-8"))
    assert group != os.getpgid(0)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        os.kill(pid, 0)
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False


@pytest.mark.spark
def test_a_healthy_spark_says_nothing_of_its_own(tmp_path: Path) -> None:
    """The task's log has the job's sentences; Spark adds warnings and errors only."""
    from tally.airflow.driver import submit_conf
    from tally.spark.driver_log import is_noise
    from tally.spark.session import QUICK_START

    script = tmp_path / "job.py"
    script.write_text(
        "from pyspark.sql import SparkSession\n"
        "print(SparkSession.builder.getOrCreate().range(5).count(), flush=True)\n",
        encoding="utf-8",
    )
    conf = submit_conf({"spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}, QUICK_START)
    options = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    ended = subprocess.run(
        [SPARK_HOME / "bin" / "spark-submit", "--master", "local[1]", *options, script],
        env=spark_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=True,
    )
    assert [line for line in ended.stdout.splitlines() if not is_noise(line)] == [b"5"]


def test_the_log_of_the_task_leaves_noise_out(programs: Path) -> None:
    """What is not noise is there, in order."""
    write_program(
        programs, "echo first; echo 'WARNING: Using incubator modules: jdk.incubator.vector'"
    )
    driver = hook(programs)
    driver.submit("job.py")
    assert driver.error_line == "first"
