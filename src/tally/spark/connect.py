"""A Spark session on a Spark Connect server: without a JVM here, and without spark-submit.

The server keeps the configuration that it was started with; a session may set only some SQL
options. Every wait for the server has a timeout, except the wait for the rows of a count.
"""

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from threading import Thread
from types import FrameType
from typing import Any, Final, cast
from uuid import uuid4

import grpc
from pyspark.errors.exceptions.connect import SparkConnectGrpcException
from pyspark.sql import SparkSession
from pyspark.sql.connect.client import DefaultChannelBuilder, SparkConnectClient
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.session import SparkSession as RemoteSession

from tally import errors
from tally.config.servers import CONF_FORBIDDEN, SparkSettings
from tally.spark.errors import sentence_of, spark_errors

log = logging.getLogger(__name__)

# The server shows each plan with its options in its web page and its event log, and hides what
# this expression matches. Kafka's password is in such an option.
REDACTION_KEY: Final = "spark.sql.redaction.string.regex"
REDACTION: Final = r'(?is)(jaas|password|secret)(?:[^"\\]|\\.)*"\s*value:\s*"(?:[^"\\]|\\.)*"'

# A session with artifacts of its own has class loaders and a pool of Python workers of its own,
# of which Spark keeps some when it is closed (SPARK-54055). Tally's sessions have no artifacts.
_SHARED: Final = ("spark.sql.artifact.isolation.enabled", "false")

# With this variable set, PySpark's functions build plans for a server.
_MODE: Final = "SPARK_CONNECT_MODE_ENABLED"

_REFUSED: Final = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})
_AWAY: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})

UNWINDING_S: Final = 2.0
"""Seconds that a process has to end by an exception after SIGTERM. Airflow kills a task five
seconds after SIGTERM."""

# The sessions of this process that are open, by their ids.
_open: Final[dict[str, SparkSettings]] = {}


@contextmanager
def connect_session(
    settings: SparkSettings,
    options: Mapping[str, str],
    *,
    tries: int = 4,
    answer_s: float = 60.0,
    close_s: float = 5.0,
) -> Iterator[SparkSession]:
    """A new session on the server; at the end it is closed, and what still runs in it is ended.

    Args:
        settings: The server's address, and the token.
        options: Spark's configuration; options that a session may not set are ignored.
        tries: How often to try a server that does not answer, which takes some five seconds.
            PySpark's own default takes ten minutes.
        answer_s: Longest wait, in seconds, for the answer to a request that reads no data.
        close_s: Longest wait, in seconds, for the session to close.

    Raises:
        SparkUnavailableError: The server does not answer.
        AccessDeniedError: It refuses the token.
        ConfigError: It refuses a value of ``spark.conf``.
        JarsMissingError: It cannot load Spark's Kafka connector.
    """
    opened = partial(_opened, settings, tries=tries, answer_s=answer_s, close_s=close_s)
    with _plans_for_a_server():
        session_id = str(uuid4())
        with opened() as first:
            _clone(settings, first, session_id)
        with opened(session_id) as session:
            _configure(settings, session, options)
            _check_connector(settings, session)
            # PySpark's two kinds of session have the same interface, but no common class.
            yield cast("SparkSession", session)


@contextmanager
def _opened(
    settings: SparkSettings, session_id: str = "", *, tries: int, answer_s: float, close_s: float
) -> Iterator[RemoteSession]:
    """A session that has sent the server no request yet; without an id a new one.

    At the end it is closed, also after a failure, so that the server ends what still runs in it.
    One try is enough: a server that does not answer is not waited for.
    """
    deadline = _Deadline(answer_s)
    channel = _channel(settings, deadline, session_id)
    session = RemoteSession.builder.channelBuilder(channel).create()
    session.client.set_retry_policies([DefaultPolicy(max_retries=tries)])
    _open[session.session_id] = settings
    try:
        yield session
    finally:
        deadline.seconds = close_s
        session.client.set_retry_policies([])
        session.stop()
        del _open[session.session_id]


def release_sessions(timeout_s: float = 0.7) -> None:
    """Close the open sessions of this process through connections of their own.

    For another thread, when the one that uses a session cannot close it. What runs in them ends.

    Args:
        timeout_s: Longest wait for each session.
    """
    for session_id, settings in list(_open.items()):
        channel = _channel(settings, _Deadline(timeout_s), session_id)
        client = SparkConnectClient(connection=channel)
        client.set_retry_policies([])
        try:
            client.release_session()
        except spark_errors() as error:
            log.warning("session_not_closed", extra={"cause": sentence_of(str(error))})


def _channel(
    settings: SparkSettings, deadline: "_Deadline", session_id: str
) -> DefaultChannelBuilder:
    """A connection to the server that has sent it nothing yet."""
    channel = DefaultChannelBuilder(settings.master)
    if token := settings.connect_token.get_secret_value():
        channel.set(DefaultChannelBuilder.PARAM_TOKEN, token)
    if session_id:
        channel.set(DefaultChannelBuilder.PARAM_SESSION_ID, session_id)
    channel.add_interceptor(deadline)
    return channel


