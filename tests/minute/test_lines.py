"""The lines behind a count: found in Kafka by another reader, as many as Spark has counted."""

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tally.errors import UsageError
from tally.ledger.dead_letters import Among
from tally.ledger.parts import Of
from tally.ledger.tables import tables_of
from tally.lines.pattern import HEAD_BYTES
from tally.maintenance.prune import prune
from tally.model import KafkaSnapshot, TopicPartition
from tally.reading.dead_letters import dead_letters
from tally.reading.lines import Bounds, Verdict, lines
from tally.reading.records import record_at
from tests.campaigns import share
from tests.fakes import DisturbedKafka
from tests.minute.test_labels import PATTERN
from tests.minute.test_replay import asked, replay
from tests.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.stack

FIRST = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
"""Half an hour before the clocks of Berlin change."""
MINUTES = 60
LINES = 1_500
SERVICES = ("cart", "Cart", "shop", "", "a*b", "é😀")
LEVELS = ("ERROR", "ERROR", "WARN", "INFO", "")

Write = Callable[[datetime, str, str], str]
CLOCK = "%Y-%m-%d %H:%M:%S"
FORMATS: dict[str, tuple[dict[str, Any], Write]] = {
    "fixed": (
        {"labels": ["level", "partition"], "levels": ["ERROR", "WARN"]},
        lambda at, level, service: f"{at:{CLOCK}} {level} {service}",
    ),
    "pattern": (
        {"line_format": PATTERN, "labels": ["service"], "filter": {"service": ["c*", "a*b"]}},
        lambda at, level, service: f"{at:{CLOCK}} {level} [{service}] x",
    ),
    "json": (
        {"line_format": "json", "labels": ["service", "a.b"], "time": "instant"}
        | {"time_zone": "Europe/Berlin", "levels": []},
        lambda at, level, service: (
            f'{{"time":"{at:%Y-%m-%dT%H:%M:%S}.5Z","level":"{level}","service":"{service}",'
            f'"a":{{"b":{at.minute % 3}}}}}'
        ),
    ),
    "epoch": (
        {
            "line_format": {
                "pattern": r"(?<time>\d+) (?<level>\w+) (?<service>\S*)",
                "time_format": "epoch_seconds",
            }
        }
        | {"labels": ["service"], "time_zone": "Asia/Kolkata"},
        lambda at, level, service: f"{at.timestamp():.0f} {level} {service}",
    ),
    "trace": (
        {"line_format": "spring-boot", "labels": ["key"], "continuation_lines": "unmatched"}
        | {"filter": {"text": ["cart", "shop"]}, "measure": "bytes"},
        lambda at, level, service: (
            f"{at:%Y-%m-%dT%H:%M:%S}.123Z {level} 1 --- [{service}] main : x {service}"
            if level != "INFO"
            else "\tat some.place"
        ),
    ),
}


