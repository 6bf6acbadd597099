"""The commit on a real MySQL: with cuts, locks, conflicts and faults. The counts are made up."""

import itertools
import re
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql.constants import CLIENT

from tally import errors, model
from tally.aggregates.counts import Contribution, Counts, DeadLetter
from tally.config.servers import MySQLSettings
from tally.counting.commit import commit_in, commit_once
from tally.deliveries.kept_lines import delivery_of
from tally.ledger import batches
from tally.ledger.commit import check_written
from tally.ledger.results import result_rows
from tally.ledger.tables import Tables
from tally.mysql import transactions
from tally.mysql.connection import connect
from tally.mysql.errors import CommitUnansweredError
from tally.mysql.transactions import Connection, Transaction
from tally_local.stack.server import Part
from tally_local.stack.stack import Stack
from tests.fakes import FixedKafka
from tests.minute.steps import AT, ERROR, abandoned, audited, disturbed, proxied, set_position
from tests.proxy import Cut
from tests.servers import NOT_DURABLE, PROJECT
from tests.waiting import wait_until
from tests.world import LOCK_LIST_S, World

pytestmark = pytest.mark.stack

MINUTE = f"{AT}:00"


def planned(world: World) -> model.Batch:
    """A planned batch over three records in each of the two partitions."""
    for partition in (0, 1):
        world.produce([ERROR] * 3, partition)
    return world.planned()


def claimed(world: World, batch: model.Batch, by: str = "test") -> model.Batch:
    (mine,) = world.database.run(lambda tx: batches.claim(tx, [batch.batch_id], by))
    return mine


def result(
    batch: model.Batch, *, minutes: Mapping[str, int] | None = None, letters: int = 0
) -> Counts:
    """Counts of the batch: the same minutes, and so many dead letters, in each segment."""
    ranges = [segment.range for segment in batch.segments]
    return Counts(
        totals={
            r.partition: model.SegmentTotals(
                records=r.offsets,
                matched=r.offsets - letters,
                unmatched=0,
                malformed=letters,
                first_offset=r.from_offset,
                last_offset=r.until_offset - 1,
            )
            for r in ranges
        },
        contributions=[
            Contribution(partition=r.partition, log_time=minute, sums=(lines,))
            for r in ranges
            for minute, lines in (minutes or {MINUTE: r.offsets - letters}).items()
        ],
        dead_letters=[
            DeadLetter(
                partition=r.partition, offset=at, reason="no-time", value=b"x", value_bytes=1
            )
            for r in ranges
            for at in range(r.from_offset, r.from_offset + letters)
        ],
    )


def commit(world: World, batch: model.Batch, found: Counts) -> bool:
    return commit_once(world.context(), batch, found)


def count_one(world: World, **found: Any) -> model.Batch:
    """A batch that was planned, claimed and committed."""
    batch = claimed(world, planned(world))
    assert commit(world, batch, result(batch, **found))
    return batch


def assert_untouched(world: World) -> None:
    assert audited(world) == {}
    assert {next_offset for _, next_offset in world.offsets().values()} == {0}
    assert {segment["state"] for segment in world.segments()} <= {"planned", "abandoned"}
    assert world.dead_letters() == []


def test_a_batch_commits_once(world: World) -> None:
    """One transaction moves the offsets, keeps dead letters and adds to what was counted before."""
    for number in (1, 2):
        batch = count_one(world, letters=1)
        assert not commit(world, batch, result(batch, letters=1))
        assert world.counts() == {AT: 4 * number}
        assert world.offsets() == {0: (0, 3 * number), 1: (0, 3 * number)}
        assert len(world.dead_letters()) == 2 * number
    assert world.audit().holds


def test_an_abandoned_batch_is_fenced(world: World) -> None:
    batch = claimed(world, planned(world))
    abandoned(world, batch.batch_id)
    with pytest.raises(errors.FencedError, match="abandoned by me: a test"):
        commit(world, batch, result(batch))
    assert_untouched(world)


def test_what_a_writer_forgets_is_found_before_the_commit(world: World) -> None:
    """Contributions must add up to the totals."""
    batch = claimed(world, planned(world))
    with pytest.raises(errors.DataLossError, match="not what was counted"):
        commit(world, batch, result(batch, minutes={MINUTE: 2}))
    assert_untouched(world)


