"""The share of malformed records that stops the first batches under new rules."""

import pytest

from tally.aggregates.aggregate import fingerprint
from tally.errors import MalformedFloodError
from tally.ledger.rules import first_recent, recently_understood
from tests.minute.steps import AT, ERROR, audited, count
from tests.minute.test_replay import asked, replay
from tests.world import World

pytestmark = pytest.mark.stack

NONSENSE = "what is this"
INVALID = "2017-13-30 14:09:00 ERROR"
TRACE = "\tat org.example.Shop.sell(Shop.java:12)"


def test_the_first_batches_under_new_rules_stop_at_the_share(world: World) -> None:
    """Half is enough, more stops with nothing written; a larger limit lets the same batch go on."""
    batch_id = world.planned([ERROR] * 499 + [NONSENSE] * 501).batch_id
    with pytest.raises(MalformedFloodError, match=r"501 of 1000 records .* = 0\.5; ") as stopped:
        world.run(batch_id)
    assert stopped.value.next_step.endswith(f"tally run {batch_id}")
    assert world.offsets()[0] == (0, 0)
    assert world.dead_letters() == []
    world.configure(max_malformed_ratio=0.501)
    assert world.run(batch_id).committed
    assert world.counts() == {AT: 499}


def test_half_of_a_thousand_and_most_of_fewer_are_committed(world: World) -> None:
    """The limit itself is allowed, and trusted; a share of fewer than 1,000 records says little."""
    count(world, [ERROR] * 500 + [NONSENSE] * 500, [NONSENSE] * 1000)
    world.configure(levels=["WARN"])  # new rules
    count(world, [NONSENSE] * 999)


def test_rules_that_have_understood_a_thousand_records_are_trusted(world: World) -> None:
    """Nonsense afterwards is counted as malformed; under other rules it stops again."""
    count(world, *[[NONSENSE] * 999] * 2)
    batch_id = world.planned([ERROR] * 999 + [NONSENSE] * 1000).batch_id
    with pytest.raises(MalformedFloodError, match="1000 of 1999 records"):
        world.run(batch_id)
    world.configure(max_malformed_ratio=0.6)  # this batch is within it
    assert world.run(batch_id).committed
    batch_id = world.planned([NONSENSE] * 1001).batch_id
    world.configure(max_malformed_ratio=0.5)  # and is not within this
    with pytest.raises(MalformedFloodError):
        world.run(batch_id)
    world.configure(max_malformed_ratio=0.6)
    assert world.run(batch_id).committed
    world.configure(levels=["WARN"], max_malformed_ratio=0.6)
    with pytest.raises(MalformedFloodError):
        world.run(world.planned([NONSENSE] * 1001).batch_id)


def test_a_replay_stops_under_new_rules_alone(world: World) -> None:
    """What was counted under the same rules is replaced; what counts for the first time is not."""
    world.produce([NONSENSE] * 1000, 0)
    world.configure(start="latest", max_malformed_ratio=1.0)
    assert world.plan().batches == ()
    count(world, [NONSENSE] * 1000)
    world.configure(max_malformed_ratio=0.5)
    assert [ran.committed for ran in replay(world, asked(world, (1000, 2000)))] == [True]
    with pytest.raises(MalformedFloodError, match="1000 of 1000"):
        replay(world, asked(world, (0, 1000)))
    world.configure(levels=["WARN"])
    with pytest.raises(MalformedFloodError, match="1000 of 1000"):
        replay(world, asked(world, (1000, 2000)))
    assert len(world.dead_letters()) == 1000
    assert world.audit().holds


def test_continuation_lines_are_unmatched_and_no_dead_letters(world: World) -> None:
    """However many they are; nor do they hide that most of the others are malformed."""
    world.configure(continuation_lines="unmatched")
    batch_id = world.planned([TRACE] * 1000 + [INVALID] * 2 + [ERROR]).batch_id
    with pytest.raises(MalformedFloodError, match=r"2 of 3 records .* without continuation lines"):
        world.run(batch_id)
    world.configure(max_malformed_ratio=0.7)
    (totals,) = [counted.totals for counted in world.run(batch_id).ranges]
    assert totals is not None
    assert (totals.matched, totals.unmatched, totals.malformed) == (1, 1000, 2)
    assert [s["continuations"] for s in world.segments()] == [totals.continuations] == [1000]
    with world.database.transaction(read_only=True) as tx:
        recent = first_recent(tx, world.name)
        read = recently_understood(tx, world.name, fingerprint(world.pipeline), recent)
    assert (read.lines, read.malformed, round(read.ratio, 2)) == (3, 2, 0.67)
    assert [letter["reason"] for letter in world.dead_letters()] == ["time-invalid"] * 2
    assert audited(world) == {AT: 1}


def test_a_format_in_which_no_line_begins_stops(world: World) -> None:
    """Nothing is malformed then, so nothing else would tell; small batches make it no better."""
    world.configure(continuation_lines="unmatched")
    count(world, *[[TRACE] * 999] * 2)
    batch_id = world.planned([TRACE] * 1000).batch_id
    with pytest.raises(MalformedFloodError, match="none of 1000 records begins a line"):
        world.run(batch_id)
    assert world.offsets()[0] == (0, 1998)
    world.configure(continuation_lines="malformed")  # and stops for that
    with pytest.raises(MalformedFloodError, match="1000 of 1000 records"):
        world.run(batch_id)
    world.configure(continuation_lines="unmatched", max_malformed_ratio=1)  # they are no lines
    assert world.run(batch_id).committed
    world.configure(max_malformed_ratio=0.5)  # and no line was understood in any batch
    with pytest.raises(MalformedFloodError, match="1000 of 1000 records"):
        world.run(world.planned([INVALID] * 1000).batch_id)


def test_lines_that_begin_in_another_way_stop_whatever_was_understood(world: World) -> None:
    """The producer's format has changed: nothing of it is committed as nothing, nor replayed so."""
    world.configure(continuation_lines="unmatched")
    count(world, [ERROR] * 1000, [TRACE] * 999)  # fewer say little
    batch_id = world.planned(["ERROR: it is 14:09:08, some message"] * 1000).batch_id
    with pytest.raises(MalformedFloodError, match="none of 1000 records begins a line") as stopped:
        world.run(batch_id)
    assert "max_malformed_ratio = 1" in stopped.value.next_step
    assert world.offsets()[0] == (0, 1999)
    world.configure(max_malformed_ratio=1)
    assert world.run(batch_id).committed
    world.configure(max_malformed_ratio=0.5)  # what was counted by the same rules may be replayed
    assert [ran.committed for ran in replay(world, asked(world, (1999, 2999)))] == [True]
    assert audited(world) == {AT: 1000}
