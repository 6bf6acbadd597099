"""The mirror of Debian is read from the machine's own sources."""

from dataclasses import replace
from pathlib import Path

import pytest

from tally.errors import StackError
from tally_local.stack import apt_sources
from tally_local.stack.mysql_install import private_mysql

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


MIRROR = apt_sources.Source(
    uri="http://mirror.example/debian", suites=("trixie",), components=("main", "contrib")
)


def test_both_formats_are_read_in_their_folders(tmp_path: Path) -> None:
    """Several addresses, options, comments, what is switched off; no file with another ending."""
    (tmp_path / "sources.list").write_text(ONE_LINE)
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (parts / "debian.sources").write_text(DEB822)
    (parts / "other.list.disabled").write_text("deb http://off.example/debian sid main\n")
    security, mirror, _cdrom, first, second, key = apt_sources.read_sources(tmp_path)
    assert security.uri == "http://security.example/debian"
    assert security.signed_by == "/etc/key.gpg"
    assert mirror == apt_sources.debian_mirror([security, mirror]) == MIRROR
    keyring = "/usr/share/keyrings/debian-archive-keyring.pgp"
    assert first == replace(MIRROR, suites=("trixie", "trixie-updates"), signed_by=keyring)
    assert second.uri == "http://second.example/debian/"
    assert (key.uri, key.signed_by) == ("http://key.example/debian", None)


def test_a_machine_without_a_debian_mirror_says_so(tmp_path: Path) -> None:
    """The caller then uses MariaDB."""
    (tmp_path / "sources.list").write_text("deb http://other.example/ubuntu noble main\n")
    with pytest.raises(StackError):
        private_mysql(tmp_path / "mysql", etc_apt=tmp_path).install(lambda _: None)
    assert not private_mysql(tmp_path / "mysql").is_installed()
