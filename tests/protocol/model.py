"""The protocol of docs/exactly-once.md as a model: what the ledger may do, and in which state.

A state is the ledger's facts. An action has guards and an effect, and the names of the commit's
steps are those of :mod:`tally.counting.commit`. A trace is a list of actions, in the order in
which their transactions were committed; :func:`accepts` returns the first one that is not accepted.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final

from tests.protocol.facts import Action, Batch, Counts, Facts, Loss, Place, Segment, Sums, added

GUARDS: Final = {
    "once": "a batch is planned once, and committed or abandoned once",
    "attempt": "only the newest attempt commits",
    "token": "a claim's token is given once, and only its holder commits",
    "as read": "the segments of a commit are those that were read",
    "same batch": "a batch that is committed already is the one that was read",
    "offsets": "offsets move from where they are: a batch's first offset",
    "supersede once": "a replay replaces segments that are live, and no others",
    "alone": "no two live segments overlap, also below the start",
    "whole": "a replay replaces whole segments, each by all of its records",
    "decided": "a replay replaces nothing of a truncation that nobody has decided about",
    "beginning": "counting begins at an offset that Kafka has answered",
    "one open": "a partition has at most one open minute batch, and none while a loss is open",
    "as seen": "a loss is accepted as it was seen, while the partition stands where it blocks it",
    "gone": "only what Kafka could once not serve is lost",
    "adoption": "an adoption loses what was planned and not counted until now",
    "out of reach": "prune folds what Kafka no longer holds",
    "not awaited": "prune folds nothing that a planned replay replaces",
    "needed": "prune deletes only what is replaced, or abandoned and behind the offsets",
    "effect": "the ledger is afterwards as the effect says, and in no other way",
    "tiles": "invariant 1: live segments and accepted losses tile what was counted",
    "sum": "invariant 2: the result is the sum of what is live",
    "forward": "invariant 3: offsets only move forwards, and no start moves",
    "ranges": "invariant 4: the ranges of a batch never change",
    "adds up": "invariant 5: counts add up to matched, dead letters to malformed",
    "complete": "a minute that is complete stays so",
    "amended": "a complete minute that changes is amended, by the batch that changes it",
}

HARD_CASES: Final = (
    "a lost COMMIT that was applied",
    "a lost COMMIT that was not applied",
    "a fenced zombie",
    "a replan",
    "a replay across a rule change",
    "a prune beside a replay",
    "a restore",
)
"""Runs that lack one of these prove little."""


class Rejected(AssertionError):  # noqa: N818 - an assertion
    """An action that the protocol does not allow."""

    def __init__(self, guard: str, why: object = "") -> None:
        super().__init__(f"{GUARDS[guard]}: {why}")
        self.guard = guard


Read = tuple[object, dict[int, Counts], dict[int, Any]]
"""What a claim has read: when the batch was planned; by segment the counts, and the range."""


def _need(guard: str, holds: object, why: object = "") -> None:
    if not holds:
        raise Rejected(guard, why)


@dataclass(slots=True)
class Model:
    """The protocol in one state."""

    without: Collection[str] = ()
    """Guards that are taken out, for the tests of the model itself."""
    facts: Facts = field(default_factory=Facts)
    reads: dict[tuple[int, str], Read] = field(default_factory=dict)
    """By batch and token."""
    tokens: set[tuple[int, str]] = field(default_factory=set)
    dumps: list[Facts] = field(default_factory=list)
    cases: Counter[str] = field(default_factory=Counter)
    """How often each action was accepted, and each of :data:`HARD_CASES`."""

    def need(self, guard: str, holds: object, why: object = "") -> None:
        """Reject the action unless the guard holds."""
        if guard not in self.without:
            _need(guard, holds, why)

    def step(self, action: Action) -> None:
        """Take one action; raises :class:`Rejected` and is unchanged where it is not allowed."""
        before, now = self.facts, self.facts.copy()
        effect: Callable[..., None] = getattr(self, f"_{action.name}")
        if action.answer == "done":
            effect(now, **action.about)
        else:
            self._check_refusal(action)
        if action.seen is not None:
            self._settle(now)
            self._check_effect(now, action.seen)
            self._check_invariants(before, action.seen, is_restore=action.name == "restore")
        self.facts = now
        self.cases[action.name] += action.answer == "done"

    # --- what is not in the ledger

    def _read(
        self, _: Facts, batch: int, token: str, planned_at: Any, counts: Any, ranges: Any
    ) -> None:
        self.reads[batch, token] = planned_at, counts, ranges

    def _lost_commit(self, _: Facts, applied: bool) -> None:
        self.cases[f"a lost COMMIT that was {'' if applied else 'not '}applied"] += 1

    def _dump(self, f: Facts) -> None:
        self.dumps.append(f.copy())

    def _restore(self, f: Facts) -> None:
        """The ledger is as it was dumped; what was read, and the tokens, stay known to workers."""
        old = self.dumps[-1]
        self.cases["a restore"] += old != f
        for name, of in old.copy().parts():
            setattr(f, name, of)

    def _advance(self, _: Facts) -> None:
        """Time has passed, or something was counted."""

    def _unknown(self, _: Facts) -> None:
        """A change that no action explains."""

    # --- planning

    def _generation(self, f: Facts, number: int, cluster: str, topic_id: str) -> None:
        self.need("once", number not in f.generations)
        f.generations[number] = cluster, topic_id, "current"

    def _partition(self, f: Facts, place: Place, start: int, begins: Collection[int]) -> None:
        self.need("once", place not in f.positions, place)
        self.need("beginning", start in begins, f"{place} begins at {start}, and not at {begins}")
        f.positions[place] = start, start

    def _request(self, f: Facts, replay: int) -> None:
        self.need("once", replay not in f.replays)
        f.replays[replay] = "open"

    def _plan(self, f: Facts, batch: int, plan: Batch, segments: Mapping[int, Segment]) -> None:
        self.need("once", batch not in f.batches and segments, batch)
        self.need("once", (plan.state, plan.attempt) == ("planned", 0), plan)
        for s in segments.values():
            if plan.kind == "ingest":
                busy = [n for n in f.planned(kind="ingest") if _has(f, n, s.place)]
                is_open = any(lo.place == s.place and lo.state == "open" for lo in f.losses)
                self.need("one open", not busy and not is_open, (s, busy))
                self.need("offsets", f.positions[s.place][1] == s.start, s)
            else:
                touched = {n for n, old in f.live().items() if old.meets(s)}
                self.need("supersede once", s.replaces == touched, (s, touched))
                self.need("whole", all(_holds(s, f.segments[n]) for n in s.replaces), s)
                self.need("forward", s.until <= f.positions[s.place][1], s)
        if plan.kind == "ingest" and not plan.lane:
            self.need("one open", not f.planned(kind="ingest", lane=""), batch)
        others = [b.state for b in f.batches.values() if b.replay == plan.replay]
        self.cases["a replan"] += plan.kind == "replay" and "abandoned" in others
        f.batches[batch] = plan
        f.segments.update(segments)

    def _claim(self, f: Facts, batch: int, attempt: int, token: str) -> None:
        old = f.batches[batch]
        self.need("once", old.state == "planned", old)
        self.need("attempt", attempt == old.attempt + 1, (old, attempt))
        self.need("token", (batch, token) not in self.tokens, token)
        self.tokens.add((batch, token))
        f.batches[batch] = replace(old, attempt=attempt, token=token)

    def _abandon(self, f: Facts, batch: int) -> None:
        self.need("once", f.batches[batch].state == "planned", f.batches[batch])
        f.batches[batch] = replace(f.batches[batch], state="abandoned")
        for number, s in f.of_batch(batch).items():
            f.segments[number] = replace(s, state="abandoned")

    def _cancel(self, f: Facts, replay: int) -> None:
        self.need("once", not f.planned(replay=replay), replay)
        f.replays[replay] = "cancelled"

    # --- the commit, by its steps

    def _commit(self, f: Facts, batch: int, attempt: int, token: str) -> None:
        counts = self._lock_attempt(f, batch, attempt, token)
        if f.batches[batch].kind == "ingest":
            self._move_offsets(f, batch)
        else:
            self._supersede(f, batch, counts)
        for number, s in f.of_batch(batch).items():
            f.segments[number] = replace(s, state="live", counts=counts[number])
        f.batches[batch] = replace(f.batches[batch], state="committed")
        f.result = _result(f)

    def _lock_attempt(self, f: Facts, batch: int, attempt: int, token: str) -> dict[int, Counts]:
        """Step 1."""
        now = f.batches.get(batch)
        self.need("once", now is not None and now.state == "planned", now)
        assert now is not None
        self.need("attempt", now.attempt == attempt, (now, attempt))
        self.need("token", now.token == token, (now, token))
        planned_at, counts, ranges = self.reads.get((batch, token), (None, {}, {}))
        mine = {number: s.range for number, s in f.of_batch(batch).items()}
        self.need("as read", (planned_at, ranges) == (now.planned_at, mine), (ranges, mine))
        return counts

    def _move_offsets(self, f: Facts, batch: int) -> None:
        """Step 2 of a minute batch."""
        for s in f.of_batch(batch).values():
            start, at = f.positions[s.place]
            self.need("offsets", at == s.start, f"{s} at {at}")
            f.positions[s.place] = start, s.until

    def _supersede(self, f: Facts, batch: int, counts: Mapping[int, Counts] | None) -> None:
        """Step 2 of a replay's batch; without counts, whether it is possible."""
        for number, s in f.of_batch(batch).items():
            for old_number in s.replaces:
                old = f.segments[old_number]
                self.need("supersede once", old.state == "live", old)
                assert old.counts is not None
                if counts is not None:
                    erased = old.counts.offsets - counts[number].offsets
                    self.need("whole", not erased, f"{sorted(erased)} of {old} are erased")
                    is_other = old.counts.rule != counts[number].rule
                    self.cases["a replay across a rule change"] += is_other
                was = replace(old.counts, letters=frozenset())
                f.segments[old_number] = replace(
                    old, state="superseded", superseded_by=number, counts=was
                )
            others = [old for old in f.live().values() if old.meets(s)]
            self.need("alone", not others, (s, others))
            undecided = [lo for lo in f.losses if lo.is_truncation and s.meets(lo)]
            self.need("decided", not undecided, (s, undecided))
            f.losses = [part for loss in f.losses for part in _counted_again(loss, s)]

    def obstacle(self, batch: int) -> str | None:
        """The guard that a commit of this batch's newest claim would fail; None without one."""
        try:
            now = self.facts.batches.get(batch)
            _need("once", now is not None and now.state == "planned")
            of_kind = self.facts.copy()
            if now is not None and now.kind == "ingest":
                self._move_offsets(of_kind, batch)
            else:
                self._supersede(of_kind, batch, None)
        except Rejected as rejected:
            return rejected.guard
        return None

    def _check_refusal(self, action: Action) -> None:
        """A commit that has changed nothing was right not to."""
        f, about = self.facts, action.about
        now = f.batches.get(about["batch"])
        if action.answer == "before":
            self.need("once", now is not None and now.state == "committed", now)
            planned_at = self.reads[about["batch"], about["token"]][0]
            self.need("same batch", now is not None and now.planned_at == planned_at, now)
            return
        cases, self.cases = self.cases, Counter()
        try:
            self._commit(f.copy(), **about)
        except Rejected as rejected:
            cases["a fenced zombie"] += rejected.guard in {"once", "attempt", "token", "as read"}
        else:
            raise Rejected("effect", f"{action} was refused without a reason")
        finally:
            self.cases = cases

    # --- losses and generations

    def _find_loss(self, f: Facts, loss: Loss) -> None:
        """An open loss; it takes the place of one that was found before."""
        self.need("as seen", f.positions[loss.place][1] == loss.move[0], loss)
        f.losses = [lo for lo in f.losses if (lo.place, lo.state) != (loss.place, "open")]
        f.losses.append(loss)

    def _close_loss(self, f: Facts, loss: Loss) -> None:
        self.need("as seen", loss in f.losses and loss.state == "open", loss)
        f.losses.remove(loss)
        f.losses.append(replace(loss, state="restored"))

    def _accept(self, f: Facts, loss: Loss, gone: bool) -> None:
        blocked, after = loss.move
        start, at = f.positions[loss.place]
        self.need("as seen", loss in f.losses and loss.state == "open" and at == blocked, loss)
        self.need("gone", gone or loss.cause != "expired", loss)
        f.losses = [lo for lo in f.losses if lo != loss]
        f.losses.append(replace(loss, state="accepted"))
        f.positions[loss.place] = start, after

    def _adopt(
        self, f: Facts, number: int, identity: tuple[str, str], starts: Any, lost: Collection[Loss]
    ) -> None:
        """Another generation is current; what was planned of the old one and not counted is lost.

        ``starts`` has, by place, the start offset, the next one, and where counting may begin.
        """
        (old,) = (n for n, g in f.generations.items() if g[2] == "current")
        self.need("once", old != number)
        expected = []
        for place, (start, at) in list(f.positions.items()):
            ends = [s.until for s in f.segments.values() if s.place == place]
            if place[0] == old and max(ends, default=at) > at:
                expected.append(Loss(place, at, max(ends), state="accepted"))
                f.positions[place] = start, max(ends)
        for place, (start, at, begins) in starts.items():
            self.need("beginning", start in begins and place not in f.positions, place)
            f.positions[place] = start, at
            expected += [Loss(place, start, at, state="accepted")] if start < at else []
        self.need("adoption", sorted(lost) == sorted(expected), f"{lost}, and not {expected}")
        f.losses += lost
        f.generations[old] = *f.generations[old][:2], "retired"
        f.generations[number] = *identity, "current"

    # --- prune

    def _fold(
        self, f: Facts, number: int, batch: int, old: Collection[int], held_from: int | None
    ) -> None:
        """A folded segment replaces adjacent ones; Kafka holds nothing before ``held_from``."""
        run = sorted((f.segments.pop(n) for n in old), key=lambda s: s.start)
        self.need("once", number not in f.segments and batch not in f.batches, number)
        self.need("supersede once", all(s.is_live for s in run), run)
        self.need("tiles", all(a.until == b.start for a, b in pairwise(run)), run)
        is_past = held_from is None or run[-1].until <= held_from
        self.need("out of reach", is_past, f"{run} is held from {held_from}")
        planned = [s for s in f.segments.values() if s.state == "planned"]
        self.need("not awaited", not [s for s in planned if s.replaces & set(old)], run)
        self.cases["a prune beside a replay"] += bool(f.planned(kind="replay"))
        f.folded = added(f.folded, *(s.counts.rows for s in run if s.counts))
        counts = sum((s.counts for s in run if s.counts), Counts())
        place, until = run[0].place, run[-1].until
        f.segments[number] = Segment(
            batch, place, run[0].start, until, state="folded", counts=counts
        )
        f.batches[batch] = Batch("fold", state="committed", attempt=1)
        for n, s in f.segments.items():
            by = number if s.superseded_by in old else s.superseded_by
            f.segments[n] = replace(s, replaces=s.replaces - set(old), superseded_by=by)

    def _forget(self, f: Facts, segments: Collection[int], batches: Collection[int]) -> None:
        for number in segments:
            s = f.segments.pop(number)
            is_behind = s.state == "abandoned" and s.until <= f.positions[s.place][1]
            self.need("needed", is_behind or s.state == "superseded", s)
            of_replay = f.replays.get(f.batches[s.batch].replay or 0)
            self.need("needed", of_replay != "open", s)
        for n, s in f.segments.items():
            self.need("needed", s.superseded_by not in segments, s)
            f.segments[n] = replace(s, replaces=s.replaces - set(segments))
        for batch in batches:
            is_empty = not f.of_batch(batch) and f.batches[batch].state != "planned"
            self.need("needed", is_empty, f.batches[batch])
            del f.batches[batch]

    # --- after each transaction

    def _settle(self, f: Facts) -> None:
        """A replay ends with its last batch: done if all of its ranges were counted."""
        for replay in (n for n, state in f.replays.items() if state == "open"):
            mine = {n for n, b in f.batches.items() if b.replay == replay}
            if f.planned(replay=replay):
                continue
            spans = [s for s in f.segments.values() if s.batch in mine]
            counted = [s for s in spans if f.batches[s.batch].state == "committed"]
            left = [s for s in spans if s.state == "abandoned" and not _ends_in(s, counted)]
            f.replays[replay] = "cancelled" if left else "done"

    def _check_effect(self, now: Facts, seen: Facts) -> None:
        now.losses.sort()
        # By the clock: see the invariants.
        now.complete, now.through, now.amended = seen.complete, seen.through, seen.amended
        for (name, mine), (_, ledgers) in zip(now.parts(), seen.parts(), strict=True):
            self.need("effect", mine == ledgers, _difference(name, mine, ledgers))

    def _check_invariants(self, before: Facts, f: Facts, *, is_restore: bool) -> None:
        for place, (start, at) in {} if is_restore else before.positions.items():
            then = f.positions.get(place, (-1, -1))
            self.need("forward", then[0] == start and then[1] >= at, (place, start, at, then))
        for number, s in {} if is_restore else before.segments.items():
            self.need("ranges", f.segments.get(number, s).range == s.range, s)
        if not is_restore:
            self._check_complete(before, f)
        tiles: dict[Place, list[tuple[int, int]]] = {place: [] for place in f.positions}
        live: list[Segment | Loss] = [*f.live().values()]
        for tile in [*live, *(lo for lo in f.losses if lo.is_tile)]:
            tiles[tile.place].append((tile.start, tile.until))
        for place, (start, at) in f.positions.items():
            of = sorted(tiles[place])
            self.need("tiles", _is_tiled(of, start, at), (of, start, at))
        self.need("sum", f.result == _result(f), f.result)
        for s in f.live().values():
            c = s.counts or Counts()
            lines = sum(n for n, _ in c.rows.values())
            is_whole = s.state == "folded" or (lines, len(c.letters)) == (c.matched, c.malformed)
            self.need("adds up", is_whole and c.matched + c.malformed <= c.records, s)

    def _check_complete(self, before: Facts, f: Facts) -> None:
        self.need("complete", f.complete >= before.complete, f.complete)
        both = before.result.keys() | f.result.keys()
        changed = {key[0] for key in both if before.result.get(key) != f.result.get(key)}
        amended = {m for m, by in f.amended.items() if before.amended.get(m) != by}
        expected = {minute for minute in changed if minute < before.complete}
        self.need("amended", amended == expected, (before.complete, expected, amended))
        batches = {f.amended[minute][1] for minute in amended}
        committed = {b for b in batches if f.batches[b] != before.batches.get(b)}
        self.need("amended", batches == committed, batches)


