"""The configuration: where values come from, and what is said of wrong ones."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field, SecretStr, ValidationError

from tally.aggregates.fingerprint import fingerprint
from tally.config.complaints import complaints
from tally.config.loading import load_settings
from tally.config.reader import READER_DEFAULTS
from tally.config.settings import Settings
from tally.config.variables import unknown_variables
from tally.errors import ConfigError, UnknownPipelineError

MINIMAL = '[pipelines.error_log]\ntopics = ["alog"]\n'
JSON = MINIMAL + 'line_format = { json = { time = "ts" }, time_format = "yyyy-MM-dd HH:mm" }\n'


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TALLY_CONFIG", raising=False)
    monkeypatch.delenv("TALLY_SECRETS_FILE", raising=False)
    monkeypatch.chdir(tmp_path)


def load(text: str = MINIMAL, **overrides: Any) -> Settings:
    """The settings from a ``tally.toml`` in the current folder."""
    Path("tally.toml").write_text(text, encoding="utf-8")
    return load_settings(overrides=overrides)


def test_a_pipeline_needs_its_topics_alone() -> None:
    """Everything else has a default."""
    pipeline = load().pipeline("error_log")
    assert pipeline.topics == ["alog"]
    assert pipeline.levels == ["ERROR"]
    assert pipeline.table == "error_log"
    assert pipeline.reader_options == dict(READER_DEFAULTS)


def test_the_rules_are_told_in_words() -> None:
    """The levels as configured, and the format by its name."""
    assert load().pipeline("error_log").rules == "level ERROR; format fixed"
    other = load(MINIMAL + 'levels = ["ERROR", "WARN"]\nline_format = "log4j"\n')
    assert other.pipeline("error_log").rules == "levels ERROR, WARN; format log4j"
    keys = ["levels = []", 'labels = ["topic"]', 'measure = "bytes"', 'filter.text = ["timeout"]']
    more = load(MINIMAL + "\n".join(keys) + "\n")
    assert more.pipeline("error_log").rules == (
        "any level; text timeout; by topic; bytes besides lines; format fixed"
    )


def test_the_fields_of_json_lines_are_a_table_in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or JSON in the environment; a path is a text or a list of keys."""
    table = '{ time = "ts", level = "log.level", service = ["k8s", "app/name"] }'
    text = f'{MINIMAL}line_format = {{ json = {table}, time_format = "yyyy-MM-dd HH:mm" }}\n'
    pipeline = load(text).pipeline("error_log")
    assert pipeline.format.fields == ("level", "service")
    assert pipeline.format.paths_of("service") == (("k8s", "app/name"),)
    assert pipeline.rules == "level ERROR; format custom"
    value = '{"json": {"time": "ts"}, "time_format": "yyyy-MM-dd HH:mm"}'
    monkeypatch.setenv("TALLY_PIPELINES__ERROR_LOG__LINE_FORMAT", value)
    monkeypatch.setenv("TALLY_PIPELINES__ERROR_LOG__LEVELS", "[]")
    assert load().pipeline("error_log").format.paths_of("time") == (("ts",),)


def test_json_lines_are_labelled_and_filtered_by_any_path() -> None:
    """Declared or not; the rule's fingerprint knows which."""
    keys = (
        'labels = ["service", "host.name", "level", "key"]\nfilter = { "http.status" = ["5*"] }\n'
    )
    pipeline = load(MINIMAL + 'line_format = "json"\n' + keys).pipeline("error_log")
    other = load(MINIMAL + 'line_format = "json"\n' + keys.replace("host.name", "host.id"))
    assert pipeline.labels == ["service", "host.name", "level", "key"]
    assert fingerprint(pipeline) != fingerprint(other.pipeline("error_log"))


@pytest.mark.parametrize("keys", ['labels = ["key"]', 'filter.text = ["x"]'])
def test_a_group_that_the_record_hides_is_refused_where_it_is_asked_for(keys: str) -> None:
    """Otherwise all lines would silently be counted by the record's own key."""
    pattern = r"(?<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?<key>\w+) (?<text>\w+)"
    table = f"{{ pattern = '{pattern}', time_format = 'yyyy-MM-dd HH:mm:ss' }}"
    text = f"{MINIMAL}levels = []\nline_format = {table}\n"
    assert load(text).pipeline("error_log").format.fields == ("key", "text")
    with pytest.raises(ConfigError, match=r"pattern: \w+: topic, partition, key, text are not"):
        load(text + keys + "\n")


