"""A small pool of connections to read with, for pages that are requested again and again."""

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pymysql

from tally.config.servers import MySQLSettings
from tally.mysql.connection import connect_to_read

IDLE_MAX_S: Final = 15.0
"""Seconds after which an idle connection is not used again."""
IDLE_CONNECTIONS_MAX: Final = 4


class ConnectionPool:
    """Opens connections to read with, and uses some of those that are given back again.

    A login costs as much as several queries. An idle connection is pinged before it is used, as the
    server may have closed it. From any thread.

    Args:
        clock: Seconds that only go on.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._idle: deque[tuple[float, MySQLSettings, pymysql.Connection[Any]]] = deque()
        self._of: dict[int, MySQLSettings] = {}

    def open(self, settings: MySQLSettings) -> "pymysql.Connection[Any]":
        """An idle connection with these settings that still answers, or else a new one.

        Raises:
            TallyError: As :func:`tally.mysql.connection.connect_to_read`.
        """
        while True:
            try:
                since, known, connection = self._idle.pop()
            except IndexError:
                connection = connect_to_read(settings)
                break
            if known == settings and self._clock() - since < IDLE_MAX_S and _answers(connection):
                break
            _end(connection)
        self._of[id(connection)] = settings
        return connection

    def close(self, connection: "pymysql.Connection[Any]") -> None:
        """Keep a connection that was given back, or close it."""
        settings = self._of.pop(id(connection), None)
        if settings is None or not connection.open or len(self._idle) >= IDLE_CONNECTIONS_MAX:
            _end(connection)
            return
        self._idle.append((self._clock(), settings, connection))


def _answers(connection: "pymysql.Connection[Any]") -> bool:
    try:
        connection.ping(reconnect=False)
    except (pymysql.err.Error, OSError):
        return False
    return True


def _end(connection: "pymysql.Connection[Any]") -> None:
    with suppress(pymysql.err.Error, OSError):  # it is broken already
        connection.close()
