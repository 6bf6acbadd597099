"""The commit on a real MySQL, with real cuts, locks and conflicts; only the counts are made up."""

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tally import __version__
from tally.app.migrate import migrate
from tally.config.servers import MySQLSettings
from tally.deliveries.choice import delivery_of
from tally.deliveries.contract import Result
from tally.errors import (
    CountOverflowError,
    DataLossError,
    FencedError,
    MySQLUnavailableError,
    RetryableError,
    StatementError,
    TransactionRetryError,
)
from tally.ledger import batches
from tally.ledger.contributions import CONTRIBUTIONS_PER_INSERT
from tally.ledger.dead_letters import DEAD_LETTERS_PER_INSERT
from tally.ledger.results import lines_by_minute
from tally.ledger.tables import Tables
from tally.model import (
    Batch,
    Contribution,
    DeadLetter,
    KafkaSnapshot,
    PartitionSnapshot,
    SegmentTotals,
    TopicPartition,
    TopicSnapshot,
)
from tally.mysql.connection import connect
from tally.mysql.errors import CommitUnansweredError
from tally.mysql.transactions import Connection, Transaction
from tally.pipeline.commit import commit_once
from tally.pipeline.plan import plan_batch
from tally.testing.kafka import FixedKafka
from tally.testing.statements import at_statement
from tests.proxy import CommitProxy, Cut
from tests.waiting import wait_until
from tests.world import LOCK_LIST_S, World

pytestmark = pytest.mark.stack

LINE = "2017-07-30 14:09:08 ERROR some message"
MINUTE = "2017-07-30 14:09:00"


def planned(world: World) -> Batch:
    """A planned batch over three records in each of the two partitions."""
    world.produce([LINE] * 3, 0)
    world.produce([LINE] * 3, 1)
    batch = world.plan().batch
    assert batch is not None
    return batch


def claimed(world: World, batch: Batch, by: str = "test") -> Batch:
    """The batch, claimed by a new attempt."""
    return world.database.run(lambda tx: batches.claim(tx, batch.batch_id, by))


def result(batch: Batch, *, minutes: Mapping[str, int] | None = None, letters: int = 0) -> Result:
    """Counts of the batch: the same minutes in each segment."""
    minutes = minutes or {MINUTE: 3 - letters}
    partitions = [segment.range.partition for segment in batch.segments]
    return Result(
        totals={s.range.partition: _totals(s.range.from_offset, letters) for s in batch.segments},
        contributions=[
            Contribution(partition=p, log_time=minute, log_count=count)
            for p in partitions
            for minute, count in minutes.items()
        ],
        dead_letters=[_dead_letter(p, offset) for p in partitions for offset in range(letters)],
        version=__version__,
        format_fingerprint="test",
    )


def _totals(first: int, letters: int) -> SegmentTotals:
    return SegmentTotals(
        records=3,
        matched=3 - letters,
        unmatched=0,
        malformed=letters,
        first_offset=first,
        last_offset=first + 2,
    )


def _dead_letter(partition: TopicPartition, offset: int) -> DeadLetter:
    return DeadLetter(
        partition=partition, offset=offset, reason="no-time", value=b"x", value_bytes=1
    )


def commit(world: World, batch: Batch, found: Result) -> bool:
    """Commit as a run does."""
    ctx = world.context()
    return commit_once(ctx, batch, ctx.settings.pipeline(world.name), found)


def assert_untouched(world: World) -> None:
    """Assert that a failed commit has changed nothing."""
    assert world.counts() == {}
    assert {next_offset for _, next_offset in world.offsets().values()} == {0}
    assert {segment["state"] for segment in world.segments()} <= {"planned", "abandoned"}
    assert world.dead_letters() == []
    assert world.audit().holds


def test_results_and_offsets_commit_together(world: World) -> None:
    """One transaction moves the offsets, adds the counts and keeps the dead letters."""
    batch = claimed(world, planned(world))
    assert commit(world, batch, result(batch, letters=1))
    assert world.counts() == {"2017-07-30 14:09": 4}
    assert world.offsets() == {0: (0, 3), 1: (0, 3)}
    assert len(world.dead_letters()) == 2
    assert world.audit().holds


