"""The mirror of Debian is read from the machine's own sources."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tally.errors import StackError
from tally_local.stack.apt_packages import AptPackages
from tally_local.stack.mysql_program import private_mysql

DEB822 = """\
# The archive
Types: deb deb-src
URIs: http://mirror.example/debian http://second.example/debian/
Suites: trixie trixie-updates
Components: main
# a comment inside
 contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.pgp

Types: deb
Enabled: no
URIs: http://off.example/debian
Suites: trixie
Components: main

Types: deb
URIs: http://key.example/debian
Suites: trixie
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 -----END PGP PUBLIC KEY BLOCK-----
"""

ONE_LINE = """\
# deb http://off.example/debian trixie main
deb-src http://source.example/debian trixie main
deb [arch=amd64 signed-by=/etc/key.gpg] http://security.example/debian trixie-security main
deb http://mirror.example/debian trixie main contrib # the archive
deb cdrom:[Debian]/ trixie main
"""


def source_of(etc: Path, folder: Path, suite: str | None = None) -> str:
    """The source that apt gets on a machine with these."""
    packages = AptPackages(
        folder=folder,
        title="a program",
        packages=["program"],
        not_needed=re.compile("x"),
        instead="",
        suite=suite,
        etc_apt=etc,
    )
    packages._prepare()
    text = (folder / "apt" / "sources.list").read_text()
    return re.sub(r"\[signed-by=/usr/share/keyrings/debian-archive-keyring\.\w+\] ", "", text)


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="the machine has no apt")
def test_both_formats_are_read_in_their_folders(tmp_path: Path) -> None:
    """Nothing that is switched off, and neither updates nor what is for security alone."""
    (tmp_path / "sources.list").write_text(ONE_LINE)
    assert source_of(tmp_path, tmp_path / "a") == "deb http://mirror.example/debian trixie main\n"
    unstable = "deb http://mirror.example/debian unstable main\n"
    assert source_of(tmp_path, tmp_path / "b", "unstable") == unstable
    (tmp_path / "sources.list").write_text(ONE_LINE.replace("deb http://mirror", "# deb http://x"))
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (parts / "other.list.disabled").write_text("deb http://off.example/debian sid main\n")
    with pytest.raises(StackError, match="name no Debian mirror"):
        source_of(tmp_path, tmp_path / "c")
    (parts / "debian.sources").write_text(DEB822)
    found = source_of(tmp_path, tmp_path / "d")
    assert re.fullmatch(r"deb http://(mirror|second|key)\.example/debian trixie main\n", found)


def test_a_machine_without_a_debian_mirror_says_so(tmp_path: Path) -> None:
    """The caller then uses MariaDB."""
    (tmp_path / "sources.list").write_text("deb http://other.example/ubuntu noble main\n")
    with pytest.raises(StackError):
        replace(private_mysql(tmp_path / "mysql"), etc_apt=tmp_path).install(lambda _: None)
    assert not private_mysql(tmp_path / "mysql").is_installed()