def test_tables_of_labels_are_no_result_tables() -> None:
    """Two pipelines never share a table, nor has one a name that MySQL does not hold."""
    for suffix in ("__folded", "__segments"):
        with pytest.raises(ConfigError, match="Tally's own tables has this name, or may have it"):
            load(f'{MINIMAL}result_table = "other{suffix}"\n')
    name = "a" * 60
    load(f'{MINIMAL}result_table = "{name}"\n')
    with pytest.raises(ConfigError, match="more than 54 characters"):
        load(f'{MINIMAL}result_table = "{name}"\nlabels = ["topic"]\n')


def test_what_decides_how_json_is_read_is_not_configured() -> None:
    """Other values would count the same records differently, under the same rule."""
    with pytest.raises(ConfigError, match="allowDuplicateKeys itself"):
        load(MINIMAL + '[spark.conf]\n"spark.sql.variant.allowDuplicateKeys" = "false"\n')


def test_reader_options_override_key_by_key() -> None:
    """One key changed leaves the other defaults as they are; numbers become text."""
    pipeline = load(MINIMAL + 'reader = { "kafka.max.poll.records" = 5 }').pipeline("error_log")
    assert pipeline.reader_options == {**READER_DEFAULTS, "kafka.max.poll.records": "5"}


def test_the_environment_wins_over_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any key, in a pipeline too; lists as JSON."""
    monkeypatch.setenv("TALLY_MYSQL__PORT", "3307")
    monkeypatch.setenv("TALLY_PIPELINES__ERROR_LOG__LEVELS", '["WARN", "ERROR"]')
    settings = load(MINIMAL + "[mysql]\nport = 3308\n")
    assert settings.mysql.port == 3307
    assert settings.pipeline("error_log").levels == ["WARN", "ERROR"]


def test_what_the_caller_passes_wins_over_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's connections are such a caller."""
    monkeypatch.setenv("TALLY_MYSQL__PORT", "3307")
    assert load(mysql={"port": 3309}).mysql.port == 3309


def test_the_local_stack_lies_over_the_file() -> None:
    """.tally/stack.toml fills in addresses and passwords."""
    Path(".tally").mkdir()
    Path(".tally/stack.toml").write_text('[mysql]\nport = 4000\npassword = "x"\n')
    settings = load(MINIMAL + '[mysql]\nport = 3308\nuser = "me"\n')
    assert (settings.mysql.port, settings.mysql.user) == (4000, "me")


def test_a_secrets_file_lies_over_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """TALLY_SECRETS_FILE has the same shape as tally.toml."""
    secrets = Path("secrets.toml")
    secrets.touch(mode=0o600)
    secrets.write_text('[mysql]\npassword = "from the file"\n')
    monkeypatch.setenv("TALLY_SECRETS_FILE", str(secrets))
    assert load().mysql.password.get_secret_value() == "from the file"


def test_a_secrets_file_that_others_may_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says how to mend it."""
    Path("secrets.toml").write_text("")
    Path("secrets.toml").chmod(0o644)
    monkeypatch.setenv("TALLY_SECRETS_FILE", "secrets.toml")
    with pytest.raises(ConfigError, match="chmod 600"):
        load()


def test_a_missing_secrets_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """No secret is looked for elsewhere in silence."""
    monkeypatch.setenv("TALLY_SECRETS_FILE", "nowhere.toml")
    with pytest.raises(ConfigError, match=r"nowhere\.toml, which does not exist"):
        load()


def test_a_missing_configuration_says_where_it_was_looked_for() -> None:
    """And which variable names another place."""
    with pytest.raises(ConfigError, match=r"tally\.toml.*TALLY_CONFIG"):
        load_settings()


def test_text_that_is_no_toml_is_named_with_its_line() -> None:
    """The TOML reader's own words are kept."""
    with pytest.raises(ConfigError, match=r"no valid TOML.*line 2"):
        load("colour = 1\npipelines = = 2\n")


