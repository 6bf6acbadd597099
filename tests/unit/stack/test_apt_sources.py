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


def test_deb822() -> None:
    """Several addresses, comments, what is switched off, a key written out."""
    sources = apt_sources.parse_deb822(DEB822)
    assert [source.uri for source in sources] == [
        "http://mirror.example/debian",
        "http://second.example/debian/",
        "http://key.example/debian",
    ]
    assert sources[0] == replace(
        MIRROR,
        suites=("trixie", "trixie-updates"),
        signed_by="/usr/share/keyrings/debian-archive-keyring.pgp",
    )
    assert sources[2].signed_by is None


def test_one_line_format() -> None:
    """Options, comments and source packages."""
    sources = apt_sources.parse_one_line(ONE_LINE)
    assert sources[0].signed_by == "/etc/key.gpg"
    assert sources[1] == apt_sources.debian_mirror(sources) == MIRROR


def test_both_formats_in_their_folders(tmp_path: Path) -> None:
    """Files with other endings are not read, as apt does not."""
    (tmp_path / "sources.list").write_text("deb http://one.example/debian sid main\n")
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (parts / "debian.sources").write_text(DEB822)
    (parts / "other.list.disabled").write_text("deb http://off.example/debian sid main\n")
    assert [source.uri for source in apt_sources.read_sources(tmp_path)][:2] == [
        "http://one.example/debian",
        "http://mirror.example/debian",
    ]


def test_a_machine_without_a_debian_mirror_says_so(tmp_path: Path) -> None:
    """The caller then uses MariaDB."""
    (tmp_path / "sources.list").write_text("deb http://other.example/ubuntu noble main\n")
    with pytest.raises(StackError):
        private_mysql(tmp_path / "mysql", etc_apt=tmp_path).install(lambda _: None)
    assert not private_mysql(tmp_path / "mysql").is_installed()
