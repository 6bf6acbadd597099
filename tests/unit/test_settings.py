"""The configuration: where values come from, and what is said of wrong ones."""

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from tally.aggregates.aggregate import fingerprint
from tally.config.loading import load_settings
from tally.config.pipeline import Pipeline
from tally.config.servers import READER_DEFAULTS
from tally.config.settings import Settings
from tally.config.variables import mistaken_variables
from tally.errors import ConfigError, UnknownPipelineError
from tally.spark.counting import DEAD_LETTER_BYTES_PER_TASK
from tally.spark.java import JAVA_OPTIONS, THROUGHPUT, with_throughput
from tally.spark.session import SESSION_DEFAULTS, reader_options

BLANKS = "unicode_blanks"
MINIMAL = '[pipelines.error_log]\ntopics = ["alog"]\n'
JSON = 'line_format = { json = { time = "ts" }, time_format = "yyyy-MM-dd HH:mm" }\n'


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TALLY_CONFIG", raising=False)
    monkeypatch.delenv("TALLY_SECRETS_FILE", raising=False)
    monkeypatch.chdir(tmp_path)


def load(text: str = MINIMAL, **overrides: Any) -> Settings:
    """The settings from a ``tally.toml`` in the current folder."""
    Path("tally.toml").write_text(text, encoding="utf-8")
    return load_settings(overrides=overrides)


def pipeline(*keys: str) -> Pipeline:
    """The pipeline ``error_log`` with these keys."""
    return load("\n".join([MINIMAL, *keys, ""])).pipeline("error_log")


def refusal(text: str, **overrides: Any) -> str:
    """What is said of a configuration that is wrong, or whose pipeline is."""

    def check() -> None:
        settings = load(text, **overrides)
        for name in settings.names:
            settings.pipeline(name)

    with pytest.raises(ConfigError) as raised:
        check()
    return f"{raised.value.what}\n{raised.value.next_step}"


def complaint(settings: Settings, name: str = "error_log") -> str:
    """What is said of a pipeline that is disabled."""
    with pytest.raises(ConfigError) as raised:
        settings.pipeline(name)
    return raised.value.what


def test_a_pipeline_needs_its_topics_alone() -> None:
    """Everything else has a default; of the reader's options each key by itself."""
    default = pipeline()
    assert (default.topics, default.levels, default.table) == (["alog"], ["ERROR"], "error_log")
    assert (default.reader_options, default.rows_view) == (dict(READER_DEFAULTS), None)
    options = pipeline('reader = { "kafka.max.poll.records" = 5 }').reader_options
    assert options == {**READER_DEFAULTS, "kafka.max.poll.records": "5"}
    # Its rules in words: the levels as configured, and the format by its name.
    keys = ["levels = []", 'labels = ["topic"]', 'measure = "bytes"', 'filter.text = ["timeout"]']
    for told, found in (
        ("level ERROR; format fixed", pipeline()),
        ("levels A, B; format log4j", pipeline('levels = ["A", "B"]', 'line_format = "log4j"')),
        (
            "level ERROR; format json; skip 5; accept nan; time instant, zone Asia/Tokyo",
            pipeline(
                'line_format = { name = "json", skip_bytes = 5, accept = ["nan"] }',
                'time = "instant"\ntime_zone = "Asia/Tokyo"',
            ),
        ),
        ("any level; text timeout; by topic; bytes besides lines; format fixed", pipeline(*keys)),
    ):
        assert found.rules == told


