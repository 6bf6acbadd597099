"""The end of a sequence: all losses are decided, and everything is counted."""

from datetime import timedelta

from tests.properties import operations as op
from tests.properties.oracle import Oracle
from tests.properties.pipeline import TOPIC, PipelineUnderTest


def finish(pipeline: PipelineUnderTest, oracle: Oracle, *, with_prune: bool = True) -> None:
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
    oracle.check(with_audit=oracle.audits_every is not None)
    for replay, state in sorted(pipeline.facts.replays.items()):
        if state == "open":
            pipeline.end_replay(replay)
    late = [pipeline.go_on(worker) for worker in pipeline.workers]
    assert not any(late), "a late worker has committed"
    if with_prune:
        pipeline.do(op.Prune())
    oracle.check(with_audit=True)


def _is_finished(pipeline: PipelineUnderTest) -> bool:
    """Whether all partitions are counted to their end, without open losses or batches."""
    facts, served = pipeline.facts, pipeline.kafka.topics[TOPIC]
    blocked = {loss.place for loss in facts.losses if loss.state == "open"}
    identity = (served.cluster_id, served.topic_id, "current")
    offsets = {
        number: at
        for (generation, number), (_, at) in facts.positions.items()
        if facts.generations[generation] == identity and (generation, number) not in blocked
    }
    return not facts.planned(kind="ingest") and all(
        offsets.get(number, -1) >= log.end for number, log in enumerate(served.logs)
    )


def is_changed(pipeline: PipelineUnderTest) -> bool:
    """Whether Kafka serves another generation of the topic than the ledger's current one."""
    known = [of[1] for of in pipeline.facts.generations.values() if of[2] == "current"]
    served = pipeline.kafka.topics.get(TOPIC)
    return served is not None and known not in ([], [served.topic_id])