def test_a_batch_commits_once(world: World) -> None:
    """A second commit of the same attempt finds it done and changes nothing."""
    batch = claimed(world, planned(world))
    assert commit(world, batch, result(batch))
    assert not commit(world, batch, result(batch))
    assert world.counts() == {"2017-07-30 14:09": 6}


def test_a_minute_of_two_batches_adds_up(world: World) -> None:
    """A minute that comes again in a later batch is added to, not replaced."""
    for _ in range(2):
        batch = claimed(world, planned(world))
        assert commit(world, batch, result(batch))
    assert world.counts() == {"2017-07-30 14:09": 12}
    assert world.audit().holds


def test_an_older_attempt_is_fenced(world: World) -> None:
    """Once another process has claimed the batch, the earlier attempt can no longer commit."""
    batch = planned(world)
    older = claimed(world, batch)
    newer = claimed(world, batch)
    with pytest.raises(FencedError, match=r"attempt 2 has replaced attempt 1"):
        commit(world, older, result(older))
    assert_untouched(world)
    assert commit(world, newer, result(newer))
    assert not commit(world, older, result(older))
    assert world.counts() == {"2017-07-30 14:09": 6}


def test_an_abandoned_batch_is_fenced(world: World) -> None:
    """A worker that wakes up after its batch was abandoned changes nothing."""
    batch = claimed(world, planned(world))
    world.database.run(
        lambda tx: batches.abandon(tx, batch.batch_id, by="me", reason="a test"),
    )
    with pytest.raises(FencedError, match="abandoned by me: a test"):
        commit(world, batch, result(batch))
    assert_untouched(world)


def test_one_partition_that_cannot_move_stops_them_all(world: World) -> None:
    """A compare-and-set that fails for one of two partitions commits nothing at all."""
    batch = claimed(world, planned(world))
    world.execute(
        "update partition_offset set next_offset = 1, start_offset = 1 where partition_id = 1"
        " and incarnation_id = (select incarnation_id from topic_incarnation where pipeline = %s)",
        (world.name,),
    )
    with pytest.raises(FencedError, match=r"1 of 2 partitions could move.*/1 at 1"):
        commit(world, batch, result(batch))
    assert world.counts() == {}
    assert world.offsets()[0] == (0, 0)


def test_a_writer_that_forgets_a_count_commits_nothing(world: World) -> None:
    """Contributions that do not add up to the totals are found before the commit."""
    batch = claimed(world, planned(world))
    with pytest.raises(DataLossError, match="not what was counted"):
        commit(world, batch, result(batch, minutes={MINUTE: 2}))
    assert_untouched(world)


def test_a_writer_that_forgets_a_dead_letter_commits_nothing(world: World) -> None:
    """Dead letters that are fewer than the malformed records are found before the commit."""
    batch = claimed(world, planned(world))
    with pytest.raises(DataLossError, match="not what was counted"):
        commit(world, batch, replace(result(batch, letters=1), dead_letters=[]))
    assert_untouched(world)


def test_a_writer_that_forgets_a_dead_letters_total_commits_nothing(world: World) -> None:
    """Nor may the totals by reason differ; here the server itself writes another number."""
    batch = claimed(world, planned(world))
    database = world.settings.mysql.database
    world.as_root(
        f"create trigger {database}.one_more before insert on {database}.dead_letter_total"
        " for each row set new.dead_letters = new.dead_letters + 1"
    )
    try:
        with pytest.raises(DataLossError, match="not what was counted"):
            commit(world, batch, result(batch, letters=1))
    finally:
        world.as_root(f"drop trigger {database}.one_more")
    assert_untouched(world)


