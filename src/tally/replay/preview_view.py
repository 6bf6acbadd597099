"""The preview of a replay: what it would read and replace."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tally.context import Context
from tally.errors import ReplayRefusedError
from tally.formatting import plural, time_span
from tally.model import OffsetRange, TopicPartition
from tally.planning.replay import Piece, overlap
from tally.planning.replay_request import Request
from tally.replay.preview import Preview, check_possible, preview_replay
from tally.views import ErrorView

PACE: Final = "at the pace of earlier batches"


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldView:
    """What Kafka holds of a partition."""

    topic: str
    """The topic."""
    partition: int
    """The partition's number, from 0."""
    earliest: int
    """The first offset that Kafka holds."""
    end: int
    """The first offset that cannot be read yet."""

    @property
    def span(self) -> str:
        """``[100, 900)``."""
        return f"[{self.earliest}, {self.end})"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadView:
    """A range that is read."""

    range: OffsetRange
    """The range."""
    asked: tuple[OffsetRange, ...]
    """The requested ranges in it."""
    segments_replaced: int
    """Live segments that it replaces."""
    never_counted: int
    """Offsets that no live segment holds."""
    kafka_holds: HeldView | None
    """What Kafka holds of the partition; null when that is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusalView:
    """A range that cannot be reprocessed."""

    range: OffsetRange
    """The range."""
    cause: str
    """Why it cannot be reprocessed."""
    kafka_holds: HeldView | None
    """What Kafka holds of the partition; null when that is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PreviewView:
    """What a replay would do; nothing is read and nothing replaced while ranges are refused."""

    pipeline: str
    """The pipeline."""
    request: str
    """The request as text."""
    digest: str
    """A digest of the request."""
    plan: str
    """A digest of what would be read and replaced, and of the rules."""
    asked: tuple[OffsetRange, ...]
    """The requested ranges, overlapping ones joined."""
    refusals: tuple[RefusalView, ...]
    """Ranges that cannot be reprocessed."""
    possible: tuple[OffsetRange, ...]
    """What of the request could be reprocessed, when some is refused."""
    error: ErrorView | None
    """Why the replay cannot be done; null when it can."""
    read: tuple[ReadView, ...]
    """The ranges to read, adjacent ones joined."""
    batches: tuple[tuple[Piece, ...], ...]
    """What each batch reads."""
    offsets: int
    """Offsets to read."""
    never_counted: int
    """Offsets that no live segment holds."""
    segments_replaced: int
    """Live segments that are replaced."""
    is_wider: bool
    """Whether more is read than was requested."""
    rules: str
    """The rules that lines are counted by now, as text."""
    minutes: int
    """Minutes that the replaced segments have counted lines for."""
    first_minute: str | None
    """The first of them, ``YYYY-MM-DD HH:MM``."""
    last_minute: str | None
    """The last of them."""
    kafka_holds: tuple[HeldView, ...]
    """What Kafka holds of the requested partitions."""
    seconds: float | None
    """Estimated duration, from the pace of earlier batches; null before the first one."""
    notes: tuple[str, ...]
    """Further notes for the operator."""

    def check_possible(self) -> None:
        """Raise unless every requested range can be reprocessed.

        Raises:
            ReplayRefusedError: Names every range that cannot be reprocessed, and why.
        """
        if self.error is not None:
            raise ReplayRefusedError(self.error.what, next_step=self.error.next_step or "")

    @property
    def facts(self) -> list[tuple[str, str]]:
        """The totals, as pairs of a name and a text; empty when nothing would be read."""
        return list(_facts(self)) if self.batches else []


def preview(
    ctx: Context, name: str, asked: Request, ranges: Sequence[OffsetRange] = ()
) -> PreviewView:
    """What a replay would do, and whether it can be done; nothing is written.

    The arguments are those of :func:`tally.replay.preview.preview_replay`.

    Raises:
        UnknownPipelineError: No such pipeline is configured.
        ReplayRefusedError: The request names nothing that the ledger knows.
        RetryableError: Kafka or MySQL did not answer.
    """
    return preview_view(preview_replay(ctx, name, asked, ranges))


