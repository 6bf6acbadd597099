"""Finding the MySQL server to use, and the command that starts it."""

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tally.errors import StackError
from tally.mysql.versions import MYSQL_NEEDED, OLDEST_MYSQL
from tally.spark.jars import Announce
from tally_local.stack.mariadb_install import MariaDB
from tally_local.stack.mysql_install import private_mysql


class Flavour(StrEnum):
    """The two families of servers; they do not read each other's data."""

    MYSQL = "mysql"
    MARIADB = "mariadb"


@dataclass(frozen=True, kw_only=True, slots=True)
class MySQLProgram:
    """An installed server."""

    flavour: Flavour
    """Its family."""
    argv: tuple[str, ...]
    """The program with the options that tell it where its own files are."""
    share: Path | None = None
    """MariaDB only: the folder with the SQL of its system tables."""


class MySQLPrograms:
    """Finds a server: a ``mysqld`` on PATH, else a private MySQL, else a private MariaDB."""

    def __init__(self, downloads: Path) -> None:
        self._apt = private_mysql(downloads / "mysql")
        self._mariadb = MariaDB(downloads)

    def find(self) -> MySQLProgram | None:
        """The server to use; None if one must be installed first."""
        system = system_mysqld()
        if system is not None:
            return MySQLProgram(flavour=Flavour.MYSQL, argv=(system, "--no-defaults"))
        if self._apt.is_installed():
            return _private_mysql(self._apt.root)
        if self._mariadb.is_installed():
            return _private_mariadb(self._mariadb.root)
        return None

    def install(self, announce: Announce) -> MySQLProgram:
        """``find``, and install a server if there is none.

        Raises:
            StackError: Neither way to a server works; the message has both reasons.
        """
        program = self.find()
        if program is not None:
            return program
        self._install_one(announce)
        program = self.find()
        assert program is not None  # noqa: S101 - just installed
        return program

    def _install_one(self, announce: Announce) -> None:
        failures = []
        ways: tuple[Callable[[Announce], None], ...] = (self._apt.install, self._mariadb.install)
        for install in ways:
            try:
                install(announce)
            except StackError as error:
                announce(f"MySQL server: {error.what.splitlines()[0]}")
                failures.append(error.what)
            else:
                return
        raise StackError(
            "no MySQL server could be installed:\n" + "\n".join(failures),
            next_step=f"install {MYSQL_NEEDED} so that mysqld is on PATH",
        )


def system_mysqld() -> str | None:
    """The machine's own ``mysqld``, if it is MySQL and new enough."""
    program = shutil.which("mysqld")
    if program is None:
        return None
    answer = subprocess.run(
        [program, "--no-defaults", "--version"], capture_output=True, text=True, check=False
    )
    version = mysql_version(answer.stdout)
    return program if version is not None and version >= OLDEST_MYSQL else None


def mysql_version(text: str) -> tuple[int, ...] | None:
    """The version in the output of ``mysqld --version``; None for MariaDB and any other text."""
    found = re.search(r"Ver (\d+)\.(\d+)\.(\d+)", text)
    if found is None or "mariadb" in text.lower():
        return None
    return tuple(int(number) for number in found.groups())


def _private_mysql(root: Path) -> MySQLProgram:
    loader = _only(root, "usr/lib*/ld-linux-*.so.*")
    libraries = _only(root, "usr/lib/*-linux-gnu*")
    return MySQLProgram(
        flavour=Flavour.MYSQL,
        argv=(
            *(str(loader), "--library-path", str(libraries), str(root / "usr/sbin/mysqld")),
            "--no-defaults",
            f"--basedir={root / 'usr'}",
            f"--plugin-dir={root / 'usr/lib/mysql/plugin'}",
            f"--lc-messages-dir={root / 'usr/share/mysql'}",
            f"--character-sets-dir={root / 'usr/share/mysql/charsets'}",
        ),
    )


def _private_mariadb(root: Path) -> MySQLProgram:
    return MySQLProgram(
        flavour=Flavour.MARIADB,
        argv=(
            str(root / "bin/mariadbd"),
            "--no-defaults",
            f"--basedir={root}",
            f"--lc-messages-dir={root / 'share'}",
            f"--character-sets-dir={root / 'share/charsets'}",
        ),
        share=root / "share",
    )


def _only(root: Path, pattern: str) -> Path:
    found = sorted(root.glob(pattern))
    if not found:
        raise StackError(f"{root} has no {pattern}", next_step=f"delete {root} and try again")
    return found[0]
