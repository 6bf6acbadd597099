"""Checks of Kafka: it answers, access rights, topics, and whether the ledger follows these."""

from collections.abc import Iterator, Mapping

from tally.app.doctor.diagnosis import Diagnosis, fail, next_step_of, ok, skip
from tally.config.pipeline import Pipeline
from tally.errors import TallyError
from tally.ledger.positions import known_topics
from tally.model import KafkaSnapshot, KnownTopic, TopicRights
from tally.pipeline.context import Context
from tally.planning.blocks import identity_block


def check_broker(ctx: Context) -> Iterator[Diagnosis]:
    """All checks of Kafka."""
    settings = ctx.settings
    topics = sorted(
        {topic for pipeline in settings.pipelines.values() for topic in pipeline.topics}
    )
    try:
        snapshot = ctx.kafka.snapshot(topics)
        rights = ctx.kafka.rights(snapshot.topics)
    except TallyError as error:
        yield fail(
            "kafka.reachable",
            error.what,
            next_step_of(
                error, "start Kafka (locally: tally up kafka), or correct kafka.bootstrap_servers"
            ),
        )
        return
    yield ok(
        "kafka.reachable", f"{settings.kafka.bootstrap_servers}, cluster {snapshot.cluster_id}"
    )
    for name in sorted(settings.pipelines):
        pipeline = settings.pipeline(name)
        for topic in pipeline.topics:
            yield check_topic(pipeline, topic, snapshot, rights)
        yield _check_identity(ctx, pipeline, snapshot)


def check_topic(
    pipeline: Pipeline, topic: str, snapshot: KafkaSnapshot, rights: Mapping[str, TopicRights]
) -> Diagnosis:
    """Whether the topic exists, may be read, and is kept as the pipeline expects."""
    check = f"kafka.topic.{topic}"
    if topic not in snapshot.topics:
        return fail(
            check,
            f"pipeline {pipeline.name}: Kafka has no such topic",
            "create it, or take it out of the pipeline's topics",
        )
    right = rights[topic]
    if not right.readable:
        return fail(
            check, "these credentials may not read it", "add an ACL: READ and DESCRIBE on the topic"
        )
    if right.compacted and not pipeline.is_sparse:
        return fail(
            check,
            "it is compacted: offsets will be missing, and each one would be recorded as a loss",
            f'set offsets = "sparse" in [pipelines.{pipeline.name}]',
        )
    return ok(check, f"{len(snapshot.topics[topic].partitions)} partitions, may be read")


def _check_identity(ctx: Context, pipeline: Pipeline, snapshot: KafkaSnapshot) -> Diagnosis:
    check = f"kafka.ledger.{pipeline.name}"
    try:
        with ctx.database.transaction(read_only=True) as tx:
            known = known_topics(tx, pipeline.name)
    except TallyError:
        return skip(check, "the ledger could not be asked")
    return compare_identity(check, pipeline, known, snapshot)


def compare_identity(
    check: str, pipeline: Pipeline, known: Mapping[str, KnownTopic], snapshot: KafkaSnapshot
) -> Diagnosis:
    """Whether these are the cluster and the topics whose offsets the ledger holds."""
    blocks = [
        block
        for topic in pipeline.topics
        if topic in known and topic in snapshot.topics
        for block in [
            identity_block(
                pipeline.name,
                topic,
                known[topic],
                snapshot.cluster_id,
                snapshot.topics[topic].topic_id,
            )
        ]
        if block is not None
    ]
    if blocks:
        return fail(check, "; ".join(f"{b.topic}: {b.detail}" for b in blocks), blocks[0].next_step)
    if not known:
        return ok(check, "nothing counted yet")
    return ok(check, "the cluster and the topics are those that the ledger follows")
