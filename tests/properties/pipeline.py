"""One pipeline on real MySQL, with a model of Kafka, to which anything may happen.

Planner, ledger and commits are the real ones. Kafka is :class:`KafkaModel`, and in place of Spark
the model's records are counted. What each attempt read, and when, is remembered for the oracle.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import pymysql

from tally.aggregates.spool import Spool
from tally.config.pipeline import Pipeline
from tally.config.servers import KafkaSettings
from tally.config.settings import Settings
from tally.deliveries.transactional import Result
from tally.errors import (
    ConfigError,
    DataLossError,
    FencedError,
    OvertakenError,
    ReplayRefusedError,
    TallyError,
    UnknownBatchError,
    UsageError,
)
from tally.ledger import batches, replays
from tally.ledger.batches import Requester
from tally.ledger.decisions import Adoption, accept_losses, adopt_topic, find_losses
from tally.ledger.positions import lock_pipeline
from tally.model import (
    EMPTY_TOTALS,
    Batch,
    BatchKind,
    Contribution,
    DeadLetter,
    OffsetRange,
    SegmentTotals,
    TopicPartition,
)
from tally.mysql.transactions import Row
from tally.pipeline import minute, prune, replay
from tally.pipeline.audit import audit_ledger
from tally.planning.ingest import first_offsets
from tally.planning.replay_request import (
    BatchAsked,
    BoundsAsked,
    MinutesAsked,
    RangesAsked,
    Request,
    TimesAsked,
)
from tally.spark.counting import Counts, check_totals
from tests.properties import operations as op
from tests.properties.disturbance import Disturbance, Killed, Wire
from tests.properties.kafka_model import KafkaModel, Life, Log, Record, moment_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

TOPIC = "alog"


@dataclass(frozen=True, slots=True)
class Read:
    """What an attempt was to count, and when it read it."""

    tick: int
    levels: frozenset[str]
    line_format: str


@dataclass(slots=True)
class Worker:
    """An attempt that has read its batch and was stopped before the commit."""

    settings: Settings
    batch: Batch
    pipeline: Pipeline
    result: Result


# Errors that say how things stand; whether rightly so is asked where it can be known.
_ORDINARY = (DataLossError, FencedError, UsageError)


def _is_writers_fault(error: TallyError) -> bool:
    """Whether a commit found itself wrong: no fault may bring it there."""
    words = ("what was written is not what was counted", "has less in")
    return isinstance(error, DataLossError) and any(part in error.what for part in words)


class Unexpected(AssertionError):  # noqa: N818 - an assertion
    """An operation ended otherwise than it must."""


@dataclass(slots=True)
class PipelineUnderTest:
    """See the module. ``do`` is all that a test calls, and the oracle reads the rest."""

    settings: Settings
    name: str
    connection: "pymysql.Connection[Any]"
    """Of the test's own, for looking and for what no command of Tally does."""
    wire: Wire
    kafka: KafkaModel = field(default_factory=KafkaModel)
    reads: dict[tuple[int, int], Read] = field(default_factory=dict)
    """By batch and attempt."""
    adopted: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """By cluster and topic id: where a person has let counting begin."""
    workers: list[Worker] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    """How often each operation ended how."""
    _batches: list[Batch] = field(default_factory=list)
    """Those that are being counted, the innermost last."""
    _kill: type[op.Stop] | type[op.Kill] | None = None
    _disturbed: bool = False
    _depth: int = 0
    run_id: str | None = None
    """Airflow's run that asks for a replay: asked again, it is told what it has written."""

    # --- what the test looks at

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """Rows of a query on the test's own connection."""
        with self.connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return list(cursor.fetchall())

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        """Run and commit a statement on the test's own connection."""
        with self.connection.cursor() as cursor:
            cursor.execute(statement, parameters)

    @property
    def pipeline(self) -> Pipeline:
        """The configuration as it is now."""
        return self.settings.pipeline(self.name)

    # --- what may happen

    def begin(self, beginning: op.Beginning) -> None:
        """An empty ledger and a new topic."""
        self.configure(start=beginning.start, offsets=beginning.offsets, limit=beginning.limit)
        life = self.kafka.create(TOPIC, beginning.partitions)
        for number, log in enumerate(life.logs):
            self.kafka.write(log, beginning.said[number :: beginning.partitions])

    def do(self, operation: op.Operation, disturbance: Disturbance | None = None) -> str:
        """Let something happen; it may end in an error that the situation explains.

        Returns:
            How it ended: ``done``, ``killed`` or the code of the error.

        Raises:
            AssertionError: The error is one that nothing explains.
        """
        if self._depth == 0:
            self.wire.disturb(disturbance)
            self._disturbed = disturbance is not None
        self._depth += 1
        name = type(operation).__name__
        ended = "done"
        try:
            getattr(self, f"_do_{snake_case(name)}")(operation)
        except Killed:
            ended = "killed"
        except TallyError as error:
            self._check_error(operation, error)
            ended = error.code
            self.outcomes[ended] += 1
        finally:
            self._depth -= 1
            self._kill = None
            if self._depth == 0:
                self.wire.calm()
        self.outcomes[f"{name}: {ended}"] += 1
        return ended

    def _check_error(self, operation: op.Operation, error: TallyError) -> None:
        """Only what the state of Kafka or the ledger explains, or a fault that has come."""
        if _is_writers_fault(error):
            raise Unexpected(f"{operation}: the commit does not add up: {error}") from error
        if isinstance(error, _ORDINARY) and not isinstance(error, ConfigError):
            return
        if not self.wire.explain(error):
            came = [fired.kind.name for fired in self.wire.faults.fired]
            raise Unexpected(f"{operation}: {came} does not explain {error}") from error

    def _must_be_so(self, statement: str, *parameters: Any) -> None:
        """What an operation says that it has done is in the ledger, whatever came in between."""
        if not self.rows(statement, parameters):
            raise Unexpected(f"it was said to be done, and is not: {statement}, {parameters}")

    def configure(self, **keys: Any) -> None:
        """Change settings of the pipeline; None leaves one as it is."""
        names = {"limit": "max_records_per_partition"}
        update = {names.get(key, key): value for key, value in keys.items() if value is not None}
        settings = self.settings.pipelines[self.name].model_copy(update=update)
        self.settings = self.settings.model_copy(update={"pipelines": {self.name: settings}})

    # --- Kafka

    def _log(self, number: int) -> Log | None:
        life = self.kafka.topics.get(TOPIC)
        return life.logs[number % len(life.logs)] if life else None

    def _do_produce(self, what: op.Produce) -> None:
        if (log := self._log(what.partition)) is not None:
            self.kafka.write(log, what.said)

    def _do_expire(self, what: op.Expire) -> None:
        if (log := self._log(what.partition)) is not None:
            self.kafka.expire(log, min(log.end, log.earliest + what.records))

    def _do_restore(self, what: op.Restore) -> None:
        if (log := self._log(what.partition)) is not None:
            self.kafka.restore(log)

    def _do_compact(self, what: op.Compact) -> None:
        if (log := self._log(what.partition)) is not None and log.held:
            self.kafka.compact(log, sorted(log.held)[what.which % len(log.held)])

    def _do_truncate(self, what: op.Truncate) -> None:
        if (log := self._log(what.partition)) is not None:
            self.kafka.truncate(log, max(log.earliest, log.end - what.records))
            self.kafka.write(log, what.then)

    def _do_delete(self, _: op.Delete) -> None:
        self.kafka.serve(TOPIC, None)

    def _do_create(self, what: op.Create) -> None:
        life = self.kafka.create(TOPIC, what.partitions, f"cluster-{what.cluster}")
        for log in life.logs:
            self.kafka.write(log, what.said)

    def _do_bring_back(self, what: op.BringBack) -> None:
        self.kafka.serve(TOPIC, self.kafka.lives[what.life % len(self.kafka.lives)])

    def _do_add_partition(self, _: op.AddPartition) -> None:
        if (life := self.kafka.topics.get(TOPIC)) is not None and len(life.logs) < 4:
            life.logs.append(Log())

    def _do_stale(self, what: op.Stale) -> None:
        now = self.kafka.topics.get(TOPIC)
        old = KafkaModel(
            topics={}
            if now is None or what.partitions == 0
            else {
                TOPIC: Life(
                    topic=TOPIC,
                    topic_id=now.topic_id,
                    cluster_id=now.cluster_id,
                    logs=[
                        Log(earliest=log.earliest, end=max(log.earliest, log.end - what.records))
                        for log in now.logs[: what.partitions]
                    ],
                )
            }
        )
        said = old.look()
        self.kafka.stale = [said] * what.answers

    def _do_configure(self, what: op.Configure) -> None:
        self.configure(
            levels=None if what.levels is None else list(what.levels),
            line_format=what.line_format,
            offsets=what.offsets,
            limit=what.limit,
        )

    # --- minutes

    def _do_plan(self, _: op.Plan) -> None:
        planned = minute.plan_batch(self.settings, self.name)
        if planned.batch is not None:
            self._must_be_so(_IS_THERE, planned.batch.batch_id)

    def _do_run_minute(self, _: op.RunMinute) -> None:
        if (batch := self._choose_batch(0, state="planned", kind="ingest")) is not None:
            self._run(batch)

    def _do_run(self, what: op.Run) -> None:
        if (batch := self._choose_batch(what.batch)) is not None:
            self._run(batch)

    def _do_run_open(self, what: op.RunOpen) -> None:
        if (batch := self._choose_batch(what.batch, state="planned")) is not None:
            self._run(batch)

    def _run(self, batch: Row) -> None:
        calm = not self._disturbed and not self.kafka.stale
        explained = self._what_prevents(batch["batch_id"]) if calm else ()
        try:
            ran = minute.run_batch(self.settings, batch["batch_id"], self._spark)
        except (DataLossError, FencedError) as error:
            if calm and not explained:
                raise Unexpected(f"batch {batch['batch_id']} must be counted: {error}") from error
            raise
        self._must_be_so(_IS_COMMITTED, batch["batch_id"])
        if calm and explained:
            raise Unexpected(f"batch {batch['batch_id']} was run in spite of {explained}")
        if calm and ran.committed != (batch["state"] == "planned"):
            raise Unexpected(f"batch {batch['batch_id']}: committed is {ran.committed}")

    def _do_stop(self, what: op.Stop) -> None:
        self._kill_while(op.Stop, what.batch)

    def _do_kill(self, what: op.Kill) -> None:
        self._kill_while(op.Kill, what.batch)

    def _kill_while(self, how: type[op.Stop] | type[op.Kill], number: int) -> None:
        if (batch := self._choose_batch(number, state="planned")) is not None:
            self._kill = how
            minute.run_batch(self.settings, batch["batch_id"], self._spark)

    def _do_go_on(self, what: op.GoOn) -> None:
        if not self.workers:
            return
        worker = self.workers.pop(what.worker % len(self.workers))
        if not self.go_on(worker):
            self.outcomes["GoOn: too late"] += 1

    def go_on(self, worker: Worker) -> bool:
        """A stopped worker commits what it has read, and may be too late.

        Returns:
            Whether it has committed.
        """
        calm = not self._disturbed
        batch_id = worker.batch.batch_id
        found = self.rows("select state, attempt from batch where batch_id = %s", (batch_id,))
        now = found[0] if found else {"state": "forgotten", "attempt": 0}
        late = now["state"] == "planned" and now["attempt"] != worker.batch.attempt
        try:
            committed = minute.commit_once(
                worker.settings, worker.batch, worker.pipeline, worker.result
            )
        except (FencedError, UnknownBatchError):
            if calm and now["state"] == "committed":
                raise
            return False
        self._must_be_so(_IS_COMMITTED, batch_id)
        if calm and (late or now["state"] in {"abandoned", "forgotten"}):
            raise Unexpected(f"a fenced attempt of batch {batch_id} was let through")
        if calm and committed != (now["state"] == "planned"):
            raise Unexpected(f"batch {batch_id} was {now['state']}, committed is {committed}")
        return committed

    def _do_age(self, _: op.Age) -> None:
        self.execute(
            "update batch set claimed_at = claimed_at - interval 1 day where pipeline = %s"
            " and state = 'planned'",
            (self.name,),
        )

    def _do_set_clock(self, what: op.SetClock) -> None:
        self.wire.skew = timedelta(hours=what.hours)

    # --- what a person decides

    def _do_abandon(self, what: op.Abandon) -> None:
        if (batch := self._choose_batch(what.batch)) is not None:
            self._abandon(batch["batch_id"])

    def _abandon(self, batch_id: int) -> None:
        self.database.run(
            lambda tx: batches.abandon(tx, batch_id, by="a person", reason="a test"),
        )
        self._must_be_so(_IS_ABANDONED, batch_id)

    def _do_accept(self, what: op.Accept) -> None:
        with self.database.transaction(read_only=True) as tx:
            seen = find_losses(tx, self.name, only_open=True)
        if seen and what.loss is not None:
            seen = [seen[what.loss % len(seen)]]

        def decide(tx: Any) -> None:
            lock_pipeline(tx, self.name, self.pipeline.table)
            accept_losses(tx, self.name, seen, by="a person", reason="a test")

        self.database.run(decide)
        for loss in seen:
            is_decided = "select 1 from lost_range where lost_range_id = %s and state <> 'open'"
            self._must_be_so(is_decided, loss.lost_range_id)

    def _do_adopt(self, what: op.Adopt) -> None:
        said = self.kafka.snapshot([TOPIC])
        if TOPIC not in said.topics:
            return
        adoption = Adoption(
            topic=TOPIC,
            cluster_id=said.cluster_id,
            topic_id=said.topics[TOPIC].topic_id,
            starts={
                p.partition: offset
                for p, offset in first_offsets(said, [TOPIC], what.start, {}).items()
            },
        )

        self.adopted.setdefault((adoption.cluster_id, adoption.topic_id), set()).add(what.start)

        def decide(tx: Any) -> None:
            lock_pipeline(tx, self.name, self.pipeline.table)
            adopt_topic(tx, self.name, adoption, by="a person", reason="a test")

        self.database.run(decide)
        is_adopted = (
            "select 1 from topic_incarnation where topic_id = %s and state = 'current'"
            " and cluster_id = %s and pipeline = %s"
        )
        self._must_be_so(is_adopted, adoption.topic_id, adoption.cluster_id, self.name)

    # --- replays

    def _do_ask_ranges(self, what: op.AskRanges) -> None:
        if ranges := tuple(r for span in what.spans if (r := self._range(span)) is not None):
            self._ask(RangesAsked(ranges=ranges))

    def _range(self, span: op.Span) -> OffsetRange | None:
        if (log := self._log(span.partition)) is None or log.end == 0:
            return None
        life = self.kafka.topics[TOPIC]
        start = span.start * log.end // 16
        return OffsetRange(
            partition=TopicPartition(topic=TOPIC, partition=span.partition % len(life.logs)),
            from_offset=start,
            until_offset=start + max(1, span.length * log.end // 16),
        )

    def _do_ask_all(self, what: op.AskAll) -> None:
        numbers = () if what.partition is None else (what.partition,)
        start = 0 if what.from_start else None
        self._ask(BoundsAsked(topic=TOPIC, partitions=numbers, from_offset=start))

    def _do_ask_batch(self, what: op.AskBatch) -> None:
        if (batch := self._choose_batch(what.batch)) is not None:
            self._ask(BatchAsked(batch_id=batch["batch_id"]))

    def _do_ask_minutes(self, what: op.AskMinutes) -> None:
        first, last = (f"2017-07-30 14:{what.first + more:02}" for more in (0, what.minutes))
        self._ask(MinutesAsked(first=first, last=last))

    def _do_ask_times(self, what: op.AskTimes) -> None:
        since = moment_of(what.since)
        self._ask(TimesAsked(since=since, before=since + timedelta(seconds=1 + what.ticks)))

    def _ask(self, request: Request) -> None:
        shown = replay.preview_replay(self.settings, self.name, request)
        requester = Requester(name="a test", version="1", run_id=self.run_id)
        asked = replay.request_replay(self.settings, shown, reason="a test", requester=requester)
        self._must_be_so("select 1 from replay where replay_id = %s", asked.replay_id)

    def _do_run_replay(self, what: op.RunReplay) -> None:
        if (found := self._choose_replay(what.replay)) is None:
            return
        for _ in replay.run_replay(self.settings, found, self._spark):
            pass
        if left := self._left(found):
            raise Unexpected(f"replay {found} has ended with {left} left")

    def _do_run_replay_batch(self, what: op.RunReplayBatch) -> None:
        batch = self._choose_batch(what.batch, kind="replay")
        if batch is not None:
            for ran in replay.run_replay_batch(self.settings, batch["batch_id"], self._spark):
                self._must_be_so(_IS_COMMITTED, ran.batch.batch_id)

    def _do_replan(self, what: op.Replan) -> None:
        batch = self._choose_batch(what.batch, kind="replay")
        if batch is not None:
            later = replay.replan_batch(self.settings, batch["batch_id"])
            self._must_be_so(_IS_ABANDONED, batch["batch_id"])
            for batch_id in later:
                self._must_be_so(_IS_THERE, batch_id)

    def _do_cancel(self, what: op.Cancel) -> None:
        if (found := self._choose_replay(what.replay)) is not None:
            self._cancel(found)

    def _cancel(self, replay_id: int) -> None:
        def work(tx: Any) -> None:
            lock_pipeline(tx, self.name, self.pipeline.table)
            replays.cancel(tx, replay_id, by="a person", reason="a test")

        self.database.run(work)
        is_over = "select 1 from replay where replay_id = %s and state = 'cancelled'"
        self._must_be_so(is_over, replay_id)

    def _left(self, replay_id: int) -> list[Row]:
        return self.rows(
            "select batch_id from batch where replay_id = %s and state = 'planned'"
            " order by batch_id",
            (replay_id,),
        )

    def _is_out_of_reach(self, batch_id: int) -> bool:
        """Whether Kafka no longer serves what a batch of a replay needs, as planned or anew."""
        if any(why != "overtaken" for why in self._what_prevents(batch_id)):
            return True
        for s in self.rows(_SEGMENTS_OF_BATCH, (batch_id,)):
            log = self.kafka.log(s["cluster_id"], s["topic_id"], s["partition_id"])
            place = (s["incarnation_id"], s["partition_id"], s["until_offset"], s["from_offset"])
            touched = [s, *self.rows(_TILES, (*place, *place))]
            low = min(tile["from_offset"] for tile in touched)
            high = max(tile["until_offset"] for tile in touched)
            records = sum(low <= offset < high for offset in log.held)
            holes = records < high - low
            if low < log.earliest or high > log.end or holes:
                return True
            if any(tile["state"] == "folded" for tile in touched):
                return True
        return False

    def end_replay(self, replay_id: int) -> None:
        """Count what is left of a replay, or give it up where Kafka no longer serves it.

        Raises:
            AssertionError: It cannot be counted, and Kafka is not why.
        """
        for _ in range(50):
            if not (left := self._left(replay_id)):
                return
            batch_id = left[0]["batch_id"]
            try:
                replay.run_replay_batch(self.settings, batch_id, self._spark)
            except OvertakenError as error:
                raise Unexpected(f"batch {batch_id} is overtaken by nobody: {error}") from error
            except (DataLossError, ReplayRefusedError) as error:
                # Planned anew, it may be others that cannot be counted.
                if not any(self._is_out_of_reach(row["batch_id"]) for row in self._left(replay_id)):
                    raise Unexpected(f"batch {batch_id} must be counted: {error}") from error
                self._cancel(replay_id)
        raise Unexpected(f"replay {replay_id} never ends")

    def _do_prune(self, _: op.Prune) -> None:
        prune.prune(self.settings, self.name, timedelta(0), lambda *_: None)

    def _do_audit(self, _: op.Audit) -> None:
        verdict = audit_ledger(self.context(), self.name)
        if not verdict.holds:
            raise Unexpected(f"the audit has found {verdict.findings}")

    # --- choosing

    def _choose_batch(
        self, number: int, *, state: str | None = None, kind: str | None = None
    ) -> Row | None:
        found = self.rows(
            "select batch_id, state, kind from batch where pipeline = %s"
            " and (%s is null or state = %s) and (%s is null or kind = %s) order by batch_id desc",
            (self.name, state, state, kind, kind),
        )
        return found[number % len(found)] if found else None

    def _choose_replay(self, number: int) -> int | None:
        found = self.rows(
            "select replay_id from replay where pipeline = %s order by replay_id desc",
            (self.name,),
        )
        return int(found[number % len(found)]["replay_id"]) if found else None

    # --- in place of Spark

    @contextmanager
    def count_ranges(
        self,
        _: "SparkSession",
        __: KafkaSettings,
        pipeline: Pipeline,
        ranges: Sequence[OffsetRange],
        *,
        may_miss: Collection[TopicPartition] = (),
    ) -> Iterator[Counts]:
        """In place of :func:`tally.spark.counting.count_ranges`; reads by name, as Spark does."""
        batch = self._batches[-1]
        if self._kill is op.Kill:
            raise Killed
        self.reads[batch.batch_id, batch.attempt] = Read(
            tick=self.kafka.tick,
            levels=frozenset(pipeline.levels),
            line_format=str(pipeline.line_format),
        )
        with Spool[Contribution]() as contributions, Spool[DeadLetter]() as dead_letters:
            totals = {}
            for r in ranges:
                held = self._read(r)
                totals[r.partition] = _totals(held, pipeline)
                for contribution in _contributions(r.partition, held, pipeline):
                    contributions.append(contribution)
                for letter in _dead_letters(r.partition, held, pipeline):
                    dead_letters.append(letter)
            check_totals(pipeline, ranges, totals, may_miss=may_miss)
            self.wire.gap()
            yield Counts(totals=totals, contributions=contributions, dead_letters=dead_letters)

    def _read(self, r: OffsetRange) -> dict[int, Record]:
        life = self.kafka.topics.get(r.partition.topic)
        log = life.logs[r.partition.partition] if life and _has(life, r) else None
        if log is None or log.earliest > r.from_offset or log.end < r.until_offset:
            raise DataLossError(f"Kafka no longer serves all of {r} (a test)")
        return {o: log.held[o] for o in range(r.from_offset, r.until_offset) if o in log.held}

    @staticmethod
    def _spark() -> AbstractContextManager[Any]:
        return nullcontext(None)

    def count_and_commit(
        self, real: Callable[..., T], settings: Settings, batch: Batch, *a: Any
    ) -> T:
        """Around :func:`tally.pipeline.minute._count_and_commit`: says whose ranges are counted."""
        self._batches.append(batch)
        try:
            return real(settings, batch, *a)
        finally:
            self._batches.pop()

    def commit_once(
        self,
        real: Callable[..., bool],
        settings: Settings,
        batch: Batch,
        pipeline: Pipeline,
        result: Result,
    ) -> bool:
        """Around :func:`tally.pipeline.minute.commit_once`: here a worker may be stopped."""
        if self._kill is op.Stop:
            kept = Result(
                totals=dict(result.totals),
                contributions=list(result.contributions),
                dead_letters=list(result.dead_letters),
                version=result.version,
                format_fingerprint=result.format_fingerprint,
            )
            self.workers.append(Worker(settings, batch, pipeline, kept))
            raise Killed
        try:
            return real(settings, batch, pipeline, result)
        except OvertakenError as error:
            self.outcomes[error.code] += 1
            raise

    def release(
        self, real: Callable[[Settings, Batch], None], settings: Settings, batch: Batch
    ) -> None:
        """Around :func:`tally.pipeline.minute._release`: who is killed releases nothing."""
        if self._kill is None:
            real(settings, batch)

    # --- what is to be expected

    def _what_prevents(self, batch_id: int) -> tuple[str, ...]:
        """Why a batch cannot be counted as things are; empty when it must be."""
        (batch,) = self.rows("select * from batch where batch_id = %s", (batch_id,))
        if batch["state"] == "committed":
            return ()
        if batch["state"] == "abandoned":
            return ("abandoned",)
        sparse = self.pipeline.offsets == "sparse"
        why: list[str] = []
        for s in self.rows(_SEGMENTS_OF_BATCH, (batch_id,)):
            why += self._what_prevents_segment(batch, s, sparse=sparse)
        return tuple(why)

    def _what_prevents_segment(self, batch: Row, s: Row, *, sparse: bool) -> Iterator[str]:
        life = self.kafka.topics.get(s["topic"])
        if life is None or (life.topic_id, life.cluster_id) != (s["topic_id"], s["cluster_id"]):
            yield "another topic"
            return
        if s["partition_id"] >= len(life.logs):
            yield "no such partition"
            return
        log = life.logs[s["partition_id"]]
        span = range(s["from_offset"], s["until_offset"])
        if log.earliest > span.start or log.end < span.stop:
            yield "not held"
        records = sum(o in log.held for o in span)
        if records < len(span) and not sparse and not s["may_miss"]:
            yield "holes"
        if batch["kind"] == BatchKind.INGEST and s["next_offset"] != span.start:
            yield "the ledger stands elsewhere"
        if batch["kind"] == BatchKind.REPLAY:
            if records < (s["records_replaced"] or 0):
                yield "fewer records than were counted"
            if s["replaced"] != s["replaced_live"] or s["live_in_range"] != s["replaced_live"]:
                yield "overtaken"


def snake_case(name: str) -> str:
    """``RunMinute`` as ``run_minute``."""
    return re.sub("(?<!^)(?=[A-Z])", "_", name).lower()


_SEGMENTS_OF_BATCH = """
    select s.*, i.topic, i.topic_id, i.cluster_id, o.next_offset,
        exists (select 1 from lost_range l where l.incarnation_id = s.incarnation_id
            and l.partition_id = s.partition_id and l.cause = 'missing' and l.state = 'accepted'
            and l.from_offset <= s.from_offset and l.until_offset >= s.until_offset) as may_miss,
        (select count(*) from replacement r where r.segment_id = s.segment_id) as replaced,
        (select count(*) from replacement r join segment x on x.segment_id = r.replaced_id
            where r.segment_id = s.segment_id and x.state = 'live') as replaced_live,
        (select sum(x.records) from replacement r join segment x on x.segment_id = r.replaced_id
            where r.segment_id = s.segment_id) as records_replaced,
        (select count(*) from segment x where x.incarnation_id = s.incarnation_id
            and x.partition_id = s.partition_id and x.state in ('live', 'folded')
            and x.from_offset < s.until_offset and x.until_offset > s.from_offset) as live_in_range
    from segment s join topic_incarnation i using (incarnation_id)
    join partition_offset o using (incarnation_id, partition_id)
    where s.batch_id = %s order by s.partition_id, s.from_offset
"""

_IS_THERE = "select 1 from batch where batch_id = %s"
_IS_ABANDONED = "select 1 from batch where batch_id = %s and state = 'abandoned'"
_IS_COMMITTED = "select 1 from batch where batch_id = %s and state = 'committed'"

_TILES = """
    select from_offset, until_offset, state from segment where incarnation_id = %s
        and partition_id = %s and state in ('live', 'folded')
        and from_offset < %s and until_offset > %s
    union all
    select from_offset, until_offset, state from lost_range where incarnation_id = %s
        and partition_id = %s and state = 'accepted' and cause = 'expired'
        and from_offset < %s and until_offset > %s
"""


def _has(life: Life, r: OffsetRange) -> bool:
    return r.partition.partition < len(life.logs)


def _totals(held: dict[int, Record], pipeline: Pipeline) -> SegmentTotals:
    if not held:
        return EMPTY_TOTALS
    levels = [r.level(str(pipeline.line_format)) for r in held.values()]
    matched = sum(level in pipeline.levels for level in levels)
    malformed = levels.count(None)
    return SegmentTotals(
        records=len(held),
        matched=matched,
        unmatched=len(held) - matched - malformed,
        malformed=malformed,
        first_offset=min(held),
        last_offset=max(held),
    )


def _contributions(
    partition: TopicPartition, held: dict[int, Record], pipeline: Pipeline
) -> list[Contribution]:
    counts = Counter(
        r.log_time for r in held.values() if r.level(str(pipeline.line_format)) in pipeline.levels
    )
    return [
        Contribution(partition=partition, log_time=log_time, log_count=count)
        for log_time, count in counts.items()
    ]


def _dead_letters(
    partition: TopicPartition, held: dict[int, Record], pipeline: Pipeline
) -> list[DeadLetter]:
    return [
        DeadLetter(partition=partition, offset=offset, reason="no-level", value=b"?", value_bytes=1)
        for offset, r in held.items()
        if r.level(str(pipeline.line_format)) is None
    ]
