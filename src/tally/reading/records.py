"""A record of Kafka, whole, and what becomes of it by today's rules."""

import time
from dataclasses import dataclass
from datetime import datetime

from tally.aggregates.judgement import judge
from tally.context import Context
from tally.errors import UsageError
from tally.formatting import printable_bytes
from tally.ledger.positions import is_known_partition
from tally.lines.format import MalformedReason
from tally.model import OffsetRange, TopicPartition
from tally.views import view_of


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordView:
    """A record, and what becomes of it by today's rules."""

    partition: TopicPartition
    """The partition."""
    offset: int
    """Its offset."""
    written_at: datetime | None
    """Its timestamp; null without one."""
    log_time: str | None
    """Its minute, as far as it says one."""
    reason: MalformedReason | None
    """Why it cannot be understood; null where it can."""
    is_counted: bool
    """Whether it is counted."""
    value_bytes: int | None
    """How many bytes it has; null for a record without a value."""
    value: str | None
    """Its value as text, with everything unprintable escaped."""


def record_at(ctx: Context, name: str, partition: TopicPartition, offset: int) -> RecordView | None:
    """A record as it is in Kafka now, whole; None where Kafka has none at this offset.

    Raises:
        UnknownPipelineError: No such pipeline is configured.
        UsageError: The pipeline has never read the partition.
        KafkaUnavailableError, AccessDeniedError: Kafka did not answer, or refused.
    """
    pipeline = ctx.settings.pipeline(name)
    if partition.topic not in pipeline.topics:
        with ctx.database.transaction(read_only=True) as tx:
            is_known = is_known_partition(tx, name, partition)
        if not is_known:
            raise UsageError(
                f"{name} has never read {partition}", next_step="name a partition of its topics"
            )
    asked = OffsetRange(partition=partition, from_offset=offset, until_offset=offset + 1)
    until = time.monotonic() + ctx.settings.kafka.request_timeout_s
    held = ctx.kafka.snapshot([partition.topic], read_committed=pipeline.reads_committed)
    place = held.partition(partition)
    if place is None or not place.earliest <= offset < place.end:
        return None
    spans = ctx.kafka.read(asked, until=until, read_committed=pipeline.reads_committed)
    found = next((record for span in spans for record in span.records), None)
    if found is None:
        return None
    judged = judge(pipeline, partition, found)
    return view_of(
        RecordView,
        found,
        judged,
        partition=partition,
        log_time=judged.minute,
        value_bytes=None if found.value is None else len(found.value),
        value=None if found.value is None else printable_bytes(found.value),
    )
