"""Starting and ending the driver, with a small program in its place."""

import os
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.sdk.exceptions import AirflowException

from tally.airflow.driver import (
    Driver,
    driver_environment,
    secrets_file,
    submit_command,
    submit_conf,
)
from tally.config.loading import load_settings
from tally.config.servers import KafkaSettings, MySQLSettings, SparkSettings
from tally.config.settings import Settings
from tally.errors import ConfigError, SparkConnectionError
from tally.spark.java import LOGGING
from tests.airflow.dag_run import use_spark
from tests.waiting import wait_until

pytestmark = pytest.mark.airflow


Run = Callable[[], None]


def submitted(driver: Driver, folder: Path, script: str, **environment: str) -> Run:
    """Runs the driver with a spark-submit that is a script."""
    program = folder / "spark-submit"
    program.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    command = submit_command("job.py", ["--batch", "7"], name="a count", conf={})
    return partial(driver.run, command, {"PATH": f"{folder}:/usr/bin:/bin", **environment})


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on the PATH, besides the system's; and a connection to local Spark."""
    use_spark(monkeypatch)
    return tmp_path


def made(programs: Path, script: str, *, connect: bool) -> tuple[Driver, Run]:
    """A driver of either engine, with a script in the place of its program."""
    driver = Driver()
    if not connect:
        return driver, submitted(driver, programs, script)
    command = ["/bin/bash", "-c", script]
    return driver, partial(driver.run, command, {"PATH": "/usr/bin:/bin"})


@pytest.mark.parametrize("connect", [False, True])
def test_the_jobs_exit_code_and_error_are_known(connect: bool, programs: Path) -> None:
    """They decide whether a retry makes sense; a JVM that does not start prints its own error."""
    ours, noise = "[data-loss] batch 7: gone. Next: look", "echo '26/11/21 INFO noise'"
    java = "" if connect else "; echo 'WARNING: Using incubator modules: jdk.incubator.vector'"
    for code, printed, error in (
        (1, f"echo first; echo 'Error: no JVM'{java}", "Error: no JVM"),
        (4, f"{noise}; echo '{ours}'; {noise}", ours),
        (70, f"{noise}; echo '{ours}'; {noise}", ours),
    ):
        driver, run = made(programs, f"{printed}; exit {code}", connect=connect)
        with pytest.raises(AirflowException):
            run()
        assert (driver.exit_code, driver.error_line) == (code, error)