def test_the_fields_of_json_lines_are_a_table_in_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or JSON in the environment; a path is a text or a list of keys."""
    table = '{ time = "ts", service = ["k8s", "app/name"], level = "l" }'
    found = pipeline(f'line_format = {{ json = {table}, time_format = "yyyy-MM-dd HH:mm" }}')
    assert found.format.paths_of("service") == (("k8s", "app/name"),)
    assert found.rules == "level ERROR; format custom"
    value = '{"json": {"time": "ts"}, "time_format": "yyyy-MM-dd HH:mm"}'
    monkeypatch.setenv("TALLY_PIPELINES__ERROR_LOG__LINE_FORMAT", value)
    monkeypatch.setenv("TALLY_PIPELINES__ERROR_LOG__LEVELS", "[]")
    assert pipeline().format.paths_of("time") == (("ts",),)
    # Labels and filters may name any path.
    for key in ("LINE_FORMAT", "LEVELS"):
        monkeypatch.delenv(f"TALLY_PIPELINES__ERROR_LOG__{key}")
    keys = ['line_format = "json"', 'filter = { "http.status" = ["5*"] }']
    found = pipeline(*keys, 'labels = ["service", "host.name", "level", "key"]')
    assert found.labels == ["service", "host.name", "level", "key"]


def test_each_source_wins_over_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """File, local stack, secrets, environment with lists as JSON, and what the caller passes."""
    text = MINIMAL + '[mysql]\nport = 3308\nuser = "me"\npassword = "a"\n'
    assert load(text).mysql.port == 3308
    Path(".tally").mkdir()
    Path(".tally/stack.toml").write_text('[mysql]\nport = 4000\npassword = "b"\n')
    assert (load(text).mysql.port, load(text).mysql.user) == (4000, "me")
    secrets = Path("secrets.toml")
    secrets.touch(mode=0o600)
    secrets.write_text('[mysql]\nport = 4001\npassword = "c"\n')
    monkeypatch.setenv("TALLY_SECRETS_FILE", str(secrets))
    assert load(text).mysql.port == 4001
    assert load(text).mysql.password.get_secret_value() == "c"
    monkeypatch.setenv("TALLY_MYSQL__PORT", "3307")
    monkeypatch.setenv("TALLY_PIPELINES__ERROR_LOG__LEVELS", '["WARN", "ERROR"]')
    assert load(text).mysql.port == 3307
    assert load(text).pipeline("error_log").levels == ["WARN", "ERROR"]
    assert load(text, mysql={"port": 3309}).mysql.port == 3309


def test_a_file_that_cannot_be_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration with the wrong line, and the file of secrets, which must be private."""
    with pytest.raises(ConfigError, match=r"tally\.toml.*TALLY_CONFIG"):
        load_settings()
    assert re.search(r"no valid TOML.*line 2", refusal("colour = 1\npipelines = = 2\n"))
    monkeypatch.setenv("TALLY_SECRETS_FILE", "secrets.toml")
    assert "secrets.toml, which does not exist" in refusal(MINIMAL)
    Path("secrets.toml").write_text("")
    Path("secrets.toml").chmod(0o644)
    assert "chmod 600" in refusal(MINIMAL)


