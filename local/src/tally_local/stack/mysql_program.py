"""Finding or installing the MySQL server to use, and the command that starts it.

The private MySQL is from Debian's unstable suite. It starts through the dynamic loader that was
unpacked with it, so it needs none of the machine's libraries. The private MariaDB is from its jar,
for machines that have neither mysqld nor apt; it uses the machine's own C library.
"""

import re
import shutil
import stat
import subprocess
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tally.errors import StackError
from tally.mysql.connection import MYSQL_NEEDED, OLDEST_MYSQL
from tally.spark.jars import Announce
from tally_local.stack.apt_packages import AptPackages
from tally_local.stack.server import SERVERS

MARIADB = "mariadb"
# Needed to configure packages, not to run mysqld.
NOT_NEEDED = re.compile(r"(perl|libperl|dpkg|debconf|tar$)")


@dataclass(frozen=True, kw_only=True, slots=True)
class MySQLProgram:
    """An installed server."""

    argv: tuple[str, ...]
    """The program with the options that name the places of its own files."""
    share: Path | None = None
    """MariaDB only: the folder with the SQL of its system tables."""

    @property
    def flavour(self) -> str:
        """Its family; the two do not read each other's data."""
        return "mysql" if self.share is None else "mariadb"


def find_program(downloads: Path) -> MySQLProgram | None:
    """A ``mysqld`` on PATH, else the private MySQL, else the private MariaDB; None if all lack."""
    if (system := system_mysqld()) is not None:
        return MySQLProgram(argv=(system, "--no-defaults"))
    if (apt := private_mysql(downloads / "mysql")).is_installed():
        return _private_mysql(apt.root)
    root = downloads / MARIADB
    return _private_mariadb(root) if root.is_dir() else None


def install_program(downloads: Path, announce: Announce) -> None:
    """Install a private MySQL, or else a private MariaDB, if there is no server.

    Raises:
        StackError: Neither can be installed; the message has both reasons.
    """
    if find_program(downloads) is not None:
        return
    failures = []
    for install in (
        private_mysql(downloads / "mysql").install,
        partial(_install_mariadb, downloads),
    ):
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


def private_mysql(folder: Path) -> AptPackages:
    """MySQL below a folder."""
    return AptPackages(
        folder=folder,
        title="MySQL server (50 MB)",
        packages=("mysql-server-core",),
        not_needed=NOT_NEEDED,
        instead="install mysqld",
        suite="unstable",
    )


def _install_mariadb(downloads: Path, announce: Announce) -> None:
    """Fetch MariaDB's jar and unpack the server; its folder exists only once it is complete.

    Inside the jar is one folder per version, below it a whole installation.

    Raises:
        StackError: The jar cannot be fetched or contains no server.
    """
    folder = SERVERS.install(MARIADB, downloads, announce)
    announce("MariaDB server: unpacking")
    unpacked = downloads / "mariadb.new"
    shutil.rmtree(unpacked, ignore_errors=True)
    for jar in folder.iterdir():
        shutil.unpack_archive(jar, unpacked, "zip")
    servers = sorted(unpacked.rglob("bin/mariadbd"))
    if not servers:
        raise StackError(f"{folder} holds no mariadbd", next_step="install mysqld")
    for program in servers[0].parent.iterdir():
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    servers[0].parent.parent.replace(downloads / MARIADB)
    shutil.rmtree(unpacked)


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


def unpacked(root: Path, program: str) -> tuple[str, ...]:
    """A program below an unpacked root, started through the dynamic loader that came with it."""
    loader = _first(root, "usr/lib*/ld-linux-*.so.*")
    libraries = _first(root, "usr/lib/*-linux-gnu*")
    return str(loader), "--library-path", str(libraries), str(root / program)


def _private_mysql(root: Path) -> MySQLProgram:
    return MySQLProgram(
        argv=(
            *unpacked(root, "usr/sbin/mysqld"),
            "--no-defaults",
            f"--basedir={root / 'usr'}",
            f"--plugin-dir={root / 'usr/lib/mysql/plugin'}",
            f"--lc-messages-dir={root / 'usr/share/mysql'}",
            f"--character-sets-dir={root / 'usr/share/mysql/charsets'}",
        ),
    )


def _private_mariadb(root: Path) -> MySQLProgram:
    return MySQLProgram(
        argv=(
            str(root / "bin/mariadbd"),
            "--no-defaults",
            f"--basedir={root}",
            f"--lc-messages-dir={root / 'share'}",
            f"--character-sets-dir={root / 'share/charsets'}",
        ),
        share=root / "share",
    )


def _first(root: Path, pattern: str) -> Path:
    found = sorted(root.glob(pattern))
    if not found:
        raise StackError(f"{root} has no {pattern}", next_step=f"delete {root} and try again")
    return found[0]
