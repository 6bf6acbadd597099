"""What a replay's batches read: planned against what the ledger and Kafka say now.

Planned once when the replay is recorded, and again for a batch where another replay came first.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from tally import model
from tally.config.pipeline import Pipeline
from tally.context import Context, Transaction
from tally.errors import FencedError, ReplayRefusedError
from tally.formatting import REASON_MAX
from tally.kafka.client import Kafka
from tally.ledger import batches, positions, replays
from tally.planning.replay import ReplayPlan, Tile, plan_replay


def plan_against(
    tx: Transaction,
    pipeline: Pipeline,
    known: Mapping[str, model.KnownTopic],
    snapshot: model.KafkaSnapshot,
    asked: Sequence[model.OffsetRange],
) -> ReplayPlan:
    """The plan of a replay against what the ledger says now.

    Args:
        tx: An open transaction; to record the plan it must hold the pipeline's lock.
        pipeline: Its settings.
        known: The ledger's current topics.
        snapshot: What Kafka says of them.
        asked: The requested ranges.
    """
    known_tiles: defaultdict[model.TopicPartition, set[Tile]] = defaultdict(set)
    for r in asked:
        if (topic := known.get(r.partition.topic)) is not None:
            known_tiles[r.partition].update(positions.tiles_of(tx, topic.generation_id, r))
    return plan_replay(
        asked,
        known=known,
        tiles={p: sorted(of, key=lambda tile: tile.range) for p, of in known_tiles.items()},
        kafka=snapshot,
        offsets_per_range=pipeline.max_records_per_partition,
        sparse=pipeline.is_sparse,
        by_partition=pipeline.commits_by_partition,
    )


def snapshot_of(
    kafka: Kafka, pipeline: Pipeline, known: Mapping[str, model.KnownTopic]
) -> model.KafkaSnapshot:
    """Kafka's answer for the pipeline's topics and those that it has read before."""
    return kafka.snapshot(
        sorted({*pipeline.topics, *known}),
        read_committed=pipeline.reads_committed,
    )


def other_generations(batch: model.Batch, known: Mapping[str, model.KnownTopic]) -> Iterator[str]:
    """Ranges of a topic that was created again since; the same offsets are now other records."""
    for segment in batch.segments:
        now = known.get(segment.range.partition.topic)
        if now is None or not segment.is_same(now):
            yield f"{segment.range}: the ledger now follows another generation of the topic"


def replan_batch(ctx: Context, batch_id: int) -> list[int]:
    """Replan the ranges of a replay's batch against the current live segments, and abandon it.

    Returns:
        Ids of the batches that replace it.

    Raises:
        FencedError: It is committed or abandoned already.
        ReplayRefusedError: Its ranges can no longer be reprocessed; nothing is changed.
    """
    with ctx.database.transaction(read_only=True) as tx:
        batch = batches.find_batch(tx, batch_id)
        pipeline = ctx.settings.pipeline(batch.pipeline)
        snapshot = snapshot_of(ctx.kafka, pipeline, positions.known_topics(tx, pipeline.name))
    replay_id = batch.replay_id
    if replay_id is None:
        raise FencedError(
            f"batch {batch_id} does not belong to a replay", next_step=f"tally run {batch_id}"
        )
    requester = dataclasses.replace(ctx.requester, run_id=None)

    def work(tx: Transaction) -> list[int]:
        positions.lock_pipeline(tx, pipeline.name, pipeline.table)
        now = batches.find_batch(tx, batch_id, lock=True)
        if now.planned_at != batch.planned_at:
            raise batches.restored_error(batch_id)
        if now.state is not model.BatchState.PLANNED:
            raise FencedError(
                f"batch {batch_id} is {now.state}", next_step=f"tally show {batch_id}"
            )
        known = positions.known_topics(tx, pipeline.name)
        plan = plan_against(tx, pipeline, known, snapshot, now.ranges)
        causes = [*other_generations(now, known), *map(str, plan.refusals)]
        if causes:
            raise ReplayRefusedError(
                f"batch {batch_id} cannot be replanned: {causes[0]}",
                next_step="give it up, what was counted stays: "
                f"tally abandon {batch_id} --reason '…'",
            )
        ids = replays.insert_batches(tx, pipeline.name, replay_id, plan, known, requester)
        reason = f"what it was to replace was replaced; replanned as {ids}"[:REASON_MAX]
        batches.abandon(tx, batch_id, by=requester.name, reason=reason)
        return ids

    return ctx.database.run(work)
