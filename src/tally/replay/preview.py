"""What a replay would do: its plan against the ledger and Kafka, and the preview of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tally.aggregates.aggregate import fingerprint
from tally.config.pipeline import Pipeline
from tally.context import Context
from tally.errors import ReplayRefusedError
from tally.formatting import plural, time_span
from tally.kafka.client import Kafka
from tally.ledger import positions, replacements, replays
from tally.model import Batch, KafkaSnapshot, KnownTopic, OffsetRange, TopicPartition
from tally.mysql.transactions import Transaction
from tally.planning.replay import ReplayPlan, Tile, join_ranges, plan_replay
from tally.planning.replay_request import RangesAsked, Request, format_range, request_digest
from tally.planning.serving import is_of_generation
from tally.replay.ranges import Facts, resolve

_RANGES_NAMED: Final = 100
"""As many as a command line that is copied; a topic rarely has more partitions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """What a replay would do, for an operator to confirm."""

    pipeline: str
    """The pipeline."""
    request: str
    """What was asked for, as text."""
    digest: str
    """Identifies the request (:func:`tally.planning.replay_request.request_digest`)."""
    plan: ReplayPlan
    """Requested and widened ranges, batches, replaced segments, refusals."""
    rules: str
    """The current rules by which lines are counted, as text: levels and line format."""
    fingerprint: str
    """The same rules, as batches record them (:func:`tally.aggregates.aggregate.fingerprint`)."""
    minutes: int
    """How many minutes the replaced segments have counted lines for."""
    first_minute: str | None
    """The first of them, ``YYYY-MM-DD HH:MM``."""
    last_minute: str | None
    """The last of them."""
    held: Mapping[TopicPartition, tuple[int, int]]
    """First and end offset in Kafka of each requested partition."""
    seconds: float | None
    """Estimated duration, from earlier batches; None before the first one."""
    notes: tuple[str, ...]
    """Further remarks for the operator."""

    @property
    def offsets(self) -> int:
        """Offsets to read."""
        return sum(r.offsets for r in self.plan.widened)

    @property
    def never_counted(self) -> int:
        """Those of them that were never counted."""
        return sum(piece.never_counted for piece in self.plan.pieces)


def preview_replay(
    ctx: Context, name: str, request: Request, ranges: Sequence[OffsetRange] = ()
) -> Preview:
    """What a replay would do; nothing is written.

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
        snapshot = snapshot_of(ctx.kafka, pipeline, known)
        meant = RangesAsked(ranges=tuple(ranges)) if ranges else request
        asked, notes = resolve(tx, ctx.kafka, Facts(pipeline, known, snapshot), meant)
        plan = plan_against(tx, pipeline, known, snapshot, asked)
        minutes, first, last = replacements.minutes_of(tx, name, plan.replaces)
        offsets = sum(r.offsets for r in plan.widened)
        seconds = replays.seconds_for(tx, name, plan.rounds, offsets)
        folded = replacements.folded_minutes_of(tx, name) if pipeline.labels else None
    partitions = sorted({r.partition for r in asked})
    return Preview(
        pipeline=name,
        request=str(request),
        digest=request_digest(request),
        plan=plan,
        rules=pipeline.rules,
        fingerprint=fingerprint(pipeline),
        minutes=minutes,
        first_minute=first,
        last_minute=last,
        held={
            p: (held.earliest, held.end)
            for p in partitions
            if (held := snapshot.partition(p)) is not None
        },
        seconds=seconds,
        notes=(*notes, *_about_folded(folded)),
    )


def _about_folded(minutes: tuple[int, str | None, str | None] | None) -> Iterator[str]:
    """What a replay does not change of a result with labels."""
    if minutes is not None and minutes[0]:
        count, first, last = minutes
        yield (
            f"{plural(count, 'minute')}, {time_span(first, last)}, have lines of pruned segments: "
            "those stay, with '' for each label that was added after they were counted"
        )


def check_possible(preview: Preview) -> None:
    """Raise unless all that was asked for can be reprocessed.

    Raises:
        ReplayRefusedError: With every range that cannot, and why; or there is no range at all.
    """
    if preview.plan.refusals:
        raise ReplayRefusedError(
            f"pipeline {preview.pipeline}: cannot be reprocessed: "
            + "; ".join(str(refusal) for refusal in preview.plan.refusals),
            next_step=_what_is_possible(preview),
        )
    if not preview.plan.batches:
        raise ReplayRefusedError(
            f"pipeline {preview.pipeline}: {preview.request}: there is nothing to reprocess"
            + "".join(f"; {note}" for note in preview.notes),
            next_step="ask for what was counted of the current topics: "
            f"tally status {preview.pipeline} has the offsets, "
            f"tally counts {preview.pipeline} the minutes",
        )


def _what_is_possible(preview: Preview) -> str:
    """The command that asks for the rest of what was asked for."""
    possible = join_ranges(preview.plan.possible, touching=True)
    if not possible:
        return "ask for other offsets; none of these can be reprocessed"
    if len(possible) > _RANGES_NAMED:
        return "ask for less; without a from and an until, everything possible is taken"
    ranges = " ".join(f"--range {format_range(r)}" for r in possible)
    return f"what can be reprocessed of it: tally replay {preview.pipeline} {ranges} --reason '…'"


def plan_against(
    tx: Transaction,
    pipeline: Pipeline,
    known: Mapping[str, KnownTopic],
    snapshot: KafkaSnapshot,
    asked: Sequence[OffsetRange],
) -> ReplayPlan:
    """The plan of a replay against what the ledger says now.

    Args:
        tx: An open transaction; to record the plan it must hold the pipeline's lock.
        pipeline: Its settings.
        known: The ledger's current topics.
        snapshot: What Kafka says of them.
        asked: The requested ranges.
    """
    known_tiles: dict[TopicPartition, dict[Tile, None]] = {}  # each once, however many ranges ask
    for r in asked:
        if r.partition.topic in known:
            of_partition = known_tiles.setdefault(r.partition, {})
            found = replacements.tiles_of(
                tx,
                known[r.partition.topic].generation_id,
                r.partition,
                r.from_offset,
                r.until_offset,
            )
            of_partition.update(dict.fromkeys(found))
    return plan_replay(
        asked,
        known=known,
        tiles={p: sorted(of, key=lambda tile: tile.range) for p, of in known_tiles.items()},
        kafka=snapshot,
        offsets_per_range=pipeline.max_records_per_partition,
        sparse=pipeline.is_sparse,
        by_partition=pipeline.commits_by_partition,
    )


def snapshot_of(kafka: Kafka, pipeline: Pipeline, known: Mapping[str, KnownTopic]) -> KafkaSnapshot:
    """Kafka's answer for the pipeline's topics and those that it has read before."""
    return kafka.snapshot(
        sorted({*pipeline.topics, *known}),
        read_committed=pipeline.reads_committed,
    )


def generation_ids(known: Mapping[str, KnownTopic]) -> dict[str, int]:
    """The ledger's keys of the topics' generations, by topic name."""
    return {topic: entry.generation_id for topic, entry in known.items()}


def other_generations(batch: Batch, known: Mapping[str, KnownTopic]) -> Iterator[str]:
    """Ranges of a topic that was created again since; the same offsets are now other records."""
    for segment in batch.segments:
        now = known.get(segment.range.partition.topic)
        if now is None or not is_of_generation(segment, now):
            yield f"{segment.range}: the ledger now follows another generation of the topic"
