"""Whether every line is counted once when the pipeline stops while lines keep coming.

Usage: ``.tally/venv/bin/python -m benchmarks.standstill [--seconds 300]``

Counts two batches under steady traffic, stops for this many seconds, resumes until it has caught
up, and compares the result with what the producer sent. Ends with exit code 1 if they differ or the
audit finds a violation.
"""

import argparse
import sys
import time

from benchmarks.servers import PARTITIONS, bench, say
from tally.audit.audit import audit
from tally.context import Context
from tally.counting.batch import run_batch
from tally.counting.plan import plan_batch
from tally.ledger import positions
from tally.ledger.results import lines_by_minute
from tally.ledger.tables import Tables
from tally.spark.session import spark_session
from tally_local.demo.traffic import Traffic
from tally_local.demo.writer import LineWriter

LINES_PER_SECOND = 2_000
PIPELINE = "standstill"


def main() -> int:
    """Run it once and print what was sent and counted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300)
    seconds = parser.parse_args().seconds
    with bench([PIPELINE], "max_records_per_partition = 50000") as servers:
        settings = servers.settings
        with spark_session(settings.spark, PIPELINE) as spark:
            ctx = servers.context(spark)
            with Traffic(
                LineWriter(settings.kafka),
                servers.topic,
                partitions=PARTITIONS,
                levels=settings.pipeline(PIPELINE).levels,
                rate=LINES_PER_SECOND,
                seed=1,
            ) as traffic:
                for _ in range(2):
                    time.sleep(2)
                    _minute(ctx)
                say(f"standing still for {seconds:.0f} s")
                time.sleep(seconds)
            batches = 0
            while _minute(ctx):
                batches += 1
        return _conclude(servers.context(), traffic, batches)


def _conclude(ctx: Context, traffic: Traffic, batches: int) -> int:
    with ctx.database.transaction(read_only=True) as tx:
        offsets = positions.current_offsets(tx, PIPELINE)
        counted = lines_by_minute(tx, Tables(result=PIPELINE))
    sent = traffic.lines_before({p.partition: offset for p, offset in offsets.items()})
    verdict = audit(ctx, PIPELINE)
    right = sent == counted and verdict.holds and verdict.records == traffic.sent
    say(
        f"sent {traffic.sent:,} lines, {sum(sent.values()):,} of them errors; caught up in "
        f"{batches} batches; counted {verdict.records:,} lines, {sum(counted.values()):,} errors; "
        f"{'equal, minute by minute' if right else 'NOT EQUAL'}"
    )
    return 0 if right else 1


def _minute(ctx: Context) -> bool:
    batch = plan_batch(ctx, PIPELINE).batch
    if batch is None:
        return False
    return run_batch(ctx, batch.batch_id).committed


if __name__ == "__main__":
    sys.exit(main())
