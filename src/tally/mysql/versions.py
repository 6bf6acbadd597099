"""The oldest supported versions of MySQL and MariaDB."""

import re
from typing import Final

OLDEST_MYSQL: Final = (8, 0, 17)
"""The first MySQL with the collation ``utf8mb4_0900_bin``, which distinguishes labels' values. It
enforces CHECK constraints, which the ledger relies on, since 8.0.16."""

OLDEST_MARIADB: Final = (10, 6, 0)
"""The first MariaDB whose DDL is atomic, so that a migration can be run again after a crash of the
server. It enforces CHECK constraints since 10.2."""

MYSQL_NEEDED: Final = f"MySQL {'.'.join(map(str, OLDEST_MYSQL))} or newer"
SERVER_NEEDED: Final = (
    f"{MYSQL_NEEDED}, or MariaDB {'.'.join(map(str, OLDEST_MARIADB[:2]))} or newer"
)


def is_supported(version: str) -> bool:
    """Whether a server of this version is supported.

    Args:
        version: As ``select version()`` returns it: ``8.0.36-0ubuntu1``, ``11.4.5-MariaDB-log``.
    """
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if found is None:
        return False
    numbers = tuple(int(part) for part in found.groups())
    return numbers >= (OLDEST_MARIADB if "mariadb" in version.lower() else OLDEST_MYSQL)
