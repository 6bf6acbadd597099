"""An Airflow of several processes: its parts, two Celery workers, and the servers of both.

Redis and PostgreSQL are the machine's own, or Debian's packages below the stack's home.
"""

import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, Self

import psutil

from tally.errors import StackError
from tally_local.demo.airflow_api import AirflowApi
from tally_local.stack.airflow_server import ADMIN, AirflowServer
from tally_local.stack.apt_packages import AptPackages
from tally_local.stack.mysql_program import NOT_NEEDED
from tally_local.stack.one_shot import run
from tally_local.stack.ports import LOOPBACK, Ports, is_free
from tally_local.stack.processes import Command
from tally_local.stack.stack import Stack
from tests.waiting import wait_until

WORKERS: Final = ("worker-1", "worker-2")
AIRFLOW: Final = ("api-server", "scheduler", "dag-processor", *WORKERS)
START_S: Final = 240
VICTIM_S: Final = 180
"""Seconds within which a worker must count."""


class CeleryAirflow:
    """Starts all parts, and again what has ended, until it is closed."""

    def __init__(self, stack: Stack) -> None:
        self._stack, self._processes = stack, stack.processes
        self.restarts: Counter[str] = Counter()
        self.problems: list[str] = []
        self._away: dict[str, float] = {}
        self._closing = threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        # PostgreSQL refuses root, and another user may not enter the stack's home.
        self._data = Path(tempfile.mkdtemp(prefix="tally-postgresql-"))
        self._data.chmod(0o711)
        self._ports = Ports(stack.layout.ports).choose(("airflow", "redis", "postgresql"))
        self._commands: dict[str, Command] = {}

    def __enter__(self) -> Self:
        try:
            self._start_servers()
            self._start_airflow()
        except BaseException:
            self.__exit__()
            raise
        self._keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        if self._keeper.is_alive():
            self._keeper.join()
        for name in reversed(self._commands):
            self._processes.stop(name, timeout_s=20)
        shutil.rmtree(self._data, ignore_errors=True)

    def api(self) -> AirflowApi:
        """Airflow's API."""
        address = AirflowServer.address(self._ports)
        password = self._stack.credentials().airflow_admin
        return AirflowApi(address, ADMIN, password, timeout_s=60)

    def members(self) -> dict[str, list[psutil.Process]]:
        """The processes of each part."""
        return {name: self._processes.members(name) for name in self._commands}

    def counting_worker(self) -> str:
        """A worker that counts a batch at this moment."""
        deadline = time.monotonic() + VICTIM_S
        while time.monotonic() < deadline:
            for name in WORKERS:
                for process in self._processes.members(name):
                    with suppress(psutil.Error):
                        if any(word.endswith("count_errors.py") for word in process.cmdline()):
                            return name
            time.sleep(0.1)
        raise AssertionError(f"no worker has counted for {VICTIM_S} s")

    def kill(self, name: str, *, away_s: float) -> None:
        """Kill a part with all that it has started; it starts again after so many seconds."""
        self._away[name] = time.monotonic() + away_s
        self._processes.kill(name)

    def _keep(self) -> None:
        while not self._closing.wait(1):
            for name in self._commands:
                is_away = time.monotonic() < self._away.get(name, 0)
                if not is_away and self._processes.main_process(name) is None:
                    self._processes.kill(name)  # what it has left
                    self.restarts[name] += 1
                    try:
                        self._start(name)
                    except StackError as error:
                        self.problems.append(f"{name} did not start again: {error}")

    def _start(self, name: str) -> None:
        if name in WORKERS:
            (self._stack.layout.airflow / f"{name}.pid").unlink(missing_ok=True)
        if name == "postgresql":
            (self._data / "data" / "postmaster.pid").unlink(missing_ok=True)
        self._processes.start(name, self._commands[name])

    def _start_servers(self) -> None:
        home = self._stack.layout.home
        redis, packages = _program("redis-server", ["redis-server"], home / "redis")
        (home / "redis-data").mkdir(exist_ok=True)
        self._commands["redis"] = Command(
            argv=(
                *(redis, "--port", str(self._ports["redis"]), "--bind", LOOPBACK),
                *("--dir", str(home / "redis-data"), "--appendonly", "yes"),
            ),
            cwd=home,
            env=_libraries(packages),
        )
        initdb, packages = _program("initdb", ["postgresql"], self._data / "packages")
        data, as_user = self._data / "data", _as_nobody()
        data.mkdir()
        if as_user:
            shutil.chown(data, "nobody", "nogroup")
        run(
            [*as_user, initdb, "-D", str(data), "-U", "airflow", "--auth=trust", "-E", "UTF8"],
            what="PostgreSQL could not initialise its data",
            next_step="read the output above",
            timeout_s=120,
            cwd=self._data,
            environment=_libraries(packages),
        )
        self._commands["postgresql"] = Command(
            argv=(
                *as_user,
                *(str(Path(initdb).with_name("postgres")), "-D", str(data)),
                *("-c", f"listen_addresses={LOOPBACK}", "-p", str(self._ports["postgresql"])),
                *("-c", "unix_socket_directories=", "-c", "max_connections=200"),
            ),
            cwd=self._data,
            env=_libraries(packages),
        )
        for name in ("redis", "postgresql"):
            self._start(name)
            wait_until(partial(self._listens, name), 60)

    def _start_airflow(self) -> None:
        metadata = f"postgresql+psycopg://airflow@{LOOPBACK}:{self._ports['postgresql']}/postgres"
        server = AirflowServer(
            layout=self._stack.layout,
            options={
                "core": {"executor": "CeleryExecutor", "parallelism": 16},
                "database": {"sql_alchemy_conn": metadata, "sql_alchemy_conn_async": metadata},
                "celery": {
                    "broker_url": f"redis://{LOOPBACK}:{self._ports['redis']}/0",
                    "result_backend": f"db+{metadata}",
                    "worker_concurrency": 6,
                    "worker_prefetch_multiplier": 1,
                },
            },
        )
        standalone = server.prepare(self._ports)
        airflow = (sys.executable, "-m", "airflow")
        run(
            [*airflow, "db", "migrate"],
            what="Airflow could not prepare its database",
            next_step="read the output above",
            timeout_s=START_S,
            environment=standalone.env,
        )
        arguments: Mapping[str, Sequence[str]] = {
            name: (
                *("celery", "worker", "--skip-serve-logs", "--celery-hostname", f"{name}@%h"),
                *("--pid", str(self._stack.layout.airflow / f"{name}.pid")),
            )
            if name in WORKERS
            else (name, *(["--skip-serve-logs"] if name == "scheduler" else []))
            for name in AIRFLOW
        }
        for name in AIRFLOW:
            self._commands[name] = replace(standalone, argv=(*airflow, *arguments[name]))
            self._start(name)
        wait_until(self._is_ready, START_S)

    def _is_ready(self) -> bool:
        try:
            health = self.api().ask("GET", "/api/v2/monitor/health")
        except StackError:
            return False
        return bool(health["scheduler"]["status"] == "healthy")

    def _listens(self, name: str) -> bool:
        return not is_free(self._ports[name])


def _program(name: str, packages: Sequence[str], folder: Path) -> tuple[str, Path | None]:
    """A program of the machine, or of Debian's packages, with the root of these."""
    places = [*Path("/usr/lib/postgresql").glob("*/bin"), Path("/usr/bin")]
    if found := next((place / name for place in places if (place / name).exists()), None):
        return str(found), None
    apt = AptPackages(
        folder=folder,
        title=name,
        packages=packages,
        not_needed=NOT_NEEDED,
        instead=f"install {name}",
    )
    apt.install(print)
    return str(next(apt.root.rglob(f"bin/{name}"))), apt.root


def _libraries(packages: Path | None) -> dict[str, str]:
    environment = dict(os.environ)
    if packages is not None:
        folders = {str(file.parent) for file in packages.rglob("*.so.*")}
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(sorted(folders))
    return environment


def _as_nobody() -> tuple[str, ...]:
    if os.geteuid():
        return ()
    return ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
