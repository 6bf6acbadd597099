"""What the steps of a pipeline need from outside, handed in as one value.

Made once at the edge (command line, Airflow, Spark's driver) by :func:`open_context`; nothing is
connected before it is needed. A test makes one of its own, with a fake where it needs one.
"""

import dataclasses
import getpass
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from tally import __version__
from tally.aggregates.counts import CountRequest, Counts
from tally.clock import Clock
from tally.config.servers import ReaderSettings, SparkSettings
from tally.config.settings import Settings
from tally.errors import ConfigError, CountTimeoutError
from tally.kafka.client import Kafka
from tally.kafka.records import whole_ranges
from tally.ledger.batches import Requester
from tally.mysql import transactions
from tally.mysql.connection import ConnectionPool

if TYPE_CHECKING:  # Spark is heavy; most commands do without
    from pyspark.sql import SparkSession

    from tally.spark.reading import OnRead

Database = transactions.Database
"""Where the ledger is; the steps know the store of it by these two names only."""
Transaction = transactions.Transaction
"""An open transaction there."""


class Reader(Protocol):
    """Reads and counts ranges; :class:`tally.spark.counting.SparkReader` implements it."""

    def count(self, request: CountRequest) -> AbstractContextManager[Counts]:
        """The counts of the ranges; they are released at the end of the ``with`` block."""

    def count_each(
        self,
        requests: Sequence[CountRequest],
        work: Callable[[CountRequest, Counts], Any],
        open_set: Callable[[CountRequest], Any] | None = None,
    ) -> Iterator[tuple[CountRequest, Any]]:
        """What ``work`` makes of the counts of each request's only range, where it is read.

        With ``open_set`` the counted lines are kept there, too.
        """


OpenReader = Callable[[], AbstractContextManager[Reader]]
"""Opens a reader; called only when there is something to read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How often and how long a step asks again before it accepts an answer or gives up."""

    doubt_tries: int = 3
    """How often Kafka is asked before an answer that would block a partition is accepted."""
    doubt_pause_s: float = 1.0
    """Seconds between two tries; Kafka may answer from stale metadata."""
    outcome_s: float = 120.0
    """Seconds for which the ledger is asked whether a COMMIT without an answer was applied."""


def this_process() -> Requester:
    """The default requester: this process, ``user@host:pid``, with the installed version."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no passwd entry
        user = str(os.getuid())
    return Requester(name=f"{user}@{socket.gethostname()}:{os.getpid()}", version=__version__)


def in_no_task() -> "Context":
    """For a context that cannot be opened in another process."""
    raise ValueError("this context cannot be opened in a Spark task")


@dataclass(frozen=True, kw_only=True, slots=True)
class Context:
    """Configuration, servers and requester of a step."""

    settings: Settings
    """The configuration."""
    database: Database
    """Where the ledger and the counts are; its clock is used by all steps."""
    kept_in: Database | None = None
    """Where lines are kept, if not there."""
    kafka: Kafka
    """The cluster."""
    open_reader: OpenReader
    """How records are read."""
    in_task: "OpenContext" = in_no_task
    """Makes a context of the same servers in a Spark task, where nothing is read; picklable."""
    requester: Requester = field(default_factory=this_process)
    """Who runs the step, and with which version of the code."""
    patience: Patience = field(default_factory=Patience)
    """How long to wait."""

    @property
    def rows(self) -> Database:
        """Where lines are kept."""
        return self.kept_in or self.database

    @property
    def clock(self) -> Clock:
        """The database's clock, so that a step reads and writes times of one clock."""
        return self.database.clock


OpenContext = Callable[[], Context]
"""Makes a context in another process; picklable."""


PAGE_TIMEOUT_S: Final = 5
"""Seconds that a page, or a metric, waits for a server at most."""

OpenSession = Callable[[], AbstractContextManager["SparkSession"]]
"""Opens a Spark session with the Kafka connector, and stops it."""


