"""Questions to Kafka end in time, however many requests they take; a stand-in for its client."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from threading import Timer
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tally.config.servers import KafkaSettings
from tally.errors import KafkaUnavailableError
from tally.kafka import client as kafka
from tally.kafka.client import Kafka
from tally.model import TopicPartition

TIMEOUT_S = 0.5
GRACE_S = 0.1


class SlowClient:
    """Answers each request after a while, or when the time that it was given is over.

    Args:
        takes_s: How long an answer takes.
        failure: What each question about offsets is answered with; None for a good answer.
    """

    def __init__(self, takes_s: float, failure: int | None = None) -> None:
        self.takes_s = takes_s
        self.failure = failure
        self.given: list[float] = []

    def describe_topics(self, _: Any, **options: Any) -> dict[str, "Future[Any]"]:
        """The one topic, with one partition."""
        topic = SimpleNamespace(topic_id="id", partitions=[SimpleNamespace(id=0)])
        return {"alog": self._later(topic, options)}

    def list_offsets(self, wanted: dict[Any, Any], **options: Any) -> dict[Any, "Future[Any]"]:
        """The same offset of each partition, or the failure."""
        answer: Any = SimpleNamespace(offset=7)
        if self.failure is not None:
            answer = KafkaException(KafkaError(self.failure))
        return {partition: self._later(answer, options) for partition in wanted}

    def describe_cluster(self, **options: Any) -> "Future[Any]":
        """The cluster's id."""
        return self._later(SimpleNamespace(cluster_id="cluster"), options)

    def _later(self, answer: Any, options: dict[str, Any]) -> "Future[Any]":
        left_s = options["request_timeout"]
        self.given.append(left_s)
        future: Future[Any] = Future()
        if left_s < self.takes_s:
            answer = KafkaException(KafkaError(KafkaError._TIMED_OUT))
        tell = future.set_exception if isinstance(answer, Exception) else future.set_result
        timer = Timer(min(left_s, self.takes_s), tell, (answer,))
        timer.daemon = True
        timer.start()
        return future


class SilentClient(SlowClient):
    """Never answers at all."""

    def _later(self, answer: Any, options: dict[str, Any]) -> "Future[Any]":  # noqa: ARG002
        return Future()


Ask = Callable[[SlowClient], Kafka]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Tally's client over one of the stand-ins."""

    def build(client: SlowClient) -> Kafka:
        with monkeypatch.context() as patch:
            patch.setattr(kafka, "AdminClient", lambda *_, **__: client)
            return Kafka(KafkaSettings(request_timeout_s=TIMEOUT_S))

    monkeypatch.setattr(kafka, "GRACE_S", GRACE_S)
    return build


def test_a_snapshot_gives_each_request_what_the_others_left(ask: Ask) -> None:
    """Four requests share one time-out."""
    client = SlowClient(takes_s=TIMEOUT_S / 10)
    snapshot = ask(client).snapshot(["alog"])
    assert snapshot.topics["alog"].partitions[0].end == 7
    assert len(client.given) == 4
    assert client.given[0] <= TIMEOUT_S
    for earlier, later in zip(client.given, client.given[1:], strict=False):
        assert later <= earlier - client.takes_s / 2


def test_a_snapshot_of_slow_answers_ends_at_the_time_out(ask: Ask) -> None:
    """Each request is within the time-out, all four are not: that is an error, in time."""
    begun = time.monotonic()
    with pytest.raises(KafkaUnavailableError, match=r"within 0\.5 s"):
        ask(SlowClient(takes_s=TIMEOUT_S * 0.4)).snapshot(["alog"])
    assert time.monotonic() - begun < TIMEOUT_S + GRACE_S


def test_a_leader_that_never_settles_is_named_in_time(ask: Ask) -> None:
    """The snapshot is taken again and again, within the one time-out."""
    begun = time.monotonic()
    with pytest.raises(KafkaUnavailableError, match="alog"):
        ask(SlowClient(0.01, KafkaError.NOT_LEADER_FOR_PARTITION)).snapshot(["alog"])
    assert time.monotonic() - begun < TIMEOUT_S + GRACE_S


@pytest.mark.parametrize(
    "question",
    [
        lambda client: client.snapshot(["alog"]),
        lambda client: client.offsets_at(
            [TopicPartition(topic="alog", partition=n) for n in range(9)], datetime.now(UTC)
        ),
    ],
)
def test_a_client_that_never_answers_holds_nobody_up(
    ask: Ask, question: Callable[[Kafka], object]
) -> None:
    """Not even librdkafka's own time-out is relied on."""
    begun = time.monotonic()
    with pytest.raises(KafkaUnavailableError, match="no answer"):
        question(ask(SilentClient(takes_s=0)))
    assert time.monotonic() - begun < TIMEOUT_S + 3 * GRACE_S


class SettlingClient(SlowClient):
    """Its partitions change their leader, so the first questions about offsets fail."""

    left = 2

    def list_offsets(self, wanted: dict[Any, Any], **options: Any) -> dict[Any, "Future[Any]"]:
        """The failure, so many times; then the offset."""
        self.failure = KafkaError.NOT_LEADER_FOR_PARTITION if self.left else None
        self.left -= bool(self.left)
        return super().list_offsets(wanted, **options)


def test_a_leader_that_has_changed_is_asked_again(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moments later there is another one, and its answer is taken."""
    monkeypatch.setattr(kafka, "LEADER_PAUSE_S", 0.001)
    client = SettlingClient(takes_s=0.001)
    assert ask(client).snapshot(["alog"]).topics["alog"].partitions[0].end == 7
    assert client.left == 0
