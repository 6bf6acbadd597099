"""A MariaDB server from its jar, for machines that have neither mysqld nor apt.

Unlike the private MySQL it uses the machine's own C library.
"""

import shutil
import stat
import zipfile
from pathlib import Path

from tally.errors import StackError
from tally.spark.jars import Announce, Jars
from tally_local.stack.server_jars import SERVERS

# Inside the jar: one folder per version, below it a whole installation.
SERVER = "mariadbd"


class MariaDB:
    """MariaDB unpacked below ``downloads``; its root folder exists only once it is complete."""

    def __init__(self, downloads: Path) -> None:
        self.root = downloads / "mariadb"
        self._jars = Jars(downloads, SERVERS)

    def is_installed(self) -> bool:
        """Whether the server is there."""
        return self.root.is_dir()

    def install(self, announce: Announce) -> None:
        """Fetch the jar and unpack the server unless it is there.

        Raises:
            StackError: The jar cannot be fetched or contains no server.
        """
        if self.is_installed():
            return
        folder = self._jars.install("mariadb", announce)
        announce("MariaDB server: unpacking")
        unpacked = self.root.with_name("mariadb.new")
        shutil.rmtree(unpacked, ignore_errors=True)
        for jar in folder.iterdir():
            with zipfile.ZipFile(jar) as archive:
                archive.extractall(unpacked)
        servers = sorted(unpacked.rglob(f"bin/{SERVER}"))
        if not servers:
            raise StackError(f"{folder} holds no {SERVER}", next_step="install mysqld")
        for program in servers[0].parent.iterdir():
            program.chmod(program.stat().st_mode | stat.S_IXUSR)
        servers[0].parent.parent.replace(self.root)
        shutil.rmtree(unpacked)
