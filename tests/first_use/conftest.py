"""Somebody's own servers: a database and a topic of the test's own on those of the session."""

import json
import re
from collections.abc import Iterator

import pytest

from tests.conftest import PROJECT
from tests.first_use.pages import blocks
from tests.world import World

PASSWORD = "PASSWORD"  # noqa: S105 - as the page has it, for a user that lives as long as the test
INSTALL = PROJECT / "docs" / "install.md"


@pytest.fixture
def own_servers(world: World) -> Iterator[dict[str, str]]:
    """Variables that lead from the pages' examples of addresses to real servers.

    The database is made by the statements of the page, under a name of the test's own.
    """
    (statements,) = [text for language, text in blocks(INSTALL) if language == "sql"]
    name = world.name
    of_name = re.sub(r"\btally\b", name, statements)
    world.as_root(*filter(None, (statement.strip() for statement in of_name.split(";"))))
    kafka, mysql = world.settings.kafka, world.settings.mysql
    yield {
        "TALLY_KAFKA__BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "TALLY_MYSQL__HOST": mysql.host,
        "TALLY_MYSQL__PORT": str(mysql.port),
        "TALLY_MYSQL__USER": name,
        "TALLY_MYSQL__DATABASE": name,
        "TALLY_PIPELINES__ERROR_LOG__TOPICS": json.dumps([world.topic]),
    }
    world.as_root(f"drop database {name}", f"drop user {name}")


def counted(world: World) -> dict[str, int]:
    """The result table of the pages' pipeline, by minute."""
    root = world.connect_as_root(database=world.name)
    with root as connection, connection.cursor() as cursor:
        cursor.execute(
            "select date_format(log_time, '%Y-%m-%d %H:%i') as at, log_count from error_log"
        )
        return {row["at"]: row["log_count"] for row in cursor.fetchall()}