def accepts(
    trace: Iterable[Action], without: Collection[str] = ()
) -> tuple[int, Action, Rejected] | None:
    """The first action that is not accepted, with its number and why; None without one."""
    model = Model(without)
    for number, action in enumerate(trace):
        try:
            model.step(action)
        except Rejected as rejected:
            return number, action, rejected
    return None


def _has(f: Facts, batch: int, place: Place) -> bool:
    return any(s.place == place for s in f.of_batch(batch).values())


def _holds(s: Segment, old: Segment) -> bool:
    return s.start <= old.start and old.until <= s.until


def _counted_again(loss: Loss, s: Segment) -> Iterator[Loss]:
    """What becomes of a loss when a replay counts a range: its part of the range is restored."""
    if not loss.is_tile or not s.meets(loss):
        yield loss
        return
    start, until = max(loss.start, s.start), min(loss.until, s.until)
    yield replace(loss, start=start, until=until, state="restored")
    if loss.start < start:
        yield replace(loss, until=start)
    if until < loss.until:
        yield replace(loss, start=until)


def _ends_in(s: Segment, counted: Iterable[Segment]) -> bool:
    """Whether both ends of an abandoned range lie in committed ones."""
    here = [c for c in counted if c.place == s.place]
    first = any(c.start <= s.start < c.until for c in here)
    return first and any(c.start < s.until <= c.until for c in here)


def _result(f: Facts) -> Sums:
    return added(f.folded, *(s.counts.rows for s in f.live().values() if s.counts))


def _is_tiled(tiles: list[tuple[int, int]], start: int, at: int) -> bool:
    """No overlap, and no hole from the start to the next offset; below it replays leave holes."""
    for (_, until), (following, _) in pairwise(tiles):
        if following < until or (following > until and following > start):
            return False
    above = [tile for tile in tiles if tile[1] > start]
    return (above[0][0] <= start and above[-1][1] == at) if above else start == at


def _difference(name: str, mine: Any, ledgers: Any) -> str:
    if isinstance(mine, dict):
        keys = [k for k in {**mine, **ledgers} if mine.get(k) != ledgers.get(k)]
        mine, ledgers = ({k: of.get(k) for k in keys} for of in (mine, ledgers))
    return f"{name}: the model says {mine}, the ledger {ledgers}"
