"""Resolving a replay request to ranges of offsets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tally.config.pipeline import Pipeline
from tally.context import Transaction
from tally.errors import ReplayRefusedError
from tally.formatting import plural
from tally.kafka.client import Kafka
from tally.ledger import positions, records, results
from tally.ledger.batches import find_batch
from tally.model import KafkaSnapshot, KnownTopic, OffsetRange, TopicPartition
from tally.planning import replay_request as requests
from tally.planning.replay import join_ranges


@dataclass(frozen=True, slots=True)
class Facts:
    """What a request is resolved against."""

    pipeline: Pipeline
    known: Mapping[str, KnownTopic]
    kafka: KafkaSnapshot

    def partitions(self, topic: str | None, numbers: Sequence[int]) -> list[TopicPartition]:
        """The requested partitions; all that the ledger knows when none is named.

        Raises:
            ReplayRefusedError: The ledger does not know one of them.
        """
        if topic is not None and topic not in self.known:
            raise ReplayRefusedError(
                f"unknown topic {topic}: pipeline {self.pipeline.name} has counted "
                f"{', '.join(sorted(self.known)) or 'nothing yet'}",
                next_step=f"tally status {self.pipeline.name}",
            )
        topics = [topic] if topic is not None else sorted(self.known)
        for name in topics:
            if unknown := sorted(set(numbers) - self.known[name].positions.keys()):
                raise ReplayRefusedError(
                    f"unknown partition {name}/{unknown[0]}: pipeline {self.pipeline.name} has "
                    f"counted {plural(len(self.known[name].positions), 'partition')} of this topic",
                    next_step=f"tally status {self.pipeline.name}",
                )
        return [
            TopicPartition(topic=name, partition=number)
            for name in topics
            for number in sorted(numbers or self.known[name].positions)
        ]

    def next_offset(self, partition: TopicPartition) -> int:
        """The committed offset."""
        return self.known[partition.topic].positions[partition.partition].next_offset


Resolved = tuple[list[OffsetRange], list[str]]


def resolve(tx: Transaction, kafka: Kafka, facts: Facts, request: requests.Request) -> Resolved:
    """The ranges that a request means, and remarks on them for the operator.

    Raises:
        ReplayRefusedError: It names something that the ledger does not know, or no range at all.
        UnknownBatchError: The ledger has no batch of that id.
        RetryableError: Kafka or MySQL did not answer.
    """
    match request:
        case requests.RangesAsked():
            for r in request.ranges:
                facts.partitions(r.partition.topic, (r.partition.partition,))
            return list(request.ranges), []
        case requests.BoundsAsked():
            return _within_bounds(tx, facts, request)
        case requests.TimesAsked():
            return _within_times(kafka, facts, request)
        case requests.BatchAsked():
            if found := records.ranges_of_batch(tx, facts.pipeline.name, request.batch_id):
                return join_ranges(found, touching=True), []
            find_batch(tx, request.batch_id)
            return [], [f"batch {request.batch_id} has counted nothing of the current topics"]
        case requests.MinutesAsked():
            asked = facts.pipeline.name, request.first, request.last
            found = results.ranges_of_minutes(tx, *asked)
            notes = [] if found else ["no live segment of the current topics has lines of it"]
            if results.ranges_of_minutes(tx, *asked, current=False):
                notes.append(
                    "it has lines that were counted of an earlier generation of a topic, which "
                    "Kafka no longer has: no replay can read them"
                )
            return join_ranges(found, touching=True), notes


def _within_bounds(tx: Transaction, facts: Facts, request: requests.BoundsAsked) -> Resolved:
    asked, notes = [], []
    by_file = bool(request.from_offsets or request.until_offsets)
    if by_file and not request.chosen:
        notes.append("the files have no offsets of what was asked for")
    for partition in (
        request.chosen if by_file else facts.partitions(request.topic, request.partitions)
    ):
        facts.partitions(partition.topic, (partition.partition,))
        next_offset = facts.next_offset(partition)
        until = request.until_offsets.get(partition, request.until_offset)
        start = request.from_offsets.get(partition, request.from_offset)
        if start is None:
            held, topic = facts.kafka.partition(partition), facts.known[partition.topic]
            if held is not None:
                start = positions.first_whole(tx, topic.generation_id, partition, held.earliest)
        until = next_offset if until is None else until
        if start is None:
            notes.append(f"{partition}: Kafka holds no counted segment whole")
            continue
        if start == until and (by_file or start == next_offset):
            notes.append(f"{partition}: nothing was counted from {start} until {until}")
            continue
        if start >= until:
            raise ReplayRefusedError(
                f"{partition}: [{start}, {until}) is no range: from must be smaller than until",
                next_step=f"tally status {facts.pipeline.name} shows the committed offsets",
            )
        asked.append(OffsetRange(partition=partition, from_offset=start, until_offset=until))
    return asked, notes


def _within_times(kafka: Kafka, facts: Facts, request: requests.TimesAsked) -> Resolved:
    partitions = facts.partitions(request.topic, request.partitions)
    starts = kafka.offsets_at(partitions, request.since)
    ends = kafka.offsets_at(partitions, request.before)
    asked, notes = [], []
    for partition in partitions:
        start, end = starts[partition], ends[partition]
        next_offset = facts.next_offset(partition)
        if start is None or start >= next_offset:
            since = request.since.isoformat(timespec="seconds")
            notes.append(f"{partition}: nothing that was counted is as late as {since}")
            continue
        until = next_offset if end is None else min(end, next_offset)
        if until <= start:
            notes.append(f"{partition}: no record lies between the two times")
            continue
        asked.append(OffsetRange(partition=partition, from_offset=start, until_offset=until))
    if asked:
        notes.append(
            "by Kafka's record times: from the first record at or after the one time to the first "
            "at or after the other; a late record after that is not included"
        )
    return asked, notes
