"""The facts of a ledger: a state of the protocol, and the actions between two states."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Place = tuple[int, int]
"""A partition: the ledger's key of a topic generation, and the number."""

Key = tuple[str, ...]
"""A row of the result: the minute, and the level where that is a label."""

Sums = dict[Key, tuple[int, int]]
"""Lines and their bytes by row; no bytes where they are not measured."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What was counted in a segment."""

    records: int = 0
    matched: int = 0
    malformed: int = 0
    rows: Sums = field(default_factory=dict)
    letters: frozenset[int] = frozenset()
    """Offsets of its dead letters."""
    # The ledger does not have these; they are the reader's.
    offsets: frozenset[int] = field(default=frozenset(), compare=False)
    """Offsets that held a record."""
    lines: frozenset[tuple[int, str]] = field(default=frozenset(), compare=False)
    """Offset and minute of each counted line."""
    rule: object = field(default=None, compare=False)

    def __add__(self, other: "Counts") -> "Counts":
        """As one folded segment: without rows and dead letters of its own."""
        return Counts(
            self.records + other.records,
            self.matched + other.matched,
            self.malformed + other.malformed,
            offsets=self.offsets | other.offsets,
            lines=self.lines | other.lines,
        )


@dataclass(frozen=True, slots=True)
class Segment:
    """A range of a partition in a batch."""

    batch: int
    place: Place
    start: int
    until: int
    state: str = "planned"
    superseded_by: int | None = None
    replaces: frozenset[int] = frozenset()
    counts: Counts | None = None

    @property
    def is_live(self) -> bool:
        """Whether it is part of the result."""
        return self.state in {"live", "folded"}

    @property
    def range(self) -> tuple[Place, int, int]:
        """What never changes of it."""
        return self.place, self.start, self.until

    def meets(self, other: "Segment | Loss") -> bool:
        """Whether they have an offset in common."""
        return self.place == other.place and self.start < other.until and other.start < self.until


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch, as its newest claim left it."""

    kind: str
    planned_at: object = None
    lane: str = ""
    replay: int | None = None
    state: str = "planned"
    attempt: int = 0
    token: str | None = None


@dataclass(frozen=True, slots=True, order=True)
class Loss:
    """Records that Kafka cannot serve."""

    place: Place
    start: int
    until: int
    cause: str = "expired"
    state: str = "open"

    @property
    def move(self) -> tuple[int, int]:
        """The offset that it blocks, and the one after it was accepted."""
        blocked = self.until if self.cause == "truncated" else self.start
        return blocked, self.start if self.cause == "missing" else self.until

    @property
    def is_truncation(self) -> bool:
        """Whether other records may have its offsets by now."""
        return (self.cause, self.state) == ("truncated", "open")

    @property
    def is_tile(self) -> bool:
        """Whether its offsets are settled without being counted."""
        return (self.cause, self.state) == ("expired", "accepted")


@dataclass(slots=True)
class Facts:
    """The ledger and the result."""

    generations: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    """Cluster, topic id, and whether it is ``current`` or ``retired``."""
    positions: dict[Place, tuple[int, int]] = field(default_factory=dict)
    """Start and next offset."""
    batches: dict[int, Batch] = field(default_factory=dict)
    segments: dict[int, Segment] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    replays: dict[int, str] = field(default_factory=dict)
    folded: Sums = field(default_factory=dict)
    result: Sums = field(default_factory=dict)
    complete: str = ""
    """The first minute that is not complete; empty before the first one is."""
    through: str = ""
    """By when all is counted that Kafka had, in UTC; empty where that is not known."""
    amended: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By minute when it was last changed after it was complete, and by which batch."""

    def copy(self) -> "Facts":
        """A copy that can be changed; what it holds is immutable."""
        return Facts(**{name: type(of)(of) for name, of in self.parts()})

    def parts(self) -> Iterator[tuple[str, Any]]:
        """Each kind of facts by its name."""
        return ((name, getattr(self, name)) for name in self.__slots__)

    def of_batch(self, batch: int) -> dict[int, Segment]:
        """The segments of a batch."""
        return {number: s for number, s in self.segments.items() if s.batch == batch}

    def live(self) -> dict[int, Segment]:
        """What is part of the result."""
        return {number: s for number, s in self.segments.items() if s.is_live}

    def planned(self, **fields: object) -> list[int]:
        """Planned batches with these fields."""
        wanted = {"state": "planned", **fields}.items()
        return [n for n, b in self.batches.items() if all(getattr(b, k) == v for k, v in wanted)]


@dataclass(frozen=True, slots=True)
class Action:
    """One action with its arguments, and what was observed after it."""

    name: str
    about: Mapping[str, Any]
    seen: Facts | None = None
    """The ledger afterwards; None inside a transaction."""
    answer: str = "done"
    """``done``; of a commit also ``refused``, or ``before``: another call has committed it."""


def added(*sums: Sums) -> Sums:
    """The sum, row by row."""
    lines: Counter[Key] = Counter()
    lengths: Counter[Key] = Counter()
    for one in sums:
        lines.update({key: n for key, (n, _) in one.items()})
        lengths.update({key: n for key, (_, n) in one.items()})
    return {key: (n, lengths[key]) for key, n in lines.items()}
