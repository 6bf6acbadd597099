"""Programs of Debian in a private folder: downloaded and unpacked, without root.

apt runs with a configuration and folders of its own, reads the mirror's address from the machine's
own sources and checks the archive's signature with Debian's keyring. Nothing is configured or
installed on the machine.
"""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from tally.errors import StackError
from tally.spark.jars import Announce
from tally_local.stack.apt_sources import Source, debian_mirror, read_sources
from tally_local.stack.one_shot import run

TIMEOUT_S = 900
"""For one call of apt; over a slow connection it takes minutes."""
KEYRINGS = (
    Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
    Path("/usr/share/keyrings/debian-archive-keyring.pgp"),
)


class AptPackages:
    """Packages unpacked below ``folder``; its root folder exists only once it is complete.

    Args:
        folder: Where they are unpacked.
        title: What is installed, for messages.
        packages: The packages that are wanted.
        not_needed: Packages that they depend on and that are left out.
        instead: What to install on a machine where this does not work.
        suite: Debian's suite; the machine's own when None.
        etc_apt: Where the machine's sources are named.
    """

    def __init__(
        self,
        folder: Path,
        *,
        title: str,
        packages: Sequence[str],
        not_needed: re.Pattern[str],
        instead: str,
        suite: str | None = None,
        etc_apt: Path = Path("/etc/apt"),
    ) -> None:
        self.root = folder / "root"
        self._work = folder / "apt"
        self._title = title
        self._packages = packages
        self._not_needed = not_needed
        self._instead = instead
        self._suite = suite
        self._etc_apt = etc_apt

    def is_installed(self) -> bool:
        """Whether they are there."""
        return self.root.is_dir()

    def install(self, announce: Announce) -> None:
        """Download and unpack them unless they are there.

        Raises:
            StackError: There is no apt, no Debian mirror, or apt failed; nothing is installed then.
        """
        if self.is_installed():
            return
        suite = self._prepare()
        announce(f"{self._title}: reading the package lists of Debian {suite}")
        self._apt("update")
        needed = self._closure()
        announce(f"{self._title}: downloading {len(needed)} Debian packages")
        debs = self._work / "debs"
        debs.mkdir()
        self._apt("download", *needed, cwd=debs)
        announce(f"{self._title}: unpacking")
        unpacked = self._work / "root"
        for deb in sorted(debs.glob("*.deb")):
            self._run(["dpkg-deb", "-x", str(deb), str(unpacked)], cwd=self._work)
        unpacked.replace(self.root)
        shutil.rmtree(self._work)

    def _prepare(self) -> str:
        """Make the folders and the list of sources; returns the suite."""
        for program in ("apt-get", "dpkg-deb"):
            if shutil.which(program) is None:
                raise StackError(f"no {program} on this machine", next_step=self._instead)
        source = debian_mirror(read_sources(self._etc_apt))
        if source is None:
            raise StackError(
                f"the apt sources in {self._etc_apt} name no Debian mirror",
                next_step=self._instead,
            )
        shutil.rmtree(self._work, ignore_errors=True)
        for name in ("lists/partial", "cache/archives/partial", "state"):
            (self._work / name).mkdir(parents=True)
        suite = self._suite or source.suites[0]
        self._sources_list.write_text(_source_line(source, suite), encoding="utf-8")
        return suite

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
        return self._run(argv, cwd=cwd or self._work)

    def _closure(self) -> list[str]:
        """The packages and what they need to run, from a simulated install."""
        answer = self._apt("--simulate", "--no-install-recommends", "install", *self._packages)
        names = re.findall(r"^Inst (\S+)", answer, flags=re.MULTILINE)
        return [name for name in names if not self._not_needed.match(name)]

    def _run(self, argv: list[str], *, cwd: Path) -> str:
        return run(
            argv,
            what=f"{self._title}: could not be fetched from Debian",
            next_step=f"check that the machine's Debian mirror can be reached, or {self._instead}",
            timeout_s=TIMEOUT_S,
            cwd=cwd,
            environment={"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
        )


def _source_line(source: Source, suite: str) -> str:
    keyring = next((str(path) for path in KEYRINGS if path.exists()), source.signed_by)
    options = f"[signed-by={keyring}] " if keyring else ""
    return f"deb {options}{source.uri} {suite} main\n"