def test_a_wrong_value_is_named_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the file that sets it; a variable has none, nor has a key inside another value."""
    assert "kafka.request_timeout_s = 'x': must be a number (line 4)" in refusal(
        f"{MINIMAL}[kafka]\nrequest_timeout_s = 'x'\n"
    )
    # With what is wrong for all, what disables one is told, too.
    monkeypatch.setenv("TALLY_HOME", "x")
    assert refusal(f"{MINIMAL}patience_s = 'x'\n").count("(line 3)") == 1
    monkeypatch.delenv("TALLY_HOME")
    second = f'{MINIMAL}\n[pipelines.second]\ntopics = ["b"]\nmax_lag_offsets = -1\n'
    assert complaint(load(second), "second").endswith("at least 0 (line 6)")
    # The text of another key, and lines that a TOML parser alone can tell apart.
    inside = f'{MINIMAL}owner = """\n[kafka]\nrequest_timeout_s = 1\n"""\n'
    for text, line in (
        (f"{inside}[kafka]\nrequest_timeout_s = 'x'\n", 8),
        (f"kafka = {{ request_timeout_s = 'x' }}\n{MINIMAL}", 1),
        (f"{inside}[[kafka]]\nrequest_timeout_s = 'x'\n", 7),
    ):
        assert set(re.findall(r"\(line (\d+)\)", refusal(text))) == {str(line)}
    Path(".tally").mkdir()
    Path(".tally/stack.toml").write_text("# made\n[mysql]\nport = 'none'\n")
    assert "mysql.port = 'none': must be a whole number (stack.toml, line 3)" in refusal(
        f"{MINIMAL}[mysql]\nport = 3306\n"
    )
    # A value that overrides the file is not told with the file's line.
    assert "(line" not in refusal(f"{MINIMAL}[mysql]\nport = 3306\n", mysql={"port": "no"})
    monkeypatch.setenv("TALLY_MYSQL__PORT", "no")
    assert "(line" not in refusal(f"{MINIMAL}[mysql]\nport = 3306\n")
    Path("tally.toml").write_bytes(b"# a\n# caf\xe9\n" + MINIMAL.encode())
    with pytest.raises(ConfigError, match=r"no valid TOML: .*\(at line 2\)") as raised:
        load_settings()
    assert raised.value.next_step == "write it in UTF-8"


WRONG_FILES = [
    *(("", "pipelines", "at least one is needed"), ("[pipelines]", "pipelines", "at least one")),
    ("[pipelines.error_log]", "pipelines.error_log.topics", "is required"),
    ("[pipelines.error_log]\ntopics = []", "pipelines.error_log.topics", "must not be empty"),
    ('[pipelines.error_log]\ntopics = ["a b"]', "topics.0", "letters, digits, dots"),
    ('[pipelines.Error-Log]\ntopics = ["a"]', "pipelines.Error-Log", "lower-case letters"),
]
WRONG_KEYS = [
    *(('start = "yesterday"', "earliest"), ("start = 2026-11-20T14:00:00", "needs its zone")),
    ('labels = ["two words"]', "name of a field"),
    *(('labels = ["log_count"]', "cannot be called log_count"), ('labels = ["text"]', "no label")),
    ('labels = ["a-b", "a_b"]', "share the column a_b"),
    (f"labels = {[f'l{n}' for n in range(9)]}", "more than 8"),
    ('labels = ["service"]', "service: lines of the format fixed"),
    ('filter = { status = ["5*"] }', "status: lines of the format"),
    ("filter.level = []", "must not be empty"),
    (f"filter.level = ['{'a*' * 101}']", "has * 101 times"),
    *(('measure = "words"', "'count' or 'bytes'"), ('levels = ["TWO WORDS"]', "one word")),
    *(('line_format = "syslog"', "year"), ('line_format = "nginxx"', "; did you mean nginx?")),
    ('line_format = "nginx"\nlevels = ["ERROR"]', "it has debug, info"),
    (JSON + "levels = []\nlabels = ['time']", "or any other path"),
    ('result_table = "segment"', "Tally's own tables"),
    ('result_table = "a-b"', "lower-case letters"),
    ('result_table = "other__folded"', "Tally's own tables has this name, or may"),
    ('result_table = "other__segments"', "Tally's own tables has this name"),
    # Each limit and each choice of a value stands in docs/configuration.md, which is compared.
    ("max_records_per_partition = 0", "at least 1"),
    ("max_records_per_partition = 2_000_000_001", "at most 2000000000"),
    ('reader = { "assign" = "x" }', "from the plan"),
    ('reader = { "failOnDataLoss" = "false" }', "from the plan"),
    ('reader = { "kafka.sasl.jaas.config" = "x" }', "into [kafka]"),
    *(('schedule = ""', "five fields"), ('schedule = "every minute"', "five fields")),
    *(('schedule = "* * * * * *"', "five fields"), ('schedule = "61 * * * *"', "@hourly")),
    *(('time_zone = "CET"', "such as Europe/Berlin"), ("assume_year = 99", "at least 1000")),
    ('time = "record"\ncontinuation_lines = "unmatched"', "leave one of them out"),
    ("patience_s = 120", "more than mysql.statement_timeout_s = 300"),
    *(('owner = ""', "must not be empty"), ('tags = "x"', "list"), ("colour = 3", "no known key")),
    ('level = ["ERROR"]', "is no known key; did you mean levels?"),
    ('delivery = "at_least_once"', "what is delivered twice would be counted twice"),
    ('rows_table = "l"', 'only delivery = "rows" and "procedure" and "files" knows it'),
    ('row_key = ["level"]', 'only delivery = "rows" and "procedure" knows it'),
    ('delivery = "rows"\nrow_procedure = "p"', 'only delivery = "procedure" knows it: choose it'),
    ('delivery = "procedure"\nrow_procedure = "batch"', "one of Tally's own tables"),
    ('delivery = "rows"\nfiles_url = "/a"', 'only delivery = "files" knows it'),
    ('delivery = "files"\nfiles_url = "s3://me:key@b/c"', "no user, password or options"),
    *(
        (f'delivery = "files"\nfiles_url = "{url}"', "a folder is an absolute path, or a URL")
        for url in ("a/b", "hdfs://a/b", "/", "s3://", "ftp://a/b", "/a'b")
    ),
    ('delivery = "files"\nfiles_url = "/a"\nrow_key = ["level"]', "only delivery = "),
    ('delivery = "rows"\nrow_key = ["request"]', "have no such field"),
    ('delivery = "rows"\nrows_table = "batch"', "one of Tally's own tables"),
    ('delivery = "rows"\nrows_table = "a__sets"', "one of Tally's own tables"),
]
"""The last key is the wrong one; what is allowed."""
WRONG_TABLES = [
    *(("kafka", "request_timeout_s = 0", "more than 0"), ("spark", "conf = 3", "must be a table")),
    *(("mysql", "port = 70000", "65535"), ("mysql", "database = 'a b'", "a dash")),
    ("mysql", "database = '-x'", "not begin with a dash"),
    *(("mysql", "database = 'a`b'", "letters"), ("mysql", "database = 'a/b'", "letters")),
    *(("mysql", "database = ''", "1 to 64"), ("mysql", f"database = '{'a' * 65}'", "1 to 64")),
    *(("mysql", "database = 'MySQL'", "the server's own"), ("mysql", "tls = 'maybe'", "verified")),
    ("mysql", "pasword = 'x'", "; did you mean password?"),
]
LONG = "a" * 60
# Otherwise all lines would silently be counted by the record's own key.
HIDDEN = r"""levels = []
line_format = { pattern = '(?<time>\S+) (?<key>\w+) (?<text>\w+)', time_format = "yyMMddHHmm" }
"""
SLOW = "[kafka]\nrequest_timeout_s = 60\n[mysql]\nstatement_timeout_s = 30"
NAMED_OTHERWISE = [
    ('labels = ["level", "topic"]\nlabel_max_chars = 351', "error_log", "than 700 characters"),
    (f'result_table = "{LONG}"\nlabels = ["topic"]', "result_table", "more than 54 characters"),
    (f'delivery = "rows"\nrows_table = "{LONG}"', "rows_table", "more than 58 characters"),
    (JSON.replace('ts"', 'ts", key = "k"') + "levels = []", "json: key", "not the line's fields"),
    (f'{HIDDEN}labels = ["key"]', "pattern: key", "topic, partition, key, text are not"),
    (f'{HIDDEN}filter.text = ["x"]', "pattern: text", "topic, partition, key, text are not"),
    ('line_format = { patern = "x" }', "line_format.patern", "known key; did you mean pattern?"),
    ("[kafka]\nsecurity_protocol = 'SASL_SSL'", "kafka", "sasl_mechanism"),
    ("[kafka]\nsasl_mechanism = 'OAUTHBEARER'", "kafka", "needs sasl_oauthbearer_token_endpoint_"),
    ("[kafka]\nssl_keystore_location = 'a.pem'", "kafka", "for SSL and SASL_SSL, not PLAINTEXT"),
    ("[mysql]\nssl_cert = 'a.pem'", "mysql", "for tls = \"verified\", not 'preferred'"),
    ("[mysql]\nlock_wait_timeout_s = 300", "mysql: lock_wait_timeout_s", "less than statement_"),
    (f"patience_s = 60\n{SLOW}", "error_log.patience_s = 60", "kafka.request_timeout_s = 60"),
    (
        'line_format = "syslog"\nassume_year = 2026\nlevels = []\nlabels = ["progam"]',
        "progam:",
        "program?",
    ),
    # Other values would count the same records differently, under the same rule.
    ('[spark.conf]\n"spark.sql.variant.allowDuplicateKeys" = "false"', "Keys", "itself"),
    ('delivery = "files"', "files_url", "files_url is missing"),
    ('delivery = "rows"\nreader = { minPartitions = "8" }', "reader", '= "rows" commits each'),
    ('delivery = "partition"\nreader = { minPartitions = "8" }', "", '= "partition" commits each'),
]


def test_a_wrong_value_is_named_with_what_is_allowed() -> None:
    """The key, the value and the choice are all in the message; a typing error costs one look."""
    cases = [*WRONG_FILES, *((MINIMAL + keys, *told) for keys, *told in NAMED_OTHERWISE)]
    rows = [("pipelines.error_log", *row) for row in WRONG_KEYS]
    for table, keys, allowed in [*rows, *WRONG_TABLES]:
        header = MINIMAL if table in MINIMAL else f"{MINIMAL}[{table}]\n"
        key = keys.splitlines()[-1].partition(" =")[0]
        cases.append((header + keys, f"{table}.{key}", allowed))
    told = [(text, key, allowed, refusal(text + "\n")) for text, key, allowed in cases]
    assert [case for case in told if case[1] not in case[3] or case[2] not in case[3]] == []


def test_a_wrong_key_silences_no_other_that_begins_with_its_name() -> None:
    """A mistyped key beside the right one, whose value is wrong as well."""
    told = refusal(f'{MINIMAL}level = 1\nline_format = "nginx"\nlevels = ["ERROR"]\n')
    assert "did you mean levels?" in told
    assert "it has debug, info" in told


def test_what_is_just_right_is_accepted() -> None:
    """Long names, lock wait < statement < patience by a second each, schedules by name."""
    for name in ("my-db", "Ledger_2", "2026", "a$b", "x" * 64):
        assert load(MINIMAL + f"[mysql]\ndatabase = '{name}'\n").mysql.database == name
    settings = load(MINIMAL + "patience_s = 301\n[mysql]\nlock_wait_timeout_s = 299\n")
    assert settings.pipeline("error_log").patience_s == 301
    assert pipeline(f'result_table = "{LONG}"').table == LONG
    assert pipeline(HIDDEN).format.fields == ("key", "text")
    for expression in ("* * * * *", "*/5 8-18 * * 1-5", "17 3 1,15 * *", "@hourly"):
        assert pipeline(f'schedule = "{expression}"').schedule == expression


def test_passwords_never_show() -> None:
    """Neither in a representation nor in an error, whatever stands in place of one or its table."""
    assert "hunter2" not in repr(load(MINIMAL + "[mysql]\npassword = 'hunter2'\n"))
    for table, key in (
        ("mysql", "password"),
        ("results", "password"),
        ("kafka", "sasl_password"),
        ("kafka", "ssl_key_password"),
        ("mysql", "ssl_key_password"),
        ("spark", "connect_token"),
    ):
        for text in (
            f"{MINIMAL}[{table}]\n{key} = 'hunter2'\nnothing = 'hunter2'\n",
            f"{MINIMAL}[{table}]\n{key} = [12345678]\n",
            f"{table} = '{table}://tally:hunter2@db/tally'\n{MINIMAL}",
            f"{table} = [12345678]\n{MINIMAL}",
        ):
            told = refusal(text)
            assert table in told
            assert not re.search("hunter2|12345678", told), told
    # By its type, and not because a key speaks of passwords.
    told = refusal('[pipelines.password_log]\ntopics = "alog"\n')
    assert "pipelines.password_log.topics = 'alog': " in told


def test_a_wrong_pipeline_is_disabled_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are there; whoever asks for it is told all of its mistakes."""
    wrong = '[pipelines.b]\ntopics = ["b", "b"]\nlevel = 3\n[pipelines.c]\ntopics = ["c"]\n'
    settings = load(MINIMAL + wrong + 'line_format = "nginx"\npatience_s = 100\n')
    assert list(settings.pipelines) == ["error_log"]
    assert settings.names == ["b", "c", "error_log"]
    with pytest.raises(UnknownPipelineError, match=r"'eror_log'.*error_log; did you mean error_l"):
        settings.pipeline("eror_log")
    assert settings.pipeline("error_log").topics == ["alog"]
    with pytest.raises(ConfigError, match=r"(?s)b\.topics.*each topic once.*b\.level: is no known"):
        settings.pipeline("b")
    told = complaint(settings, "c")
    assert re.search(r"(?s)c\.levels = .*not a level of nginx.*c\.patience_s", told)
    monkeypatch.setenv("TALLY_PIPELINES__D__TOPICS", "dlog")  # which is no JSON
    settings = load(MINIMAL + "[pipelines.d]\npatience_s = 1\n")
    assert list(settings.pipelines) == ["error_log"]
    assert re.search(r"(?s)TOPICS\) = 'dlog': must be a list.*patience_s", complaint(settings, "d"))