def test_a_minute_beyond_the_columns_range_commits_nothing_until_it_is_wider(world: World) -> None:
    """The batch stays planned; with the runbook's `alter table` it is counted, and all else works.

    The minute is filled by hand, as two thousand million lines would take too long.
    """
    first = claimed(world, planned(world))
    commit(world, first, result(first))
    almost = 2**31 - 6
    world.execute(f"update `{world.name}` set log_count = {almost}")
    batch = claimed(world, planned(world))
    with pytest.raises(CountOverflowError, match="'log_count'"):
        commit(world, batch, result(batch))
    assert world.counts() == {"2017-07-30 14:09": almost}
    assert world.batches()[-1]["state"] == "planned"

    runbook = (Path(__file__).parents[2] / "docs" / "runbook.md").read_text(encoding="utf-8")
    wider = re.findall(r"alter table error_log modify log_count .*;", runbook)
    assert len(wider) == 1
    with closing(world.connect_as_root()) as root, root.cursor() as cursor:
        cursor.execute(wider[0].replace("error_log", f"`{world.name}`"))
    assert commit(world, batch, result(batch))
    assert world.counts() == {"2017-07-30 14:09": almost + 6}
    with world.database.transaction(read_only=True) as tx:
        assert lines_by_minute(tx, Tables(result=world.name)) == {"2017-07-30 14:09": almost + 6}
    (finding,) = world.audit().violations
    assert finding.detail == f"the table says {almost + 6}, segments add up to 12"
    world.execute(f"update `{world.name}` set log_count = 12")
    assert world.audit().holds
    assert migrate(world.database, world.settings) == []


def test_the_connection_breaks_before_commit(world: World) -> None:
    """Nothing was applied; the transaction is run again and counts once."""
    batch = claimed(world, planned(world))
    with proxied(world, Cut.BEFORE_COMMIT) as (proxy, broken):
        assert commit(broken, batch, result(batch))
        assert proxy.fired == 1
    assert world.counts() == {"2017-07-30 14:09": 6}
    assert world.audit().holds


def test_the_answer_to_commit_is_lost(world: World) -> None:
    """COMMIT was applied: the ledger says so, and nothing is committed a second time."""
    batch = claimed(world, planned(world))
    with proxied(world, Cut.ANSWER_LOST) as (proxy, broken):
        assert commit(broken, batch, result(batch))
        assert proxy.fired == 1
    assert world.counts() == {"2017-07-30 14:09": 6}
    assert world.audit().holds


def test_a_server_that_breaks_at_every_commit_is_given_up(world: World) -> None:
    """The error is retryable, says that nothing was committed, and nothing is half written."""
    batch = claimed(world, planned(world))
    with (
        proxied(world, Cut.BEFORE_COMMIT, times=99) as (proxy, broken),
        pytest.raises(RetryableError, match="the ledger says that nothing was committed") as caught,
    ):
        commit(broken, batch, result(batch))
    assert caught.value.next_step.startswith(f"tally run {batch.batch_id}")
    assert proxy.fired > 1
    assert_untouched(world)


@pytest.mark.parametrize("ending", ["committed", "has replaced", "abandoned"])
def test_a_commit_that_never_arrived_is_not_taken_for_another_attempts(
    world: World, ending: str
) -> None:
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
            with pytest.raises(FencedError, match=ending):
                commit(broken, batch, result(batch))
    assert world.counts() == ({"2017-07-30 14:09": 6} if ending == "committed" else {})
    assert world.audit().holds


def end_elsewhere(world: World, batch: Batch, ending: str) -> None:
    """Commit, claim or abandon a batch from another process."""
    if ending == "abandoned":
        world.database.run(lambda tx: batches.abandon(tx, batch.batch_id, by="me", reason="a test"))
        return
    newer = claimed(world, batch, by="another")
    if ending == "committed":
        assert commit(world, newer, result(newer))


@contextmanager
def proxied(world: World, cut: Cut, times: int = 1) -> Iterator[tuple[CommitProxy, World]]:
    """The same pipeline, with a ledger behind a proxy that breaks at COMMIT."""
    mysql = world.settings.mysql
    with CommitProxy(mysql.host, mysql.port, cut, times) as proxy:
        database = world.database.adjusted(port=proxy.port, tls="disabled")
        yield proxy, world.through(database=database)


def test_a_deadlock_runs_the_transaction_again(world: World) -> None:
    """MySQL rolls back our transaction, the smaller one: it is run again and counts once."""
    first, second = "2017-07-30 14:09:00", "2017-07-30 15:00:00"
    both = {first: 1, second: 2}
    batch = claimed(world, planned(world))
    assert commit(world, batch, result(batch, minutes=both))
    batch = claimed(world, planned(world))
    attempts: list[object] = []

    def work(tx: Transaction) -> bool:
        attempts.append(tx)
        return delivery_of(world.pipeline).commit(tx, batch, result(batch, minutes=both))

    with ThreadPoolExecutor(1) as pool, closing(world.connect()) as other, other.cursor() as cursor:
        cursor.executemany(
            f"insert into `{world.name}` (log_time) values (%s)",
            [(f"1999-01-01 {n // 60 % 24:02}:{n % 60:02}:00",) for n in range(1000)],
        )
        lock = f"select log_count from `{world.name}` where log_time = %s for update"
        cursor.execute(lock, (second,))
        committed = pool.submit(world.database.run, work)
        wait_for_a_waiting_transaction(world)
        cursor.execute(lock, (first,))
        other.rollback()
        assert committed.result(60)
    assert len(attempts) == 2
    assert world.counts() == {"2017-07-30 14:09": 4, "2017-07-30 15:00": 8}
    assert world.audit().holds


