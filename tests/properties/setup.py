"""One pipeline on a real MySQL, behind the proxy that plays faults, emptied for each example."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest
from pydantic import SecretStr

from tally import clock
from tally.config.servers import KafkaSettings, MySQLSettings
from tally.config.settings import Settings
from tally.mysql import transactions as mysql
from tally.app.migrate import migrate
from tally.mysql.transactions import Database
from tally.pipeline import minute, prune, replay
from tally.spark import counting
from tally_local.stack.server import Part
from tally_local.stack.stack import Stack
from tests.properties.disturbance import Wire
from tests.properties.faults import Faults
from tests.properties.operations import Operation
from tests.properties.pipeline import TOPIC, PipelineUnderTest
from tests.proxy import Proxy
from tests.world import make_settings

NAME = "anything"

NewPipeline = Callable[[], PipelineUnderTest]

# Children first; what points at its own kind is let go by the session's foreign_key_checks.
_WIPE: Sequence[str] = (
    "delete c from segment_count c join segment using (segment_id) join batch b using (batch_id)",
    "delete d from dead_letter d join segment using (segment_id) join batch b using (batch_id)",
    "delete r from replacement r join segment using (segment_id) join batch b using (batch_id)",
    "delete s from segment s join batch b using (batch_id)",
    "delete b from batch b",
    "delete b from replay b",
    "delete b from folded_count b",
    "delete l from lost_range l join topic_incarnation b using (incarnation_id)",
    "delete o from partition_offset o join topic_incarnation b using (incarnation_id)",
    "delete b from topic_incarnation b",
    "delete b from pipeline b",
)

_SESSION: Sequence[str] = (
    "set session foreign_key_checks = 0",
    "set session transaction isolation level read committed",
    "set session wait_timeout = 28800",
)


def settings_for(stack: Stack, folder: Path) -> Settings:
    """The configuration of the pipeline, with its result table."""
    settings = make_settings(stack, folder / "tally.toml", {NAME: {"topics": [TOPIC]}})
    migrate(Database(settings=settings.mysql), settings)
    # The proxy reads what is said, so nothing is encrypted.
    plain = settings.mysql.model_copy(update={"tls": "disabled"})
    return settings.model_copy(update={"mysql": plain})


@contextmanager
def pipelines(settings: Settings, stack: Stack, *, is_own: bool = False) -> Iterator[NewPipeline]:
    """Makes pipelines with an empty ledger; only the newest one can be used.

    Args:
        settings: See :func:`settings_for`.
        stack: Whose MySQL it is.
        is_own: Whether nobody else uses that server: then it need not write to the disk at each
            COMMIT, which a SIGKILL does not ask for.
    """
    current: list[PipelineUnderTest] = []
    root = stack.credentials().mysql_root
    as_root = settings.mysql.model_copy(update={"user": "root", "password": SecretStr(root)})
    open_real = mysql._connect

    def open_connection(mysql_settings: MySQLSettings) -> "pymysql.Connection[Any]":
        connection = open_real(mysql_settings, autocommit=True)
        _prepare(connection)
        return connection

    def hurry() -> None:
        if is_own:
            faults.as_root("set global innodb_flush_log_at_trx_commit = 2")

    def do(operation: Operation) -> str:
        return current[-1].do(operation)

    def restart() -> None:
        stack.kill(Part.MYSQL)
        stack.up([Part.MYSQL])
        proxy.sessions.clear()  # the server begins to number them anew
        faults.forget_root()
        hurry()
        connection.close()
        connection.connect()
        _prepare(connection)

    faults = Faults(
        open_root=lambda: open_connection(as_root),
        name=NAME,
        do=do,
        restart=restart,
    )
    with ExitStack() as ends:
        proxy = ends.enter_context(Proxy(settings.mysql.host, settings.mysql.port, faults.look))
        connection = ends.enter_context(closing(open_connection(settings.mysql)))
        ends.callback(faults.forget_root)
        faults.make_writable()  # a run that was killed may have left it otherwise
        hurry()
        wire = Wire(open_real=open_real, proxy=proxy, faults=faults)
        ends.callback(wire.close_all)
        patch = ends.enter_context(pytest.MonkeyPatch.context())
        _patch(patch, wire, current)

        def new() -> PipelineUnderTest:
            wire.disturb(None)
            wire.skew = timedelta(0)
            with connection.cursor() as cursor:
                for statement in _WIPE:
                    cursor.execute(f"{statement} where b.pipeline = %s", (NAME,))
                cursor.execute(f"delete from `{NAME}`")
            made = PipelineUnderTest(settings, NAME, connection, wire)
            made.kafka.asked = wire.gap
            current[:] = [made]
            return made

        yield new


def _prepare(connection: "pymysql.Connection[Any]") -> None:
    """Let one of the test's own read what is committed, wipe the ledger, and be silent."""
    with connection.cursor() as cursor:
        for statement in _SESSION:
            cursor.execute(statement)


def _patch(patch: pytest.MonkeyPatch, wire: Wire, current: list[PipelineUnderTest]) -> None:
    """Put the model in Kafka's and Spark's place, and let nothing wait."""

    def kafka(_: KafkaSettings) -> Any:
        return current[-1].kafka

    def count_ranges(*arguments: Any, **options: Any) -> Any:
        return current[-1].count_ranges(*arguments, **options)

    def around(module: Any, name: str, method: str) -> None:
        real = getattr(module, name)

        def call(*arguments: Any) -> Any:
            return getattr(current[-1], method)(real, *arguments)

        patch.setattr(module, name, call)

    patch.setattr(mysql, "_connect", wire.connect)
    patch.setattr(mysql, "_close", wire.close)
    waited_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal waited_s
        waited_s += seconds

    in_no_time = SimpleNamespace(sleep=sleep, monotonic=lambda: waited_s)
    for module in (mysql, minute, replay):
        patch.setattr(module, "time", in_no_time)
    for module in (minute, replay):
        patch.setattr(module, "OUTCOME_PATIENCE_S", 5.0)
    patch.setattr(clock, "now", lambda: datetime.now(UTC) + wire.skew)
    patch.setattr(minute, "Kafka", kafka)
    patch.setattr(replay, "Kafka", kafka)
    patch.setattr(prune, "Kafka", kafka)
    patch.setattr(counting, "count_ranges", count_ranges)
    around(minute, "_count_and_commit", "count_and_commit")
    around(minute, "commit_once", "commit_once")
    around(minute, "_release", "release")
