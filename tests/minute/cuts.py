"""Connections that the server ends inside a transaction."""

import dataclasses
from contextlib import closing
from typing import TYPE_CHECKING, Any

from tally.config.servers import MySQLSettings
from tally.mysql.connection import connect
from tally.testing.statements import at_statement
from tests.world import World

if TYPE_CHECKING:
    import pymysql


def cut_at(world: World, pattern: str) -> World:
    """The same pipeline; the first connection that is about to send such a statement is killed."""
    opened: list[int] = []

    def open_noted(settings: MySQLSettings) -> "pymysql.Connection[Any]":
        connection = connect(settings)
        opened.append(connection.thread_id())
        return connection

    def kill() -> None:
        with closing(world.connect_as_root()) as root, root.cursor() as cursor:
            cursor.execute(f"kill {opened[-1]}")

    listen = at_statement(pattern, kill)
    return world.through(
        database=dataclasses.replace(world.database, open=open_noted, listen=listen)
    )
