"""Where Kafka and the ledger differ, as violations of the recount. Pure."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Self

from tally import model
from tally.aggregates.aggregate import Measure
from tally.aggregates.counts import DeadLetter
from tally.ledger.decisions import LossRecord
from tally.ledger.invariants import Violation
from tally.ledger.records import SegmentRecord

Key = tuple[str, ...]
"""Minute and label values."""
Sums = tuple[int, ...]
"""Lines, and what is measured of them."""
Rows = Mapping[Key, Sums]


class Letter(NamedTuple):
    """What is compared of a dead letter."""

    reason: str
    """Why the record is malformed."""
    value_bytes: int | None
    """Its whole length; None without a value."""
    kept_bytes: int
    """Of how many of its bytes the digest is."""
    digest: bytes | None
    """SHA-256 of its first bytes; empty without a value, None where they were erased."""

    @classmethod
    def of(cls, kept: DeadLetter, bytes_max: int, *, is_erased: bool = False) -> Self:
        """What is compared of a dead letter, of its value the first ``bytes_max`` bytes."""
        value = (kept.value or b"")[:bytes_max]
        if kept.value is None:
            digest = None if is_erased else b""
        else:
            digest = hashlib.sha256(value).digest()
        return cls(kept.reason, kept.value_bytes, len(value), digest)

    def is_less_than(self, found: "Letter") -> bool:
        """Whether fewer bytes were kept than there are, so that they are not compared."""
        is_null = self.digest == b""  # which no shortened value is
        return self.digest is None or (self.kept_bytes < found.kept_bytes and not is_null)

    def __str__(self) -> str:
        """``no-match, 12 bytes``."""
        length = "no value" if self.value_bytes is None else f"{self.value_bytes} bytes"
        return f"{self.reason}, {length}"


Letters = Mapping[int, Letter]
"""By offset."""


def differences(
    segment: SegmentRecord,
    found: model.SegmentTotals,
    recounted: Rows,
    contributed: Rows,
    measures: Sequence[Measure],
    hint: str,
) -> Iterator[Violation]:
    """Every difference between what a segment's range holds now and what it contributed.

    Args:
        segment: The segment, as it was committed.
        found: Totals of what Kafka holds in its range.
        recounted: Rows of what Kafka holds.
        contributed: Rows of the ledger.
        measures: What the rows have besides lines.
        hint: A harmless explanation of differences; empty without one.
    """
    # Matched is the sum of the minutes; continuations are not known of each segment.
    for key in ("records", "unmatched", "malformed", "continuations"):
        expected, now = getattr(segment.totals, key), getattr(found, key)
        if expected not in {now, None}:
            yield _violation(
                segment.range, key, f"the ledger says {expected} {key}, Kafka holds {now}", hint
            )
    for row in sorted(recounted.keys() | contributed.keys()):
        ours, theirs = contributed.get(row), recounted.get(row)
        if ours != theirs:
            said = f"the ledger says {_text(ours, measures)}, Kafka holds {_text(theirs, measures)}"
            yield _violation(segment.range, " ".join(row), said, hint)


def letter_differences(
    where: model.OffsetRange, found: Letters, kept: Letters, hint: str
) -> Iterator[Violation]:
    """Every difference between the malformed records of a range and its dead letters.

    Args:
        where: A segment's range.
        found: The malformed records that Kafka holds there.
        kept: The segment's dead letters in the ledger.
        hint: A harmless explanation of differences; empty without one.
    """
    for offset in sorted(found.keys() | kept.keys()):
        ours, theirs = kept.get(offset), found.get(offset)
        if ours is None or theirs is None or ours[:2] != theirs[:2]:
            said = f"the ledger says {ours or 'none'}, Kafka holds {theirs or 'none'}"
        elif not ours.is_less_than(theirs) and ours.digest != theirs.digest:
            said = "its bytes are not those that Kafka holds"
        else:
            continue
        yield _violation(where, f"dead letter at offset {offset}", said, hint)


def not_compared(found: Letters, kept: Letters) -> int:
    """Of how many dead letters the bytes are not compared, as fewer were kept than there are."""
    return sum(
        letter.is_less_than(found[offset]) for offset, letter in kept.items() if offset in found
    )


def held_in_spite_of(
    losses: Sequence[LossRecord], kafka: model.KafkaSnapshot
) -> Iterator[Violation]:
    """Records that were accepted as lost and that Kafka holds: nothing counts them."""
    for loss in losses:
        held = kafka.partition(loss.range.partition)
        topic = kafka.topics.get(loss.range.partition.topic)
        is_left_out = (loss.state, loss.cause) == ("accepted", model.LossCause.EXPIRED)
        if not is_left_out or held is None or topic is None or topic.topic_id != loss.topic_id:
            continue
        first = max(loss.range.from_offset, held.earliest)
        until = min(loss.range.until_offset, held.end)
        if first < until:
            yield Violation(
                check="recount",
                where=str(loss.range),
                detail=f"it was accepted as lost, and Kafka holds [{first}, {until}) of it: a "
                "replay counts that",
            )


def before_start(
    known: Mapping[str, model.KnownTopic],
    kafka: model.KafkaSnapshot,
    segments: Iterable[SegmentRecord],
) -> list[model.OffsetRange]:
    """What Kafka holds before the start offsets and no segment has counted.

    Args:
        known: The current generations in the ledger; others are left out.
        kafka: What Kafka says of their topics.
        segments: The live ones, in order of partition and offset.
    """
    counted: dict[model.TopicPartition, list[model.OffsetRange]] = {}
    for segment in segments:
        if segment.is_current:
            counted.setdefault(segment.range.partition, []).append(segment.range)
    gaps = []
    for name, topic in known.items():
        for number, position in topic.positions.items():
            partition = model.TopicPartition(topic=name, partition=number)
            held = kafka.partition(partition, of=topic)
            if held is None:
                continue
            at, start = held.earliest, position.start_offset
            for first, until in [
                *((r.from_offset, r.until_offset) for r in counted.get(partition, ())),
                (start, start),
            ]:
                if at < (end := min(first, start)):
                    gap = model.OffsetRange(partition=partition, from_offset=at, until_offset=end)
                    gaps.append(gap)
                at = max(at, until)
    return sorted(gaps)


def _text(sums: Sums | None, measures: Sequence[Measure]) -> str:
    lines, *measured = sums or (0,)
    more = zip(measured, measures, strict=False)  # there is but a 0 where there is no row
    return str(lines) + "".join(f" ({value} {measure.name})" for value, measure in more)


def _violation(where: model.OffsetRange, what: str, detail: str, hint: str) -> Violation:
    return Violation(
        check="recount",
        where=f"{where} {what}",
        detail=f"{detail} ({hint})" if hint else detail,
    )
