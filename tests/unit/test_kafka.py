"""Questions to Kafka end in time, however many requests they take; a stand-in for its client."""

import math
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime
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


class Clock:
    """A time that passes only while somebody waits; in place of the module `time`."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        """So many seconds after the beginning."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let them pass."""
        self.now_s += seconds

    def wait(self, answers: "list[Answer]", timeout: float) -> "tuple[set[Answer], set[Answer]]":
        """Wait for the one answer, as :func:`concurrent.futures.wait` does."""
        (answer,) = answers
        until_s = self.now_s + timeout
        self.now_s = max(self.now_s, min(answer.at_s, until_s))
        return ({answer}, set()) if answer.at_s <= until_s else (set(), {answer})


class Answer(Future[Any]):
    """One that comes at a moment of the clock."""

    def __init__(self, at_s: float) -> None:
        super().__init__()
        self.at_s = at_s


class SlowClient:
    """Answers each request after a while, or when the time that it was given is over.

    Args:
        takes_s: How long an answer takes.
        failure: What each question about offsets is answered with; None for a good answer.
    """

    def __init__(self, takes_s: float, failure: int | None = None) -> None:
        self.clock = Clock()
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
        future = Answer(self.clock.now_s + min(left_s, self.takes_s))
        if left_s < self.takes_s:
            answer = KafkaException(KafkaError(KafkaError._TIMED_OUT))
        tell = future.set_exception if isinstance(answer, Exception) else future.set_result
        tell(answer)
        return future


class SilentClient(SlowClient):
    """Never answers at all."""

    def _later(self, answer: Any, options: dict[str, Any]) -> "Future[Any]":  # noqa: ARG002
        return Answer(math.inf)


Ask = Callable[[SlowClient], Kafka]


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Tally's client over one of the stand-ins."""

    def build(client: SlowClient) -> Kafka:
        monkeypatch.setattr(kafka, "time", client.clock)
        monkeypatch.setattr(kafka, "wait", client.clock.wait)
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
        assert later == pytest.approx(earlier - client.takes_s)


def test_a_snapshot_of_slow_answers_ends_at_the_time_out(ask: Ask) -> None:
    """Each request is within the time-out, all four are not: that is an error, in time."""
    client = SlowClient(takes_s=TIMEOUT_S * 0.4)
    with pytest.raises(KafkaUnavailableError, match=r"within 0\.5 s"):
        ask(client).snapshot(["alog"])
    assert client.clock.now_s == pytest.approx(TIMEOUT_S)


def test_a_leader_that_never_settles_is_named_in_time(ask: Ask) -> None:
    """The snapshot is taken again and again, within the one time-out."""
    client = SlowClient(0.01, KafkaError.NOT_LEADER_FOR_PARTITION)
    with pytest.raises(KafkaUnavailableError, match="alog"):
        ask(client).snapshot(["alog"])
    assert TIMEOUT_S / 2 < client.clock.now_s <= TIMEOUT_S


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
    client = SilentClient(takes_s=0)
    with pytest.raises(KafkaUnavailableError, match="no answer"):
        question(ask(client))
    assert client.clock.now_s == pytest.approx(TIMEOUT_S + GRACE_S)


class SettlingClient(SlowClient):
    """Its partitions change their leader, so the first questions about offsets fail."""

    left = 2

    def list_offsets(self, wanted: dict[Any, Any], **options: Any) -> dict[Any, "Future[Any]"]:
        """The failure, so many times; then the offset."""
        self.failure = KafkaError.NOT_LEADER_FOR_PARTITION if self.left else None
        self.left -= bool(self.left)
        return super().list_offsets(wanted, **options)


def test_a_leader_that_has_changed_is_asked_again(ask: Ask) -> None:
    """Moments later there is another one, and its answer is taken."""
    client = SettlingClient(takes_s=0.001)
    assert ask(client).snapshot(["alog"]).topics["alog"].partitions[0].end == 7
    assert client.left == 0
