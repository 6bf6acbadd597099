"""Records what a pipeline does to a real ledger as a trace of the model's actions.

The ledger's rows are read when a transaction has committed, or when the answer to its COMMIT was
lost. The difference to the rows before gives the actions. Two things are not in the ledger: what a
claim has read comes from the reader, and by which claim a batch is committed from the statement.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from tests.protocol.facts import Action, Facts, Loss, Place
from tests.protocol.ledger import Ledger
from tests.protocol.model import Model

if TYPE_CHECKING:
    import pymysql

Claim = tuple[int, int, str]
"""Batch, attempt and token."""

Done = tuple[str, dict[str, Any]]
"""The name of an action, and its arguments."""

_COMMITTED: Final = re.compile(
    r"set state = 'committed', .* where batch_id = (\d+) and attempt = (\d+)"
    r" and claim_token <=> '(\w+)'",
    re.DOTALL,
)
_WORD: Final = re.compile(r"[a-z_]\w*")
_WRITE: Final = re.compile(r"\s*(insert|update|delete|replace|call)", re.IGNORECASE)


@dataclass(slots=True)
class Kafka:
    """What Kafka says of a partition of a generation; cluster and topic id name it."""

    begins: Callable[[str, str, int], set[int]]
    """The offsets at which counting may begin."""
    was_gone: Callable[[str, str, int, range], bool]
    """Whether each of these offsets once could not be read."""
    earliest: Callable[[str, str, int], int | None]
    """The first offset that it holds; None for another generation than it serves."""


@dataclass(slots=True)
class Recorder:
    """The trace of one pipeline, and the model that takes its actions."""

    ledger: Ledger
    kafka: Kafka
    model: Model = field(default_factory=Model)
    facts: Facts = field(default_factory=Facts)
    """The ledger as it was last read."""
    trace: list[Action] = field(default_factory=list)
    written: set[str] = field(default_factory=set)
    """The words of all statements that have written since the last check, or may have."""
    _checked: int = 0

    def check(self, *, everything: bool = False) -> None:
        """Raise :class:`tests.protocol.model.Rejected` unless the model accepts all that came.

        What is in the ledger by another way than a commit is an unknown action; with
        ``everything`` also where no statement of the code under test has written.
        """
        now = self.ledger.read(None if everything else self.written)
        self.written.clear()
        if self.facts != now:
            self.trace.append(Action("unknown", {}, now))
        while self._checked < len(self.trace):
            self._checked += 1
            self.model.step(self.trace[self._checked - 1])

    def committed(self, claim: Claim | None, *, is_answered: bool) -> None:
        """A transaction has sent its COMMIT, perhaps of a batch by a claim."""
        is_applied = self._look(claim)
        if claim is not None and not is_answered:
            self.add("lost_commit", applied=is_applied)

    def add(self, name: str, answer: str = "done", **about: Any) -> None:
        """Record an action that changes no row."""
        self.trace.append(Action(name, about, answer=answer))

    def restored(self) -> None:
        """The ledger was put back as it was dumped."""
        self.facts = self.ledger.read()
        self.trace.append(Action("restore", {}, self.facts))

    def _look(self, claim: Claim | None = None) -> bool:
        """Record what has changed; returns whether anything has."""
        before, now = self.facts, self.ledger.read(self.written)
        if before == now:
            return False
        actions = [Action(name, about) for name, about in self._between(before, now, claim)]
        last = actions.pop() if actions else Action("unknown", {})
        self.trace += [*actions, replace(last, seen=now)]
        self.facts = now
        return True

    def _between(self, old: Facts, now: Facts, claim: Claim | None) -> Iterator[Done]:
        """The actions that explain a transaction, in the protocol's order."""
        if (now.complete, now.through) != (old.complete, old.through):
            yield "advance", {}  # first, as the last action is compared with the state before
        for number, b in now.batches.items():
            if b.state == "abandoned" and old.batches.get(number, b).state != "abandoned":
                yield "abandon", {"batch": number}
        yield from self._adoptions(old, now)
        yield from self._loss_decisions(old, now)
        for replay, state in now.replays.items():
            if replay not in old.replays:
                yield "request", {"replay": replay}
            elif (old.replays[replay], state, claim) == ("open", "cancelled", None):
                # Not where the replay's last batch was committed, after others were abandoned.
                yield "cancel", {"replay": replay}
        yield from _work_on_batches(old, now, claim)
        yield from self._pruned(old, now)

    def _adoptions(self, old: Facts, now: Facts) -> Iterator[Done]:
        new = {n: g for n, g in now.generations.items() if old.generations.get(n) != g}
        current = [n for n, g in new.items() if g[2] == "current"]
        places = {p: at for p, at in now.positions.items() if p not in old.positions}
        if current and len(new) > 1:  # the one before is retired
            lost = _more(old.losses, now.losses)
            for loss in old.losses:
                accepted = replace(loss, state="accepted")
                if loss.state == "open" and accepted in lost:
                    lost.remove(accepted)
                    yield "accept", {"loss": loss, "gone": self._was_gone(now, loss)}
            yield (
                "adopt",
                {
                    "number": current[0],
                    "identity": now.generations[current[0]][:2],
                    "starts": {p: (*at, self._begins(now, p)) for p, at in places.items()},
                    "lost": lost,
                },
            )
            return
        for number in current:
            cluster, topic_id, _ = now.generations[number]
            yield "generation", {"number": number, "cluster": cluster, "topic_id": topic_id}
        for place, (start, _) in places.items():
            yield "partition", {"place": place, "start": start, "begins": self._begins(now, place)}

    def _loss_decisions(self, old: Facts, now: Facts) -> Iterator[Done]:
        if any(old.generations.get(n, g) != g for n, g in now.generations.items()):
            return  # an adoption decides them
        was = {loss.place: loss for loss in old.losses if loss.state == "open"}
        is_now = {loss.place: loss for loss in now.losses if loss.state == "open"}
        for place, loss in was.items():
            if place in is_now:
                continue
            if replace(loss, state="accepted") in _more(old.losses, now.losses):
                yield "accept", {"loss": loss, "gone": self._was_gone(now, loss)}
            else:
                yield "close_loss", {"loss": loss}
        for place, loss in is_now.items():
            if was.get(place) != loss:
                yield "find_loss", {"loss": loss}

    def _pruned(self, old: Facts, now: Facts) -> Iterator[Done]:
        gone = {n: s for n, s in old.segments.items() if n not in now.segments}
        for number, s in now.segments.items():
            if s.state == "folded" and number not in old.segments:
                inside = {
                    n for n, o in gone.items() if o.is_live and o.meets(s) and n not in now.segments
                }
                cluster, topic_id, state = now.generations[s.place[0]]
                held = self.kafka.earliest(cluster, topic_id, s.place[1])
                held_from = None if state == "retired" else -1 if held is None else held
                about = {"number": number, "batch": s.batch, "old": inside, "held_from": held_from}
                yield "fold", about
                gone = {n: o for n, o in gone.items() if n not in inside}
        batches = [n for n in old.batches if n not in now.batches]
        if gone or batches:
            yield "forget", {"segments": list(gone), "batches": batches}

    def _begins(self, now: Facts, place: Place) -> set[int]:
        cluster, topic_id, _ = now.generations[place[0]]
        return self.kafka.begins(cluster, topic_id, place[1])

    def _was_gone(self, now: Facts, loss: Loss) -> bool:
        cluster, topic_id, _ = now.generations[loss.place[0]]
        span = range(loss.start, loss.until)
        return self.kafka.was_gone(cluster, topic_id, loss.place[1], span)