def test_the_driver_gets_just_the_environment_it_was_given(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a process group of its own: a signal to the worker's does not end it."""
    monkeypatch.setenv("LEAK", "s3cret")
    script = f"cd '{programs}'; env > env; printf '%s ' \"$@\" > args; ps -o pgid= -p $$ > group"
    driver = Driver()
    submitted(driver, programs, script, WANTED="yes")()
    driver.kill()
    assert driver.exit_code == 0
    environment, words, group = ((programs / name).read_text() for name in ("env", "args", "group"))
    assert "WANTED=yes" in environment
    assert "s3cret" not in environment
    assert words.split()[:2] == ["--master", "local[1]"]
    assert words.split()[-3:] == ["job.py", "--batch", "7"]
    assert int(group) != os.getpgid(0)
    with pytest.raises(SparkConnectionError, match="not on the worker's PATH"):
        submitted(Driver(), programs, "", PATH=str(programs / "elsewhere"))()


@pytest.mark.parametrize("stubborn", [False, True])
def test_killing_ends_every_process_of_the_driver(stubborn: bool, programs: Path) -> None:
    """spark-submit, the JVM and the Python driver: children too, and those that ignore SIGTERM."""
    trap = "trap '' TERM; " if stubborn else ""
    pids = programs / "pids"
    driver = Driver()
    run = submitted(
        driver,
        programs,
        f"bash -c \"{trap}echo \\$\\$ >> '{pids}'; while true; do sleep 0.1; done\" &\n"
        f"{trap}echo $$ >> '{pids}'\nwait; while true; do sleep 0.1; done",
    )

    def kill() -> None:
        wait_until(lambda: pids.exists() and len(pids.read_text(encoding="utf-8").split()) >= 2)
        driver.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(AirflowException):
        run()
    killer.join()
    for pid in pids.read_text(encoding="utf-8").split():
        assert not alive(int(pid))


@pytest.mark.parametrize("connect", [False, True])
def test_a_driver_that_is_asked_to_end_before_it_is_known_ends(
    connect: bool, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow may ask before there is a process, and when it runs and is not known yet."""
    script = f"echo $$ > '{programs}/new' && mv '{programs}/new' '{programs}/pid' && sleep 120"
    driver, run = made(programs, script, connect=connect)
    driver.kill()
    with pytest.raises(AirflowException, match="before the driver started"):
        run()
    assert driver.exit_code is None
    assert not (programs / "pid").exists()
    asked, run = made(programs, script, connect=connect)

    class AskedMeanwhile(subprocess.Popen[str]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            wait_until((programs / "pid").exists)
            asked.kill()

    monkeypatch.setattr(subprocess, "Popen", AskedMeanwhile)
    with pytest.raises(AirflowException):
        run()
    assert not alive(int((programs / "pid").read_text(encoding="utf-8")))


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


# --- its secrets: in a private file and nowhere else

AWKWARD = "quote \" backslash \\ newline \n tab \t del \x7f umlaut ä emoji 🎈 $HOME 'x'"


@pytest.fixture
def settings(config: Path) -> Settings:
    sasl = {"sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": AWKWARD}
    tls = {"security_protocol": "SASL_SSL", "ssl_ca_location": "/etc/kafka ca.pem"}
    kafka = {"bootstrap_servers": "broker:9093", **sasl, **tls}
    conf = {"spark.a.b": "1", "spark.c": 'x"y'}
    spark = {"master": "sc://spark:1/;user_id=ann", "connect_token": AWKWARD, "conf": conf}
    overrides = {
        "kafka": KafkaSettings.model_validate(kafka),
        "mysql": MySQLSettings.model_validate({"port": 3307, "password": AWKWARD[::-1]}),
        "spark": SparkSettings.model_validate(spark),
    }
    return load_settings(config, overrides=overrides)


def test_the_driver_reads_the_same_settings(
    settings: Settings, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with suppress(KeyboardInterrupt), secrets_file(settings) as path:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        monkeypatch.setenv("TALLY_SECRETS_FILE", str(path))
        read = load_settings(config)
        raise KeyboardInterrupt
    assert not path.exists()
    ours = (settings.kafka, settings.mysql, settings.spark)
    assert (read.kafka, read.mysql, read.spark) == ours
    assert read.mysql.password.get_secret_value() == AWKWARD[::-1]


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of the test's own, on a machine without `XDG_RUNTIME_DIR`."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"tally-{os.geteuid()}"


def test_it_lies_in_a_folder_of_the_users_own(
    settings: Settings, runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def folder() -> Path:
        with secrets_file(settings) as path:
            return path.parent

    assert folder() == runtime
    assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
    session = tmp_path / "session"
    session.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(session))
    assert folder() == session / "tally"
    session.chmod(0o755)
    assert folder() == runtime
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "gone"))
    assert folder() == runtime


@pytest.mark.parametrize("trap", ["link", "file", "open to others", "of another user"])
def test_a_folder_that_others_may_have_prepared_is_refused(
    trap: str, settings: Settings, runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any user may have created a folder of that name in the temporary folder before."""
    if trap == "link":
        (elsewhere := tmp_path / "elsewhere").mkdir(mode=0o700)
        runtime.symlink_to(elsewhere)
    elif trap == "file":
        runtime.touch(mode=0o600)
    else:
        runtime.mkdir(mode=0o700)
    if trap == "open to others":
        runtime.chmod(0o750)
    if trap == "of another user":
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
        runtime.rename(tmp_path / "tally-4711")
    with pytest.raises(ConfigError, match="ls -ld") as raised, secrets_file(settings):
        pass
    assert "TMPDIR" in raised.value.next_step  # the only way past a folder of another user
    assert not list(tmp_path.rglob("secrets-*"))


WRITE_AND_WAIT = """
import sys
from tally.airflow.driver import secrets_file
from tally.config.loading import load_settings
with secrets_file(load_settings()):
    print('written', flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_task_left_is_swept_by_the_next(settings: Settings, runtime: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITE_AND_WAIT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(runtime.parent)},
    ) as task:
        assert task.stdout is not None
        assert task.stdout.readline() == b"written\n"
        (of_task,) = runtime.iterdir()
        assert f"-{task.pid}-" in of_task.name
        with secrets_file(settings) as own:
            assert set(runtime.iterdir()) == {of_task, own}
            with secrets_file(settings):
                assert own.exists()
        task.kill()
        task.wait(30)
    with secrets_file(settings) as own:
        assert list(runtime.iterdir()) == [own]
        _, namespace, pid, start, _ = own.name.split("-", 4)
    reused = runtime / f"secrets-{namespace}-{pid}-{int(start) - 1}-x.toml"
    foreign = runtime / f"secrets-{int(namespace) + 1}-{pid}-{int(start) - 1}-x.toml"
    notes = runtime / "notes.toml"
    for path in (reused, foreign, notes):
        path.touch()
    with secrets_file(settings) as own:
        assert set(runtime.iterdir()) == {foreign, notes, own}


def test_the_drivers_environment_names_the_file_and_holds_no_secret(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do the arguments; no variable of the worker overrides the file."""
    of_servers = (f"TALLY_{name}__PASSWORD" for name in ("MYSQL", "RESULTS", "CONSOLE"))
    for name in (*of_servers, "tally_kafka__sasl_password", "AIRFLOW_CONN_TALLY_MYSQL"):
        monkeypatch.setenv(name, "s3cret")
    monkeypatch.setenv("TALLY_PIPELINES__ERROR_LOG__LEVELS", '["WARN"]')
    environment = driver_environment(config, Path("/tmp/secrets.toml"))  # noqa: S108 - only a name
    assert environment["TALLY_SECRETS_FILE"] == "/tmp/secrets.toml"  # noqa: S108
    assert environment["TALLY_CONFIG"] == str(config)
    assert environment["TALLY_PIPELINES__ERROR_LOG__LEVELS"] == '["WARN"]'
    assert "s3cret" not in environment.values()
    secret = {"spark.hadoop.fs.s3a.secret.key": "s3cret", "spark.my.Token": "s3cret"}
    conf = submit_conf({"spark.a": "1", **secret}, "")
    assert conf["spark.a"] == "1"
    assert "s3cret" not in conf.values()


def test_the_jvm_flags_yield_to_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    from tally.spark import java

    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)  # the tests' own
    key = "spark.driver.extraJavaOptions"
    log = f'"-Dlog4j2.configurationFile={LOGGING.as_uri()}"'
    own = "-Dlog4j2.configurationFile=mine.xml"
    few, many = java.QUICK_START_OFFSETS_MAX, java.QUICK_START_OFFSETS_MAX + 1
    small, large = java.driver_flags(few), java.driver_flags(many)
    for configured, flags, given in (
        ({}, small, f"{log} {java.QUICK_START}"),
        ({}, large, f"{log} {java.THROUGHPUT}"),
        ({key: "-Xint"}, small, f"{log} -Xint"),
        ({key: own}, small, own),
    ):
        assert submit_conf(configured, flags)[key] == given
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseG1GC")  # Java starts with one collector only
    assert java.driver_flags(few) == "-XX:TieredStopAtLevel=1"
    assert java.driver_flags(many) == ""
