"""Named groups that stand at one place in every line that a pattern matches."""

from collections.abc import Mapping
from dataclasses import dataclass

from tally.lines.backtracking import Group, Part, Repeated, Taken


@dataclass(frozen=True, slots=True)
class Place:
    """Bytes of a line."""

    before: int
    """How many stand before it."""
    width: int
    """How many there are."""


def places(pattern: Group) -> Mapping[str, Place]:
    """The named groups of which place and width follow from the pattern alone.

    Only ASCII characters stand before and in them, so characters are bytes, whatever the encoding.
    A group inside of another has no place here.
    """
    found: dict[str, Place] = {}
    if len(pattern.branches) > 1:
        return found
    before = 0
    for part in pattern.branches[0]:
        width = _width(part)
        if width is None:
            break
        if isinstance(part, Group) and part.name:
            found[part.name] = Place(before, width)
        before += width
    return found


def _width(part: Part) -> int | None:
    """How many ASCII characters a part takes; None where that depends on the line."""
    match part:
        case Taken(text="^" | "$"):
            return 0
        case Taken():
            # A class of which no character is known takes one all the same, whatever its bytes.
            return 1 if part.chars and all(map(str.isascii, part.chars)) else None
        case Repeated():
            width = _width(part.part)
            return None if width is None or part.least != part.most else width * part.least
        case Group():
            widths = {_width_of(branch) for branch in part.branches}
            return 0 if part.is_ahead else widths.pop() if len(widths) == 1 else None


def _width_of(branch: list[Part]) -> int | None:
    widths = [_width(part) for part in branch]
    return None if None in widths else sum(width or 0 for width in widths)
