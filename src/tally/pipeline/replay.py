"""The way of a replay: resolve what was asked, preview, write down, count, replace.

:func:`preview_replay` changes nothing. :func:`request_replay` writes down exactly what was shown.
:func:`run_replay` counts batch after batch and can be called again at any time, by anyone, until
all are committed. Minute batches and other replays may run beside it.
"""

import dataclasses
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tally import __version__
from tally.config.pipeline import Pipeline
from tally.config.settings import Settings
from tally.errors import (
    FencedError,
    MySQLUnavailableError,
    OvertakenError,
    ReplayRefusedError,
    TransactionRetryError,
)
from tally.kafka.client import Kafka
from tally.ledger import batches, positions, replay_runs, replays, tiles
from tally.ledger.batches import Requester
from tally.model import (
    Batch,
    BatchState,
    KafkaSnapshot,
    KnownTopic,
    OffsetRange,
    TopicPartition,
    is_of_life,
)
from tally.mysql.transactions import (
    CommitUnansweredError,
    Transaction,
    run_transaction,
    transaction,
)
from tally.pipeline.minute import (
    DOUBT_PAUSE_S,
    OUTCOME_PATIENCE_S,
    Ran,
    SparkFactory,
    run_batch,
    whoami,
)
from tally.pipeline.replay_ranges import Facts, resolve
from tally.planning.replay import ReplayPlan, Tile, plan_replay
from tally.planning.replay_request import Request

# A batch whose segments were replaced by somebody else is planned anew, so often in a row.
OVERTAKEN_TRIES: Final = 5

# The run id of a replay that no run has asked for begins so.
CALL: Final = "call:"


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """What a replay would do, as a person is shown it."""

    pipeline: str
    """The pipeline."""
    request: str
    """What was asked for, in words."""
    plan: ReplayPlan
    """Ranges asked and widened, batches, what is replaced, what is refused."""
    rules: str
    """What lines are counted by, in words: the levels and the line format of now."""
    minutes: int
    """Minutes that the replaced segments have counted lines for."""
    first_minute: str | None
    """The first of them, ``YYYY-MM-DD HH:MM``."""
    last_minute: str | None
    """The last of them."""
    held: Mapping[TopicPartition, tuple[int, int]]
    """First and end offset in Kafka of each partition asked for."""
    seconds: float | None
    """How long it will take, by the pace of earlier batches; None before the first one."""
    notes: tuple[str, ...]
    """What else the person should know."""

    @property
    def offsets(self) -> int:
        """Offsets to read."""
        return sum(r.offsets for r in self.plan.widened)

    @property
    def uncounted(self) -> int:
        """Offsets among them that were never counted."""
        return sum(piece.uncounted for piece in self.plan.pieces)


@dataclass(frozen=True, kw_only=True, slots=True)
class Requested:
    """A replay that was written down."""

    replay_id: int
    """The ledger's key."""
    batch_ids: tuple[int, ...]
    """Its batches, in order."""


def preview_replay(settings: Settings, name: str, request: Request) -> Preview:
    """What a replay would do; nothing is written.

    Raises:
        UnknownPipelineError: No such pipeline is configured.
        ReplayRefusedError: The request names nothing that the ledger knows.
        RetryableError: Kafka or MySQL did not answer.
    """
    pipeline = settings.pipeline(name)
    kafka = Kafka(settings.kafka)
    with transaction(settings.mysql, isolation="repeatable read", read_only=True) as tx:
        known = positions.known_topics(tx, name)
        snapshot = _snapshot(kafka, pipeline, known)
        asked, notes = resolve(tx, kafka, Facts(pipeline, known, snapshot), request)
        plan = _plan(tx, pipeline, known, snapshot, asked)
        minutes, first, last = tiles.minutes_of(tx, plan.replaces)
        offsets = sum(r.offsets for r in plan.widened)
        seconds = replays.seconds_for(tx, name, len(plan.batches), offsets)
    partitions = sorted({r.partition for r in asked})
    return Preview(
        pipeline=name,
        request=str(request),
        plan=plan,
        rules=pipeline.rules,
        minutes=minutes,
        first_minute=first,
        last_minute=last,
        held={
            p: (held.earliest, held.end)
            for p in partitions
            if (held := snapshot.partition(p)) is not None
        },
        seconds=seconds,
        notes=tuple(notes),
    )