@pytest.mark.parametrize(
    ("text", "key", "allowed"),
    [
        ("", "pipelines", "at least one is needed"),
        ("[pipelines]\n", "pipelines", "at least one"),
        ("[pipelines.error_log]\n", "pipelines.error_log.topics", "is required"),
        ("[pipelines.error_log]\ntopics = []\n", "pipelines.error_log.topics", "must not be empty"),
        ('[pipelines.error_log]\ntopics = ["a b"]\n', "topics.0", "letters, digits, dots"),
        ('[pipelines.Error-Log]\ntopics = ["a"]\n', "pipelines.Error-Log", "lower-case letters"),
        (MINIMAL + 'start = "yesterday"\n', "start = 'yesterday'", "earliest"),
        (MINIMAL + "start = 2026-11-20T14:00:00\n", "start", "needs its zone"),
        (MINIMAL + 'labels = ["two words"]\n', "labels.0", "name of a field"),
        (MINIMAL + 'labels = ["log_count"]\n', "labels.0", "cannot be called log_count"),
        (MINIMAL + 'labels = ["text"]\n', "labels.0", "no label"),
        (MINIMAL + 'labels = ["a-b", "a_b"]\n', "labels", "share the column a_b"),
        (MINIMAL + f"labels = {[f'l{n}' for n in range(9)]}\n", "labels", "more than 8"),
        (
            MINIMAL + 'labels = ["level", "topic"]\nlabel_max_chars = 351\n',
            "error_log",
            "more than 700 characters",
        ),
        (MINIMAL + 'labels = ["service"]\n', "labels", "service: lines of the format fixed"),
        (MINIMAL + 'filter = { status = ["5*"] }\n', "filter", "status: lines of the format"),
        (MINIMAL + "filter = { level = [] }\n", "filter.level", "must not be empty"),
        (MINIMAL + f"filter.level = ['{'a*' * 101}']\n", "filter.level", "has * 101 times"),
        (MINIMAL + 'measure = "words"\n', "measure", "'count' or 'bytes'"),
        (MINIMAL + 'levels = ["TWO WORDS"]\n', "levels.0", "one word"),
        (MINIMAL + 'line_format = "syslog"\n', "line_format", "year"),
        (MINIMAL + 'line_format = "nonsense"\n', "line_format", "nonsense"),
        (MINIMAL + 'line_format = "rfc5424"\n', "levels = ['ERROR']", "not a level of rfc5424"),
        (MINIMAL + 'line_format = "nginx"\n', "error_log.levels = ['ERROR']", "it has debug, info"),
        (
            MINIMAL + 'line_format = "python"\nlevels = ["error"]\n',
            "error_log.levels = ['error']",
            "cannot stand where python has its level",
        ),
        (JSON, "levels = ['ERROR']", "the JSON fields lack level"),
        (JSON + "levels = []\nlabels = ['time']\n", "labels: time", "or any other path"),
        (JSON.replace("ts", ""), "line_format.json.time = ''", "a key must not be empty"),
        (JSON.replace('"ts"', "7"), "line_format.json.time = 7", "a path is a text, or a list"),
        (JSON.replace("time =", "at ="), "line_format.json = {'at'", "time among them"),
        (
            JSON.replace("ts", 'ts", key = "cache.key') + "levels = []\n",
            "line_format.json: key",
            "topic, partition, key, text are not the line's fields",
        ),
        (MINIMAL + 'result_table = "segment"\n', "result_table", "Tally's own tables"),
        (MINIMAL + 'result_table = "a-b"\n', "result_table", "lower-case letters"),
        (
            MINIMAL + "max_records_per_partition = 0\n",
            "max_records_per_partition",
            "at least",
        ),
        (
            MINIMAL + "max_records_per_partition = 2_000_000_001\n",
            "max_records_per_partition",
            "at most 2000000000",
        ),
        (
            MINIMAL + "max_malformed_per_batch = -1\n",
            "max_malformed_per_batch",
            "at least",
        ),
        (
            MINIMAL + "dead_letter_max_bytes = 16777216\n",
            "dead_letter_max_bytes",
            "at most",
        ),
        (MINIMAL + 'isolation_level = "serializable"\n', "isolation_level", "read_committed"),
        (MINIMAL + 'offsets = "maybe"\n', "offsets", "dense"),
        (MINIMAL + 'reader = { "assign" = "x" }\n', "reader", "from the plan"),
        (MINIMAL + 'reader = { "failOnDataLoss" = "false" }\n', "reader", "from the plan"),
        (MINIMAL + 'reader = { "kafka.sasl.jaas.config" = "x" }\n', "reader", "into [kafka]"),
        (MINIMAL + 'schedule = ""\n', "schedule", "five fields"),
        (MINIMAL + 'schedule = "every minute"\n', "schedule", "five fields"),
        (MINIMAL + 'schedule = "* * * * * *"\n', "schedule", "five fields"),
        (MINIMAL + 'schedule = "61 * * * *"\n', "schedule", "@hourly"),
        (MINIMAL + 'time_zone = "CET"\n', "time_zone", "such as Europe/Berlin"),
        (MINIMAL + 'time_zone = "Europe/Berlin"\n', "line_format: fixed", "leave time_zone out"),
        (MINIMAL + "assume_year = 2005\n", "line_format: fixed", "leave assume_year out"),
        (MINIMAL + "assume_year = 99\n", "assume_year", "at least 1000"),
        (MINIMAL + 'time = "kafka"\n', "time = 'kafka'", "'line' or 'record'"),
        (
            MINIMAL + 'continuation_lines = "unmatched"\ntime = "record"\n',
            "continuation_lines",
            "leave one of them out",
        ),
        (MINIMAL + "patience_s = 5\n", "patience_s", "at least"),
        (MINIMAL + 'owner = ""\n', "owner", "must not be empty"),
        (MINIMAL + 'tags = "x"\n', "tags", "list"),
        (MINIMAL + "colour = 3\n", "pipelines.error_log.colour", "no known key"),
        (
            MINIMAL + "[kafka]\nbootstrap_servers = ''\n",
            "kafka.bootstrap_servers",
            "must not be empty",
        ),
        (MINIMAL + "[kafka]\nsecurity_protocol = 'TLS'\n", "kafka.security_protocol", "SASL_SSL"),
        (MINIMAL + "[kafka]\nsecurity_protocol = 'SASL_SSL'\n", "kafka", "sasl_mechanism"),
        (MINIMAL + "[kafka]\nsasl_mechanism = 'GSSAPI'\n", "kafka.sasl_mechanism", "SCRAM"),
        (
            MINIMAL + "[kafka]\nrequest_timeout_s = 0\n",
            "kafka.request_timeout_s",
            "more than 0",
        ),
        (MINIMAL + "[mysql]\nhost = ''\n", "mysql.host", "must not be empty"),
        (MINIMAL + "[mysql]\nport = 70000\n", "mysql.port", "65535"),
        (MINIMAL + "[mysql]\nuser = ''\n", "mysql.user", "must not be empty"),
        (MINIMAL + "[mysql]\ndatabase = 'a b'\n", "mysql.database", "a dash"),
        (MINIMAL + "[mysql]\ndatabase = '-x'\n", "mysql.database", "not begin with a dash"),
        (MINIMAL + "[mysql]\ndatabase = 'a`b'\n", "mysql.database", "letters"),
        (MINIMAL + "[mysql]\ndatabase = 'a/b'\n", "mysql.database", "letters"),
        (MINIMAL + "[mysql]\ndatabase = ''\n", "mysql.database", "1 to 64"),
        (MINIMAL + f"[mysql]\ndatabase = '{'a' * 65}'\n", "mysql.database", "1 to 64"),
        (MINIMAL + "[mysql]\ndatabase = 'MySQL'\n", "mysql.database", "the server's own"),
        (MINIMAL + "[mysql]\ntls = 'maybe'\n", "mysql.tls", "verified"),
        (
            MINIMAL + "[mysql]\nconnect_timeout_s = 0\n",
            "mysql.connect_timeout_s",
            "at least",
        ),
        (
            MINIMAL + "[mysql]\nlock_wait_timeout_s = 0\n",
            "mysql.lock_wait_timeout_s",
            "at least",
        ),
        (
            MINIMAL + "[mysql]\nlock_wait_timeout_s = 300\n",
            "mysql: lock_wait_timeout_s = 300",
            "less than statement_timeout_s = 300",
        ),
        (
            MINIMAL + "patience_s = 120\n",
            "pipelines.error_log.patience_s = 120",
            "more than mysql.statement_timeout_s = 300",
        ),
        (
            MINIMAL + "patience_s = 60\n[kafka]\nrequest_timeout_s = 60\n"
            "[mysql]\nstatement_timeout_s = 30\n",
            "pipelines.error_log.patience_s = 60",
            "more than kafka.request_timeout_s = 60",
        ),
        (MINIMAL + "[spark]\nmaster = ''\n", "spark.master", "must not be empty"),
        (MINIMAL + "[spark]\nconf = 3\n", "spark.conf", "must be a table"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(text: str, key: str, allowed: str) -> None:
    """The key, the value and the choice are all in the message."""
    with pytest.raises(ConfigError) as raised:
        load(text)
    assert key in raised.value.what
    assert allowed in raised.value.what


@pytest.mark.parametrize("name", ["my-db", "Ledger_2", "2026", "a$b", "x" * 64])
def test_a_databases_name_is_not_a_pipelines(name: str) -> None:
    """What MySQL takes between backticks and a URL takes as it is."""
    assert load(MINIMAL + f"[mysql]\ndatabase = '{name}'\n").mysql.database == name


def test_a_patience_just_above_the_wait_for_an_answer_is_accepted() -> None:
    """Lock wait < statement < patience, by a second each."""
    settings = load(MINIMAL + "patience_s = 301\n[mysql]\nlock_wait_timeout_s = 299\n")
    assert settings.pipeline("error_log").patience_s == 301


def test_all_wrong_values_are_named_at_once() -> None:
    """Nobody has to mend a file one run at a time."""
    with pytest.raises(ConfigError) as raised:
        load(MINIMAL + "patience_s = 5\n[mysql]\nport = 0\n")
    assert "patience_s" in raised.value.what
    assert "mysql.port" in raised.value.what


def test_passwords_never_show() -> None:
    """Neither in a representation nor in an error about their own section."""
    settings = load(MINIMAL + "[mysql]\npassword = 'hunter2'\n")
    assert "hunter2" not in repr(settings)
    with pytest.raises(ConfigError) as raised:
        load(MINIMAL + "[mysql]\npassword = 'hunter2'\nport = 0\nnothing = 'hunter2'\n")
    assert "hunter2" not in str(raised.value)
    with pytest.raises(ConfigError) as raised:
        load(MINIMAL + "[mysql]\npassword = [12345678]\n")
    assert "12345678" not in str(raised.value)


class Login(BaseModel):
    """A table with a secret that no word in its key gives away."""

    key: SecretStr | None = None
    password_file: int = 0


class Logins(BaseModel):
    """Secrets in a table, in a list, in a table of tables."""

    one: Login = Login()
    several: list[Annotated[SecretStr, Field(min_length=99)]] = []
    by_name: dict[str, Login] = {}
    either: str | int | list[SecretStr] = 0


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"one": {"key": [12345]}}, "one.key"),
        ({"one": "12345"}, "one"),
        ({"several": ["12345"]}, "several.0"),
        ({"several": 12345}, "several"),
        ({"by_name": {"x": {"key": 12345}}}, "by_name.x.key"),
        ({"by_name": {"x": 12345}}, "by_name.x"),
        ({"either": (12345, object())}, "either"),
        ("12345", "the whole file"),
    ],
)
def test_what_the_model_calls_a_secret_is_in_no_error(values: object, key: str) -> None:
    """By its type, wherever it stands; a connection's address in place of its table, too."""
    with pytest.raises(ValidationError) as raised:
        Logins.model_validate(values)
    found = "; ".join(complaints(raised.value, Logins, {}))
    assert found.startswith(key)
    assert "12345" not in found


