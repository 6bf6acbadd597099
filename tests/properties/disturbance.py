"""What comes between: a connection that breaks, a deadlock, a process killed, a rival.

Connections to MySQL are real. They are kept for the next transaction, as opening one costs more
than most transactions do, and they count the statements that pass, so that one of them can fail.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.constants import CR, ER

if TYPE_CHECKING:
    from tests.properties.operations import Operation


class Break(StrEnum):
    """How a transaction fails."""

    CONNECTION = "the connection breaks at a statement"
    DEADLOCK = "MySQL rolls the transaction back at a statement"
    BEFORE_COMMIT = "the connection breaks, COMMIT never arrived"
    AFTER_COMMIT = "the connection breaks, COMMIT was applied"


@dataclass(frozen=True, slots=True)
class Fault:
    """The ``after``-th statement, or COMMIT, fails."""

    after: int
    how: Break

    @property
    def at_commit(self) -> bool:
        """Whether COMMITs are counted, not statements."""
        return self.how in {Break.BEFORE_COMMIT, Break.AFTER_COMMIT}


@dataclass(frozen=True, slots=True)
class Rival:
    """Somebody else does something whole at the ``after``-th gap between transactions."""

    after: int
    does: "Operation"


Disturbance = Fault | Rival


class Killed(BaseException):
    """The process is gone: nothing that would tidy up runs."""


@dataclass(slots=True)
class Wire:
    """The connections of the code under test."""

    open_real: Callable[..., "pymysql.Connection[Any]"]
    """:func:`tally.mysql._connect`."""
    do: Callable[["Operation"], None]
    """What a rival does."""
    fault: Fault | None = None
    rival: Rival | None = None
    fired: dict[str, int] = field(default_factory=dict)
    """How often each kind of disturbance has come."""
    _idle: list["pymysql.Connection[Any]"] = field(default_factory=list)
    _writing: int = 0
    _seen: int = 0
    _gaps: int = 0

    def disturb(self, disturbance: Disturbance | None) -> None:
        """What the next operation has to bear; None for nothing."""
        self._seen = self._gaps = 0
        self.fault = disturbance if isinstance(disturbance, Fault) else None
        self.rival = disturbance if isinstance(disturbance, Rival) else None

    def connect(self, settings: Any, **_: Any) -> "pymysql.Connection[Any]":
        """In place of :func:`tally.mysql._connect`."""
        self.gap()
        if self._idle:
            return self._idle.pop()
        connection = self.open_real(settings)
        query, commit = connection.query, connection.commit

        def counted_query(sql: Any, unbuffered: bool = False) -> int:
            self._statement(connection)
            self._writing += str(sql).startswith("start transaction read write")
            return int(query(sql, unbuffered))

        def counted_commit() -> None:
            self._commit(connection, commit)

        connection.query = counted_query  # type: ignore[method-assign]
        connection.commit = counted_commit  # type: ignore[method-assign]
        return connection

    def close(self, connection: "pymysql.Connection[Any]") -> None:
        """In place of :func:`tally.mysql._close`."""
        self._writing = 0
        if connection.open:
            connection.rollback()
            self._idle.append(connection)

    def close_all(self) -> None:
        """At the end."""
        while self._idle:
            self._idle.pop().close()

    def gap(self) -> None:
        """A moment at which the code under test holds no lock: here a rival comes."""
        rival = self.rival
        if rival is None or self._writing:
            return
        self._gaps += 1
        if self._gaps == rival.after:
            self.rival = None
            self._count("rival")
            self.do(rival.does)

    def _statement(self, connection: "pymysql.Connection[Any]") -> None:
        fault = self.fault
        if fault is None or fault.at_commit:
            return
        self._seen += 1
        if self._seen == fault.after:
            self.fault = None
            self._count(fault.how.name)
            if fault.how is Break.CONNECTION:
                self._break(connection)
            connection.rollback()
            raise pymysql.err.OperationalError(ER.LOCK_DEADLOCK, "Deadlock found")

    def _commit(self, connection: "pymysql.Connection[Any]", really: Callable[[], None]) -> None:
        fault = self.fault
        if fault is not None and fault.at_commit:
            self._seen += 1
            if self._seen == fault.after:
                self.fault = None
                self._count(fault.how.name)
                if fault.how is Break.AFTER_COMMIT:
                    really()
                self._break(connection)
        really()

    def _break(self, connection: "pymysql.Connection[Any]") -> None:
        # The server would roll back by itself, but some time later.
        connection.rollback()
        connection.close()
        raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, "Lost connection (a test)")

    def _count(self, what: str) -> None:
        self.fired[what] = self.fired.get(what, 0) + 1
