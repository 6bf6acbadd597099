"""The driver's secrets: in a private file and nowhere else."""

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tally.config.loading import load_settings
from tally.config.servers import KafkaSettings, MySQLSettings, SparkSettings
from tally.config.settings import Settings
from tally.errors import ConfigError

pytestmark = pytest.mark.airflow

AWKWARD = "quote \" backslash \\ newline \n tab \t del \x7f umlaut ä emoji 🎈 $HOME 'x'"


@pytest.fixture
def settings(config: Path) -> Settings:
    """Settings with secrets."""
    return load_settings(
        config,
        overrides={
            "kafka": KafkaSettings(
                bootstrap_servers="broker:9093",
                security_protocol="SASL_SSL",
                sasl_mechanism="PLAIN",
                sasl_username="u",
                sasl_password=AWKWARD,  # type: ignore[arg-type]  # pydantic makes it a SecretStr
                ssl_ca_location=Path("/etc/kafka ca.pem"),
            ),
            "mysql": MySQLSettings(port=3307, password=AWKWARD[::-1]),  # type: ignore[arg-type]
            "spark": SparkSettings(
                master="sc://spark:15002/;user_id=ann",
                connect_token=AWKWARD,  # type: ignore[arg-type]
                conf={"spark.a.b": "1", "spark.c": 'x"y'},
            ),
        },
    )


def test_the_driver_reads_the_same_settings(
    settings: Settings, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was resolved from the connections arrives whole, awkward characters included."""
    from tally.airflow.secrets_file import secrets_file

    with secrets_file(settings) as path:
        monkeypatch.setenv("TALLY_SECRETS_FILE", str(path))
        read = load_settings(config)
    assert (read.kafka, read.mysql, read.spark) == (settings.kafka, settings.mysql, settings.spark)
    assert read.mysql.password.get_secret_value() == AWKWARD[::-1]


def test_only_the_owner_may_read_it_and_it_goes_away(settings: Settings) -> None:
    """Mode 0600 from the start; gone at the end, after an error too."""
    from tally.airflow.secrets_file import secrets_file

    seen: list[Path] = []

    def use_and_fail() -> None:
        with secrets_file(settings) as path:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            seen.append(path)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        use_and_fail()
    assert not seen[0].exists()


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of the test's own, on a machine without `XDG_RUNTIME_DIR`."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"tally-{os.geteuid()}"


def test_it_lies_in_a_folder_of_the_users_own(
    settings: Settings, runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session's runtime folder, if that is the user's; else one in the temporary folder."""
    from tally.airflow.secrets_file import secrets_file

    with secrets_file(settings) as path:
        assert path.parent == runtime
        assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
    session = tmp_path / "session"
    session.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(session))
    with secrets_file(settings) as path:
        assert path.parent == session / "tally"
    session.chmod(0o755)
    with secrets_file(settings) as path:
        assert path.parent == runtime
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "gone"))
    with secrets_file(settings) as path:
        assert path.parent == runtime