WRONG_TOGETHER = {
    "colour = 3\nline_format = 'nginx'": ["b.levels = ['ERROR']: ", "b.colour: "],
    "start = 'x'\nlabels = ['service']": ["b.start = 'x': ", "b.labels: service: lines of the "],
    "tags = 'x'\ndelivery = 'files'": ["b.tags = 'x': ", "b.files_url is missing"],
    "tags = 'x'\npatience_s = 100": ["b.tags = 'x': ", "b.patience_s = 100 must be more than"],
    # What would follow from a default in place of a wrong value is not said.
    "line_format = 'nginx'\nlevels = ['a b']": ["b.levels.0 = 'a b': "],
    "line_format = 3\nlevels = ['notice']\nlabels = ['host']": 2 * ["b.line_format"],
    "line_format = 'syslog'\nassume_year = 1\nlevels = []": 2 * ["b.assume_year"],
    "delivery = 'files'\nfiles_url = 'a'": ["b.files_url = 'a': "],
    "delivery = 'lines'\nfiles_url = '/a'": ["b.delivery = 'lines': "],
    "labels = ['host', 'level']\nlabel_max_chars = 700": ["b: 2 labels of label_max_chars"],
}


@pytest.mark.parametrize("keys", WRONG_TOGETHER)
def test_a_wrong_key_hides_no_other(keys: str) -> None:
    """Each is told, in one go; and nothing that is not there, with wrong servers neither."""
    settings = load(f'{MINIMAL}[pipelines.b]\ntopics = ["b"]\n{keys}\n')
    told, wanted = settings.disabled["b"], WRONG_TOGETHER[keys]
    assert len(told) == len(wanted), told
    assert [one for one in wanted if f"pipelines.{one}" not in " ".join(told)] == []


