r"""How often a backtracking matcher may go over a line: a bound that follows from the pattern.

A matcher that fails tries every other way in which the parts of a pattern could have shared the
line. Two parts multiply their ways where they *meet*: where a text of characters that both take can
run from one into the other, as in ``\w*\w*`` or ``.*x.*``, but not in ``\w* \w*``. A possessive
repeat and an atomic group never give back what they took. A repeated group multiplies the ways of a
part of it where it can go round without that part, as in ``(?:a(?=.*b))*+``. A part behind which
the pattern
cannot fail multiplies nothing.

A part is judged by the characters it takes, not by their order, so a pattern may be better than its
bound.
"""

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

WAYS_MAX: Final = 1 << 20
"""Ways of one line that are allowed: some milliseconds of a core."""

UNBOUNDED: Final = 1 << 30
"""Repeats without end."""

_CODE: Final = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4}))")

Chars = frozenset[str]
"""Characters, of those that stand for all: see :func:`characters_of`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """One character of some; none in ``$``, which takes no room."""

    text: str
    chars: Chars | None


@dataclass(kw_only=True, slots=True)
class Group:
    """One of some sequences."""

    text: str = ""
    branches: list[list["Part"]] = field(default_factory=lambda: [[]])
    is_atomic: bool = False
    """Keeps what it took."""
    is_ahead: bool = False
    """Looks around and takes nothing."""
    name: str = ""
    """Of a named group."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Repeated:
    """A part several times."""

    text: str
    part: "Part"
    least: int
    most: int
    is_possessive: bool


Part = Taken | Group | Repeated


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A part that can take more or less of a line."""

    text: str
    """As it stands in the pattern."""
    ways: int
    """How many ways it has at one place of a line."""
    chars: Chars
    """What it takes."""
    gives_back: bool
    """Whether the matcher comes back to it."""
    enters: int
    leaves: int
    """Nodes of the graph before and behind it."""
    held_by: tuple[int, ...]
    """The atomic groups and lookarounds around it, the outermost first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Loop:
    """A group that is repeated."""

    enters: int
    leaves: int
    """Nodes before and behind what is repeated."""
    times: int


@dataclass(slots=True)
class _Graph:
    """What may stand between two parts: nodes, and edges that lead forward only."""

    line_chars: int
    """How long a line is at most."""
    nodes: int = 1
    edges: dict[int, list[tuple[Chars | None, int]]] = field(default_factory=dict)
    """By node: what is taken, None for nothing, and where that leads."""
    choices: list[Choice] = field(default_factory=list)
    """In the order of the pattern."""
    loops: list[_Loop] = field(default_factory=list)
    holds: tuple[int, ...] = ()

    def reached(self, node: int, chars: Chars) -> set[int]:
        """Nodes to which a text of these characters leads, the empty one too."""
        found, waiting = {node}, [node]
        while waiting:
            for taken, behind in self.edges.get(waiting.pop(), ()):
                if behind not in found and (taken is None or taken & chars):
                    found.add(behind)
                    waiting.append(behind)
        return found

    def meet(self, one: Choice, other: Choice) -> bool:
        """Whether a text that both take can run from one into the other."""
        if one.held_by != other.held_by[: len(one.held_by)]:
            return False  # what an atomic group took stays taken
        both = one.chars & other.chars
        return bool(both) and other.enters in self.reached(one.leaves, both)

    def rounds(self, choice: Choice) -> int:
        """How often the groups around a part may go round without it, on what the part takes."""
        around = [a for a in self.loops if a.enters <= choice.enters and choice.leaves <= a.leaves]
        return math.prod(loop.times for loop in around if self._goes_round(loop, choice))

    def _goes_round(self, loop: _Loop, choice: Choice) -> bool:
        waiting, found = [(loop.enters, False)], {(loop.enters, False)}
        while waiting:
            node, has_taken = waiting.pop()
            for taken, behind in self.edges.get(node, ()):
                inside = choice.enters <= node and behind <= choice.leaves
                skips = (node, behind, taken) == (choice.enters, choice.leaves, None)
                state = (behind, has_taken or taken is not None)
                allowed = taken is None or bool(taken & choice.chars)
                if allowed and (skips or not inside) and state not in found:
                    found.add(state)
                    waiting.append(state)
        return (loop.leaves, True) in found

    def node(self) -> int:
        """A new node."""
        self.nodes += 1
        return self.nodes

    def connect(self, before: int, behind: int, chars: Chars | None = None) -> None:
        """Add an edge."""
        self.edges.setdefault(before, []).append((chars, behind))

    def add(self, part: Part, start: int) -> int:
        """Add a part behind a node; the node behind the part."""
        match part:
            case Taken():
                end = self.node()
                self.connect(start, end, part.chars)
                return end
            case Group():
                return self._add_group(part, start)
            case Repeated():
                return self._add_repeated(part, start)

    def _add_group(self, group: Group, start: int) -> int:
        outside = self.holds
        if group.is_atomic or group.is_ahead:
            self.holds = (*outside, start)
        ends, first = [], len(self.choices)
        for branch in group.branches:
            node = self.node()
            self.connect(start, node)
            for part in branch:
                node = self.add(part, node)
            ends.append(node)
        end = self.node()
        for node in [start] if group.is_ahead else ends:
            self.connect(node, end)
        if _is_ambiguous(group):
            choice = self._choice(group, len(group.branches), (start, end), gives_back=True)
            self.choices.insert(first, choice)
        self.holds = outside
        return end

    def _add_repeated(self, repeated: Repeated, start: int) -> int:
        enters = self.node()
        self.connect(start, enters)
        first = len(self.choices)
        leaves = self.add(repeated.part, enters)
        end = self.node()
        self.connect(leaves, end)
        if repeated.most > 1 and isinstance(repeated.part, Group):
            times = min(repeated.most, self.line_chars)
            self.loops.append(_Loop(enters=enters, leaves=leaves, times=times))
        if not repeated.least:
            self.connect(enters, end)
        most = min(repeated.most, self.line_chars)
        if most > repeated.least:
            ways, gives_back = most - repeated.least + 1, not repeated.is_possessive
            choice = self._choice(repeated, ways, (enters, end), gives_back=gives_back)
            self.choices.insert(first, choice)
        return end

    def _choice(self, part: Part, ways: int, nodes: tuple[int, int], *, gives_back: bool) -> Choice:
        return Choice(
            text=part.text,
            ways=ways,
            chars=_chars(part),
            gives_back=gives_back,
            enters=nodes[0],
            leaves=nodes[1],
            held_by=self.holds,
        )


