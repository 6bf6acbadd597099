"""Faults of a connection to MySQL, played on real ones by the proxy in front of the server.

Faults are real: sockets are cut, sessions are killed, the server is read-only. Only errors that a
small server cannot be made to return, such as a full disk, are returned by the proxy, and the
server then never gets the statement.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pymysql.constants import ER
from pymysql.err import OperationalError

from tally import errors
from tests.proxy import Session, statement_of

if TYPE_CHECKING:
    import pymysql

    from tests.properties.operations import Operation


class FaultKind(StrEnum):
    """What happens at a statement."""

    STATEMENT_LOST = "the statement never arrives, and the connection is cut"
    ANSWER_LOST = "the statement is executed, its answer is lost, and the connection is cut"
    PACKET_CUT = "half of the statement's packet arrives, then the connection is cut"
    COMMIT_LOST = "COMMIT never arrives, and the connection is cut"
    COMMIT_ANSWER_LOST = "COMMIT is applied, its answer is lost, and the connection is cut"
    DEADLOCK = "the server rolls the transaction back, as a deadlock's victim"
    LOCK_TIMEOUT = "the statement alone is refused, as after too long a wait for a lock"
    LOCK_HELD = "another session really holds a lock that the statement needs, for too long"
    SESSION_KILLED = "KILL CONNECTION ends the session"
    QUERY_KILLED = "the statement alone is refused, as by KILL QUERY"
    READ_ONLY = "the server becomes read-only, until the operation has ended"
    DISK_FULL = "the server's disk is full"
    TABLE_FULL = "the table's file is full"
    PACKET_TOO_LARGE = "the packet is too large, and the server cuts the connection"
    SHUTTING_DOWN = "the server says that it shuts down, and cuts the connection"
    AUTOCOMMIT_ON = "the session has autocommit on when its transaction begins"
    TABLE_ALTERED = "the result table is altered between two transactions"
    TABLE_REBUILT = "the result table is rebuilt just after a snapshot was taken"
    KILLED_BEFORE = "the process is killed, the statement never arrives"
    KILLED_AFTER = "the process is killed, the statement is executed"
    PAUSED = "the process is paused between two transactions, and others continue"
    PAUSED_AND_LOST = "the process is paused, its session is ended for that, others continue"
    CLOCK_MOVED = "from here on the clock goes wrong by hours or days"
    SERVER_KILLED = "the server is killed, and started again"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at the ``after``-th statement to which its kind applies."""

    after: int
    kind: FaultKind
    then: tuple["Operation", ...] = ()
    """Operations of others while the process is paused, or what happens besides."""
    again: "Fault | None" = None
    """Another fault, later in the same operation."""


class Fired(NamedTuple):
    """A fault that has happened."""

    kind: FaultKind
    statement: str


# Where a fault can happen: patterns of statements.
ANY: Final = ""
WRITE: Final = r"\A\s*(insert|update|delete)"
LOCKING: Final = rf"{WRITE}|for update\Z"
COMMIT: Final = r"\ACOMMIT\Z"
WORK: Final = rf"{LOCKING}|{COMMIT}|\A\s*select"
# A transaction's first statement: the process holds no lock before it.
BEGINNING: Final = r"\Aset session transaction isolation level"
START: Final = r"\Astart transaction"
SNAPSHOT: Final = r"\Astart transaction with consistent snapshot"

GONE_TIMEOUT_S: Final = 30.0

# innodb_trx is cached; reads less than 0.1 s apart do not refresh it.
TRX_CACHE_S: Final = 0.2

# Each of these takes a second or more.
SLOW: Final = (FaultKind.LOCK_HELD, FaultKind.SERVER_KILLED)


class End(NamedTuple):
    """What the client sees of a fault."""

    say: Callable[[], None]
    """Sends the client's answer, or what the server gets in its place."""
    stays_open: bool
    """Whether the connection stays open; otherwise it is cut."""


CUT: Final = End(lambda: None, stays_open=False)