def wait_for_a_waiting_transaction(world: World) -> None:
    """Wait until a statement waits for a row lock of the world's result table."""
    wait_until(
        lambda: any(world.name in statement for statement in world.waiting_statements()),
        pause_s=LOCK_LIST_S,
    )


def test_a_lock_that_is_held_too_long_rolls_back(world: World) -> None:
    """A lock wait timeout becomes a retryable error, and nothing is half written."""
    batch = claimed(world, planned(world))
    impatient = world.database.adjusted(lock_wait_timeout_s=1)
    with closing(world.connect()) as other, other.cursor() as cursor:
        cursor.execute(
            "select * from partition_offset o join topic_incarnation i using (incarnation_id)"
            " where i.pipeline = %s for update",
            (world.name,),
        )
        with (
            pytest.raises(TransactionRetryError, match="Lock wait timeout"),
            impatient.transaction() as tx,
        ):
            delivery_of(world.pipeline).commit(tx, batch, result(batch))
    assert_untouched(world)


def test_a_silent_transaction_loses_its_locks(world: World) -> None:
    """The server ends the session of a process that stops inside its commit, with its locks."""
    batch = claimed(world, planned(world))
    impatient = world.database.adjusted(lock_wait_timeout_s=1)
    inside = threading.Event()
    released = threading.Event()

    def stop_inside() -> None:
        try:
            with impatient.transaction() as tx:
                delivery_of(world.pipeline).commit(tx, batch, result(batch))
                inside.set()
                released.wait(60)  # as SIGSTOP would
        except (MySQLUnavailableError, CommitUnansweredError):
            released.set()

    sleeper = threading.Thread(target=stop_inside)
    sleeper.start()
    assert inside.wait(30)
    successor = claim_when_free(world, batch)
    assert commit(world, successor, result(successor))
    released.set()
    sleeper.join()
    assert world.counts() == {"2017-07-30 14:09": 6}


def claim_when_free(world: World, batch: Batch) -> Batch:
    """Claim the batch as soon as its row is no longer locked."""
    for _ in range(60):
        try:
            return claimed(world, batch)
        except TransactionRetryError:
            continue
    raise AssertionError("the lock was never given back")


def test_two_commits_at_once_count_once(world: World) -> None:
    """Of two threads with the same attempt one commits and the other finds it done."""
    batch = claimed(world, planned(world))
    outcomes = in_threads(2, lambda: commit(world, batch, result(batch)))
    assert sorted(outcomes) == [False, True]
    assert world.counts() == {"2017-07-30 14:09": 6}


