"""The MySQL server of one stack."""

import os
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tally.errors import StackError
from tally_local.stack.home import Credentials, write_private
from tally_local.stack.mysql_program import MySQLProgram, find_program
from tally_local.stack.one_shot import run
from tally_local.stack.ports import LOOPBACK
from tally_local.stack.processes import Command
from tally_local.stack.server import Part, Server

DATABASE = "tally"
USER = "tally"
CONSOLE_USER = "tally_console"
"""Reads for the console in Airflow."""
SOCKET = "mysql.sock"
# The grants for counting and for the migrations, as docs/runbook.md lists them.
GRANTS = (
    "SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, REFERENCES, CREATE VIEW, "
    "CREATE ROUTINE, EXECUTE"
)
INITIALISE_TIMEOUT_S = 120
HANDSHAKE = 10
"""Fifth byte of a server's greeting to a new client when it is ready."""


@dataclass(frozen=True, kw_only=True)
class MySQLServer(Server):
    """A server with its data in ``folder``; it listens on the loopback address only."""

    options: Sequence[str] = ()
    """Further options of the program."""

    part = Part.MYSQL
    ports = ("mysql",)
    start_timeout_s = 90.0  # crash recovery included

    def prepare(self, ports: Mapping[str, int]) -> Command:
        """Initialise the data if there are none.

        The server never accepts clients without passwords: the init file, which runs at each start,
        sets them before the server listens, also after ``--initialize-insecure``.
        """
        program = find_program(self.layout.downloads)
        if program is None:
            raise StackError("no MySQL server is installed", next_step="tally up installs it")
        if not self.data.is_dir():
            self._initialise(program)
        self._check_flavour(program)
        # A killed server leaves its lock; the next one refuses to start while any process, even a
        # zombie, has the id in it. The stack has made sure that no server of this folder runs.
        (self.data / f"{SOCKET}.lock").unlink(missing_ok=True)
        init_file = self.folder / "init.sql"
        write_private(init_file, init_sql(Credentials.of(self.layout.credentials)))
        return Command(
            argv=(
                *program.argv,
                *_as_root(),
                f"--datadir={self.data}",
                f"--init-file={init_file}",
                f"--bind-address={LOOPBACK}",
                f"--port={ports['mysql']}",
                # Relative to the data: a socket's path may have no more than 107 bytes.
                *(f"--socket={SOCKET}", "--pid-file=mysql.pid"),
                *("--skip-name-resolve", "--skip-log-bin"),
                "--character-set-server=utf8mb4",
                "--max-connect-errors=1000000",
                *(() if program.share else ("--mysqlx=OFF", "--secure-file-priv=NULL")),
                *self.options,
            ),
            cwd=self.folder,
            env=dict(os.environ),
        )

    def is_ready(self, ports: Mapping[str, int]) -> bool:
        """Whether the server greets a client; it does so only after the init file has run."""
        try:
            with socket.create_connection((LOOPBACK, ports["mysql"]), timeout=1) as connection:
                greeting = connection.recv(5, socket.MSG_WAITALL)
        except OSError:
            return False
        return len(greeting) == 5 and greeting[4] == HANDSHAKE

    def _initialise(self, program: MySQLProgram) -> None:
        new = self.folder / "data.new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True, mode=0o700)
        how = "--bootstrap" if program.share else "--initialize-insecure"
        run(
            [*program.argv, *_as_root(), how, f"--datadir={new}"],
            what="MySQL could not initialise its data",
            next_step="read the output above",
            timeout_s=INITIALISE_TIMEOUT_S,
            script=_system_tables(program.share) if program.share else "",
        )
        write_private(self.folder / "flavour", program.flavour)
        new.replace(self.data)

    def _check_flavour(self, program: MySQLProgram) -> None:
        flavour = (self.folder / "flavour").read_text(encoding="utf-8")
        if flavour != program.flavour:
            raise StackError(
                f"the data in {self.data} are {flavour}'s, the server now is {program.flavour}",
                next_step=f"bring the {flavour} server back, or delete {self.folder}",
            )


def init_sql(credentials: Credentials) -> str:
    """The SQL that runs at each start; it is idempotent."""
    statements = [
        f"ALTER USER 'root'@'localhost' IDENTIFIED BY '{credentials.mysql_root}'",
        f"CREATE DATABASE IF NOT EXISTS `{DATABASE}` CHARACTER SET utf8mb4",
    ]
    # The server resolves no names, so the account of a TCP client carries the address.
    for user, password, grants in (
        ("root", credentials.mysql_root, "ALL PRIVILEGES ON *.*"),
        (USER, credentials.mysql_tally, f"{GRANTS} ON `{DATABASE}`.*"),
        (CONSOLE_USER, credentials.mysql_console, f"SELECT ON `{DATABASE}`.*"),
    ):
        account = f"'{user}'@'{LOOPBACK}'"
        option = " WITH GRANT OPTION" if user == "root" else ""
        statements += [
            f"CREATE USER IF NOT EXISTS {account} IDENTIFIED BY '{password}'",
            f"ALTER USER {account} IDENTIFIED BY '{password}'",
            f"GRANT {grants} TO {account}{option}",
        ]
    return "".join(f"{statement};\n" for statement in statements)


def _as_root() -> tuple[str, ...]:
    """The server refuses to run as root unless told."""
    return ("--user=root",) if os.geteuid() == 0 else ()


def _system_tables(share: Path) -> str:
    """The SQL that makes MariaDB's system tables, as its own mariadb-install-db does.

    Root may log in through the socket only, until the init file gives it a password.
    """
    scripts = [
        (share / f"mariadb_{name}.sql").read_text(encoding="utf-8")
        for name in ("system_tables", "performance_tables", "system_tables_data")
    ]
    lines = "".join(scripts).splitlines(keepends=True)
    return "create database mysql;\nuse mysql;\nset @auth_root_socket='root';\n" + "".join(
        line for line in lines if "@current_hostname" not in line
    )