def test_all_mistakes_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the servers' tables and every pipeline; keys, formats, levels, tables, variables."""
    monkeypatch.setenv("TALLY_HOME", "x")
    text = MINIMAL + (
        '[pipelines.a]\ntopics = []\nline_format = "nginxx"\n'
        '[pipelines.b]\ntopics = ["b"]\nline_format = "nginx"\n'
        '[pipelines.c]\ntopics = ["c"]\nresult_table = "error_log"\n[pipelines.d]\npatience_s = 5\n'
    )
    named = ["pipelines.a.topics", "pipelines.a.line_format", "pipelines.b.levels"]
    named += ["pipelines.d.patience_s", "pipelines.d.topics: is required"]
    others = ["and c have the same result_table", "TALLY_HOME is no setting: unset it"]
    told = refusal(text)
    assert [name for name in [*named, *others] if told.count(name) != 1] == [], told
    for whole in (text, text.removeprefix(MINIMAL)):
        told = refusal(whole + "[mysql]\nport = 0\n")
        assert [name for name in [*named, "mysql.port = 0"] if told.count(name) != 1] == [], told


def test_who_shows_what_is_wrong_needs_no_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow draws a red DAG for each, and doctor lists them."""
    for text in ("", "[pipelines]\n", "[pipelines.a]\n"):
        Path("tally.toml").write_text(text, encoding="utf-8")
        assert load_settings(needs_pipeline=False).pipelines == {}
    assert load_settings().disabled == {"a": ("pipelines.a.topics: is required",)}
    # Without a file there are the defaults, whatever a file or a variable says.
    defaults = load().spark
    monkeypatch.setenv("TALLY_SPARK__MASTER", "local[7]")
    assert (Settings().spark, Settings().names) == (defaults, [])


def test_of_two_pipelines_with_one_table_view_or_dag_one_is_disabled() -> None:
    """The earlier one goes on; the ledger would refuse the other's first plan, too."""
    view, table = 'delivery = "rows"\nrows_table = "lines"\n', 'result_table = "lines"\n'
    for earlier, later, told in (
        (table, table, "the same result_table"),
        (view, view, "the same table or view lines"),
        (view, table, "the same table or view lines"),
    ):
        settings = load(f'{MINIMAL}{earlier}[pipelines.o]\ntopics = ["b"]\n{later}')
        assert list(settings.pipelines) == ["error_log"]
        assert f"error_log and o have {told}" in complaint(settings, "o")
    # Of names of DAGs, the longer name, whichever stands first.
    for name in ("a_replay", "a_losses", "a_audit"):
        one, other = ('[pipelines.a]\ntopics = ["a"]\n', f'[pipelines.{name}]\ntopics = ["b"]\n')
        for text in (one + other, other + one):
            settings = load(text)
            assert list(settings.pipelines) == ["a"]
            assert f"{name}: Airflow's DAG of this name" in complaint(settings, name)


