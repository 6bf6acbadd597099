"""Whose place a batch's segments take, and what has taken theirs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tally.cli.shapes import Shape
from tally.formatting import plural
from tally.ledger.replacements import Replaced
from tally.model import BatchState

REPLACES: Final[Mapping[BatchState, str]] = {
    BatchState.PLANNED: "is to replace",
    BatchState.COMMITTED: "has replaced",
    BatchState.ABANDONED: "was to replace",
}

BATCHES_NAMED: Final = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """Of one batch."""

    replaced: Mapping[int, Sequence[Replaced]]
    """What was planned to be replaced, by the segment that takes the place."""
    successors: Mapping[int, int]
    """The batch that superseded a segment, by segment."""

    def of(self, segment_id: int) -> Sequence[Replaced]:
        """What one segment replaces."""
        return self.replaced.get(segment_id, ())

    @property
    def in_words(self) -> str:
        """``3 segments of batches 5, 6``, or of the first to the last when they are many."""
        replaced = [one for of_segment in self.replaced.values() for one in of_segment]
        batches = sorted({one.replaced_batch_id for one in replaced})
        named = ", ".join(map(str, batches))
        if len(batches) > BATCHES_NAMED:
            named = f"{batches[0]} to {batches[-1]}"
        word = "batch" if len(batches) == 1 else "batches"
        return f"{plural(len(replaced), 'segment')} of {word} {named}"

    def shape(self, segment_id: int) -> Shape:
        """What ``--json`` carries of one segment."""
        return {
            "superseded_by_batch": self.successors.get(segment_id),
            "replaces": [
                {"segment_id": one.replaced_id, "batch_id": one.replaced_batch_id}
                for one in self.of(segment_id)
            ],
        }
