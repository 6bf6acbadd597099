"""What `tally status` says of a partition, and how long what waits in Kafka is still kept."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.values import AT, P0, kafka, known, pipeline, span

from tally.config.pipeline import Pipeline
from tally.config.servers import KafkaSettings
from tally.errors import KafkaUnavailableError
from tally.kafka.client import Kafka
from tally.lines.reading import Record
from tally.model import KafkaSnapshot, KnownTopic, Loss, LossCause, TopicPartition
from tally.status.health import Health, worst_of
from tally.status.overview import oldest_of
from tally.status.state import PipelineState
from tally.status.status import StatusView, WaitingPartition, WaitingView, status_of
from tally.status.surroundings import Surroundings
from tally.views import ErrorView

NOW = PipelineState(pipeline=pipeline(), now=AT, known={})
LOST = Loss(cause=LossCause.EXPIRED, range=span(1, 4))
NO_START = (None, None)

# The ledger's side and Kafka's; start, next, Kafka's end, lag and condition of each partition; and
# what is blocked.
CASES: tuple[tuple[dict[str, KnownTopic], KafkaSnapshot | None, list[Any], list[str]], ...] = (
    # Lag is the distance to Kafka's end, whatever the start.
    (known(10, start=5), kafka((0, 35)), [(5, 10, 35, 25, "ok")], []),
    # A partition or a topic that only Kafka knows is shown before it is planned.
    (known(1), kafka((0, 1), (0, 7)), [(0, 1, 1, 0, "ok"), (*NO_START, 7, 7, "new")], []),
    ({}, kafka((0, 7)), [(*NO_START, 7, 7, "new")], []),
    # Records that are gone are a loss, not a lag; the other partition is well.
    (
        *(known(1, 1), kafka((4, 9), (0, 9))),
        [(0, 1, 9, 5, "blocked: records-lost"), (0, 1, 9, 8, "ok")],
        ["records-lost"],
    ),
    # Without an answer from Kafka neither lag nor `ok` is shown; the ledger has an open loss.
    (known(9), None, [(0, 9, None, None, "unknown")], []),
    (known(1, open_loss=LOST), None, [(0, 1, None, None, "open loss [1, 4)")], []),
    # Behind a truncation nothing is counted, as far as Kafka still holds it.
    (
        *(known(9, open_loss=replace(LOST, cause=LossCause.TRUNCATED)), kafka((2, 12))),
        [(0, 9, 12, 10, "blocked: topic-truncated")],
        ["topic-truncated"],
    ),
    # A topic that was created again blocks all that is known of it, and all of it waits.
    (
        *(known(1, 1, topic_id="old"), kafka((0, 9), (2, 9))),
        [(0, 1, 9, lag, "blocked: topic-changed") for lag in (9, 7)],
        ["topic-changed"],
    ),
    # So does a topic of another cluster.
    (
        *(known(1), kafka((0, 9), cluster_id="another")),
        [(0, 1, 9, 9, "blocked: cluster-changed")],
        ["cluster-changed"],
    ),
    # Of a topic that is gone, what was counted is still shown.
    (known(9), kafka(), [(0, 9, None, None, "blocked: topic-missing")], ["topic-missing"]),
)


def stand(ledger: dict[str, KnownTopic], said: KafkaSnapshot | None, **keys: Any) -> StatusView:
    return status_of(replace(NOW, pipeline=pipeline(**keys), known=ledger, kafka=said))


def test_each_partition_has_its_offsets_its_lag_and_its_condition() -> None:
    """From the ledger and from Kafka; a block is one, however many partitions it has."""
    wrong = []
    for ledger, said, partitions, blocks in CASES:
        view = stand(ledger, said)
        found = [
            (p.start_offset, p.next_offset, p.kafka_end, p.lag_offsets, p.condition)
            for p in view.partitions
        ]
        if (found, [b.reason for b in view.blocks]) != (partitions, blocks):
            wrong.append((partitions, found, view.blocks))
    assert wrong == []


def test_a_loss_is_to_be_planned_before_it_can_be_accepted() -> None:
    """Only a plan records it; one that is recorded waits for the decision."""
    for ledger, said, is_recorded in (
        (known(1), kafka((4, 9)), False),
        (known(9), kafka((0, 5)), False),
        (known(1, open_loss=LOST), kafka((4, 9)), True),
    ):
        for problem in stand(ledger, said).problems:
            assert problem.next_step.startswith("tally plan first, ") != is_recorded
            assert ("tally losses accept first" in problem.next_step) == is_recorded


def test_without_an_answer_from_kafka_the_health_is_a_failure_or_unknown() -> None:
    """Whatever the ledger knows: what is blocked or lost shows only in Kafka's answer."""
    error = ErrorView.of(KafkaUnavailableError("no answer", next_step="start it"))
    paused = Surroundings(paused={"first": True})
    for state, read, health in (
        (known(9), NOW, Health.UNKNOWN),
        (known(9), replace(NOW, surroundings=paused), Health.UNKNOWN),
        (known(9), replace(NOW, surroundings=paused, kafka=kafka((0, 9))), Health.WARN),
        (known(9), replace(NOW, kafka=kafka((0, 9))), Health.OK),
        (known(9), replace(NOW, kafka_error=error), Health.FAIL),
        (known(1), replace(NOW, surroundings=paused, kafka=kafka((4, 9))), Health.FAIL),
    ):
        view = status_of(replace(read, known=state))
        assert view.health is health
    summaries = [Health.OK, Health.WARN, Health.UNKNOWN]
    assert worst_of(summaries) is Health.UNKNOWN
    assert worst_of([*summaries, Health.FAIL]) is Health.FAIL


