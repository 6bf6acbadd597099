"""The interface of the stack's parts, and the jars of its servers."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Final

import httpx

from tally.spark.jars import JarList
from tally_local.stack.home import Layout
from tally_local.stack.ports import LOOPBACK
from tally_local.stack.processes import Command

SERVERS: Final = JarList(
    resources.files("tally_local.stack"),
    {"kafka": "Kafka broker (45 MB)", "mariadb": "MariaDB server (149 MB)"},
)
"""By configuration of ``ivy.xml``."""


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


@dataclass(frozen=True, kw_only=True)
class Server(ABC):
    """One part: how it is prepared, started and seen to be ready."""

    layout: Layout
    """The stack's folders."""

    part: ClassVar[Part]
    """Which."""
    ports: ClassVar[tuple[str, ...]]
    """Names of the ports it listens on; the first one is its address."""
    start_timeout_s: ClassVar[float]
    """How long a start may take on a slow machine."""
    stop_timeout_s: ClassVar[float] = 30.0
    """How long a clean stop may take before SIGKILL."""

    @property
    def folder(self) -> Path:
        """Its own files."""
        return self.layout.home / self.part

    @property
    def data(self) -> Path:
        """Its data; there only once they are whole."""
        return self.folder / "data"

    @abstractmethod
    def prepare(self, ports: Mapping[str, int]) -> Command:
        """Write its configuration, and initialise its data if there is none; returns what to start.

        The caller has made sure that no process of an earlier start is left.
        """

    @abstractmethod
    def is_ready(self, ports: Mapping[str, int]) -> bool:
        """Whether it is ready; may be called while it starts."""

    @classmethod
    def address(cls, ports: Mapping[str, int]) -> str:
        """Its address, for people and for clients: ``host:port``."""
        return f"{LOOPBACK}:{ports[cls.ports[0]]}"


def page_of(url: str) -> Any:
    """What a page says as JSON; None while its server does not answer, or answers with an error."""
    try:
        # This machine's own address: a proxy would not find it.
        return httpx.get(url, timeout=5, trust_env=False).raise_for_status().json()
    except (httpx.HTTPError, ValueError):
        return None
