"""The configuration: one file, ``tally.toml``, validated once.

Each value is looked for in this order, the first one found wins:

1. what the caller passes (Airflow connections, see :mod:`tally.airflow.connections`),
2. the environment: ``TALLY_`` and the key's path, its parts joined by two underscores
   (``TALLY_MYSQL__PASSWORD``, ``TALLY_PIPELINES__ERROR_LOG__LEVELS='["ERROR"]'``),
3. the file ``TALLY_SECRETS_FILE`` names: TOML of the same shape, readable by its owner alone,
4. ``.tally/stack.toml`` beside the configuration: the local stack's addresses and passwords,
5. ``tally.toml``, or the file ``TALLY_CONFIG`` names,
6. the defaults below.
"""

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from tally.errors import ConfigError, UnknownPipelineError
from tally.lines.format import LineFormat, parse_line_format

CONFIG_VARIABLE = "TALLY_CONFIG"
SECRETS_VARIABLE = "TALLY_SECRETS_FILE"
CONFIG_NAME = "tally.toml"
STACK_OVERLAY = Path(".tally") / "stack.toml"

# pydantic-settings asks the class where to look, so a load's files are handed over beside it.
_files_of_this_load: ContextVar[tuple[Path, ...]] = ContextVar("files_of_this_load", default=())

MYSQL_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")

# Tally's own tables; a result table must not take one of their names.
RESERVED_TABLES = frozenset(
    {
        "batch",
        "dead_letter",
        "folded_count",
        "lost_range",
        "partition_offset",
        "pipeline",
        "replacement",
        "replay",
        "segment",
        "segment_count",
        "topic_incarnation",
    }
)

# What Spark's consumers ask of Kafka; ``[pipelines.<name>.reader]`` overrides it key by key.
# max.wait decides: with Kafka's own 500 ms every read up to a partition's end waits half a second
# per partition (docs/performance.md has the measurement).
READER_DEFAULTS: Mapping[str, str] = {
    "kafka.fetch.max.wait.ms": "10",
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": "8388608",
    "kafka.check.crcs": "false",
}

# Set by Tally from the plan; changing them would change what is read.
READER_FORBIDDEN = frozenset(
    {
        "assign",
        "subscribe",
        "subscribepattern",
        "startingoffsets",
        "endingoffsets",
        "startingtimestamp",
        "endingtimestamp",
        "startingoffsetsbytimestamp",
        "endingoffsetsbytimestamp",
        "failondataloss",
        "includeheaders",
        "kafka.bootstrap.servers",
        "kafka.isolation.level",
        "kafka.group.id",
        "kafka.auto.offset.reset",
        "kafka.enable.auto.commit",
    }
)


# These would show in a representation of the settings and in Spark's plans.
READER_SECRETS = re.compile(r"jaas|password|secret", re.IGNORECASE)


def _check_pipeline_name(name: str) -> str:
    if not MYSQL_NAME.fullmatch(name):
        raise ValueError("a pipeline's name is lower-case letters, digits and underscores")
    return name


def _check_result_table(name: str) -> str:
    if not MYSQL_NAME.fullmatch(name):
        raise ValueError("a table's name is lower-case letters, digits and underscores, at most 63")
    if name in RESERVED_TABLES or name.startswith(("_yoyo", "yoyo")):
        raise ValueError("one of Tally's own tables has this name")
    return name


def _check_topic(name: str) -> str:
    if not TOPIC_NAME.fullmatch(name) or name in {".", ".."}:
        raise ValueError("a topic's name is letters, digits, dots, underscores and dashes")
    return name


def _check_level(level: str) -> str:
    if not level or any(character.isspace() for character in level):
        raise ValueError("a level is one word, as it stands in the line")
    return level


def _check_reader_options(options: dict[str, str]) -> dict[str, str]:
    taken = sorted(key for key in options if key.lower() in READER_FORBIDDEN)
    if taken:
        raise ValueError(f"Tally sets {', '.join(taken)} itself, from the plan")
    if secret := sorted(key for key in options if READER_SECRETS.search(key)):
        raise ValueError(
            f"{', '.join(secret)}: secrets belong into [kafka], where nothing shows them"
        )
    return options


