"""Today's rules on a sample of what a replay would read, beside what is counted of it now."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from tally.aggregates.aggregate import fingerprint
from tally.aggregates.judgement import judge
from tally.context import Context
from tally.errors import TallyError
from tally.ledger.results import counted_in
from tally.ledger.rules import are_of_rule
from tally.lines.reading import Record
from tally.model import TopicPartition
from tally.replay.preview import Preview, Read

SAMPLE: Final = 2_000
"""Records that are looked at, about."""
_PLACES: Final = 3
"""Places of each partition that are looked at."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """What today's rules count of a sample, and what is counted of all of it."""

    sampled: int
    """Records of the sample."""
    records: int
    """Records that the replaced segments have read, or the offsets of ranges that were never
    counted."""
    counted: int
    """Lines that these segments have counted."""
    share: float
    """The share of all records that today's rules count, as the sample of each range says it."""

    @property
    def expected(self) -> int:
        """Lines that the replay is expected to count."""
        return round(self.records * self.share)

    def __str__(self) -> str:
        """The counts before and after."""
        return (
            f"{self.counted:,} lines now, about {self.expected:,} after: today's rules count "
            f"{self.share:.1%}, by a sample of {self.sampled:,} records"
        )

    @classmethod
    def of(cls, ctx: Context, preview: Preview) -> Self | None:
        """Try today's rules.

        None where nothing would be read, or Kafka gave no record in time; and where all was counted
        by the same rules: a sample knows less of it than the counts.
        """
        pipeline = ctx.settings.pipeline(preview.pipeline)
        replaced = [n for batch in preview.batches for piece in batch for n in piece.replaces]
        with ctx.database.transaction(read_only=True) as tx:
            is_same = bool(replaced) and are_of_rule(tx, replaced, fingerprint(pipeline))
        if is_same and not preview.never_counted:
            return None
        records = _sample(ctx, preview.read, read_committed=pipeline.reads_committed)
        if not records:
            return None
        with ctx.database.transaction(read_only=True) as tx:
            read, counted = counted_in(tx, replaced) if replaced else (0, 0)
        sampled = Counter(where for where, _ in records)
        found = Counter(w for w, record in records if judge(pipeline, w, record).is_counted)
        # Each range has a sample of the same size, and speaks for as many records as it has.
        offsets = {one.range.partition: one.range.offsets for one in preview.read}
        weight = sum(offsets[where] for where in sampled)
        return cls(
            sampled=len(records),
            records=read + preview.never_counted,
            counted=counted,
            share=sum(offsets[w] * found[w] / n for w, n in sampled.items()) / weight,
        )


def _sample(
    ctx: Context, read: Sequence[Read], *, read_committed: bool
) -> list[tuple[TopicPartition, Record]]:
    """Records at some places of each partition, as far as Kafka gives them in time."""
    each = max(1, SAMPLE // (_PLACES * max(1, len(read))))
    found: dict[tuple[TopicPartition, int], Record] = {}
    spans = {one.range.partition: one.range for one in read[: SAMPLE // _PLACES]}
    for place in range(_PLACES):
        starts = {
            where: max(r.from_offset, r.from_offset + r.offsets * (2 * place + 1) // 6 - each // 2)
            for where, r in spans.items()
        }
        try:
            records = ctx.kafka.records_at(starts, records_max=each, read_committed=read_committed)
        except TallyError:  # the preview itself says what Kafka does not answer
            return []
        for where, some in records.items():
            within = (one for one in some if one.offset < spans[where].until_offset)
            found |= {(where, one.offset): one for one in within}
    return [(where, record) for (where, _), record in found.items()]