def produce(world: World, rng: random.Random, write: Write, count: int = LINES) -> None:
    """Random lines of some minutes, some of them damaged, in two partitions."""
    for partition in (0, 1):
        made: list[str | bytes | None] = [None, b"", b"\xff"]
        for _ in range(count // 2):
            at = FIRST + timedelta(seconds=rng.randrange(60 * MINUTES))
            line = write(at, rng.choice(LEVELS), rng.choice(SERVICES)).encode()
            made.append(line[: rng.randrange(len(line))] if rng.random() < 0.1 else line)
        key = rng.choice([b"k1", b"k\xff", None])
        world.produce(made, partition, fields={"key": key})


@pytest.mark.spark
@pytest.mark.parametrize("name", FORMATS)
def test_the_lines_of_random_minutes_are_as_many_as_were_counted(
    world: World, spark: "SparkSession", name: str
) -> None:
    """Of some minutes all, and those of one value of the labels."""
    keys, write = FORMATS[name]
    rng = random.Random(f"lines {name}")
    world.migrate(**keys)
    produce(world, rng, write)
    world.minute(spark)
    ctx = world.context()
    rows = world.rows(f"select * from `{world.name}`")
    for at in rng.sample(sorted({row["log_time"] for row in rows}), share(40)):
        of_minute = [row for row in rows if row["log_time"] == at]
        counted = sum(row["log_count"] for row in of_minute)
        view = lines(ctx, world.name, Of(minute=at), Bounds(lines=5))
        assert (view.verdict, view.found, view.counted) == (Verdict.EQUAL, counted, counted), view
        assert len(view.lines) == min(5, counted)
        some = rng.choice(of_minute)
        labels = {column: some[column] for column in view.lines[0].labels}
        view = lines(ctx, world.name, Of(minute=at, labels=labels))
        assert (view.verdict, view.found) == (Verdict.EQUAL, some["log_count"]), view
        assert {tuple(line.labels.items()) for line in view.lines} == {tuple(labels.items())}
    (batch,) = world.rows("select batch_id from batch where pipeline = %s", (world.name,))
    view = lines(ctx, world.name, Of(batch_id=batch["batch_id"]))
    assert (view.verdict, view.found) == (Verdict.EQUAL, sum(row["log_count"] for row in rows))


@pytest.mark.spark
def test_lines_are_found_by_a_redacted_label(world: World, spark: "SparkSession") -> None:
    """Read by Python as Spark has counted them, also where a pattern sees a part of the label."""
    pattern = r"(?<time>\S+ \S+) (?<level>\S+) (?:y*+ )?user=(?<user>[^;]*).*"
    world.migrate(
        line_format={"pattern": pattern, "time_format": "yyyy-MM-dd HH:mm:ss"},
        labels=["user", "level"],
        redact=[r"(?i)card\d{1,9}", r"\d{13}\d*+", r"Str\w{2,3}"],
    )
    users = ["anna", "", "CARD12", "xCard3é", "4111111111111111", "a4111111111111111b", "Stran"]
    behind = HEAD_BYTES - len("2017-07-30 14:09:08 ERROR  user=anna")
    made = [f"user={user}; {'z' * HEAD_BYTES}" for user in users]
    # The value of the first two ends with what is seen, the third is no longer, the fourth ends.
    made += [f"{'y' * behind} user=anna{rest}" for rest in ("b", ";", "")]
    made += [f"{'y' * (behind - 1)} user=anna;x"]
    world.produce([f"2017-07-30 14:09:08 ERROR {rest}" for rest in made])
    assert world.minute(spark) is not None
    counted = {r["user"]: r["log_count"] for r in world.rows(f"select * from `{world.name}`")}
    assert counted == {"anna": 3, "": 1, "***": 5, "x***é": 1, "a***b": 1}
    for user, number in counted.items():
        view = lines(world.context(), world.name, Of(minute=AT, labels={"user": user}))
        assert (user, view.verdict, view.found) == (user, Verdict.EQUAL, number)
        assert {line.labels["user"] for line in view.lines} == {user}


AT = datetime(2017, 7, 30, 14, 9)  # noqa: DTZ001 - on the lines' own clock
LINE = "2017-07-30 14:09:08 ERROR x"


def counted(world: World, *values: str | bytes, **keys: Any) -> int:
    """These lines, counted in one batch; its number."""
    world.migrate(**keys)
    world.produce(values)
    ran = world.minute(world.reader)
    assert ran is not None
    return ran.batch_id


@pytest.mark.parametrize("change", ["log_count = 2", "log_count = 4"])
@pytest.mark.parametrize("of_batch", [False, True])
def test_a_count_that_was_tampered_with_is_found(world: World, of_batch: bool, change: str) -> None:
    """In the result, and in what a batch has counted."""
    batch_id = counted(world, *[LINE] * 3)
    minute, batch = Of(minute=AT), Of(batch_id=batch_id)
    of = (batch, minute) if of_batch else (minute, batch)
    with world.database.transaction(read_only=True) as tx:
        contributions = tables_of(tx, world.name).contributions
    segments = "where segment_id in (select segment_id from segment where batch_id = %s)"
    if of_batch:
        world.execute(f"update `{contributions}` set {change} {segments}", (batch_id,))
    else:
        world.execute(f"update `{world.name}` set {change}")
    found = [lines(world.context(), world.name, one) for one in of]
    assert [view.verdict for view in found] == [Verdict.DIFFERENT, Verdict.EQUAL]
    assert str(found[0]) == f"3 lines found, {change[-1]} counted"


def test_a_line_that_was_not_counted_is_found(world: World) -> None:
    """In a segment that has counted nothing; only of such a batch it can be said."""
    batch_id = counted(world, LINE)
    with world.database.transaction(read_only=True) as tx:
        contributions = tables_of(tx, world.name).contributions
    world.execute(
        f"delete from `{contributions}` where segment_id in"
        " (select segment_id from segment where batch_id = %s)",
        (batch_id,),
    )
    view = lines(world.context(), world.name, Of(batch_id=batch_id))
    assert (view.verdict, str(view)) == (Verdict.DIFFERENT, "1 line found, 0 counted")


def test_of_a_batch_whose_counts_were_replaced_or_pruned_nothing_is_proven(world: World) -> None:
    """Nor of a minute in one partition, where of others only a sum is left."""
    world.migrate()
    world.produce([LINE] * 2, 1)
    batch_id = counted(world, *[LINE] * 3)
    second = counted(world, LINE)
    replay(world, asked(world, (3, 4)))
    view = lines(world.context(), world.name, Of(batch_id=second))
    assert view.verdict is Verdict.UNKNOWN
    assert "1 segment of it replaced by a replay since" in str(view)
    world.delete_records(0, 3)
    prune(world.context(), world.name, timedelta())
    where = TopicPartition(topic=world.topic, partition=1)
    fold = next(batch for batch in world.batches() if batch["kind"] == "fold")
    for of, told in (
        (Of(batch_id=batch_id), "segments of it were pruned"),
        (Of(minute=AT, partition=where), "3 of the minute are of segments that were pruned"),
        (Of(minute=AT), "3 of them are of segments that were pruned"),
        (Of(batch_id=fold["batch_id"]), "segments of it were pruned"),
    ):
        view = lines(world.context(), world.name, of)
        assert view.verdict is Verdict.UNKNOWN
        assert told in str(view)


def test_of_a_partition_alone_the_last_batch_is_meant(world: World) -> None:
    counted(world, *[LINE] * 3)
    counted(world, *[LINE] * 2)
    where = TopicPartition(topic=world.topic, partition=0)
    view = lines(world.context(), world.name, Of(partition=where))
    assert (view.verdict, view.found) == (Verdict.EQUAL, 2)
    with pytest.raises(UsageError, match="nothing is counted"):
        lines(world.context(), world.name, Of(partition=replace(where, partition=1)))


def test_what_kafka_no_longer_has_is_said(world: World) -> None:
    """Records that were deleted, and a topic that was created again."""
    counted(world, *[LINE] * 5)
    world.delete_records(0, 2)
    view = lines(world.context(), world.name, Of(minute=AT))
    assert (view.verdict, view.found, view.counted) == (Verdict.UNKNOWN, 3, 5)
    assert "Kafka no longer has 2 of 5 records" in str(view)
    world.delete_topic()
    world.create_topic(2)
    world.produce([LINE] * 9)
    view = lines(world.context(), world.name, Of(minute=AT))
    assert (view.verdict, view.found, view.records) == (Verdict.UNKNOWN, 0, 0)
    assert "Kafka no longer has this topic" in str(view)


def test_what_was_truncated_or_created_again_since_proves_nothing(world: World) -> None:
    """Other records are at the offsets then, as many as they may be."""
    counted(world, *[LINE] * 3)
    other = [LINE.replace("some", "another")] * 3

    def create_again(held: KafkaSnapshot) -> KafkaSnapshot:
        world.delete_topic()
        world.create_topic(2)
        world.produce(other)
        return held

    kafka = DisturbedKafka(world.context().kafka, alter=create_again)
    view = lines(world.context(kafka=kafka), world.name, Of(minute=AT))
    assert view.verdict is Verdict.UNKNOWN
    assert "a topic was created again meanwhile" in str(view)
    # As after an unclean election: the same topic, and fewer records.
    world.delete_topic()
    world.create_topic(2)
    held = world.context().kafka.snapshot([world.topic])
    world.execute(
        "update topic_incarnation set topic_id = %s where pipeline = %s",
        (held.topics[world.topic].topic_id, world.name),
    )
    world.plan()
    world.produce(other)
    view = lines(world.context(), world.name, Of(minute=AT))
    assert view.verdict is Verdict.UNKNOWN
    assert "of 1 segment Kafka has lost records since" in str(view)


def test_lines_that_other_rules_have_counted_are_no_proof(world: World) -> None:
    """Today's may find more."""
    counted(world, LINE, LINE.replace("ERROR", "WARN"))
    world.configure(levels=["ERROR", "WARN"])
    view = lines(world.context(), world.name, Of(minute=AT))
    assert (view.verdict, view.found, view.counted) == (Verdict.UNKNOWN, 2, 1)
    assert "counted under other rules" in str(view)


def test_not_more_is_read_than_was_asked_for(world: World) -> None:
    """In lines, records and bytes; what is near the minute comes first."""
    far = LINE.replace("14:09", "15:00")
    world.migrate()
    world.produce([far] * 30_000, fields={"timestamp": 1_501_426_800_000})
    world.produce([LINE] * 5, fields={"timestamp": 1_501_423_748_000})
    world.minute(world.reader)
    ctx = world.context()
    view = lines(ctx, world.name, Of(minute=AT), Bounds(lines=2))
    assert (view.verdict, view.found, len(view.lines)) == (Verdict.EQUAL, 5, 2)
    late = datetime(2017, 7, 30, 15, 0)  # noqa: DTZ001 - as above
    for bounds in (Bounds(records=1_000), Bounds(bytes=10_000), Bounds(seconds=0)):
        view = lines(ctx, world.name, Of(minute=late), bounds)
        assert view.verdict is Verdict.UNKNOWN
        assert view.records < 30_000
        assert "1 segment with 30,000 of the lines not read to the end" in str(view)


def test_what_is_asked_for_must_be_there(world: World) -> None:
    """A label that is counted, a batch of the pipeline, and one of them at all."""
    batch_id = counted(world, LINE)
    ctx = world.context()
    for of, told in (
        (Of(), "lines of what"),
        (Of(minute=AT, labels={"service": "x"}), "'service' is no label"),
    ):
        with pytest.raises(UsageError, match=told):
            lines(ctx, world.name, of)
    (folder := world.config.parent / "other").mkdir()
    other = World.create(world.stack, folder)
    with pytest.raises(UsageError, match="is not of pipeline"):
        lines(other.context(), other.name, Of(batch_id=batch_id))


def test_a_record_is_shown_whole(world: World) -> None:
    """With what becomes of it; and nothing where Kafka has none."""
    counted(world, LINE, f"2017-07-30 14:09:08{'x' * 9000}", dead_letter_max_bytes=10)
    where, ctx = TopicPartition(topic=world.topic, partition=0), world.context()
    good, bad = (record_at(ctx, world.name, where, offset) for offset in (0, 1))
    assert good is not None
    assert bad is not None
    assert (good.is_counted, good.reason, good.value) == (True, None, LINE)
    assert (bad.is_counted, bad.reason, bad.value_bytes) == (False, "no-level", 9_019)
    assert (bad.log_time, len(bad.value or "")) == ("2017-07-30 14:09:00", 9_019)
    assert record_at(ctx, world.name, where, 2) is None
    assert record_at(ctx, world.name, replace(where, partition=9), 0) is None


@pytest.mark.spark
@pytest.mark.parametrize("delivery", ["batch", "partition"])
def test_a_dead_letter_belongs_to_a_minute(
    world: World, spark: "SparkSession", delivery: str
) -> None:
    """To that of its line, if this can be read; else to that of its record, on the lines' clock."""
    world.migrate(delivery=delivery, time_zone="Asia/Kolkata", dead_letter_max_bytes=30)
    written = datetime(2017, 7, 30, 8, 40, 5, tzinfo=UTC)
    stamp = {"timestamp": int(written.timestamp() * 1000)}
    cut = f"2017-07-30 15:00:00{' ' * 50}"
    world.produce(["2017-07-30 14:09:08", "what is this", LINE, cut], fields=stamp)
    world.minute(spark)
    found = dead_letters(world.context(), world.name).dead_letters
    assert [(one.offset, one.log_time) for one in found] == [
        (0, "2017-07-30 14:09:00"),
        (1, "2017-07-30 14:10:00"),
        (3, "2017-07-30 15:00:00"),
    ]
    assert {one.written_at for one in found} == {written}
    for minute, offsets in ((AT, [0]), (AT.replace(minute=10), [1]), (AT.replace(hour=13), [])):
        among = Among(minute=minute)
        found = dead_letters(world.context(), world.name, among, limit=1).dead_letters
        assert [one.offset for one in found] == offsets