def request_replay(
    settings: Settings, preview: Preview, *, reason: str, requester: Requester | None = None
) -> Requested:
    """Write down exactly what a preview has shown.

    A requester with a run id that has written this request down already is told what it wrote; one
    without gets an id for this call, so that a lost answer to COMMIT is found out here.

    Raises:
        ReplayRefusedError: It cannot be done, or it is not what was shown any more. Nothing is
            written.
        CommitUnansweredError: The answer to COMMIT was lost, and the ledger could not be asked in
            time.
        RetryableError: Kafka or MySQL did not answer; nothing was written.
    """
    pipeline = settings.pipeline(preview.pipeline)
    requester = requester or Requester(name=whoami(), version=__version__)
    if requester.run_id is None:
        requester = dataclasses.replace(requester, run_id=f"{CALL}{uuid.uuid4()}")
    check_possible(preview)
    with transaction(settings.mysql, read_only=True) as tx:
        snapshot = _snapshot(
            Kafka(settings.kafka), pipeline, positions.known_topics(tx, pipeline.name)
        )

    def work(tx: Transaction) -> Requested:
        positions.lock_pipeline(tx, pipeline.name, pipeline.table)
        written = replay_runs.find_replay_of_run(tx, pipeline.name, requester, preview.request)
        if written is not None:
            return Requested(replay_id=written[0], batch_ids=tuple(written[1]))
        known = positions.known_topics(tx, pipeline.name)
        if _plan(tx, pipeline, known, snapshot, preview.plan.asked) != preview.plan:
            raise ReplayRefusedError(
                f"pipeline {pipeline.name}: what would be replaced is not what you saw any more",
                next_step="look at the preview again",
            )
        replay_id, batch_ids = replays.insert_replay(
            tx,
            pipeline.name,
            preview.plan,
            _incarnations(known),
            requester,
            request=preview.request,
            reason=reason,
        )
        return Requested(replay_id=replay_id, batch_ids=tuple(batch_ids))

    return _written_once(settings, work)


def _written_once(settings: Settings, work: Callable[[Transaction], Requested]) -> Requested:
    """Run what looks first, under the pipeline's lock, whether it was run before.

    A server that still works on a COMMIT holds that lock: whoever gets it sees what was written.
    """
    unanswered, deadline = None, 0.0
    while True:
        try:
            return run_transaction(settings.mysql, work)
        except (MySQLUnavailableError, TransactionRetryError, CommitUnansweredError) as error:
            if isinstance(error, CommitUnansweredError) and unanswered is None:
                unanswered, deadline = error, time.monotonic() + OUTCOME_PATIENCE_S
            elif unanswered is None:
                raise
            elif time.monotonic() > deadline:
                raise unanswered from error
            else:
                time.sleep(DOUBT_PAUSE_S)


def check_possible(preview: Preview) -> None:
    """Raise unless all that was asked for can be counted again.

    Raises:
        ReplayRefusedError: With every range that cannot, and why.
    """
    if preview.plan.refusals:
        raise ReplayRefusedError(
            f"pipeline {preview.pipeline}: cannot be counted again: "
            + "; ".join(str(refusal) for refusal in preview.plan.refusals),
            next_step="ask for less; without a from and an until everything is taken that can be",
        )
    if not preview.plan.batches:
        raise ReplayRefusedError(
            f"pipeline {preview.pipeline}: {preview.request}: there is nothing to count again"
            + "".join(f"; {note}" for note in preview.notes),
            next_step=f"tally status {preview.pipeline}",
        )


def run_replay(settings: Settings, replay_id: int, spark: SparkFactory) -> Iterator[Ran]:
    """Count what is left of a replay, batch after batch.

    Yields:
        What became of each batch, as soon as it is committed.

    Raises:
        UnknownReplayError: The ledger has no such replay.
        FencedError: Somebody else works on it.
        DataLossError: Kafka no longer serves what was planned; what was counted stays.
        RetryableError: A server did not answer; call it again.
    """
    with transaction(settings.mysql, read_only=True) as tx:
        replays.find_replay(tx, replay_id)
    while True:
        with transaction(settings.mysql, read_only=True) as tx:
            left = replays.planned_batches(tx, replay_id)
        if not left:
            return
        yield from run_replay_batch(settings, left[0], spark)


