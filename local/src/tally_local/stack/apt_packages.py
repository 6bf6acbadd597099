"""Programs of Debian in a private folder: downloaded and unpacked, without root.

apt runs with a configuration and folders of its own, takes a mirror from the machine's own sources
and checks the archive's signature with Debian's keyring. Nothing is configured or installed on the
machine.
"""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tally.errors import StackError
from tally.spark.jars import Announce
from tally_local.stack.one_shot import run

TIMEOUT_S = 900
"""For one call of apt; over a slow connection it takes minutes."""
KEYRINGS = Path("/usr/share/keyrings")
_MIRROR = re.compile(r"'(?P<uri>\S+/debian)/+dists/(?P<suite>[^/-]+)/main/binary-")
"""The address of Debian's own archive, and a suite without its updates."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AptPackages:
    """Packages unpacked below ``folder``; its root folder exists only once it is complete."""

    folder: Path
    """Where they are unpacked."""
    title: str
    """What is installed, for messages."""
    packages: Sequence[str]
    """The packages that are wanted."""
    not_needed: re.Pattern[str]
    """Packages that they depend on and that are left out."""
    instead: str
    """What to install on a machine where this does not work."""
    suite: str | None = None
    """Debian's suite; the machine's own when None."""
    etc_apt: Path = Path("/etc/apt")
    """Where the machine's sources are named."""

    @property
    def root(self) -> Path:
        """What is unpacked."""
        return self.folder / "root"

    @property
    def _work(self) -> Path:
        return self.folder / "apt"

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
        announce(f"{self.title}: reading the package lists of Debian {suite}")
        self._apt("update")
        needed = self._closure()
        announce(f"{self.title}: downloading {len(needed)} Debian packages")
        self._apt("download", *needed)
        announce(f"{self.title}: unpacking")
        unpacked = self._work / "root"
        for deb in sorted(self._work.glob("*.deb")):
            self._run(["dpkg-deb", "-x", str(deb), str(unpacked)])
        unpacked.replace(self.root)
        shutil.rmtree(self._work)

    def _prepare(self) -> str:
        """Make the folders and the list of sources; returns the suite."""
        for program in ("apt-get", "dpkg-deb"):
            if shutil.which(program) is None:
                raise StackError(f"no {program} on this machine", next_step=self.instead)
        shutil.rmtree(self._work, ignore_errors=True)
        for name in ("lists/partial", "cache/archives/partial", "state"):
            (self._work / name).mkdir(parents=True)
        # What apt would fetch for the machine's own sources; nothing is fetched.
        mirror = _MIRROR.search(self._apt("update", "--print-uris", sources=self.etc_apt))
        if mirror is None:
            raise StackError(
                f"the apt sources in {self.etc_apt} name no Debian mirror",
                next_step=self.instead,
            )
        suite = self.suite or mirror["suite"]
        keyring = next(KEYRINGS.glob("debian-archive-keyring.[gp]*"), None)
        options = f"[signed-by={keyring}] " if keyring else ""
        source = f"deb {options}{mirror['uri']} {suite} main\n"
        (self._work / "sources.list").write_text(source, encoding="utf-8")
        return suite

    def _apt(self, *arguments: str, sources: Path | None = None) -> str:
        """Run apt with the one source, or with those of a folder."""
        folder = sources or self._work
        options = {
            "Dir::Etc::sourcelist": folder / "sources.list",
            "Dir::Etc::sourceparts": folder / "sources.list.d",
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
        return self._run(argv)

    def _closure(self) -> list[str]:
        """The packages and what they need to run, from a simulated install."""
        answer = self._apt("--simulate", "--no-install-recommends", "install", *self.packages)
        names = re.findall(r"^Inst (\S+)", answer, flags=re.MULTILINE)
        return [name for name in names if not self.not_needed.match(name)]

    def _run(self, argv: list[str]) -> str:
        return run(
            argv,
            what=f"{self.title}: could not be fetched from Debian",
            next_step=f"check that the machine's Debian mirror can be reached, or {self.instead}",
            timeout_s=TIMEOUT_S,
            cwd=self._work,
            environment={"LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
        )
