"""Calls of the Kafka client end in time, with a stand-in for librdkafka's client."""

import math
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    KafkaError,
    KafkaException,
)
from tests.fakes import ManualClock
from tests.servers import PROJECT
from tests.tls_listener import certificate, tls_listener
from tests.unit.values import P0, span

from tally.config.servers import KafkaSettings
from tally.errors import AccessDeniedError, KafkaUnavailableError, ReadError, TallyError
from tally.kafka.client import AskedOnce, Kafka
from tally.kafka.errors import PATIENCE_S, fault, more_telling
from tally.kafka.records import read_range, whole_ranges
from tally.kafka.requests import EXAMINE_EACH_S, REFUSED_FOR_S, Requests
from tally.model import KafkaSnapshot, TopicPartition

TIMEOUT_S = 0.5
GRACE_S = 0.1
ALL_DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN)


class Answer(Future[Any]):
    """A future that is done at a given time; waiting for it advances the clock."""

    def __init__(self, clock: ManualClock, at_s: float) -> None:
        super().__init__()
        self._clock, self._at_s = clock, at_s

    def result(self, timeout: float | None = None) -> Any:
        """The answer, as :class:`concurrent.futures.Future` gives it."""
        assert timeout is not None, "nothing is waited for without an end"
        left_s = self._at_s - self._clock.monotonic()
        self._clock.sleep(max(0.0, min(left_s, timeout)))
        if left_s > timeout:
            raise TimeoutError
        return super().result(0)


@dataclass
class SlowClient:
    """A client of which every answer takes some seconds, or is a timeout; inf: there is none."""

    takes_s: float
    failure: int | None = None
    """What questions about offsets are answered with; None for a good answer."""
    failures: float = math.inf
    """How many of them."""
    as_a_whole: bool = True
    """Whether the commit to a group fails as a whole, or for its partitions."""
    clock: ManualClock = field(default_factory=ManualClock)
    given: list[float] = field(default_factory=list)
    seen: tuple[KafkaError, ...] = ()
    """What is wrong with its connections."""
    tell: Callable[[KafkaError], None] = field(init=False)
    committed: list[str] = field(default_factory=list)

    def poll(self, _: float) -> int:
        """Tell what is wrong with its connections."""
        for error in self.seen:
            self.tell(error)
        return len(self.seen)

    def describe_topics(self, _: Any, **options: Any) -> dict[str, "Future[Any]"]:
        """The one topic, with one partition."""
        topic = SimpleNamespace(topic_id="id", partitions=[SimpleNamespace(id=0)])
        return {"alog": self._later(topic, options)}

    def list_offsets(self, wanted: dict[Any, Any], **options: Any) -> dict[Any, "Future[Any]"]:
        """The same offset of each partition, or the failure."""
        return {
            partition: self._later(self._failure() or SimpleNamespace(offset=7), options)
            for partition in wanted
        }

    def list_topics(self, topic: str | None, *, timeout: float) -> Any:
        """The cluster's id; waits for it by itself."""
        assert topic == "alog"
        answer = self._later(SimpleNamespace(cluster_id="cluster"), {"request_timeout": timeout})
        return answer.result(timeout)

    def alter_consumer_group_offsets(
        self, requests: list[Any], **options: Any
    ) -> dict[str, "Future[Any]"]:
        """The failure, then success."""
        answer: Any = self._failure()
        if answer is None:
            self.committed.append(requests[0].group_id)
        if answer is None or not self.as_a_whole:
            error = answer and answer.args[0]
            answer = SimpleNamespace(topic_partitions=[SimpleNamespace(error=error)])
        return {"g": self._later(answer, options)}

    def describe_consumer_groups(self, _: list[str], **options: Any) -> dict[str, "Future[Any]"]:
        """The failure, then what is not looked at."""
        return {"g": self._later(self._failure(), options)}

    def list_consumer_group_offsets(self, _: list[Any], **options: Any) -> dict[str, "Future[Any]"]:
        """The failure, then a group without offsets."""
        answer = self._failure() or SimpleNamespace(topic_partitions=[])
        return {"g": self._later(answer, options)}

    def _failure(self) -> KafkaException | None:
        if self.failure is None or not self.failures:
            return None
        self.failures -= 1
        return KafkaException(KafkaError(self.failure))

    def _later(self, answer: Any, options: dict[str, Any]) -> "Future[Any]":
        left_s = options["request_timeout"]
        self.given.append(left_s)
        if self.takes_s == math.inf:
            return Answer(self.clock, math.inf)
        future = Answer(self.clock, self.clock.monotonic() + min(left_s, self.takes_s))
        if left_s < self.takes_s:
            answer = KafkaException(KafkaError(KafkaError._TIMED_OUT))
        tell = future.set_exception if isinstance(answer, Exception) else future.set_result
        tell(answer)
        return future


