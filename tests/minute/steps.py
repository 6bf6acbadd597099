"""Steps that tests of several files take, and what they read of the ledger afterwards."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from threading import Barrier, Event
from typing import Any, TypeVar
from uuid import uuid4

from tally.counting.plan import Planned
from tally.ledger import batches
from tally.ledger.decisions import decide_losses, find_losses
from tally.ledger.positions import lock_pipeline
from tally.planning.blocks import BlockReason
from tests.fakes import DisturbedKafka, at_statement
from tests.proxy import CommitProxy, Cut
from tests.world import World

T = TypeVar("T")

ERROR = "2017-07-30 14:09:08 ERROR some message"
LATER = "2017-07-30 15:00:00 ERROR some message"
AT, AT_LATER = "2017-07-30 14:09", "2017-07-30 15:00"
"""The minutes of these two lines."""


def ranges(planned: Planned) -> list[tuple[int, int, int]]:
    return [(r.partition.partition, r.from_offset, r.until_offset) for r in planned.ranges]


def reasons(planned: Planned) -> list[tuple[int | None, BlockReason]]:
    return [(block.partition, block.reason) for block in planned.blocks]


def abandoned(world: World, batch_id: int) -> None:
    world.database.run(lambda tx: batches.abandon(tx, batch_id, by="me", reason="a test"))


def count(world: World, *batches: Sequence[str | bytes]) -> None:
    """Count the lines of each list, in a batch of its own."""
    for lines in batches:
        world.produce(lines)
        assert world.minute() is not None


def audited(world: World) -> dict[str, int]:
    """The result, of which the audit says that it is the sum of what was counted."""
    assert world.audit().holds
    return world.counts()


def losses(world: World) -> list[tuple[int, int, int, str, str]]:
    """Partition, range, cause and state of each loss, oldest first."""
    rows = world.rows(
        "select l.* from lost_range l join topic_incarnation i using (incarnation_id)"
        " where i.pipeline = %s order by lost_range_id",
        (world.name,),
    )
    keys = ("partition_id", "from_offset", "until_offset", "cause", "state")
    return [tuple(row[key] for key in keys) for row in rows]  # type: ignore[misc]


def accept(world: World) -> None:
    with world.database.transaction(read_only=True) as tx:
        seen = find_losses(tx, world.name, only_open=True)
    with world.database.transaction() as tx:
        lock_pipeline(tx, world.name, world.name)
        decide_losses(tx, world.name, seen, accept=True, by="an operator", reason="a test")


def set_position(
    world: World, next_offset: int, partition: int = 0, *, start: int | None = None
) -> None:
    """Set a partition's committed offset, and its start where one is given."""
    world.execute(
        "update partition_offset o join topic_incarnation i using (incarnation_id)"
        " set o.next_offset = %s, o.start_offset = coalesce(%s, o.start_offset)"
        " where i.pipeline = %s and o.partition_id = %s",
        (next_offset, start, world.name, partition),
    )


def follow_another(
    world: World, *, topic_id: str | None = None, cluster_id: str | None = None
) -> None:
    """Let the ledger follow another generation; Kafka's is then one that was followed before."""
    mine = (world.name,)
    world.execute("update topic_incarnation set state = 'retired' where pipeline = %s", mine)
    world.execute(
        "insert into topic_incarnation (pipeline, topic, topic_id, cluster_id, seen_at)"
        " select pipeline, topic, coalesce(%s, topic_id), coalesce(%s, cluster_id), seen_at"
        " from topic_incarnation where pipeline = %s",
        (topic_id, cluster_id, *mine),
    )


def produce_transaction(
    world: World, lines: Sequence[str], partition: int = 0, *, commit: bool = True
) -> None:
    """Write lines in one Kafka transaction, whose marker takes an offset without a record."""
    producer = world.producer(**{"transactional.id": str(uuid4())})
    producer.init_transactions(30)
    producer.begin_transaction()
    for line in lines:
        producer.produce(world.topic, value=line, partition=partition)
    producer.flush(30)
    (producer.commit_transaction if commit else producer.abort_transaction)(30)
    world.wait_for_markers(partition)


def disturbed(world: World, statement: str, disturb: Callable[[], Any], times: int = 1) -> World:
    """The same pipeline; something happens just before it sends such a statement."""
    listen = at_statement(statement, disturb, times=times)
    return world.through(database=replace(world.database, listen=listen))


def behind_the_read(world: World, act: Callable[[], None]) -> World:
    """The same pipeline; something happens when a run has read all, and asks Kafka once more."""
    return world.through(kafka=DisturbedKafka(world.context().kafka, before=act))


@contextmanager
def proxied(world: World, cut: Cut, times: int = 1) -> Iterator[tuple[CommitProxy, World]]:
    """The same pipeline, with a ledger behind a proxy that breaks at COMMIT."""
    mysql = world.settings.mysql
    with CommitProxy(mysql.host, mysql.port, cut, times) as proxy:
        database = world.database.adjusted(port=proxy.port, tls="disabled")
        yield proxy, world.through(database=database)


@contextmanager
def held(
    world: World, statement: str, step: Callable[[World], T]
) -> Iterator[tuple[Future[T], Event]]:
    """A step that is held just before such a statement, until the event is set."""
    inside, go_on = Event(), Event()

    def hold() -> None:
        inside.set()
        assert go_on.wait(120)

    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(step, disturbed(world, statement, hold))
        try:
            assert inside.wait(60)
            yield outcome, go_on
        finally:
            go_on.set()


def at_once(*works: Callable[[], T]) -> list[T]:
    """The results of works that begin together, each in a thread of its own."""
    barrier = Barrier(len(works))

    def begin(work: Callable[[], T]) -> T:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(begin, works))


def is_under_way(world: World, statement: str) -> bool:
    """Whether MySQL is at work on such a statement of Tally's, or it waits there for a lock."""
    return bool(
        world.rows(
            "select 1 from information_schema.processlist where user = %s and info like %s",
            (world.settings.mysql.user, statement),
        )
    )
