"""The fakes that disturb what a step asks of MySQL and of Kafka."""

from datetime import UTC, datetime
from unittest.mock import create_autospec

import pytest

from tally.kafka.client import Kafka
from tally.model import KafkaSnapshot
from tally.testing.kafka import DisturbedKafka
from tally.testing.statements import at_statement

FALSE = KafkaSnapshot(cluster_id="false", topics={})


def test_the_first_statements_that_match_are_disturbed() -> None:
    """Other statements and later matches are not; what is raised ends the transaction."""
    heard: list[str] = []
    listen = at_statement("^insert into `", lambda: heard.append("now"), times=2)
    for statement in ["insert into batch", "select 1", "insert into `a`"]:
        listen(statement)
    assert heard == ["now"]
    for _ in range(2):
        listen("insert into `b`")
    assert heard == ["now", "now"]
    with pytest.raises(IndexError):
        at_statement("delete", [].pop)("delete from batch")


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
    assert kafka.snapshots == 2
    assert before == [False]


@pytest.mark.parametrize("method", ["times_at", "retention", "rights"])
def test_all_else_is_the_other_kafkas_answer(method: str) -> None:
    """Also the offsets of a moment, and what is committed to Kafka."""
    asked = create_autospec(Kafka, instance=True)
    kafka = DisturbedKafka(asked)
    assert getattr(kafka, method)(["alog"]) is getattr(asked, method).return_value
    assert getattr(asked, method).call_args.args == (["alog"],)
    assert kafka.offsets_at([], datetime.now(UTC)) is asked.offsets_at.return_value
    kafka.commit_offsets("group", {})
    asked.commit_offsets.assert_called_once_with("group", {})