def ask(client: SlowClient, timeout_s: float = TIMEOUT_S) -> Kafka:
    settings = KafkaSettings(request_timeout_s=timeout_s)

    def open_client(options: dict[str, Any]) -> Any:
        client.tell = options["error_cb"]
        return client

    requests = Requests(settings, open_client=open_client, grace_s=GRACE_S, clock=client.clock)
    return Kafka(settings, requests=requests)


def test_of_the_errors_of_connections_the_most_telling_is_shown() -> None:
    """A refused login first; that all brokers are down last, as it says nothing of the cause."""
    refused, transport = KafkaError._AUTHENTICATION, KafkaError._TRANSPORT
    resolve, all_down = KafkaError._RESOLVE, KafkaError._ALL_BROKERS_DOWN
    for errors, shown in (
        *(([transport, all_down], transport), ([all_down], all_down)),
        *(([all_down, resolve], resolve), ([resolve, transport], transport)),
        *(([refused, transport], refused), ([transport, refused], refused)),
    ):
        found: KafkaError | None = None
        for code in errors:
            found = more_telling(found, KafkaError(code))
        assert found is not None
        assert found.code() == shown


def test_a_snapshot_gives_each_request_what_the_others_left() -> None:
    """Five requests share one timeout: if together they take longer, the call raises in time."""
    client = SlowClient(takes_s=TIMEOUT_S / 10)
    snapshot = ask(client).snapshot(["alog"])
    assert snapshot.topics["alog"].partitions[0].end == 7
    assert len(client.given) == 5
    assert client.given[0] <= TIMEOUT_S
    for earlier, later in zip(client.given, client.given[1:], strict=False):
        assert later == pytest.approx(earlier - client.takes_s)
    client = SlowClient(takes_s=TIMEOUT_S * 0.4)
    with pytest.raises(KafkaUnavailableError, match=r"within 0\.5 s"):
        ask(client).snapshot(["alog"])
    assert client.clock.monotonic() == pytest.approx(TIMEOUT_S)


def test_a_broker_that_knows_no_brokers_yet_is_asked_again() -> None:
    """It has just started. librdkafka must answer with an error, and not abort the process."""
    script = """
from tally.config.servers import KafkaSettings
from tally.errors import KafkaUnavailableError
from tally.kafka.client import Kafka
from tests.starting_broker import StartingBroker

with StartingBroker() as broker:
    kafka = Kafka(KafkaSettings(bootstrap_servers=broker.address, request_timeout_s=5))
    print(kafka.snapshot([]).cluster_id)
    broker.knows_brokers = False
    try:
        kafka.snapshot([])
    except KafkaUnavailableError as error:
        print(error.code, "Partial response" in error.what)
    broker.knows_brokers = True
    print(kafka.snapshot([]).cluster_id)
"""
    # In a process of its own, which librdkafka may abort.
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == ["cluster", "kafka-unavailable True", "cluster"]


def test_a_leader_that_never_settles_is_named_in_time() -> None:
    """The snapshot is tried again within one timeout, as is the commit to a group."""
    for failure, question, named in (
        (KafkaError.NOT_LEADER_FOR_PARTITION, lambda kafka: kafka.snapshot(["alog"]), "alog"),
        (KafkaError.NOT_COORDINATOR, lambda kafka: kafka.commit_offsets("g", {P0: 7}), "group g"),
    ):
        client = SlowClient(0.01, failure)
        with pytest.raises(KafkaUnavailableError, match=named):
            question(ask(client))
        assert TIMEOUT_S / 2 < client.clock.monotonic() <= TIMEOUT_S


