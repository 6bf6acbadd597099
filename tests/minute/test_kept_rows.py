"""A pipeline that keeps each line that it counts, also on a server of its own."""

import hashlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pymysql
import pytest

from tally.aggregates.counts import CountRequest, Counts
from tally.app.doctor.database import check_database, check_durability
from tally.app.health import Health
from tally.app.migrate import migrate, missing
from tally.app.status import StatusRequest, status
from tally.errors import (
    ConfigError,
    DataLossError,
    FencedError,
    MalformedFloodError,
    SchemaError,
    StatementError,
    TallyError,
)
from tally.ledger import batches
from tally.ledger.row_sets import NOTHING_UNSHOWN, unshown
from tally.model import KeptLine, RowSet
from tally.mysql.transactions import table_names
from tally.pipeline.context import Context
from tally.pipeline.keeping import KeptSet, keep
from tally.pipeline.publish import publish, store_of
from tally.pipeline.replay import request_replay, run_or_replan, run_replay
from tally.pipeline.replay_plan import preview_replay
from tally.pipeline.run import Ran
from tally.planning.replay_request import BoundsAsked
from tests.minute.test_prune import pruned
from tests.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tally_local.stack.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.spark]

LINES = [
    "2017-07-30 14:09:08 ERROR a",
    "2017-07-30 14:09:59 ERROR b",
    "2017-07-30 14:10:00 INFO c",
    "2017-07-30 14:11:00 ERROR d",
]
BAD = ["no time", None]