@contextmanager
def shared(open_session: OpenSession) -> Iterator[OpenSession]:
    """What lends one session to all who ask: opened for the first one, stopped at the end.

    After a count that took too long, with which Spark was ended, the next caller gets another.
    """
    with ExitStack() as scope:
        opened: list[SparkSession] = []

        @contextmanager
        def lend() -> Iterator["SparkSession"]:
            if not opened:
                opened.append(scope.enter_context(open_session()))
            try:
                yield opened[0]
            except CountTimeoutError:
                opened.clear()
                scope.close()
                raise

        yield lend


def open_context(
    settings: Settings,
    *,
    requester: Requester | None = None,
    open_session: OpenSession | None = None,
) -> Context:
    """The context that a configuration names; nothing is connected before it is needed.

    Args:
        settings: The configuration.
        requester: Recorded in the ledger with what is done; this process when None.
        open_session: Opens a Spark session; when None, a new one as configured.
    """
    context = Context(
        settings=settings,
        database=Database(settings=settings.mysql),
        kept_in=results_database(settings),
        kafka=Kafka(settings.kafka),
        open_reader=spark_reader(settings, open_session or partial(own_session, settings.spark)),
        in_task=partial(open_context, settings),
    )
    return context if requester is None else dataclasses.replace(context, requester=requester)


def console_context(settings: Settings, pool: ConnectionPool) -> Context:
    """The context of pages: its user may only read, and no answer takes long.

    Args:
        settings: The configuration.
        pool: Where connections come from and go to.

    Raises:
        ConfigError: No user is configured to read with.
    """
    console, mysql = settings.console, settings.mysql
    if console.user is None:
        raise ConfigError(
            "the console has no user of MySQL to read with",
            next_step="create a user that may only SELECT, as docs/runbook.md says (the console's "
            "user), and name it in Airflow's connection tally_console or as console.user",
        )
    reading = ReaderSettings.model_construct(
        **{
            **dict(mysql),
            "user": console.user,
            "password": console.password,
            "connect_timeout_s": min(mysql.connect_timeout_s, PAGE_TIMEOUT_S),
            "statement_timeout_s": console.statement_timeout_s,
        }
    )
    database = Database(settings=reading, open=pool.open, close=pool.close)
    return with_kafka_timeout(dataclasses.replace(open_context(settings), database=database))


def with_kafka_timeout(ctx: Context, timeout_s: float = PAGE_TIMEOUT_S) -> Context:
    """The same, with a Kafka that is not waited for for long: what it says is only to be shown.

    Args:
        ctx: A context.
        timeout_s: Seconds that each question may take at most.
    """
    kafka = ctx.settings.kafka
    shorter = min(kafka.request_timeout_s, timeout_s)
    quick = kafka.model_copy(update={"request_timeout_s": shorter})
    return dataclasses.replace(ctx, kafka=Kafka(quick))


def results_database(settings: Settings) -> Database | None:
    """Where lines are kept; None for the ledger's database."""
    return None if settings.results is None else Database(settings=settings.results)


def spark_reader(
    settings: Settings, open_session: OpenSession, on_read: "OnRead | None" = None
) -> OpenReader:
    """A function that opens a reader; Spark is imported and started with the first reader.

    Args:
        settings: How Kafka is reached.
        open_session: Opens a Spark session.
        on_read: Called from another thread with the offsets of a read that are done, and with all.
    """

    @contextmanager
    def opened() -> Iterator[Reader]:
        from tally.spark.counting import SparkReader  # noqa: PLC0415 - Spark is heavy

        with open_session() as session:
            yield SparkReader(
                session=session,
                kafka=settings.kafka,
                read_whole=partial(whole_ranges, settings.kafka),
                spool_dir=settings.spark.spool_dir,
                on_read=on_read,
            )

    return opened


def own_session(
    settings: SparkSettings, *, needs_kafka: bool = True
) -> AbstractContextManager["SparkSession"]:
    """A Spark session of this process's own; Spark is imported when it is called."""
    from tally.spark.session import spark_session  # noqa: PLC0415 - Spark is heavy

    return spark_session(settings, "tally", needs_kafka=needs_kafka)
