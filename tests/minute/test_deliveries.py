"""What every delivery does with what was read; partitions that commit by themselves, and Spark.

The list of core cases is the same for a batch of all partitions, for partitions that commit by
themselves, however Spark groups them, and for kept lines. What becomes of kept lines afterwards is
tested without Spark, in test_kept_rows.py and test_kept_files.py.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tally import errors
from tally.aggregates.counts import CountRequest, Counts
from tally.context import Reader
from tally.counting.outcomes import batch_outcome
from tally.counting.run import run_batches
from tally.ledger import batches
from tally.lines.pattern import HEAD_BYTES
from tally.set_up.migrate import missing
from tally.spark.task_groups import add_up
from tally_local.stack.stack import Stack
from tests.minute.deliveries import BAD, COUNTED, LINES, Delivery, around, delivered
from tests.minute.steps import produce_transaction
from tests.minute.test_concurrency import adopt

pytestmark = [pytest.mark.stack, pytest.mark.spark]


GROUPED = ("partition 0", "partition 1", "partition 32")
"""Partitions that commit by themselves; so many ranges of a read are grouped by Spark, and the
others by Arrow."""
KEEPING = ("rows", "procedure", "files")


@pytest.fixture
def world(
    migrated: Stack, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Delivery:
    """A topic of four partitions, by the delivery of the test."""
    delivery, _, by_spark = getattr(request, "param", "partition").partition(" ")
    monkeypatch.setattr("tally.deliveries.file_sets.FileSets.kept_s", 0)
    monkeypatch.setattr("tally.spark.task_counting._APART_OFFSETS_MIN", 0)
    monkeypatch.setattr("tally.spark.task_counting._APART_MAX", int(by_spark or 0))
    return delivered(delivery, migrated, tmp_path, partitions=4)


def by(*deliveries: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("world", deliveries, indirect=True)


def times(number: int) -> dict[str, int]:
    return {minute: number * count for minute, count in COUNTED.items()}


# --- the core cases


MIXED = [f"2017-07-30 14:{n % 7:02}:{n % 60:02} {'EWI'[n % 3]}{'x' * (n % 5)}" for n in range(99)]
LONG = [f"2017-07-30 14:09:00 ERROR {'y' * 900_000} {n}" for n in range(2)]
ODD = [f'2017-07-30 14:09:08 ERROR \\ " {{}} %s é {n} {"x" * n}' for n in range(50)]
NO_TEXT = b"2017-07-30 14:09:08 ERROR \x00\xff\xfe end"
LEVELS = ["E", "Ex", "Exx", "W", "ERROR"]


@by("batch", *GROUPED, *KEEPING)
def test_a_read_is_counted_and_kept_as_it_was_written(
    world: Delivery, spark: SparkSession, tmp_path: Path
) -> None:
    other = f"{world.topic}-other"
    world.create_topic(1, other)
    topics = [world.topic, other]
    world.configure(
        topics=topics,
        offsets="sparse",
        labels=["level", "partition", "topic", "key"],
        measure="bytes",
        levels=LEVELS,
        max_malformed_ratio=1,
    )
    world.migrate()
    written = {(0, topics[0]): [*MIXED, *BAD, *LINES], (1, topics[0]): LONG + ODD, (0, other): BAD}
    for (partition, topic), lines in written.items():
        world.produce(lines, partition, topic=topic)
    world.produce([NO_TEXT], 1)
    produce_transaction(world, LINES[:1], 2, commit=False)
    produce_transaction(world, LINES[:1], 3)
    runs = [(ran.committed, len(ran.ranges)) for ran in world.run_open(spark)]
    assert runs == ([(True, 5)] if world.pipeline.delivery == "batch" else [(True, 1)] * 5)
    assert world.run_open(spark) == []

    beside = replace(world, config=tmp_path / "b.toml", name=f"{world.name}_b")
    beside.migrate(delivery="batch", files_url=None)
    assert all(ran.committed for ran in beside.run_open())
    table = "select * from `{}` order by 1, 2, 3, 4, 5"
    assert world.rows(table.format(world.name)) == beside.rows(table.format(beside.name))

    levels = tuple(f"{level} " for level in LEVELS)
    counted = [
        (topic, partition, offset, line.encode())
        for (partition, topic), lines in {**written, (3, topics[0]): LINES[:1]}.items()
        for offset, line in enumerate(lines)
        if line not in BAD and f"{line[20:]} ".startswith(levels)
    ]
    counted.append((topics[0], 1, 52, NO_TEXT))
    (total,) = world.rows(f"select sum(log_count) as n from `{world.name}`")
    assert total["n"] == len(counted) > 30
    records = {(s["partition_id"], s["topic"]): s["records"] for s in world.segments()}
    of_topic = {(n, topics[0]): read for n, read in enumerate((107, 53, 0, 1))}
    assert records == {**of_topic, (0, other): 4}
    assert world.offsets() == {0: (0, 107), 1: (0, 53), 2: (0, 2), 3: (0, 2)}
    letters = [(d["record_offset"], d["value"]) for d in world.dead_letters()]
    bad = [None if line is None else line.encode() for line in BAD]
    assert letters == list(zip([0, 1, 2, 3, 99, 100, 101, 102], bad + bad, strict=True))
    if world.pipeline.rows_view:
        rows = world.kept("topic, partition_id, record_offset, value")
        assert sorted(rows) == sorted(counted)
        minutes = {str(row[0])[:16] for row in world.kept("log_time, record_offset")}
        assert minutes == world.counts().keys()
        if world.pipeline.files_url:
            read = spark.read.parquet(*world.listed()).collect()
            places = [(r.topic, r.partition_id, r.record_offset, bytes(r.value)) for r in read]
            assert sorted(places) == sorted(rows)
            assert {str(r.log_time)[:16] for r in read} == minutes
        sets = world.rows(f"select state from `{world.pipeline.rows_view}__sets`")
        assert [row["state"] for row in sets] == ["live"] * 5
    assert world.audit().holds


@by(*GROUPED, "rows")
def test_a_partition_that_fails_keeps_no_other_from_its_commit(
    world: Delivery, spark: SparkSession
) -> None:
    """One has a hole, one a flood of malformed records, one too many series; all is told."""
    world.migrate(labels=["key"], max_series_per_batch=2, max_malformed_per_batch=3)
    produce_transaction(world, LINES[:1], 0)
    world.produce(LINES, 1)
    world.produce(BAD, 2)
    for key in "abc":
        world.produce(LINES[:1], 3, fields={"key": key})
    with pytest.raises(errors.TallyError) as raised:
        world.run_open(spark)
    for told in ("1 records of 2", "4 of 4 records are malformed", "give 3 rows"):
        assert told in str(raised.value)
    assert world.states() == {0: "abandoned", 1: "live", 2: "planned", 3: "planned"}
    assert world.counts() == COUNTED
    assert [block.partition for block in world.plan().blocks] == [0]
    with pytest.raises(errors.TallyError, match="4 of 4 records are malformed"):
        world.count_lines(1)
    assert world.counts() == times(2)
    world.configure(max_malformed_per_batch=4, max_series_per_batch=3)
    assert [ran.committed for ran in world.run_open()] == [True, True]
    (total,) = world.rows(f"select sum(log_count) as n from `{world.name}`")
    assert total["n"] == 9
    assert world.audit().holds


@by("partition", *KEEPING)
def test_a_task_that_spark_repeats_counts_and_keeps_each_line_once(
    world: Delivery, spark: SparkSession
) -> None:
    """The second copy finds its batch committed by its own attempt; its set is dropped."""
    ids = world.planned_in(0)
    told: list[Any] = []

    def twice(reader: Reader, *asked: Any) -> Iterator[Any]:
        told.extend(reader.count_each(*asked))
        yield from reader.count_each(*asked)

    with world.context(spark).open_reader() as reader:
        (ran,) = world.run_all(ids, around(reader, twice))
    assert ran.committed
    assert [list(outcome.values()) for _, outcome in told] == [[r.totals for r in ran.ranges]]
    assert world.counts() == COUNTED
    if world.pipeline.rows_view:
        assert len(world.kept()) == world.all_kept() == 3
    assert world.audit().holds


# --- what the ledger has of partitions, without Spark


def disturbed(world: Delivery, disturb: Callable[[], Any]) -> Any:
    """A reader that does something after the claim, before the read."""

    def count_each(reader: Reader, *asked: Any) -> Iterator[tuple[CountRequest, Any]]:
        disturb()
        yield from reader.count_each(*asked)

    return around(world.reader, count_each)


def test_what_is_not_read_for_another_ones_error_is_released(world: Delivery) -> None:
    """A record that cannot be read fails the job of all; then Spark is gone for each by itself."""
    ids = world.planned_in(0, 1, 2)
    failures = [
        errors.RecordTimestampError("a record", next_step=""),
        errors.ReadError("Spark is gone", next_step=""),
    ]

    def fail(*_: Any) -> Iterator[tuple[CountRequest, Any]]:
        raise failures.pop(0)
        yield

    with pytest.raises(errors.ReadError):
        world.run_all(ids, around(world.reader, fail))
    assert [row["claimed_at"] for row in world.batches()] == [None] * 3


@pytest.mark.parametrize(
    ("disturb", "told"),
    [
        (
            lambda tx, batch_id: batches.claim(tx, [batch_id], "another"),
            "attempt 2 has replaced attempt 1",
        ),
        (
            lambda tx, batch_id: batches.abandon(tx, batch_id, by="ann", reason="a test"),
            "was abandoned by ann: a test",
        ),
    ],
    ids=["overtaken", "abandoned"],
)
def test_an_attempt_commits_only_the_partitions_that_it_still_owns(
    world: Delivery, disturb: Callable[..., Any], told: str
) -> None:
    ids = world.planned_in(0, 1)
    reader = disturbed(world, lambda: world.database.run(lambda tx: disturb(tx, ids[0])))
    with pytest.raises(errors.FencedError, match=told):
        world.run_all(ids, reader)
    assert world.states()[1] == "live"
    assert world.counts() == COUNTED
    assert len(world.run_open()) == 1
    assert world.counts() == times(2)
    assert world.audit().holds


def test_a_batch_that_was_abandoned_before_holds_up_no_other(world: Delivery) -> None:
    ids = world.planned_in(0, 1)
    world.database.run(lambda tx: batches.abandon(tx, ids[0], by="ann", reason="a test"))
    with pytest.raises(errors.FencedError, match="was abandoned by ann"):
        world.run_all(ids)
    assert world.states() == {0: "abandoned", 1: "live"}
    outcome = batch_outcome(world.context(), ids)
    assert outcome.is_committed
    assert "was abandoned by ann" in outcome.abandoned[0]
    assert (outcome.standing, outcome.total.matched) == ((ids[1],), 3)


def test_a_topic_that_is_created_again_under_the_read_commits_nothing(world: Delivery) -> None:
    """The task asks for the topic's id after its read."""
    ids = world.planned_in(0)

    def create_again() -> None:
        world.delete_topic()
        world.create_topic(4)
        world.produce(LINES, 0)

    with pytest.raises(errors.TallyError, match=r"another topic id|no longer holds"):
        world.run_all(ids, disturbed(world, create_again))
    assert world.counts() == {}
    assert world.offsets()[0] == (0, 0)


