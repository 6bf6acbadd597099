"""The effective configuration and the sources of its values."""

from pathlib import Path

import pytest

from tally.config.loading import load_settings
from tally.each import is_down
from tally.errors import AccessDeniedError
from tally.set_up.configuration import HIDDEN, effective, name_sources

HUSH = "not for the screen"


def shown(config: Path, *pipelines: str) -> dict[str, tuple[str | None, str]]:
    """Value and source by key."""
    settings = load_settings(config)
    view = effective(settings, config, pipelines)
    return {s.key: (s.value, s.source.rpartition("/")[2]) for s in view.settings}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files of two pipelines; a third one is wrong."""
    path = tmp_path / "tally.toml"
    path.write_text(
        '[kafka]\nsasl_username = "ann"\nsasl_mechanism = "PLAIN"\nsecurity_protocol = "SASL_SSL"\n'
        '[mysql]\nport = 3307\nhost = "db"\n'
        '[pipelines.first]\ntopics = ["a"]\nfilter = { text = ["5*"] }\n'
        '[pipelines.second]\ntopics = ["b"]\n[pipelines.third]\ntopics = []\n',
        encoding="utf-8",
    )
    secrets = tmp_path / "secrets.toml"
    secrets.touch(mode=0o600)
    secrets.write_text(f'[kafka]\nsasl_password = "{HUSH}"\n', encoding="utf-8")
    monkeypatch.setenv("TALLY_SECRETS_FILE", str(secrets))
    return path


def test_each_value_has_its_source(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable before the secrets, these before the file, and the default last."""
    monkeypatch.setenv("TALLY_MYSQL__PORT", "3308")
    monkeypatch.setenv("TALLY_MYSQL__PASSWORD", HUSH)
    monkeypatch.setenv("TALLY_SPARK__CONF__SPARK.UI.PORT", "4050")
    monkeypatch.setenv("tally_pipelines__first__levels", '["WARN"]')
    found = shown(config, "first")
    assert found["mysql.port"] == ("3308", "TALLY_MYSQL__PORT")
    assert found["mysql.host"] == ('"db"', "tally.toml")
    assert found["mysql.user"][1] == "default"
    assert found["mysql.password"] == (HIDDEN, "TALLY_MYSQL__PASSWORD")
    assert found["kafka.sasl_password"] == (HIDDEN, "secrets.toml")
    assert found["spark.connect_token"] == found["console.metrics_token_file"] == (None, "default")
    conf = '{ "spark.ui.port" = "4050" }'
    assert found["spark.conf"] == (conf, "TALLY_SPARK__CONF__SPARK.UI.PORT")
    assert found["pipelines.first.levels"] == ('["WARN"]', "tally_pipelines__first__levels")
    assert found["pipelines.first.filter"] == ('{ text = ["5*"] }', "tally.toml")
    assert found["pipelines.first.max_lag_offsets"] == (None, "default")
    assert HUSH not in str(found)


def test_secrets_among_options_are_hidden(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever they are called there; a token in the address is the address's."""
    monkeypatch.setenv("TALLY_SPARK__MASTER", f"sc://h:1/;x-api={HUSH.replace(' ', '')};token=t")
    for key in ("spark.hadoop.fs.s3a.secret.key", "spark.ssl.keyPassword"):
        monkeypatch.setenv(f"TALLY_SPARK__CONF__{key}", HUSH)
    found = shown(config)
    assert found["spark.master"] == (f'"sc://h:1/;{HIDDEN}"', "TALLY_SPARK__MASTER")
    assert found["spark.connect_token"] == (HIDDEN, "TALLY_SPARK__MASTER")
    assert HUSH not in str(found)
    assert str(found).count(HIDDEN) == 5


def test_no_other_pipelines_are_shown(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is wrong with one that is disabled; a table in one variable is written as JSON."""
    monkeypatch.setenv("TALLY_PIPELINES__SECOND", '{"levels": ["WARN"]}')
    found = shown(config, "second")
    assert found["pipelines.second.levels"] == ('["WARN"]', "TALLY_PIPELINES__SECOND")
    assert found["pipelines.second.topics"] == ('["b"]', "tally.toml")
    assert {key.split(".")[1] for key in found if key.startswith("pipelines.")} == {"second"}
    view = effective(load_settings(config), config, ["second", "third"])
    assert list(view.disabled) == ["third"]


def test_a_refused_login_is_explained_once_and_stays_one(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several pipelines the next ones are spared the same question."""
    monkeypatch.setenv("TALLY_MYSQL__PASSWORD", "secret")
    error = AccessDeniedError("refused", next_step="check it")
    error.credentials = ("mysql.password",)
    for _ in range(2):
        name_sources(load_settings(config), config, error)
    assert error.next_step == "check it; mysql.password comes from TALLY_MYSQL__PASSWORD"
    assert is_down(error)
