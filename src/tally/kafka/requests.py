"""Requests to Kafka with one deadline: to its admin client, and for some records of a partition."""

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tally.clock import Clock
from tally.config.kafka_clients import librdkafka_options
from tally.config.servers import KafkaSettings
from tally.errors import KafkaUnavailableError, TallyError
from tally.kafka import errors

T = TypeVar("T")

# librdkafka would log to stderr by itself; its errors reach the caller as exceptions.
SILENT = logging.getLogger("tally.kafka.requests")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False

MOVING_PAUSE_S = 0.2

# The client's own timeout comes first; a client that does not keep it gets this much longer.
GRACE_S = 1.0

EXAMINE_EACH_S = 10.0
"""Seconds from one look at a broker's listener to the next."""
REFUSED_FOR_S = 3.0
"""Seconds for which a refused login is tried again: a broker that starts may not know it yet.

A second refusal cannot be waited for: librdkafka reports the same error once in 30 s.
"""

LOOK_S = 0.2
"""Seconds between two checks of the connections during the wait for an answer."""


@dataclass(slots=True)
class _ConnectionError:
    """What is wrong with the client's connections, set when the client is polled.

    It holds no reference to the client. In a reference cycle the garbage collector could close the
    client from librdkafka's own thread, and librdkafka then aborts the process.
    """

    error: KafkaError | None = None
    """The most telling error."""
    all_down: bool = False
    """Whether no broker was left at some moment."""
    refused_at: float = inf
    """When the login was seen to be refused."""
    examined_at: float = -inf
    """When it was last looked for why none can be reached."""

    def __call__(self, error: KafkaError) -> None:
        self.error = errors.more_telling(self.error, error)
        self.all_down |= error.code() == KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001 - its name

    def forget(self) -> None:
        """Begin again: what was before a request is not its cause."""
        self.error, self.all_down = None, False
        self.refused_at, self.examined_at = inf, -inf


def client_options(settings: KafkaSettings) -> dict[str, Any]:
    """The settings as librdkafka's configuration, secrets included.

    Raises:
        ConfigError: A file that they name cannot be read, or has not what it should.
    """
    return librdkafka_options(settings) | {
        "socket.timeout.ms": int(settings.request_timeout_s * 1000),
        "allow.auto.create.topics": False,
    }


def _open_client(options: dict[str, Any]) -> AdminClient:
    return AdminClient(options, logger=SILENT)


@dataclass(eq=False)
class Requests:
    """Sends requests to one cluster, each before a deadline, and translates what comes back.

    The connection is opened with the first request.
    """

    settings: KafkaSettings
    """How to reach the cluster, and ``request_timeout_s``."""
    open_client: Callable[[dict[str, Any]], AdminClient] = _open_client
    """Makes the client, from librdkafka's configuration."""
    grace_s: float = GRACE_S
    """Seconds to wait beyond the timeout for a client that does not keep it."""
    clock: Clock = field(default_factory=Clock)
    """Measures the timeout."""
    _connections: _ConnectionError = field(default_factory=_ConnectionError, init=False)
    _has_asked: bool = field(default=False, init=False)

    @cached_property
    def _client(self) -> AdminClient:
        # librdkafka prints connection failures to stderr by itself; here they become errors.
        return self.open_client({**client_options(self.settings), "error_cb": self._connections})

    def deadline(self) -> float:
        """The time by which a call that begins now must end, with all of its requests."""
        return self.clock.monotonic() + self.settings.request_timeout_s

    def once_settled(self, ask: Callable[[float], T]) -> T:
        """Ask, with a deadline, again until the broker that can answer is chosen.

        Leaders are elected when a topic is created or a broker leaves, coordinators when the
        cluster's first group appears: within moments.
        """
        deadline = self.deadline()
        while True:
            try:
                return ask(deadline)
            except errors.MovingError:
                if self.clock.monotonic() + MOVING_PAUSE_S >= deadline:
                    raise
                self.clock.sleep(MOVING_PAUSE_S)

    def answers(self, operation: str, deadline: float, method: str, *arguments: Any) -> list[Any]:
        """Send a request of the admin client and wait for all of its answers."""
        futures = self.send(operation, deadline, method, *arguments)
        return [self.result(operation, deadline, future) for future in futures.values()]

    def send(
        self,
        operation: str,
        deadline: float,
        method: str,
        *arguments: Any,
        limit: str = "request_timeout",
        **options: Any,
    ) -> Any:
        """Send a request of the admin client.

        Args:
            operation: What is asked, for an error's sentence.
            deadline: From :meth:`Requests.deadline`.
            method: The method of the client.
            arguments: Its arguments.
            limit: How it calls the seconds that are left.
            options: Its further arguments.

        Returns:
            What the method returns: mostly a future for each topic, partition or group.

        Raises:
            KafkaUnavailableError: No answer, or no time left to ask.
            AccessDeniedError: The brokers refused the credentials or the operation.
        """
        if self._has_asked:  # a client that gets no token says so before its first request
            self._poll()
            self._connections.forget()
        self._has_asked = True
        left_s = deadline - self.clock.monotonic()
        if left_s <= 0:
            raise self._unavailable("no time was left for a request")
        try:
            return getattr(self._client, method)(*arguments, **{limit: left_s}, **options)
        except KafkaException as error:
            raise self.error(operation, error.args[0]) from error

    def result(self, operation: str, deadline: float, future: "Future[T]") -> T:
        """Wait for one answer; raises as :meth:`Requests.send` does.

        It is not waited for when the login stays refused, or TLS fails, at every broker.
        """
        until = max(deadline, self.clock.monotonic()) + self.grace_s
        while True:
            left_s = max(0.0, until - self.clock.monotonic())
            try:
                return future.result(min(left_s, LOOK_S))
            except TimeoutError:
                if (hopeless := self._hopeless(operation, deadline)) is not None:
                    raise hopeless from None
                if left_s <= LOOK_S:
                    raise self._unavailable("no answer") from None
            except KafkaException as error:
                raise self.error(operation, error.args[0]) from error

    def _hopeless(self, operation: str, deadline: float) -> TallyError | None:
        """Why no broker will ever answer; None while one may."""
        connection, seen = self._poll(), self._connections
        if connection is None or not (seen.all_down or errors.NO_TOKEN in connection.str()):
            return None
        now = self.clock.monotonic()
        if connection.code() in errors.DENIED:
            seen.refused_at = min(seen.refused_at, now)
            is_lasting = now - seen.refused_at >= REFUSED_FOR_S
            return self.error(operation, connection) if is_lasting else None
        if now - seen.examined_at < EXAMINE_EACH_S or deadline - now < errors.PATIENCE_S:
            return None
        found = errors.fault(self.settings, operation, connection)
        # Again if nothing is found: an error of TLS may be reported after the one that all brokers
        # are down.
        seen.examined_at = self.clock.monotonic()
        return found

    def error(self, operation: str, error: KafkaError) -> TallyError:
        """Kafka's answer to an operation as an error of Tally's."""
        return errors.translate(self.settings, operation, error, self._poll())

    def _unavailable(self, cause: str) -> KafkaUnavailableError:
        return errors.unavailable(self.settings, cause, self._poll())

    def _poll(self) -> KafkaError | None:
        """The most telling error of the connections since the request; librdkafka queues them."""
        self._client.poll(0)
        return self._connections.error