def test_a_key_that_merely_speaks_of_passwords_is_shown_with_its_value() -> None:
    """Hiding what is no secret would make the error useless."""
    with pytest.raises(ValidationError) as raised:
        Logins.model_validate({"one": {"password_file": "x"}})
    assert "one.password_file = 'x': " in complaints(raised.value, Logins, {})[0]
    with pytest.raises(ConfigError, match=r"pipelines\.password_log\.topics = 'alog': "):
        load('[pipelines.password_log]\ntopics = "alog"\n')


def test_a_servers_address_in_place_of_its_table_is_not_shown() -> None:
    """It has the password in it."""
    with pytest.raises(ConfigError, match="mysql: ") as raised:
        load("mysql = 'mysql://tally:hunter2@db/tally'\n" + MINIMAL)
    assert "hunter2" not in str(raised.value)


def test_an_unknown_pipeline_is_named_with_the_known_ones() -> None:
    """A typing error costs one look."""
    with pytest.raises(
        UnknownPipelineError, match=r"'eror_log'.*error_log; did you mean error_log"
    ):
        load().pipeline("eror_log")


def test_an_unknown_key_is_told_the_one_that_is_meant() -> None:
    """In a pipeline and in a server's table."""
    with pytest.raises(
        ConfigError, match=r"error_log\.level: is no known key; did you mean levels\?"
    ):
        load(MINIMAL + 'level = ["ERROR"]\n')
    with pytest.raises(ConfigError, match=r"mysql\.pasword: .*; did you mean password\?"):
        load(MINIMAL + '[mysql]\npasword = "x"\n')


