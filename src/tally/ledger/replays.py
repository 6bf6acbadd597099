"""Replays: what is known of a range, writing a request down, and taking the old counts' place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tally.errors import FencedError, OvertakenError, UnknownReplayError
from tally.ledger.batches import Requester, insert_batch
from tally.model import Batch, BatchKind, OffsetRange, ReplayState, TopicPartition
from tally.mysql import Row, Transaction
from tally.replay_planning import Piece, ReplayPlan, Tile


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayRecord:
    """Everything that the ledger says of a replay; all times are UTC."""

    replay_id: int
    """The ledger's key."""
    pipeline: str
    """The pipeline it belongs to."""
    state: ReplayState
    """Where it stands."""
    request: str
    """What was asked for, in words."""
    requested_at: datetime
    """When."""
    requested_by: str
    """Who asked."""
    run_id: str | None
    """Airflow's run id, when Airflow asked."""
    reason: str
    """Why."""
    ended_at: datetime | None
    """When its last batch was committed or given up."""
    batches: int
    """How many batches it has, those that were given up left out."""
    committed: int
    """How many of them are committed."""
    offsets: int
    """Offsets that its batches span."""
    offsets_committed: int
    """Offsets that are counted again."""


def tiles_of(
    tx: Transaction, incarnation_id: int, partition: TopicPartition, from_offset: int, until: int
) -> tuple[Tile, ...]:
    """What is known of ``[from_offset, until)``: live segments and accepted losses, in order."""
    here = (incarnation_id, partition.partition)
    rows = tx.rows(
        "select s.from_offset, s.until_offset, s.segment_id, s.state = 'folded' as folded,"
        " exists (select 1 from lost_range l where l.incarnation_id = s.incarnation_id"
        "   and l.partition_id = s.partition_id and l.cause = 'missing' and l.state = 'accepted'"
        "   and l.from_offset < s.until_offset and s.from_offset < l.until_offset) as alone"
        " from segment s where s.incarnation_id = %s and s.partition_id = %s"
        # Live segments do not overlap: the last one that begins before the range may reach into it.
        " and s.live_from >= coalesce((select max(live_from) from segment"
        "   where incarnation_id = %s and partition_id = %s and live_from <= %s), %s)"
        " and s.live_from < %s and s.live_until > %s"
        " union all"
        " select from_offset, until_offset, null, 0, 0 from lost_range"
        " where incarnation_id = %s and partition_id = %s"
        " and state = 'accepted' and cause = 'expired' and from_offset < %s and until_offset > %s"
        " order by from_offset",
        (*here, *here, from_offset, from_offset, until, from_offset, *here, until, from_offset),
    )
    return tuple(
        Tile(
            range=OffsetRange(
                partition=partition,
                from_offset=row["from_offset"],
                until_offset=row["until_offset"],
            ),
            segment_id=row["segment_id"],
            alone=bool(row["alone"]),
            folded=bool(row["folded"]),
        )
        for row in rows
    )


def first_whole(
    tx: Transaction, incarnation_id: int, partition: TopicPartition, earliest: int
) -> int | None:
    """Where the first live segment begins that lies behind ``earliest`` whole; None without one."""
    row = tx.row(
        "select min(live_from) as first from segment"
        " where incarnation_id = %s and partition_id = %s and live_from >= %s and state = 'live'",
        (incarnation_id, partition.partition, earliest),
    )
    return row["first"] if row else None


def ranges_of_batch(tx: Transaction, pipeline: str, batch_id: int) -> list[OffsetRange]:
    """What a batch counted, of topics as they are now."""
    return _ranges(
        tx.rows(
            "select i.topic, s.partition_id, s.from_offset, s.until_offset"
            " from segment s join topic_incarnation i using (incarnation_id)"
            " where s.batch_id = %s and i.pipeline = %s and i.state = 'current'"
            " and s.state in ('live', 'superseded', 'folded')",
            (batch_id, pipeline),
        )
    )


