"""What a replay would do: its plan against the ledger and Kafka, shown before it is recorded."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tally.aggregates.aggregate import fingerprint
from tally.config.pipeline import Pipeline
from tally.context import Context
from tally.counting.replan import plan_against, snapshot_of
from tally.errors import ReplayRefusedError
from tally.formatting import plural, time_span
from tally.ledger import positions, replays, results
from tally.ledger.results import Minutes
from tally.model import KafkaSnapshot, OffsetRange
from tally.planning.replay import Held, Piece, Refusal, ReplayPlan, join_ranges, overlap
from tally.planning.replay_request import RangesAsked, Request, format_range, request_digest
from tally.replay.ranges import Facts, resolve
from tally.views import ErrorView, view_of

PACE: Final = "at the pace of earlier batches"

_RANGES_NAMED: Final = 100
"""As many as a command line that is copied; a topic rarely has more partitions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    """A range that is read."""

    range: OffsetRange
    """The range."""
    asked: tuple[OffsetRange, ...]
    """The requested ranges in it."""
    segments_replaced: int
    """Live segments that it replaces."""
    never_counted: int
    """Offsets that no live segment holds."""
    kafka_holds: Held | None
    """What Kafka holds of the partition; null when that is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
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
    refusals: tuple[Refusal, ...]
    """Ranges that cannot be reprocessed."""
    possible: tuple[OffsetRange, ...]
    """What of the request could be reprocessed, when some is refused."""
    error: ErrorView | None
    """Why the replay cannot be done; null when it can."""
    read: tuple[Read, ...]
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
    kafka_holds: tuple[Held, ...]
    """What Kafka holds of the requested partitions."""
    seconds: float | None
    """Estimated duration, from the pace of earlier batches; null before the first one."""
    notes: tuple[str, ...]
    """Further notes for the operator."""

    def check_possible(self) -> None:
        """Raise unless all that was asked for can be reprocessed.

        Raises:
            ReplayRefusedError: With every range that cannot, and why; or there is no range at all.
        """
        if self.error is not None:
            raise ReplayRefusedError(self.error.what, next_step=self.error.next_step or "")

    @property
    def facts(self) -> Iterator[tuple[str, str]]:
        """The totals, as pairs of a name and a text; none when nothing would be read."""
        if not self.batches:
            return
        replaced, steps = self.segments_replaced, len(self.batches)
        never = f", {self.never_counted:,} of them never counted" if self.never_counted else ""
        yield "to be read", f"{plural(self.offsets, 'offset')}{never}"
        if self.is_wider and replaced:
            yield "", "a segment is replaced whole, so more is read than was asked for"
        yield "to be replaced", plural(replaced, "segment") if replaced else "nothing"
        if replaced:
            yield "minutes", _minutes(self)
        yield "counted by", f"the current rules: {self.rules}"
        yield "in", plural(steps, "batch") + (", committed one by one" if steps > 1 else "")
        yield "takes", duration(self.seconds)


def preview(
    ctx: Context, name: str, request: Request, ranges: Sequence[OffsetRange] = ()
) -> Preview:
    """What a replay would do, and whether it can be done; nothing is written.

    Args:
        ctx: What is needed from outside.
        name: The pipeline.
        request: What is asked for.
        ranges: What an earlier preview of the request has shown; resolved now when empty.

    Raises:
        UnknownPipelineError: No such pipeline is configured.
        ReplayRefusedError: The request names nothing that the ledger knows.
        RetryableError: Kafka or MySQL did not answer.
    """
    pipeline = ctx.settings.pipeline(name)
    with ctx.database.transaction(isolation="repeatable read", read_only=True) as tx:
        known = positions.known_topics(tx, name)
        kafka = snapshot_of(ctx.kafka, pipeline, known)
        meant = RangesAsked(ranges=tuple(ranges)) if ranges else request
        asked, notes = resolve(tx, ctx.kafka, Facts(pipeline, known, kafka), meant)
        plan = plan_against(tx, pipeline, known, kafka, asked)
        minutes = results.minutes_of(tx, name, plan.replaces)
        offsets = sum(r.offsets for r in plan.widened)
        seconds = replays.seconds_for(tx, name, plan.rounds, offsets)
        if pipeline.labels:
            notes += _about_folded(results.folded_minutes_of(tx, name))
    return preview_of(pipeline, request, plan, kafka, minutes, seconds, notes)


def preview_of(
    pipeline: Pipeline,
    request: Request,
    plan: ReplayPlan,
    kafka: KafkaSnapshot,
    minutes: Minutes,
    seconds: float | None,
    notes: Sequence[str] = (),
) -> Preview:
    """The preview of a plan.

    Args:
        pipeline: The pipeline.
        request: What was asked for.
        plan: What the replay would do.
        kafka: What Kafka says of the topics.
        minutes: Of the replaced segments.
        seconds: Estimated duration, from earlier batches; None before the first one.
        notes: Further remarks for the operator.
    """
    digest = request_digest(request)
    held = [Held.of(kafka, p) for p in sorted({r.partition for r in plan.asked})]
    error = why_not(pipeline.name, str(request), plan, notes)
    count, first, last = minutes
    return view_of(
        Preview,
        plan,
        pipeline=pipeline.name,
        request=str(request),
        digest=digest,
        plan=plan_digest(digest, plan, fingerprint(pipeline)),
        error=None if error is None else ErrorView.of(error),
        read=tuple(_read(plan, kafka, r) for r in plan.widened),
        offsets=sum(r.offsets for r in plan.widened),
        never_counted=sum(piece.never_counted for piece in plan.pieces),
        segments_replaced=len(plan.replaces),
        rules=pipeline.rules,
        minutes=count,
        first_minute=first,
        last_minute=last,
        kafka_holds=tuple(one for one in held if one is not None),
        seconds=None if seconds is None else round(seconds, 1),
        notes=tuple(notes),
    )


def _read(plan: ReplayPlan, kafka: KafkaSnapshot, wide: OffsetRange) -> Read:
    def within(r: OffsetRange) -> bool:
        return r.partition == wide.partition and overlap(r, wide)

    pieces = [piece for piece in plan.pieces if within(piece.range)]
    return Read(
        range=wide,
        asked=tuple(r for r in plan.asked if within(r)),
        segments_replaced=sum(len(piece.replaces) for piece in pieces),
        never_counted=sum(piece.never_counted for piece in pieces),
        kafka_holds=Held.of(kafka, wide.partition),
    )


def plan_digest(request: str, plan: ReplayPlan, rules: str) -> str:
    """A digest of a plan: equal for the same request, records, replaced segments and rules.

    Args:
        request: The digest of the request.
        plan: The plan.
        rules: The fingerprint of the rules.

    Returns:
        A SHA-256 in hexadecimal.
    """
    read = [[[str(piece.range), *piece.replaces] for piece in batch] for batch in plan.batches]
    asked = [request, *map(str, plan.asked), *plan.generations]
    return hashlib.sha256(json.dumps([asked, rules, read]).encode()).hexdigest()


def _about_folded(minutes: Minutes) -> Iterator[str]:
    """What a replay does not change of a result with labels."""
    count, first, last = minutes
    if count:
        yield (
            f"{plural(count, 'minute')}, {time_span(first, last)}, have lines of pruned segments: "
            "those stay, with '' for each label that was added after they were counted"
        )


def why_not(
    pipeline: str, request: str, plan: ReplayPlan, notes: Sequence[str] = ()
) -> ReplayRefusedError | None:
    """The error with every range that cannot be reprocessed, and why; None if all of them can."""
    if plan.refusals:
        return ReplayRefusedError(
            f"pipeline {pipeline}: cannot be reprocessed: "
            + "; ".join(str(refusal) for refusal in plan.refusals),
            next_step=_what_is_possible(pipeline, plan),
        )
    if not plan.batches:
        return ReplayRefusedError(
            f"pipeline {pipeline}: {request}: there is nothing to reprocess"
            + "".join(f"; {note}" for note in notes),
            next_step="ask for what was counted of the current topics: "
            f"tally status {pipeline} has the offsets, tally counts {pipeline} the minutes",
        )
    return None


def _what_is_possible(pipeline: str, plan: ReplayPlan) -> str:
    """The command that asks for the rest of what was asked for."""
    possible = join_ranges(plan.possible, touching=True)
    if not possible:
        return "ask for other offsets; none of these can be reprocessed"
    if len(possible) > _RANGES_NAMED:
        return "ask for less; without a from and an until, everything possible is taken"
    ranges = " ".join(f"--range {format_range(r)}" for r in possible)
    return f"what can be reprocessed of it: tally replay {pipeline} {ranges} --reason '…'"


def duration(seconds: float | None) -> str:
    """``about 12 s``, ``about 3 min``, ``about 2 h 5 min``, with the pace that it is based on."""
    if seconds is None:
        return "not known: no batch is committed yet"
    if seconds < 100:
        return f"about {max(1, round(seconds))} s, {PACE}"
    minutes = round(seconds / 60)
    hours = f"{minutes // 60:,} h " if minutes >= 60 else ""
    return f"about {hours}{minutes % 60} min, {PACE}"


def _minutes(of: Preview) -> str:
    """Which minutes have lines of the replaced segments."""
    if not of.minutes:
        return "no minute has lines of these segments"
    return (
        f"{plural(of.minutes, 'minute')} of the result, "
        f"{time_span(of.first_minute, of.last_minute)}; others may gain lines"
    )
