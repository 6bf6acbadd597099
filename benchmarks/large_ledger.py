"""A ledger with a year of minutes, written in a few minutes.

525,600 batches of two segments each over a topic of 1,000 partitions, twenty of all partitions
behind them, a dead letter of each segment, half of the year under other rules, replays and losses.
Its audit must hold: it is a ledger that Tally could have written.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from tests.fakes import FixedKafka

from benchmarks.servers import Bench
from tally import __version__
from tally.aggregates.counts import Contribution
from tally.aggregates.fingerprint import fingerprint
from tally.audit.audit import audit
from tally.counting.commit import commit_in
from tally.deliveries.contract import Delivery, Result
from tally.ledger import batches
from tally.ledger.positions import insert_generation, lock_pipeline
from tally.model import Batch, KafkaSnapshot, PartitionSnapshot, SegmentTotals, TopicSnapshot
from tally.mysql.transactions import Transaction
from tally.planning.replay_request import BatchAsked
from tally.replay.preview import preview_replay
from tally.replay.record import request_replay

PIPELINE: Final = "year"
PARTITIONS: Final = 1_000
MINUTES: Final = 525_600
WHOLE: Final = 20
"""The latest batches, which read all partitions."""
LINES: Final = 60
"""Records of a segment; the last one is a dead letter."""
REPLAYS: Final = 20

# Segment k of partition p is of the batch k * 500 + p div 2: a batch has two partitions.
_EACH: Final = PARTITIONS // 2
BEGAN: Final = datetime.now(UTC).replace(second=0, microsecond=0, tzinfo=None) - timedelta(
    minutes=MINUTES + WHOLE
)


def fill(servers: Bench) -> None:
    """Write it; see the module.

    Raises:
        RuntimeError: The audit finds violations: Tally could not have written such a ledger.
    """
    ctx = servers.context()
    today = fingerprint(ctx.settings.pipeline(PIPELINE))
    incarnation = ctx.database.run(partial(_begin, topic=servers.topic))
    for statement, args in _year(incarnation, today):
        ctx.database.run(partial(_execute, statement=statement, args=args))
    following = _kafka(servers.topic)
    within = replace(ctx, kafka=following)
    delivery = Delivery(ctx, ctx.settings.pipeline(PIPELINE))
    for number in range(REPLAYS):
        asked = BatchAsked(batch_id=MINUTES - 100 - number)
        preview = preview_replay(within, PIPELINE, asked)
        (batch_id,) = request_replay(within, preview, reason="a benchmark").batch_ids
        batch = ctx.database.run(partial(batches.claim, batch_id=batch_id, claimed_by="a"))
        counted = _counted(batch, today)
        ctx.database.run(partial(commit_in, delivery=delivery, batch=batch, result=counted))
    if not audit(ctx, PIPELINE).holds:
        raise RuntimeError("the audit found violations: no such ledger could exist")


def _begin(tx: Transaction, topic: str) -> int:
    lock_pipeline(tx, PIPELINE, PIPELINE)
    incarnation = insert_generation(tx, PIPELINE, topic, "id", "cluster")
    tx.insert_many(
        "insert into partition_offset (incarnation_id, partition_id, start_offset, next_offset)"
        " values (%s, %s, 0, %s)",
        [(incarnation, p, LINES * (_segments_of(p) + WHOLE)) for p in range(PARTITIONS)],
    )
    return incarnation


def _execute(tx: Transaction, statement: str, args: tuple[Any, ...]) -> None:
    tx.execute("set session cte_max_recursion_depth = 10000000")
    tx.execute(statement, args)


def _segments_of(partition: int) -> int:
    """How many segments of the year a partition has."""
    return (MINUTES - partition // 2 + _EACH - 1) // _EACH


_NUMBERS: Final = (
    " with recursive numbers (n) as (select 0 union all select n + 1 from numbers where n + 1 < %s)"
)


def _year(incarnation: int, today: str) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The statements that fill the ledger, with their values."""
    yield (
        (
            "insert into batch (batch_id, pipeline, kind, state, attempt, planned_at,"
            " planned_version, requested_by, run_id, scheduled_at, claimed_at, claimed_by,"
            f" read_at, committed_at, committed_version, format_fingerprint){_NUMBERS}"
            " select n + 1, %s, 'ingest', 'committed', 1, at, %s, 'airflow:year',"
            " concat('run-', n + 1), at, at, 'a', at,"
            " at + interval 2 second, %s, if(n < %s, 'others', %s)"
            " from (select n, %s + interval n minute as at from numbers) as moments"
        ),
        (MINUTES + WHOLE, PIPELINE, __version__, __version__, MINUTES // 2, today, BEGAN),
    )
    columns = (
        "insert into segment (batch_id, incarnation_id, partition_id, from_offset, until_offset,"
        " state, records, matched, unmatched, malformed, first_offset, last_offset)"
    )
    values = f" 'live', {LINES}, 5, {LINES - 6}, 1, from_offset, from_offset + {LINES - 1} from ("
    yield (
        (
            f"{columns}{_NUMBERS} select n div 2 + 1, %s, p, from_offset, from_offset + {LINES},"
            f"{values} select n, n %% {PARTITIONS} as p, (n div {PARTITIONS}) * {LINES}"
            " as from_offset from numbers) as planned"
        ),
        (2 * MINUTES, incarnation),
    )
    yield (
        (
            f"{columns}{_NUMBERS} select {MINUTES} + n div {PARTITIONS} + 1, %s, p, from_offset,"
            f" from_offset + {LINES},{values} select n, n %% {PARTITIONS} as p,"
            f" ((({MINUTES} - (n %% {PARTITIONS}) div 2 + {_EACH - 1}) div {_EACH})"
            f" + n div {PARTITIONS}) * {LINES} as from_offset from numbers) as planned"
        ),
        (WHOLE * PARTITIONS, incarnation),
    )
    for back, lines in ((0, 2), (1, 3)):
        yield (
            (
                "insert into segment_count (segment_id, log_time, log_count)"
                f" select segment_id, %s + interval (batch_id - {back}) minute, {lines}"
                " from segment"
            ),
            (BEGAN,),
        )
    yield (
        (
            f"insert into `{PIPELINE}` (log_time, log_count)"
            " select log_time, sum(log_count) from segment_count group by log_time"
        ),
        (),
    )
    yield (
        (
            "insert into dead_letter (segment_id, record_offset, reason, value, value_bytes)"
            " select segment_id, last_offset,"
            " elt(batch_id %% 3 + 1, 'no-match', 'no-time', 'no-level'),"
            " concat('no line ', segment_id, repeat(' of a log', 20)), 0 from segment"
        ),
        (),
    )
    yield (
        "update dead_letter set value_bytes = length(value)",
        (),
    )
    yield (
        (
            "insert into dead_letter_total (segment_id, reason, dead_letters, incarnation_id)"
            " select d.segment_id, d.reason, 1, s.incarnation_id"
            " from dead_letter d join segment s using (segment_id)"
        ),
        (),
    )
    yield (
        (
            "insert into lost_range (incarnation_id, partition_id, from_offset, until_offset,"
            f" state, detected_at, decided_at, decided_by, reason){_NUMBERS} select %s, n, 0,"
            f" {LINES}, 'restored', %s, %s, 'ann', 'they came back' from numbers"
        ),
        (PARTITIONS, incarnation, BEGAN, BEGAN),
    )
    yield (
        "analyze table batch, segment, segment_count, dead_letter, dead_letter_total",
        (),
    )


def _kafka(topic: str) -> FixedKafka:
    """A cluster that still holds the whole year."""
    held = {
        p: PartitionSnapshot(earliest=0, end=LINES * (_segments_of(p) + WHOLE))
        for p in range(PARTITIONS)
    }
    of_topic = TopicSnapshot(topic_id="id", partitions=held)
    return FixedKafka(KafkaSnapshot(cluster_id="cluster", topics={topic: of_topic}))


def _counted(batch: Batch, today: str) -> Result:
    """A replay that counts one line more in a minute, and understands every line."""
    minute = f"{BEGAN + timedelta(minutes=MINUTES - 200):%Y-%m-%d %H:%M}:00"
    ranges = [segment.range for segment in batch.segments]
    return Result(
        totals={
            r.partition: SegmentTotals(
                records=r.offsets,
                matched=6,
                unmatched=r.offsets - 6,
                malformed=0,
                first_offset=r.from_offset,
                last_offset=r.until_offset - 1,
            )
            for r in ranges
        },
        contributions=[
            Contribution(partition=r.partition, log_time=minute, log_count=6) for r in ranges
        ],
        dead_letters=[],
        version=__version__,
        format_fingerprint=today,
    )
