"""Erasing the text of lines: what must go, and what has been kept long enough.

Offsets, minutes and counts stay, so that the audit still holds. What Kafka has of it is Kafka's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

from tally.config.pipeline import Pipeline
from tally.context import Context
from tally.deliveries.kept_lines import KeptLines
from tally.deliveries.set_store import SetStore
from tally.groups import in_groups
from tally.ledger import erasures as ledger
from tally.ledger.erasures import ErasureRecord
from tally.ledger.line_sets import check_lines
from tally.ledger.tables import find_tables
from tally.model import OffsetRange

_LETTERS_AT_ONCE: Final = 5_000
_SEGMENTS_AT_ONCE: Final = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class ErasuresView:
    """What was erased of a pipeline by request."""

    pipeline: str
    """The pipeline."""
    erasures: tuple[ErasureRecord, ...]
    """Oldest first; of each generation of a topic one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ErasedView:
    """What was erased; after a dry run, what would be."""

    pipeline: str
    """The pipeline."""
    range: OffsetRange
    """The offsets of which no text may be stored."""
    dead_letters: int
    """Dead letters that had a text."""
    lines: int
    """Kept lines that had one, of sets that are shown or still read."""
    dry_run: bool
    """Whether nothing was changed."""


def erasures(ctx: Context, name: str) -> ErasuresView:
    """What was erased of a pipeline by request."""
    ctx.settings.pipeline(name)
    with ctx.database.transaction(read_only=True) as tx:
        return ErasuresView(pipeline=name, erasures=tuple(ledger.erasures_of(tx, name)))


def erase(
    ctx: Context, name: str, erased: OffsetRange, *, reason: str, dry_run: bool = False
) -> ErasedView:
    """Erase the text of dead letters and kept lines at some offsets, now and whenever it is read.

    It is recorded first, so that what is counted meanwhile, or by a replay, is stored without it;
    after an interruption it can be called again.

    Args:
        ctx: What is needed from outside.
        name: The pipeline.
        erased: The offsets, of every generation of the topic.
        reason: Why; kept in the ledger, so without what must go.
        dry_run: Whether nothing is changed.

    Raises:
        UsageError: The pipeline has never read the topic.
        RetryableError: A server did not answer; call it again.
    """
    pipeline = ctx.settings.pipeline(name)
    store = _store(ctx, pipeline)
    record = partial(
        ledger.record_erasure,
        pipeline=name,
        erased=erased,
        by=ctx.requester.name,
        reason=reason,
    )
    ctx.database.run(record, dry_run=dry_run)
    if not dry_run:
        ctx.database.run(lambda tx: ledger.wait_for_commits(tx, name, erased))
    with ctx.database.transaction(read_only=True) as tx:
        letters = ledger.letters_with_text(tx, name, erased)
    if not dry_run:
        for segment_id, offsets in letters.items():
            for some in _parts(offsets, _LETTERS_AT_ONCE):
                ctx.database.run(partial(ledger.erase_letters, segment_id=segment_id, offsets=some))
    return ErasedView(
        pipeline=name,
        range=erased,
        dead_letters=sum(map(len, letters.values())),
        lines=store.erase_range(erased, dry_run=dry_run) if store else 0,
        dry_run=dry_run,
    )


def erase_old(ctx: Context, name: str, age: timedelta) -> int:
    """Erase the text of dead letters and kept lines that were committed so long ago.

    It can be ended at any time and called again.

    Args:
        ctx: What is needed from outside.
        name: The pipeline.
        age: Whole days.

    Returns:
        How many dead letters had one.

    Raises:
        TallyError: A set of lines could not be erased; all others are.
    """
    store = _store(ctx, ctx.settings.pipeline(name))
    with ctx.database.transaction(read_only=True) as tx:
        until, segments = ledger.old_segments(tx, name, tx.now() - age)
    letters = sum(
        ctx.database.run(partial(ledger.erase_letters_of_segments, segment_ids=some))
        for some in _parts(segments, _SEGMENTS_AT_ONCE)
    )
    if until is not None:
        ctx.database.run(lambda tx: ledger.mark_erased_until(tx, name, until))
    if store:
        store.erase_old(age.days)
    return letters


def _parts(items: Sequence[int], most: int) -> Iterator[Sequence[int]]:
    return in_groups(items, lambda _: 1, most)


def _store(ctx: Context, pipeline: Pipeline) -> SetStore | None:
    """The sets of a pipeline's kept lines; None when it keeps none.

    Raises:
        ConfigError: It keeps them elsewhere than it has so far, or no longer.
    """
    with ctx.database.transaction(read_only=True) as tx:
        tables = find_tables(tx, pipeline.name)
        if tables is not None:
            check_lines(tx, tables, pipeline)
    if pipeline.rows_view is None:
        return None
    store = KeptLines(ctx, pipeline).store
    store.check()
    return store