def _work_on_batches(old: Facts, now: Facts, claim: Claim | None) -> Iterator[Done]:
    """What is planned, claimed and committed."""
    for number, b in now.batches.items():
        was = old.batches.get(number)
        if was is None and b.kind != "fold":
            yield "plan", {"batch": number, "plan": b, "segments": now.of_batch(number)}
    for number, b in now.batches.items():
        was = old.batches.get(number, b)
        if was != b and b.state == "planned":
            yield "claim", {"batch": number, "attempt": b.attempt, "token": b.token}
        elif was != b and b.state == "committed":
            by = claim or (number, 0, "")
            yield "commit", dict(zip(("batch", "attempt", "token"), by, strict=True))


def watch(connection: "pymysql.Connection[Any]", recorder: Callable[[], Recorder | None]) -> None:
    """Record the transactions of a connection, each with the recorder of its time."""
    query, commit = connection.query, connection.commit
    writes: list[Claim | None] = []
    """Of the open transaction, each with the claim by which it commits a batch."""

    def asked(sql: str | bytes, *rest: Any, **options: Any) -> Any:
        text = sql if isinstance(sql, str) else sql.decode(errors="replace")
        if text.startswith("start transaction"):
            writes.clear()
        elif _WRITE.match(text):
            by = _COMMITTED.search(text)
            writes.append(None if by is None else (int(by[1]), int(by[2]), by[3]))
            if (of := recorder()) is not None:
                of.written.update(_WORD.findall(text))
        return query(sql, *rest, **options)

    def committed() -> None:
        is_answered = False
        try:
            commit()
            is_answered = True
        finally:
            if writes and (of := recorder()) is not None:
                claim = next(filter(None, writes), None)
                of.committed(claim, is_answered=is_answered)

    connection.query, connection.commit = asked, committed  # type: ignore[method-assign]


def _more(old: Sequence[Loss], now: Sequence[Loss]) -> list[Loss]:
    """Losses that are in the ledger now, and were in no state before."""
    left = list(old)
    return [loss for loss in now if loss not in left or left.remove(loss)]  # type: ignore[func-returns-value]
