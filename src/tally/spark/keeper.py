"""Keeps a Spark server running: starts it again when it has ended, hangs, or has a stuck task.

Usage: ``python -m tally.spark.keeper --port PORT [--hung-s SECONDS] -- PROGRAM [ARGUMENT]…``

SIGTERM ends the server, and then the keeper.
"""

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Event, Thread
from typing import Final

import click

from tally.spark.java import LOOPBACK

HUNG_S: Final = 60.0
"""Seconds without an answer after which a server counts as hung."""
STUCK_S: Final = 60
"""Seconds that a cancelled task may go on before the server, or its executor, is replaced."""
STUCK: Final = b"could not be stopped within"
"""What Spark's log reports of a task that goes on after it was cancelled, as a regular expression
may: Java's heed no interrupt. Spark itself then ends an executor, but not a driver that is its
own."""
CHECK_S: Final = 2.0
ANSWER_S: Final = 5.0
STOP_S: Final = 10.0
PAUSE_MAX_S: Final = 30.0
_START_S: Final = 180.0


def main() -> None:
    """Keep a server until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--hung-s", type=float, default=HUNG_S)
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    keep(arguments.command, arguments.port, hung_s=arguments.hung_s)


def stop_on_signals() -> Event:
    """What SIGTERM and SIGINT set from now on, instead of ending the process."""
    stopping = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    return stopping


def keep(
    command: list[str],
    port: int,
    *,
    hung_s: float = HUNG_S,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run a program until SIGTERM or SIGINT; it is started again whenever it has ended.

    What it writes to its standard error is passed on.

    Args:
        command: The program, which listens on the loopback address.
        port: The port on which it answers HTTP/2, as gRPC does.
        hung_s: Seconds without an answer after which it is killed.
        environment: Its environment; this process's by default.
    """
    stopping = stop_on_signals()
    pause_s = 1.0
    while not stopping.is_set():
        began = time.monotonic()
        stuck = Event()
        with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment) as server:
            log = Thread(target=_pass_on, args=(server, stuck), daemon=True)
            log.start()
            ended = _watch(server, port, stopping, stuck, hung_s)
            end([server])
            log.join()
        if not stopping.is_set():
            lived_s = time.monotonic() - began
            pause_s = 1.0 if lived_s > _START_S else min(2 * pause_s, PAUSE_MAX_S)
            again = f"it is started again in {pause_s:.0f} s"
            click.echo(f"keeper: {ended} after {lived_s:.0f} s; {again}")
            stopping.wait(pause_s)


def answers(port: int, timeout_s: float = ANSWER_S) -> bool:
    """Whether a server on the loopback address begins a connection of gRPC."""
    import grpc  # noqa: PLC0415 - the command line does without

    with grpc.insecure_channel(f"{LOOPBACK}:{port}") as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=timeout_s)
        except grpc.FutureTimeoutError:
            return False
    return True


def _pass_on(server: "subprocess.Popen[bytes]", stuck: Event) -> None:
    """Copy a server's log to this process's; ``stuck`` is set when the log reports a stuck task."""
    for line in server.stderr or ():
        with suppress(OSError):  # a full disk: the server must not wait for its log
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()
        if STUCK in line:
            stuck.set()


def _watch(
    server: "subprocess.Popen[bytes]", port: int, stopping: Event, stuck: Event, hung_s: float
) -> str:
    """Return, with the reason, once the server has ended, hangs, is stuck or is to be stopped."""
    patience_s = max(_START_S, hung_s)  # until it has answered once
    last = time.monotonic()
    while not stopping.wait(CHECK_S):
        code = server.poll()
        if code is not None:
            return f"the server has ended with exit code {code}"
        if stuck.is_set():
            return "a task of the server went on after it was cancelled"
        if answers(port):
            last, patience_s = time.monotonic(), hung_s
        elif time.monotonic() - last > patience_s:
            return f"the server has not answered for {patience_s:.0f} s"
    return "stopped"


def end(servers: "Sequence[subprocess.Popen[bytes]]") -> None:
    """End servers with SIGTERM, and those that have not ended some seconds later with SIGKILL."""
    for server in servers:
        server.terminate()
    for server in servers:
        try:
            server.wait(STOP_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