def _parse_start(value: object) -> object:
    if isinstance(value, str) and value not in {"earliest", "latest"}:
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(
                '"earliest", "latest" or a time with its zone such as 2026-11-20T14:00:00Z'
            ) from None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("a start time needs its zone, such as 2026-11-20T14:00:00Z")
        return value.astimezone(UTC)
    return value


def _option_value(value: object) -> object:
    """Numbers and booleans of TOML as the strings that Kafka and Spark take."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


Option = Annotated[str, BeforeValidator(_option_value)]
Topic = Annotated[str, AfterValidator(_check_topic)]
Level = Annotated[str, AfterValidator(_check_level)]


class _Section(BaseModel):
    """A table of the file: unknown keys are errors, values are fixed once read."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class KafkaSettings(_Section):
    """How to reach Kafka; the same values serve the planner and Spark."""

    bootstrap_servers: Annotated[str, Field(min_length=1)] = "127.0.0.1:9092"
    """Brokers to ask first, `host:port`, separated by commas."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """How to talk to the brokers."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    """How to log in, with a SASL protocol."""
    sasl_username: str | None = None
    """User, with a SASL protocol."""
    sasl_password: SecretStr | None = None
    """Password, with a SASL protocol."""
    ssl_ca_location: Path | None = None
    """PEM file with the authorities to trust; the system's when not set."""
    request_timeout_s: Annotated[float, Field(gt=0, le=300)] = 10.0
    """Seconds the planner waits for an answer from Kafka, all requests for it together."""

    @model_validator(mode="after")
    def _sasl_is_whole(self) -> "KafkaSettings":
        wanted = self.security_protocol.startswith("SASL")
        given = [self.sasl_mechanism, self.sasl_username, self.sasl_password]
        if wanted and None in given:
            raise ValueError(
                f"security_protocol {self.security_protocol} needs sasl_mechanism, "
                "sasl_username and sasl_password"
            )
        return self


class MySQLSettings(_Section):
    """How to reach the database that holds the ledger and the results."""

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """Host name or address."""
    port: Annotated[int, Field(ge=1, le=65535)] = 3306
    """TCP port."""
    user: Annotated[str, Field(min_length=1)] = "tally"
    """User; docs/runbook.md lists the grants it needs."""
    password: SecretStr = SecretStr("")
    """Password."""
    database: Annotated[str, AfterValidator(_check_pipeline_name)] = "tally"
    """Schema of the ledger and the result tables."""
    tls: Literal["preferred", "disabled", "verified"] = "preferred"
    """Whether the connection is encrypted: if the server offers it, never, or always and with the
    server's certificate and name checked."""
    ssl_ca: Path | None = None
    """PEM file with the authority to trust under `tls = "verified"`; the system's when not set."""
    connect_timeout_s: Annotated[int, Field(ge=1, le=300)] = 10
    """Seconds to wait for a connection."""
    statement_timeout_s: Annotated[int, Field(ge=1, le=86_400)] = 300
    """Seconds to wait for the answer to one statement; then the server counts as gone. Less than a
    pipeline's `patience_s`. Airflow's `plan` and audit wait for half of their own time-outs at
    most."""
    lock_wait_timeout_s: Annotated[int, Field(ge=1, le=300)] = 20
    """Seconds a statement waits for a row lock before the transaction is rolled back and run
    again; less than `statement_timeout_s`. A connection that falls silent inside a transaction is
    dropped by the server after three times this long, with its locks."""

    @model_validator(mode="after")
    def _lock_waits_are_answered(self) -> "MySQLSettings":
        if self.lock_wait_timeout_s >= self.statement_timeout_s:
            raise ValueError(
                f"lock_wait_timeout_s = {self.lock_wait_timeout_s} must be less than "
                f"statement_timeout_s = {self.statement_timeout_s}, or the server would count as "
                "gone while it waits for a lock"
            )
        return self