@pytest.fixture(params=["rows", "procedure", "files"])
def world(
    migrated: "Stack",
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> World:
    """A topic of two partitions, whose error lines are kept, by each delivery that does so."""
    monkeypatch.setattr("tally.deliveries.file_content._KEPT_S", 0)
    keys = {"files_url": str(tmp_path / "kept")} if request.param == "files" else {}
    return World.create(migrated, tmp_path, delivery=request.param, partitions=2, **keys)


@pytest.fixture
def with_rows(migrated: "Stack", tmp_path: Path) -> World:
    """The same, with the lines as rows that statements write."""
    return World.create(migrated, tmp_path, delivery="rows", partitions=2)


@pytest.fixture
def elsewhere(migrated: "Stack", tmp_path: Path) -> World:
    """The same, with the lines in another database than the ledger."""
    before = World.create(migrated, tmp_path, partitions=2)
    name = new_database(before)
    keys = {**before.keys, "delivery": "rows"}
    world = World(stack=migrated, config=before.config, name=before.name, topic=before.topic)
    world.configure(**keys)
    results_in(world, name)
    migrate(world.database, world.settings)
    return world


def results_in(world: World, database: str) -> None:
    """Let the lines be in another database from now on."""
    mysql = world.settings.mysql
    section = (
        f'[results]\nhost = "{mysql.host}"\nport = {mysql.port}\nuser = "{mysql.user}"\n'
        f'password = "{mysql.password.get_secret_value()}"\ndatabase = "{database}"\n'
    )
    world.config.write_text(f"{world.config.read_text()}\n{section}")


def new_database(world: World) -> str:
    """An empty database that the application's user may do anything with."""
    name, user = f"other_{secrets.token_hex(4)}", world.settings.mysql.user
    world.as_root(f"create database {name}", f"grant all on {name}.* to {user}@'127.0.0.1'")
    return name


def minute(world: World, spark: "SparkSession") -> list[Ran]:
    """Plan, and run what is open."""
    ids = [batch.batch_id for batch in world.plan().batches]
    return run_or_replan(world.context(spark), ids) if ids else []


def kept(world: World, columns: str = "partition_id, record_offset, log_time, value") -> list[Any]:
    """What readers see, by means of the test's own."""
    results, pipeline = world.settings.results, world.pipeline
    where = {} if results is None else {"database": results.database}
    with world.connect(**where) as connection, connection.cursor() as cursor:
        if pipeline.files_url is None:
            cursor.execute(f"select {columns} from `{pipeline.rows_view}` order by 1, 2")
            return [tuple(row.values()) for row in cursor.fetchall()]
        cursor.execute(f"select file from `{pipeline.rows_view}`")
        files = [row["file"].removeprefix("file://") for row in cursor.fetchall()]
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    return sorted(tuple(row[name] for name in columns.split(", ")) for row in rows)


def lines_of(world: World) -> list[tuple[int, int, str]]:
    """Partition, offset and text of each row that readers see."""
    return [(p, o, v.decode()) for p, o, v in kept(world, "partition_id, record_offset, value")]


def replay(world: World, spark: "SparkSession") -> list[Ran]:
    """Replay everything."""
    ctx = world.context(spark)
    asked = request_replay(ctx, preview_replay(ctx, world.name, BoundsAsked()), reason="a test")
    return list(run_replay(ctx, asked.replay_id))


def all_kept(world: World) -> int:
    """How many lines there are, whatever readers see."""
    folder = world.pipeline.files_url
    if folder is None:
        return int(world.rows(f"select count(*) as n from `{world.name}_rows__kept`")[0]["n"])
    files = Path(folder.removeprefix("file://"), "lines").rglob("*.parquet")
    return sum(pq.read_metadata(file).num_rows for file in files)


def test_each_counted_line_is_kept_with_its_position(world: World, spark: "SparkSession") -> None:
    """The rows are the lines that were counted, and the counts are those of any delivery."""
    world.produce([*LINES, *BAD], 0)
    world.produce(LINES[:1], 1)
    assert all(ran.committed for ran in minute(world, spark))
    assert lines_of(world) == [
        (0, 0, LINES[0]),
        (0, 1, LINES[1]),
        (0, 3, LINES[3]),
        (1, 0, LINES[0]),
    ]
    assert [str(t) for _, _, t, _ in kept(world)] == [
        "2017-07-30 14:09:00",
        "2017-07-30 14:09:00",
        "2017-07-30 14:11:00",
        "2017-07-30 14:09:00",
    ]
    (topic,) = {t for t, _ in kept(world, "topic, topic_id")}
    assert topic == world.topic
    assert world.counts() == {"2017-07-30 14:09": 3, "2017-07-30 14:11": 1}
    assert [d["record_offset"] for d in world.dead_letters()] == [4, 5]
    assert world.audit().holds
    assert minute(world, spark) == []


def test_lines_may_be_in_another_database(elsewhere: World, spark: "SparkSession") -> None:
    """The ledger has the counts, and the other database has the lines; the audit compares them."""
    elsewhere.produce(LINES, 0)
    minute(elsewhere, spark)
    assert len(kept(elsewhere)) == 3
    assert elsewhere.counts() == {"2017-07-30 14:09": 2, "2017-07-30 14:11": 1}
    assert elsewhere.audit().holds
    replay(elsewhere, spark)
    assert len(kept(elsewhere)) == 3
    there = elsewhere.rows("show tables like %s", (f"{elsewhere.name}_rows%",))
    assert not there, "nothing of it is in the ledger's database"
    assert elsewhere.audit().holds


def test_a_replay_replaces_the_rows_of_its_range(world: World, spark: "SparkSession") -> None:
    """By other levels other lines are there, and none of the old ones is left behind."""
    world.produce(LINES, 0)
    world.produce(LINES, 1)
    minute(world, spark)
    world.configure(levels=["INFO"])
    replay(world, spark)
    assert lines_of(world) == [(0, 2, LINES[2]), (1, 2, LINES[2])]
    assert all_kept(world) == 2
    assert world.audit().holds


def test_a_range_without_lines_has_an_empty_set(world: World, spark: "SparkSession") -> None:
    """Neither a range without counted lines nor one without records is a difference."""
    world.configure(offsets="sparse")
    world.produce([LINES[2]], 0)
    producer = world.producer(**{"transactional.id": world.name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(world.topic, LINES[0].encode(), partition=1)
    producer.flush(30)
    producer.abort_transaction(30)
    world.wait_for_markers(1)
    assert len(minute(world, spark)) == 2
    assert kept(world) == []
    sets = world.rows(f"select state from `{world.pipeline.rows_view}__sets`")
    assert [row["state"] for row in sets] == ["live", "live"]
    assert world.audit().holds


def test_many_lines_are_written_in_parts(
    world: World, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part is bounded in rows and in bytes, and few statements write it; all are the lines."""
    lines = [f"2017-07-30 14:{n % 60:02}:00 ERROR {n} {'x' * (n % 100)}" for n in range(12_345)]
    world.produce(lines, 0)
    world.produce([f"2017-07-30 14:09:00 ERROR {'y' * 900_000} {n}" for n in range(20)], 1)
    before = inserts(world)
    minute(world, spark)
    assert inserts(world) - before < 1_000
    assert [v for p, _, v in lines_of(world) if p == 0] == lines
    assert len(kept(world)) == 12_365
    assert world.audit().holds


def inserts(world: World) -> int:
    """How many statements have inserted rows into the server's tables."""
    (row,) = world.rows("show global status like 'Com_insert'")
    return int(row["Value"])


class StoppedError(Exception):
    """The process of a test is gone."""


def attempt(world: World, batch_id: int) -> tuple[Context, CountRequest]:
    """Claim a batch of one partition, as whoever runs it does."""
    ctx = world.context()
    (batch,) = ctx.database.run(lambda tx: batches.claim_all(tx, [batch_id], "a test"))
    ranges = [s.range for s in batch.segments]
    return ctx, CountRequest(pipeline=world.pipeline, ranges=ranges, batch=batch)


def line(offset: int, text: str) -> KeptLine:
    """A line of a writer that should not write."""
    return KeptLine(offset, "2017-07-30 14:09:00", text.encode(), None)


def begun(world: World, batch_id: int, *texts: str) -> KeptSet:
    """A set that an attempt has begun to write."""
    ctx, request = attempt(world, batch_id)
    lines = keep(ctx, request)
    lines.add(line(offset, text) for offset, text in enumerate(texts))
    return lines


def test_a_writer_that_wakes_after_a_replay_invents_no_row(
    world: World, spark: "SparkSession"
) -> None:
    """An attempt stops before its write; its batch is counted, then replayed by other levels."""
    world.produce(LINES, 0)
    (batch,) = world.plan().batches
    sleeper = begun(world, batch.batch_id, *LINES)
    run_or_replan(world.context(spark), [batch.batch_id])
    world.configure(levels=["INFO"])
    replay(world, spark)
    with pytest.raises(FencedError, match="was dropped"):
        sleeper.seal()
    assert lines_of(world) == [(0, 2, LINES[2])]
    assert all_kept(world) == 1
    assert world.audit().holds


def test_an_attempt_writes_beside_a_stopped_one(world: World, spark: "SparkSession") -> None:
    """Neither waits for the other; the rows of the first one vanish with its set."""
    world.produce(LINES, 0)
    (batch,) = world.plan().batches
    first = begun(world, batch.batch_id, "an older rule")
    first._write()
    assert all_kept(world) == (0 if world.pipeline.files_url else 1), "no file before its end"
    assert kept(world) == [], "an open set is not shown"
    run_or_replan(world.context(spark), [batch.batch_id])
    assert len(kept(world)) == all_kept(world) == 3
    with pytest.raises(FencedError, match="was dropped"):
        first.seal()
    assert world.audit().holds


def test_an_older_attempt_cannot_begin_behind_a_newer_one(world: World) -> None:
    """Its rows would be in nobody's way, and be written for nothing."""
    world.produce(LINES, 0)
    (batch,) = world.plan().batches
    ctx, older = attempt(world, batch.batch_id)
    begun(world, batch.batch_id)
    with pytest.raises(FencedError, match="attempt 2 keeps its lines, and attempt 1 no longer"):
        keep(ctx, older)


def test_rows_are_shown_by_the_next_run_when_a_driver_is_killed_behind_its_commit(
    world: World, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then readers see what was there before: all of it, and nothing of what replaces it."""
    world.produce(LINES, 0)
    minute(world, spark)
    world.configure(levels=["INFO"])

    def killed(*_: object) -> None:
        raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr("tally.pipeline.run_partitions.publish_soon", killed)
        with pytest.raises(StoppedError):
            replay(world, spark)
    assert world.counts() == {"2017-07-30 14:10": 1}
    assert [v for _, _, v in lines_of(world)] == [LINES[0], LINES[1], LINES[3]]
    world.produce(LINES, 1)
    minute(world, spark)
    assert lines_of(world) == [(0, 2, LINES[2]), (1, 2, LINES[2])]
    assert world.audit().holds


def test_two_replays_that_were_not_shown_are_shown_at_once(
    world: World, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one's rows were never part of what readers see, and the second one's are."""
    world.produce(LINES, 0)
    minute(world, spark)
    with monkeypatch.context() as patch:
        patch.setattr("tally.pipeline.run_partitions.publish_soon", lambda *_: None)
        for levels in (["INFO"], ["ERROR", "INFO"]):
            world.configure(levels=levels)
            replay(world, spark)
    assert len(kept(world)) == 3
    publish(world.context(), world.pipeline)
    assert [v for _, _, v in lines_of(world)] == LINES
    assert all_kept(world) == 4
    assert world.audit().holds


def test_a_publisher_that_wakes_late_brings_nothing_back(
    world: World, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has asked the ledger before a replay, and tells the server of the lines after it."""
    world.produce(LINES, 0)
    with monkeypatch.context() as patch:
        patch.setattr("tally.pipeline.run_partitions.publish_soon", lambda *_: None)
        minute(world, spark)
    store = store_of(world.context(), world.pipeline)
    assert store is not None
    (old,) = store.waiting()
    world.configure(levels=["INFO"])
    with monkeypatch.context() as patch:
        patch.setattr("tally.deliveries.set_store.SetStore.delete_dropped", lambda _: None)
        replay(world, spark)
    assert all_kept(world) == 4
    store.publish([old.set_id], [])
    assert lines_of(world) == [(0, 2, LINES[2])]
    assert world.audit().holds


def test_rows_of_an_abandoned_batch_vanish(world: World, spark: "SparkSession") -> None:
    """A set that can no longer be committed is dropped by whoever publishes next."""
    world.produce(LINES, 0)
    (batch,) = world.plan().batches
    lines = begun(world, batch.batch_id, *LINES)
    row_set = lines.seal()
    world.database.run(lambda tx: batches.abandon(tx, batch.batch_id, by="ann", reason="a test"))
    publish(world.context(), world.pipeline)
    assert all_kept(world) == 0
    minute(world, spark)
    assert len(kept(world)) == 3
    assert row_set.rows == 4
    assert world.audit().holds


def test_a_set_of_the_newest_attempt_waits_for_its_commit(world: World) -> None:
    """Whoever publishes meanwhile leaves it."""
    world.produce(LINES, 0)
    (batch,) = world.plan().batches
    lines = begun(world, batch.batch_id, *LINES)
    publish(world.context(), world.pipeline)
    lines.seal()
    publish(world.context(), world.pipeline)
    assert all_kept(world) == 4
    assert kept(world) == []


def test_rows_are_written_once_when_answers_to_commit_are_lost(
    with_rows: World, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each COMMIT of the server of the lines is applied, and its answer lost, once."""
    world = with_rows
    world.produce(LINES, 0)
    (batch,) = world.plan().batches
    ctx, request = attempt(world, batch.batch_id)
    lost: set[int] = set()
    commit = pymysql.Connection.commit

    def unanswered(self: Any) -> None:
        commit(self)
        if len(lost) < 3:
            lost.add(len(lost))
            raise pymysql.err.OperationalError(2013, "Lost connection (a test)")

    lines = keep(ctx, request)
    lines.add(line(offset, text) for offset, text in enumerate(LINES))
    with monkeypatch.context() as patch:
        patch.setattr(pymysql.Connection, "commit", unanswered)
        row_set = lines.seal()
    assert len(lost) == 3
    assert row_set.rows == all_kept(world) == 4


def reading(world: World, spark: "SparkSession", kind: Any, *more: Any) -> Any:
    """What opens a reader of another kind over the real one."""

    @contextmanager
    def opened() -> Iterator[Any]:
        with world.context(spark).open_reader() as reader:
            yield kind(reader, *more)

    return opened


class Changing:
    """A reader whose tasks commit another set than they have written."""

    def __init__(self, reader: Any, change: Callable[[RowSet | None], RowSet | None]) -> None:
        self.reader, self.count, self.change = reader, reader.count, change

    def count_each(
        self,
        requests: Sequence[CountRequest],
        work: Callable[[CountRequest, Counts], Any],
        open_set: Any = None,
    ) -> Iterator[tuple[CountRequest, Any]]:
        """As the real one, but for the set."""
        change = self.change

        def changed(request: CountRequest, counts: Counts) -> Any:
            return work(request, replace(counts, row_set=change(counts.row_set)))

        yield from self.reader.count_each(requests, changed, open_set)


def test_a_set_with_other_rows_than_lines_is_not_committed(
    with_rows: World, spark: "SparkSession"
) -> None:
    """Rows that are gone before the set is sealed, and counts of other lines, are both refused."""
    world = with_rows
    world.produce(LINES, 0)
    (batch,) = world.plan().batches
    lines = begun(world, batch.batch_id, *LINES)
    lines._write()
    world.execute(f"delete from `{world.name}_rows__kept` limit 1")
    with pytest.raises(DataLossError, match="of 4 lines 3 were found again"):
        lines.seal()
    for change, told in (
        (lambda rows: replace(rows, rows=2), "3 lines were counted and 2 kept"),
        (lambda _: None, "its lines were counted, and not kept"),
    ):
        ctx = world.context(spark, open_reader=reading(world, spark, Changing, change))
        with pytest.raises(DataLossError, match=told):
            run_or_replan(ctx, [batch.batch_id])
    assert world.counts() == {}
    run_or_replan(world.context(spark), [batch.batch_id])
    assert world.audit().holds


ANOTHER_SET = (
    "insert into {sets} (segment_id, batch_id, attempt, topic, cluster_id, topic_id, partition_id,"
    " from_offset, until_offset, state) values (1000000000, 1, 1, 't', 'c', 'i', 0, 0, 9, 'live')"
)
ANOTHER_ROW = (
    "insert into {kept} (set_id, record_offset, log_time)"
    " select set_id, 2, '2017-07-30 14:10:00' from {sets}"
)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("delete from {kept} limit 1", "3 lines were counted, 2 rows are there"),
        (
            "update {kept} set log_time = '2017-07-30 14:08:00' limit 1",
            "14:08:00: 0 lines, 1 rows; 2017-07-30 14:09:00: 2 lines, 1 rows",
        ),
        ("update {sets} set state = 'dropped'", "readers do not see its set"),
        (ANOTHER_SET, "0 rows of a segment that is not part of the result"),
        (ANOTHER_ROW, "3 lines were counted, 4 rows are there"),
    ],
)
def test_the_audit_finds_rows_that_are_not_the_lines(
    with_rows: World, spark: "SparkSession", change: str, told: str
) -> None:
    """Whatever was changed on the server of the lines."""
    world = with_rows
    world.produce(LINES, 0)
    minute(world, spark)
    view = f"{world.name}_rows"
    world.execute(change.format(kept=f"`{view}__kept`", sets=f"`{view}__sets`"))
    found = world.audit().violations
    assert [v.check for v in found] == ["rows"]
    assert told in found[0].detail


def test_of_lines_with_the_same_key_the_first_is_shown(
    migrated: "Stack", tmp_path: Path, spark: "SparkSession"
) -> None:
    """First by partition and offset; a line without the key is always shown, a replay decides."""
    world = World.create(
        migrated,
        tmp_path,
        delivery="rows",
        row_key=["request"],
        line_format={"json": {"time": "t", "level": "l"}, "time_format": "yyyy-MM-dd HH:mm:ss"},
    )

    def said(request: str | None, level: str = "ERROR") -> str:
        of = "" if request is None else f', "request": "{request}"'
        return f'{{"t": "2017-07-30 14:09:08", "l": "{level}"{of}}}'

    world.produce([said("a"), said("b")], 1)
    minute(world, spark)
    world.produce([said("a", "INFO"), said("b"), said(None), said(None), said("b")], 0)
    minute(world, spark)
    shown = [(p, o) for p, o, _ in lines_of(world)]
    assert shown == [(0, 1), (0, 2), (0, 3), (1, 0)]
    assert world.counts() == {"2017-07-30 14:09": 6}
    assert world.audit().holds
    world.configure(levels=["INFO"])
    replay(world, spark)
    assert [(p, o) for p, o, _ in lines_of(world)] == [(0, 0)]
    world.configure(levels=["INFO", "ERROR"])
    replay(world, spark)
    assert [(p, o) for p, o, _ in lines_of(world)] == [(0, 0), (0, 1), (0, 2), (0, 3)]
    (digest,) = {
        row["key_digest"]
        for row in world.rows(
            f"select key_digest from `{world.name}_rows__kept` r join `{world.name}_rows__sets`"
            " using (set_id) where partition_id = 1 and record_offset = 0"
        )
    }
    assert digest == hashlib.sha256(b'["request"] 1:a').digest()
    assert world.audit().holds


def test_the_view_follows_the_key(with_rows: World) -> None:
    """A key that is configured later is a change that is migrated."""
    world = with_rows
    world.configure(row_key=["level"])
    assert missing(world.database, world.settings) == [
        f"view {world.name}_rows of the lines of {world.name}"
    ]
    migrate(world.database, world.settings)
    assert missing(world.database, world.settings) == []


def test_what_is_not_shown_yet_is_not_folded(
    with_rows: World, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its set would be that of no segment; once shown, its lines outlive what Kafka has."""
    world = with_rows
    for levels in (["ERROR"], ["INFO"]):
        world.produce(LINES, 0)
        minute(world, spark)
        world.configure(levels=levels)
    with monkeypatch.context() as patch:
        patch.setattr("tally.pipeline.run_partitions.publish_soon", lambda *_: None)
        replay(world, spark)
    world.delete_records(0, 8)
    assert pruned(world).segments == 0
    before = lines_of(world)
    assert [o for _, o, _ in before] == [0, 1, 3, 4, 5, 7]
    publish(world.context(), world.pipeline)
    assert pruned(world).segments == 1
    assert {s["state"] for s in world.segments()} == {"folded"}
    assert [o for _, o, _ in lines_of(world)] == [2, 6]
    assert world.audit().holds
    world.execute(f"delete from `{world.name}_rows__kept` limit 1")
    assert [v.detail for v in world.audit().violations] == [
        "2 lines were counted, 1 rows are there"
    ]


@pytest.mark.parametrize(
    "keys",
    [
        {"delivery": "batch", "files_url": None, "row_procedure": None},
        {"rows_table": "p_other_rows"},
    ],
)
def test_lines_are_kept_where_they_were_kept_before(
    world: World, spark: "SparkSession", keys: dict[str, str]
) -> None:
    """Neither a plan nor the commit of an open batch nor a replay goes elsewhere."""
    world.produce(LINES, 0)
    minute(world, spark)
    world.produce(LINES, 1)
    (batch,) = world.plan().batches
    view = world.pipeline.rows_view
    world.configure(**keys)
    with pytest.raises(ConfigError, match=f"kept its lines in {view} so far"):
        world.plan()
    with pytest.raises(TallyError):
        run_or_replan(world.context(spark), [batch.batch_id])
    with pytest.raises(TallyError):
        replay(world, spark)
    assert world.counts() == {"2017-07-30 14:09": 2, "2017-07-30 14:11": 1}


def test_a_pipeline_that_has_counted_without_keeping_does_not_begin_to(
    migrated: "Stack", tmp_path: Path, spark: "SparkSession"
) -> None:
    """Its earlier segments have no rows, and the rows would not be the counts."""
    world = World.create(migrated, tmp_path)
    world.produce(LINES, 0)
    world.minute(spark)
    world.configure(delivery="rows")
    said = "has kept no lines so far"
    for refused in (world.plan, lambda: migrate(world.database, world.settings)):
        with pytest.raises(ConfigError, match=said):
            refused()
    assert f"{world.name}_rows" not in table_names(world.database)
    view = status(world.context(), StatusRequest(pipeline=world.name))
    assert (view.health, view.problems[0].reason) == ("fail", "unprepared")
    assert said in view.problems[0].detail


def test_a_view_of_another_pipeline_is_not_taken(with_rows: World, tmp_path: Path) -> None:
    """Nor a table that is something else, nor lines that the ledger knows nothing of."""
    world = with_rows
    view = f"{world.name}_rows"
    (tmp_path / "other").mkdir()
    with pytest.raises(
        ConfigError, match=f"says that it has lines of pipeline {world.name}, ledger"
    ):
        World.create(world.stack, tmp_path / "other", delivery="rows", rows_table=view)
    world.execute("create table p_a_table (a int)")
    try:
        (tmp_path / "table").mkdir()
        with pytest.raises(ConfigError, match="p_a_table exists and is something else"):
            World.create(world.stack, tmp_path / "table", delivery="rows", rows_table="p_a_table")
    finally:
        world.execute("drop table p_a_table")


def test_lines_of_another_ledger_are_left_alone(
    elsewhere: World, spark: "SparkSession", tmp_path: Path
) -> None:
    """A ledger with the same pipeline, as of another environment, takes and deletes nothing."""
    elsewhere.produce(LINES, 0)
    minute(elsewhere, spark)
    mysql = elsewhere.settings.mysql
    other = new_database(elsewhere)
    staging = World(
        stack=elsewhere.stack,
        config=tmp_path / "staging.toml",
        name=elsewhere.name,
        topic=elsewhere.topic,
    )
    text = elsewhere.config.read_text()
    staging.config.touch(mode=0o600)
    staging.config.write_text(
        text.replace(f'database = "{mysql.database}"', f'database = "{other}"')
    )
    told = f"says that it has lines of pipeline {elsewhere.name}, ledger"
    with pytest.raises(ConfigError, match=told):
        migrate(staging.database, staging.settings)
    with pytest.raises(ConfigError, match=told):
        staging.plan()
    assert len(kept(elsewhere)) == 3
    assert elsewhere.audit().holds


def test_lines_that_are_elsewhere_are_not_forgotten(
    elsewhere: World, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """With another server of the lines nothing is migrated, planned, or taken out of the outbox."""
    elsewhere.produce(LINES, 0)
    with monkeypatch.context() as patch:
        patch.setattr("tally.pipeline.run_partitions.publish_soon", lambda *_: None)
        minute(elsewhere, spark)
    moved = new_database(elsewhere)
    text = elsewhere.config.read_text()
    assert elsewhere.settings.results is not None
    elsewhere.config.write_text(text.replace(elsewhere.settings.results.database, moved))
    with pytest.raises(ConfigError, match="has kept lines, and there is no"):
        migrate(elsewhere.database, elsewhere.settings)
    with pytest.raises(SchemaError):
        elsewhere.plan()
    elsewhere.config.write_text(text)
    assert minute(elsewhere, spark) == []
    assert len(kept(elsewhere)) == 3
    assert elsewhere.audit().holds


def test_a_set_that_is_gone_stays_in_the_outbox(
    world: World, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the tables of the lines were restored from an older copy."""
    world.produce(LINES, 0)
    with monkeypatch.context() as patch:
        patch.setattr("tally.pipeline.run_partitions.publish_soon", lambda *_: None)
        minute(world, spark)
    world.execute(f"delete from `{world.pipeline.rows_view}__sets`")
    world.delete_records(0, 4)
    world.plan()
    assert pruned(world).segments == 0
    with world.database.transaction(read_only=True) as tx:
        assert unshown(tx, world.name).segments == 1
        assert unshown(tx, "another") == NOTHING_UNSHOWN
    assert ["readers do not see" in v.detail for v in world.audit().violations] == [True]


def test_a_line_that_is_too_long_for_the_server_is_named(with_rows: World) -> None:
    """Before the server ends the connection, which would look as if it were down."""
    world = with_rows
    world.produce(LINES, 0)
    (batch,) = world.plan().batches
    lines = begun(world, batch.batch_id)
    (row,) = world.rows("select @@max_allowed_packet as n")
    with pytest.raises(StatementError, match=f"offset 2 of {world.topic}/0 has"):
        lines.add([line(2, "x" * (row["n"] // 2))])


def test_a_flood_of_malformed_records_is_not_kept(world: World, spark: "SparkSession") -> None:
    """Nothing of it could be committed: neither its values nor its lines are written on."""
    world.configure(max_malformed_per_batch=10)
    world.produce(["what is this"] * 60_000 + LINES, 0)
    (batch,) = world.plan().batches
    with pytest.raises(MalformedFloodError, match="60000 of 60004 records"):
        run_or_replan(world.context(spark), [batch.batch_id])
    assert all_kept(world) == 0


class Twice:
    """A reader whose tasks Spark runs twice."""

    def __init__(self, reader: Any) -> None:
        self.reader, self.count = reader, reader.count

    def count_each(
        self,
        requests: Sequence[CountRequest],
        work: Callable[[CountRequest, Counts], Any],
        open_set: Any = None,
    ) -> Iterator[tuple[CountRequest, Any]]:
        """Both copies work for one attempt; the second one's rows are not part of the result."""
        list(self.reader.count_each(requests, work, open_set))
        yield from self.reader.count_each(requests, work, open_set)


def test_a_task_that_spark_repeats_keeps_each_line_once(
    world: World, spark: "SparkSession"
) -> None:
    """The set of the copy that has committed is shown, and the other one is dropped."""
    world.produce(LINES, 0)
    (batch,) = world.plan().batches
    ctx = world.context(spark, open_reader=reading(world, spark, Twice))
    (ran,) = run_or_replan(ctx, [batch.batch_id])
    assert ran.committed
    assert len(kept(world)) == all_kept(world) == 3
    assert world.audit().holds


def test_the_doctor_looks_at_the_server_of_the_lines(elsewhere: World) -> None:
    """Its settings, and what may be done with its tables; a power cut must not take lines back."""
    found = {d.check: d for d in check_database(elsewhere.context(), elsewhere.config)}
    names = ("reachable", "version", "innodb", "session", "writable")
    assert {found[f"results.{name}"].health for name in names} == {Health.OK}
    assert found["rows.grants"].health is Health.OK
    loose = {"innodb_flush_log_at_trx_commit": "2"}
    assert check_durability(loose, "results").health is Health.FAIL
    assert check_durability(loose).health is Health.WARN
    results = elsewhere.settings.results
    assert results is not None
    user, database = results.user, results.database
    elsewhere.as_root(
        f"revoke all on {database}.* from {user}@'127.0.0.1'",
        f"grant select, insert, update on {database}.* to {user}@'127.0.0.1'",
    )
    found = {d.check: d for d in check_database(elsewhere.context(), elsewhere.config)}
    assert f"delete from {elsewhere.name}_rows__kept" in found["rows.grants"].detail