def test_a_variable_that_means_nothing_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One underscore instead of two would be ignored in silence; Tally's other ones are known."""
    known = ["TALLY_CONFIG", "TALLY_SECRETS_FILE", "TALLY_KAFKA__BOOTSTRAP_SERVERS", "PATH"]
    known += ["tally_mysql__port", "TALLY_PIPELINES__ANY__LEVELS"]
    known += ["TALLY_STACK_TOKEN", "TALLY_TEST_HOME"]
    assert list(mistaken_variables(known)) == []
    told = list(mistaken_variables(["TALLY_KAFKAA__X", "TALLY_HOME"]))
    assert [sentence.split()[3] for sentence in told] == ["TALLY_HOME", "TALLY_KAFKAA__X"]
    monkeypatch.setenv("TALLY_MYSQL_PASSWORD", "x")
    assert re.search(r"TALLY_MYSQL_PASSWORD .*mean TALLY_MYSQL__PASSWORD\?", refusal(MINIMAL))


def test_what_changes_the_counts_changes_the_fingerprint() -> None:
    """Each key by itself; what was counted before there were labels keeps its fingerprint."""
    plain = f"{pipeline().format.fingerprint()} ['ERROR']"
    assert fingerprint(pipeline()) == hashlib.sha256(plain.encode()).hexdigest()[:16]
    rules = [
        'isolation_level = "read_uncommitted"',
        *("", 'labels = ["level"]', 'labels = ["level"]\nlabel_max_chars = 8', 'measure = "bytes"'),
        *('filter = { level = ["ERR*"] }', "levels = []", 'time = "record"'),
        *('time = "record"\ntime_zone = "Asia/Tokyo"', 'continuation_lines = "unmatched"'),
        *(f'line_format = "klog"\nassume_year = {year}' for year in (2005, 2006, '"from_record"')),
        *('line_format = "json"\nlabels = ["a.b"]', 'line_format = "json"\nlabels = ["a.c"]'),
        *(
            'line_format = "json"\ntime = "instant"',
            'line_format = { name = "json", skip_bytes = 5 }',
        ),
        'line_format = { name = "json", default_level = "ERROR" }',
        *(f'line_format = {{ name = "json", accept = ["{one}"] }}' for one in ("nan", BLANKS)),
    ]
    found = {fingerprint(pipeline(rule)): rule for rule in rules}
    assert list(found.values()) == rules
    # An option that is not set, or set twice, is none.
    plain, named = 'line_format = "json"', 'line_format = { name = "json", accept = %s }'
    assert fingerprint(pipeline(plain)) == fingerprint(pipeline(named % "[]"))
    two = [fingerprint(pipeline(named % f'["nan", "{o}", "nan"]')) for o in (BLANKS, "nan")]
    assert two[1] == fingerprint(pipeline(named % '["nan"]')) != two[0]


