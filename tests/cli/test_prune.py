"""`tally prune` on real servers."""

from datetime import UTC, datetime, timedelta

import pytest

from tally.testing.clock import ManualClock
from tests.cli.conftest import LINE, Call, commit
from tests.world import World

pytestmark = pytest.mark.stack


def test_what_kafka_has_lost_is_folded(tally: Call, world: World) -> None:
    """A dry run says what the real one does; the audit holds, and nothing is left to do.

    The age is told by the clock that dated the commits: what was committed two days ago is older
    than a day, and no older than three.
    """
    before = datetime.now(UTC) - timedelta(days=2)
    for _ in range(3):
        commit(world, LINE, LINE, clock=ManualClock(before))
    assert {b["committed_at"] for b in world.batches()} == {before.replace(tzinfo=None)}
    world.delete_records(0, before=4)
    assert tally("prune", "--older-than", "3d", "--json").document["segments"] == 0
    dry = tally("prune", "--older-than", "1d", "--dry-run").ends(0)
    assert "2 segments of 1 partition would be folded" in dry.stdout
    done = tally("prune", "--older-than", "1d", "--json").document
    assert (done["segments"], done["partitions"], done["dry_run"]) == (2, 1, False)
    tally("audit").ends(0)
    assert tally("prune", "--older-than", "0h", "--json").document["segments"] == 0
    tally("prune", "--older-than", "30").ends(2, "write 30d")  # it could be days or hours


@pytest.mark.parametrize("held", [True, False], ids=["replaced counts", "its own counts"])
def test_what_a_pruned_replay_has_changed_is_unknown(tally: Call, world: World, held: bool) -> None:
    """What it replaced is deleted, or what it counted is folded."""
    world.configure(levels=["ERROR", "WARN"])
    commit(world, LINE, LINE, "2017-07-30 14:09:08 WARN some message")
    world.configure(levels=["ERROR"])
    done = tally("replay", "--all", "--reason", "r", "--yes", "--json").document
    resume = ("replay", "--resume", str(done["replay_id"]))
    assert done["changes"]["lines_fewer"] == 1
    assert "1 fewer" in tally(*resume).stdout
    if not held:
        world.delete_records(0, before=3)
    assert tally("prune", "--older-than", "0h").exit_code == 0
    said = tally(*resume).stdout
    assert "what it has changed is no longer known" in said
    assert "fewer" not in said
    again = tally(*resume, "--json").document
    assert again["changes"] is None
    assert again["replay"]["pruned_at"] is not None
    assert tally("audit").exit_code == 0