@pytest.mark.parametrize("trap", ["link", "file", "open to others", "of another user"])
def test_a_folder_that_others_may_have_prepared_is_refused(
    trap: str, settings: Settings, runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any user may have created a folder of that name in the temporary folder before."""
    from tally.airflow.secrets_file import secrets_file

    if trap == "link":
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir(mode=0o700)
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
    with pytest.raises(ConfigError, match="ls -ld"), secrets_file(settings):
        pass
    assert not list(tmp_path.rglob("secrets-*"))


def test_what_a_killed_task_left_is_swept_by_the_next(settings: Settings, runtime: Path) -> None:
    """The file of a running process stays, until that has ended as well."""
    from tally.airflow.secrets_file import secrets_file

    with task(runtime.parent) as alive, task(runtime.parent) as killed:
        assert len(list(runtime.iterdir())) == 2
        killed.kill()
        killed.wait(30)
        with secrets_file(settings) as own:
            (other,) = set(runtime.iterdir()) - {own}
            assert f"-{alive.pid}-" in other.name
            with secrets_file(settings):
                assert own.exists()
        alive.kill()
        alive.wait(30)
    with secrets_file(settings) as own:
        assert list(runtime.iterdir()) == [own]


def test_an_id_that_was_given_out_again_keeps_no_file(settings: Settings, runtime: Path) -> None:
    """Its process started at another time; files of running processes are not deleted."""
    from tally.airflow.secrets_file import secrets_file

    with secrets_file(settings) as own:
        _, namespace, pid, start, _ = own.name.split("-", 4)
    reused = runtime / f"secrets-{namespace}-{pid}-{int(start) - 1}-x.toml"
    foreign = runtime / f"secrets-{int(namespace) + 1}-{pid}-{int(start) - 1}-x.toml"
    notes = runtime / "notes.toml"
    for path in (reused, foreign, notes):
        path.touch()
    with secrets_file(settings):
        assert not reused.exists()
        assert foreign.exists()
        assert notes.exists()


def task(temporary: Path) -> "subprocess.Popen[str]":
    """A process that has written its secrets and keeps running."""
    script = (
        "import sys\n"
        "from tally.airflow.secrets_file import secrets_file\n"
        "from tally.config.pipeline import PipelineSettings\n"
        "from tally.config.settings import Settings\n"
        "with secrets_file(Settings(pipelines={'a': PipelineSettings(topics=['a'])})):\n"
        "    print('written', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    return process


def test_the_drivers_environment_names_the_file_and_holds_no_secret(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow's connections are left out, and no variable of the worker overrides the file."""
    from tally.airflow.driver import driver_environment

    for name in ("TALLY_MYSQL__PASSWORD", "tally_kafka__sasl_password", "AIRFLOW_CONN_TALLY_MYSQL"):
        monkeypatch.setenv(name, "s3cret")
    monkeypatch.setenv("TALLY_PIPELINES__ERROR_LOG__LEVELS", '["WARN"]')
    environment = driver_environment(config, Path("/tmp/secrets.toml"))  # noqa: S108 - only a name
    assert environment["TALLY_SECRETS_FILE"] == "/tmp/secrets.toml"  # noqa: S108
    assert environment["TALLY_CONFIG"] == str(config)
    assert environment["TALLY_PIPELINES__ERROR_LOG__LEVELS"] == '["WARN"]'
    assert "s3cret" not in environment.values()


def test_sensitive_spark_configuration_is_not_on_the_command_line() -> None:
    """spark-submit's arguments can be seen by everybody on the machine."""
    from tally.airflow.driver import submit_conf

    conf = submit_conf(
        {"spark.a": "1", "spark.hadoop.fs.s3a.secret.key": "x", "spark.my.Token": "y"}, ""
    )
    assert conf["spark.a"] == "1"
    assert not {"x", "y"} & set(conf.values())


def test_the_jvm_flags_yield_to_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches start quickly; configured flags are kept, and so is a log of one's own."""
    from tally.airflow.driver import submit_conf
    from tally.spark.driver_log import LOGGING
    from tally.spark.session import (
        QUICK_START,
        QUICK_START_OFFSETS_MAX,
        THROUGHPUT,
        driver_flags,
    )

    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)  # the tests' own
    key = "spark.driver.extraJavaOptions"
    log = f'"-Dlog4j2.configurationFile={LOGGING.as_uri()}"'
    small, large = QUICK_START_OFFSETS_MAX, QUICK_START_OFFSETS_MAX + 1
    assert submit_conf({}, driver_flags(small))[key] == f"{QUICK_START} {log}"
    assert submit_conf({}, driver_flags(large))[key] == f"{THROUGHPUT} {log}"
    assert submit_conf({key: "-Xint"}, QUICK_START)[key] == f"-Xint {log}"
    own = "-Dlog4j2.configurationFile=mine.xml"
    assert submit_conf({key: own}, QUICK_START)[key] == own
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseG1GC")  # Java starts with one collector only
    assert driver_flags(small) == "-XX:TieredStopAtLevel=1"
    assert driver_flags(large) == ""