def test_of_a_wrong_value_the_source_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An Airflow connection overrides a variable, which overrides the file; only it is named."""
    for variable, value, said in (
        ("TALLY_MYSQL__PASWORD", "x", "is no known key; did you mean password?"),
        ("tally_mysql__port", "many", "must be a whole number"),
        ("TALLY_PIPELINES__ERROR_LOG__PATIENCE_S", "soon", "must be a whole number"),
        ("TALLY_PIPELINES__ERROR_LOG__TOPICS", "alog", """JSON: '["a", "b"]'"""),
        ("TALLY_PIPELINES__ERROR_LOG__FILTER", "[x", """JSON: '{"key": "value"}'"""),
        ("TALLY_SPARK__CONF", "x", """JSON: '{"key": "value"}'"""),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(variable, value)
            told = refusal(MINIMAL)
        assert f"(from {variable})" in told
        assert said in told
    for variables, port, named in (
        ({"TALLY_MYSQL__PORT": "0"}, 0, ""),
        ({"TALLY_MYSQL__PORT": "many", "TALLY_MYSQL": "{}"}, "many", " (from TALLY_MYSQL__PORT)"),
        ({"TALLY_MYSQL": '{"port": "many"}'}, "many", " (from TALLY_MYSQL)"),
        ({"TALLY_MYSQL": '{"user": "ann"}'}, 0, ""),
    ):
        with monkeypatch.context() as patch:
            for variable, value in variables.items():
                patch.setenv(variable, value)
            told = refusal("[mysql]\nport = 0\n" + MINIMAL, mysql={} if named else {"port": port})
        assert f"mysql.port{named} = {port!r}: " in told
    # Each of several mistakes has a line of its own; one alone stays on the line of the file.
    with pytest.raises(ConfigError, match=r"; mysql\.user = 5") as raised:  # a log has one line
        load("[mysql]\nport = 0\nuser = 5\n" + MINIMAL)
    file, *mistakes = raised.value.what.splitlines()
    assert file.endswith("tally.toml with its overrides is not valid:")
    assert [line.split(" = ")[0] for line in mistakes] == ["  mysql.port", "  mysql.user"]
    assert "is not valid: mysql.port = 0: " in refusal("[mysql]\nport = 0\n" + MINIMAL)


def test_lines_are_kept_beside_the_result_unless_it_is_said_where() -> None:
    """The view's name, and the server: that of the ledger without a section of its own."""
    settings = load(MINIMAL + 'delivery = "rows"\n')
    assert (settings.pipeline("error_log").rows_view, settings.results) == ("error_log_rows", None)
    settings = load(MINIMAL + 'delivery = "rows"\nrows_table = "e"\n[results]\nhost = "h"\n')
    assert settings.pipeline("error_log").rows_view == "e"
    assert settings.results is not None
    assert (settings.results.host, settings.results.user) == ("h", "tally")
    files = pipeline('delivery = "files"', 'files_url = "/a/b/"')
    assert (files.rows_view, files.files_url) == ("error_log_files", "file:///a/b")
    called = pipeline('delivery = "procedure"')
    assert (called.rows_view, called.procedure) == ("error_log_rows", "error_log_rows_keep")


