"""Reading dead letters: records that could not be understood."""

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self

from tally.context import Context, Transaction
from tally.errors import UsageError
from tally.formatting import printable_bytes
from tally.ledger import dead_letters as ledger
from tally.ledger.batches import find_batch
from tally.ledger.dead_letters import ALL, Among
from tally.ledger.positions import is_known_partition
from tally.model import TopicPartition
from tally.views import view_of

_NUMBERS: Final = re.compile(r"[0-9a-fA-F]{8,}|\d+")
SHAPE_CHARS: Final = 80
"""How much of two texts is compared."""

SKIP_MAX: Final = 10_000
"""How many dead letters can be left out at the beginning of a list."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeadLetterView:
    """A record that could not be understood."""

    batch_id: int
    """The batch that read it."""
    partition: TopicPartition
    """The partition."""
    offset: int
    """The record's offset."""
    reason: str
    """What is wrong with it, a :class:`tally.lines.format.MalformedReason`."""
    written_at: datetime | None
    """Its timestamp; null without one, and for one that an older release has kept."""
    log_time: str | None
    """The minute that its line says, else that of its timestamp; null where neither is known."""
    value_bytes: int | None
    """How many bytes it has in Kafka; null for a record without a value."""
    value: str | None
    """Its first bytes as text, with everything unprintable escaped."""
    value_base64: str | None
    """Its first bytes, exactly."""

    @classmethod
    def of(cls, letter: ledger.DeadLetterRecord) -> Self:
        """The view of a dead letter."""
        value = letter.value
        return view_of(
            cls,
            letter,
            value=None if value is None else printable_bytes(value),
            value_base64=None if value is None else base64.b64encode(value).decode(),
        )


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


def _check(tx: Transaction, pipeline: str, among: Among, text: str | None, skip: int) -> None:
    """Refuse what would look through all that ever were.

    And a batch or a partition that was never planned: none of its records was read.

    Raises:
        UnknownBatchError: The ledger has no such batch.
        UsageError: With what to name besides; or the batch is of another pipeline, or the partition
            is not known.
    """
    if text is not None and not among.is_bounded:
        raise UsageError(
            "a text is looked for among the dead letters of a batch, a partition or a span of time",
            next_step="name one of them",
        )
    if among.before is not None and not among.is_bounded:
        raise UsageError(
            "a span of time needs its beginning, too",
            next_step="say since when, or name a batch or a partition",
        )
    if skip > SKIP_MAX:
        raise UsageError(
            f"only the first {SKIP_MAX:,} dead letters can be paged through",
            next_step="name a batch, a partition, a span of time or a reason",
        )
    if among.batch_id is not None:
        of = find_batch(tx, among.batch_id).pipeline
        if of != pipeline:
            raise UsageError(
                f"batch {among.batch_id} is of pipeline {of}, not of {pipeline}",
                next_step=f"tally dead-letters {of} --batch {among.batch_id}",
            )
    if among.partition is not None and not is_known_partition(tx, pipeline, among.partition):
        raise UsageError(
            f"pipeline {pipeline} has never read {among.partition}",
            next_step=f"tally status {pipeline} lists its partitions",
        )


def dead_letters(
    ctx: Context,
    pipeline: str,
    among: Among = ALL,
    *,
    reason: str | None = None,
    text: str | None = None,
    skip: int = 0,
    limit: int = 50,
) -> DeadLettersView:
    """Dead letters of the segments that are in the result.

    Args:
        ctx: What is needed from outside.
        pipeline: The pipeline.
        among: Only those of a batch, a partition or a span of time.
        reason: Only those with this reason.
        text: Only those whose kept bytes hold this text; ``among`` must be bounded then.
        skip: How many are left out at the beginning.
        limit: The largest number of dead letters.

    Raises:
        UnknownBatchError: The ledger has no such batch.
        UsageError: A text is to be found among all of them, too many are left out, or batch or
            partition are not the pipeline's.
        MySQLUnavailableError: The server did not answer.
    """
    with ctx.database.transaction(read_only=True) as tx:
        _check(tx, pipeline, among, text, skip)
        found = ledger.list_dead_letters(
            tx,
            pipeline,
            among=among,
            reason=reason,
            holding=None if text is None else text.encode(),
            skip=skip,
            limit=limit,
        )
    return DeadLettersView(pipeline=pipeline, dead_letters=tuple(map(DeadLetterView.of, found)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Alike:
    """Dead letters with the same reason whose texts differ in numbers alone."""

    reason: str
    """What is wrong with them."""
    number: int
    """How many there are."""
    first_seen: str | None
    """The earliest of their minutes."""
    last_seen: str | None
    """The latest of their minutes."""
    example: DeadLetterView
    """The newest of them."""


def alike(letters: Sequence[DeadLetterView]) -> list[Alike]:
    """Dead letters grouped by reason and likeness, the largest group first.

    Args:
        letters: Some of them, those of the newest segment first.
    """
    groups: dict[tuple[str, str], list[DeadLetterView]] = {}
    for letter in letters:
        shape = _NUMBERS.sub("#", letter.value or "")[:SHAPE_CHARS]
        groups.setdefault((letter.reason, shape), []).append(letter)
    found = []
    for (reason, _), some in groups.items():
        minutes = [one.log_time[:16] for one in some if one.log_time is not None]
        first, last = min(minutes, default=None), max(minutes, default=None)
        found.append(
            Alike(
                reason=reason,
                number=len(some),
                first_seen=first,
                last_seen=last,
                example=some[0],
            )
        )
    return sorted(found, key=lambda one: -one.number)


def reasons(ctx: Context, pipeline: str, among: Among = ALL) -> ReasonsView:
    """How many dead letters there are of each reason.

    Raises:
        MySQLUnavailableError: The server did not answer.
    """
    with ctx.database.transaction(read_only=True) as tx:
        return ReasonsView(
            totals=ledger.totals_by_reason(tx, pipeline, among),
            is_of_latest=among == ALL and ledger.has_older_totals(tx, pipeline),
        )