def preview_view(found: Preview) -> PreviewView:
    """The view of a preview."""
    plan = found.plan
    return PreviewView(
        pipeline=found.pipeline,
        request=found.request,
        digest=found.digest,
        plan=plan_digest(found),
        asked=plan.asked,
        refusals=tuple(
            RefusalView(
                range=refusal.range,
                cause=refusal.cause,
                kafka_holds=_held(found, refusal.range.partition),
            )
            for refusal in plan.refusals
        ),
        possible=plan.possible,
        error=_error(found),
        read=tuple(_read(found, r) for r in plan.widened),
        batches=plan.batches,
        offsets=found.offsets,
        never_counted=found.never_counted,
        segments_replaced=len(plan.replaces),
        is_wider=plan.is_wider,
        rules=found.rules,
        minutes=found.minutes,
        first_minute=found.first_minute,
        last_minute=found.last_minute,
        kafka_holds=tuple(h for p in sorted(found.held) if (h := _held(found, p)) is not None),
        seconds=None if found.seconds is None else round(found.seconds, 1),
        notes=found.notes,
    )


def plan_digest(found: Preview) -> str:
    """A digest of a plan: equal for the same request, ranges, replaced segments and rules.

    Returns:
        A SHA-256 in hexadecimal.
    """
    batches = found.plan.batches
    read = [[[str(piece.range), *piece.replaces] for piece in batch] for batch in batches]
    asked = [found.digest, *map(str, found.plan.asked)]
    return hashlib.sha256(json.dumps([asked, found.fingerprint, read]).encode()).hexdigest()


def duration(seconds: float | None) -> str:
    """``about 12 s``, ``about 3 min``, ``about 2 h 5 min``, with the pace that it is based on."""
    if seconds is None:
        return "not known: no batch is committed yet"
    if seconds < 100:
        return f"about {max(1, round(seconds))} s, {PACE}"
    minutes = round(seconds / 60)
    hours = f"{minutes // 60:,} h " if minutes >= 60 else ""
    return f"about {hours}{minutes % 60} min, {PACE}"


def _facts(of: PreviewView) -> Iterator[tuple[str, str]]:
    replaced = of.segments_replaced
    never = f", {of.never_counted:,} of them never counted" if of.never_counted else ""
    yield "to be read", f"{plural(of.offsets, 'offset')}{never}"
    if of.is_wider and replaced:
        yield "", "a segment is replaced whole, so more is read than was asked for"
    yield "to be replaced", plural(replaced, "segment") if replaced else "nothing"
    if replaced:
        yield "minutes", _minutes(of)
    yield "counted by", f"the current rules: {of.rules}"
    steps = len(of.batches)
    yield "in", plural(steps, "batch") + (", committed one by one" if steps > 1 else "")
    yield "takes", duration(of.seconds)


def _minutes(of: PreviewView) -> str:
    """Which minutes have lines of the replaced segments."""
    if not of.minutes:
        return "no minute has lines of these segments"
    return (
        f"{plural(of.minutes, 'minute')} of the result, "
        f"{time_span(of.first_minute, of.last_minute)}; others may gain lines"
    )


def _error(found: Preview) -> ErrorView | None:
    try:
        check_possible(found)
    except ReplayRefusedError as error:
        return ErrorView.of(error)
    return None


def _read(found: Preview, wide: OffsetRange) -> ReadView:
    def within(r: OffsetRange) -> bool:
        return r.partition == wide.partition and overlap(r, wide)

    pieces = [piece for piece in found.plan.pieces if within(piece.range)]
    return ReadView(
        range=wide,
        asked=tuple(r for r in found.plan.asked if within(r)),
        segments_replaced=sum(len(piece.replaces) for piece in pieces),
        never_counted=sum(piece.never_counted for piece in pieces),
        kafka_holds=_held(found, wide.partition),
    )


def _held(found: Preview, where: TopicPartition) -> HeldView | None:
    held = found.held.get(where)
    if held is None:
        return None
    return HeldView(topic=where.topic, partition=where.partition, earliest=held[0], end=held[1])
