"""The end of a sequence: all losses are decided, and everything is counted."""

from datetime import timedelta

from tests.properties import operations as op
from tests.properties.oracle import Oracle
from tests.properties.pipeline import TOPIC, PipelineUnderTest


def finish(pipeline: PipelineUnderTest, oracle: Oracle) -> None:
    """Count what is left, end the replays, check that late workers cannot commit, and prune."""
    pipeline.kafka.stale.clear()
    pipeline.clock.skew = timedelta(0)
    pipeline.configure(limit=1000)
    pipeline.do(op.Age())
    if TOPIC not in pipeline.kafka.topics:
        if not pipeline.kafka.generations:
            return
        pipeline.do(op.BringBack(0))
    for _ in range(20):
        if _is_finished(pipeline):
            break
        pipeline.do(op.Plan())
        pipeline.do(op.RunMinute())
        pipeline.do(op.Accept(None))
        if is_changed(pipeline):
            pipeline.do(op.Adopt("earliest"))
    else:
        raise AssertionError("the pipeline is stuck")
    oracle.check(with_audit=True)
    open_ = "select replay_id from replay where pipeline = %s and state = 'open' order by replay_id"
    for row in pipeline.rows(open_, (pipeline.name,)):
        pipeline.end_replay(row["replay_id"])
    late = [pipeline.go_on(worker) for worker in pipeline.workers]
    assert not any(late), "a late worker has committed"
    pipeline.do(op.Prune())
    oracle.check(with_audit=True)


def _is_finished(pipeline: PipelineUnderTest) -> bool:
    """Whether all partitions are counted to their end, without open losses or batches."""
    generation = pipeline.kafka.topics[TOPIC]
    rows = pipeline.rows(
        "select o.partition_id, o.next_offset, exists (select 1 from lost_range l"
        "   where l.incarnation_id = o.incarnation_id and l.partition_id = o.partition_id"
        "   and l.state = 'open') as is_open"
        " from partition_offset o join topic_incarnation i using (incarnation_id)"
        " where i.pipeline = %s and i.state = 'current' and i.topic_id = %s and i.cluster_id = %s",
        (pipeline.name, generation.topic_id, generation.cluster_id),
    )
    offsets = {row["partition_id"]: row["next_offset"] for row in rows if not row["is_open"]}
    open_ = pipeline.rows(
        "select 1 from batch where pipeline = %s and kind = 'ingest' and state = 'planned'",
        (pipeline.name,),
    )
    return not open_ and all(
        offsets.get(number, -1) >= log.end for number, log in enumerate(generation.logs)
    )


def is_changed(pipeline: PipelineUnderTest) -> bool:
    """Whether Kafka serves another generation of the topic than the ledger's current one."""
    rows = pipeline.rows(
        "select topic_id from topic_incarnation where pipeline = %s and state = 'current'",
        (pipeline.name,),
    )
    served = pipeline.kafka.topics.get(TOPIC)
    return served is not None and rows not in ([], [{"topic_id": served.topic_id}])
