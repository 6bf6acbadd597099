"""The runbook's way to rebuild a result table, as it is printed there."""

import re
from datetime import timedelta

import pytest

from tally.app.migrate import migrate
from tally.pipeline.prune import prune
from tests.conftest import PROJECT
from tests.minute.test_labels import PATTERN, line
from tests.world import World

pytestmark = pytest.mark.stack

RUNBOOK = PROJECT / "docs" / "runbook.md"


def rebuild(world: World, block: int) -> None:
    """Execute one of the runbook's blocks for this world's table."""
    found = re.findall(r"```sql\n(start transaction;.*?)```", RUNBOOK.read_text("utf-8"), re.DOTALL)
    assert len(found) == 2
    for statement in found[block].split(";")[1:-2]:  # a transaction is what executes them
        world.execute(statement.replace("error_log", world.name))


@pytest.mark.parametrize(
    ("block", "keys"),
    [(0, {}), (1, {"line_format": PATTERN, "labels": ["service"], "measure": "bytes"})],
    ids=["plain", "labels and bytes"],
)
def test_a_table_that_others_changed_is_rebuilt_from_the_ledger(
    world: World, block: int, keys: dict[str, object]
) -> None:
    """Live and pruned segments alike; the audit finds the change, and nothing after it."""
    world.configure(**keys)
    migrate(world.database, world.settings)
    for service in ("cart", "shop"):
        world.produce([line(service), line("cart"), line("cart", "INFO")])
        world.minute()
    world.delete_records(0, 3)
    assert prune(world.context(), world.name, timedelta(), lambda *_: None).segments == 1
    whole = f"select * from `{world.name}` order by 1, 2"
    before = world.rows(whole)
    assert sum(row["log_count"] for row in before) == 4
    world.execute(f"update `{world.name}` set log_count = log_count + 7")
    assert not world.audit().holds
    rebuild(world, block)
    assert world.rows(whole) == before
    assert world.audit().holds