# What PySpark's client takes; it would complain only once a batch is claimed.
_CONNECT_SCHEME = "sc://"
_CONNECT_URL = re.compile(
    r"sc://(\[[0-9A-Fa-f:.]+\]|[^\s/:;=@\[\]]+)(:[0-9]{1,5})?(/(;[^\s;=/]+=[^\s;=]*)*)?"
)
_CONNECT_TOKEN = re.compile(r";token=([^;]*)")


def _secret_text(value: Any) -> Any:
    return value if isinstance(value, SecretStr) else str(value)


class SparkSettings(_Section):
    """How `tally run` starts Spark; under Airflow the connection `tally_spark` says it."""

    master: Annotated[str, Field(min_length=1)] = "local[*]"
    """Spark's master, or `sc://HOST:PORT/;KEY=VALUE` for a server that speaks Spark Connect."""
    # A number is taken as well: an error would show it.
    connect_token: Annotated[SecretStr, BeforeValidator(_secret_text)] = SecretStr("")
    """Token for the Spark Connect server, when it asks for one. Where the server is not the host
    `localhost`, a token is sent over TLS only."""
    jars_dir: Path | None = None
    """Folder with Spark's Kafka connector and what it needs; not set, the jars must already be on
    Spark's class path."""
    conf: dict[str, Option] = {}
    """Any further Spark configuration. Over Spark Connect only what may be set on a session, such
    as `spark.sql.shuffle.partitions`, is sent; the rest is the server's own."""

    @model_validator(mode="before")
    @classmethod
    def _token_leaves_the_address(cls, data: Any) -> Any:
        """A token in the address would show wherever the master does."""
        master = data.get("master") if isinstance(data, Mapping) else None
        if not isinstance(master, str) or not master.startswith(_CONNECT_SCHEME):
            return data
        tokens = _CONNECT_TOKEN.findall(master)
        if not tokens:
            return data
        if data.get("connect_token") or len(tokens) > 1:
            raise ValueError("a token in master and another one: give connect_token alone")
        bare = _CONNECT_TOKEN.sub("", master)
        return {**data, "master": bare, "connect_token": unquote(tokens[0])}

    @field_validator("master")
    @classmethod
    def _address_is_whole(cls, master: str) -> str:
        if master.startswith(_CONNECT_SCHEME) and not _CONNECT_URL.fullmatch(master):
            raise ValueError("a Spark Connect server is sc://HOST:PORT/;KEY=VALUE;KEY=VALUE")
        return master

    @property
    def is_connect(self) -> bool:
        """Whether Spark is a server that speaks Spark Connect, so that none is started here."""
        return self.master.startswith(_CONNECT_SCHEME)


