"""The share of malformed records that stops the first batches under new rules."""

import pytest

from tally.errors import MalformedFloodError
from tally.pipeline.replay import request_replay, run_replay
from tally.pipeline.replay_plan import preview_replay
from tally.planning.replay_request import BoundsAsked
from tests.minute.test_replay import asked, replay
from tests.world import World

pytestmark = pytest.mark.stack

ERROR = "2017-07-30 14:09:00 ERROR a line"
NONSENSE = "what is this"


def planned(world: World) -> int:
    """The batch that is planned next."""
    batch = world.plan().batch
    assert batch is not None
    return batch.batch_id


def replay_all(world: World) -> int:
    """Request a replay of everything."""
    shown = preview_replay(world.context(), world.name, BoundsAsked())
    return request_replay(world.context(), shown, reason="a test").replay_id


def test_the_first_batches_under_new_rules_stop_at_the_share(world: World) -> None:
    """Half is enough, more stops with nothing written; a larger limit lets the same batch go on."""
    world.produce([ERROR] * 499 + [NONSENSE] * 501, 0)
    batch_id = planned(world)
    with pytest.raises(MalformedFloodError, match=r"501 of 1000 records .* = 0\.5; ") as stopped:
        world.run(batch_id)
    assert stopped.value.next_step.endswith(f"tally run {batch_id}")
    assert world.offsets()[0] == (0, 0)
    assert world.dead_letters() == []
    world.configure(max_malformed_ratio=0.501)
    assert world.run(batch_id).committed
    assert world.counts() == {"2017-07-30 14:09": 499}


def test_half_of_a_thousand_and_most_of_fewer_are_committed(world: World) -> None:
    """The limit itself is allowed, and trusted; a share of fewer than 1,000 records says little."""
    world.produce([ERROR] * 500 + [NONSENSE] * 500, 0)
    assert world.run(planned(world)).committed
    world.produce([NONSENSE] * 1000, 0)
    assert world.run(planned(world)).committed
    world.configure(levels=["WARN"])  # new rules
    world.produce([NONSENSE] * 999, 0)
    assert world.run(planned(world)).committed


def test_rules_that_have_understood_a_thousand_records_are_trusted(world: World) -> None:
    """Nonsense afterwards is counted as malformed; under other rules it stops again.

    Batches that were mostly malformed do not make rules trusted, however many there are.
    """
    for _ in range(2):
        world.produce([NONSENSE] * 999, 0)
        assert world.run(planned(world)).committed
    world.produce([ERROR] * 999 + [NONSENSE] * 1000, 0)
    batch_id = planned(world)
    with pytest.raises(MalformedFloodError, match="1000 of 1999 records"):
        world.run(batch_id)
    world.configure(max_malformed_ratio=0.6)  # this batch is within it
    assert world.run(batch_id).committed
    world.produce([NONSENSE] * 1001, 0)
    batch_id = planned(world)
    world.configure(max_malformed_ratio=0.5)  # and is not within this
    with pytest.raises(MalformedFloodError):
        world.run(batch_id)
    world.configure(max_malformed_ratio=0.6)
    assert world.run(batch_id).committed
    world.configure(levels=["WARN"], max_malformed_ratio=0.6)
    world.produce([NONSENSE] * 1001, 0)
    with pytest.raises(MalformedFloodError):
        world.run(planned(world))


def test_a_replay_stops_under_new_rules_alone(world: World) -> None:
    """What was counted under the same rules is replaced by what it was."""
    world.configure(max_malformed_ratio=1.0)
    world.produce([NONSENSE] * 1000, 0)
    assert world.run(planned(world)).committed
    world.configure(max_malformed_ratio=0.5)
    assert [ran.committed for ran in run_replay(world.context(world.reader), replay_all(world))] == [True]
    world.configure(max_malformed_ratio=0.5, levels=["WARN"])
    replay_id = replay_all(world)
    with pytest.raises(MalformedFloodError, match="1000 of 1000"):
        list(run_replay(world.context(world.reader), replay_id))
    assert world.audit().holds


def test_a_replay_that_counts_for_the_first_time_stops_too(world: World) -> None:
    """It replaces nothing, so nothing was counted under its rules."""
    world.produce([NONSENSE] * 1000, 0)
    world.configure(start="latest")
    assert world.plan().batch is None
    with pytest.raises(MalformedFloodError, match="1000 of 1000"):
        replay(world, asked(world, (0, 1000)))
    assert world.dead_letters() == []


LEAVES = {"continuation_lines": "unmatched"}
TRACE = "\tat org.example.Shop.sell(Shop.java:12)"


def test_continuation_lines_are_unmatched_and_no_dead_letters(world: World) -> None:
    """However many they are; the share of malformed records is that of the others."""
    world.configure(**LEAVES)
    world.produce([ERROR] * 2 + [TRACE] * 1000 + ["2017-13-30 14:09:00 ERROR", ERROR], 0)
    ran = world.run(planned(world))
    assert [(t.matched, t.unmatched, t.malformed) for t in ran.totals.values()] == [(3, 1000, 1)]
    assert [letter["reason"] for letter in world.dead_letters()] == ["time-invalid"]
    assert world.counts() == {"2017-07-30 14:09": 3}
    assert world.audit().holds


def test_most_lines_that_begin_are_malformed(world: World) -> None:
    """Continuation lines do not hide that."""
    world.configure(**LEAVES)
    world.produce([TRACE] * 1000 + ["2017-13-30 14:09:00 ERROR"] * 2 + [ERROR], 0)
    with pytest.raises(MalformedFloodError, match=r"2 of 3 records .* without continuation lines"):
        world.run(planned(world))


def test_a_format_in_which_no_line_begins_stops(world: World) -> None:
    """Nothing is malformed then, so nothing else would tell; small batches make it no better."""
    world.configure(**LEAVES)
    for _ in range(2):
        world.produce([TRACE] * 999, 0)
        assert world.run(planned(world)).committed
    world.produce([TRACE] * 1000, 0)
    batch_id = planned(world)
    with pytest.raises(MalformedFloodError, match="none of 1000 records begins a line"):
        world.run(batch_id)
    assert world.offsets()[0] == (0, 1998)
    world.configure(continuation_lines="malformed")  # and stops for that
    with pytest.raises(MalformedFloodError, match="1000 of 1000 records"):
        world.run(batch_id)


def test_rules_that_have_matched_lines_are_trusted_with_a_batch_of_continuations(
    world: World,
) -> None:
    """A trace of a thousand lines stops nobody who has counted before."""
    world.configure(**LEAVES)
    world.produce([ERROR] + [TRACE] * 999, 0)
    assert world.run(planned(world)).committed
    world.produce([TRACE] * 1000, 0)
    assert world.run(planned(world)).committed
    assert world.counts() == {"2017-07-30 14:09": 1}
