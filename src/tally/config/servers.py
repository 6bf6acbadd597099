"""How to reach the servers, and what Spark asks of Kafka: the tables that are no pipelines."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import unquote

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from tally.config.names import check_database_name


class Section(pydantic.BaseModel):
    """A table of the file: unknown keys are errors, values are fixed once read."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def _option_value(value: object) -> object:
    """Numbers and booleans of TOML as the strings that Kafka and Spark take."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


Option = Annotated[str, BeforeValidator(_option_value)]
"""A value that Kafka or Spark takes as text."""


class KafkaSettings(Section):
    """How to reach Kafka; the same values serve the planner and Spark."""

    bootstrap_servers: Annotated[str, Field(min_length=1)] = "127.0.0.1:9092"
    """Brokers to ask first, `host:port`, separated by commas."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """How to talk to the brokers."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = None
    """How to log in, with a SASL protocol; `OAUTHBEARER` by a token that the client's credentials
    get (OpenID Connect)."""
    sasl_username: str | None = None
    """User, with a SASL protocol; for a token the client's id."""
    sasl_password: SecretStr | None = None
    """Password, with a SASL protocol; for a token the client's secret."""
    sasl_oauthbearer_token_endpoint_url: Annotated[str, Field(pattern="^https?://")] | None = None
    """Where a token is got."""
    sasl_oauthbearer_scope: str | None = None
    """Scope that is asked for, where the issuer needs one."""
    sasl_oauthbearer_extensions: dict[str, str] = {}
    """What the brokers want to know beside the token, such as `logicalCluster`."""
    ssl_ca_location: Path | None = None
    """PEM file with the authorities to trust, that of the token endpoint among them; the system's
    when not set."""
    ssl_keystore_location: Path | None = None
    """PEM file with the client's certificate, those that lead to its authority, and its key
    (PKCS#8), for brokers that ask for one."""
    ssl_key_password: SecretStr | None = None
    """Password of that key, when it is encrypted."""
    request_timeout_s: Annotated[float, Field(gt=0, le=300)] = 10.0
    """Seconds the planner waits for an answer from Kafka, all requests for it together."""

    @pydantic.model_validator(mode="after")
    def _is_whole(self) -> "KafkaSettings":
        protocol = self.security_protocol
        given = [self.sasl_mechanism, self.sasl_username, self.sasl_password]
        if protocol.startswith("SASL") and None in given:
            raise ValueError(
                f"security_protocol {protocol} needs sasl_mechanism, sasl_username and "
                "sasl_password"
            )
        endpoint = "sasl_oauthbearer_token_endpoint_url"
        if (self.sasl_mechanism == "OAUTHBEARER") != (getattr(self, endpoint) is not None):
            raise ValueError(f"sasl_mechanism OAUTHBEARER needs {endpoint}, no other one takes it")
        if self.ssl_keystore_location is not None and not protocol.endswith("SSL"):
            raise ValueError(f"ssl_keystore_location is for SSL and SASL_SSL, not {protocol}")
        return self


class MySQLSettings(Section):
    """How to reach the database that holds the ledger and the results."""

    section: ClassVar[str] = "mysql"
    """The section of these keys, for messages."""
    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    """Host name or address."""
    port: Annotated[int, Field(ge=1, le=65535)] = 3306
    """TCP port."""
    user: Annotated[str, Field(min_length=1)] = "tally"
    """User; docs/runbook.md lists the grants it needs."""
    password: SecretStr = SecretStr("")
    """Password."""
    database: Annotated[str, AfterValidator(check_database_name)] = "tally"
    """Database of the ledger and the result tables: up to 64 letters, digits, `_`, `$` and `-`, no
    `-` at the beginning."""
    tls: Literal["preferred", "disabled", "verified"] = "preferred"
    """Encryption: if the server offers it, never, or always and with the server's certificate and
    name checked."""
    ssl_ca: Path | None = None
    """PEM file with the authority to trust under `tls = "verified"`; the system's when not set."""
    ssl_cert: Path | None = None
    """PEM file with the client's certificate and its key (PKCS#8), for a server that asks for one;
    with `tls = "verified"`."""
    ssl_key_password: SecretStr | None = None
    """Password of that key, when it is encrypted."""
    connect_timeout_s: Annotated[int, Field(ge=1, le=300)] = 10
    """Seconds to wait for a connection."""
    statement_timeout_s: Annotated[int, Field(ge=1, le=86_400)] = 300
    """Seconds to wait for the answer to one statement; then the server counts as gone. Less than a
    pipeline's `patience_s`. Under Airflow a plan waits at most for a tenth of that, and the audit
    for half of its timeout."""
    lock_wait_timeout_s: Annotated[int, Field(ge=1, le=300)] = 20
    """Seconds a statement waits for a row lock before the transaction is rolled back and run again;
    less than `statement_timeout_s`. The server ends a transaction that is silent for three times
    this long."""

    @pydantic.model_validator(mode="after")
    def _lock_waits_are_answered(self) -> "MySQLSettings":
        if self.lock_wait_timeout_s >= self.statement_timeout_s:
            raise ValueError(
                f"lock_wait_timeout_s = {self.lock_wait_timeout_s} must be less than "
                f"statement_timeout_s = {self.statement_timeout_s}, or the server would count as "
                "gone while it waits for a lock"
            )
        return self

    @pydantic.model_validator(mode="after")
    def _certificate_is_shown_to_the_right_one(self) -> "MySQLSettings":
        if self.ssl_cert is not None and self.tls != "verified":
            raise ValueError(f'ssl_cert is for tls = "verified", not {self.tls!r}')
        return self