class PipelineSettings(_Section):
    """One pipeline: topics, line format, levels, result table."""

    topics: Annotated[list[Topic], Field(min_length=1)]
    """Topics whose lines are counted together."""
    start: Annotated[Literal["earliest", "latest"] | datetime, BeforeValidator(_parse_start)] = (
        "earliest"
    )
    """Where counting begins in a topic that the pipeline has not read before: `earliest`, `latest`
    or a time with its zone (the first record at or after it). Later changes move nothing."""
    line_format: str | dict[str, str] = "fixed"
    """Name of a ready-made format or a table with `pattern` and `time_format`; see
    docs/line-formats.md."""
    levels: Annotated[list[Level], Field(min_length=1)] = ["ERROR"]
    """Levels that are counted, as they stand in the line."""
    result_table: Annotated[str, AfterValidator(_check_result_table)] | None = None
    """Table of the counts; the pipeline's name when not set."""
    # All of a range may fall into one minute, which the ledger counts in an INT of MySQL.
    max_records_per_partition: Annotated[int, Field(ge=1, le=2_000_000_000)] = 5_000_000
    """Offsets that one batch takes from one partition at most; a backlog is cut into several."""
    max_malformed_per_batch: Annotated[int, Field(ge=0)] = 100_000
    """Malformed records that one batch may hold; with more it stops and asks, as the line format
    is probably wrong."""
    dead_letter_max_bytes: Annotated[int, Field(ge=0, le=16_777_215)] = 16_384
    """Bytes of a malformed record that are kept; its whole length is always recorded."""
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """Whether records of open and aborted transactions are left out."""
    offsets: Literal["dense", "sparse"] = "dense"
    """`dense`: every offset of a range holds a record, a missing one is data loss. `sparse`: for
    producers with transactions and for compacted topics, offsets may be missing inside a range."""
    reader: Annotated[dict[str, Option], AfterValidator(_check_reader_options)] = {}
    """Options of Spark's Kafka reader, over Tally's own defaults."""
    schedule: Annotated[str, Field(min_length=1)] = "* * * * *"
    """When Airflow starts a batch: a cron expression, in UTC."""
    patience_s: Annotated[int, Field(ge=30, le=86_400)] = 600
    """Seconds the count of one batch may take; more than `mysql.statement_timeout_s`. The other
    time-outs of a run follow from it."""
    owner: Annotated[str, Field(min_length=1)] = "tally"
    """Owner of the DAGs."""
    tags: list[str] = []
    """Further tags of the DAGs."""

    @property
    def format(self) -> LineFormat:
        """The line format, parsed."""
        return parse_line_format(self.line_format, key="line_format")

    @property
    def rules(self) -> str:
        """Which lines are counted, in words: ``levels ERROR, WARN; format fixed``."""
        noun = "level" if len(self.levels) == 1 else "levels"
        return f"{noun} {', '.join(self.levels)}; format {self.format.name}"

    @property
    def reader_options(self) -> dict[str, str]:
        """Options of Spark's Kafka reader: Tally's defaults under the pipeline's own."""
        return {**READER_DEFAULTS, **self.reader}


class Pipeline(PipelineSettings):
    """A pipeline's settings with its name and its result table filled in."""

    name: str
    """The key under ``[pipelines]``."""

    @property
    def table(self) -> str:
        """The result table."""
        return self.result_table or self.name

    @property
    def reads_committed(self) -> bool:
        """Whether records of open and aborted transactions are left out."""
        return self.isolation_level == "read_committed"

    @property
    def is_sparse(self) -> bool:
        """Whether offsets may be missing inside a range."""
        return self.offsets == "sparse"


class Settings(BaseSettings):
    """The whole configuration."""

    model_config = SettingsConfigDict(
        env_prefix="TALLY_",
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )

    kafka: KafkaSettings = KafkaSettings()
    mysql: MySQLSettings = MySQLSettings()
    spark: SparkSettings = SparkSettings()
    pipelines: Annotated[
        dict[Annotated[str, AfterValidator(_check_pipeline_name)], PipelineSettings],
        Field(min_length=1),
    ]
    """By name."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Callers over the environment over the files."""
        files = TomlConfigSettingsSource(
            settings_cls, toml_file=list(_files_of_this_load.get()), deep_merge=True
        )
        return init_settings, env_settings, files

    @model_validator(mode="after")
    def _tables_are_distinct(self) -> "Settings":
        owners: dict[str, str] = {}
        for name in self.pipelines:
            table = self.pipeline(name).table
            _check_result_table(table)
            if table in owners:
                raise ValueError(
                    f"pipelines {owners[table]} and {name} have the same result_table {table}"
                )
            owners[table] = name
        return self

    def pipeline(self, name: str) -> Pipeline:
        """The pipeline of that name.

        Raises:
            UnknownPipelineError: None is configured under it.
        """
        try:
            settings = self.pipelines[name]
        except KeyError:
            known = ", ".join(sorted(self.pipelines))
            raise UnknownPipelineError(
                f"no pipeline {name!r} is configured; there are: {known}",
                next_step="name one of these, or add it to tally.toml",
            ) from None
        return Pipeline(name=name, **{key: getattr(settings, key) for key in _pipeline_fields()})


def _pipeline_fields() -> list[str]:
    return list(PipelineSettings.model_fields)


def config_path() -> Path:
    """The configuration file that applies: ``TALLY_CONFIG``, or ``tally.toml`` right here."""
    return Path(os.environ.get(CONFIG_VARIABLE) or CONFIG_NAME).absolute()