# --- the tasks of partitions


def test_a_partition_is_read_by_one_task(world: Delivery, spark: SparkSession) -> None:
    """Options that divide a partition are refused; were they there, they would change nothing."""
    batch = world.planned(LINES * 10)
    divided = world.pipeline.model_copy(update={"reader": {"minPartitions": "8"}})
    request = CountRequest(pipeline=divided, ranges=[batch.segments[0].range], batch=batch)
    with world.context(spark).open_reader() as reader:
        ((_, totals),) = reader.count_each([request], _records)
    assert totals == 40
    world.configure(reader={"minPartitions": "8"})
    with pytest.raises(errors.ConfigError, match='delivery = "partition" commits each partition'):
        world.plan()


def _records(_: CountRequest, counts: Counts) -> int:
    return sum(total.records for total in counts.totals.values())


def test_a_task_with_two_partitions_is_refused() -> None:
    batch = pa.RecordBatch.from_pydict({"partition": pa.array([1, 1, 2], pa.int32())})
    with pytest.raises(errors.ReadError, match="two partitions, 1 and 2"):
        list(add_up([batch], ["partition"], [], []))
    each = [batch.slice(0, 2), batch.slice(2)]
    with pytest.raises(errors.ReadError, match="two partitions"):
        list(add_up(each, ["partition"], ["partition"], []))


