"""The fakes that disturb what a step asks of MySQL and of Kafka."""

from unittest.mock import create_autospec

from tally.kafka.client import Kafka
from tally.model import KafkaSnapshot
from tally.testing.kafka import DisturbedKafka
from tally.testing.statements import at_statement

FALSE = KafkaSnapshot(cluster_id="false", topics={})


def test_the_first_statements_that_match_are_disturbed() -> None:
    """Other statements and later matches are not."""
    heard: list[str] = []
    listen = at_statement("^insert into `", lambda: heard.append("now"), times=2)
    for statement in ["insert into batch", "select 1", *["insert into `a`"] * 3]:
        listen(statement)
    assert heard == ["now", "now"]


def test_the_first_snapshots_are_disturbed() -> None:
    """The action runs before the other Kafka is asked, and the answer is altered."""
    asked = create_autospec(Kafka, instance=True)
    before: list[bool] = []
    kafka = DisturbedKafka(
        asked, before=lambda: before.append(asked.snapshot.called), alter=lambda _: FALSE
    )
    assert kafka.snapshot(["alog"], read_committed=False) is FALSE
    asked.snapshot.assert_called_once_with(["alog"], read_committed=False)
    assert kafka.snapshot(["alog"]) is asked.snapshot.return_value
    assert (kafka.snapshots, before) == (2, [False])
    assert kafka.retention(["alog"]) is asked.retention.return_value