@dataclass(slots=True)
class Faults:
    """Sees each statement at the proxy, and plays the armed fault."""

    open_root: Callable[[], "pymysql.Connection[Any]"]
    """Opens an autocommitting connection with all grants, past the proxy."""
    name: str
    """The pipeline, and its result table."""
    do: Callable[["Operation"], object]
    """Runs an operation of another process."""
    restart: Callable[[], None]
    """Kills the server and restarts it."""
    armed: Fault | None = None
    fired: list[Fired] = field(default_factory=list)
    """The faults of this operation."""
    came: Counter[str] = field(default_factory=Counter)
    """How often each kind has happened in all."""
    killed: bool = False
    """Whether the process under test is dead."""
    failure: BaseException | None = None
    """The error of playing a fault, if there was one."""
    seen: list[str] | None = None
    """Statements of the operation so far; None when they are not recorded."""
    _met: int = 0
    _gone: list[int] = field(default_factory=list)
    _is_read_only: bool = False
    _alterations: int = 0
    _root: "pymysql.Connection[Any] | None" = None

    def arm(self, fault: Fault | None) -> None:
        """Arm a fault for the next operation; None for none."""
        self.armed, self._met = fault, 0
        self.fired.clear()
        self.killed = False

    def disarm(self) -> None:
        """End what a fault has left on the server, once the operation has ended."""
        self.armed = None
        self.killed = False
        if self._is_read_only:
            self.as_root("set global super_read_only = 0")
            self.as_root("set global read_only = 0")
            self._is_read_only = False
        self.wait_until_gone(self._gone)
        self._gone.clear()
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure

    def forget_root(self) -> None:
        """Close the connection with all grants; the next use opens a new one."""
        if self._root is not None and self._root.open:
            self._root.close()
        self._root = None

    def explain(self, error: errors.TallyError) -> bool:
        """Whether a fault of this operation explains an error."""
        return any(isinstance(error, PROFILES[fired.kind].explains) for fired in self.fired)

    def has_cut(self, session: int) -> bool:
        """Whether a fault of this operation ends the session, perhaps after a last answer."""
        return session in self._gone

    def look(self, session: Session, packet: bytes) -> bool:
        """Handle a statement; see :data:`tests.proxy.Look`."""
        statement = statement_of(packet)
        if self.seen is not None:
            self.seen.append(statement)
        fault = self.armed
        if fault is not None and PROFILES[fault.kind].meets(statement):
            self._met += 1
            if self._met >= fault.after:
                return self._fire(fault, session, packet)
        session.server.sendall(packet)
        return True

    def _fire(self, fault: Fault, session: Session, packet: bytes) -> bool:
        self.armed, self._met = None, 0
        seen, self.seen = self.seen, None
        self.fired.append(Fired(fault.kind, statement_of(packet)))
        try:
            end = PROFILES[fault.kind].play(self, fault, session, packet)
        except BaseException as error:  # noqa: BLE001 - raised where the operation ends
            self.failure = error
            end = CUT
        self.seen = seen
        if not end.stays_open:
            self._gone.append(session.thread_id)
        if self.fired and self.armed is None:
            self.came[fault.kind.name] += 1
            self.armed = fault.again
        # Last, because it lets the client continue.
        end.say()
        return end.stays_open

    # --- the connection ends

    def _lose(self, _: Fault, __: Session, ___: bytes) -> End:
        return CUT

    def _lose_answer(self, _: Fault, session: Session, packet: bytes) -> End:
        session.ask(packet)
        return CUT

    def _lose_half(self, _: Fault, session: Session, packet: bytes) -> End:
        session.server.sendall(packet[: len(packet) // 2])
        return CUT

    def _kill_before(self, _: Fault, __: Session, ___: bytes) -> End:
        self.killed = True
        return CUT

    def _kill_after(self, fault: Fault, session: Session, packet: bytes) -> End:
        self.killed = True
        return self._lose_answer(fault, session, packet)

    def _kill_session(self, _: Fault, session: Session, __: bytes) -> End:
        self.as_root(f"kill connection {session.thread_id}")
        # The server's next message is the answer to the statement that it never got.
        words = b""
        with suppress(OSError):
            while data := session.server.recv(4096):
                words += data
        return End(partial(session.client.sendall, words), stays_open=False)

    def _pause_and_lose(self, fault: Fault, session: Session, packet: bytes) -> End:
        end = self._kill_session(fault, session, packet)
        self._pause(fault, session)
        return end

    def _kill_server(self, _: Fault, session: Session, __: bytes) -> End:
        self.restart()
        self._gone.clear()
        session.thread_id = 0  # the new server may give its number to another
        return CUT

    # --- something happens before the statement, which is then forwarded

    def _pause(self, fault: Fault, _: Session) -> None:
        for operation in fault.then:
            self.do(operation)

    def _make_read_only(self, _: Fault, __: Session) -> None:
        self.as_root("set global super_read_only = 1")
        self._is_read_only = True

    def _turn_autocommit_on(self, _: Fault, session: Session) -> None:
        session.execute("set autocommit = 1")

    def _alter_table(self, fault: Fault, _: Session) -> None:
        table = f"tally.`{self.name}`"
        ways = (
            [f"alter table {table} comment = 'altered {self._alterations}'"],
            [
                f"alter table {table} add index seen (log_count)",
                f"alter table {table} drop index seen",
            ],
            [f"analyze table {table}"],
            [f"alter table {table} engine = InnoDB"],
        )
        if self._change_table(fault, ways[self._alterations % len(ways)]):
            self._alterations += 1

    def _change_table(self, fault: Fault, statements: Sequence[str]) -> bool:
        """Run them; False, and nothing has happened, while a commit of ours uses the table."""
        self.as_root("set session lock_wait_timeout = 1")
        try:
            for statement in statements:
                self.as_root(statement)
        except OperationalError as error:
            if error.args[0] != ER.LOCK_WAIT_TIMEOUT:
                raise
            self._keep_armed(fault)
            return False
        finally:
            self.as_root("set session lock_wait_timeout = 20")
        return True

    # --- a lock

    def _deadlock(self, _: Fault, session: Session, __: bytes) -> End:
        session.execute("rollback")
        words = "Deadlock found (a test)"
        return End(partial(session.refuse, ER.LOCK_DEADLOCK, words), stays_open=True)

    def _rebuild_table(self, fault: Fault, session: Session, packet: bytes) -> End:
        answer = session.ask(packet)
        self._change_table(fault, [f"alter table tally.`{self.name}` engine = InnoDB"])
        return End(partial(session.client.sendall, answer.data), stays_open=True)

    def _keep_armed(self, fault: Fault) -> None:
        self.fired.pop()
        self.armed, self._met = fault, fault.after

    def _hold_lock(self, fault: Fault, session: Session, packet: bytes) -> End:
        """Lock all free rows; the fault has happened only if the statement waits for one."""
        locker = self.open_root()
        locker.autocommit(False)
        try:
            with locker.cursor() as cursor:
                cursor.execute("set transaction isolation level read committed")
                for table in ("pipeline", "batch"):
                    cursor.execute(
                        f"select 1 from tally.{table} where pipeline = %s for update skip locked",
                        (self.name,),
                    )
            session.execute("set session innodb_lock_wait_timeout = 1")
            answer = session.ask(packet)
            session.execute("set session innodb_lock_wait_timeout = 20")
        finally:
            locker.rollback()
            locker.close()
        if answer.error != ER.LOCK_WAIT_TIMEOUT:
            self._keep_armed(fault)
        return End(partial(session.client.sendall, answer.data), stays_open=True)

    # --- as the server's root

    def as_root(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Run a statement with all grants; returns the rows."""
        if self._root is None or not self._root.open:
            self._root = self.open_root()
        with self._root.cursor() as cursor:
            cursor.execute(statement, parameters)
            return list(cursor.fetchall())

    def wait_until_gone(self, sessions: Collection[int]) -> None:
        """Wait until the server has rolled back the transactions of lost clients."""
        deadline = time.monotonic() + GONE_TIMEOUT_S
        listed = "select * from information_schema.processlist where id in %s"
        while sessions and (left := self.as_root(listed, [tuple(sessions)])):
            assert time.monotonic() < deadline, f"left on the server: {left}"

    def check_transactions(self, sessions: Collection[int]) -> None:
        """Check that no transaction of these sessions is left."""
        open_ = "select * from information_schema.innodb_trx where trx_mysql_thread_id in %s"
        if sessions and self.as_root(open_, [tuple(sessions)]):
            time.sleep(TRX_CACHE_S)
            left = self.as_root(open_, [tuple(sessions)])
            assert not left, f"left on the server: {left}"


Play = Callable[[Faults, Fault, Session, bytes], End]
"""Plays a fault at a statement's packet; returns what the client sees of it."""


def _refuse(number: int, words: str, *, stays_open: bool = True) -> Play:
    """The server's error by number and text; whether the connection stays open."""

    def play(_: Faults, __: Fault, session: Session, ___: bytes) -> End:
        return End(partial(session.refuse, number, f"{words} (a test)"), stays_open=stays_open)

    return play


def _before(happens: Callable[[Faults, Fault, Session], None]) -> Play:
    """Something happens before the statement, which is then forwarded."""

    def play(faults: Faults, fault: Fault, session: Session, packet: bytes) -> End:
        happens(faults, fault, session)
        return End(partial(session.server.sendall, packet), stays_open=True)

    return play


class Profile(NamedTuple):
    """At which statements a kind of fault can happen, how, and which errors it explains."""

    where: str
    play: Play
    explains: tuple[type[errors.TallyError], ...] = ()

    def meets(self, statement: str) -> bool:
        """Whether it can happen at a statement."""
        return re.search(self.where, statement) is not None


_CUT: Final = (errors.MySQLUnavailableError, errors.OutcomeUnknownError)
_RETRY: Final = (errors.TransactionRetryError,)
_REFUSED: Final = (errors.StatementError,)
_SHUTDOWN: Final = _refuse(ER.SERVER_SHUTDOWN, "Server shutdown in progress", stays_open=False)
_TOO_LARGE: Final = _refuse(ER.NET_PACKET_TOO_LARGE, "Got a packet bigger than", stays_open=False)

PROFILES: Final[dict[FaultKind, Profile]] = {
    FaultKind.STATEMENT_LOST: Profile(ANY, Faults._lose, _CUT),
    FaultKind.ANSWER_LOST: Profile(ANY, Faults._lose_answer, _CUT),
    FaultKind.PACKET_CUT: Profile(ANY, Faults._lose_half, _CUT),
    FaultKind.COMMIT_LOST: Profile(COMMIT, Faults._lose, _CUT),
    FaultKind.COMMIT_ANSWER_LOST: Profile(COMMIT, Faults._lose_answer, _CUT),
    FaultKind.DEADLOCK: Profile(f"{LOCKING}|{COMMIT}", Faults._deadlock, _RETRY),
    FaultKind.LOCK_TIMEOUT: Profile(
        LOCKING, _refuse(ER.LOCK_WAIT_TIMEOUT, "Lock wait timeout exceeded"), _RETRY
    ),
    FaultKind.LOCK_HELD: Profile(LOCKING, Faults._hold_lock, _RETRY),
    FaultKind.SESSION_KILLED: Profile(ANY, Faults._kill_session, _CUT),
    FaultKind.QUERY_KILLED: Profile(
        WORK, _refuse(ER.QUERY_INTERRUPTED, "Query execution was interrupted"), _CUT
    ),
    FaultKind.READ_ONLY: Profile(ANY, _before(Faults._make_read_only), _CUT),
    FaultKind.DISK_FULL: Profile(f"{WRITE}|{COMMIT}", _refuse(ER.DISK_FULL, "Disk full"), _REFUSED),
    FaultKind.TABLE_FULL: Profile(
        WRITE, _refuse(ER.RECORD_FILE_FULL, "The table is full"), _REFUSED
    ),
    FaultKind.PACKET_TOO_LARGE: Profile(WRITE, _TOO_LARGE, _REFUSED),
    FaultKind.SHUTTING_DOWN: Profile(ANY, _SHUTDOWN, _CUT),
    FaultKind.AUTOCOMMIT_ON: Profile(START, _before(Faults._turn_autocommit_on)),
    FaultKind.TABLE_ALTERED: Profile(BEGINNING, _before(Faults._alter_table)),
    FaultKind.TABLE_REBUILT: Profile(SNAPSHOT, Faults._rebuild_table, _RETRY),
    FaultKind.KILLED_BEFORE: Profile(ANY, Faults._kill_before),
    FaultKind.KILLED_AFTER: Profile(ANY, Faults._kill_after),
    FaultKind.PAUSED: Profile(BEGINNING, _before(Faults._pause)),
    FaultKind.PAUSED_AND_LOST: Profile(ANY, Faults._pause_and_lose, _CUT),
    FaultKind.CLOCK_MOVED: Profile(ANY, _before(Faults._pause)),
    FaultKind.SERVER_KILLED: Profile(ANY, Faults._kill_server, _CUT),
}

_TEXT: Final = r"(?:_binary)?'(?:[^'\\]|\\.|'')*'"
_LITERAL: Final = re.compile(rf"{_TEXT}|-?\b\d[\d.e+]*\b")
_LIST: Final = re.compile(
    r"\((?:\?|null)(?:, ?(?:\?|null))*\)(?:,\s*\((?:[?, ]|null)*\))*", re.IGNORECASE
)


def normalised(statement: str) -> str:
    """The statement without its values, on one line."""
    return _LIST.sub("(?)", _LITERAL.sub("?", " ".join(statement.split())))