@pytest.mark.parametrize("table", ["dead_letter", "dead_letter_total"])
def test_each_malformed_record_has_its_dead_letter_before_the_commit(
    world: World, table: str
) -> None:
    """And is in the totals by reason; here the server itself forgets one of the two."""
    batch = claimed(world, planned(world))
    delivery = delivery_of(world.context(), world.pipeline)

    def forget(tx: Transaction) -> None:
        commit_in(tx, delivery, batch, result(batch, letters=1))
        tx.execute(
            f"delete d from {table} d join segment s using (segment_id) where s.batch_id = %s",
            (batch.batch_id,),
        )
        with pytest.raises(errors.DataLossError, match="not what was counted"):
            check_written(tx, Tables(result=world.name), batch.batch_id)

    world.database.run(forget)  # again after a deadlock with the other tests' statements


def test_a_minute_beyond_the_columns_range_commits_nothing_until_it_is_wider(world: World) -> None:
    """The batch stays planned; with the runbook's `alter table` it is counted, and all else works.

    The minute is filled by hand, as two thousand million lines would take too long.
    """
    count_one(world)
    almost = 2**31 - 6
    world.execute(f"update `{world.name}` set log_count = {almost}")
    batch = claimed(world, planned(world))
    with pytest.raises(errors.CountOverflowError, match="'log_count'"):
        commit(world, batch, result(batch))
    assert world.counts() == {AT: almost}
    assert world.batches()[-1]["state"] == "planned"

    runbook = (PROJECT / "docs" / "runbook.md").read_text(encoding="utf-8")
    (wider,) = re.findall(r"alter table error_log modify log_count .*;", runbook)
    world.execute(wider.replace("error_log", f"`{world.name}`"))
    assert commit(world, batch, result(batch))
    with world.database.transaction(read_only=True) as tx:
        (row,) = result_rows(tx, Tables(result=world.name))
    assert {AT: row.log_count} == {AT: almost + 6} == world.counts()
    (finding,) = world.audit().findings
    assert finding.detail == f"the table says {almost + 6}, segments add up to 12"
    world.execute(f"update `{world.name}` set log_count = 12")
    assert world.audit().holds
    assert world.migrate() == []


@pytest.mark.parametrize("cut", Cut)
def test_the_answer_to_commit_is_lost(world: World, cut: Cut) -> None:
    """The ledger says whether COMMIT was applied; if it was not, the transaction is run again."""
    batch = claimed(world, planned(world))
    with proxied(world, cut) as (proxy, broken):
        assert commit(broken, batch, result(batch))
        assert proxy.fired == 1
    assert audited(world) == {AT: 6}


def test_a_server_that_breaks_at_every_commit_is_given_up(world: World) -> None:
    batch = claimed(world, planned(world))
    with (
        proxied(world, Cut.BEFORE_COMMIT, times=99) as (proxy, broken),
        pytest.raises(
            errors.RetryableError, match="times in a row, and nothing was committed"
        ) as caught,
    ):
        commit(broken, batch, result(batch))
    assert caught.value.what.startswith(f"batch {batch.batch_id}: ")
    assert proxy.fired > 1
    assert_untouched(world)


@pytest.mark.parametrize("ending", ["committed", "has replaced", "abandoned"])
def test_a_commit_that_never_arrived_is_not_taken_for_anothers(world: World, ending: str) -> None:
    """The connection breaks, and another attempt owns the batch before the ledger is asked."""
    batch = claimed(world, planned(world))
    opened: list[MySQLSettings] = []

    def claim_first(settings: MySQLSettings) -> Connection:
        opened.append(settings)
        if len(opened) == 2:  # the first was for the commit
            end_elsewhere(world, batch, ending)
        return connect(settings)

    with proxied(world, Cut.BEFORE_COMMIT) as (_, proxied_world):
        database = replace(proxied_world.database, open=claim_first)
        broken = world.through(database=database)
        if ending == "committed":
            assert not commit(broken, batch, result(batch))
        else:
            with pytest.raises(errors.FencedError, match=ending):
                commit(broken, batch, result(batch))
    assert world.counts() == ({AT: 6} if ending == "committed" else {})
    assert world.audit().holds


def end_elsewhere(world: World, batch: model.Batch, ending: str) -> None:
    if ending == "abandoned":
        abandoned(world, batch.batch_id)
        return
    newer = claimed(world, batch, by="another")
    if ending == "committed":
        assert commit(world, newer, result(newer))


def cut_at(world: World, pattern: str) -> World:
    """The same pipeline; the first connection that is about to send such a statement is killed."""
    opened: list[int] = []

    def open_noted(settings: MySQLSettings) -> "pymysql.Connection[Any]":
        connection = connect(settings)
        opened.append(connection.thread_id())
        return connection

    noting = world.through(database=replace(world.database, open=open_noted))
    return disturbed(noting, pattern, lambda: world.as_root(f"kill {opened[-1]}"))


