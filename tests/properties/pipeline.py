"""One pipeline on a real MySQL with a model of Kafka, and all operations on it.

Planner, ledger and commits are the real ones. Kafka is :class:`KafkaModel`, and in place of Spark
:class:`ModelReader` counts. What each attempt read, and when, is remembered for the oracle.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pymysql

from tally import errors
from tally.aggregates.aggregate import Aggregate
from tally.aggregates.counts import CountRequest, Counts
from tally.audit.audit import audit
from tally.config.pipeline import Pipeline
from tally.config.settings import Settings
from tally.context import Context, Patience, Reader
from tally.counting.commit import commit_once
from tally.counting.plan import plan
from tally.counting.replan import replan_batch
from tally.counting.run import run_batches
from tally.ledger import batches, replays
from tally.ledger.batches import Requester
from tally.ledger.decisions import (
    AdoptionView,
    adopt_topic,
    decide_losses,
    find_losses,
    starts_of,
)
from tally.ledger.positions import lock_pipeline
from tally.maintenance.prune import prune
from tally.model import Batch, OffsetRange, TopicPartition
from tally.mysql.transactions import Database, Row, Transaction
from tally.planning import replay_request as requests
from tally.planning.ingest import first_offsets
from tally.replay.preview import preview
from tally.replay.run import run_replay
from tests.properties import operations as op
from tests.properties.disturbance import Disturbance, Killed, Process, SkewedClock, Wire
from tests.properties.dump import Dump
from tests.properties.kafka_model import KafkaModel, Log, moment_of
from tests.properties.reader import KilledReader, ModelReader, StoppedReader, claimed, found
from tests.protocol.facts import Facts, Loss, Segment
from tests.protocol.ledger import Ledger
from tests.protocol.recorder import Kafka, Recorder
from tests.world import recorded, run_batch

TOPIC = "alog"

OUTCOME_S: Final = 5.0
"""Seconds for which the ledger is asked about a COMMIT without an answer."""


@dataclass(slots=True)
class Worker:
    """An attempt that has read its batch and was stopped before the commit."""

    ctx: Context
    """The context of the process when it resumes."""
    batch: Batch
    pipeline: Pipeline
    counts: Counts


# Errors that describe a state; the operations check that the state is real.
_ORDINARY = (errors.DataLossError, errors.FencedError, errors.UsageError)


# A commit's own check has failed, which no fault may cause.
_WRITERS_FAULT = re.compile("what was written is not what was counted|has less in")


class Unexpected(AssertionError):  # noqa: N818 - an assertion
    """An operation ended in a way that nothing explains."""


@dataclass(slots=True)
class PipelineUnderTest:
    """The pipeline. Tests call ``do``; the oracle reads the rest."""

    settings: Settings
    name: str
    connection: "pymysql.Connection[Any]"
    """The test's own connection, for reads and for changes that Tally has no command for."""
    wire: Wire
    clock: SkewedClock = field(default_factory=SkewedClock)
    kafka: KafkaModel = field(default_factory=KafkaModel)
    adopted: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """By cluster and topic id: the start policies of adoptions."""
    workers: list[Worker] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    """How often each operation had each outcome."""
    _disturbed: bool = False
    _depth: int = 0
    _dump: Dump | None = None
    run_id: str | None = None
    """Airflow's run id of replay requests; a repeated request returns the same replay."""
    recorder: Recorder = field(init=False)
    """What it does to the ledger, checked against the protocol."""

    def __post_init__(self) -> None:
        kafka = Kafka(self._begins, self.kafka.was_gone, self.kafka.earliest)
        aggregate = Aggregate.of(self.pipeline)
        ledger = Ledger(self.rows, self.name, aggregate.columns, self.pipeline.measure == "bytes")
        self.recorder = Recorder(ledger, kafka)
        self.wire.recorder = self.recorder

    def _begins(self, cluster_id: str, topic_id: str, number: int) -> set[int]:
        adopted = self.adopted.get((cluster_id, topic_id), set())
        begins = self.kafka.begins(
            cluster_id, topic_id, number, adopted or {str(self.pipeline.start)}
        )
        # What a whole generation had lost before its adoption is a loss, and no start.
        return begins | ({0} if "earliest" in adopted else set())

    def _read(self, batch: Batch, pipeline: Pipeline) -> None:
        """An attempt has read its batch."""
        counts = {s.segment_id: found(self.kafka, s, pipeline) for s in batch.segments}
        generations = self.facts.generations
        keys = {of[:2]: number for number, of in generations.items()}
        ranges = {
            s.segment_id: (
                (keys.get((s.cluster_id, s.topic_id), 0), s.range.partition.partition),
                s.range.from_offset,
                s.range.until_offset,
            )
            for s in batch.segments
        }
        self.recorder.add(
            "read",
            batch=batch.batch_id,
            token=str(batch.claim_token),
            planned_at=batch.planned_at.replace(tzinfo=None),
            counts=counts,
            ranges=ranges,
        )

    @property
    def facts(self) -> Facts:
        """The ledger as it was last read."""
        return self.recorder.facts

    # --- what the test reads

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Rows of a statement on the test's own connection, which commits each by itself."""
        with self.connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return list(cursor.fetchall())

    @property
    def pipeline(self) -> Pipeline:
        """The current configuration."""
        return self.settings.pipeline(self.name)

    # --- the context of the code under test

    @property
    def ctx(self) -> Context:
        """The context of the next operation: a new process with the current configuration."""
        return self._context(Process(self.wire))

    def _context(self, process: Process) -> Context:
        return Context(
            settings=self.settings,
            database=Database(
                settings=self.settings.mysql,
                clock=self.clock,
                open=process.connect,
                close=self.wire.close,
            ),
            kafka=self.kafka,
            open_reader=self._open_reader,
            patience=Patience(outcome_s=OUTCOME_S),
            in_task=lambda: self._context(process),
        )

    @contextmanager
    def _open_reader(self) -> Iterator[Reader]:
        with self._counting_overtaken():
            yield ModelReader(self.kafka, self._read, self.wire.gap)

    @contextmanager
    def _counting_overtaken(self) -> Iterator[None]:
        """Count the replays that were overtaken; they are replanned without an error."""
        try:
            yield
        except errors.OvertakenError as error:
            self.outcomes[error.code] += 1
            raise

    # --- operations

    def begin(self, beginning: op.Beginning) -> None:
        """An empty ledger and a new topic."""
        keys = ("start", "offsets", "limit", "delivery")
        self.configure(**{key: getattr(beginning, key) for key in keys})
        generation = self.kafka.create(TOPIC, beginning.partitions)
        for number, log in enumerate(generation.logs):
            self.kafka.write(log, beginning.said[number :: beginning.partitions])

    def do(self, operation: op.Operation, disturbance: Disturbance | None = None) -> str:
        """Run an operation, and say how it ended: ``done``, ``killed`` or the code of an error.

        Raises:
            AssertionError: Neither the state nor a fault explains the error.
        """
        if self._depth == 0:
            self.wire.disturb(disturbance)
            self._disturbed = disturbance is not None
        self._depth += 1
        name = operation.name
        ended = "done"
        try:
            method = re.sub("(?<!^)(?=[A-Z])", "_", name).lower()
            getattr(self, f"_do_{method}")(*operation.about, **dict(operation.options))
        except Killed:
            ended = "killed"
        except errors.TallyError as error:
            self._check_error(operation, error)
            ended = error.code
            self.outcomes[ended] += 1
        finally:
            self._depth -= 1
            if self._depth == 0:
                self.wire.calm()
        self.outcomes[f"{name}: {ended}"] += 1
        return ended

    def _check_error(self, operation: op.Operation, error: errors.TallyError) -> None:
        """Raise unless Kafka's or the ledger's state, or a fault, explains the error."""
        if isinstance(error, errors.DataLossError) and _WRITERS_FAULT.search(error.what):
            raise Unexpected(f"{operation}: the commit does not add up: {error}") from error
        if isinstance(error, _ORDINARY) and not isinstance(error, errors.ConfigError):
            return
        if not self.wire.faults.explain(error):
            came = [fired.kind.name for fired in self.wire.faults.fired]
            raise Unexpected(f"{operation}: {came} does not explain {error}") from error

    def _must_be_so(self, kind: str, number: int, **fields: object) -> None:
        """Check that the ledger has what an operation reported as done."""
        known: Mapping[int, object] = self.facts.replays
        if kind == "batch":
            known = self.facts.batches
        found = known.get(number)
        state = getattr(found, "state", found)
        if found is None or fields.get("state", state) != state:
            raise Unexpected(f"it was reported as done, and is not: {kind} {number}, {fields}")

    def configure(self, **keys: Any) -> None:
        """Change settings of the pipeline; None leaves a setting unchanged."""
        names = {"limit": "max_records_per_partition"}
        update = {names.get(key, key): value for key, value in keys.items() if value is not None}
        settings = self.settings.pipelines[self.name].model_copy(update=update)
        self.settings = self.settings.model_copy(update={"pipelines": {self.name: settings}})

    # --- Kafka

    def _log(self, number: int) -> Log:
        """A partition; one that nobody reads where Kafka serves no topic."""
        generation = self.kafka.topics.get(TOPIC)
        return generation.logs[number % len(generation.logs)] if generation else Log()

    def _do_produce(self, partition: int, said: Sequence[op.Said]) -> None:
        self.kafka.write(self._log(partition), said)

    def _do_expire(self, partition: int, records: int) -> None:
        log = self._log(partition)
        self.kafka.expire(log, min(log.end, log.earliest + records))

    def _do_restore(self, partition: int) -> None:
        self.kafka.restore(self._log(partition))

    def _do_compact(self, partition: int, which: int) -> None:
        if (log := self._log(partition)).held:
            self.kafka.compact(log, sorted(log.held)[which % len(log.held)])

    def _do_truncate(self, partition: int, records: int, then: Sequence[op.Said] = ()) -> None:
        log = self._log(partition)
        self.kafka.truncate(log, max(log.earliest, log.end - records))
        self.kafka.write(log, then)

    def _do_delete(self) -> None:
        self.kafka.serve(TOPIC, None)

    def _do_create(self, partitions: int, cluster: int, said: Sequence[op.Said]) -> None:
        generation = self.kafka.create(TOPIC, partitions, f"cluster-{cluster}")
        for log in generation.logs:
            self.kafka.write(log, said)

    def _do_bring_back(self, generation: int) -> None:
        known = self.kafka.generations
        self.kafka.serve(TOPIC, known[generation % len(known)])

    def _do_add_partition(self) -> None:
        if (generation := self.kafka.topics.get(TOPIC)) is not None and len(generation.logs) < 4:
            generation.logs.append(Log())

    def _do_stale(self, answers: int, partitions: int, records: int) -> None:
        now = self.kafka.look()
        topics = {
            name: replace(
                topic,
                partitions={
                    number: replace(seen, end=max(seen.earliest, seen.end - records))
                    for number, seen in topic.partitions.items()
                    if number < partitions
                },
            )
            for name, topic in now.topics.items()
            if partitions
        }
        self.kafka.stale = [replace(now, topics=topics)] * answers

    def _do_configure(self, delivery: str | None = None, **keys: Any) -> None:
        self.configure(delivery=None if self.pipeline.rows_view else delivery, **keys)

    # --- the database

    def _do_dump(self) -> None:
        files = Path((self.pipeline.files_url or "").removeprefix("file://"))
        self._dump = Dump(self.connection, files)
        self.recorder.add("dump")

    def _do_restore_dump(self) -> None:
        if self._dump is not None:
            self._dump.restore()
            self.recorder.restored()

    # --- minutes

    def _do_plan(self) -> None:
        for batch_id in plan(self.ctx, self.name).batch_ids:
            self._must_be_so("batch", batch_id)

    def _do_run_minute(self) -> None:
        found = self._batches(state="planned", kind="ingest")
        if len(found) == 1:
            self._run(found[0])
        elif found:
            for ran in run_batches(self.ctx, found):
                self._must_be_so("batch", ran.batch_id, state="committed")

    def _do_run(self, which: int) -> None:
        if (batch := self._choose_batch(which)) is not None:
            self._run(batch)

    def _do_run_open(self, which: int) -> None:
        if (batch := self._choose_batch(which, state="planned")) is not None:
            self._run(batch)

    def _run(self, number: int) -> None:
        calm = not self._disturbed and not self.kafka.stale
        was_planned = self.facts.batches[number].state == "planned"
        explained = self._what_prevents(number) if calm else []
        try:
            ran = run_batch(self.ctx, number)
        except (errors.DataLossError, errors.FencedError) as error:
            if calm and not explained:
                raise Unexpected(f"batch {number} must be counted: {error}") from error
            raise
        self._must_be_so("batch", number, state="committed")
        if calm and explained:
            raise Unexpected(f"batch {number} was run in spite of {explained}")
        if calm and ran.committed != was_planned:
            raise Unexpected(f"batch {number}: committed is {ran.committed}")

    def _do_stop(self, which: int) -> None:
        process = Process(self.wire)
        reader = StoppedReader(self.kafka, self._read, self.wire.gap, process, self._keep)
        self._run_in(process, reader, which)

    def _do_kill(self, which: int) -> None:
        process = Process(self.wire)
        reader = KilledReader(self.kafka, self._read, self.wire.gap, process)
        self._run_in(process, reader, which)

    def _run_in(self, process: Process, reader: Reader, number: int) -> None:
        """Run a planned batch in a process that does not survive its reader."""
        if (batch := self._choose_batch(number, state="planned")) is None:
            return
        ctx = replace(self._context(process), open_reader=lambda: nullcontext(reader))
        try:
            run_batch(ctx, batch)
        except Killed as killed:
            # It failed before its commit, and was killed when it released the batch.
            if isinstance(killed.__context__, errors.TallyError):
                raise killed.__context__ from None
            raise

    def _keep(self, request: CountRequest, counts: Counts) -> None:
        """Keep a worker that was stopped at its commit; it may resume later."""
        kept = replace(
            counts,
            contributions=list(counts.contributions),
            dead_letters=list(counts.dead_letters),
        )
        self.workers.append(Worker(self.ctx, claimed(request), request.pipeline, kept))

    def _do_go_on(self, which: int) -> None:
        if not self.workers:
            return
        worker = self.workers.pop(which % len(self.workers))
        came = "in time" if self.go_on(worker) else "too late"
        self.outcomes[f"GoOn: {came}"] += 1

    def go_on(self, worker: Worker) -> bool:
        """Let a stopped worker commit what it has read; returns False if it was too late."""
        calm, claim = not self._disturbed, worker.batch
        try:
            with self._counting_overtaken():
                committed = commit_once(worker.ctx, worker.batch, worker.counts)
        except (errors.FencedError, errors.UnknownBatchError):
            committed, answer = False, "refused"
        else:
            self._must_be_so("batch", claim.batch_id, state="committed")
            answer = "done" if committed else "before"
        # Where lines are kept, a set that was dropped is a reason, too.
        if calm and not committed and not (self.pipeline.rows_view and answer == "refused"):
            about = {"attempt": claim.attempt, "token": str(claim.claim_token)}
            self.recorder.add("commit", answer, batch=claim.batch_id, **about)
        return committed

    def _do_age(self) -> None:
        # A process that is paused may hold a lock by another session: what it works on stays young.
        free = self.rows(
            "select batch_id from batch where pipeline = %s and state = 'planned'"
            " for update skip locked",
            (self.name,),
        )
        for row in free:
            older = "update batch set claimed_at = claimed_at - interval 1 day where batch_id = %s"
            self.rows(older, (row["batch_id"],))

    def _do_set_clock(self, hours: int) -> None:
        self.clock.skew = timedelta(hours=hours)

    # --- decisions of an operator

    def _do_abandon(self, which: int) -> None:
        if (batch := self._choose_batch(which)) is not None:
            self.ctx.database.run(
                lambda tx: batches.abandon(tx, batch, by="an operator", reason="a test")
            )
            self._must_be_so("batch", batch, state="abandoned")

    def _decide(self, decision: Callable[..., Any], *about: Any) -> None:
        """Write down an operator's decision, as the commands do: under the pipeline's lock."""

        def work(tx: Transaction) -> None:
            lock_pipeline(tx, self.name, self.pipeline.table)
            decision(tx, *about, by="an operator", reason="a test")

        self.ctx.database.run(work)

    def _do_accept(self, which: int | None) -> None:
        with self.ctx.database.transaction(read_only=True) as tx:
            seen = find_losses(tx, self.name, only_open=True)
        if seen and which is not None:
            seen = [seen[which % len(seen)]]
        self._decide(partial(decide_losses, accept=True), self.name, seen)
        for loss in seen:
            is_open = "select 1 from lost_range where lost_range_id = %s and state = 'open'"
            if self.rows(is_open, (loss.lost_range_id,)):
                raise Unexpected(f"{loss} was accepted, and is open")

    def _do_adopt(self, start: str) -> None:
        said = self.kafka.snapshot([TOPIC])
        if TOPIC not in said.topics:
            return
        starts = first_offsets(said, [TOPIC], start, {})
        adoption = AdoptionView(
            pipeline=self.name,
            topic=TOPIC,
            cluster_id=said.cluster_id,
            topic_id=said.topics[TOPIC].topic_id,
            start=start,
            partitions=starts_of({p.partition: offset for p, offset in starts.items()}),
        )
        self.adopted.setdefault((adoption.cluster_id, adoption.topic_id), set()).add(start)
        self._decide(adopt_topic, adoption)
        if (
            adoption.cluster_id,
            adoption.topic_id,
            "current",
        ) not in self.facts.generations.values():
            raise Unexpected(f"{adoption} was adopted, and is not current")

    # --- replays

    def _do_ask_ranges(self, spans: Sequence[op.Span]) -> None:
        if ranges := tuple(r for span in spans if (r := self._range(span)) is not None):
            self._ask(requests.RangesAsked(ranges=ranges))

    def _range(self, span: op.Span) -> OffsetRange | None:
        if (log := self._log(span.partition)).end == 0:
            return None
        generation = self.kafka.topics[TOPIC]
        start = span.start * log.end // 16
        return OffsetRange(
            partition=TopicPartition(topic=TOPIC, partition=span.partition % len(generation.logs)),
            from_offset=start,
            until_offset=start + max(1, span.length * log.end // 16),
        )

    def _do_ask_all(self, partition: int | None = None, from_start: bool = False) -> None:
        numbers = () if partition is None else (partition,)
        start = 0 if from_start else None
        self._ask(requests.BoundsAsked(topic=TOPIC, partitions=numbers, from_offset=start))

    def _do_ask_batch(self, which: int) -> None:
        if (batch := self._choose_batch(which)) is not None:
            self._ask(requests.BatchAsked(batch_id=batch))

    def _do_ask_minutes(self, minute: int, more: int) -> None:
        first, last = (f"2017-07-30 14:{at:02}" for at in (minute, minute + more))
        self._ask(requests.MinutesAsked(first=first, last=last))

    def _do_ask_times(self, tick: int, more: int) -> None:
        since, before = moment_of(tick), moment_of(tick + 1 + more)
        self._ask(requests.TimesAsked(since=since, before=before))

    def _ask(self, request: requests.Request) -> None:
        requester = Requester(name="a test", version="1", run_id=self.run_id)
        ctx = replace(self.ctx, requester=requester)
        asked = recorded(ctx, preview(ctx, self.name, request))
        self._must_be_so("replay", asked.replay_id)

    def _do_run_replay(self, which: int) -> None:
        if (found := self._choose_replay(which)) is None:
            return
        for _ in run_replay(self.ctx, found):
            pass
        if left := self._left(found):
            raise Unexpected(f"replay {found} has ended with {left} left")

    def _do_run_replay_batch(self, which: int) -> None:
        batch = self._choose_batch(which, kind="replay")
        if batch is not None:
            for ran in run_batches(self.ctx, [batch]):
                self._must_be_so("batch", ran.batch_id, state="committed")

    def _do_replan(self, which: int) -> None:
        batch = self._choose_batch(which, kind="replay")
        if batch is not None:
            later = replan_batch(self.ctx, batch)
            self._must_be_so("batch", batch, state="abandoned")
            for batch_id in later:
                self._must_be_so("batch", batch_id)

    def _do_cancel(self, which: int) -> None:
        if (found := self._choose_replay(which)) is not None:
            self._cancel(found)

    def _cancel(self, replay_id: int) -> None:
        self._decide(replays.cancel, replay_id)
        self._must_be_so("replay", replay_id, state="cancelled")

    def _left(self, replay_id: int) -> list[int]:
        return sorted(self.facts.planned(replay=replay_id))

    def _is_out_of_reach(self, batch_id: int) -> bool:
        """Whether Kafka no longer serves a batch of a replay, as planned or replanned."""
        if any(why not in {"supersede once", "alone"} for why in self._what_prevents(batch_id)):
            return True
        facts = self.facts
        for s in facts.of_batch(batch_id).values():
            log = self._log_of(s)
            tiles: list[Segment | Loss] = [*facts.live().values()]
            tiles += [loss for loss in facts.losses if loss.is_tile]
            touched = [s, *(tile for tile in tiles if s.meets(tile))]
            low = min(tile.start for tile in touched)
            high = max(tile.until for tile in touched)
            holes = sum(low <= offset < high for offset in log.held) < high - low
            is_folded = any(tile.state == "folded" for tile in touched)
            if low < log.earliest or high > log.end or holes or is_folded:
                return True
        return False

    def _log_of(self, s: Segment) -> Log:
        cluster_id, topic_id, _ = self.facts.generations[s.place[0]]
        return self.kafka.log(cluster_id, topic_id, s.place[1])

    def end_replay(self, replay_id: int) -> None:
        """Run the planned batches of a replay, or cancel it if Kafka no longer serves them."""
        for _ in range(50):
            if not (left := self._left(replay_id)):
                return
            batch_id = left[0]
            try:
                list(run_batches(self.ctx, [batch_id]))
            except errors.OvertakenError as error:
                raise Unexpected(
                    f"batch {batch_id} was overtaken without another replay: {error}"
                ) from error
            except (errors.DataLossError, errors.ReplayRefusedError) as error:
                # After a replan, other batches may be the ones that cannot be counted.
                if not any(self._is_out_of_reach(later) for later in self._left(replay_id)):
                    raise Unexpected(f"batch {batch_id} must be counted: {error}") from error
                self._cancel(replay_id)
        raise Unexpected(f"replay {replay_id} never ends")

    def _do_prune(self) -> None:
        prune(self.ctx, self.name, timedelta(0))

    def _do_audit(self) -> None:
        verdict = audit(self.ctx, self.name)
        if not verdict.holds:
            raise Unexpected(f"the audit has found {verdict.findings}")

    # --- choosing

    def _choose_batch(self, number: int, **fields: str) -> int | None:
        found = self._batches(**fields)
        return found[number % len(found)] if found else None

    def _batches(self, **fields: str) -> list[int]:
        """Batches with these fields, the newest first."""
        known = self.facts.batches.items()
        return sorted(
            (n for n, b in known if all(getattr(b, k) == v for k, v in fields.items())),
            reverse=True,
        )

    def _choose_replay(self, number: int) -> int | None:
        found = sorted(self.facts.replays, reverse=True)
        return found[number % len(found)] if found else None

    # --- expectations

    def _what_prevents(self, batch_id: int) -> list[str]:
        """Why a batch cannot be counted now; empty when it must succeed."""
        batch = self.facts.batches[batch_id]
        if batch.state == "committed":
            return []
        self.recorder.check()
        obstacle = self.recorder.model.obstacle(batch_id)
        segments = self.facts.of_batch(batch_id).values()
        of_kafka = [why for s in segments for why in self._what_prevents_segment(s)]
        return [*([obstacle] if obstacle else []), *of_kafka]

    def _what_prevents_segment(self, s: Segment) -> Iterator[str]:
        generation = self.kafka.topics.get(TOPIC)
        cluster_id, topic_id, _ = self.facts.generations[s.place[0]]
        if generation is None or generation is not self.kafka.generation(cluster_id, topic_id):
            yield "another topic"
            return
        if s.place[1] >= len(generation.logs):
            yield "no such partition"
            return
        log = generation.logs[s.place[1]]
        span = range(s.start, s.until)
        if log.earliest > span.start or log.end < span.stop:
            yield "not held"
        records = sum(o in log.held for o in span)
        may_miss = any(
            (loss.place, loss.cause, loss.state) == (s.place, "missing", "accepted")
            and loss.start <= s.start
            and s.until <= loss.until
            for loss in self.facts.losses
        )
        if records < len(span) and self.pipeline.offsets == "dense" and not may_miss:
            yield "holes"
        replaced = (self.facts.segments[number].counts for number in s.replaces)
        if records < sum(counts.records for counts in replaced if counts is not None):
            yield "fewer records than were counted"