def ranges_of_minutes(tx: Transaction, pipeline: str, first: str, last: str) -> list[OffsetRange]:
    """The live segments that have counted lines in a span of minutes, of topics as they are now.

    Args:
        tx: An open transaction.
        pipeline: The pipeline.
        first: The first minute of the lines' own clock, ``YYYY-MM-DD HH:MM``.
        last: The last one, itself included.
    """
    return _ranges(
        tx.rows(
            "select distinct i.topic, s.partition_id, s.from_offset, s.until_offset"
            " from segment_count c join segment s using (segment_id)"
            " join topic_incarnation i using (incarnation_id)"
            " where i.pipeline = %s and i.state = 'current' and s.state = 'live'"
            " and c.log_time between %s and %s",
            (pipeline, f"{first}:00", f"{last}:00"),
        )
    )


def minutes_of(tx: Transaction, segment_ids: Sequence[int]) -> tuple[int, str | None, str | None]:
    """How many minutes the segments have counted lines for, the first and the last one."""
    if not segment_ids:
        return 0, None, None
    row = tx.row(
        "select count(distinct log_time) as minutes,"
        " date_format(min(log_time), '%%Y-%%m-%%d %%H:%%i') as first,"
        " date_format(max(log_time), '%%Y-%%m-%%d %%H:%%i') as last"
        " from segment_count where segment_id in %s",
        (list(segment_ids),),
    )
    return (int(row["minutes"]), row["first"], row["last"]) if row else (0, None, None)


def pace(tx: Transaction, pipeline: str) -> float | None:
    """Offsets per second of the largest of the last hundred batches; None before the first one."""
    row = tx.row(
        "select sum(s.until_offset - s.from_offset) as offsets,"
        " timestampdiff(microsecond, b.claimed_at, b.committed_at) / 1e6 as seconds"
        " from (select batch_id, claimed_at, committed_at from batch"
        "   where pipeline = %s and state = 'committed' and claimed_at < committed_at"
        "   order by batch_id desc limit 100) as b"
        " join segment s using (batch_id) group by b.batch_id, b.claimed_at, b.committed_at"
        " order by offsets desc limit 1",
        (pipeline,),
    )
    return None if row is None else float(row["offsets"]) / float(row["seconds"])


def insert_replay(
    tx: Transaction,
    pipeline: str,
    plan: ReplayPlan,
    incarnations: Mapping[str, int],
    requester: Requester,
    *,
    request: str,
    reason: str,
) -> tuple[int, list[int]]:
    """Write a replay down with all of its batches; the caller holds the pipeline's lock.

    Returns:
        The replay's id and those of its batches, in order.
    """
    replay_id = tx.insert(
        "insert into replay (pipeline, request, requested_at, requested_by, requested_version,"
        " run_id, reason) values (%s, %s, %s, %s, %s, %s, %s)",
        (
            pipeline,
            request[:1000],
            _now(),
            requester.name,
            requester.version,
            requester.run_id,
            reason,
        ),
    )
    return replay_id, insert_batches(tx, pipeline, replay_id, plan, incarnations, requester)


def insert_batches(
    tx: Transaction,
    pipeline: str,
    replay_id: int,
    plan: ReplayPlan,
    incarnations: Mapping[str, int],
    requester: Requester,
) -> list[int]:
    """Write the batches of a replay down, with what each of their segments is to replace."""
    return [
        _insert_batch(tx, pipeline, replay_id, pieces, incarnations, requester)
        for pieces in plan.batches
    ]


def _insert_batch(
    tx: Transaction,
    pipeline: str,
    replay_id: int,
    pieces: Sequence[Piece],
    incarnations: Mapping[str, int],
    requester: Requester,
) -> int:
    ranges: dict[int, list[OffsetRange]] = {}
    for piece in pieces:
        incarnation = incarnations[piece.range.partition.topic]
        ranges.setdefault(incarnation, []).append(piece.range)
    batch_id = insert_batch(tx, pipeline, BatchKind.REPLAY, ranges, requester, replay_id=replay_id)
    for piece in pieces:
        tx.insert_many(
            "insert into replacement (segment_id, replaced_id)"
            " select segment_id, %s from segment"
            " where batch_id = %s and incarnation_id = %s and partition_id = %s",
            [
                (
                    replaced,
                    batch_id,
                    incarnations[piece.range.partition.topic],
                    piece.range.partition.partition,
                )
                for replaced in piece.replaces
            ],
        )
    return batch_id


