"""Replays on real Kafka and MySQL: a reprocessed range replaces its earlier counts."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tally import errors
from tally.audit.recount import recount
from tally.config.servers import MySQLSettings
from tally.context import Patience
from tally.counting.outcomes import Ran
from tally.counting.replan import replan_batch
from tally.counting.run import run_batches
from tally.maintenance.decisions import adopt, preview_adoption
from tally.model import OffsetRange
from tally.mysql.connection import connect
from tally.mysql.transactions import Connection
from tally.planning import replay_request as requests
from tally.replay.preview import Preview
from tally.replay.preview import preview as previewed
from tally.replay.run import run_replay
from tally.replay.trial import Trial
from tests.minute import steps
from tests.minute.steps import AT, AT_LATER, ERROR, LATER, proxied
from tests.minute.test_losses import find_the_hole, leave_a_hole
from tests.proxy import Cut
from tests.waiting import wait_until
from tests.world import World, recorded

pytestmark = pytest.mark.stack

WARN = "2017-07-30 14:09:08 WARN some message"


def asked(world: World, *spans: tuple[int, int], partition: int = 0) -> requests.RangesAsked:
    return requests.RangesAsked(
        ranges=tuple(
            OffsetRange(partition=world.partition(partition), from_offset=a, until_offset=b)
            for a, b in spans
        )
    )


def preview(world: World, request: requests.Request | None = None) -> Preview:
    """What a replay would do, of all that was counted by default."""
    return previewed(world.context(), world.name, request or requests.BoundsAsked())


def run(world: World, replay_id: int) -> list[Ran]:
    return list(run_replay(world.context(world.reader), replay_id))


def replay(world: World, what: requests.Request | None = None) -> list[Ran]:
    return run(world, world.ask_replay(what).replay_id)


def widened(shown: Preview) -> list[str]:
    return [str(r).split(" ", 1)[1] for r in (read.range for read in shown.read)]


def states(world: World) -> list[tuple[int, int, str]]:
    return [(s["from_offset"], s["until_offset"], s["state"]) for s in world.segments()]


def test_a_replay_with_another_level_counts_as_a_fresh_start_would(world: World) -> None:
    """New counts replace old ones, also where a minute gains lines, loses some or disappears."""
    steps.count(world, [ERROR, WARN, WARN], [LATER, WARN], [ERROR])
    assert world.counts() == {AT: 2, AT_LATER: 1}
    world.configure(levels=["WARN"])
    done = replay(world)
    assert [ran.committed for ran in done] == [True]
    assert steps.audited(world) == {AT: 3}
    assert states(world)[-1] == (0, 6, "live")
    assert [state for _, _, state in states(world)[:-1]] == ["superseded"] * 3
    assert world.offsets()[0] == (0, 6)


def test_a_preview_tries_todays_rules_on_a_sample(world: World) -> None:
    """All of a small replay; a part of a large one, of which it says how many."""
    world.produce([ERROR, WARN, "what is this"])
    world.minute(world.reader)
    assert Trial.of(world.context(), preview(world)) is None, "by the same rules all is known"
    world.configure(levels=["ERROR", "WARN"])

    def tried() -> Trial:
        found = Trial.of(world.context(), preview(world))
        assert found is not None
        return found

    assert replace(tried(), share=0) == Trial(sampled=3, records=3, counted=1, share=0)
    assert str(tried()).startswith("1 lines now, about 2 after: today's rules count 66.7%")
    world.produce([ERROR, WARN, WARN, "x"] * 2_000, 1)
    world.minute(world.reader)
    many = tried()
    assert many.sampled < 2_100
    assert (many.records, many.counted) == (8_003, 6_001)
    assert abs(many.expected - 6_002) < 100
    world.configure(levels=["WARN"])  # a third of few, and half of many
    assert abs(tried().expected - 4_001) < 100
    world.delete_topic()
    assert Trial.of(world.context(), preview(world)) is None


def test_a_range_is_widened_to_whole_segments(world: World) -> None:
    steps.count(world, [ERROR] * 3, [ERROR] * 3, [ERROR] * 3)
    shown = preview(world, asked(world, (4, 5)))
    assert widened(shown) == ["[3, 6)"]
    assert (shown.minutes, shown.first_minute) == (1, "2017-07-30 14:09")
    assert widened(preview(world, asked(world, (2, 4)))) == ["[0, 6)"]
    world.configure(levels=["WARN"])
    replay(world, asked(world, (4, 5)))
    assert steps.audited(world) == {AT: 6}


def test_dead_letters_that_a_corrected_format_understands_become_lines(world: World) -> None:
    lines = ["2017-07-30 14:09:08,123 ERROR [main] x", ERROR]
    world.configure(line_format="zookeeper")
    steps.count(world, lines)
    assert len(world.dead_letters()) == 2
    world.configure(line_format="log4j")
    replay(world)
    assert steps.audited(world) == {AT: 2}
    assert world.dead_letters() == []


def test_offsets_below_the_start_are_counted_for_the_first_time(world: World) -> None:
    """A backfill adds counts; a second one replaces the first; a mixed range does both."""
    world.produce([ERROR] * 5)
    world.configure(start="latest")
    world.plan()
    steps.count(world, [LATER] * 2)
    assert world.offsets()[0] == (5, 7)
    assert preview(world, asked(world, (1, 3))).never_counted == 2
    first, second = (world.ask_replay(asked(world, (at, 3))).replay_id for at in (1, 0))
    run(world, first)
    # Without segments to supersede, the commit checks for live segments in its range.
    with pytest.raises(errors.OvertakenError, match="meanwhile"):
        world.run(world.batches()[-1]["batch_id"])
    run(world, second)
    assert steps.audited(world) == {AT: 3, AT_LATER: 2}
    replay(world, asked(world, (0, 7)))
    assert world.counts() == {AT: 5, AT_LATER: 2}
    assert world.offsets()[0] == (5, 7)
    assert world.audit().holds


def test_what_cannot_be_reprocessed_is_refused(world: World) -> None:
    steps.count(world, [ERROR] * 3, [ERROR] * 3)
    for what, why in (
        (asked(world, (4, 7)), "counted up to 6"),
        (
            asked(world, (0, 1), partition=7),
            r"unknown partition .*/7: .* has counted \d partitions?",
        ),
        (requests.BoundsAsked(topic=world.topic, partitions=(9,)), "unknown partition .*/9"),
        (requests.BoundsAsked(from_offset=4, until_offset=4), "from must be smaller"),
        (requests.BoundsAsked(topic="other"), "unknown topic other: pipeline .* has counted"),
    ):
        with pytest.raises(errors.ReplayRefusedError, match=why):
            world.ask_replay(what)
    world.delete_records(0, 2)
    with pytest.raises(
        errors.ReplayRefusedError, match=r"first offset is now 2; what was counted stays"
    ):
        world.ask_replay(asked(world, (2, 3)))
    assert world.replays() == []
    assert widened(preview(world)) == ["[3, 6)"]
    assert world.counts() == {AT: 6}
    # Other records may have the offsets of a truncation; an operator decides first.
    add_loss(world, 0, 5, 6, "truncated", "open")
    with pytest.raises(errors.ReplayRefusedError, match="truncated"):
        world.ask_replay()


def test_records_that_go_between_request_and_run_leave_the_old_counts(world: World) -> None:
    steps.count(world, [ERROR] * 3)
    replay_id = world.ask_replay().replay_id
    world.delete_records(0, 1)
    with pytest.raises(errors.DataLossError) as lost:
        run(world, replay_id)
    assert f"tally abandon {world.batches()[-1]['batch_id']}" in lost.value.next_step
    assert world.counts() == {AT: 3}
    steps.abandoned(world, world.batches()[-1]["batch_id"])
    assert replay_state(world, replay_id) == "cancelled"
    assert world.audit().holds


def replay_state(world: World, replay_id: int) -> str:
    return next(str(row["state"]) for row in world.replays() if row["replay_id"] == replay_id)


def test_a_large_request_is_cut_and_resumes_where_it_stopped(world: World) -> None:
    steps.count(world, [ERROR] * 3, [ERROR] * 3, [ERROR] * 3, [ERROR] * 3)
    world.configure(levels=["WARN"], max_records_per_partition=6)
    replay_id = world.ask_replay().replay_id
    batches = [b["batch_id"] for b in world.batches() if b["replay_id"] == replay_id]
    assert len(batches) == 2
    world.run(batches[0])
    assert steps.audited(world) == {AT: 6}
    assert not world.run(batches[0]).committed
    assert replay_state(world, replay_id) == "open"
    assert [ran.batch_id for ran in run(world, replay_id)] == batches[1:]
    assert world.counts() == {}
    assert replay_state(world, replay_id) == "done"
    assert run(world, replay_id) == []


def test_of_two_replays_of_one_range_each_counts_once(world: World) -> None:
    """The second one's segments were superseded: it is replanned and replaces the first one's."""
    steps.count(world, [ERROR] * 3, [ERROR] * 3)
    first = world.ask_replay(asked(world, (0, 3))).replay_id
    second = world.ask_replay().replay_id
    run(world, first)
    batch_id = world.batches()[-1]["batch_id"]
    with pytest.raises(errors.OvertakenError, match="another replay came first"):
        world.run(batch_id)
    assert len(run(world, second)) == 1
    assert world.counts() == {AT: 6}
    assert (replay_state(world, first), replay_state(world, second)) == ("done", "done")
    with pytest.raises(errors.FencedError, match="abandoned"):
        replan_batch(world.context(), batch_id)
    assert world.audit().holds


def test_what_was_shown_is_what_is_done(world: World) -> None:
    steps.count(world, [ERROR] * 3)
    shown = preview(world)
    replay(world)
    with pytest.raises(errors.ReplayRefusedError, match="not what you saw"):
        recorded(world.context(), shown)


def test_two_requests_at_once_for_one_preview_are_one_replay(world: World) -> None:
    """The other one names it, also for the same ranges in other words, until it is cancelled."""
    steps.count(world, [ERROR] * 3)
    shown = preview(world)

    def request() -> int | str:
        try:
            return recorded(world.context(), shown).replay_id
        except errors.ReplayRefusedError as refused:
            return str(refused)

    outcomes = steps.at_once(request, request)
    (replay_id,) = [row["replay_id"] for row in world.replays()]
    (other,) = [str(outcome) for outcome in outcomes if outcome != replay_id]
    named = f"replay {replay_id} is open and reprocesses exactly this already"
    assert named in other
    with pytest.raises(errors.ReplayRefusedError, match=named):
        world.ask_replay(asked(world, (0, 1)))
    steps.abandoned(world, world.batches()[-1]["batch_id"])
    assert run(world, world.ask_replay().replay_id)


@pytest.mark.parametrize("cut", Cut)
def test_a_request_whose_commit_was_not_answered_is_written_once(world: World, cut: Cut) -> None:
    """The ledger is asked: a replay that was recorded is returned, otherwise it is recorded now."""
    steps.count(world, [ERROR] * 3)
    shown = preview(world)
    with proxied(world, cut) as (proxy, broken):
        requested = recorded(broken.context(), shown)
        assert proxy.fired == 1
    assert [row["replay_id"] for row in world.replays()] == [requested.replay_id]
    batches = [b["batch_id"] for b in world.batches() if b["replay_id"] is not None]
    assert batches == list(requested.batch_ids)


def test_a_request_that_cannot_be_looked_up_says_so(world: World) -> None:
    """The error names the command that shows it; nothing is recorded a second time."""
    steps.count(world, [ERROR] * 3)
    shown = preview(world)
    with proxied(world, Cut.ANSWER_LOST) as (proxy, broken):

        def gone_since(settings: MySQLSettings) -> Connection:
            return connect(settings.model_copy(update={"port": 1} if proxy.fired else {}))

        ctx = broken.context(patience=Patience(doubt_pause_s=0, outcome_s=0))
        ctx = replace(ctx, database=replace(ctx.database, open=gone_since))
        with pytest.raises(errors.OutcomeUnknownError, match="does not say whether") as caught:
            recorded(ctx, shown)
    assert caught.value.next_step.startswith("tally replays")
    assert len(world.replays()) == 1


def test_ranges_are_found_by_batch_and_minute(world: World) -> None:
    steps.count(world, [ERROR] * 2, [LATER] * 3)
    first = world.batches()[0]["batch_id"]
    assert widened(preview(world, requests.BatchAsked(batch_id=first))) == ["[0, 2)"]
    minute = requests.MinutesAsked(first="2017-7-30 15:0", last=AT_LATER)
    assert widened(preview(world, minute)) == ["[2, 5)"]
    replay(world)
    assert widened(preview(world, requests.BatchAsked(batch_id=first))) == ["[0, 5)"]
    with pytest.raises(errors.UnknownBatchError, match="no batch 987654321"):
        preview(world, requests.BatchAsked(batch_id=987654321))


def lose(world: World, from_offset: int, until_offset: int) -> None:
    add_loss(world, 0, from_offset, until_offset, "expired")
    steps.set_position(world, until_offset)
    assert world.audit().holds


def add_loss(
    world: World, partition: int, start: int, until: int, cause: str, state: str = "accepted"
) -> None:
    world.execute(
        "insert into lost_range (incarnation_id, partition_id, from_offset, until_offset, cause,"
        " state, detected_at, decided_at, decided_by, reason)"
        " select incarnation_id, %s, %s, %s, %s, %s, now(), now(), 'an operator', 'gone'"
        " from topic_incarnation where pipeline = %s",
        (partition, start, until, cause, state, world.name),
    )


def test_parts_of_a_loss_may_be_counted_in_any_order(world: World) -> None:
    """Kafka holds the records after all; what is left before and behind a part stays accepted."""
    steps.count(world, [ERROR] * 2)
    world.produce([ERROR] * 8)
    lose(world, 2, 10)
    world.configure(max_records_per_partition=3)
    shown = preview(world, asked(world, (3, 4)))
    assert (widened(shown), shown.never_counted) == (["[3, 4)"], 1)
    replay_id = world.ask_replay(asked(world, (2, 10))).replay_id
    parts = [b["batch_id"] for b in world.batches() if b["replay_id"] == replay_id]
    assert len(parts) == 3
    for part in (parts[1], parts[2], parts[0]):
        world.run(part)
        assert world.audit().holds
    assert world.counts() == {AT: 10}
    assert {state for *_, state in steps.losses(world)} == {"restored"}
    assert replay_state(world, replay_id) == "done"


def test_the_part_of_a_loss_that_kafka_holds_is_counted(world: World) -> None:
    """The loss keeps what is gone; audit and recount find nothing more to be done."""
    steps.count(world, [ERROR] * 2)
    world.produce([ERROR] * 8)
    lose(world, 2, 10)
    world.delete_records(0, before=5)
    refused = preview(world, asked(world, (2, 10)))
    assert [str(r).split(" ", 1)[1] for r in refused.possible] == ["[5, 10)"]
    _, wrong = recount(world.context(world.reader), world.name, lambda *_: None)
    assert [v.detail.split(":")[0] for v in wrong] == [
        "it was accepted as lost, and Kafka holds [5, 10) of it"
    ]
    replay(world, asked(world, (5, 10)))
    assert steps.audited(world) == {AT: 2 + 5}
    assert sorted(steps.losses(world)) == [
        (0, 2, 5, "expired", "accepted"),
        (0, 5, 10, "expired", "restored"),
    ]
    assert recount(world.context(world.reader), world.name, lambda *_: None)[1] == []


def test_a_hole_in_a_loss_that_came_back_is_no_accepted_one(world: World) -> None:
    """An operator has accepted the loss of the whole range, not a hole in it."""
    steps.count(world, [ERROR] * 2)
    leave_a_hole(world)
    lose(world, 2, 6)
    with pytest.raises(errors.RecordsMissingError, match="3 records of 4"):
        replay(world, asked(world, (2, 6)))
    assert steps.audited(world) == {AT: 2}


def test_a_hole_that_was_counted_as_sparse_is_no_accepted_one(world: World) -> None:
    """No operator has accepted it: once offsets are dense again, it is missing again."""
    find_the_hole(world)
    world.configure(offsets="sparse")
    assert world.minute() is not None
    assert steps.losses(world) == [(0, 0, 6, "missing", "restored")]  # no decision is needed
    world.configure(offsets="dense")
    with pytest.raises(errors.RecordsMissingError, match="5 records of 6"):
        replay(world, requests.BoundsAsked(partitions=(0,)))
    assert world.counts() == {AT: 10}


@pytest.mark.parametrize("is_first", [True, False], ids=["abandoned first", "abandoned last"])
def test_a_batch_that_was_replanned_and_abandoned_in_part_is_not_done(
    world: World, is_first: bool
) -> None:
    """A run of it is refused, because no other batches cover all of its ranges."""
    steps.count(world, [ERROR] * 3, [ERROR] * 3)
    replay_id = world.ask_replay().replay_id
    batch_id = world.batches()[-1]["batch_id"]
    world.configure(max_records_per_partition=3)
    first, second = replan_batch(world.context(), batch_id)
    if not is_first:
        assert world.run(first).committed
    steps.abandoned(world, second)
    with pytest.raises(errors.FencedError, match="replanned"):
        list(run_batches(world.context(world.reader), [batch_id]))
    done = [ran.batch_id for ran in run(world, replay_id)]
    assert done == ([first] if is_first else [])
    assert replay_state(world, replay_id) == "cancelled"


def test_a_hole_in_a_first_time_backfill_says_what_to_do(world: World) -> None:
    """The error offers no loss to accept, because the range lies below the start."""
    steps.produce_transaction(world, [ERROR])
    world.configure(start="latest")
    world.plan()
    steps.count(world, [ERROR])
    with pytest.raises(errors.RecordsMissingError) as caught:
        replay(world, asked(world, (0, 2)))
    assert re.search(r": tally abandon \d+ --reason '…'$", caught.value.next_step)


def test_records_of_aborted_transactions_are_taken_away_by_a_replay(world: World) -> None:
    """Once they are no longer to be counted; until then the recount names the other rules."""
    world.configure(isolation_level="read_uncommitted", offsets="sparse")
    steps.produce_transaction(world, [ERROR] * 3, commit=False)
    steps.produce_transaction(world, [ERROR] * 2)
    assert world.minute() is not None
    assert world.counts() == {AT: 5}
    world.configure(isolation_level="read_committed")
    found, wrong = recount(world.context(world.reader), world.name, lambda *_: None)
    assert (wrong, [u.by_other_rules for u in found.not_checkable]) == ([], [True])
    replay(world)
    assert steps.audited(world) == {AT: 2}
    found, wrong = recount(world.context(world.reader), world.name, lambda *_: None)
    assert (found.segments, wrong, found.not_checkable) == (1, [], ())


@pytest.mark.parametrize(
    ("before", "after", "policy"),
    [
        ("read_committed", "read_committed", "delete"),
        ("read_uncommitted", "read_uncommitted", "delete"),
        ("read_uncommitted", "read_committed", "compact"),
    ],
)
def test_compaction_since_the_first_count_erases_nothing(
    world: World, before: str, after: str, policy: str
) -> None:
    """A sparse range that now holds fewer records than were counted is not replaced.

    Nor are they taken for those of aborted transactions.
    """
    world.configure(offsets="sparse", isolation_level=before)
    steps.produce_transaction(world, [ERROR] * 3)
    assert world.minute() is not None
    # As if its fourth offset, the transaction's marker, had held a record then.
    world.execute(
        "update segment s join batch b using (batch_id) set s.records = 4, s.unmatched = 1"
        " where b.pipeline = %s",
        (world.name,),
    )
    kept_by = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ResourceType.TOPIC, world.topic, incremental_configs=[kept_by])
    world.admin.incremental_alter_configs([topic])[topic].result(30)
    world.configure(isolation_level=after)
    with pytest.raises(errors.DataLossError, match="3 records, 4 were counted"):
        replay(world)
    assert world.counts() == {AT: 3}
    assert [state for _, _, state in states(world)] == ["live", "planned"]


def test_a_reader_never_sees_half_a_replay(world: World) -> None:
    lines = [
        f"2017-07-30 {hour:02}:{minute:02}:00 ERROR x" for hour in range(24) for minute in range(60)
    ]
    steps.count(world, lines, [line.replace("ERROR", "WARN") for line in lines])
    world.configure(levels=["ERROR", "WARN"])
    replay_id = world.ask_replay().replay_id
    seen: set[int] = set()
    done = threading.Event()

    def poll() -> None:
        with closing(world.connect(autocommit=True)) as connection, connection.cursor() as cursor:
            while not done.is_set():
                cursor.execute(f"select sum(log_count) as total from `{world.name}`")
                seen.update(int(row["total"]) for row in cursor)

    with ThreadPoolExecutor(1) as pool:
        polled = pool.submit(poll)
        try:
            wait_until(lambda: seen or polled.done())
            run(world, replay_id)
        finally:
            done.set()
        polled.result()
    assert 1440 in seen
    assert seen <= {1440, 2880}
    assert sum(world.counts().values()) == 2880


def test_a_preview_of_another_generation_is_not_carried_out(world: World) -> None:
    """The same offsets, never counted either: they are other records."""
    world.configure(start="latest")
    world.produce([ERROR] * 4)
    world.plan()
    steps.count(world, [ERROR])
    shown = preview(world, asked(world, (0, 4)))
    assert shown.never_counted == 4
    world.delete_topic()
    world.create_topic(2)
    world.produce([LATER] * 6)
    ctx = world.context()
    offered = preview_adoption(ctx, world.name, world.topic, start="latest", reason="a test")
    adopt(ctx, offered, reason="a test")
    with pytest.raises(errors.PreviewOutdatedError):
        recorded(world.context(), shown)
    run(world, world.ask_replay(asked(world, (0, 4))).replay_id)
    assert world.counts() == {AT: 1, AT_LATER: 4}


def test_a_batch_of_offsets_that_were_truncated_since_waits_for_the_operator(world: World) -> None:
    """Planned before a plan has found it; by then Kafka may have other records there."""
    steps.count(world, [ERROR] * 5)
    replay_id = world.ask_replay().replay_id
    add_loss(world, 0, 3, 5, "truncated", "open")
    with pytest.raises(errors.DataLossError, match=r"\[3, 5\) was truncated.*no operator"):
        run(world, replay_id)
    steps.accept(world)
    assert run(world, replay_id)
    assert world.counts() == {AT: 5}
