"""What Tally needs of a server: its version, and the properties that the doctor looks at."""

import re
from typing import Final

from tally.mysql.transactions import Database, Row

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


def server_facts(database: Database) -> Row:
    """The server's properties that Tally depends on, for ``tally doctor``.

    Returns:
        ``version``; ``innodb``, whether it is usable; ``session`` and ``server``, the variables by
        name of Tally's own session and of the server.
    """
    with database.transaction() as tx:
        version = tx.one("select version() as version")
        engine = tx.scalar("select support from information_schema.engines where engine = 'InnoDB'")
        session, server = (
            {
                # MariaDB before 11.1 has only the old name of the isolation level.
                name.replace("tx_isolation", "transaction_isolation"): value
                for name, value in tx.pairs(f"show {scope} variables").items()
            }
            for scope in ("session", "global")
        )
    usable = engine in {"YES", "DEFAULT"}
    return {**version, "innodb": usable, "session": session, "server": server}