def test_a_client_that_never_answers_times_out() -> None:
    """The call ends even if librdkafka's own timeout does not work."""
    partitions = [TopicPartition(topic="alog", partition=n) for n in range(9)]
    for question in (
        lambda client: client.snapshot(["alog"]),
        lambda client: client.offsets_at(partitions, datetime.now(UTC)),
    ):
        client = SlowClient(takes_s=math.inf)
        with pytest.raises(KafkaUnavailableError, match="no answer"):
            question(ask(client))
        assert client.clock.monotonic() == pytest.approx(TIMEOUT_S + GRACE_S)


def test_a_login_must_stay_refused_to_end_a_request() -> None:
    """A broker that starts may not know its users yet; the next try is answered."""
    seen = (KafkaError(KafkaError._AUTHENTICATION), ALL_DOWN)
    snapshot = ask(SlowClient(takes_s=2, seen=seen), 30).snapshot(["alog"])
    assert snapshot.topics["alog"].partitions[0].end == 7
    client = SlowClient(takes_s=math.inf, seen=seen)
    with pytest.raises(AccessDeniedError, match="could not describe the topic alog"):
        ask(client, 30).snapshot(["alog"])
    assert REFUSED_FOR_S <= client.clock.monotonic() < 2 * REFUSED_FOR_S


def test_a_request_examines_its_brokers_now_and_then_while_there_is_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The handshake takes a second of the time that is left, and may be told nothing at first."""
    examined: list[str] = []

    def fault(_: KafkaSettings, operation: str, __: KafkaError) -> None:
        examined.append(operation)

    monkeypatch.setattr("tally.kafka.errors.fault", fault)
    for timeout_s, times in ((2.5 * EXAMINE_EACH_S, 3), (PATIENCE_S / 2, 0)):
        examined.clear()
        client = SlowClient(takes_s=math.inf, seen=(ALL_DOWN,))
        with pytest.raises(KafkaUnavailableError, match="no answer"):
            ask(client, timeout_s).snapshot(["alog"])
        assert examined == ["describe the topic alog"] * times


def test_one_broker_is_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that librdkafka names, else the first; each may keep silent for a second."""
    asked: list[str] = []

    def shake_hands(address: str, _: ssl.SSLContext) -> None:
        asked.append(address)
        raise TimeoutError

    monkeypatch.setattr("tally.kafka.errors._shake_hands", shake_hands)
    named = KafkaError(KafkaError._TRANSPORT, "plaintext://c:3/bootstrap: Disconnected")
    settings = KafkaSettings(bootstrap_servers="PLAINTEXT://a:1, b:2")
    for connection in (ALL_DOWN, named):
        assert fault(settings, "describe the topic alog", connection) is None
    assert asked == ["a:1", "c:3"]


@pytest.mark.parametrize(
    ("code", "next_step"), [(20, "kafka.ssl_ca_location"), (26, "correct the broker's certificate")]
)
def test_an_authority_is_asked_for_when_one_is_missing(
    monkeypatch: pytest.MonkeyPatch, code: int, next_step: str
) -> None:
    """A certificate that is not for servers stays so, whatever is trusted."""

    def shake_hands(_: str, __: ssl.SSLContext) -> None:
        error = ssl.SSLCertVerificationError()
        error.verify_code, error.verify_message = code, "it is not good"
        raise error

    monkeypatch.setattr("tally.kafka.errors._shake_hands", shake_hands)
    connection = KafkaError(KafkaError._SSL, "ssl://c:3/bootstrap: SSL handshake failed")
    found = fault(KafkaSettings(security_protocol="SSL"), "describe the topic alog", connection)
    assert found is not None
    assert next_step in found.next_step
    for text in ("c:3", "describe the topic alog", "it is not good", "SSL handshake failed"):
        assert text in found.what


def test_a_leader_that_has_changed_is_asked_again() -> None:
    """A later try gets the answer of the new leader."""
    client = SlowClient(takes_s=0.001, failure=KafkaError.NOT_LEADER_FOR_PARTITION, failures=2)
    assert ask(client).snapshot(["alog"]).topics["alog"].partitions[0].end == 7
    assert client.failures == 0
    # So is the coordinator of a cluster's first group: Kafka makes their topic when it is asked.
    for as_a_whole in (True, False):
        client = SlowClient(0.001, KafkaError.NOT_COORDINATOR, 2, as_a_whole=as_a_whole)
        ask(client).commit_offsets("tally-e", {P0: 7})
        assert client.committed == ["tally-e"]
    # It also answers nothing while it loads, as it does when the broker has just started.
    client = SlowClient(0.001, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, 2)
    assert ask(client).notes_of("tally-e") == {}
    assert client.failures == 0