class ResultsSettings(MySQLSettings):
    """The database of the lines that `delivery = "rows"` keeps; no value comes from `[mysql]`."""

    section: ClassVar[str] = "results"


class ConsoleSettings(Section):
    """How the console in Airflow reads the ledger, which is where `[mysql]` says."""

    user: Annotated[str, Field(min_length=1)] | None = None
    """User that may do nothing but `SELECT`; without one the console shows nothing. docs/runbook.md
    has its grant."""
    password: SecretStr = SecretStr("")
    """Password."""
    statement_timeout_s: Annotated[int, Field(ge=1, le=60)] = 5
    """Seconds after which the server ends a query of the console."""
    metrics_token_file: Path | None = None
    """File with the token of Prometheus' scraper; without one there is no `/tally/metrics`."""


class ReaderSettings(MySQLSettings):
    """The ledger's database as the console's user reads it."""

    section: ClassVar[str] = "console"


def key_of(section: str, name: str) -> str:
    """The key of a database's section: the console's user reads the database of ``[mysql]``."""
    is_elsewhere = section == "console" and name not in ConsoleSettings.model_fields
    return f"{'mysql' if is_elsewhere else section}.{name}"


# What PySpark's client accepts; its own check comes only after a batch is claimed.
_CONNECT_SCHEME = "sc://"
_CONNECT_URL = re.compile(
    r"sc://(\[[0-9A-Fa-f:.]+\]|[^\s/:;=@\[\]]+)(:[0-9]{1,5})?(/(;[^\s;=/]+=[^\s;=]*)*)?"
)
_CONNECT_TOKEN = re.compile(r";token=([^;]*)")


def _secret_text(value: Any) -> Any:
    return str(value) if type(value) is int else value


# Set by Tally: with other values the same records would be counted differently.
CONF_FORBIDDEN = frozenset({"spark.sql.variant.allowDuplicateKeys"})


def _check_conf(conf: dict[str, str]) -> dict[str, str]:
    if taken := sorted(CONF_FORBIDDEN & conf.keys()):
        raise ValueError(f"Tally sets {', '.join(taken)} itself: it decides how JSON is read")
    return conf


class SparkSettings(Section):
    """How `tally run` starts Spark; under Airflow the connection `tally_spark` decides that."""

    master: Annotated[str, Field(min_length=1)] = "local[*]"
    """Spark's master, or `sc://HOST:PORT/;KEY=VALUE` for a server that speaks Spark Connect."""
    # A token may be a number; in a URL it has no quotes.
    connect_token: Annotated[SecretStr, BeforeValidator(_secret_text)] = SecretStr("")
    """Token for the Spark Connect server, when it asks for one. Where the server is not the host
    `localhost`, a token is sent over TLS only."""
    spool_dir: Path | None = None
    """Folder for counts and dead letters of a batch that do not fit into memory; the system's
    temporary folder when not set."""
    jars_dir: Path | None = None
    """Folder with Spark's Kafka connector and its dependencies; if not set, the jars must already
    be on Spark's class path."""
    conf: Annotated[dict[str, Option], AfterValidator(_check_conf)] = {}
    """Any further Spark configuration, except what decides how JSON is read. Over Spark Connect
    only what may be set on a session, such as `spark.sql.shuffle.partitions`, is sent; the rest is
    the server's own."""

    @pydantic.model_validator(mode="before")
    @classmethod
    def _token_leaves_the_address(cls, data: Any) -> Any:
        """Move a token out of the address: the address is shown in messages."""
        master = data.get("master") if isinstance(data, Mapping) else None
        if not isinstance(master, str) or not master.startswith(_CONNECT_SCHEME):
            return data
        tokens = _CONNECT_TOKEN.findall(master)
        if not tokens:
            return data
        if data.get("connect_token") or len(tokens) > 1:
            raise ValueError("a token in master and another one: set only connect_token")
        bare = _CONNECT_TOKEN.sub("", master)
        return {**data, "master": bare, "connect_token": unquote(tokens[0])}

    @pydantic.field_validator("master")
    @classmethod
    def _address_is_whole(cls, master: str) -> str:
        if master.startswith(_CONNECT_SCHEME) and not _CONNECT_URL.fullmatch(master):
            raise ValueError("a Spark Connect server is sc://HOST:PORT/;KEY=VALUE;KEY=VALUE")
        return master

    @property
    def is_connect(self) -> bool:
        """Whether Spark is a server that speaks Spark Connect, so that none is started here."""
        return self.master.startswith(_CONNECT_SCHEME)


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
        *("assign", "subscribe", "subscribepattern", "failondataloss", "includeheaders"),
        *("startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp"),
        *("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp"),
        *("kafka.bootstrap.servers", "kafka.isolation.level", "kafka.group.id"),
        *("kafka.auto.offset.reset", "kafka.enable.auto.commit"),
    }
)

# Divide a partition between Spark tasks; in small letters.
DIVIDING = frozenset({"minpartitions", "maxrecordsperpartition"})


# These would show in a representation of the settings and in Spark's plans.
READER_SECRETS = re.compile(r"jaas|password|secret", re.IGNORECASE)


def check_reader_options(options: dict[str, str]) -> dict[str, str]:
    """The options; ValueError for those that Tally sets itself, and for secrets."""
    taken = sorted(key for key in options if key.lower() in READER_FORBIDDEN)
    if taken:
        raise ValueError(f"Tally sets {', '.join(taken)} itself, from the plan")
    if secret := sorted(key for key in options if READER_SECRETS.search(key)):
        raise ValueError(
            f"{', '.join(secret)}: secrets belong into [kafka], where nothing shows them"
        )
    return options