def test_a_deadlock_runs_the_transaction_again(world: World) -> None:
    """MySQL rolls back our transaction, the smaller one: it is run again and counts once."""
    first, second = "2017-07-30 14:09:00", "2017-07-30 15:00:00"
    both = {first: 1, second: 2}
    count_one(world, minutes=both)
    batch = claimed(world, planned(world))
    attempts: list[object] = []

    def work(tx: Transaction) -> bool:
        attempts.append(tx)
        return commit_in(
            tx, delivery_of(world.context(), world.pipeline), batch, result(batch, minutes=both)
        )

    with ThreadPoolExecutor(1) as pool, closing(world.connect()) as other, other.cursor() as cursor:
        cursor.executemany(
            f"insert into `{world.name}` (log_time) values (%s)",
            [(f"1999-01-01 {n // 60 % 24:02}:{n % 60:02}:00",) for n in range(1000)],
        )
        lock = f"select log_count from `{world.name}` where log_time = %s for update"
        cursor.execute(lock, (second,))
        committed = pool.submit(world.database.run, work)
        wait_until(
            lambda: any(world.name in waiting for waiting in world.waiting_statements()),
            pause_s=LOCK_LIST_S,
        )
        cursor.execute(lock, (first,))
        other.rollback()
        assert committed.result(60)
    assert len(attempts) == 2
    assert audited(world) == {AT: 4, "2017-07-30 15:00": 8}


ROW_LOCK = (
    "select * from partition_offset o join topic_incarnation i using (incarnation_id)"
    " where i.pipeline = '{0}' for update"
)


@pytest.mark.parametrize("lock", [ROW_LOCK, "lock tables `{0}` write"], ids=["row", "table"])
def test_a_lock_that_is_held_too_long_rolls_back(world: World, lock: str) -> None:
    """The lock wait timeout is retryable, also of a table, for which MySQL would wait a year."""
    batch = claimed(world, planned(world))
    database = world.database.adjusted(lock_wait_timeout_s=1, statement_timeout_s=20)
    with closing(world.connect_as_root()) as root, root.cursor() as cursor:
        cursor.execute(lock.format(world.name))
        with (
            pytest.raises(errors.TransactionRetryError, match="Lock wait timeout"),
            database.transaction() as tx,
        ):
            commit_in(tx, delivery_of(world.context(), world.pipeline), batch, result(batch))
    assert_untouched(world)
    assert commit(world, batch, result(batch))
    assert world.counts() == {AT: 6}


def test_a_silent_transaction_loses_its_locks(world: World) -> None:
    """The server ends the session of a process that stops inside its commit, with its locks."""
    batch = claimed(world, planned(world))
    impatient = world.database.adjusted(lock_wait_timeout_s=1)
    inside, released = threading.Event(), threading.Event()

    def stop_inside() -> None:
        with impatient.transaction() as tx:
            commit_in(tx, delivery_of(world.context(), world.pipeline), batch, result(batch))
            inside.set()
            released.wait(60)  # as SIGSTOP would

    def claimed_if_free() -> model.Batch | None:
        with suppress(errors.TransactionRetryError):
            return claimed(world, batch)
        return None

    with ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(stop_inside)
        assert inside.wait(30)
        successor = wait_until(claimed_if_free)
        assert commit(world, successor, result(successor))
        released.set()
        with pytest.raises((errors.MySQLUnavailableError, CommitUnansweredError)):
            stopped.result(60)
    assert world.counts() == {AT: 6}


def test_a_read_only_server_is_waited_for(own_world: World) -> None:
    batch = claimed(own_world, planned(own_world))
    with (
        own_world.global_variable("read_only", 0),  # which the other one also sets
        own_world.global_variable("super_read_only", 1),
        pytest.raises(errors.MySQLUnavailableError, match="read-only"),
    ):
        commit(own_world, batch, result(batch))
    assert_untouched(own_world)
    assert commit(own_world, batch, result(batch))


def test_a_dead_letter_larger_than_a_packet_is_refused_whole(own_world: World) -> None:
    batch = claimed(own_world, planned(own_world))
    found = result(batch, letters=1)
    huge = [
        replace(letter, value=b"x" * 5_000_000, value_bytes=5_000_000)
        for letter in found.dead_letters
    ]
    with (
        own_world.global_variable("max_allowed_packet", 1048576),
        pytest.raises((errors.StatementError, errors.MySQLUnavailableError)),
    ):
        commit(own_world, batch, replace(found, dead_letters=huge))
    assert_untouched(own_world)


