r"""How often a backtracking matcher may go over a line: a bound that follows from the pattern.

A matcher that fails tries every other way in which the parts of a pattern could have shared the
line. Two parts multiply their ways where they *meet*: where a text of characters that both take can
run from one into the other, as in ``\w*\w*`` or ``.*x.*``, but not in ``\w* \w*``. A possessive
repeat and an atomic group never give back what they took. A repeated group multiplies the ways of a
part of it where it can go round without that part, as in ``(?:a(?=.*b))*+``. A part behind which
the pattern cannot fail multiplies nothing.

A part is judged by the characters it takes, not by their order, so a pattern may be better than its
bound.
"""

import functools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, combinations
from typing import Final

WAYS_MAX: Final = 1 << 20
"""Ways of one line that are allowed: some milliseconds of a core."""

_CODE: Final = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4}))")

Chars = frozenset[str]
"""Characters, of those that stand for all: see :func:`characters_of`."""
_NONE: Final[Chars] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """One character of some; of none in ``$``, which takes no room."""

    text: str
    chars: Chars


@dataclass(eq=False, kw_only=True, slots=True)
class Group:
    """One of some sequences."""

    text: str = ""
    branches: list[list["Part"]] = field(default_factory=lambda: [[]])
    is_atomic: bool = False
    """Keeps what it took; so does one that looks around."""
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
    """At most the characters that are seen of a line, unless ``least`` is more."""
    is_possessive: bool


Part = Taken | Group | Repeated
Path = tuple[tuple[Group, int, int], ...]
"""Where a part stands: the groups around it, the outermost first, in each the number of its branch
and its place there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Choice:
    """A part that can take more or less of a line."""

    part: Group | Repeated
    ways: int
    """How many ways it has at one place of a line."""
    chars: Chars
    """What it takes."""
    path: Path
    """The groups around it."""
    loops: tuple[Repeated, ...]
    """The repeated groups around it."""

    @property
    def rounds(self) -> int:
        """How often the groups around it may go round without it, on what it takes."""
        return math.prod(
            loop.most
            for loop in self.loops
            if True in _taking(loop.part, self.chars, without=self.part)
        )

    def behind(self, depth: int) -> Iterator[Part]:
        """What follows it in the groups from this depth on."""
        for group, branch, at in self.path[depth:]:
            yield from group.branches[branch][at + 1 :]

    def keeps(self, depth: int) -> bool:
        """Whether what it took stays taken outside of the groups from this depth on."""
        groups = [group for group, _, _ in self.path[depth:]]
        own = [self.part] if isinstance(self.part, Group) else []
        return any(group.is_atomic for group in (*groups, *own))

    def meets(self, other: "_Choice") -> bool:
        """Whether a text that both take can run from this one into one that comes later."""
        both = self.chars & other.chars
        steps = zip(self.path, other.path, strict=False)
        depth = next((n for n, (one, of_other) in enumerate(steps) if one != of_other), None)
        if not both or depth is None:  # one is a part of the other
            return False
        (group, branch, at), (_, other_branch, until) = self.path[depth], other.path[depth]
        if branch != other_branch or self.keeps(depth + 1):
            return False
        between = [*self.behind(depth + 1), *group.branches[branch][at + 1 : until]]
        for inner, of, before in other.path[depth + 1 :]:
            between += inner.branches[of][:before]
        return all(_taking(part, both) for part in between)

    @property
    def may_fail_behind(self) -> bool:
        """Whether the rest of the pattern can fail: else its first way is the last."""
        is_ahead = any(group.is_ahead for group, _, _ in self.path)
        return is_ahead or not all(_taking(part, _NONE) for part in self.behind(0))


def check_ways(pattern: Group, allowed: int = WAYS_MAX) -> None:
    """Raise ValueError, with the parts that meet, if a line can have more ways than allowed.

    Args:
        pattern: All of it.
        allowed: Ways that one line may have.
    """
    # The most ways that one line can have, and the texts of the parts that meet there.
    most: tuple[int, list[str]] = (1, [])
    left: list[tuple[_Choice, int, list[str]]] = []
    for choice in _choices(pattern):
        met = [(ways, parts) for other, ways, parts in left if other.meets(choice)]
        ways, parts = max(met, key=lambda found: found[0], default=(1, []))
        ways, parts = ways * choice.ways * choice.rounds, [*parts, choice.part.text]
        if choice.may_fail_behind and ways > most[0]:
            most = ways, parts
        # What a possessive one took is not given back.
        if not (isinstance(choice.part, Repeated) and choice.part.is_possessive):
            left.append((choice, ways, parts))
    if most[0] > allowed:
        repeats = " and ".join(dict.fromkeys(most[1]))
        raise ValueError(
            f"has parts that can share a text in many ways ({repeats}): one odd line could keep it "
            "busy for minutes. Put between them what neither takes, say which characters may stand "
            "there, for example [^\\]]*, or keep what an earlier one took by a possessive *+ or ++"
        )


def _choices(part: Part, path: Path = (), loops: tuple[Repeated, ...] = ()) -> Iterator[_Choice]:
    """The choices in a part, in the order of the pattern."""
    if isinstance(part, Taken):
        return
    if isinstance(part, Repeated):
        ways, inner = part.most - part.least + 1, [(part.part, path)]
        is_loop = part.most > 1 and isinstance(part.part, Group)
        inner_loops = (*loops, part) if is_loop else loops
    else:
        ways, inner_loops = len(part.branches) if _is_ambiguous(part) else 1, loops
        inner = [
            (inside, (*path, (part, number, at)))
            for number, branch in enumerate(part.branches)
            for at, inside in enumerate(branch)
        ]
    if ways > 1:
        yield _Choice(part=part, ways=ways, chars=_chars(part), path=path, loops=loops)
    for inside, around in inner:
        yield from _choices(inside, around, inner_loops)


def _taking(part: Part, chars: Chars, without: Part | None = None) -> set[bool]:
    """How a text of these characters can go through a part: taken, or without any of it.

    Args:
        part: The part.
        chars: Of the text; none for the empty one.
        without: A part of it that takes nothing of the text.
    """
    match part:
        case _ if part is without:
            return _taking(part, _NONE)
        case Taken():
            return {True} if part.chars & chars else set()
        case Repeated():
            return _taking(part.part, chars, without) | (set() if part.least else {False})
        case Group(is_ahead=True):
            return {False}
    found = set()
    for branch in part.branches:
        ways = {False}
        for inner in branch:
            ways = {one or other for one in ways for other in _taking(inner, chars, without)}
        found |= ways
    return found


def _is_ambiguous(group: Group) -> bool:
    """Whether two branches can start alike."""
    starts = [_first(branch) for branch in group.branches]
    return any(not (one and other) or one & other for one, other in combinations(starts, 2))


def _first(branch: list[Part]) -> Chars:
    """What a branch may start with; empty when it may take nothing."""
    found: Chars = _NONE
    for part in branch:
        found |= _chars(part)
        if not _taking(part, _NONE):
            return found
    return _NONE


def _chars(part: Part) -> Chars:
    """All characters that a part may take."""
    return _NONE.union(*(one.chars for one in parts_in(part) if isinstance(one, Taken)))


def parts_in(part: Part) -> Iterator[Part]:
    """A part, then all that it consists of."""
    yield part
    branches = part.branches if isinstance(part, Group) else []
    for inner in [part.part] if isinstance(part, Repeated) else chain.from_iterable(branches):
        yield from parts_in(inner)


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
