"""Which minutes are complete, and what a plan has seen of Kafka's ends."""

from datetime import UTC, datetime, timedelta

import pytest

from tally.model import (
    KafkaSnapshot,
    KnownTopic,
    PartitionSnapshot,
    Position,
    TopicPartition,
    TopicSnapshot,
)
from tally.planning.blocks import Block, BlockReason
from tally.planning.completeness import complete_before, has_fallen, is_shown, newly_seen

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("through", "zone", "first_open"),
    [
        (
            "2026-11-27 20:15:59",
            "UTC",
            "20:14",
        ),  # the minute 20:14 ends at 20:15, and waits until 20:16
        ("2026-11-27 20:16:00", "UTC", "20:15"),
        ("2026-11-27 20:16:00", "Asia/Kolkata", "01:45"),
        ("2026-03-29 01:01:00", "Europe/Berlin", "03:00"),  # 02:00 to 02:59 are skipped
        # 02:00 to 02:59 come twice, and may change until the second time.
        ("2026-10-25 00:01:00", "Europe/Berlin", "02:00"),
        ("2026-10-25 00:59:00", "Europe/Berlin", "02:00"),
        ("2026-10-25 01:01:00", "Europe/Berlin", "02:00"),
        ("2026-10-25 01:02:30", "Europe/Berlin", "02:01"),
        ("2026-10-25 02:01:00", "Europe/Berlin", "03:00"),
    ],
)
def test_a_minute_is_complete_once_it_cannot_come_again(
    through: str, zone: str, first_open: str
) -> None:
    moment = datetime.fromisoformat(through).replace(tzinfo=UTC)
    assert f"{complete_before(moment, MINUTE, zone):%H:%M}" == first_open


def test_what_is_complete_stays_so_as_time_passes() -> None:
    """Ten minutes after ten over both changes of the clock, of which one is by half an hour."""
    for zone in ("Europe/Berlin", "Australia/Lord_Howe"):
        moment = datetime(2026, 3, 28, tzinfo=UTC)
        before = datetime(1, 1, 1)  # noqa: DTZ001 - a wall clock
        for _ in range(220 * 24 * 6):
            now = complete_before(moment, MINUTE, zone)
            assert now >= before
            moment, before = moment + 10 * MINUTE, now


@pytest.mark.parametrize(
    ("zone", "clock", "shown"),
    [
        ("UTC", "2026-03-29T02:30", True),
        ("Europe/Berlin", "2026-03-29T01:59", True),
        ("Europe/Berlin", "2026-03-29T02:00", False),
        ("Europe/Berlin", "2026-03-29T02:59", False),
        ("Europe/Berlin", "2026-03-29T03:00", True),
        ("Europe/Berlin", "2026-10-25T02:30", True),  # twice
    ],
)
def test_a_clock_that_is_set_forward_leaves_minutes_out(zone: str, clock: str, shown: bool) -> None:
    assert is_shown(datetime.fromisoformat(clock), zone) is shown


def asked(
    position: Position | None, held: PartitionSnapshot
) -> tuple[dict[str, KnownTopic], KafkaSnapshot]:
    """What is known of the only partition, and what Kafka says of it."""
    identity = {"topic_id": "id", "cluster_id": "cluster"}
    kafka = KafkaSnapshot(
        cluster_id="cluster",
        topics={"alog": TopicSnapshot(partitions={0: held}, **identity)},
    )
    positions = {} if position is None else {0: position}
    return {"alog": KnownTopic(generation_id=1, positions=positions, **identity)}, kafka


def seen(position: Position | None, held: PartitionSnapshot, *blocks: Block) -> list[int]:
    """The ends that are seen of the only partition."""
    known, kafka = asked(position, held)
    found = list(newly_seen(known, kafka, blocks))
    assert all(where == TopicPartition(topic="alog", partition=0) for where, _ in found)
    return [end for _, end in found]


def test_an_end_is_awaited_until_all_before_it_is_counted() -> None:
    """Also while later ends are seen; not behind a truncation. An open transaction is awaited."""
    held = PartitionSnapshot(earliest=0, end=30, unstable=5)

    def at(offset: int, seen_end: int | None) -> list[int]:
        return seen(Position(start_offset=0, next_offset=offset, seen_end=seen_end), held)

    assert seen(None, held) == [35]
    assert at(10, None) == [35]
    assert at(10, 20) == []
    assert at(20, 20) == [35]
    assert at(10, 40) == [35]


def test_what_is_blocked_shows_no_end() -> None:
    """By the partition, or by the topic."""
    held = PartitionSnapshot(earliest=0, end=30)
    for partition in (0, None):
        block = Block(
            topic="alog",
            partition=partition,
            reason=BlockReason.RECORDS_LOST,
            detail="",
            next_step="",
        )
        assert seen(None, held, block) == []


def test_an_end_that_falls_is_doubted() -> None:
    """Unless nobody waits for it, or its partition is blocked."""
    held = PartitionSnapshot(earliest=0, end=8)
    waits = Position(start_offset=0, next_offset=5, seen_end=10)
    why = {"reason": BlockReason.TOPIC_TRUNCATED, "detail": "x", "next_step": "x"}
    block = Block(topic="alog", partition=0, **why)
    assert has_fallen(*asked(waits, held), [])
    assert not has_fallen(*asked(waits, held), [block])
    for seen_end in (None, 8):
        position = Position(start_offset=0, next_offset=5, seen_end=seen_end)
        assert not has_fallen(*asked(position, held), [])
    assert not has_fallen(*asked(None, held), [])
