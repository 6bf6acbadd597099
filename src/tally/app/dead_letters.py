"""Reading dead letters: records that could not be understood."""

import base64
from dataclasses import dataclass
from typing import Self

from tally.formatting import printable_bytes
from tally.ledger.dead_letters import DeadLetterRecord, list_dead_letters
from tally.pipeline.context import Context


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLettersRequest:
    """Which dead letters to list."""

    pipeline: str
    """The pipeline."""
    batch_id: int | None = None
    """Only of this batch."""
    reason: str | None = None
    """Only with this reason."""
    limit: int = 50
    """The largest number of dead letters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetterView:
    """A record that could not be understood."""

    batch_id: int
    """The batch that read it."""
    topic: str
    """The topic."""
    partition: int
    """The partition's number."""
    offset: int
    """The record's offset."""
    reason: str
    """What is wrong with it, a :class:`tally.lines.format.MalformedReason`."""
    value_bytes: int | None
    """How many bytes it has in Kafka; null for a record without a value."""
    value: str | None
    """Its first bytes as text, with everything unprintable escaped."""
    value_base64: str | None
    """Its first bytes, exactly."""

    @classmethod
    def of(cls, letter: DeadLetterRecord) -> Self:
        """The view of a dead letter."""
        value = letter.value
        return cls(
            batch_id=letter.batch_id,
            topic=letter.partition.topic,
            partition=letter.partition.partition,
            offset=letter.offset,
            reason=letter.reason,
            value_bytes=letter.value_bytes,
            value=None if value is None else printable_bytes(value),
            value_base64=None if value is None else base64.b64encode(value).decode(),
        )

    @property
    def place(self) -> str:
        """``alog/0``."""
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLettersView:
    """Dead letters of a pipeline."""

    pipeline: str
    """The pipeline."""
    dead_letters: tuple[DeadLetterView, ...]
    """Newest batch first, then by topic, partition and offset."""


def dead_letters(ctx: Context, request: DeadLettersRequest) -> DeadLettersView:
    """Dead letters of the segments that are in the result.

    Raises:
        MySQLUnavailableError: The server did not answer.
    """
    with ctx.database.transaction(read_only=True) as tx:
        found = list_dead_letters(
            tx,
            request.pipeline,
            batch_id=request.batch_id,
            reason=request.reason,
            limit=request.limit,
        )
    return DeadLettersView(
        pipeline=request.pipeline, dead_letters=tuple(map(DeadLetterView.of, found))
    )
