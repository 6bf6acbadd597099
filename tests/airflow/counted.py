"""Minutes and dead letters in a real ledger, as a count would commit them, without Spark."""

from collections.abc import Mapping, Sequence

from tally import __version__
from tally.aggregates.fingerprint import fingerprint
from tally.deliveries.choice import delivery_of
from tally.deliveries.contract import Result
from tally.ledger.batches import claim
from tally.model import Contribution, DeadLetter, SegmentTotals
from tests.world import World


def commit_counts(
    world: World, minutes: Mapping[str, int], dead_letters: Sequence[bytes] = ()
) -> int:
    """Write as many lines to partition 0 as are wanted, and commit a batch that counts them.

    Args:
        world: The test's pipeline.
        minutes: Lines by minute, ``YYYY-MM-DD HH:MM``.
        dead_letters: The last records.

    Returns:
        The batch.
    """
    matched = sum(minutes.values())
    world.produce([b"a line"] * matched + list(dead_letters), 0)
    planned = world.plan().batch
    assert planned is not None
    pipeline = world.settings.pipeline(world.name)
    batch = world.database.run(lambda tx: claim(tx, planned.batch_id, "test"))
    (r,) = [segment.range for segment in batch.segments]
    result = Result(
        totals={
            r.partition: SegmentTotals(
                records=r.offsets,
                matched=matched,
                unmatched=0,
                malformed=len(dead_letters),
                first_offset=r.from_offset,
                last_offset=r.until_offset - 1,
            )
        },
        contributions=[
            Contribution(partition=r.partition, log_time=f"{minute}:00", log_count=lines)
            for minute, lines in minutes.items()
        ],
        dead_letters=[
            DeadLetter(
                partition=r.partition,
                offset=r.from_offset + matched + at,
                reason="layout",
                value=value,
                value_bytes=len(value),
            )
            for at, value in enumerate(dead_letters)
        ],
        version=__version__,
        format_fingerprint=fingerprint(pipeline),
    )
    world.database.run(lambda tx: delivery_of(pipeline).commit(tx, batch, result))
    return batch.batch_id