def run_replay_batch(settings: Settings, batch_id: int, spark: SparkFactory) -> list[Ran]:
    """Count one batch of a replay; planned anew when another replay came first.

    Any batch may be given: one that was planned anew before is counted as what took its place, one
    that is no replay's as it is.

    Returns:
        What became of it: more than one when it had to be planned anew in other batches.

    Raises:
        As :func:`run_replay`.
    """
    with transaction(settings.mysql, read_only=True) as tx:
        todo = replay_runs.standing_for(tx, batch_id)
    done, overtaken = [], 0
    while todo:
        try:
            done.append(run_batch(settings, todo[0], spark))
            todo.pop(0)
        except OvertakenError:
            overtaken += 1
            if overtaken == OVERTAKEN_TRIES:
                raise
            todo[:1] = replan_batch(settings, todo[0])
    return done


def replan_batch(settings: Settings, batch_id: int) -> list[int]:
    """Plan the ranges of a replay's batch anew, against what is live now.

    Returns:
        The batches that take its place; the batch itself is abandoned.

    Raises:
        FencedError: It is committed or abandoned already.
        ReplayRefusedError: Its ranges cannot be counted again any more; nothing is changed.
    """
    with transaction(settings.mysql, read_only=True) as tx:
        batch = batches.find_batch(tx, batch_id)
        pipeline = settings.pipeline(batch.pipeline)
        snapshot = _snapshot(
            Kafka(settings.kafka), pipeline, positions.known_topics(tx, pipeline.name)
        )
    replay_id = batch.replay_id
    if replay_id is None:
        raise FencedError(f"batch {batch_id} is no replay's", next_step=f"tally run {batch_id}")
    requester = Requester(name=whoami(), version=__version__)

    def work(tx: Transaction) -> list[int]:
        positions.lock_pipeline(tx, pipeline.name, pipeline.table)
        now = batches.find_batch(tx, batch_id, lock=True)
        if now.state is not BatchState.PLANNED:
            raise FencedError(
                f"batch {batch_id} is {now.state}", next_step=f"tally show {batch_id}"
            )
        known = positions.known_topics(tx, pipeline.name)
        plan = _plan(tx, pipeline, known, snapshot, [s.range for s in now.segments])
        causes = [*_other_lives(now, known), *map(str, plan.refusals)]
        if causes:
            raise ReplayRefusedError(
                f"batch {batch_id} cannot be planned anew: {causes[0]}",
                next_step=f"tally abandon {batch_id}: what was counted stays",
            )
        ids = replays.insert_batches(
            tx, pipeline.name, replay_id, plan, _incarnations(known), requester
        )
        reason = f"what it was to replace was replaced; planned anew as {ids}"[:1000]
        batches.abandon(tx, batch_id, by=requester.name, reason=reason)
        return ids

    return run_transaction(settings.mysql, work)


def _other_lives(batch: Batch, known: Mapping[str, KnownTopic]) -> Iterator[str]:
    """The same offsets of a topic that was created again are other records."""
    for segment in batch.segments:
        now = known.get(segment.range.partition.topic)
        if now is None or not is_of_life(segment, now):
            yield f"{segment.range}: the ledger follows another life of the topic by now"


def _plan(
    tx: Transaction,
    pipeline: Pipeline,
    known: Mapping[str, KnownTopic],
    snapshot: KafkaSnapshot,
    asked: Sequence[OffsetRange],
) -> ReplayPlan:
    known_tiles: dict[TopicPartition, list[Tile]] = {}
    for r in asked:
        if r.partition.topic in known:
            of_partition = known_tiles.setdefault(r.partition, [])
            found = tiles.tiles_of(
                tx,
                known[r.partition.topic].incarnation_id,
                r.partition,
                r.from_offset,
                r.until_offset,
            )
            of_partition += [tile for tile in found if tile not in of_partition]
    return plan_replay(
        asked,
        known=known,
        tiles={p: sorted(of, key=lambda tile: tile.range) for p, of in known_tiles.items()},
        kafka=snapshot,
        offsets_per_range=pipeline.max_records_per_partition,
        sparse=pipeline.is_sparse,
    )


def _snapshot(kafka: Kafka, pipeline: Pipeline, known: Mapping[str, KnownTopic]) -> KafkaSnapshot:
    return kafka.snapshot(
        sorted({*pipeline.topics, *known}),
        read_committed=pipeline.reads_committed,
    )


def _incarnations(known: Mapping[str, KnownTopic]) -> dict[str, int]:
    return {topic: entry.incarnation_id for topic, entry in known.items()}
