"""Items some at a time: as many as are little enough together."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def in_groups(
    items: Iterable[T], size: Callable[[T], int], most: int, *, count: int | None = None
) -> Iterator[list[T]]:
    """Items in order, in groups of which none is empty.

    Args:
        items: Taken as they are needed, one more than the groups so far have.
        size: Of an item, in any unit.
        most: The largest size of a group; a larger item is a group by itself.
        count: The largest number of items of a group; None for any.
    """
    group: list[T] = []
    taken = 0
    for item in items:
        takes = size(item)
        if group and (taken + takes > most or len(group) == count):
            yield group
            group, taken = [], 0
        group.append(item)
        taken += takes
    if group:
        yield group