def planned_over(world: World, partitions: int, offsets: int = 3) -> model.Batch:
    """A claimed batch over more offsets in each of so many partitions, of a Kafka of values."""
    held = world.offsets()
    ends = {n: held.get(n, (0, 0))[1] + offsets for n in range(partitions)}
    of_topic = model.TopicSnapshot(
        topic_id="of values",
        cluster_id="of values",
        partitions={n: model.PartitionSnapshot(earliest=0, end=end) for n, end in ends.items()},
    )
    kafka = FixedKafka(model.KafkaSnapshot(cluster_id="of values", topics={world.topic: of_topic}))
    return claimed(world, world.through(kafka=kafka).planned())


def many_chunks(world: World) -> tuple[model.Batch, Counts]:
    """A batch of 5,000 records, of more than four thousand minutes, and some hundred malformed."""
    batch = planned_over(world, 1, offsets=5000)
    days = (f"2017-07-{day:02} {hour:02}" for day in (1, 2, 3) for hour in range(24))
    minutes = {f"{hour}:{minute:02}:00": 1 for hour in days for minute in range(60)}
    found = result(batch, minutes=minutes, letters=5000 - len(minutes))
    return batch, found


def test_a_commit_that_fails_after_many_chunks_leaves_none_of_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "BYTES_PER_INSERT", 10_000)
    batch, found = many_chunks(world)

    def fail() -> None:
        raise errors.MySQLUnavailableError("the connection broke (a test)")

    failing = disturbed(world, "^update segment s join json_table", fail)
    with pytest.raises(errors.MySQLUnavailableError, match="a test"):
        commit(failing, batch, found)
    assert_untouched(world)
    segment_id = batch.segments[0].segment_id
    assert world.rows("select * from segment_count where segment_id = %s", (segment_id,)) == []
    assert commit(world, batch, found)
    totals = found.totals[world.partition(0)]
    assert len(audited(world)) == totals.matched
    assert len(world.dead_letters()) == totals.malformed


def test_many_partitions_commit_in_few_statements(world: World) -> None:
    statements: dict[int, list[str]] = {10: [], 2_500: []}
    for partitions, said in statements.items():
        batch = planned_over(world, partitions)
        assert len(batch.segments) == partitions
        listening = world.through(database=replace(world.database, listen=said.append))
        assert commit(listening, batch, result(batch))
    assert len(statements[2_500]) <= len(statements[10]) + 10
    assert audited(world) == {AT: 3 * (10 + 2_500)}
    assert {segment["state"] for segment in world.segments()} == {"live"}


STEPS = {
    "the offsets move": "^update partition_offset",
    "contributions are written": "^insert into `segment_count`",
    "the result changes": "^insert into `p_",
    "dead letters are written": "^insert into dead_letter",
    "segments become live": "^update segment s join json_table",
}


@pytest.mark.parametrize("statement", STEPS.values(), ids=STEPS)
def test_a_connection_that_is_cut_inside_the_transaction_is_not_replaced(
    world: World, statement: str
) -> None:
    """The whole transaction is lost: the rest is not written on another connection."""
    batch = claimed(world, planned(world))
    with pytest.raises(errors.MySQLUnavailableError):
        commit(cut_at(world, statement), batch, result(batch, letters=1))
    assert_untouched(world)
    assert commit(world, batch, result(batch, letters=1))
    assert audited(world) == {AT: 4}


def test_with_autocommit_left_on_a_failing_commit_leaves_nothing_behind(world: World) -> None:
    """The transaction begins explicitly, also in a session of a pooling proxy that leaves it on."""

    def then_on(settings: MySQLSettings) -> "pymysql.Connection[Any]":
        connection = connect(settings)
        connection.autocommit(True)
        return connection

    careless = world.through(database=replace(world.database, open=then_on))
    batch = claimed(careless, planned(careless))
    with pytest.raises(errors.DataLossError):
        commit(careless, batch, result(batch, minutes={MINUTE: 2}))
    assert_untouched(careless)
    assert commit(careless, batch, result(batch))
    assert world.counts() == {AT: 6}


@pytest.mark.parametrize("flags", [0, CLIENT.FOUND_ROWS], ids=["changed", "matched"])
def test_one_partition_that_cannot_move_stops_them_all(world: World, flags: int) -> None:
    """A compare-and-set that fails for one of two partitions commits nothing at all.

    Drivers and proxies differ in whether affected rows are changed or matched; it shows in either.
    """
    world = world.through(
        database=replace(world.database, open=partial(connect, client_flag=flags))
    )
    count_one(world)
    batch = claimed(world, planned(world))
    set_position(world, 5, partition=1)
    with pytest.raises(errors.FencedError, match=r"1 of 2 partitions could move.*/1 at 5"):
        commit(world, batch, result(batch))
    assert world.counts() == {AT: 6}
    assert world.offsets()[0] == (0, 3)


