"""Checks of Kafka: it answers, access rights, and topics."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from tally.app.doctor.diagnosis import Diagnosis, fail, next_step_of, ok
from tally.config.pipeline import Pipeline
from tally.context import Context
from tally.errors import TallyError
from tally.model import KafkaSnapshot, TopicRights


def check_broker(ctx: Context, config: Path) -> Iterator[Diagnosis]:
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
                error,
                "start Kafka (locally: tally up kafka), or correct kafka.bootstrap_servers",
                settings,
                config,
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
