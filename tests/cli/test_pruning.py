"""`tally prune` on real servers."""

import pytest

from tests.cli.conftest import LINE, Call, commit
from tests.world import World

pytestmark = pytest.mark.stack


def test_what_kafka_has_lost_is_folded(tally: Call, world: World) -> None:
    """A dry run says what the real one does; the audit holds, and nothing is left to do."""
    for _ in range(3):
        world.produce([LINE] * 2)
        commit(world)
    world.delete_records(0, before=4)
    dry = tally("prune", "--older-than", "0h", "--dry-run")
    assert dry.exit_code == 0
    assert "2 segments of 1 partition would be folded" in dry.stdout
    done = tally("prune", "--older-than", "0h", "--json").document
    assert (done["segments"], done["partitions"], done["dry_run"]) == (2, 1, False)
    assert tally("audit").exit_code == 0
    assert tally("prune", "--older-than", "0h", "--json").document["segments"] == 0


def test_an_age_without_a_unit_is_refused(tally: Call, world: World) -> None:
    """Nobody knows thirty of what."""
    assert world.name
    answer = tally("prune", "--older-than", "30")
    assert answer.exit_code == 2
    assert "write 30d" in answer.stderr
