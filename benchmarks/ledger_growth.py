"""How much the ledger grows in a month, and what pruning leaves of it.

Usage: ``.tally/venv/bin/python -m benchmarks.ledger_growth [--partitions 4 100 1000]``

Commits minute batches by Tally's own planning and commit, each partition with counted lines in two
minutes of every batch, without reading records: only the growth of the tables is measured. Prints
the bytes of data and indexes that InnoDB's tables gain with each batch, the sum for a month of
43,200 batches, the sum for the days after which the daily DAG prunes what Kafka has lost, and
the rows that are left after everything is folded.
"""

import argparse
import sys
from datetime import datetime, timedelta

from benchmarks.servers import Bench, bench, say
from tally import __version__
from tally.aggregates.counts import Contribution
from tally.audit.audit import audit
from tally.config.pipeline import Pipeline
from tally.counting.commit import commit_in
from tally.deliveries.contract import Delivery, Result
from tally.ledger import batches
from tally.ledger.batches import Requester
from tally.ledger.folding import fold_partition, foldable_partitions, forget_history
from tally.ledger.positions import insert_generation, lock_pipeline
from tally.model import BatchKind, OffsetRange, SegmentTotals, TopicPartition
from tally.mysql.transactions import Database, Transaction

PIPELINE = "growth"
MINUTES_A_DAY = 1_440
DAYS_A_MONTH = 30
DAYS_KEPT = Pipeline.model_fields["prune_after_days"].default
LINES = 60
TABLES = ("batch", "segment", "segment_count", "partition_offset", "folded_count", PIPELINE)
REQUESTER = Requester(name="benchmark", version=__version__)


def main() -> int:
    """Run it once and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, nargs="+", default=[4, 100, 1000])
    parser.add_argument("--rows", type=int, default=20_000, help="segments of each size")
    arguments = parser.parse_args()
    say(
        f"| partitions | batches | bytes per batch | a month | {DAYS_KEPT} days | rows per batch"
        " | rows once folded |"
    )
    say("|---:|---:|---:|---:|---:|---:|---:|")
    for partitions in arguments.partitions:
        with bench([PIPELINE]) as servers:
            if not _measure(servers, partitions, max(5, arguments.rows // partitions)):
                return 1
    return 0


def _measure(servers: Bench, partitions: int, count: int) -> bool:
    ctx = servers.context()
    ctx.database.run(lambda tx: _begin(tx, servers.topic, partitions))
    before = _bytes(ctx.database)
    delivery = Delivery(ctx, ctx.settings.pipeline(PIPELINE))
    for number in range(count):
        ctx.database.run(
            lambda tx, number=number: _commit(tx, delivery, servers.topic, partitions, number),  # type: ignore[misc]
        )
    grown, rows = _bytes(ctx.database) - before, _rows(ctx.database)
    holds = audit(ctx, PIPELINE).holds
    _fold_everything(ctx.database)
    holds = holds and audit(ctx, PIPELINE).holds
    per_batch = grown / count
    spans = (DAYS_A_MONTH, DAYS_KEPT)
    sums = [f"{per_batch * MINUTES_A_DAY * days / 2**30:,.1f} GiB" for days in spans]
    say(
        f"| {partitions:,} | {count:,} | {per_batch:,.0f} | {' | '.join(sums)} "
        f"| {rows / count:,.0f} | {_rows(ctx.database):,} |"
    )
    if not holds:
        say("the audit found violations")
    return holds


def _begin(tx: Transaction, topic: str, partitions: int) -> None:
    lock_pipeline(tx, PIPELINE, PIPELINE)
    incarnation_id = insert_generation(tx, PIPELINE, topic, "id", "cluster")
    tx.insert_many(
        "insert into partition_offset (incarnation_id, partition_id, start_offset, next_offset)"
        " values (%s, %s, 0, 0)",
        [(incarnation_id, number) for number in range(partitions)],
    )


def _commit(tx: Transaction, delivery: Delivery, topic: str, partitions: int, number: int) -> None:
    row = tx.row("select incarnation_id from topic_incarnation where pipeline = %s", (PIPELINE,))
    ranges = [
        OffsetRange(
            partition=TopicPartition(topic=topic, partition=partition),
            from_offset=number * LINES,
            until_offset=(number + 1) * LINES,
        )
        for partition in range(partitions)
    ]
    incarnation_id = row["incarnation_id"] if row else 0
    batch_id = batches.insert_batch(
        tx, PIPELINE, BatchKind.INGEST, {incarnation_id: ranges}, REQUESTER
    )
    batch = batches.claim(tx, batch_id, "benchmark")
    commit_in(tx, delivery, batch, result(ranges, number))


def result(ranges: list[OffsetRange], number: int) -> Result:
    """Sixty lines a partition: two at the counted level in the minute before, three in this one."""
    minute = datetime(2026, 1, 1) + timedelta(minutes=number)  # noqa: DTZ001 - the lines' own clock
    return Result(
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
                log_count=lines,
            )
            for r in ranges
            for back, lines in ((0, 2), (1, 3))
        ],
        dead_letters=[],
        version=__version__,
        format_fingerprint="benchmark",
    )


def _fold_everything(database: Database) -> None:
    """As ``tally prune`` does when Kafka no longer holds the records."""
    cutoff = datetime.max  # noqa: DTZ901 - compared by MySQL, which knows no zones
    with database.transaction(read_only=True) as tx:
        partitions = foldable_partitions(tx, PIPELINE)
    for where in partitions:
        while database.run(
            lambda tx, where=where: fold_partition(  # type: ignore[misc]
                tx, PIPELINE, where, REQUESTER, before=None, cutoff=cutoff
            ),
        ).segments:
            pass
    while database.run(lambda tx: forget_history(tx, PIPELINE, cutoff)).rows:
        pass


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
    sys.exit(main())