def worst(pattern: Group, line_chars: int) -> tuple[int, list[Choice]]:
    """The most ways that one line can have, and the parts that meet there.

    Args:
        pattern: All of it.
        line_chars: How many characters a line has at most.
    """
    graph = _Graph(line_chars=line_chars)
    end = graph.add(pattern, 0)
    left: list[tuple[int, list[Choice]]] = []
    most: tuple[int, list[Choice]] = (1, [])
    for choice in graph.choices:
        before = zip(left, graph.choices, strict=False)
        met = [found for found, other in before if other.gives_back and graph.meet(other, choice)]
        ways, parts = max(met, key=lambda found: found[0], default=(1, []))
        tried = (ways * choice.ways * graph.rounds(choice), [*parts, choice])
        # Behind a part after which nothing can fail, the first way is the last.
        if end not in graph.reached(choice.leaves, frozenset()):
            most = max(most, tried, key=lambda found: found[0])
        left.append(tried if choice.gives_back else (ways, parts))
    return most


def check_ways(pattern: Group, line_chars: int) -> None:
    """Raise ValueError, with the parts that meet, if a line can have more ways than allowed."""
    ways, parts = worst(pattern, line_chars)
    if ways > WAYS_MAX:
        repeats = " and ".join(dict.fromkeys(part.text for part in parts))
        raise ValueError(
            f"has parts that can share a text in many ways ({repeats}): one odd line could keep it "
            "busy for minutes. Put between them what neither takes, say which characters may stand "
            "there, for example [^\\]]*, or keep what an earlier one took by a possessive *+ or ++"
        )


@functools.cache
def characters_of(part: str, pattern: str) -> Chars:
    """What a single character, an escape or a class of a pattern may take, of :func:`_alphabet`.

    All that it takes, and more where the pattern ignores case somewhere: what it would take there,
    too. A negated class takes less where case is ignored.

    Args:
        part: Its text, as Python reads it.
        pattern: The pattern that it stands in.

    Raises:
        re.error: It is no regular expression.
    """
    flags = [re.NOFLAG, re.IGNORECASE] if "(?i" in pattern else [re.NOFLAG]
    ways = [re.compile(part, re.ASCII | flag).fullmatch for flag in flags]
    return frozenset(c for c in _alphabet(pattern) if any(matches(c) for matches in ways))


@functools.cache
def _alphabet(pattern: str) -> str:
    r"""Characters that stand for all: ASCII, those that a pattern names with their neighbours.

    A class that takes other than ASCII characters names one of them, by itself or as ``\xhh`` or
    ``\uhhhh``, or takes all that it does not name.
    """
    escaped = {int(found[1] or found[2], 16) for found in _CODE.finditer(pattern)}
    named = {n for n in {*map(ord, pattern), *escaped} if n > 127} | {0xE9, 0x4E00, 0xFFFD}
    return "".join(map(chr, sorted({*range(128), *(n + d for n in named for d in (-1, 0, 1))})))


def _chars(part: Part) -> Chars:
    """All characters that a part may take."""
    match part:
        case Taken():
            return part.chars or frozenset()
        case Repeated():
            return _chars(part.part)
        case Group():
            return frozenset().union(*(_chars(p) for branch in part.branches for p in branch))


def _is_ambiguous(group: Group) -> bool:
    """Whether two branches can start alike."""
    starts = [_first(branch) for branch in group.branches]
    return any(not (one and other) or one & other for one, other in combinations(starts, 2))


def _first(branch: Sequence[Part]) -> Chars:
    """What a branch may start with; empty when it may take nothing."""
    found: Chars = frozenset()
    for part in branch:
        chars, skips = _first_of(part)
        found |= chars
        if not skips:
            return found
    return frozenset()


def _first_of(part: Part) -> tuple[Chars, bool]:
    """What a part may start with, and whether it may take nothing."""
    match part:
        case Taken():
            return part.chars or frozenset(), part.chars is None
        case Repeated():
            chars, skips = _first_of(part.part)
            return chars, skips or not part.least
        case Group():
            starts = [_first(branch) for branch in part.branches]
            return _chars(part), part.is_ahead or not all(starts)
