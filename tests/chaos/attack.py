"""Faults in the processes of a running system, and their repair."""

import contextlib
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final

import psutil
import pymysql

from tally.errors import StackError
from tally_local.stack.server import Part
from tests.chaos.system import System, is_alive

Finder = Callable[[System], list[psutil.Process]]

WORKER_CLASS: Final = "org.apache.spark.deploy.worker.Worker"
POLL_S: Final = 0.02
STARTS_MAX: Final = 10
WAIT_IN_TRANSACTION_S: Final = 1.5
"""Seconds for which the rows of a commit are locked, to wait for a victim."""


class Role(StrEnum):
    """The role of a process that a fault can hit."""

    JVM = "spark-submit's JVM"
    PYTHON = "Python driver"
    CLIENT = "tally run"
    REPLAY = "tally replay"
    TASK = "Airflow worker"
    SCHEDULER = "Airflow scheduler"
    CONNECT = "Spark Connect server"
    KEEPER = "Spark server's keeper"
    WORKER = "Python worker of Spark"
    EXECUTOR = "executor of the Spark cluster"
    CLUSTER_WORKER = "worker of the Spark cluster"
    BROKER = "Kafka broker"
    MYSQL = "MySQL server"


class NoVictimError(Exception):
    """No process of that role runs at the moment."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault."""

    name: str
    weight: float
    """How often it is chosen, compared with the others."""
    strike: Callable[["Attacker"], None]
    """Play the fault and schedule its repair; raises NoVictimError without a victim."""
    victim: Role | None = None
    """The role of the process that it hits; None where that depends on the moment."""

    def is_possible(self, system: System) -> bool:
        """Whether there are such processes in the system at all."""
        setup = system.setup
        absent = set() if setup.with_airflow else {*_OF_AIRFLOW}
        absent |= {Role.JVM} if setup.keeps_spark else {Role.KEEPER}
        absent |= set() if setup.with_spark else {Role.CONNECT}
        absent |= set() if setup.with_spark and setup.delivery != "batch" else {Role.WORKER}
        absent |= set() if setup.on_cluster else {Role.EXECUTOR, Role.CLUSTER_WORKER}
        return self.victim not in absent


class Repairer:
    """Runs repairs later, each in its own time: resumes paused and restarts killed processes."""

    def __init__(self) -> None:
        self._hurry = threading.Event()
        self._threads: list[threading.Thread] = []
        self.failures: list[str] = []

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        """Run a repair after so many seconds."""
        thread = threading.Thread(target=self._do, args=(seconds, what), daemon=True)
        self._threads.append(thread)
        thread.start()

    def finish(self) -> None:
        """Run all outstanding repairs at once; returns when they are done."""
        self._hurry.set()
        for thread in self._threads:
            thread.join()

    def _do(self, seconds: float, what: Callable[[], None]) -> None:
        self._hurry.wait(seconds)
        try:
            what()
        except Exception as error:  # noqa: BLE001 - told at the end; the others must be done
            self.failures.append(repr(error))


