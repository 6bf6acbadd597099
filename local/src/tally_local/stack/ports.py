"""Free ports, chosen once and remembered.

They are chosen at random below the range that the kernel uses for outgoing connections, so that two
stacks that choose at the same moment rarely take the same port. If they do, the one that cannot
bind it forgets the port and chooses again.
"""

import random
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tally.errors import StackError
from tally_local.stack.home import read_json, write_private_json

PORTS = range(20_000, 32_000)
LOOPBACK = "127.0.0.1"


def is_free(port: int) -> bool:
    """Whether a server could listen on ``port`` of the loopback address at this moment."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as candidate:
        # As the servers do: connections that linger after a restart do not block the port.
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind((LOOPBACK, port))
            candidate.listen(1)
        except OSError:
            return False
    return True


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one stack by name, kept in a file."""

    path: Path
    """The file."""
    candidates: Sequence[int] = PORTS
    """The ports to choose from."""
    is_free: Callable[[int], bool] = is_free
    """Whether a server could listen on a port at this moment."""

    def remembered(self) -> dict[str, int]:
        """All ports chosen so far."""
        return {str(name): int(port) for name, port in read_json(self.path).items()}

    def choose(self, names: tuple[str, ...]) -> dict[str, int]:
        """A free port for each of ``names``: the remembered one if still free, else a new one.

        Call it only for servers that are not running, as their own ports would not be free.
        """
        ports = self.remembered()
        for name in names:
            if name not in ports or not self.is_free(ports[name]):
                ports[name] = self._new(taken=set(ports.values()))
        write_private_json(self.path, ports)
        return {name: ports[name] for name in names}

    def _new(self, taken: set[int]) -> int:
        for port in random.SystemRandom().sample(self.candidates, len(self.candidates)):
            if port not in taken and self.is_free(port):
                return port
        raise StackError(
            f"no free port from {self.candidates[0]} to {self.candidates[-1]}",
            next_step="see what listens there: ss -ltn",
        )
