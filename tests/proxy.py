"""A TCP proxy in front of MySQL that breaks the connection at COMMIT, as a network does."""

import socket
import threading
from contextlib import suppress
from enum import StrEnum
from types import TracebackType
from typing import Self

HEADER = 4
COM_QUERY = 0x03
BUFFER = 65_536


class Cut(StrEnum):
    """Where the connection breaks."""

    BEFORE_COMMIT = "the statement before COMMIT was the last that arrived"
    ANSWER_LOST = "COMMIT was applied, its answer never arrived"


class CommitProxy:
    """Forwards to MySQL; the first ``times`` connections that send COMMIT are broken there.

    Args:
        host: MySQL's host.
        port: MySQL's port.
        cut: Where to break.
        times: How often.
    """

    def __init__(self, host: str, port: int, cut: Cut, times: int = 1) -> None:
        self._target = (host, port)
        self._cut = cut
        self._left = times
        self.fired = 0
        self._answered = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        self._thread.join(5)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as server:
            answers = threading.Thread(target=self._pump, args=(server, client), daemon=True)
            answers.start()
            with suppress(OSError):
                while data := client.recv(BUFFER):
                    if self._left and _is_commit(data):
                        self._left -= 1
                        self.fired += 1
                        self._break(client, server, data)
                        return
                    server.sendall(data)

    def _break(self, client: socket.socket, server: socket.socket, commit: bytes) -> None:
        # The client first: from here on no answer reaches it.
        client.shutdown(socket.SHUT_RDWR)
        if self._cut is Cut.ANSWER_LOST:
            server.sendall(commit)
            self._answered.wait(10)
        # A close alone would wait for the thread that reads the answers.
        server.shutdown(socket.SHUT_RDWR)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(BUFFER):
                if self.fired:
                    self._answered.set()
                sink.sendall(data)


def _is_commit(data: bytes) -> bool:
    return data[HEADER : HEADER + 1] == bytes([COM_QUERY]) and data[HEADER + 1 :] == b"COMMIT"
