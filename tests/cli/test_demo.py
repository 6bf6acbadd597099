"""What the demonstration finds in the ledger while it runs."""

import pytest

from tally.ledger.batches import abandon
from tally.pipeline.replay import request_replay
from tally.pipeline.replay_plan import preview_replay
from tally.planning.replay_request import BoundsAsked
from tally_local.demo.commits import Commits
from tests.airflow import stand_in
from tests.cli.conftest import LINE, commit
from tests.world import World

pytestmark = pytest.mark.stack


def test_every_batch_is_found_once_when_it_is_committed(world: World) -> None:
    """Also a replay's batch that was planned before a minute batch and is committed after it."""
    world.produce([LINE] * 3, 0)
    commit(world)
    commits = Commits(world.database, world.name)

    def found() -> list[int]:
        return [batch.batch_id for batch in commits.new()]

    assert found() == []
    preview = preview_replay(world.context(), world.name, BoundsAsked())
    replayed = request_replay(world.context(), preview, reason="a test").batch_ids[0]
    world.produce([LINE] * 2, 0)
    minute = commit(world)
    assert replayed < minute
    assert found() == [minute]
    stand_in.commit(world.settings, replayed)
    assert found() == [replayed]
    assert found() == []


def test_an_abandoned_batch_is_not_shown_as_committed(world: World) -> None:
    """It has ended, but nothing of it is in the result."""
    world.produce([LINE] * 3, 0)
    planned = world.plan().batch
    assert planned is not None
    commits = Commits(world.database, world.name)
    with world.database.transaction() as tx:
        abandon(tx, planned.batch_id, by="ann", reason="a test")
    assert commits.new() == []
