"""The context of a command or a task: Kafka, MySQL and Spark as the configuration names them."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from tally.config.servers import ReaderSettings, SparkSettings
from tally.config.settings import Settings
from tally.errors import ConfigError, CountTimeoutError
from tally.kafka.client import Kafka
from tally.ledger.batches import Requester
from tally.mysql.connection import connect_to_read
from tally.mysql.pool import ConnectionPool
from tally.mysql.transactions import Database
from tally.pipeline.context import Context, OpenReader, Reader

if TYPE_CHECKING:  # Spark is heavy; most commands do without
    from pyspark.sql import SparkSession

    from tally.spark.progress import OnRead

PAGE_TIMEOUT_S: Final = 5
"""Seconds that a page, or a metric, waits for a server at most."""

OpenSession = Callable[[], AbstractContextManager["SparkSession"]]
"""Opens a Spark session with the Kafka connector, and stops it."""


@contextmanager
def shared(open_session: OpenSession) -> Iterator[OpenSession]:
    """What lends one session to all who ask: opened for the first one, stopped at the end.

    After a count that took too long, with which Spark was ended, whoever asks next gets another.
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
        elsewhere=partial(open_context, settings),
    )
    return context if requester is None else dataclasses.replace(context, requester=requester)


def console_context(settings: Settings, pool: ConnectionPool | None = None) -> Context:
    """The context of pages: its user may only read, and no answer takes long.

    Args:
        settings: The configuration.
        pool: Where connections come from and go to; None for a new one for each transaction.

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
    database = (
        Database(settings=reading, open=connect_to_read)
        if pool is None
        else Database(settings=reading, open=pool.open, close=pool.close)
    )
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
