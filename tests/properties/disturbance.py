"""Disturbances: faults of the connection or the server, killed processes, concurrent operations.

Connections to MySQL are real and go by way of a proxy, which plays :mod:`tests.properties.faults`.
They are kept for the next transaction, as opening one costs more than most transactions do.
"""

import select
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pymysql.constants import SERVER_STATUS

from tally.clock import Clock
from tally.config.servers import MySQLSettings
from tally.errors import TallyError
from tally.mysql.connection import connect
from tests.properties.faults import Fault, Faults
from tests.protocol.recorder import watch
from tests.proxy import Proxy

if TYPE_CHECKING:
    import pymysql

    from tests.properties.operations import Operation
    from tests.protocol.recorder import Recorder

_READ_ONLY_TRANSACTION = 0x2000  # of the server's status flags; PyMySQL has no name for it


@dataclass(frozen=True, slots=True)
class Rival:
    """Another process runs a whole operation in the ``after``-th gap between transactions."""

    after: int
    does: "Operation"


Disturbance = Fault | Rival

Way = tuple[int, bool]
"""How a connection was opened: its lock wait timeout, and whether past the proxy."""


class Killed(BaseException):
    """The process was killed; none of its clean-up runs."""


@dataclass(slots=True)
class Wire:
    """The connections of the code under test."""

    proxy: Proxy
    """The proxy through which they go."""
    faults: Faults
    recorder: "Recorder | None" = None
    """Of the pipeline under test."""
    rival: Rival | None = None
    rival_came: bool = False
    """Whether it ran in this operation."""
    _is_direct: bool = False
    _idle: dict[Way, list["pymysql.Connection[Any]"]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _lent: dict["pymysql.Connection[Any]", Way] = field(default_factory=dict)
    _gaps: int = 0

    def disturb(self, disturbance: Disturbance | None) -> None:
        """Arm a disturbance for the next operation; None for none."""
        self.faults.arm(disturbance if isinstance(disturbance, Fault) else None)
        self.rival = disturbance if isinstance(disturbance, Rival) else None
        self._gaps = 0
        self.rival_came = False
        # The proxy costs more than most statements; without a fault there is nothing for it to do.
        self._is_direct = disturbance is None and self.faults.seen is None

    def calm(self) -> None:
        """Disarm what is left when the operation has ended."""
        self.rival = None
        self.faults.disarm()

    def connect(self, settings: MySQLSettings) -> "pymysql.Connection[Any]":
        """Opens a connection for :class:`tally.mysql.transactions.Database`."""
        self._check_alive()
        self.gap()
        way = (settings.lock_wait_timeout_s, self._is_direct)
        connection = self._take_idle(way) or self._open(settings)
        self._lent[connection] = way
        return connection

    @contextmanager
    def past_the_proxy(self) -> Iterator[None]:
        """Connections of checks, without faults."""
        before, self._is_direct = self._is_direct, True
        try:
            yield
        finally:
            self._is_direct = before

    def _take_idle(self, way: Way) -> "pymysql.Connection[Any] | None":
        """An idle connection that the server has not closed; None without one."""
        idle = self._idle[way]
        while idle:
            connection = idle.pop()
            if not select.select([connection._sock], [], [], 0)[0]:  # type: ignore[attr-defined]
                return connection
            connection.close()
        return None

    def _open(self, settings: MySQLSettings) -> "pymysql.Connection[Any]":
        if self._is_direct:
            return self._watched(connect(settings))
        try:
            connection = connect(settings.model_copy(update={"port": self.proxy.port}))
        except TallyError:
            self._check_alive()
            raise
        lose: Callable[[], None] = connection._force_close  # type: ignore[attr-defined]

        def lost() -> None:
            lose()
            self._check_alive()

        # PyMySQL calls this when the connection is lost; a killed process must not notice.
        connection._force_close = lost  # type: ignore[attr-defined]
        return self._watched(connection)

    def _watched(self, connection: "pymysql.Connection[Any]") -> "pymysql.Connection[Any]":
        watch(connection, lambda: self.recorder)
        return connection

    def _check_alive(self) -> None:
        if self.faults.killed:
            raise Killed

    def close(self, connection: "pymysql.Connection[Any]") -> None:
        """Closes one for :class:`tally.mysql.transactions.Database`, or keeps it for reuse."""
        way = self._lent.pop(connection)
        if not connection.open:
            return
        is_open = _status(connection) & SERVER_STATUS.SERVER_STATUS_IN_TRANS
        session: int = connection.thread_id()  # type: ignore[no-untyped-call]
        if is_open or self.faults.has_cut(session):
            connection.close()  # its transaction was not ended, or the proxy is closing it
        else:
            self._idle[way].append(connection)

    def close_all(self) -> None:
        """Close all connections, and check that the server has none of them."""
        for idle in self._idle.values():
            while idle:
                idle.pop().close()
        self.faults.wait_until_gone(self.proxy.sessions)
        self.faults.check_transactions(self.proxy.sessions)

    def gap(self) -> None:
        """Called between transactions, when the code under test holds no lock: run the rival."""
        rival = self.rival
        if rival is None or any(map(_is_writing, self._lent)):
            return
        self._gaps += 1
        if self._gaps == rival.after:
            self.rival = None
            self.rival_came = True
            self.faults.came["RIVAL"] += 1
            self.faults.do(rival.does)


@dataclass(slots=True)
class Process:
    """The process of one operation; once it is dead, none of its clean-up reaches MySQL."""

    wire: Wire
    is_dead: bool = False

    def connect(self, settings: MySQLSettings) -> "pymysql.Connection[Any]":
        """See :meth:`Wire.connect`."""
        if self.is_dead:
            raise Killed
        return self.wire.connect(settings)


@dataclass(slots=True)
class SkewedClock(Clock):
    """The machine's time plus a skew; sleeping takes no time."""

    skew: timedelta = timedelta(0)
    _slept_s: float = 0.0

    def now(self) -> datetime:
        """The wall clock plus the skew."""
        return datetime.now(UTC) + self.skew

    def monotonic(self) -> float:
        """Seconds slept so far."""
        return self._slept_s

    def sleep(self, seconds: float) -> None:
        """Return at once."""
        self._slept_s += seconds


def _status(connection: "pymysql.Connection[Any]") -> int:
    return int(connection.server_status)  # type: ignore[attr-defined]


def _is_writing(connection: "pymysql.Connection[Any]") -> bool:
    status = _status(connection)
    return bool(
        status & SERVER_STATUS.SERVER_STATUS_IN_TRANS and not status & _READ_ONLY_TRANSACTION
    )
