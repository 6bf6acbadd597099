"""One pipeline on a real MySQL, behind the proxy that plays faults, emptied for each example."""

import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pymysql
from pydantic import SecretStr
from pymysql.constants import CLIENT

from tally.config.names import tables_beside
from tally.config.pipeline import Pipeline
from tally.config.servers import MySQLSettings
from tally.config.settings import Settings
from tally.mysql.connection import connect
from tally.mysql.transactions import Database
from tally.set_up.migrate import migrate
from tally_local.stack.server import Part
from tally_local.stack.stack import Stack
from tests.properties.disturbance import Wire
from tests.properties.faults import Faults
from tests.properties.operations import Operation
from tests.properties.pipeline import TOPIC, PipelineUnderTest
from tests.proxy import Proxy
from tests.world import make_settings

NewPipeline = Callable[[], PipelineUnderTest]

# References inside a table are why foreign_key_checks is off.
_LEDGER: Sequence[str] = (
    "segment_count",
    "dead_letter_total",
    "dead_letter",
    "replacement",
    "row_outbox",
    "segment",
    "batch",
    "replay",
    "folded_count",
    "lost_range",
    "partition_offset",
    "progress",
    "completion",
    "amendment",
    "topic_incarnation",
)

_SESSION: Sequence[str] = (
    "set session foreign_key_checks = 0",
    "set session transaction isolation level read committed",
    "set session wait_timeout = 28800",
)


def settings_for(
    stack: Stack, folder: Path, *, by_level: bool = False, in_bytes: bool = False
) -> Settings:
    """The configuration of the pipeline, with its tables; the file is written into the folder."""
    name = f"p_{secrets.token_hex(4)}"
    keys = {
        "topics": [TOPIC],
        "labels": ["level"] if by_level else [],
        "measure": "bytes" if in_bytes else "count",
    }
    # With all that keeps its lines: whether it keeps them is decided for each example.
    files = f"file://{stack.layout.overlay.parent}/kept/{name}"
    for more in (
        {"delivery": "rows"},
        {"delivery": "procedure"},
        {"delivery": "files", "files_url": files},
        {},
    ):
        settings = make_settings(stack, folder / "tally.toml", {name: {**keys, **more}})
        migrate(Database(settings=settings.mysql), settings)
    pipeline = settings.pipelines[name].model_copy(update={"files_url": files})
    # The proxy reads the statements, so the connection is not encrypted. A login waits for all that
    # others do while it is paused: a process that had given up would be a second one beside them.
    longest = {"tls": "disabled", "connect_timeout_s": settings.mysql.statement_timeout_s}
    plain = settings.mysql.model_copy(update=longest)
    return settings.model_copy(update={"mysql": plain, "pipelines": {name: pipeline}})


@contextmanager
def pipelines(settings: Settings, stack: Stack) -> Iterator[NewPipeline]:
    """Creates pipelines with an empty ledger; only the newest one can be used.

    No other test may use the MySQL, as faults kill it or make it read-only.
    """
    current: list[PipelineUnderTest] = []
    (name,) = settings.pipelines
    root = stack.credentials().mysql_root
    as_root = settings.mysql.model_copy(update={"user": "root", "password": SecretStr(root)})

    def open_connection(mysql_settings: MySQLSettings) -> "pymysql.Connection[Any]":
        connection = connect(mysql_settings, autocommit=True, client_flag=CLIENT.MULTI_STATEMENTS)
        _prepare(connection)
        return connection

    def restart() -> None:
        stack.processes.kill(Part.MYSQL)
        stack.up([Part.MYSQL])
        proxy.sessions.clear()  # the server numbers sessions from the start again
        faults.forget_root()
        connection.close()
        connection.connect()
        _prepare(connection)

    def do(operation: Operation) -> str:
        return current[-1].do(operation)

    faults = Faults(lambda: open_connection(as_root), name, do, restart)
    with ExitStack() as ends:
        proxy = ends.enter_context(Proxy(settings.mysql.host, settings.mysql.port, faults.look))
        connection = ends.enter_context(closing(open_connection(settings.mysql)))
        ends.callback(faults.forget_root)
        wire = Wire(proxy, faults)
        ends.callback(wire.close_all)

        def new() -> PipelineUnderTest:
            wire.disturb(None)
            _wipe(connection, settings.pipeline(name))
            made = PipelineUnderTest(settings, name, connection, wire)
            made.kafka.asked = wire.gap
            current[:] = [made]
            return made

        yield new


def _wipe(connection: "pymysql.Connection[Any]", pipeline: Pipeline) -> None:
    """Empty the ledger, also of pipelines before this one, and the pipeline's tables, at once."""
    own = tables_beside(pipeline.table) if pipeline.has_own_tables else ()
    of_lines = [f"{pipeline.table}_{of}" for of in ("rows__kept", "rows__sets", "files__sets")]
    files = Path((pipeline.files_url or "").removeprefix("file://"))
    for below in ("lines", "_open", "_live"):
        shutil.rmtree(files / below, ignore_errors=True)
    tables = (pipeline.table, *own, *of_lines, *_LEDGER)
    statements = [f"delete from `{table}`" for table in tables]
    # With own tables its row records their columns.
    kept = pipeline.name if own else ""
    statements += [
        f"delete from pipeline where pipeline <> '{kept}'",
        "update pipeline set rows_table = null",
    ]
    with connection.cursor() as cursor:
        cursor.execute("; ".join(statements))
        while cursor.nextset():
            pass


def _prepare(connection: "pymysql.Connection[Any]") -> None:
    """Prepare the test's own connection: it reads committed data and may delete from the ledger."""
    with connection.cursor() as cursor:
        for statement in _SESSION:
            cursor.execute(statement)
