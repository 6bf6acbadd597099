"""Requests to Kafka with one deadline, and their errors. No other module opens a client."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from tally.clock import Clock, SystemClock
from tally.config.servers import KafkaSettings
from tally.errors import KafkaUnavailableError, TallyError
from tally.kafka.errors import MovingError, more_telling, translate, unavailable
from tally.kafka.options import SILENT, client_options

T = TypeVar("T")

MOVING_PAUSE_S = 0.2

# The client's own timeout comes first; a client that does not keep it gets this much longer.
GRACE_S = 1.0


@dataclass(slots=True)
class _ConnectionError:
    """The most telling error of the client's connections, set when the client is polled.

    It holds no reference to the client. In a reference cycle the garbage collector could close the
    client from librdkafka's own thread, and librdkafka then aborts the process.
    """

    error: KafkaError | None = None

    def __call__(self, error: KafkaError) -> None:
        self.error = more_telling(self.error, error)


def _open_client(options: dict[str, Any]) -> AdminClient:
    return AdminClient(options, logger=SILENT)


class Requests:
    """Sends requests to one cluster, each before a deadline, and translates what comes back.

    The connection is opened with the first request.

    Args:
        settings: How to reach the cluster, and ``request_timeout_s``.
        open_client: Makes the client, from librdkafka's configuration.
        grace_s: Seconds to wait beyond the timeout for a client that does not keep it.
        moving_pause_s: Seconds between two tries while a leader or a coordinator is chosen.
        clock: Measures the timeout; the machine's clock when None.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        *,
        open_client: Callable[[dict[str, Any]], AdminClient] = _open_client,
        grace_s: float = GRACE_S,
        moving_pause_s: float = MOVING_PAUSE_S,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._timeout_s = settings.request_timeout_s
        self._open_client = open_client
        self._grace_s, self._moving_pause_s = grace_s, moving_pause_s
        self._clock: Clock = clock or SystemClock()
        self._connections = _ConnectionError()

    @cached_property
    def _client(self) -> AdminClient:
        # librdkafka prints connection failures to stderr by itself; here they become errors.
        return self._open_client({**client_options(self._settings), "error_cb": self._connections})

    def deadline(self) -> float:
        """The time by which a call that begins now must end, with all of its requests."""
        return self._clock.monotonic() + self._timeout_s

    def once_settled(self, deadline: float, ask: Callable[[], T]) -> T:
        """Ask again until the broker that can answer is chosen.

        Leaders are elected when a topic is created or a broker leaves, coordinators when the
        cluster's first group appears: within moments.
        """
        while True:
            try:
                return ask()
            except MovingError:
                if self._clock.monotonic() + self._moving_pause_s >= deadline:
                    raise
                self._clock.sleep(self._moving_pause_s)

    def answers(
        self,
        operation: str,
        deadline: float,
        ask: Callable[[AdminClient, float], Iterable["Future[T]"]],
    ) -> list[T]:
        """Send a request and wait for all of its answers."""
        futures = self.start(operation, deadline, ask)
        return [self.result(operation, deadline, future) for future in futures]

    def start(self, operation: str, deadline: float, ask: Callable[[AdminClient, float], T]) -> T:
        """Send a request.

        Args:
            operation: What is asked, for an error's sentence.
            deadline: From :meth:`Requests.deadline`.
            ask: Gets the client and the seconds that are left.

        Raises:
            KafkaUnavailableError: No answer, or no time left to ask.
            AccessDeniedError: The brokers refused the credentials or the operation.
        """
        self._poll()
        self._connections.error = None  # what was before this request is not its cause
        left_s = deadline - self._clock.monotonic()
        if left_s <= 0:
            raise self._unavailable("no time was left for a request")
        try:
            return ask(self._client, left_s)
        except KafkaException as error:
            raise self.error(operation, error.args[0]) from error

    def result(self, operation: str, deadline: float, future: "Future[T]") -> T:
        """Wait for one answer; raises as :meth:`Requests.start` does."""
        left_s = max(0.0, deadline - self._clock.monotonic())
        try:
            return future.result(left_s + self._grace_s)
        except TimeoutError:
            raise self._unavailable("no answer") from None
        except KafkaException as error:
            raise self.error(operation, error.args[0]) from error

    def error(self, operation: str, error: KafkaError) -> TallyError:
        """Kafka's answer to an operation as an error of Tally's."""
        servers = self._settings.bootstrap_servers
        return translate(servers, operation, error, self._poll(), self._timeout_s)

    def _unavailable(self, cause: str) -> KafkaUnavailableError:
        servers = self._settings.bootstrap_servers
        return unavailable(servers, cause, self._poll(), self._timeout_s)

    def _poll(self) -> KafkaError | None:
        """The most telling error of the connections since the request; librdkafka queues them."""
        self._client.poll(0)
        return self._connections.error
