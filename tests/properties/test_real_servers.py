"""The same property on real Kafka and Spark: one sequence, fixed by its seed."""

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

import pytest

from tally.errors import ReplayRefusedError
from tally.ledger.decisions import accept_losses, find_losses
from tally.ledger.positions import lock_pipeline
from tally.model import OffsetRange
from tally.mysql.transactions import Transaction
from tally.pipeline.replay import request_replay, run_replay
from tally.pipeline.replay_plan import preview_replay
from tally.planning.replay_request import RangesAsked
from tests.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.stack, pytest.mark.spark]

LEVELS = ("ERROR", "WARN", "INFO")


@dataclass
class Known:
    """The test's own knowledge: each line it wrote, and the levels by which it was counted."""

    world: World
    spark: "SparkSession"
    random: Random
    written: list[list[tuple[str, int]]] = field(default_factory=lambda: [[], []])
    """Level and minute of each line, by partition and offset."""
    counted: list[dict[int, tuple[str, ...]]] = field(default_factory=lambda: [{}, {}])
    """The levels that were counted when an offset was read last; none for a lost one."""
    levels: tuple[str, ...] = ("ERROR",)
    earliest: list[int] = field(default_factory=lambda: [0, 0])
    replays: int = 0
    refused: int = 0

    def produce(self) -> None:
        """Write lines of all levels to each partition, with a malformed one among them."""
        for number, written in enumerate(self.written):
            new = [
                (self.random.choice([*LEVELS, "?"]), self.random.randrange(3))
                for _ in range(self.random.randrange(1, 30))
            ]
            lines = [f"2017-07-30 14:{minute:02}:08 {level} x" for level, minute in new]
            self.world.produce([line.replace(" ? ", "?") for line in lines], number)
            written.extend(new)

    def minute(self) -> None:
        """Plan and run a batch."""
        before = self._offsets()
        self.world.minute(self.spark)
        for number, (earlier, offset) in enumerate(zip(before, self._offsets(), strict=True)):
            self.counted[number].update(dict.fromkeys(range(earlier, offset), self.levels))

    def replay(self) -> None:
        """Reprocess some ranges; refused where needed records are gone."""
        ranges = []
        for number, offset in enumerate(self._offsets()):
            if offset:
                start = self.random.randrange(offset)
                until = self.random.randrange(start, offset) + 1
                partition = self.world.partition(number)
                r = OffsetRange(partition=partition, from_offset=start, until_offset=until)
                ranges.append(r)
        request = RangesAsked(ranges=tuple(ranges))
        ctx = self.world.context(self.spark)
        shown = preview_replay(ctx, self.world.name, request)
        try:
            asked = request_replay(ctx, shown, reason="a test")
        except ReplayRefusedError:
            assert any(self.earliest), "nothing is gone that could be needed"
            self.refused += 1
            return
        list(run_replay(ctx, asked.replay_id))
        self.replays += 1
        for r in shown.plan.widened:
            read = range(r.from_offset, r.until_offset)
            assert r.from_offset >= self.earliest[r.partition.partition]
            self.counted[r.partition.partition].update(dict.fromkeys(read, self.levels))

    def change_levels(self) -> None:
        """Change the counted levels."""
        self.levels = tuple(self.random.sample(LEVELS, self.random.randrange(1, 4)))
        self.world.configure(levels=list(self.levels))

    def expire(self) -> None:
        """Retention deletes uncounted lines, and the loss is accepted."""
        self.produce()
        number = self.random.randrange(len(self.written))
        offset = self._offsets()[number]
        before = self.random.randrange(offset, len(self.written[number])) + 1
        self.world.delete_records(number, before)
        self.earliest[number] = before
        self.minute()
        with self.world.database.transaction(read_only=True) as tx:
            seen = find_losses(tx, self.world.name, only_open=True)

        def decide(tx: Transaction) -> None:
            lock_pipeline(tx, self.world.name, self.world.name)
            accept_losses(tx, self.world.name, seen, by="an operator", reason="a test")

        self.world.database.run(decide)
        self.counted[number].update(dict.fromkeys(range(offset, before), ()))

    def add_partition(self) -> None:
        """Add a partition to the topic."""
        self.written.append([])
        self.counted.append({})
        self.earliest.append(0)
        self.world.add_partitions(len(self.written))
        self.produce()

    def check(self) -> None:
        """The table is a count of what the test has written."""
        expected = Counter(
            f"2017-07-30 14:{minute:02}"
            for written, counted in zip(self.written, self.counted, strict=True)
            for offset, (level, minute) in enumerate(written)
            if level in counted.get(offset, ())
        )
        assert self.world.counts() == dict(expected)
        assert self.world.audit().holds

    def _offsets(self) -> list[int]:
        offsets = self.world.offsets()
        return [offsets.get(number, (0, 0))[1] for number in range(len(self.written))]


@pytest.mark.parametrize("seed", [20170730])
def test_a_random_sequence_ends_in_a_fresh_count(
    world: World, spark: "SparkSession", seed: int
) -> None:
    """Batches, replays, other levels, lost records and new partitions, with a check after each."""
    world.configure(max_records_per_partition=40)
    known = Known(world, spark, Random(seed))
    steps = [known.produce, known.minute, known.minute, known.change_levels, known.replay] * 2
    steps += [known.replay, known.expire, known.add_partition, known.minute, known.minute]
    known.random.shuffle(steps)
    for step in (known.produce, known.minute, *steps, known.minute, known.minute, known.replay):
        print(f"seed {seed}: {step.__name__}, levels {known.levels}")  # noqa: T201
        step()
        known.check()
    assert known.replays >= 3