def test_a_variable_that_is_no_json_disables_its_pipeline_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others are there, and its other mistakes are named too."""
    monkeypatch.setenv("TALLY_PIPELINES__B__TOPICS", "blog")
    settings = load(MINIMAL + "[pipelines.b]\npatience_s = 1\n")
    assert list(settings.pipelines) == ["error_log"]
    with pytest.raises(ConfigError, match=r"(?s)TOPICS\) = 'blog': must be a list.*patience_s"):
        settings.check("b")


@pytest.mark.parametrize(
    ("line_format", "said"),
    [
        ('"nginxx"', "no such line format; did you mean nginx?"),
        ('{ patern = "x" }', "line_format.patern: is no known key; did you mean pattern?"),
    ],
)
def test_a_line_format_that_is_none_is_told_what_is_meant(line_format: str, said: str) -> None:
    """The name of a ready-made one, and a key of one's own."""
    with pytest.raises(ConfigError) as raised:
        load(MINIMAL + f"line_format = {line_format}\n").check("error_log")
    assert said in raised.value.what


def test_a_label_that_no_line_has_is_told_the_one_that_is_meant() -> None:
    """A label and a filter alike."""
    keys = 'line_format = "syslog"\nassume_year = 2026\nlevels = []\nlabels = ["progam"]\n'
    with pytest.raises(ConfigError, match=r"progam: .* did you mean program\?"):
        load(MINIMAL + keys).check("error_log")