def in_threads(count: int, work: Callable[[], object]) -> list[object]:
    """The results of the work in so many threads that start at once."""
    barrier = threading.Barrier(count)
    outcomes: list[object] = []

    def start() -> None:
        barrier.wait()
        outcomes.append(work())

    threads = [threading.Thread(target=start) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def test_a_read_only_server_is_waited_for(world: World) -> None:
    """While MySQL is read-only a commit fails, retryable, and writes nothing; a retry commits."""
    batch = claimed(world, planned(world))
    with closing(world.connect_as_root()) as root, root.cursor() as cursor:
        cursor.execute("set global super_read_only = on")
        try:
            with pytest.raises(MySQLUnavailableError, match="read-only"):
                commit(world, batch, result(batch))
        finally:
            cursor.execute("set global super_read_only = off")
            cursor.execute("set global read_only = off")
    assert_untouched(world)
    assert commit(world, batch, result(batch))


def test_a_dead_letter_larger_than_a_packet_is_refused_whole(world: World) -> None:
    """A statement that MySQL's packet size cannot take rolls everything back."""
    batch = claimed(world, planned(world))
    found = result(batch, letters=1)
    huge = [
        replace(letter, value=b"x" * 5_000_000, value_bytes=5_000_000)
        for letter in found.dead_letters
    ]
    found = replace(found, dead_letters=huge)
    with (
        world.global_variable("max_allowed_packet", 1048576),
        pytest.raises((StatementError, MySQLUnavailableError)),
    ):
        commit(world, batch, found)
    assert_untouched(world)


def many_chunks(world: World) -> tuple[Batch, Result]:
    """A batch of 5,000 records: more minutes and more dead letters than one INSERT holds."""
    world.produce([LINE] * 5000, 0)
    batch = world.plan().batch
    assert batch is not None
    batch = claimed(world, batch)
    partition = batch.segments[0].range.partition
    minutes = [
        f"2017-07-{d:02} {h:02}:{m:02}:00"
        for d in range(1, 4)
        for h in range(24)
        for m in range(60)
    ]
    letters = [_dead_letter(partition, offset) for offset in range(5000 - len(minutes))]
    assert len(minutes) > CONTRIBUTIONS_PER_INSERT
    assert len(letters) > DEAD_LETTERS_PER_INSERT
    totals = SegmentTotals(
        records=5000,
        matched=len(minutes),
        unmatched=0,
        malformed=len(letters),
        first_offset=0,
        last_offset=4999,
    )
    return batch, Result(
        totals={partition: totals},
        contributions=[
            Contribution(partition=partition, log_time=minute, log_count=1) for minute in minutes
        ],
        dead_letters=letters,
        version=__version__,
        format_fingerprint="test",
    )


def test_many_minutes_and_dead_letters_commit_in_chunks(world: World) -> None:
    """More rows than one INSERT holds arrive all the same."""
    batch, found = many_chunks(world)
    assert commit(world, batch, found)
    assert len(world.counts()) == found.totals[world.partition(0)].matched
    assert len(world.dead_letters()) == found.totals[world.partition(0)].malformed
    assert world.audit().holds


def test_a_commit_that_fails_after_many_chunks_leaves_none_of_them(world: World) -> None:
    """All that was written before is rolled back; the next try commits all of it."""
    batch, found = many_chunks(world)

    def fail() -> None:
        raise MySQLUnavailableError("the connection broke (a test)")

    failing = replace(
        world.database, listen=at_statement("^update segment s join json_table", fail)
    )
    with pytest.raises(MySQLUnavailableError, match="a test"):
        commit(world.through(database=failing), batch, found)
    assert_untouched(world)
    left = world.rows(
        "select count(*) as n from segment_count c join segment s using (segment_id)"
        " where s.batch_id = %s",
        (batch.batch_id,),
    )
    assert left == [{"n": 0}]
    assert commit(world, batch, found)
    assert len(world.dead_letters()) == found.totals[world.partition(0)].malformed
    assert world.audit().holds


def planned_over(world: World, partitions: int) -> Batch:
    """A batch over three more offsets in each of so many partitions, of a Kafka of values."""
    held = world.offsets()
    ends = {n: held.get(n, (0, 0))[1] + 3 for n in range(partitions)}
    of_topic = TopicSnapshot(
        topic_id="of values",
        partitions={n: PartitionSnapshot(earliest=0, end=end) for n, end in ends.items()},
    )
    kafka = FixedKafka(KafkaSnapshot(cluster_id="of values", topics={world.topic: of_topic}))
    batch = plan_batch(world.context(kafka=kafka), world.name).batch
    assert batch is not None
    return batch


def test_many_partitions_commit_in_few_statements(world: World) -> None:
    """None of them has a statement of its own."""
    statements: dict[int, list[str]] = {10: [], 2_500: []}
    for partitions, said in statements.items():
        batch = claimed(world, planned_over(world, partitions))
        assert len(batch.segments) == partitions
        listening = world.through(database=replace(world.database, listen=said.append))
        assert commit(listening, batch, result(batch))
    assert len(statements[2_500]) <= len(statements[10]) + 10
    assert world.counts() == {"2017-07-30 14:09": 3 * (10 + 2_500)}
    assert {segment["state"] for segment in world.segments()} == {"live"}
    assert world.audit().holds