def load_settings(
    path: Path | None = None, *, overrides: Mapping[str, Any] | None = None
) -> Settings:
    """Read and validate the configuration.

    Args:
        path: The file; :func:`config_path` when None.
        overrides: Values of the same shape that win over everything.

    Raises:
        ConfigError: A file is missing or no TOML, or a value is not allowed; every wrong key is
            named with its value (unless secret) and what is allowed.
    """
    base = path or config_path()
    files = _existing_files(base)
    for file in files:
        _check_toml(file)

    token = _files_of_this_load.set(files)
    try:
        settings = Settings(**(overrides or {}))
        for name, pipeline in settings.pipelines.items():
            _check_line_format(name, pipeline)
            _check_patience(name, pipeline, settings)
    except (ValidationError, SettingsError) as error:
        raise _config_error(error, base) from None
    finally:
        _files_of_this_load.reset(token)
    return settings


def _check_line_format(name: str, pipeline: PipelineSettings) -> None:
    line_format = parse_line_format(pipeline.line_format, key=f"pipelines.{name}.line_format")
    try:
        line_format.printed_levels(pipeline.levels)
    except ValueError as error:
        raise ConfigError(
            f"pipelines.{name}.levels = {pipeline.levels!r}: {error}",
            next_step="name levels of this line format (docs/line-formats.md lists them)",
        ) from None


def _check_patience(name: str, pipeline: PipelineSettings, settings: Settings) -> None:
    """A server's answer must not be waited for when the batch's own time is over."""
    waits = {
        "mysql.statement_timeout_s": settings.mysql.statement_timeout_s,
        "mysql.connect_timeout_s": settings.mysql.connect_timeout_s,
        "kafka.request_timeout_s": settings.kafka.request_timeout_s,
    }
    for key, seconds in waits.items():
        if seconds >= pipeline.patience_s:
            raise ConfigError(
                f"pipelines.{name}.patience_s = {pipeline.patience_s} must be more than "
                f"{key} = {seconds:g}: a batch would be given up while it waits for an answer",
                next_step=f"raise patience_s or lower {key}",
            )


def _existing_files(base: Path) -> tuple[Path, ...]:
    if not base.is_file():
        raise ConfigError(
            f"there is no configuration file {base}",
            next_step=f"run Tally where {CONFIG_NAME} lies, or set {CONFIG_VARIABLE} to its path",
        )
    files = [base]
    if (stack := base.parent / STACK_OVERLAY).is_file():
        files.append(stack)
    if secrets := os.environ.get(SECRETS_VARIABLE):
        files.append(_checked_secrets(Path(secrets)))
    return tuple(files)


def _checked_secrets(path: Path) -> Path:
    if not path.is_file():
        raise ConfigError(
            f"{SECRETS_VARIABLE} names {path}, which does not exist",
            next_step=f"create it or unset {SECRETS_VARIABLE}",
        )
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            f"{path} holds secrets and others than its owner may read it",
            next_step=f"chmod 600 '{path}'",
        )
    return path


def _check_toml(path: Path) -> None:
    try:
        tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no valid TOML: {error}", next_step="correct it") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None


def _config_error(error: ValidationError | SettingsError, base: Path) -> ConfigError:
    """One error that names each wrong key, its value and what is allowed; secrets stay out."""
    if isinstance(error, SettingsError):
        complaints = [str(error)]
    else:
        complaints = list(dict.fromkeys(_complaint(item) for item in error.errors()))
    return ConfigError(
        f"{base} with its overrides is not valid: " + "; ".join(complaints),
        next_step="correct the keys named (docs/configuration.md lists them all)",
    )


def _complaint(item: Any) -> str:
    # Union members leave their own names in the location; a user knows only the file's keys.
    parts = [str(part) for part in item["loc"] if "[" not in str(part) and part != "datetime"]
    key = ".".join(parts) or "the whole file"
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] in {"missing", "extra_forbidden"}:
        return f"{key}: {'is required' if item['type'] == 'missing' else 'is no known key'}"
    if "password" in key or isinstance(item["input"], dict | BaseModel):
        return f"{key}: {message}"
    return f"{key} = {item['input']!r}: {message}"