def test_the_notes_of_a_group_whose_coordinator_is_chosen_are_asked_for_again() -> None:
    """The admin client of librdkafka ends the process when it reads them from another broker."""
    script = """
from confluent_kafka import KafkaError
from tally.config.servers import KafkaSettings
from tally.kafka.client import Kafka
from tests.starting_broker import StartingBroker

with StartingBroker() as broker:
    kafka = Kafka(KafkaSettings(bootstrap_servers=broker.address, request_timeout_s=30))
    print(kafka.notes_of("tally-none"))
    broker.has_offset = True
    broker.refusals = [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS] * 2
    print(len(kafka.notes_of("tally-e")), broker.refusals)
"""
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines() == ["{}", "1 []"]


@pytest.mark.parametrize(
    ("shown", "protocol", "said", "next_step"),
    [
        ({}, "SSL", "self-signed certificate", "kafka.ssl_ca_location"),
        ({"days": -1}, "SSL", "certificate has expired", "renew"),
        ({"name": "other.example"}, "SSL", "IP address mismatch", "as their certificate does"),
        ({}, "PLAINTEXT", "speaks TLS", "kafka.security_protocol to SSL,"),
        ({}, "SASL_PLAINTEXT", "speaks TLS", "kafka.security_protocol to SASL_SSL,"),
    ],
)
def test_of_a_listener_with_tls_it_is_said_at_once_what_does_not_fit(
    tmp_path: Path, shown: dict[str, Any], protocol: str, said: str, next_step: str
) -> None:
    """With librdkafka's real client; the five minutes are not waited for."""
    file = certificate(tmp_path, **shown)
    trusted = file if shown else certificate(tmp_path)
    login: dict[str, Any] = {"sasl_mechanism": "PLAIN", "sasl_username": "a", "sasl_password": "b"}
    with tls_listener(file) as address:
        settings = KafkaSettings(
            bootstrap_servers=address,
            security_protocol=protocol,
            ssl_ca_location=trusted,
            request_timeout_s=300,
            **(login if protocol.startswith("SASL") else {}),
        )
        began = time.monotonic()
        with pytest.raises(KafkaUnavailableError, match=f"{address}.*{said}") as raised:
            Kafka(settings).snapshot(["alog"])
        assert time.monotonic() - began < 150
    assert next_step in raised.value.next_step


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (AccessDeniedError("no"), [["a", "refused"], ["a"], ["a"], ["refused"]]),
        (KafkaUnavailableError("no answer"), [["a", "refused"]] * 3),
    ],
)
def test_a_topic_that_is_refused_fails_those_that_read_it_alone(
    monkeypatch: pytest.MonkeyPatch, error: TallyError, wanted: list[list[str]]
) -> None:
    """Of many that are asked for at once; of a broker that is down nothing else can be asked."""
    asked: list[list[str]] = []

    def snapshot(_: Kafka, topics: Iterable[str], **__: bool) -> KafkaSnapshot:
        asked.append(sorted(topics))
        if "refused" in asked[-1]:
            raise error
        return KafkaSnapshot(cluster_id="C", topics={})

    monkeypatch.setattr(Kafka, "snapshot", snapshot)
    kafka = Kafka(KafkaSettings(bootstrap_servers="127.0.0.1:1"))
    once = AskedOnce(kafka, {True: ["a", "refused"]})
    failed = []
    for topic in ("a", "a", "refused"):
        try:
            once.snapshot([topic])
        except TallyError:
            failed.append(topic)
    assert asked == wanted
    assert failed == (["refused"] if len(asked) == 4 else ["a", "a", "refused"])


class _Messages:
    """A consumer that gives some messages."""

    def __init__(self, *messages: Mock) -> None:
        self._messages = list(messages)

    def assign(self, _: object) -> None: ...

    def pause(self, _: object) -> None: ...

    def close(self) -> None: ...

    def consume(self, _: int, __: float) -> list[Mock]:
        return [self._messages.pop(0)] if self._messages else []