def test_a_wrong_pipeline_is_disabled_by_itself() -> None:
    """The others are there; whoever asks for it is told all of its mistakes."""
    text = (
        MINIMAL + '[pipelines.b]\ntopics = ["b", "b"]\nlevel = 3\n[pipelines.c]\ntopics = ["c"]\n'
    )
    settings = load(text + 'line_format = "nginx"\npatience_s = 100\n')
    assert list(settings.pipelines) == ["error_log"]
    assert settings.names == ["b", "c", "error_log"]
    assert settings.pipeline("error_log").topics == ["alog"]
    with pytest.raises(ConfigError, match=r"(?s)b\.topics.*each topic once.*b\.level: is no known"):
        settings.pipeline("b")
    with pytest.raises(ConfigError, match=r"(?s)c\.levels = .*not a level of nginx.*c\.patience_s"):
        settings.check("c")


def test_all_mistakes_are_named_at_once_where_nothing_can_work() -> None:
    """Those of the servers' tables and of every pipeline."""
    wrong = "[pipelines.a]\ntopics = []\n[pipelines.b]\n[mysql]\nport = 0\n"
    for text in (wrong, MINIMAL + wrong):
        with pytest.raises(ConfigError) as raised:
            load(text)
        named = ("mysql.port = 0", "pipelines.a.topics", "pipelines.b.topics: is required")
        assert all(name in raised.value.what for name in named)


def test_a_mistake_of_one_kind_hides_none_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong key, a wrong format, levels that the lines cannot have, a table twice, a variable."""
    monkeypatch.setenv("TALLY_HOME", "x")
    text = MINIMAL + (
        '[pipelines.a]\ntopics = []\nline_format = "nginxx"\n'
        '[pipelines.b]\ntopics = ["b"]\nline_format = "nginx"\n'
        '[pipelines.c]\ntopics = ["c"]\nresult_table = "error_log"\n'
    )
    named = [
        "pipelines.a.topics",
        "pipelines.a.line_format",
        "pipelines.b.levels",
        "error_log and c have the same result_table",
        "TALLY_HOME is no setting: unset it",
    ]
    with pytest.raises(ConfigError) as raised:
        load(text)
    assert all(raised.value.what.count(name) == 1 for name in named), raised.value.what
    with pytest.raises(ConfigError) as raised:
        load(text + "[mysql]\nport = 0\n")
    assert all(raised.value.what.count(n) == 1 for n in [*named, "mysql.port"]), raised.value.what


def test_no_pipeline_at_all_may_be_right_for_those_who_show_why() -> None:
    """Airflow draws a red DAG for each, and doctor lists them."""
    Path("tally.toml").write_text("[pipelines.a]\n", encoding="utf-8")
    settings = load_settings(needed="any")
    assert dict(settings.disabled) == {"a": ("pipelines.a.topics: is required",)}
    Path("tally.toml").write_text("[pipelines]\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="at least one"):
        load_settings(needed="any")
    for text in ("", "[pipelines]\n", "[pipelines.a]\n"):
        Path("tally.toml").write_text(text, encoding="utf-8")
        assert load_settings(needed="none").pipelines == {}


def test_the_defaults_are_those_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a file or a variable says."""
    defaults = load().spark
    monkeypatch.setenv("TALLY_SPARK__MASTER", "local[7]")
    assert Settings.defaults().spark == defaults
    assert Settings.defaults().names == []


def test_of_two_pipelines_with_one_table_the_later_one_is_disabled() -> None:
    """The earlier one goes on; the ledger would refuse the other's first plan, too."""
    settings = load(MINIMAL + '[pipelines.b]\ntopics = ["b"]\nresult_table = "error_log"\n')
    assert list(settings.pipelines) == ["error_log"]
    with pytest.raises(ConfigError, match="error_log and b have the same result_table"):
        settings.check("b")


@pytest.mark.parametrize("name", ["a_replay", "a_losses", "a_audit"])
def test_a_pipeline_has_no_name_of_another_ones_dag(name: str) -> None:
    """Whichever stands first in the file, the one with the longer name is disabled."""
    one, other = ('[pipelines.a]\ntopics = ["a"]\n', f'[pipelines.{name}]\ntopics = ["b"]\n')
    for text in (one + other, other + one):
        settings = load(text)
        assert list(settings.pipelines) == ["a"]
        with pytest.raises(ConfigError, match=f"{name}: Airflow's DAG of this name"):
            settings.check(name)