def take_over(tx: Transaction, batch: Batch) -> None:
    """Supersede every segment that the batch was planned to replace, or none.

    The partitions' rows are locked first, so that no other replay can add the same offsets.

    Raises:
        OvertakenError: One of them was replaced by somebody else since, or its offsets were added.
            Nothing is changed.
    """
    tx.rows(
        "select o.next_offset from partition_offset o join segment s"
        " using (incarnation_id, partition_id) where s.batch_id = %s"
        " order by o.incarnation_id, o.partition_id for update",
        (batch.batch_id,),
    )
    planned = tx.row(
        "select count(*) as segments from replacement r join segment s using (segment_id)"
        " where s.batch_id = %s",
        (batch.batch_id,),
    )
    replaced = tx.execute(
        "update segment n join replacement r on r.segment_id = n.segment_id"
        " join segment o on o.segment_id = r.replaced_id"
        " set o.state = 'superseded', o.superseded_by = n.segment_id"
        " where n.batch_id = %s and o.state = 'live'",
        (batch.batch_id,),
    )
    if planned is None or replaced != planned["segments"]:
        raise OvertakenError(
            f"batch {batch.batch_id}: of {planned['segments'] if planned else 0} segments that it "
            f"was to replace only {replaced} are still part of the result; another replay came "
            "first",
            next_step=f"tally replay --resume {batch.replay_id} plans what is left anew",
        )
    for segment in batch.segments:
        _check_alone(tx, batch, segment.segment_id)
    _take_place_of_losses(tx, batch)


def _check_alone(tx: Transaction, batch: Batch, segment_id: int) -> None:
    """No live segment may reach into the range: of those that begin before its end, the last."""
    row = tx.row(
        "select o.segment_id, o.from_offset, o.until_offset from segment n join segment o"
        " on o.incarnation_id = n.incarnation_id and o.partition_id = n.partition_id"
        " and o.live_from < n.until_offset"
        " where n.segment_id = %s and o.segment_id <> n.segment_id"
        " order by o.live_from desc limit 1",
        (segment_id,),
    )
    mine = next(s.range for s in batch.segments if s.segment_id == segment_id)
    if row is not None and row["until_offset"] > mine.from_offset:
        raise OvertakenError(
            f"batch {batch.batch_id}: {mine} was counted by segment {row['segment_id']}, "
            f"[{row['from_offset']}, {row['until_offset']}), meanwhile",
            next_step=f"tally replay --resume {batch.replay_id} plans what is left anew",
        )


def _take_place_of_losses(tx: Transaction, batch: Batch) -> None:
    """Accepted losses in the range are none any more: Kafka held their records after all."""
    tx.execute(
        "update lost_range l join segment s using (incarnation_id, partition_id)"
        " set l.state = 'restored',"
        " l.reason = left(concat(l.reason, '; counted by batch ', %s), 1000)"
        " where s.batch_id = %s and l.state = 'accepted' and l.cause = 'expired'"
        " and s.from_offset <= l.from_offset and l.until_offset <= s.until_offset",
        (batch.batch_id, batch.batch_id),
    )
    cut = tx.row(
        "select l.from_offset, l.until_offset from lost_range l"
        " join segment s using (incarnation_id, partition_id)"
        " where s.batch_id = %s and l.state = 'accepted' and l.cause = 'expired'"
        " and s.from_offset < l.until_offset and l.from_offset < s.until_offset limit 1",
        (batch.batch_id,),
    )
    if cut is not None:
        raise OvertakenError(
            f"batch {batch.batch_id}: [{cut['from_offset']}, {cut['until_offset']}) was accepted "
            "as lost meanwhile, and only part of it would be counted",
            next_step=f"tally replay --resume {batch.replay_id} plans what is left anew",
        )


