"""The fakes that disturb what a step asks of MySQL and of Kafka."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import pytest

from tally.model import KafkaSnapshot, TopicPartition, TopicRights
from tally.testing.kafka import DisturbedKafka
from tally.testing.statements import at_statement

TRUE = KafkaSnapshot(cluster_id="true", topics={})
FALSE = KafkaSnapshot(cluster_id="false", topics={})
PARTITION = TopicPartition(topic="alog", partition=0)


class Asked:
    """A Kafka that records its calls."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def snapshot(self, topics: Iterable[str], *, read_committed: bool = True) -> KafkaSnapshot:
        """The same snapshot for every call."""
        self.calls.append((list(topics), read_committed))
        return TRUE

    def offsets_at(
        self,
        partitions: Iterable[TopicPartition],
        moment: datetime,  # noqa: ARG002 - as the port has it
    ) -> Mapping[TopicPartition, int | None]:
        """The offset 7."""
        return dict.fromkeys(partitions, 7)

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Recorded."""
        self.calls.append((group, offsets))

    def rights(self, topics: Iterable[str]) -> Mapping[str, TopicRights]:
        """All rights."""
        return {topic: TopicRights(readable=True, compacted=False) for topic in topics}


def test_the_first_statements_that_match_are_disturbed() -> None:
    """Other statements and later matches are not disturbed."""
    heard: list[str] = []
    listen = at_statement("^insert into `", lambda: heard.append("now"), times=2)
    for statement in ["insert into batch", "select 1", "insert into `a`"]:
        listen(statement)
    assert heard == ["now"]
    for _ in range(2):
        listen("insert into `b`")
    assert heard == ["now", "now"]


def test_what_is_raised_at_a_statement_comes_through() -> None:
    """The exception ends the transaction that is about to send the statement."""

    def fail() -> None:
        raise ConnectionError("a test")

    with pytest.raises(ConnectionError, match="a test"):
        at_statement("delete", fail)("delete from batch")


def test_the_first_snapshots_are_disturbed() -> None:
    """The action runs before the other Kafka is asked, and the answer is altered."""
    asked = Asked()
    kafka = DisturbedKafka(
        asked, before=lambda: asked.calls.append("before"), alter=lambda _: FALSE
    )
    assert kafka.snapshot(["alog"], read_committed=False) is FALSE
    assert kafka.snapshot(["alog"]) is TRUE
    assert kafka.snapshots == 2
    assert asked.calls == ["before", (["alog"], False), (["alog"], True)]


def test_all_else_is_the_other_kafkas_answer() -> None:
    """Record times, mirrored offsets and rights are passed through."""
    asked = Asked()
    kafka = DisturbedKafka(asked)
    assert kafka.snapshot(["alog"]) is TRUE
    assert kafka.offsets_at([PARTITION], datetime.now(UTC)) == {PARTITION: 7}
    assert kafka.rights(["alog"])["alog"].readable
    kafka.commit_offsets("group", {PARTITION: 3})
    assert asked.calls[-1] == ("group", {PARTITION: 3})
