"""Reading dead letters: records that could not be understood."""

import base64
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self

from tally.context import Context
from tally.errors import UsageError
from tally.formatting import printable_bytes
from tally.ledger.batches import find_batch
from tally.ledger.dead_letters import (
    ALL,
    Among,
    DeadLetterRecord,
    has_older_totals,
    list_dead_letters,
    totals_by_reason,
)
from tally.ledger.positions import is_known_partition
from tally.model import TopicPartition
from tally.mysql.transactions import Transaction

SKIP_MAX: Final = 10_000
"""How many dead letters can be left out at the beginning of a list."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLettersRequest:
    """Which dead letters to list."""

    pipeline: str
    """The pipeline."""
    batch_id: int | None = None
    """Only of this batch."""
    partition: TopicPartition | None = None
    """Only of this partition."""
    since: datetime | None = None
    """Only of batches that were committed at or after this time."""
    before: datetime | None = None
    """Only of batches that were committed before this time."""
    reason: str | None = None
    """Only with this reason."""
    text: str | None = None
    """Only those whose kept bytes hold this text; needs a batch, a partition or a time."""
    skip: int = 0
    """How many are left out at the beginning."""
    limit: int = 50
    """The largest number of dead letters."""

    @property
    def among(self) -> Among:
        """Which dead letters are meant, whatever their reason and text."""
        return Among(
            batch_id=self.batch_id,
            partition=self.partition,
            since=self.since,
            before=self.before,
        )


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
    """Newest segment first, then by offset."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReasonsView:
    """How many dead letters there are of each reason."""

    totals: dict[str, int]
    """By reason, most first."""
    is_of_latest: bool
    """Whether older ones are left out: of each topic only the latest totals are added up where
    neither a batch, nor a partition, nor a span of time is asked for."""


def read_partition(text: str, option: str) -> TopicPartition:
    """The partition that ``alog/0`` means.

    Args:
        text: What was given.
        option: Where it was given, for the error.

    Raises:
        UsageError: It is another text.
    """
    topic, slash, number = text.strip().rpartition("/")
    if not (slash and topic and text.isascii() and number.isdigit() and len(number) < 10):
        raise UsageError(f"{option} = {text!r} is no partition", next_step="such as alog/0")
    return TopicPartition(topic=topic, partition=int(number))


def _check(request: DeadLettersRequest) -> None:
    """Refuse what would look through all that ever were.

    Raises:
        UsageError: With what to name besides.
    """
    if request.text is not None and not request.among.is_bounded:
        raise UsageError(
            "a text is looked for among the dead letters of a batch, a partition or a span of time",
            next_step="name one of them",
        )
    if request.before is not None and not request.among.is_bounded:
        raise UsageError(
            "a span of time needs its beginning, too",
            next_step="say since when, or name a batch or a partition",
        )
    if request.skip > SKIP_MAX:
        raise UsageError(
            f"only the first {SKIP_MAX:,} dead letters can be paged through",
            next_step="name a batch, a partition, a span of time or a reason",
        )


def _check_known(tx: Transaction, request: DeadLettersRequest) -> None:
    """Refuse a batch or a partition that was never planned: none of its records was read.

    Raises:
        UnknownBatchError: The ledger has no such batch.
        UsageError: The batch is of another pipeline, or the partition is not known.
    """
    if request.batch_id is not None:
        of = find_batch(tx, request.batch_id).pipeline
        if of != request.pipeline:
            raise UsageError(
                f"batch {request.batch_id} is of pipeline {of}, not of {request.pipeline}",
                next_step=f"tally dead-letters {of} --batch {request.batch_id}",
            )
    asked = request.partition
    if asked is not None and not is_known_partition(tx, request.pipeline, asked):
        raise UsageError(
            f"pipeline {request.pipeline} has never read {asked}",
            next_step=f"tally status {request.pipeline} lists its partitions",
        )


def dead_letters(ctx: Context, request: DeadLettersRequest) -> DeadLettersView:
    """Dead letters of the segments that are in the result.

    Raises:
        UnknownBatchError: The ledger has no such batch.
        UsageError: A text is to be found among all of them, too many are left out, or batch or
            partition are not the pipeline's.
        MySQLUnavailableError: The server did not answer.
    """
    _check(request)
    with ctx.database.transaction(read_only=True) as tx:
        _check_known(tx, request)
        found = list_dead_letters(
            tx,
            request.pipeline,
            among=request.among,
            reason=request.reason,
            holding=None if request.text is None else request.text.encode(),
            skip=request.skip,
            limit=request.limit,
        )
    return DeadLettersView(
        pipeline=request.pipeline, dead_letters=tuple(map(DeadLetterView.of, found))
    )


def reasons(ctx: Context, request: DeadLettersRequest) -> ReasonsView:
    """How many dead letters there are of each reason, whatever reason is asked for.

    Raises:
        MySQLUnavailableError: The server did not answer.
    """
    with ctx.database.transaction(read_only=True) as tx:
        return ReasonsView(
            totals=totals_by_reason(tx, request.pipeline, request.among),
            is_of_latest=request.among == ALL and has_older_totals(tx, request.pipeline),
        )