def test_the_lag_of_a_new_topic_follows_from_its_start() -> None:
    """What the first batch would count; where a time decides, Kafka would have to be asked."""
    starts = ("earliest", "latest", datetime(2026, 1, 1, tzinfo=UTC))
    views = [stand({}, kafka((3, 7)), start=start) for start in starts]
    assert [[p.lag_offsets for p in view.partitions] for view in views] == [[4], [0], [None]]


def test_what_is_planned_is_shown_beside_what_is_counted() -> None:
    """Without Kafka it is all that is known of how far behind a partition is."""
    both = known(3, 9)
    view = status_of(replace(NOW, known=both, planned_until={P0: 8}))
    assert [p.planned_until for p in view.partitions] == [8, None]
    assert [p.planned_offsets for p in view.partitions] == [5, 0]


def waits(written_s: float, expires_s: float | None) -> WaitingPartition:
    """A record that was written so long ago, and expires so much later than now."""
    return WaitingPartition(
        written_at=AT - timedelta(seconds=written_s),
        expires_at=None if expires_s is None else AT + timedelta(seconds=expires_s),
    )


def test_what_is_left_is_a_share_of_the_retention_and_the_smallest_is_measured() -> None:
    """1 when it was written, 0 when it may be deleted; topics are kept for different times."""
    times = ((0, 100), (75, 25), (150, -50), (10, None), (0, 0))
    shares = [waits(*time).retention_left(AT) for time in times]
    assert shares == [1, 0.25, -0.5, None, None]
    day_s = 86_400
    times = ((5 * day_s, 2 * day_s), (300, 3_300), (300, None))
    oldest = {replace(P0, topic=topic): waits(*of) for topic, of in zip("bac", times, strict=True)}
    view = WaitingView(asked_at=AT, status=stand({}, None), oldest=oldest, times_error=None)
    assert view.retention_left == pytest.approx(2 / 7)


def test_of_pipelines_that_read_one_topic_each_is_told_its_own_oldest_record() -> None:
    """Whichever is further behind, and in whatever order they are asked for."""

    class Topic(Kafka):
        asked = 0

        def records_at(self, offsets: Mapping[TopicPartition, int], **_: Any) -> Any:
            self.asked += 1
            of = {where: AT + timedelta(seconds=at) for where, at in offsets.items()}
            return {where: [Record(value=b"", written_at=at)] for where, at in of.items()}

    names = ("current", "behind", "too", "mute")
    pipelines = [Pipeline.named(name, {"topics": ["alog"]}) for name in names]
    waiting = dict(zip(names, ({P0: 999}, {P0: 100}, {P0: 999}, {}), strict=True))
    topic = Topic(KafkaSettings(bootstrap_servers="127.0.0.1:1"))
    found = oldest_of(topic, pipelines, waiting)
    assert {name: (at - AT).seconds for name, at in found.items()} == {
        "current": 999,
        "too": 999,
        "behind": 100,
    }
    assert topic.asked == 2