def test_the_masters_scheme_chooses_the_engine() -> None:
    """As for Spark; a wrong address is refused, and the error tells no token."""
    local = ("local[*]", "k8s://https://host:443")
    connect = ("sc://host", "sc://host:15002", "sc://[::1]:15002/")
    for master in (*local, *connect, "sc://host:15002/;use_ssl=true;user_id=ann%20b"):
        spark = load(spark={"master": master}).spark
        assert (spark.master, spark.is_connect) == (master, master not in local)
    for wrong in (
        *({"master": "sc://"}, {"master": "sc://host/path"}, {"master": "sc://ann@host"}),
        *({"master": "sc://h:1/;token=s3cret;x"}, {"master": "sc://h/;token=s3cret;token=s3cret"}),
        {"master": "sc://host/;token=s3cret", "connect_token": "s3cret"},
    ):
        told = refusal(MINIMAL, spark=wrong)
        assert "spark" in told
        assert "s3cret" not in told


def test_a_token_in_the_address_is_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The master is logged and printed, so it must not contain the token, which is a secret."""
    for address, left in (
        ("sc://host/;token=s3%3Bcret", "sc://host/"),
        ("sc://host;token=s3%3Bcret", "sc://host"),
        ("sc://h:1/;use_ssl=true;token=s3%3Bcret;user_id=a", "sc://h:1/;use_ssl=true;user_id=a"),
    ):
        spark = load(spark={"master": address}).spark
        assert (spark.master, spark.connect_token.get_secret_value()) == (left, "s3;cret")
        assert "s3;cret" not in repr(spark)
    monkeypatch.setenv("TALLY_SPARK__CONNECT_TOKEN", "s3cret")
    assert load().spark.connect_token.get_secret_value() == "s3cret"


def test_records_that_are_gone_are_an_error_of_sparks() -> None:
    """Otherwise Spark would read what is left, with only a warning in its log."""
    assert reader_options(load().kafka, pipeline())["failOnDataLoss"] == "true"


def test_what_a_read_leaves_in_memory_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """No later read uses it: without these settings it is kept for five minutes."""
    # A task sends its dead letters straight to the driver: by way of the block manager they can get
    # lost on a busy machine, and with them the batch.
    size = SESSION_DEFAULTS["spark.task.maxDirectResultSize"]
    assert int(size.removesuffix("m")) * 1024 * 1024 >= 2 * DEAD_LETTER_BYTES_PER_TASK
    for cache in ("cache", "fetchedData.cache"):
        for key in ("timeout", "evictorThreadRunInterval"):
            milliseconds = SESSION_DEFAULTS[f"spark.kafka.consumer.{cache}.{key}"]
            assert 0 < int(milliseconds.removesuffix("ms")) <= 5_000
    assert 0 < int(SESSION_DEFAULTS["spark.kafka.consumer.cache.capacity"]) <= 4
    # A collector that was chosen stays: Java does not start with two of them.
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)  # the tests' own
    for own, variable, flags in (
        ("", "", THROUGHPUT),
        ("-Xss4m", "-Dx=y", f"{THROUGHPUT} -Xss4m"),
        ("-XX:+UseG1GC", "", "-XX:+UseG1GC"),
        ("-Xss4m", "-XX:+UseSerialGC", "-Xss4m"),
    ):
        monkeypatch.setenv("SPARK_SUBMIT_OPTS", variable)
        assert with_throughput({JAVA_OPTIONS: own} if own else {})[JAVA_OPTIONS] == flags
