"""A TCP proxy in front of MySQL that sees every statement, and breaks what a network breaks.

A callback sees each statement before the server does. It forwards the statement, answers in the
server's place, sends other statements first, or cuts the connection.
"""

import select
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Final, NamedTuple, Self

HEADER: Final = 4
COM_QUERY: Final = 0x03
BUFFER: Final = 65_536
OK, ERR, EOF = 0x00, 0xFF, 0xFE
EOF_BYTES: Final = 9
"""An answer's end is shorter than this; a row may begin with the same byte."""


class Session:
    """One connection of a client; everything happens in the thread that serves it."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.thread_id = 0
        """The server's own number of the connection, for ``KILL``."""

    def serve(self, look: "Look") -> None:
        """Forward in both directions until one side or the callback ends the connection."""
        greeting = self.server.recv(BUFFER)
        self.thread_id = _thread_id(greeting)
        self.client.sendall(greeting)
        poller = select.poll()
        poller.register(self.client, select.POLLIN)
        poller.register(self.server, select.POLLIN)
        while True:
            for ready, _ in poller.poll():
                if ready == self.server.fileno():
                    if not (data := self.server.recv(BUFFER)):
                        return
                    self.client.sendall(data)
                elif not (packet := _read_packet(self.client)):
                    return
                elif packet[3] or packet[HEADER] != COM_QUERY:  # not a statement's first packet
                    self.server.sendall(packet)
                elif not look(self, packet):
                    return

    def ask(self, packet: bytes) -> "Answer":
        """Send a statement to the server; returns its answer, which the client does not get."""
        self.server.sendall(packet)
        return self._read_answer()

    def execute(self, statement: str) -> None:
        """Run a statement in the client's session, without the client's knowledge."""
        payload = bytes([COM_QUERY]) + statement.encode()
        self.ask(struct.pack("<I", len(payload)) + payload)

    def refuse(self, number: int, words: str) -> None:
        """Answer with an error, in the server's place."""
        payload = struct.pack("<BH", ERR, number) + b"#HY000" + words.encode()
        self.client.sendall(struct.pack("<I", len(payload) | 1 << 24) + payload)

    def _read_answer(self) -> "Answer":
        """An OK, an error, or the columns and the rows of a result with their two ends.

        An error may come in place of the rows.
        """
        data, start, ends = b"", 0, 0
        while True:
            while len(data) < start + HEADER or len(data) < start + _length(data, start):
                if not (more := self.server.recv(BUFFER)):
                    raise ConnectionError("the server has closed the connection")
                data += more
            length, first = _length(data, start), data[start + HEADER]
            ends += first == EOF and length < HEADER + EOF_BYTES
            if first == ERR:
                return Answer(data, int(struct.unpack_from("<H", data, start + HEADER + 1)[0]))
            if (start == 0 and first == OK) or ends == 2:
                return Answer(data, None)
            start += length


class Answer(NamedTuple):
    """The server's whole answer to one statement."""

    data: bytes
    error: int | None
    """The number of the error that it ends with; None without one."""


Look = Callable[[Session, bytes], bool]
"""Takes a session and a statement's packet; returns whether the connection stays open."""


class Proxy:
    """Connects to MySQL at ``host`` and ``port``; ``look`` forwards or answers each statement."""

    def __init__(self, host: str, port: int, look: Look) -> None:
        self._target = (host, port)
        self._look = look
        self.sessions: set[int] = set()
        """The server's numbers of all connections so far."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def port(self) -> int:
        """The port on which it listens."""
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        self._thread.join(5)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(self._target) as server:
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            Session(client, server).serve(self._see)

    def _see(self, session: Session, packet: bytes) -> bool:
        self.sessions.add(session.thread_id)
        return self._look(session, packet)


class Cut(StrEnum):
    """Where the connection breaks."""

    BEFORE_COMMIT = "the statement before COMMIT was the last that arrived"
    ANSWER_LOST = "COMMIT was applied, its answer never arrived"


class CommitProxy(Proxy):
    """A proxy that breaks the first ``times`` connections that send COMMIT."""

    def __init__(self, host: str, port: int, cut: Cut, times: int = 1) -> None:
        super().__init__(host, port, self._at_statement)
        self._cut, self._left, self.fired = cut, times, 0

    def _at_statement(self, session: Session, packet: bytes) -> bool:
        if not self._left or statement_of(packet) != "COMMIT":
            session.server.sendall(packet)
            return True
        self._left -= 1
        self.fired += 1
        if self._cut is Cut.ANSWER_LOST:
            session.ask(packet)
        return False


def statement_of(packet: bytes) -> str:
    return packet[HEADER + 1 :].decode(errors="replace")


def _read_packet(source: socket.socket) -> bytes:
    data = source.recv(BUFFER)
    while data and (len(data) < HEADER or len(data) < _length(data, 0)):
        if not (more := source.recv(BUFFER)):
            return b""
        data += more
    return data


def _length(data: bytes, start: int) -> int:
    """Length of the packet that begins there, including its header."""
    return HEADER + int.from_bytes(data[start : start + 3], "little")


def _thread_id(greeting: bytes) -> int:
    """The connection's number, from the server's first packet; 0 if the server refused it."""
    end = greeting.find(0, HEADER + 1) + 1
    if len(greeting) < end + 4 or greeting[HEADER] == ERR:
        return 0
    return int(struct.unpack_from("<I", greeting, end)[0])
