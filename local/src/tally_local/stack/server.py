"""The interface of the stack's parts."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from tally_local.stack.processes import Command, Record


class Part(StrEnum):
    """The servers of the stack, in the order in which they are started."""

    KAFKA = "kafka"
    MYSQL = "mysql"
    CLUSTER = "cluster"
    SPARK = "spark"
    AIRFLOW = "airflow"


class PartState(StrEnum):
    """The state of a part; a crashed one was started, was not stopped, and does not run."""

    RUNNING = "running"
    STOPPED = "stopped"
    CRASHED = "crashed"


@dataclass(frozen=True, kw_only=True, slots=True)
class PartStatus:
    """One part at one moment."""

    part: Part
    """Which."""
    state: PartState
    """Its state."""
    address: str | None
    """The address at which it listens when it runs; None before its first start."""
    pid: int | None
    """Its main process; None unless it runs."""
    log: Path
    """The log of its last start."""
    log_tail: tuple[str, ...] = ()
    """The last lines of the log; empty unless it crashed."""


class Server(Protocol):
    """One part: how it is prepared, started and seen to be ready."""

    @property
    def part(self) -> Part:
        """Which."""

    @property
    def ports(self) -> tuple[str, ...]:
        """Names of the ports it listens on; the first one is its address."""

    @property
    def start_timeout_s(self) -> float:
        """How long a start may take on a slow machine."""

    @property
    def stop_timeout_s(self) -> float:
        """How long a clean stop may take before SIGKILL."""

    def prepare(self, ports: Mapping[str, int]) -> Command:
        """Write its configuration, and initialise its data if there is none; returns what to start.

        The caller has made sure that no process of an earlier start is left.
        """

    def is_ready(self, ports: Mapping[str, int], start: Record) -> bool:
        """Whether it is ready; may be called while it starts."""

    def address(self, ports: Mapping[str, int]) -> str:
        """Its address, for people and for clients."""
