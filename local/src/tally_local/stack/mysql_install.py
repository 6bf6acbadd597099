"""A private MySQL server from Debian's unstable suite.

It starts through the dynamic loader that was unpacked with it, so it needs none of the machine's
libraries.
"""

import re
from pathlib import Path

from tally_local.stack.apt_packages import AptPackages

# Needed to configure packages, not to run mysqld.
NOT_NEEDED = re.compile(r"(perl|libperl|dpkg|debconf|tar$)")


def private_mysql(folder: Path, *, etc_apt: Path = Path("/etc/apt")) -> AptPackages:
    """MySQL below a folder."""
    return AptPackages(
        folder,
        title="MySQL server (50 MB)",
        packages=("mysql-server-core",),
        not_needed=NOT_NEEDED,
        instead="install mysqld",
        suite="unstable",
        etc_apt=etc_apt,
    )
