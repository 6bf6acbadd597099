"""What pages, metrics and tasks show: counts and losses in a real ledger."""

from collections.abc import Mapping, Sequence

from tests.cli.conftest import commit
from tests.world import Value, World


def count(world: World, minutes: Mapping[str, int], dead_letters: Sequence[Value] = ()) -> int:
    """Write so many lines of each minute, and lines that are none, and count them in a batch."""
    lines = [f"{minute}:00 ERROR a line" for minute, n in minutes.items() for _ in range(n)]
    return commit(world, *lines, *dead_letters)


def lose(world: World, partition: int) -> None:
    """Let offsets be lost that a decision is needed about."""
    world.execute(
        "insert into lost_range (incarnation_id, partition_id, from_offset, until_offset,"
        " detected_at) select incarnation_id, %s, 7, 9, now() from topic_incarnation"
        " where pipeline = %s",
        (partition, world.name),
    )