@pytest.mark.parametrize(
    "expression", ["* * * * *", "*/5 8-18 * * 1-5", "17 3 1,15 * *", "@hourly"]
)
def test_a_schedule_is_a_cron_expression(expression: str) -> None:
    """Of five fields, or one of Airflow's names."""
    text = f'{MINIMAL}schedule = "{expression}"\n'
    assert load(text).pipeline("error_log").schedule == expression


def test_a_variable_that_means_nothing_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One underscore instead of two would be ignored in silence."""
    monkeypatch.setenv("TALLY_MYSQL_PASSWORD", "x")
    with pytest.raises(ConfigError, match="TALLY_MYSQL_PASSWORD") as raised:
        load()
    assert "did you mean TALLY_MYSQL__PASSWORD?" in raised.value.what


def test_variables_that_mean_something_are_not_complained_of() -> None:
    """Settings of every section, pipelines of any name, and Tally's own other variables."""
    known = [
        "TALLY_CONFIG",
        "TALLY_SECRETS_FILE",
        "TALLY_KAFKA__BOOTSTRAP_SERVERS",
        "tally_mysql__port",
        "TALLY_PIPELINES__ANY__LEVELS",
        "TALLY_STACK_TOKEN",
        "TALLY_TEST_HOME",
        "PATH",
    ]
    assert list(unknown_variables(known)) == []
    assert list(unknown_variables(["TALLY_KAFKAA__X", "TALLY_HOME"])) == [
        "TALLY_HOME",
        "TALLY_KAFKAA__X",
    ]


