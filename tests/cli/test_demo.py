"""What the demonstration finds in the ledger and in Kafka while it runs."""

import pytest

from tally.ledger.batches import abandon
from tally_local.demo.show import commits, waits
from tests.cli.conftest import LINE
from tests.world import World

pytestmark = pytest.mark.stack


def test_every_batch_is_found_once_when_it_is_committed(world: World) -> None:
    """Also a replay's that was planned before a minute batch and is committed after it."""
    assert not waits(world.context(), world.pipeline)
    world.produce([LINE] * 3)
    assert waits(world.context(), world.pipeline)
    world.minute()
    assert not waits(world.context(), world.pipeline)
    answers = commits(world.database, world.name)

    def found() -> list[int]:
        return [batch.batch_id for batch in next(answers)]

    assert found() == []
    (replayed,) = world.ask_replay().batch_ids
    world.produce([LINE] * 2)
    minute = world.minute()
    assert minute is not None
    assert replayed < minute.batch_id
    assert found() == [minute.batch_id]
    world.run(replayed)
    assert found() == [replayed]
    planned = world.planned([LINE]).batch_id
    world.database.run(lambda tx: abandon(tx, planned, by="ann", reason="a test"))
    assert found() == []
