"""Where the time of a line stands, where that follows from its pattern and its time format."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tally.lines.backtracking import Chars, Group, Part, Repeated, Taken

_BEHIND_MAX: Final = 8
"""Characters that a record is asked for at one place."""

Shape = Sequence[Chars | None]
"""For each byte of a written time the characters that may stand there; None for any."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a time stands in every line that the pattern matches and that has a time.

    A line has its time there, and nowhere else, when the pattern matches it, the bytes at this
    place are a time in the time format, and one of :attr:`Place.behind` follows. No other line
    that the pattern matches has a time.
    """

    before: int
    """How many bytes stand before it."""
    behind: frozenset[str] = frozenset()
    """Of these ASCII characters one must follow; empty where nothing need be asked."""


def place_of(pattern: Group, name: str, shape: Shape) -> Place | None:
    r"""The place of a time, whatever the pattern says of its width; None where there is no one.

    ``\S+ \S+`` takes texts of many widths. But behind a fixed place it can only take a whole
    ``2017-07-30 14:09:08`` if a blank comes next in the pattern, and in the line. So all ways in
    which the group could take the written time are tried here, and the next character with it.

    Args:
        pattern: All of it.
        name: The named group of the time, which is not inside of another.
        shape: What may stand in a written time.
    """
    parts = pattern.branches[0]
    named = (n for n, part in enumerate(parts) if isinstance(part, Group) and part.name == name)
    number = next(named, None)
    if len(pattern.branches) > 1 or number is None:
        return None
    before, group = _width_of(parts[:number]), parts[number]
    if before is None:
        return None
    for behind in (None, _first_chars(next(iter(parts[number + 1 :]), None))):
        if _takes_just(group, shape, behind=behind):
            return Place(before=before, behind=behind or frozenset())
    return None


def _takes_just(group: Part, shape: Shape, *, behind: Chars | None) -> bool:
    """Whether a group takes a written time as a whole or not at all, before another character."""
    reached: set[int] = set()
    shorter = {end for end in _ends(group, {0}, [*shape, behind], reached) if end < len(shape)}
    goes_on = len(shape) + 1 in reached
    can_end = any(behind is None or (shape[end] or behind) & behind for end in shorter)
    return not (can_end or goes_on)


def _first_chars(part: Part | None) -> Chars | None:
    """What must come first in a part that takes something; None where that is not simple."""
    if isinstance(part, Repeated):
        return _first_chars(part.part) if part.least else None
    chars = part.chars if isinstance(part, Taken) else None
    return chars if chars and len(chars) <= _BEHIND_MAX and all(map(str.isascii, chars)) else None


def _ends(part: Part, starts: set[int], text: Shape, reached: set[int]) -> set[int]:
    """Where a part may end that starts at one of some places; more, where that is simpler.

    Args:
        part: The part.
        starts: The places.
        text: What it may take.
        reached: Gets the places behind each character that it may have taken, on whatever way.
    """
    found: set[int] = set()
    match part:
        case Taken(text="$") | Group(is_ahead=True):
            return starts
        case Taken():
            # A class of which no character is known takes one all the same.
            takes = [not part.chars or there is None or there & part.chars for there in text]
            found |= {at + 1 for at in starts - {len(text)} if takes[at]}
            reached |= found
        case Repeated():
            for _ in range(min(part.least, len(text) + 1)):
                starts = _ends(part.part, starts, text, reached)
            found |= starts
            for _ in range(min(part.most - part.least, len(text))):
                starts = _ends(part.part, starts, text, reached)
                found |= starts
        case Group():
            for branch in part.branches:
                ends = starts
                for inner in branch:
                    ends = _ends(inner, ends, text, reached)
                found |= ends
    return found


def _width(part: Part) -> int | None:
    """How many ASCII characters a part takes; None where that depends on the line."""
    match part:
        case Taken(text="$") | Group(is_ahead=True):
            return 0
        case Taken():
            # A class of which no character is known takes one all the same, whatever its bytes.
            return 1 if part.chars and all(map(str.isascii, part.chars)) else None
        case Repeated():
            width = _width(part.part)
            return None if width is None or part.least != part.most else width * part.least
        case Group():
            widths = {_width_of(branch) for branch in part.branches}
            return widths.pop() if len(widths) == 1 else None


def _width_of(branch: list[Part]) -> int | None:
    widths = [_width(part) for part in branch]
    return None if None in widths else sum(width or 0 for width in widths)
