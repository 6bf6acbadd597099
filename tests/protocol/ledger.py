"""Reads the facts of a pipeline's ledger, and its result, by one statement."""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from tally.mysql.transactions import Row
from tests.protocol.facts import Batch, Counts, Facts, Loss, Segment, Sums

_PARTS: Final = {
    "generations": ("topic_incarnation", "incarnation_id, cluster_id, topic_id, state"),
    "positions": (
        "partition_offset",
        "incarnation_id, partition_id, start_offset, next_offset",
    ),
    "batches": (
        "batch",
        "batch_id, kind, planned_at, lane, replay_id, state, attempt, claim_token",
    ),
    "losses": (
        "lost_range",
        "incarnation_id, partition_id, from_offset, until_offset, cause, state",
    ),
    "replays": ("replay", "replay_id, state"),
    "segments": (
        "segment",
        """segment_id, batch_id, incarnation_id, partition_id, from_offset, until_offset, state,
        superseded_by, records, matched, malformed""",
    ),
    "replaces": ("replacement", "segment_id, replaced_id"),
    "letters": ("dead_letter", "segment_id, record_offset"),
    "totals": ("dead_letter_total", "segment_id, dead_letters"),
    "progress": ("progress", "left(complete_before, 19), left(counted_through, 26)"),
    "amended": ("amendment", "left(log_time, 19), amended_at, batch_id"),
}
_OF_SEGMENTS: Final = ("segments", "replaces", "letters", "totals", "contributions")


@dataclass(slots=True)
class Ledger:
    """The ledger of the only pipeline of a database, read on the test's own connection."""

    rows: Callable[[str], list[Row]]
    """The rows of a query."""
    name: str
    """The pipeline's, which is also that of its result table."""
    labels: Sequence[str] = ()
    """Columns of the result besides the minute."""
    has_bytes: bool = False
    """Whether lengths are counted, too."""
    _parts: dict[str, tuple[str, str]] = field(init=False)
    """By kind of facts the table, and its columns."""
    _said: dict[str, list[Any]] = field(default_factory=dict)
    """The rows of each part, as they were last read."""
    _facts: Facts = field(default_factory=Facts)

    def __post_init__(self) -> None:
        is_own = self.labels or self.has_bytes
        key = ", ".join(["left(log_time, 19)", *self.labels])
        sums = f"json_array({key}), log_count, {'log_bytes' if self.has_bytes else 0}"
        self._parts = {
            **_PARTS,
            "contributions": (
                f"{self.name}__segments" if is_own else "segment_count",
                f"segment_id, {sums}",
            ),
            "folded": (f"{self.name}__folded" if is_own else "folded_count", sums),
            "result": (self.name, sums),
        }

    def read(self, written: Collection[str] | None = None) -> Facts:
        """The facts now, by one statement; nobody changes what was returned before.

        With ``written`` only of these tables, which have changed since the last read or may have.
        """
        parts = {
            name: of
            for name, of in self._parts.items()
            if written is None or of[0] in written or "call" in written
        }
        if not parts:
            return self._facts
        selected = [
            f"(select json_arrayagg(json_array({columns})) from `{table}`) as {name}"
            for name, (table, columns) in parts.items()
        ]
        (said,) = self.rows(f"select {', '.join(selected)}")
        self._said |= {name: json.loads(text or "[]") for name, text in said.items()}
        known = dict(self._facts.parts())
        known |= {name: _KINDS[name](self._said[name]) for name in said if name in _KINDS}
        if {*said} & {*_OF_SEGMENTS}:
            known["segments"] = _segments(*(self._said.get(name, []) for name in _OF_SEGMENTS))
        if "progress" in said:
            ((complete, through),) = self._said["progress"] or [("", "")]
            known |= {"complete": complete or "", "through": through or ""}
        self._facts = Facts(**known)
        return self._facts


def _sums(rows: Sequence[Any]) -> Sums:
    return {tuple(key): (lines, lengths) for key, lines, lengths in rows}


_KINDS: Final[dict[str, Callable[[Sequence[Any]], Any]]] = {
    "generations": lambda rows: {number: tuple(of) for number, *of in rows},
    "positions": lambda rows: {(one, of): (start, at) for one, of, start, at in rows},
    "batches": lambda rows: {number: _batch(*of) for number, *of in rows},
    "losses": lambda rows: sorted(Loss((one, of), *about) for one, of, *about in rows),
    "replays": dict,
    "amended": lambda rows: {minute: (at, batch) for minute, at, batch in rows},
    "folded": _sums,
    "result": _sums,
}


def _batch(kind: str, planned_at: str, *about: Any) -> Batch:
    return Batch(kind, None if kind == "fold" else datetime.fromisoformat(planned_at), *about)


def _segments(
    segments: Sequence[Any],
    replaces: Sequence[Any],
    letters: Sequence[Any],
    totals: Sequence[Any],
    contributions: Sequence[Any],
) -> dict[int, Segment]:
    found = {}
    for number, batch, generation, partition, start, until, state, by, *counted in segments:
        records, matched, malformed = counted
        counts = Counts(
            records,
            matched,
            malformed,
            rows=_sums([of for one, *of in contributions if one == number]),
            letters=frozenset(offset for one, offset in letters if one == number),
        )
        total = sum(count for one, count in totals if one == number)
        assert total == len(counts.letters), f"dead letters of segment {number}"
        is_counted = state not in {"planned", "abandoned"} or counts.rows or counts.letters
        found[number] = Segment(
            batch=batch,
            place=(generation, partition),
            start=start,
            until=until,
            state=state,
            superseded_by=by,
            replaces=frozenset(replaced for one, replaced in replaces if one == number),
            counts=counts if is_counted else None,
        )
    return found