def test_rules_without_labels_keep_the_fingerprint_that_they_had() -> None:
    """What was counted before there were labels is not taken for counted under other rules."""
    plain = load().pipeline("error_log")
    counted = f"{plain.format.fingerprint()} ['ERROR']"
    assert fingerprint(plain) == hashlib.sha256(counted.encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    "keys",
    [
        'labels = ["level"]',
        'labels = ["level"]\nlabel_max_chars = 8',
        'filter = { level = ["ERR*"] }',
        'measure = "bytes"',
        "levels = []",
        'time = "record"',
        'time = "record"\ntime_zone = "Asia/Tokyo"',
        'continuation_lines = "unmatched"',
    ],
)
def test_what_changes_the_counts_changes_the_fingerprint(keys: str) -> None:
    """Each key by itself."""
    plain = fingerprint(load().pipeline("error_log"))
    assert fingerprint(load(MINIMAL + keys + "\n").pipeline("error_log")) != plain


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("TALLY_MYSQL__PASWORD", "x", "is no known key; did you mean password?"),
        ("tally_mysql__port", "many", "must be a whole number"),
        ("TALLY_PIPELINES__ERROR_LOG__PATIENCE_S", "soon", "must be a whole number"),
        ("TALLY_PIPELINES__ERROR_LOG__TOPICS", "alog", """JSON: '["a", "b"]'"""),
        ("TALLY_PIPELINES__ERROR_LOG__FILTER", "[x", """JSON: '{"key": "value"}'"""),
        ("TALLY_SPARK__CONF", "x", """JSON: '{"key": "value"}'"""),
    ],
)
def test_a_variable_that_sets_a_wrong_key_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    """The file that is named as well may not have the key."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=re.escape(f"(from {variable})")) as raised:
        load().check("error_log")
    assert said in raised.value.what


@pytest.mark.parametrize(
    ("variables", "value", "named"),
    [
        ({"TALLY_MYSQL__PORT": "0"}, 0, ""),
        ({"TALLY_MYSQL__PORT": "many", "TALLY_MYSQL": "{}"}, "many", " (from TALLY_MYSQL__PORT)"),
        ({"TALLY_MYSQL": '{"port": "many"}'}, "many", " (from TALLY_MYSQL)"),
        ({"TALLY_MYSQL": '{"user": "ann"}'}, 0, ""),
    ],
    ids=["overridden", "exact", "table", "table with another key"],
)
def test_only_the_source_of_a_wrong_value_is_named(
    monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str], value: object, named: str
) -> None:
    """An Airflow connection overrides a variable, which overrides the file."""
    for variable, text in variables.items():
        monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigError, match=re.escape(f"mysql.port{named} = {value!r}: ")):
        load("[mysql]\nport = 0\n" + MINIMAL, mysql={"port": value} if not named else {})


def test_each_of_several_mistakes_has_a_line_of_its_own() -> None:
    """One alone stays on the line of the file."""
    with pytest.raises(ConfigError) as raised:
        load("[mysql]\nport = 0\nuser = 5\n" + MINIMAL)
    file, *mistakes = raised.value.what.splitlines()
    assert file.endswith("tally.toml with its overrides is not valid:")
    assert [line.split(" = ")[0] for line in mistakes] == ["  mysql.port", "  mysql.user"]
    assert "; mysql.user = 5" in str(raised.value), "a log has one line"
    with pytest.raises(ConfigError, match=r"is not valid: mysql\.port = 0: "):
        load("[mysql]\nport = 0\n" + MINIMAL)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ('delivery = "at_least_once"', "what is delivered twice would be counted twice"),
        ('delivery = "exactly_once"', "delivery"),
        ('rows_table = "lines"', 'only delivery = "rows" and "procedure" and "files" knows it'),
        ('row_key = ["level"]', 'row_key: only delivery = "rows" and "procedure" knows it'),
        (
            'delivery = "rows"\nrow_procedure = "p"',
            'only delivery = "procedure" knows it: choose it',
        ),
        ('delivery = "procedure"\nrow_procedure = "batch"', "one of Tally's own tables"),
        ('delivery = "rows"\nfiles_url = "/a"', 'files_url: only delivery = "files" knows it'),
        ('delivery = "files"', "files_url is missing"),
        ('delivery = "files"\nfiles_url = "a/b"', "a folder is an absolute path, or a URL"),
        ('delivery = "files"\nfiles_url = "s3://me:key@b/c"', "no user, password or options"),
        ('delivery = "files"\nfiles_url = "hdfs://a/b"', "a folder is an absolute path, or a URL"),
        ('delivery = "files"\nfiles_url = "/"', "a folder is an absolute path, or a URL"),
        ('delivery = "files"\nfiles_url = "s3://"', "a folder is an absolute path, or a URL"),
        ('delivery = "files"\nfiles_url = "ftp://a/b"', "a folder is an absolute path, or a URL"),
        ('delivery = "files"\nfiles_url = "/a\'b"', "a folder is an absolute path, or a URL"),
        ('delivery = "files"\nfiles_url = "/a"\nrow_key = ["level"]', "only delivery = "),
        ('delivery = "rows"\nrow_key = ["request"]', "have no such field"),
        ('delivery = "rows"\nrows_table = "batch"', "one of Tally's own tables"),
        ('delivery = "rows"\nrows_table = "a__sets"', "one of Tally's own tables"),
        (f'delivery = "rows"\nrows_table = "{"a" * 60}"', "more than 58 characters"),
        ('delivery = "rows"\nreader = { minPartitions = "8" }', 'delivery = "rows" commits each'),
        ('delivery = "partition"\nreader = { minPartitions = "8" }', '= "partition" commits each'),
    ],
)
def test_a_delivery_that_does_not_fit_is_refused_with_the_reason(keys: str, told: str) -> None:
    """And with the right one, where there is one."""
    with pytest.raises(ConfigError, match=re.escape(told)):
        load(MINIMAL + keys + "\n")


def test_no_view_of_lines_has_the_name_of_another_result() -> None:
    """Neither that of a table nor that of a view."""
    rows = '[pipelines.{}]\ntopics = ["alog"]\ndelivery = "rows"\nrows_table = "lines"\n'
    for text in (
        rows.format("a") + rows.format("b"),
        rows.format("a") + '[pipelines.b]\ntopics = ["alog"]\nresult_table = "lines"\n',
    ):
        settings = load(text)
        assert "have the same table or view lines" in settings.disabled["b"][0]


def test_lines_are_kept_beside_the_result_unless_it_is_said_where() -> None:
    """The view's name, and the server: that of the ledger without a section of its own."""
    settings = load(MINIMAL + 'delivery = "rows"\n')
    assert (settings.pipeline("error_log").rows_view, settings.results) == ("error_log_rows", None)
    settings = load(MINIMAL + 'delivery = "rows"\nrows_table = "e"\n[results]\nhost = "h"\n')
    assert settings.pipeline("error_log").rows_view == "e"
    assert settings.results is not None
    assert (settings.results.host, settings.results.user) == ("h", "tally")
    assert load().pipeline("error_log").rows_view is None
    files = load(MINIMAL + 'delivery = "files"\nfiles_url = "/a/b/"\n').pipeline("error_log")
    assert (files.rows_view, files.files_url) == ("error_log_files", "file:///a/b")
    called = load(MINIMAL + 'delivery = "procedure"\n').pipeline("error_log")
    assert (called.rows_view, called.procedure) == ("error_log_rows", "error_log_rows_keep")
