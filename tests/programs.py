"""Programs that the tests need besides the servers: a browser, and Prometheus' own checker.

Not part of the set-up for the demo: they are fetched when the tests first ask for them.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tally.spark.jars import Announce
from tally_local.stack.apt_packages import AptPackages
from tally_local.stack.lock import held

# What configures packages, and what any machine with Python has: the loader and its C library are
# the machine's, whose own suite the rest is from.
_NOT_NEEDED: Final = re.compile(
    r"(libc6|libc-bin|perl|libperl|dpkg|debconf|tar|adduser|passwd|systemd)(-|$)"
)
_TRIPLET: Final = "*-linux-gnu*"


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """A program that was unpacked into a folder."""

    path: Path
    """The executable."""
    environment: dict[str, str]
    """What it must find in its environment."""


class TestPrograms:
    """Chromium and promtool, below the folder of downloads."""

    __test__ = False  # no test class, although it is called so

    def __init__(self, downloads: Path) -> None:
        self._downloads = downloads
        self._packages = AptPackages(
            folder=downloads / "test-programs",
            title="Chromium and promtool for the tests (230 MB)",
            packages=("chromium", "prometheus", "fonts-dejavu-core"),
            not_needed=_NOT_NEEDED,
            instead="run the tests on Debian",
        )

    def install(self, announce: Announce) -> None:
        """Fetch them unless they are there.

        Raises:
            StackError: They cannot be fetched.
        """
        if not self._packages.is_installed():
            self._downloads.mkdir(parents=True, exist_ok=True)
            with held(self._downloads / "test-programs.lock", announce):
                self._packages.install(announce)

    @property
    def chromium(self) -> Program:
        """The browser."""
        root = self._packages.root
        libraries = [
            *sorted(root.glob(f"usr/lib/{_TRIPLET}")),
            *sorted(root.glob(f"lib/{_TRIPLET}")),
            *sorted(root.glob(f"usr/lib/{_TRIPLET}/pulseaudio")),
            root / "usr/lib/chromium",
        ]
        return Program(
            path=root / "usr/lib/chromium/chromium",
            environment={
                "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
                "FONTCONFIG_SYSROOT": str(root),
            },
        )

    @property
    def promtool(self) -> Program:
        """Prometheus' checker of rules; it needs no library."""
        return Program(path=self._packages.root / "usr/bin/promtool", environment={})
