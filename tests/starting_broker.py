"""A broker that has just started: it answers, and may not know of any broker yet, itself included.

A real broker is in that state for some milliseconds only. It speaks as much of Kafka's protocol as
a client needs to learn of the cluster: ``ApiVersions`` and ``Metadata``.
"""

import socket
import struct
import threading
from contextlib import suppress
from typing import Final, Self

HOST: Final = "127.0.0.1"

_METADATA: Final = 3
_METADATA_VERSION: Final = 12
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
                answer = struct.pack(">i", number) + self._answer(key, version)
                client.sendall(struct.pack(">i", len(answer)) + answer)

    def _answer(self, key: int, version: int) -> bytes:
        if (key, version) == (_API_VERSIONS, _API_VERSIONS_VERSION):
            served = ((_METADATA, 0, _METADATA_VERSION), (_API_VERSIONS, 0, version))
            listed = b"".join(struct.pack(">hhh", *of) + _NO_TAGS for of in served)
            return struct.pack(">hb", 0, len(served) + 1) + listed + struct.pack(">i", 0) + _NO_TAGS
        assert (key, version) == (_METADATA, _METADATA_VERSION)
        brokers, controller = _NONE, -1
        if self.knows_brokers:
            itself = struct.pack(">i", 1) + _text(HOST) + struct.pack(">i", self._port)
            brokers, controller = b"\2" + itself + b"\0" + _NO_TAGS, 1
        cluster = _text("cluster") + struct.pack(">i", controller)
        return _NO_TAGS + struct.pack(">i", 0) + brokers + cluster + _NONE + _NO_TAGS


def _text(text: str) -> bytes:
    """A string in the compact form."""
    return bytes([len(text) + 1]) + text.encode()