class Attacker:
    """Finds victims, plays faults, and leaves the repair to the repairer."""

    def __init__(self, system: System, seed: int, repairer: Repairer) -> None:
        self.system, self.repairer = system, repairer
        self.random = random.Random(seed)

    def strike(self, fault: Fault) -> bool:
        """Play a fault now; False without a victim."""
        try:
            fault.strike(self)
        except (NoVictimError, psutil.NoSuchProcess, pymysql.err.Error):
            return False
        return True

    def some_order(self, faults: Sequence[Fault]) -> list[Fault]:
        """All faults in a random order, weighted."""
        return sorted(faults, key=lambda f: self.random.random() ** (1 / f.weight), reverse=True)

    def kill(self, role: Role) -> None:
        """SIGKILL; a server is restarted some seconds later."""
        victim = self._victim(role)
        respawn = self._respawn(role)
        victim.kill()
        if respawn is not None:
            self.repairer.later(self.random.uniform(0.2, 4), respawn)

    def pause(self, role: Role, longest_s: float) -> None:
        """SIGSTOP, and SIGCONT some seconds later."""
        self._suspend(self._victim(role), longest_s)

    def strike_inside_a_transaction(self, *, pause: bool) -> None:
        """Lock the rows that a commit updates, hit the process that waits for them, and unlock."""
        with contextlib.closing(self.system.connect_as_root()) as holder:
            holder.begin()
            with holder.cursor() as cursor:
                cursor.execute("set session innodb_lock_wait_timeout = 1")
                cursor.execute("select next_offset from partition_offset for update")
            victim = self._waiting_process(int(holder.thread_id()))  # type: ignore[no-untyped-call]
            if pause:
                self._suspend(victim, 20)
            else:
                victim.kill()
            holder.rollback()

    def cut_sessions(self) -> None:
        """MySQL ends every session of Tally's."""
        ended = 0
        listed = "select id from information_schema.processlist where user = %s"
        for row in self.system.rows(listed, (self.system.settings.mysql.user,)):
            with contextlib.suppress(pymysql.err.OperationalError):  # it ended by itself
                self.system.rows("kill %s", (row["id"],))
                ended += 1
        if not ended:
            raise NoVictimError

    def make_read_only(self) -> None:
        """MySQL refuses to write, as while it fails over."""
        # A restarted server is writable; until then it is down, on a busy machine for long.
        writable = persistently(lambda: self._set_read_only(0), pymysql.OperationalError, tries=300)
        try:
            self._set_read_only(1)
        finally:  # also when the answer was lost
            self.repairer.later(self.random.uniform(0.5, 5), writable)

    def _set_read_only(self, value: int) -> None:
        self.system.rows("set global super_read_only = %s", (value,))
        self.system.rows("set global read_only = %s", (value,))

    def _suspend(self, victim: psutil.Process, longest_s: float) -> None:
        victim.suspend()

        def resume() -> None:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.resume()

        self.repairer.later(self.random.uniform(0.3, longest_s), resume)

    def _victim(self, role: Role) -> psutil.Process:
        at_rest = {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE}
        found = [p for p in _VICTIMS[role].find(self.system) if p.status() not in at_rest]
        if not found:
            raise NoVictimError
        return self.random.choice(found)

    def _waiting_process(self, holder: int) -> psutil.Process:
        server = self.system.settings.mysql.port
        deadline = time.monotonic() + WAIT_IN_TRANSACTION_S
        while time.monotonic() < deadline:
            ports = {
                int(row["host"].rsplit(":", 1)[1])
                for row in self.system.rows(_WAITING, (holder,))
                if ":" in row["host"]
            }
            for connection in psutil.net_connections("tcp4"):
                # Other processes may use the same port number for connections to other servers.
                here, there, pid = connection.laddr, connection.raddr, connection.pid
                if here and there and there.port == server and here.port in ports and pid:
                    return psutil.Process(pid)
            time.sleep(POLL_S)
        raise NoVictimError

    def _respawn(self, role: Role) -> Callable[[], None] | None:
        parts = {Role.BROKER: Part.KAFKA, Role.MYSQL: Part.MYSQL, Role.KEEPER: Part.SPARK}
        if role in parts:
            return _start_again(lambda: self.system.stack.up([parts[role]]))
        if role is Role.CONNECT and not self.system.setup.keeps_spark:  # the keeper does it
            return _start_again(self.system.start_connect)
        if role is Role.SCHEDULER:
            return _start_again(self._start_scheduler)
        return None

    def _start_scheduler(self) -> None:
        """Start a scheduler as a supervisor would, after ending idle workers of the old one."""
        for worker in _idle_orphans(self.system):
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()
        folder = self.system.stack.layout.home / Part.AIRFLOW
        main = next(
            p
            for p in self.system.stack.processes.members(Part.AIRFLOW)
            if "standalone" in arguments(p)
        )
        with (self.system.setup.home / "scheduler.log").open("ab") as log:
            subprocess.Popen(
                [str(folder / "bin" / "airflow"), "scheduler"],
                cwd=folder,
                env=main.environ(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


_WAITING = """
    select p.host from performance_schema.data_lock_waits w
    join performance_schema.threads t on t.thread_id = w.requesting_thread_id
    join information_schema.processlist p on p.id = t.processlist_id
    join performance_schema.threads h on h.thread_id = w.blocking_thread_id
    where h.processlist_id = %s
"""


def persistently(
    do: Callable[[], object], *errors: type[Exception], tries: int = STARTS_MAX
) -> Callable[[], None]:
    """Do it again, a second later, after such an error: a server may be killed meanwhile."""

    def try_on() -> None:
        for tries_left in reversed(range(tries)):
            try:
                do()
            except errors:
                if not tries_left:
                    raise
                time.sleep(1)
            else:
                return

    return try_on


def _start_again(start: Callable[[], object]) -> Callable[[], None]:
    return persistently(start, StackError, AssertionError, psutil.NoSuchProcess)


def _main(part: Part) -> Finder:
    def find(system: System) -> list[psutil.Process]:
        pids = {status.pid for status in system.stack.status() if status.part is part}
        return [psutil.Process(pid) for pid in pids if pid is not None]

    return find


def _member(part: Part, is_meant: Callable[[list[str]], bool]) -> Finder:
    def find(system: System) -> list[psutil.Process]:
        return [p for p in system.stack.processes.members(part) if is_meant(arguments(p))]

    return find


def _lane(name: str) -> Finder:
    def find(system: System) -> list[psutil.Process]:
        process = system.lanes[name].process
        return [psutil.Process(process.pid)] if process and process.poll() is None else []

    return find


def _connect(system: System) -> list[psutil.Process]:
    return list(filter(is_alive, system.spark_servers()))


def _workers(system: System) -> list[psutil.Process]:
    """The Python processes in which tasks of Spark commit."""
    found = {*system.processes(), *system.stack.processes.members(Part.CLUSTER)}
    for server in _connect(system):
        with contextlib.suppress(psutil.Error):
            found |= {*server.children(recursive=True)}
    return [p for p in found if any("pyspark" in word for word in arguments(p)[1:3])]


def arguments(process: psutil.Process) -> list[str]:
    """The arguments of its command line; empty when it has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _is_jvm(arguments: list[str]) -> bool:
    return "org.apache.spark.deploy.SparkSubmit" in arguments


def _is_python_driver(arguments: list[str]) -> bool:
    return not _is_jvm(arguments) and any(a.endswith("count_errors.py") for a in arguments[1:3])


def _is_idle(arguments: list[str]) -> bool:
    return "<idle>" in " ".join(arguments)


def _is_task(arguments: list[str]) -> bool:
    title = " ".join(arguments)
    worker = title.startswith("airflow worker") and not _is_idle(arguments)
    return worker or title.startswith(("airflow task", "airflow supervisor"))


def _idle_orphans(system: System) -> list[psutil.Process]:
    """Workers without a task whose scheduler is gone; those with a task may finish it."""
    schedulers = {process.pid for process in _VICTIMS[Role.SCHEDULER].find(system)}
    return [p for p in _member(Part.AIRFLOW, _is_idle)(system) if p.ppid() not in schedulers]


@dataclass(frozen=True, slots=True)
class _Victim:
    """Processes of one role; a server takes seconds to restart, so it is chosen less often."""

    find: Finder
    kills: float
    """How often they are killed, compared with other faults."""
    pauses: float
    """How often they are paused."""
    longest_s: float
    """Of a pause."""


_VICTIMS: Final = {
    Role.JVM: _Victim(_member(Part.AIRFLOW, _is_jvm), 6, 4, 20),
    Role.PYTHON: _Victim(_member(Part.AIRFLOW, _is_python_driver), 6, 4, 20),
    Role.CLIENT: _Victim(_lane("run"), 10, 6, 20),
    Role.REPLAY: _Victim(_lane("replay"), 10, 6, 20),
    Role.TASK: _Victim(_member(Part.AIRFLOW, _is_task), 3, 2, 15),
    Role.SCHEDULER: _Victim(
        _member(Part.AIRFLOW, lambda a: {"scheduler", "airflow"} <= {*a}), 0.7, 1, 10
    ),
    Role.CONNECT: _Victim(_connect, 1.5, 2, 5),
    Role.KEEPER: _Victim(_main(Part.SPARK), 0.7, 1, 5),
    Role.WORKER: _Victim(_workers, 10, 6, 20),
    Role.EXECUTOR: _Victim(_member(Part.CLUSTER, lambda a: "--executor-id" in a), 4, 3, 10),
    Role.CLUSTER_WORKER: _Victim(_member(Part.CLUSTER, lambda a: WORKER_CLASS in a), 1, 1, 5),
    Role.BROKER: _Victim(_main(Part.KAFKA), 2, 3, 5),
    Role.MYSQL: _Victim(_main(Part.MYSQL), 3, 4, 5),
}


def processes_by_role(system: System) -> dict[str, list[psutil.Process]]:
    """The running processes by role, with the rest of Airflow and the campaign itself."""
    by_role = {str(role): victim.find(system) for role, victim in _VICTIMS.items()}
    known = {process.pid for processes in by_role.values() for process in processes}
    if Part.AIRFLOW in system.parts:
        rest = [p for p in system.stack.processes.members(Part.AIRFLOW) if p.pid not in known]
        by_role["Airflow, the rest"] = rest
    return {**by_role, "the campaign itself": [psutil.Process()]}


_OF_AIRFLOW: Final = {Role.JVM, Role.PYTHON, Role.TASK, Role.SCHEDULER}


def _all_faults() -> Iterator[Fault]:
    for role, victim in _VICTIMS.items():
        yield Fault(f"SIGKILL {role}", victim.kills, partial(Attacker.kill, role=role), role)
        pause = partial(Attacker.pause, role=role, longest_s=victim.longest_s)
        yield Fault(f"SIGSTOP {role}", victim.pauses, pause, role)
    inside = Attacker.strike_inside_a_transaction
    yield Fault("SIGKILL inside a transaction", 10, partial(inside, pause=False))
    yield Fault("SIGSTOP inside a transaction", 8, partial(inside, pause=True))
    yield Fault("sessions of MySQL cut", 8, Attacker.cut_sessions)
    yield Fault("MySQL read-only", 4, Attacker.make_read_only)


FAULTS: Final = tuple(_all_faults())