def test_a_partition_that_spark_cannot_read_holds_up_no_other(
    world: Delivery, spark: SparkSession
) -> None:
    """Spark's own error ends the job of all: each one that is left gets a job of its own."""
    odd = f"{world.topic}-odd"
    world.create_topic(2, odd, **{"message.timestamp.after.max.ms": str(2**63 - 1)})
    world.configure(topics=[odd])
    for partition in (0, 1):
        world.produce(LINES, partition, topic=odd)
    world.produce(LINES[:1], topic=odd, fields={"timestamp": 2**63 // 1000 + 1})
    ids = [batch.batch_id for batch in world.plan().batches]
    committed: list[int] = []
    ran = run_batches(world.context(spark), ids)
    with pytest.raises(errors.RecordTimestampError, match=f"{odd}/0") as failure:
        committed.extend(one.batch_id for one in ran)
    assert f"{odd}/1" not in str(failure.value)
    assert committed == ids[1:]
    assert world.states() == {0: "planned", 1: "live"}


def test_executors_with_another_version_commit_nothing(
    world: Delivery, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the ledger records as the version is the one that has counted."""
    ids = world.planned_in(0)
    monkeypatch.setattr("tally.counting.batch.__version__", "0.0.0")
    with pytest.raises(errors.PackageMissingError, match=r"the driver's has 0\.0\.0"):
        world.run_all(ids, spark)
    assert world.states() == {0: "planned"}


# --- kept lines


@by("rows")
def test_a_flood_of_malformed_records_is_not_kept(world: Delivery, spark: SparkSession) -> None:
    """Nothing of it could be committed: neither its values nor its lines are written on."""
    world.configure(max_malformed_per_batch=10)
    world.produce(["what is this"] * 60 + LINES * 2_000, 0)
    with pytest.raises(errors.MalformedFloodError, match="60 of 8060 records"):
        world.run_open(spark)
    assert world.all_kept() == 0


JSON_FORMAT = {"json": {"time": "t", "level": "l"}, "time_format": "yyyy-MM-dd HH:mm:ss"}


@by("rows")
def test_of_lines_with_one_key_the_first_is_shown(world: Delivery, spark: SparkSession) -> None:
    """First by partition and offset; a line without the key is always shown, a replay decides."""
    world.configure(row_key=["request"], line_format=JSON_FORMAT)
    assert missing(world.database, world.settings) == [
        f"view {world.name}_rows of the lines of {world.name}"
    ]
    world.migrate()
    assert missing(world.database, world.settings) == []

    def said(request: str | None, level: str = "ERROR") -> str:
        of = {} if request is None else {"request": request}
        return json.dumps({"t": "2017-07-30 14:09:08", "l": level, **of})

    world.produce([said("a"), said("b")], 1)
    world.produce([said("a", "INFO"), said("b"), said(None), said(None), said("b")], 0)
    world.run_open(spark)
    shown = [(p, o) for p, o, _ in world.kept_lines()]
    assert shown == [(0, 1), (0, 2), (0, 3), (1, 0)]
    assert world.counts() == {"2017-07-30 14:09": 6}
    assert world.audit().holds
    world.replay(spark, levels=["INFO", "ERROR"])
    assert [(p, o) for p, o, _ in world.kept_lines()] == [(0, 0), (0, 1), (0, 2), (0, 3)]
    (digest,) = {
        row["key_digest"]
        for row in world.rows(
            f"select key_digest from `{world.name}_rows__kept` r join `{world.name}_rows__sets`"
            " using (set_id) where partition_id = 1 and record_offset = 0"
        )
    }
    assert digest == hashlib.sha256(b'["request"] 1:a').digest()
    assert world.audit().holds


PATTERN_FORMAT = {
    "pattern": r"(?<time>\S+ \S+) (?<level>\w+) id=(?<id>[^ ]*)",
    "time_format": "yyyy-MM-dd HH:mm:ss",
}
BIG = b"3402823669209384634633746074317682114"
EXACT = b"0.10000000000000000555111512312578270211"
HEAD = b"k" * 5000


@pytest.mark.parametrize(
    ("line_format", "line", "pairs"),
    [
        (
            JSON_FORMAT,
            b'{"t": "2017-07-30 14:09:08", "l": "ERROR", "id": %b}',
            [
                (b'"\xff"', b'"\xfe"'),
                (b'"\\ud800"', b'"\\ud801"'),
                (b'"\\ud800x"', b'"?x"'),
                (BIG + b"55", BIG + b"54"),
                (EXACT + b"81", EXACT + b"82"),
                (b"1e400", b"1e401"),
                (b"1e-400", b"1e-401"),
                (b"[%b1]" % BIG, b"[%b2]" % BIG),
                (b'{"n": [1, %b1]}' % BIG, b'{"n": [1, %b2]}' % BIG),
            ],
        ),
        (
            PATTERN_FORMAT,
            b"2017-07-30 14:09:08 ERROR id=%b tail",
            [(b"\xff", b"\xfe"), (HEAD + b"1", HEAD + b"2")],
        ),
    ],
    ids=["json", "pattern"],
)
@by("rows")
def test_values_that_are_not_read_as_they_were_written_hide_no_line(
    line_format: dict[str, Any],
    line: bytes,
    pairs: list[tuple[bytes, bytes]],
    world: Delivery,
    spark: SparkSession,
) -> None:
    """Other values may read like them: these lines are shown, rather twice than not at all."""
    world.migrate(row_key=["id"], line_format=line_format, max_malformed_ratio=1.0)
    values = [value for pair in pairs for value in pair]
    world.produce([line % value for value in values], 0)
    world.run_open(spark)
    assert world.dead_letters() == []
    shown = {offset for _, offset in world.kept("partition_id, record_offset")}
    assert [value for offset, value in enumerate(values) if offset not in shown] == []
    assert sum(world.counts().values()) == len(values)
    assert world.audit().holds


@pytest.mark.parametrize("key", [[], ["level"]])
@by("rows")
def test_a_topic_that_was_copied_with_its_id_is_told_apart_by_its_cluster(
    key: list[str], world: Delivery, spark: SparkSession
) -> None:
    """Of lines with a key the view still has one."""
    counting = spark if key else None
    world.migrate(row_key=key or None)
    world.produce(LINES[:1], 0)
    world.run_open(counting)
    (now,) = world.rows("select * from topic_incarnation where pipeline = %s", (world.name,))
    world.execute(
        "update topic_incarnation set cluster_id = 'the old one' where pipeline = %s", (world.name,)
    )
    world.execute(f"update `{world.name}_rows__sets` set cluster_id = 'the old one'")
    assert world.plan().blocks
    adopt(world, now["topic_id"], now["cluster_id"], dict.fromkeys(range(4), 0))
    world.run_open(counting)
    rows = world.kept("cluster_id, partition_id, record_offset")
    assert len(rows) == len(set(rows)) == (1 if key else 2)


CARD = "4111111111111111"
PRIVATE = [
    f"2017-07-30 14:09:08 ERROR user={CARD} é paid with {CARD}",
    f"2017-07-30 14:09:09 ERROR user=anna {'y' * 90} {CARD}",
    # What a pattern sees of it ends in the middle of the number.
    f"2017-07-30 14:09:09 ERROR {'y' * (HEAD_BYTES - 44)} user={CARD}",
    f"no time, {CARD}",
    b"\xff\xfe 4111111111111111 \x00",
    f"no, Bearer abc{CARD}def",  # one match, although another one is in it
    f"{'n' * 12}{CARD}",  # the end of what is kept of it is in the middle of the number
]


@by("batch", *GROUPED, "rows", "files")
def test_what_is_redacted_is_stored_nowhere(world: Delivery, spark: SparkSession) -> None:
    """Neither in dead letters and kept lines nor in labels; other bytes stay as they are."""
    pattern = r"(?<time>\S+ \S+) (?<level>\S+) (?:y*+ )?user=(?<user>\S+).*"
    world.migrate(
        line_format={"pattern": pattern, "time_format": "yyyy-MM-dd HH:mm:ss"},
        labels=["user"],
        redact=[r"\d{13}\d*+", r"(?i:bearer) [\w.~+/=-]++"],
        dead_letter_max_bytes=20,
        max_malformed_ratio=1,
    )
    world.produce(PRIVATE, 0)
    assert [ran.committed for ran in world.run_open(spark)] == [True]
    counted = world.rows(f"select user, log_count from `{world.name}` order by user")
    assert [tuple(row.values()) for row in counted] == [("***", 2), ("anna", 1)]
    letters = [(d["value"], d["value_bytes"]) for d in world.dead_letters()]
    assert letters == [
        (b"no time, ***", len(PRIVATE[3])),
        (b"\xff\xfe *** \x00", len(PRIVATE[4])),
        (b"no, ***", len(PRIVATE[5])),
        (b"n" * 12 + b"***", len(PRIVATE[6])),
    ]
    if world.pipeline.rows_view:
        texts = [
            line.replace(CARD, "***").encode() for line in PRIVATE[:3] if isinstance(line, str)
        ]
        assert [value for *_, value in world.kept()] == texts
    assert world.audit().holds
