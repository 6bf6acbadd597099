"""What a minute's batch costs the ledger, in time and in bytes, by the number of partitions.

Usage: ``.tally/venv/bin/python -m benchmarks.ledger [--partitions 4 100 1000 10000]
[--rows 20000]``

Plans, claims and commits minute batches by Tally's own steps, each partition with counted lines in
two minutes of every batch, without reading records: Kafka is a snapshot. Prints the bytes of data
and indexes that InnoDB's tables gain with each batch, the sum for a month of 43,200 batches, the
sum for the days after which the daily DAG prunes what Kafka has lost, and the rows that are left
after everything is folded; then the median of each step. The audit must hold before and after.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from tests.fakes import FixedKafka

from benchmarks.page import Table, command
from benchmarks.servers import PARTITIONS, Bench, new_topic, plan, serving
from tally.aggregates.counts import Contribution, Counts
from tally.audit.audit import audit
from tally.config.pipeline import Pipeline
from tally.context import Context
from tally.counting.commit import commit_in
from tally.deliveries.contract import Delivery
from tally.ledger import batches
from tally.maintenance.prune import prune
from tally.model import KafkaSnapshot, OffsetRange, PartitionSnapshot, SegmentTotals, TopicSnapshot
from tally.mysql.transactions import Database

T = TypeVar("T")

PIPELINE = "minutes"
MINUTES_A_DAY = 1_440
DAYS_KEPT = Pipeline.model_fields["prune_after_days"].default
LINES = 60
TABLES = ("batch", "segment", "segment_count", "partition_offset", "folded_count", PIPELINE)
STEPS = ("plan", "claim", "commit")


def measure(
    partitions: tuple[int, ...] = (4, 100, 1_000, 10_000), rows: int = 20_000
) -> Iterator[Table]:
    """Measure both.

    Args:
        partitions: Numbers of partitions.
        rows: Segments of each number: from them follow the batches, which are at least six.

    Raises:
        RuntimeError: The audit found violations.
    """
    growth: list[list[str]] = []
    medians: dict[int, dict[str, float]] = {}
    for number in partitions:
        topic = new_topic(PIPELINE)
        with serving({PIPELINE: f'topics = ["{topic}"]'}, {topic: PARTITIONS}) as servers:
            cells, medians[number] = _commit_and_fold(servers, number, max(6, rows // number))
            growth.append([f"{number:,}", *cells])
    yield Table(
        headers=[
            "partitions",
            "batches",
            "bytes per batch",
            "a month",
            f"{DAYS_KEPT} days",
            "rows per batch",
            "rows once folded",
        ],
        rows=growth,
    )
    each = {number: sum(steps.values()) / number for number, steps in medians.items()}
    yield Table(
        headers=[
            "partitions",
            *(f"{step}, ms" for step in STEPS),
            "microseconds a partition",
            "of the first",
        ],
        rows=[
            [
                f"{number:,}",
                *(f"{steps[step] * 1e3:,.0f}" for step in STEPS),
                f"{each[number] * 1e6:,.0f}",
                f"{each[number] / each[partitions[0]]:.2f}",
            ]
            for number, steps in medians.items()
        ],
    )


def _commit_and_fold(
    servers: Bench, partitions: int, count: int
) -> tuple[list[str], dict[str, float]]:
    """The cells of the ledger's growth, and the median seconds of each step."""
    ctx = servers.context()
    seconds: dict[str, list[float]] = {step: [] for step in STEPS}
    before = _bytes(ctx.database)
    for number in range(count):
        kafka = _kafka(servers.topic, partitions, earliest=0, end=(number + 1) * LINES)
        _commit_batch(replace(ctx, kafka=kafka), number, seconds)
    per_batch = (_bytes(ctx.database) - before) / count
    spans = [per_batch * MINUTES_A_DAY * days / 2**30 for days in (30, DAYS_KEPT)]
    rows = _rows(ctx.database)
    _check(ctx)
    gone = _kafka(servers.topic, partitions, earliest=count * LINES, end=count * LINES)
    prune(replace(ctx, kafka=gone), PIPELINE, timedelta())
    _check(ctx)
    cells = [f"{count:,}", f"{per_batch:,.0f}", *(f"{span:,.1f} GiB" for span in spans)]
    cells += [f"{rows / count:,.0f}", f"{_rows(ctx.database):,}"]
    # The first batch is that of a table's first rows.
    return cells, {step: statistics.median(taken[1:]) for step, taken in seconds.items()}


def _commit_batch(ctx: Context, number: int, seconds: Mapping[str, list[float]]) -> None:
    """A batch as Tally commits it; only that Spark counts is left out."""

    def timed(step: str, work: Callable[[], T]) -> T:
        began = time.perf_counter()
        done = work()
        seconds[step].append(time.perf_counter() - began)
        return done

    run = ctx.database.run
    (batch_id,) = timed("plan", lambda: plan(ctx, PIPELINE))
    claim = partial(batches.claim, batch_ids=[batch_id], claimed_by="a")
    (batch,) = timed("claim", lambda: run(claim))
    counted = _result([segment.range for segment in batch.segments], number)
    delivery = Delivery(ctx, ctx.settings.pipeline(PIPELINE))
    timed("commit", lambda: run(lambda tx: commit_in(tx, delivery, batch, counted)))


def _check(ctx: Context) -> None:
    if not audit(ctx, PIPELINE).holds:
        raise RuntimeError("the audit found violations")


def _kafka(topic: str, partitions: int, *, earliest: int, end: int) -> FixedKafka:
    """A cluster with one topic, of which each partition holds these offsets."""
    held = PartitionSnapshot(earliest=earliest, end=end)
    of_topic = TopicSnapshot(
        topic_id="id", cluster_id="cluster", partitions=dict.fromkeys(range(partitions), held)
    )
    return FixedKafka(KafkaSnapshot(cluster_id="cluster", topics={topic: of_topic}))


def _result(ranges: list[OffsetRange], number: int) -> Counts:
    """Sixty lines a partition: two at the counted level in the minute before, three in this one."""
    minute = datetime(2026, 1, 1) + timedelta(minutes=number)  # noqa: DTZ001 - the lines' own clock
    return Counts(
        totals={
            r.partition: SegmentTotals(
                records=LINES,
                matched=5,
                unmatched=LINES - 5,
                malformed=0,
                first_offset=r.from_offset,
                last_offset=r.until_offset - 1,
            )
            for r in ranges
        },
        contributions=[
            Contribution(
                partition=r.partition,
                log_time=f"{minute + timedelta(minutes=back):%Y-%m-%d %H:%M}:00",
                sums=(lines,),
            )
            for r in ranges
            for back, lines in ((0, 2), (1, 3))
        ],
        dead_letters=[],
    )


def _bytes(database: Database) -> int:
    with database.transaction() as tx:
        tx.execute("set session information_schema_stats_expiry = 0")
        for table in TABLES:
            tx.rows(f"analyze table `{table}`")
        row = tx.row(
            "select sum(data_length + index_length) as bytes from information_schema.tables"
            " where table_schema = %s and table_name in %s",
            (database.settings.database, list(TABLES)),
        )
    return int(row["bytes"]) if row else 0


def _rows(database: Database) -> int:
    with database.transaction(read_only=True) as tx:
        rows = [tx.row(f"select count(*) as n from `{table}`") for table in TABLES]
    return sum(int(row["n"]) for row in rows if row)


if __name__ == "__main__":
    sys.exit(command(measure))