def test_a_servers_limit_of_rows_hides_nothing_from_the_audit(own_world: World) -> None:
    for _ in range(2):
        count_one(own_world)
    with own_world.global_variable("sql_select_limit", 2):
        assert own_world.audit().holds
        set_position(own_world, 7, partition=1)
        (finding,) = own_world.audit().findings
    assert finding.detail == "counted up to 6, but next_offset is 7"


def test_a_table_that_is_altered_under_a_commit_is_altered_behind_it(world: World) -> None:
    """DDL in the middle of a transaction that then fails waits, and commits nothing of it."""
    batch = claimed(world, planned(world))
    alter = f"alter table `{world.name}` add note varchar(20) null, add index by_count (log_count)"
    waiting = (
        "select 1 from information_schema.processlist"
        " where info = %s and state like '%%metadata lock%%'"
    )
    with ThreadPoolExecutor(1) as pool:

        def alter_meanwhile() -> None:
            pool.submit(world.execute, alter)
            wait_until(lambda: world.rows(waiting, (alter,)))

        # The last step but one: the check of what was written fails.
        checked = r"^select s\.segment_id, s\.state, .* written_matched"
        altered = disturbed(world, checked, alter_meanwhile)
        with pytest.raises(errors.DataLossError):
            commit(altered, batch, result(batch, minutes={MINUTE: 2}))
    assert_untouched(world)
    assert "note" in world.rows(f"show create table `{world.name}`")[0]["Create Table"]
    assert commit(world, batch, result(batch))
    assert not commit(world, batch, result(batch))
    assert audited(world) == {AT: 6}


@pytest.fixture
def full(world: World, tmp_path: Path) -> Iterator[World]:
    """Counts go to a server of the test's own, into a tablespace that cannot grow."""
    stack = Stack(
        project=PROJECT,
        home=tmp_path / "home",
        mysql_options=[*NOT_DURABLE, "--innodb-data-file-path=ibdata1:12M"],
    )
    stack.up([Part.MYSQL])
    try:
        full = replace(world, stack=stack, config=tmp_path / "full.toml")
        full.configure()
        full.migrate()
        full.as_root("alter table tally.segment_count tablespace = innodb_system")
        yield full
    finally:
        stack.down()


def fill(world: World) -> None:
    with closing(world.connect_as_root(autocommit=True)) as root, root.cursor() as cursor:
        cursor.execute("create table filler (b longblob) tablespace = innodb_system")
        for size in (1 << 20, 1 << 14, 1 << 10):
            insert = f"insert into filler values (repeat('x', {size}))"
            with pytest.raises(pymysql.err.OperationalError, match="is full"):
                all(cursor.execute(insert) for _ in itertools.count())


def test_on_a_full_disk_nothing_is_committed_until_there_is_room(full: World) -> None:
    batch, found = many_chunks(full)
    fill(full)
    with pytest.raises(errors.StatementError, match="is full") as caught:
        commit(full, batch, found)
    assert caught.value.next_step.startswith("free disk space")
    assert_untouched(full)
    assert full.rows("select * from segment_count") == []
    full.execute("drop table filler")
    assert commit(full, batch, found)
    assert sum(full.counts().values()) == found.totals[full.partition(0)].matched
    assert full.audit().holds


@pytest.mark.parametrize("moment", ["insert", "update"])
def test_a_trigger_that_changes_what_is_written_is_refused(world: World, moment: str) -> None:
    """Nothing of the batch is committed; a row that was wrong before is left to the audit."""
    count_one(world)
    world.execute(f"update `{world.name}` set log_count = log_count + 1")
    batch = claimed(world, planned(world))
    later = result(batch, minutes={"2017-07-30 15:00:00": 3} if moment == "insert" else None)
    trigger = f"{world.settings.mysql.database}.of_{world.name}"
    table = f"{world.settings.mysql.database}.{world.name}"
    more = f"before {moment} on {table} for each row set new.log_count = new.log_count + 1"
    world.as_root(f"create trigger {trigger} {more}")
    with pytest.raises(errors.SchemaError, match="gains other sums than were counted"):
        commit(world, batch, later)
    assert world.counts() == {AT: 7}
    world.as_root(f"drop trigger {trigger}")
    assert commit(world, batch, later)
    assert sum(world.counts().values()) == 7 + batch.offsets