def planned_batches(tx: Transaction, replay_id: int) -> list[int]:
    """The batches of a replay that are still to be counted, in order."""
    rows = tx.rows(
        "select batch_id from batch where replay_id = %s and state = 'planned' order by batch_id",
        (replay_id,),
    )
    return [row["batch_id"] for row in rows]


def cancel(tx: Transaction, replay_id: int, *, by: str, reason: str) -> list[int]:
    """Give up what is left of a replay; what it has committed stays.

    The caller holds the pipeline's lock, so that nothing of it is planned anew meanwhile.

    Returns:
        The batches that were given up.

    Raises:
        UnknownReplayError: The ledger has none of that id.
        FencedError: None of its batches is planned any more. Nothing is changed.
    """
    # Locked: a commit that is under way is waited for, and its batch is then none of these.
    rows = tx.rows(
        "select batch_id from batch where replay_id = %s and state = 'planned'"
        " order by batch_id for update",
        (replay_id,),
    )
    given_up = [row["batch_id"] for row in rows]
    if not given_up:
        raise FencedError(
            f"replay {replay_id} is {find_replay(tx, replay_id).state}: nothing of it is left to "
            "be given up",
            next_step="tally replays",
        )
    now = _now()
    tx.execute(
        "update batch set state = 'abandoned', abandoned_at = %s, abandoned_by = %s, reason = %s"
        " where batch_id in %s",
        (now, by, reason, given_up),
    )
    tx.execute("update segment set state = 'abandoned' where batch_id in %s", (given_up,))
    tx.execute(
        "update replay set state = 'cancelled', ended_at = %s where replay_id = %s",
        (now, replay_id),
    )
    return given_up


def find_replay(tx: Transaction, replay_id: int) -> ReplayRecord:
    """One replay.

    Raises:
        UnknownReplayError: The ledger has none of that id.
    """
    rows = tx.rows(f"{_REPLAYS} where r.replay_id = %s group by r.replay_id", (replay_id,))
    if not rows:
        raise UnknownReplayError(
            f"the ledger has no replay {replay_id}", next_step="tally replays lists them"
        )
    return _replay(rows[0])


def list_replays(tx: Transaction, pipeline: str, *, limit: int) -> list[ReplayRecord]:
    """The pipeline's replays, newest first."""
    rows = tx.rows(
        f"{_REPLAYS} where r.pipeline = %s group by r.replay_id order by r.replay_id desc limit %s",
        (pipeline, limit),
    )
    return [_replay(row) for row in rows]


_REPLAYS = """
    select r.replay_id, r.pipeline, r.state, r.request, r.requested_at, r.requested_by, r.run_id,
           r.reason, r.ended_at,
           count(distinct b.batch_id) as batches,
           count(distinct case when b.state = 'committed' then b.batch_id end) as committed,
           coalesce(sum(s.until_offset - s.from_offset), 0) as offsets,
           coalesce(sum(case when b.state = 'committed'
                             then s.until_offset - s.from_offset end), 0) as offsets_committed
    from replay r left join batch b on b.replay_id = r.replay_id and b.state <> 'abandoned'
    left join segment s on s.batch_id = b.batch_id
"""


def _replay(row: Row) -> ReplayRecord:
    times = ("requested_at", "ended_at")
    numbers = ("batches", "committed", "offsets", "offsets_committed")
    return ReplayRecord(
        **{
            **row,
            **{key: row[key] and row[key].replace(tzinfo=UTC) for key in times},
            **{key: int(row[key]) for key in numbers},
            "state": ReplayState(row["state"]),
        }
    )


def _ranges(rows: Sequence[Row]) -> list[OffsetRange]:
    return [
        OffsetRange(
            partition=TopicPartition(topic=row["topic"], partition=row["partition_id"]),
            from_offset=row["from_offset"],
            until_offset=row["until_offset"],
        )
        for row in rows
    ]


def _now() -> datetime:
    """UTC without its zone, as MySQL's datetime takes it."""
    return datetime.now(UTC).replace(tzinfo=None)