def _clone(settings: SparkSettings, first: RemoteSession, session_id: str) -> None:
    """Create a session on the server that shares the server's class loader and Python workers.

    What a session has of its own is decided with its first request; a clone takes the choice over.
    """
    what = f"the Spark Connect server {settings.master} does not share what its sessions have"
    next_step = "run a server of the version that requirements/ names"
    with _server_errors(settings, (errors.ConfigError, what, next_step)):
        first.conf.set(*_SHARED)
        first.client.clone(session_id).close()


def _configure(settings: SparkSettings, session: RemoteSession, options: Mapping[str, str]) -> None:
    """Set what the server does not have already; each value takes two requests."""
    with _server_errors(settings):
        there = session.conf.getAll
    for key, value in {REDACTION_KEY: REDACTION, **options}.items():
        if there.get(key) == value:
            continue
        what = f"spark.conf, {key}: the Spark Connect server refuses the value"
        with _server_errors(settings, (errors.ConfigError, what, "correct it")):
            if session.conf.isModifiable(key):
                session.conf.set(key, value)
            elif key in CONF_FORBIDDEN:
                raise errors.ConfigError(
                    f"the Spark Connect server {settings.master} does not know {key}, which "
                    "decides how JSON is read",
                    next_step="run a server of the version that requirements/ names",
                )


def _check_connector(settings: SparkSettings, session: RemoteSession) -> None:
    """Raise JarsMissingError unless the server can load Spark's Kafka connector."""
    what = f"the Spark Connect server {settings.master} cannot load Spark's Kafka connector"
    next_step = "start the server with the connector's jars (docs/airflow.md has a command)"
    # The server resolves this to a schema without a request to a broker.
    nothing = session.read.format("kafka").option("kafka.bootstrap.servers", "127.0.0.1:1")
    with _server_errors(settings, (errors.JarsMissingError, what, next_step)):
        _ = nothing.option("subscribe", "none").load().schema


@contextmanager
def _server_errors(
    settings: SparkSettings, otherwise: tuple[type[errors.TallyError], str, str] | None = None
) -> Iterator[None]:
    """Raise errors of the server as Tally's.

    Args:
        settings: The server.
        otherwise: The error when the server has answered and the token is right: its class, what
            has failed, and the next step. None where that is no answer either.
    """
    try:
        yield
    except (SparkConnectGrpcException, grpc.RpcError) as error:
        if isinstance(error, SparkConnectGrpcException):
            status, cause = error.getGrpcStatusCode(), sentence_of(str(error))
        else:  # of a clone, which PySpark does not make one of its own
            status, cause = error.code(), error.details()
        if status in _REFUSED:
            raise errors.AccessDeniedError(
                f"the Spark Connect server {settings.master} refused: {cause}",
                next_step="correct spark.connect_token, or the password of the connection "
                "tally_spark",
            ) from error
        if otherwise is not None and status not in _AWAY:
            kind, what, next_step = otherwise
            raise kind(f"{what}: {cause}", next_step=next_step) from error
        raise errors.SparkUnavailableError(
            f"the Spark Connect server {settings.master} did not answer: {cause}",
            next_step="start it, or correct spark.master or the connection tally_spark: "
            "use_ssl=true if the server has TLS, and only then",
        ) from error


@contextmanager
def _plans_for_a_server() -> Iterator[None]:
    """Let PySpark's functions build plans for a server inside the block only."""
    before = os.environ.get(_MODE)
    os.environ[_MODE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_MODE]
        else:
            os.environ[_MODE] = before


class _Deadline(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]  # gRPC has no types
    """Adds a timeout to every unary call; PySpark itself sets none."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def intercept_unary_unary(
        self, continuation: Callable[[Any, Any], Any], client_call_details: Any, request: Any
    ) -> Any:
        """Add the timeout to the call."""
        return continuation(client_call_details._replace(timeout=self.seconds), request)


def leave_on_sigterm() -> None:
    """Let SIGTERM end this process, with its sessions on a Spark Connect server closed.

    A server goes on reading for a client that just disappears. So the process ends by an exception,
    which closes its session, with exit code 143. That exception may come in the middle of gRPC's
    own code and leave a lock of the connection held for ever. When it has not ended the process in
    time, the sessions are closed through connections of their own, and the process ends at once.
    """
    code = 128 + signal.SIGTERM

    def leave_at_last() -> None:
        time.sleep(UNWINDING_S)
        release_sessions()
        os._exit(code)

    def leave(_: int, __: FrameType | None) -> None:
        Thread(target=leave_at_last, name="tally-leaving", daemon=True).start()
        sys.exit(code)

    signal.signal(signal.SIGTERM, leave)