def _message(partition: int, offset: int, *, size: int = 1, error: int = 0, stamp: int = 1) -> Mock:
    kind = TIMESTAMP_CREATE_TIME if stamp else TIMESTAMP_NOT_AVAILABLE
    values: dict[str, Any] = {
        "topic": "alog",
        "partition": partition,
        "offset": offset,
        "value": b"x" * size,
        "key": None,
        "timestamp": (kind, stamp),
        "error": KafkaError(error) if error else None,
    }
    return Mock(**{f"{name}.return_value": value for name, value in values.items()})


def test_a_small_range_that_is_not_whole_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read by Spark, whose error says what is wrong; the others are there."""
    end, gone = KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET
    large = 9 * 1024 * 1024
    for case, messages, whole in (
        ("all of both", [_message(0, 0), _message(1, 0), _message(0, 1)], {0: 2, 1: 1}),
        ("one without its last record", [_message(1, 0), _message(0, 0)], {1: 1}),
        ("the end before the range's", [_message(0, 1, error=end), _message(1, 0)], {1: 1}),
        (
            "the end behind it",
            [_message(0, 0), _message(0, 2, error=end), _message(1, 0)],
            {0: 1, 1: 1},
        ),
        ("records behind it", [_message(0, 0), _message(0, 5), _message(1, 7)], {0: 1, 1: 0}),
        ("an offset that is gone", [_message(0, 0, error=gone), _message(1, 0)], {1: 1}),
        ("no timestamp", [_message(0, 0), _message(0, 1, stamp=0), _message(1, 0)], {1: 1}),
        (
            "too large",
            [_message(0, 0, size=large), _message(1, 0), _message(0, 1, size=large)],
            {1: 1},
        ),
    ):
        monkeypatch.setattr("tally.kafka.records.Consumer", Mock(return_value=_Messages(*messages)))
        settings = KafkaSettings(request_timeout_s=0.05)
        (found,) = whole_ranges(settings, [span(0, 2), span(0, 1, 1)], read_committed=True)
        assert {r.partition.partition: len(records) for r, records in found.items()} == whole, case


def test_a_read_ends_before_records_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention may pass by; what comes later would be asked for until the time is up."""
    messages = [_message(0, 0), _message(0, 1, error=KafkaError._AUTO_OFFSET_RESET)]
    monkeypatch.setattr("tally.kafka.records.Consumer", Mock(return_value=_Messages(*messages)))
    spans = read_range(KafkaSettings(), span(0, 5), read_committed=True, until=math.inf)
    assert [one.until_offset for one in islice(spans, 5)] == [1, 1]


def test_damaged_bytes_of_a_small_range_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark does not check checksums: it would count them, whatever they say."""
    messages = [_message(1, 0), _message(0, 0), _message(0, 1, error=KafkaError._BAD_MSG)]
    monkeypatch.setattr("tally.kafka.records.Consumer", Mock(return_value=_Messages(*messages)))
    ranges = [span(0, 2), span(0, 1, 1)]
    settings = KafkaSettings(request_timeout_s=0.05)
    with pytest.raises(ReadError, match=r"alog/0 \[0, 2\) are damaged"):
        list(whole_ranges(settings, ranges, read_committed=True))
    # Behind the range, whose last offset is a marker, they are not its bytes.
    messages = [_message(1, 0), _message(0, 0), _message(0, 2, error=KafkaError._BAD_MSG)]
    monkeypatch.setattr("tally.kafka.records.Consumer", Mock(return_value=_Messages(*messages)))
    (found,) = whole_ranges(settings, ranges, read_committed=True)
    assert [len(found[r]) for r in ranges] == [1, 1]


def test_small_ranges_that_did_not_come_in_time_are_waited_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With Kafka away the time-out of each portion would add up to hours."""
    monkeypatch.setattr("tally.kafka.records._TOGETHER_OFFSETS", 2)
    monkeypatch.setattr("tally.kafka.records.Consumer", Mock(return_value=_Messages()))
    ranges = [span(0, 2, number) for number in range(3)]
    settings = KafkaSettings(request_timeout_s=0.05)
    assert list(whole_ranges(settings, ranges, read_committed=True)) == [{}]
