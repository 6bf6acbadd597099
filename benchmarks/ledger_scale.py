"""What the ledger costs for each partition, from a hundred to ten thousand of them.

Usage: ``.tally/venv/bin/python -m benchmarks.ledger_scale [--rounds 5]``

Plans, claims and commits minute batches of a topic with so many partitions, each of them with lines
in two minutes, without reading records: Kafka is a snapshot. Prints the median of each step for a
partition, as a multiple of that for the first number. The audit must hold at the end.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from tests.fakes import FixedKafka

from benchmarks.ledger_growth import LINES, PIPELINE, result
from benchmarks.servers import Bench, bench, say
from tally.audit.audit import audit
from tally.counting.commit import commit_in
from tally.counting.plan import plan_batch
from tally.deliveries.contract import Delivery
from tally.ledger import batches
from tally.model import KafkaSnapshot, PartitionSnapshot, TopicSnapshot

STEPS = ("plan", "claim", "commit")


def main() -> int:
    """Run it once and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    found: dict[int, dict[str, float]] = {}
    for partitions in asked.partitions:
        with bench([PIPELINE]) as servers:
            found[partitions] = _measure(servers, partitions, asked.rounds)
            if not audit(servers.context(), PIPELINE).holds:
                say("the audit found violations")
                return 1
    say(f"| partitions | {', ms | '.join(STEPS)}, ms | microseconds a partition | of the first |")
    say("|---:|---:|---:|---:|---:|---:|")
    each = {n: sum(steps.values()) / n for n, steps in found.items()}
    for partitions, steps in found.items():
        times = " | ".join(f"{steps[step] * 1e3:,.0f}" for step in STEPS)
        times_first = each[partitions] / each[asked.partitions[0]]
        say(f"| {partitions:,} | {times} | {each[partitions] * 1e6:,.0f} | {times_first:.2f} |")
    return 0


def _measure(servers: Bench, partitions: int, rounds: int) -> dict[str, float]:
    """Seconds of each step, the median of some rounds behind one that is not counted."""
    taken: dict[str, list[float]] = {step: [] for step in STEPS}

    @contextmanager
    def timed(step: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        taken[step].append(time.perf_counter() - began)

    for number in range(rounds + 1):
        kafka = _kafka(servers.topic, partitions, (number + 1) * LINES)
        ctx = replace(servers.context(), kafka=kafka)
        with timed("plan"):
            planned = plan_batch(ctx, PIPELINE).batch
        if planned is None:
            raise RuntimeError("there is nothing to count")
        with timed("claim"):
            claim = partial(batches.claim, batch_id=planned.batch_id, claimed_by="a")
            batch = ctx.database.run(claim)
        counted = result([segment.range for segment in batch.segments], number)
        delivery = Delivery(ctx, ctx.settings.pipeline(PIPELINE))
        with timed("commit"):
            ctx.database.run(partial(commit_in, delivery=delivery, batch=batch, result=counted))
    return {step: statistics.median(seconds[1:]) for step, seconds in taken.items()}


def _kafka(topic: str, partitions: int, end: int) -> FixedKafka:
    """A cluster with one topic, of which each partition holds so many records."""
    held = PartitionSnapshot(earliest=0, end=end)
    of_topic = TopicSnapshot(topic_id="id", partitions=dict.fromkeys(range(partitions), held))
    return FixedKafka(KafkaSnapshot(cluster_id="cluster", topics={topic: of_topic}))


if __name__ == "__main__":
    sys.exit(main())
