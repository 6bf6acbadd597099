"""The driver's secrets: in a private file and nowhere else."""

import stat
from pathlib import Path

import pytest

from tally.config.loading import load_settings
from tally.config.servers import KafkaSettings, MySQLSettings, SparkSettings
from tally.config.settings import Settings

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


def test_the_drivers_environment_names_the_file_and_holds_no_secret(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow's connections stay behind, and nothing of the worker's wins over the file."""
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


def test_the_jvm_flags_yield_to_the_configuration() -> None:
    """Small batches start quickly; whoever sets flags of their own keeps them."""
    from tally.airflow.driver import submit_conf
    from tally.spark.session import QUICK_START, QUICK_START_OFFSETS_MAX, driver_flags

    key = "spark.driver.extraJavaOptions"
    assert submit_conf({}, driver_flags(QUICK_START_OFFSETS_MAX))[key] == QUICK_START
    assert key not in submit_conf({}, driver_flags(QUICK_START_OFFSETS_MAX + 1))
    assert submit_conf({key: "-Xint"}, QUICK_START)[key] == "-Xint"
