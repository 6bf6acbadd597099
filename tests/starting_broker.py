"""A broker that has just started: it answers, and may not know of any broker yet, itself included.

A real broker is in that state for some milliseconds only. It speaks as much of Kafka's protocol as
a client needs to learn of the cluster and of a group: ``ApiVersions``, ``Metadata``,
``FindCoordinator``, ``DescribeGroups`` and ``OffsetFetch``.
"""

import socket
import struct
import threading
from contextlib import suppress
from typing import Final, Self

HOST: Final = "127.0.0.1"

_METADATA: Final = 3
_METADATA_VERSION: Final = 12
_OFFSET_FETCH: Final = 9
_OFFSET_FETCH_VERSION: Final = 2
_FIND_COORDINATOR: Final = 10
_DESCRIBE_GROUPS: Final = 15
_API_VERSIONS: Final = 18
_API_VERSIONS_VERSION: Final = 3
_NO_TAGS: Final = b"\0"
_NONE: Final = b"\1"  # an empty array, in the compact form


class StartingBroker:
    """Listens on a free port inside the ``with`` block."""

    def __init__(self) -> None:
        self._server = socket.create_server((HOST, 0))
        self._port = self._server.getsockname()[1]
        self.address = f"{HOST}:{self._port}"
        """For ``bootstrap.servers``."""
        self.knows_brokers = True
        """Whether its next answers name a broker: itself."""
        self.refusals: list[int] = []
        """With which errors the next questions about a group are answered."""
        self.has_offset = False
        """Whether each group has an offset of ``alog``."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, client.makefile("rb") as requests, suppress(OSError):
            while size := requests.read(4):
                request = requests.read(*struct.unpack(">i", size))
                key, version, number = struct.unpack(">hhi", request[:8])
                answer = struct.pack(">i", number) + self._answer(key, version, request[8:])
                client.sendall(struct.pack(">i", len(answer)) + answer)

    def _answer(self, key: int, version: int, rest: bytes) -> bytes:
        if (key, version) == (_API_VERSIONS, _API_VERSIONS_VERSION):
            served = (
                (_METADATA, 0, _METADATA_VERSION),
                (_OFFSET_FETCH, 0, _OFFSET_FETCH_VERSION),
                (_FIND_COORDINATOR, 0, 0),
                (_DESCRIBE_GROUPS, 0, 0),
                (_API_VERSIONS, 0, version),
            )
            listed = b"".join(struct.pack(">hhh", *of) + _NO_TAGS for of in served)
            return struct.pack(">hb", 0, len(served) + 1) + listed + struct.pack(">i", 0) + _NO_TAGS
        if (key, version) == (_FIND_COORDINATOR, 0):
            return struct.pack(">hi", 0, 1) + _string(HOST) + struct.pack(">i", self._port)
        if (key, version) == (_DESCRIBE_GROUPS, 0):
            # One group, of which nothing is said: no state, protocol or member.
            (client,) = struct.unpack(">h", rest[:2])
            group = rest[2 + client + 4 :]  # behind the client's name and the number of groups
            said = _string("") * 3 + struct.pack(">i", 0)
            return struct.pack(">ih", 1, self._refusal()) + group + said
        if (key, version) == (_OFFSET_FETCH, _OFFSET_FETCH_VERSION):
            return self._offsets()
        assert (key, version) == (_METADATA, _METADATA_VERSION)
        brokers, controller = _NONE, -1
        if self.knows_brokers:
            itself = struct.pack(">i", 1) + _text(HOST) + struct.pack(">i", self._port)
            brokers, controller = b"\2" + itself + b"\0" + _NO_TAGS, 1
        cluster = _text("cluster") + struct.pack(">i", controller)
        return _NO_TAGS + struct.pack(">i", 0) + brokers + cluster + _NONE + _NO_TAGS

    def _refusal(self) -> int:
        return self.refusals.pop(0) if self.refusals else 0

    def _offsets(self) -> bytes:
        if refusal := self._refusal():
            return struct.pack(">ih", 0, refusal)
        partition = struct.pack(">iiq", 1, 0, 7 if self.has_offset else -1) + _string("")
        return struct.pack(">i", 1) + _string("alog") + partition + struct.pack(">hh", 0, 0)


def _string(text: str) -> bytes:
    """A string in the older form."""
    return struct.pack(">h", len(text)) + text.encode()


def _text(text: str) -> bytes:
    """A string in the compact form."""
    return bytes([len(text) + 1]) + text.encode()
