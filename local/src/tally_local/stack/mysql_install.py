"""A private MySQL server: unpacked from Debian's unstable suite into a folder, without root.

apt runs with a configuration and folders of its own, reads the mirror's address from the machine's
own sources and checks the archive's signature with Debian's keyring. The server starts through the
dynamic loader that was unpacked with it, so it needs none of the machine's libraries.
"""

import re
import shutil
from pathlib import Path

from tally.errors import StackError
from tally.spark.jars import Announce
from tally_local.stack.apt_sources import Source, debian_mirror, read_sources
from tally_local.stack.one_shot import run

PACKAGE = "mysql-server-core"
SUITE = "unstable"
TIMEOUT_S = 900
"""For one call of apt; over a slow connection it takes minutes."""
# Needed to configure packages, not to run mysqld.
NOT_NEEDED = re.compile(r"(perl|libperl|dpkg|debconf|tar$)")
KEYRINGS = (
    Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
    Path("/usr/share/keyrings/debian-archive-keyring.pgp"),
)


class AptMySQL:
    """MySQL unpacked below ``folder``; its root folder exists only once it is complete."""

    def __init__(self, folder: Path, *, etc_apt: Path = Path("/etc/apt")) -> None:
        self.root = folder / "root"
        self._work = folder / "apt"
        self._etc_apt = etc_apt

    def is_installed(self) -> bool:
        """Whether the server is there."""
        return self.root.is_dir()

    def install(self, announce: Announce) -> None:
        """Download and unpack the server unless it is there.

        Raises:
            StackError: There is no apt, no Debian mirror, or apt failed; nothing is installed then.
        """
        if self.is_installed():
            return
        self._prepare()
        announce(f"MySQL server: reading the package lists of Debian {SUITE} (17 MB)")
        self._apt("update")
        packages = self._closure()
        announce(f"MySQL server: downloading {len(packages)} Debian packages (50 MB)")
        debs = self._work / "debs"
        debs.mkdir()
        self._apt("download", *packages, cwd=debs)
        announce("MySQL server: unpacking")
        unpacked = self._work / "root"
        for deb in sorted(debs.glob("*.deb")):
            _run(["dpkg-deb", "-x", str(deb), str(unpacked)], cwd=self._work)
        unpacked.replace(self.root)
        shutil.rmtree(self._work)

    def _prepare(self) -> None:
        for program in ("apt-get", "dpkg-deb"):
            if shutil.which(program) is None:
                raise StackError(f"no {program} on this machine", next_step="install mysqld")
        source = debian_mirror(read_sources(self._etc_apt))
        if source is None:
            raise StackError(
                f"the apt sources in {self._etc_apt} name no Debian mirror",
                next_step="install mysqld",
            )
        shutil.rmtree(self._work, ignore_errors=True)
        for name in ("lists/partial", "cache/archives/partial", "state"):
            (self._work / name).mkdir(parents=True)
        self._sources_list.write_text(_source_line(source), encoding="utf-8")

    @property
    def _sources_list(self) -> Path:
        return self._work / "sources.list"

    def _apt(self, *arguments: str, cwd: Path | None = None) -> str:
        options = {
            "Dir::Etc::sourcelist": self._sources_list,
            "Dir::Etc::sourceparts": "-",
            "Dir::Etc::preferences": "-",
            "Dir::Etc::preferencesparts": "-",
            "Dir::State": self._work / "state",
            "Dir::State::Lists": self._work / "lists",
            "Dir::State::status": "/dev/null",
            "Dir::Cache": self._work / "cache",
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
            "Acquire::Retries": "3",
            "APT::Update::Error-Mode": "any",
        }
        argv = ["apt-get", *(f"-o{name}={value}" for name, value in options.items()), *arguments]
        return _run(argv, cwd=cwd or self._work)

    def _closure(self) -> list[str]:
        """The server's package and what it needs to run, from a simulated install."""
        answer = self._apt("--simulate", "--no-install-recommends", "install", PACKAGE)
        names = re.findall(r"^Inst (\S+)", answer, flags=re.MULTILINE)
        return [name for name in names if not NOT_NEEDED.match(name)]


def _source_line(source: Source) -> str:
    keyring = next((str(path) for path in KEYRINGS if path.exists()), source.signed_by)
    options = f"[signed-by={keyring}] " if keyring else ""
    return f"deb {options}{source.uri} {SUITE} main\n"


def _run(argv: list[str], *, cwd: Path) -> str:
    return run(
        argv,
        what="MySQL could not be fetched from Debian",
        next_step="check that the machine's Debian mirror can be reached, or install mysqld",
        timeout_s=TIMEOUT_S,
        cwd=cwd,
        environment={"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
    )
