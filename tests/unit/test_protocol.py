"""The model of the protocol: each guard that is taken out gives a trace that the model rejects."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pytest
from tests.protocol.facts import Action, Batch, Counts, Facts, Loss, Place, Segment
from tests.protocol.ledger import Ledger
from tests.protocol.model import GUARDS, HARD_CASES, Model, accepts
from tests.protocol.recorder import Kafka, Recorder

PLACE = (1, 0)


def counts(start: int, until: int, **changes: Any) -> Counts:
    """A record at each offset, all of them lines of one minute."""
    size, offsets = until - start, frozenset(range(start, until))
    rows = {("14:09",): (size, 0)}
    return replace(Counts(size, size, rows=rows, offsets=offsets, rule="old"), **changes)


class Run:
    """A run of the protocol without some guards; its trace has what the ledger would show."""

    def __init__(self, without: Collection[str] = (), start: int = 0) -> None:
        self.model = Model(without=without)
        self.trace: list[Action] = []
        self.do("generation", number=1, cluster="c", topic_id="t")
        self.do("partition", place=PLACE, start=start, begins={start})

    def do(self, name: str, answer: str = "done", *, ends: bool = True, **about: Any) -> None:
        """An action, which ends its transaction or not."""
        action = Action(name, about, answer=answer)
        self.model.step(action)
        if ends:
            self.model._settle(self.model.facts)
            self.model.facts.losses.sort()
            action = replace(action, seen=self.model.facts.copy())
        self.trace.append(action)

    def plan(self, batch: int, start: int, until: int, place: Place = PLACE, **of: Any) -> None:
        """A batch of one range, with a segment of the same number unless another is given."""
        number, replaces = of.pop("segment", batch), frozenset(of.pop("replaces", ()))
        segment = Segment(batch, place, start, until, replaces=replaces)
        plan = Batch(**{"kind": "ingest", "planned_at": "then", **of})
        self.do("plan", batch=batch, plan=plan, segments={number: segment})

    def ask(self, replay: int, batch: int, start: int, until: int, *replaces: int) -> None:
        """A replay of one batch."""
        if replay not in self.model.facts.replays:
            self.do("request", ends=False, replay=replay)
        self.plan(batch, start, until, kind="replay", replay=replay, replaces=replaces)

    def read(self, batch: int, attempt: int, token: str, **changes: Any) -> None:
        """A worker claims a batch, and reads it."""
        self.do("claim", batch=batch, attempt=attempt, token=token)
        found = self.model.facts.of_batch(batch).items()
        about = {
            "planned_at": self.model.facts.batches[batch].planned_at,
            "counts": {n: counts(s.start, s.until, **changes) for n, s in found},
            "ranges": {n: s.range for n, s in found},
        }
        self.do("read", batch=batch, token=token, **about)

    def commit(self, batch: int, token: str, answer: str = "done", attempt: int = 1) -> None:
        """The worker that holds the token commits."""
        self.do("commit", answer, batch=batch, attempt=attempt, token=token)

    def count(self, batch: int, start: int = 0, until: int = 10, **changes: Any) -> None:
        """A batch from its plan to its commit."""
        self.plan(batch, start, until)
        self.recount(batch, **changes)

    def recount(self, batch: int, **changes: Any) -> None:
        """A planned batch is read and committed."""
        self.read(batch, 1, f"token {batch}", **changes)
        self.commit(batch, f"token {batch}")


def lost_commit_is_repeated(run: Run) -> None:
    run.count(1)
    run.do("lost_commit", applied=True)
    run.commit(1, "token 1")


def committed_batch_is_abandoned(run: Run) -> None:
    run.count(1)
    run.do("abandon", batch=1)


def zombie_commits(run: Run) -> None:
    run.plan(1, 0, 10)
    run.read(1, 1, "a")
    run.read(1, 2, "b")
    run.commit(1, "a")


def attempt_of_a_restored_ledger_commits(run: Run) -> None:
    run.plan(1, 0, 10)
    run.do("dump")
    run.read(1, 1, "a")
    run.do("restore")
    run.read(1, 1, "b")
    run.commit(1, "a")


def other_segments_are_committed(run: Run) -> None:
    run.plan(1, 0, 10)
    run.read(1, 1, "a")
    planned_at, found, _ = run.model.reads[1, "a"]
    other = {"token": "a", "planned_at": planned_at, "counts": found, "ranges": {1: (PLACE, 0, 12)}}
    run.do("read", batch=1, **other)
    run.commit(1, "a")


def other_batch_of_the_same_number_is_taken_for_ones_own(run: Run) -> None:
    run.do("dump")
    run.plan(1, 0, 10)
    run.read(1, 1, "a")
    run.do("restore")
    run.plan(1, 0, 8, planned_at="later")
    run.recount(1)
    run.commit(1, "a", "before")


def offsets_that_have_moved_are_moved_again(run: Run) -> None:
    run.plan(1, 0, 10)
    run.read(1, 1, "a")
    run.do("find_loss", loss=Loss(PLACE, 0, 5))
    run.do("accept", loss=Loss(PLACE, 0, 5), gone=True)
    run.commit(1, "a")


def segment_is_superseded_twice(run: Run) -> None:
    run.count(1)
    run.ask(1, 2, 0, 10, 1)
    run.ask(2, 3, 0, 10, 1)
    run.recount(2)
    run.recount(3)


def two_backfills_below_the_start_overlap(run: Run) -> None:
    run.ask(1, 1, 0, 10)
    run.ask(2, 2, 0, 10)
    run.recount(1)
    run.recount(2)


def half_of_a_segment_is_replaced(run: Run) -> None:
    run.count(1)
    run.ask(1, 2, 5, 10, 1)


def replay_erases_records(run: Run) -> None:
    run.count(1)
    run.ask(1, 2, 0, 10, 1)
    run.recount(2, offsets=frozenset(range(9)))


def truncated_segment_is_replaced(run: Run) -> None:
    run.count(1)
    run.ask(1, 2, 0, 10, 1)
    run.do("find_loss", loss=Loss(PLACE, 5, 10, cause="truncated"))
    run.recount(2)


def prune_deletes_what_an_open_replay_has_given_up(run: Run) -> None:
    run.count(1)
    run.count(2, 10, 20)
    run.ask(1, 3, 0, 10, 1)
    run.ask(1, 4, 10, 20, 2)
    run.do("abandon", batch=3)
    run.do("forget", segments=[3], batches=[3])


def counting_begins_too_late(run: Run) -> None:
    run.do("partition", place=(1, 1), start=5, begins={0, 7})


def two_planners_plan_one_range(run: Run) -> None:
    run.plan(1, 0, 10, lane="/1/0")
    run.plan(2, 0, 10, lane="/1/0")


def partition_is_planned_while_a_loss_is_open(run: Run) -> None:
    run.do("find_loss", loss=Loss(PLACE, 0, 5))
    run.plan(1, 0, 10)


def loss_that_has_grown_is_accepted(run: Run) -> None:
    run.do("find_loss", loss=Loss(PLACE, 0, 5))
    run.do("find_loss", loss=Loss(PLACE, 0, 8))
    run.do("accept", loss=Loss(PLACE, 0, 5), gone=True)


def loss_is_accepted_after_its_partition_has_moved(run: Run) -> None:
    run.plan(1, 0, 10)
    run.read(1, 1, "a")
    run.do("find_loss", loss=Loss(PLACE, 0, 5))
    run.commit(1, "a")
    run.do("accept", loss=Loss(PLACE, 0, 5), gone=True)


def records_that_kafka_has_are_accepted_as_lost(run: Run) -> None:
    run.do("find_loss", loss=Loss(PLACE, 0, 5))
    run.do("accept", loss=Loss(PLACE, 0, 5), gone=False)


def adoption_does_not_wait_for_the_commit(run: Run) -> None:
    run.count(1)
    lost = [Loss(PLACE, 0, 10, state="accepted")]
    run.do("adopt", number=2, identity=("c", "new"), starts={}, lost=lost)


def prune_folds_what_kafka_holds(run: Run) -> None:
    run.count(1)
    run.do("fold", number=2, batch=2, old={1}, held_from=5)


def prune_folds_what_a_replay_replaces(run: Run) -> None:
    run.count(1)
    run.ask(1, 2, 0, 10, 1)
    run.do("fold", number=3, batch=3, old={1}, held_from=10)


def prune_deletes_what_is_counted(run: Run) -> None:
    run.count(1)
    run.do("forget", segments=[1], batches=[])


def something_else_changes_the_result(run: Run) -> None:
    run.count(1)
    run.model.facts.result = {("14:09",): (11, 0)}
    run.do("unknown")


def batch_leaves_a_hole(run: Run) -> None:
    run.count(1, 5, 10)


def partition_begins_again(run: Run) -> None:
    run.count(1)
    run.do("partition", place=PLACE, start=0, begins={0})


def segment_gets_another_range(run: Run) -> None:
    run.count(1)
    run.plan(2, 10, 20, segment=1)


def counts_do_not_add_up(run: Run) -> None:
    run.count(1, matched=9)


def complete_minute_is_open_again(run: Run) -> None:
    run.model.facts.complete = "14:10"
    run.do("advance")
    run.model.facts.complete = "14:09"
    run.do("advance")


def complete_minute_changes_unnoticed(run: Run) -> None:
    run.model.facts.complete = "14:10"
    run.do("advance")
    run.count(1)


Scenario = Callable[[Run], None]

# The guard that rejects the trace, what the run did without, and what happens then.
MUTANTS: list[tuple[str, set[str], Scenario]] = [
    ("once", {"once", "offsets"}, lost_commit_is_repeated),
    ("once", {"once"}, committed_batch_is_abandoned),
    ("attempt", {"attempt", "token"}, zombie_commits),
    ("token", {"token"}, attempt_of_a_restored_ledger_commits),
    ("as read", {"as read"}, other_segments_are_committed),
    ("same batch", {"same batch"}, other_batch_of_the_same_number_is_taken_for_ones_own),
    ("offsets", {"offsets"}, offsets_that_have_moved_are_moved_again),
    ("supersede once", {"supersede once", "alone"}, segment_is_superseded_twice),
    ("alone", {"alone"}, two_backfills_below_the_start_overlap),
    ("whole", {"whole"}, half_of_a_segment_is_replaced),
    ("whole", {"whole"}, replay_erases_records),
    ("decided", {"decided"}, truncated_segment_is_replaced),
    ("beginning", {"beginning"}, counting_begins_too_late),
    ("one open", {"one open"}, two_planners_plan_one_range),
    ("one open", {"one open"}, partition_is_planned_while_a_loss_is_open),
    ("as seen", {"as seen"}, loss_that_has_grown_is_accepted),
    ("as seen", {"as seen"}, loss_is_accepted_after_its_partition_has_moved),
    ("gone", {"gone"}, records_that_kafka_has_are_accepted_as_lost),
    ("adoption", {"adoption"}, adoption_does_not_wait_for_the_commit),
    ("out of reach", {"out of reach"}, prune_folds_what_kafka_holds),
    ("not awaited", {"not awaited"}, prune_folds_what_a_replay_replaces),
    ("needed", {"needed"}, prune_deletes_what_is_counted),
    ("needed", {"needed"}, prune_deletes_what_an_open_replay_has_given_up),
    ("effect", {"effect"}, something_else_changes_the_result),
]

# What an invariant finds where guards have failed.
BROKEN: list[tuple[str, set[str], Scenario]] = [
    ("tiles", {"offsets"}, batch_leaves_a_hole),
    ("tiles", {"alone"}, two_backfills_below_the_start_overlap),
    ("tiles", {"adoption"}, adoption_does_not_wait_for_the_commit),
    ("sum", {"effect"}, something_else_changes_the_result),
    ("forward", {"once"}, partition_begins_again),
    ("forward", {"as seen"}, loss_is_accepted_after_its_partition_has_moved),
    ("ranges", {"once"}, segment_gets_another_range),
    ("adds up", set(), counts_do_not_add_up),
    ("complete", set(), complete_minute_is_open_again),
    ("amended", set(), complete_minute_changes_unnoticed),
]


def played(without: Collection[str], scenario: Scenario) -> list[Action]:
    run = Run(without, start=10 if scenario is two_backfills_below_the_start_overlap else 0)
    scenario(run)
    return run.trace


@pytest.mark.parametrize(("guard", "without", "scenario"), MUTANTS)
def test_a_run_without_a_guard_is_rejected(
    guard: str, without: set[str], scenario: Scenario
) -> None:
    """At its last action, for that guard; and the guards that are left do not reject it before."""
    trace = played(without, scenario)
    number, _, rejected = accepts(trace) or (None, None, None)
    assert (number, rejected and rejected.guard) == (len(trace) - 1, guard)


@pytest.mark.parametrize(("invariant", "without", "scenario"), BROKEN)
def test_an_invariant_finds_what_a_guard_has_let_through(
    invariant: str, without: set[str], scenario: Scenario
) -> None:
    """The invariants hold in each state, and do not rely on the guards."""
    number, _, rejected = accepts(played(without, scenario), without) or (None, None, None)
    assert number is not None
    assert rejected is not None
    assert rejected.guard == invariant


def test_each_guard_has_its_mutant() -> None:
    """A guard that no trace needs proves nothing."""
    assert {guard for guard, _, _ in [*MUTANTS, *BROKEN]} == set(GUARDS)


def whole_run() -> Run:
    """All of the hard cases, with losses, replays, an adoption, a prune and a restore."""
    run = Run()
    run.count(1)
    run.plan(2, 10, 20)
    run.do("dump")
    run.read(2, 1, "zombie")
    run.do("restore")
    run.read(2, 1, "b")
    run.commit(2, "zombie", "refused")
    run.do("lost_commit", applied=False)
    run.commit(2, "b")
    run.do("lost_commit", applied=True)
    run.commit(2, "b", "before")
    run.do("find_loss", loss=Loss(PLACE, 20, 25))
    run.do("accept", loss=Loss(PLACE, 20, 25), gone=True)
    run.ask(1, 3, 10, 22, 2)
    run.do("abandon", ends=False, batch=3)
    run.ask(1, 4, 10, 22, 2)
    run.do("fold", number=5, batch=5, old={1}, held_from=10)
    run.recount(4, rule="new", offsets=frozenset(range(10, 22)))
    run.do("forget", segments=[2, 3], batches=[1, 2, 3])
    run.plan(6, 25, 30)
    lost = [Loss(PLACE, 25, 30, state="accepted")]
    starts = {(2, 0): (0, 3, {0})}
    lost += [Loss((2, 0), 0, 3, state="accepted")]
    run.do("abandon", batch=6)
    run.do("adopt", number=2, identity=("c", "new"), starts=starts, lost=lost)
    return run


def replay_abandoned_in_part() -> Run:
    """The replay is cancelled as its other batch commits, and not by an operator."""
    run = Run()
    run.count(1)
    run.count(2, 10, 20)
    run.ask(1, 3, 0, 10, 1)
    run.ask(1, 4, 10, 20, 2)
    run.do("abandon", batch=3)
    run.recount(4)
    return run


def test_what_the_protocol_allows_is_accepted() -> None:
    """One run with all of the hard cases."""
    run = whole_run()
    assert accepts(run.trace) is None
    facts: Facts = run.model.facts
    assert (facts.replays, facts.result) == ({1: "done"}, {("14:09",): (22, 0)})
    assert Loss(PLACE, 20, 22, state="restored") in facts.losses
    assert Loss(PLACE, 22, 25, state="accepted") in facts.losses
    assert [case for case in HARD_CASES if not run.model.cases[case]] == []


@pytest.mark.parametrize("run", [whole_run, replay_abandoned_in_part])
def test_the_recorder_names_what_was_done(run: Callable[[], Run]) -> None:
    """From the ledger before and after each transaction alone; the model accepts it again."""
    trace: list[Action] = []
    before = Facts()
    kafka = Kafka(lambda *_: {0}, lambda *_: True, lambda *_: 10)
    recorder = Recorder(Ledger(lambda _: [], "p"), kafka)
    done = run().trace
    for action in done:
        if action.name in {"read", "dump", "restore", "lost_commit"} or action.answer != "done":
            trace.append(action)
        elif action.seen is not None:
            about = action.about
            claim = (about["batch"], about["attempt"], about["token"]) if "token" in about else None
            found = recorder._between(before, action.seen, claim)
            trace += [Action(name, about) for name, about in found]
            trace[-1] = replace(trace[-1], seen=action.seen)
        before = action.seen or before
    assert [action.name for action in trace] == [action.name for action in done]
    assert accepts(trace) is None


def test_a_refusal_needs_a_reason() -> None:
    """A commit that nothing prevents must be done."""
    run = Run()
    run.plan(1, 0, 10)
    run.read(1, 1, "a")
    run.trace.append(Action("commit", {"batch": 1, "attempt": 1, "token": "a"}, answer="refused"))
    number, _, rejected = accepts(run.trace) or (None, None, None)
    assert (number, rejected and rejected.guard) == (len(run.trace) - 1, "effect")
