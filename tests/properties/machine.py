"""The state machine: the possible sequences of operations, and the checks after each step."""

from collections.abc import Callable, Sequence

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.properties import operations as op
from tests.properties.disturbance import Disturbance, Rival
from tests.properties.faults import COMMIT, PROFILES, SLOW, Fault, FaultKind, Profile
from tests.properties.finish import finish
from tests.properties.kafka_model import LEVELS, Kind
from tests.properties.oracle import Oracle
from tests.properties.pipeline import PipelineUnderTest

# Numbers only choose; larger ones shrink to these.
NUMBER = st.integers(0, 5)


def _said(kinds: Sequence[Kind | None], most: int) -> st.SearchStrategy[tuple[op.Said, ...]]:
    one = st.tuples(st.sampled_from(kinds), st.integers(0, 3))
    return st.lists(one, min_size=1, max_size=most).map(tuple)


SAID = _said([Kind.ERROR, Kind.ERROR, *Kind], 6)
SAID_WITH_MARKERS = _said([Kind.ERROR, None, Kind.WARN], 5)
SPANS = st.lists(
    st.builds(op.Span, NUMBER, st.integers(0, 16), st.integers(0, 16)), min_size=1, max_size=3
).map(tuple)

TROUBLE = st.one_of(
    st.builds(op.Expire, NUMBER, st.integers(1, 12)),
    st.builds(op.Expire, NUMBER, st.integers(1, 4)),
    st.builds(op.Restore, NUMBER),
    st.builds(op.Compact, NUMBER, st.integers(0, 30)),
    st.builds(op.Truncate, NUMBER, st.integers(1, 8), st.just(()) | SAID),
    st.builds(op.Delete),
    st.builds(op.Create, st.integers(1, 3), st.integers(0, 1), SAID),
    st.builds(op.BringBack, NUMBER),
    st.builds(op.AddPartition),
    st.builds(op.Stale, st.integers(1, 3), st.integers(0, 2), st.integers(0, 5)),
)
ASK_ALL = st.builds(op.AskAll, st.none() | st.integers(0, 1), st.sampled_from([False, False, True]))
ASK = st.one_of(
    st.builds(op.AskRanges, SPANS),
    ASK_ALL,
    st.builds(op.AskBatch, NUMBER),
    st.builds(op.AskMinutes, st.integers(0, 3), st.integers(0, 2)),
    st.builds(op.AskTimes, st.integers(0, 40), st.integers(0, 20)),
)

BATCHES = st.one_of(st.builds(op.Plan), st.builds(op.RunOpen, NUMBER), st.builds(op.Run, NUMBER))
REPLAYS = st.one_of(
    st.builds(op.RunReplay, NUMBER),
    st.builds(op.RunReplayBatch, NUMBER),
    st.builds(op.RunReplayBatch, NUMBER),
    st.builds(op.Replan, NUMBER),
)
DECISIONS = st.one_of(
    st.builds(op.Age),
    st.builds(op.Abandon, NUMBER),
    st.builds(op.Cancel, NUMBER),
    st.builds(op.Accept, st.none() | NUMBER),
    st.builds(op.Adopt, st.sampled_from(["earliest", "latest"])),
)

# Operations of a rival during another operation; each is also a rule of its own.
BUSY = st.one_of(
    BATCHES,
    REPLAYS,
    DECISIONS,
    st.builds(op.RunMinute),
    st.builds(op.AskAll, st.none(), st.booleans()),
    st.builds(op.AskRanges, SPANS),
    st.builds(op.Expire, NUMBER, st.integers(1, 9)),
    st.builds(op.Truncate, NUMBER, st.integers(1, 5), SAID),
    st.builds(op.Create, st.integers(1, 3), st.integers(0, 1), SAID),
    st.builds(op.BringBack, NUMBER),
    st.builds(op.Delete),
    st.builds(op.AddPartition),
    st.builds(op.Produce, NUMBER, SAID | SAID_WITH_MARKERS),
    st.builds(op.Compact, NUMBER, st.integers(0, 30)),
    st.builds(op.GoOn, NUMBER),
)

# What others do while a process is paused.
SUCCESSORS = st.lists(
    st.sampled_from([op.Age(), op.Plan(), op.RunMinute(), op.RunReplay(0), op.RunReplayBatch(0)]),
    min_size=1,
    max_size=5,
).map(tuple)


ACCOMPANIED = (FaultKind.PAUSED, FaultKind.PAUSED_AND_LOST, FaultKind.CLOCK_MOVED)


def kinds(are_meant: Callable[[Profile], bool]) -> st.SearchStrategy[FaultKind]:
    """Fault kinds by where they can happen; slow kinds are left to the campaign."""
    quick = [kind for kind in FaultKind if kind not in {*SLOW, *ACCOMPANIED}]
    return st.sampled_from([kind for kind in quick if are_meant(PROFILES[kind])])


DISTURBANCES: st.SearchStrategy[Disturbance | None] = st.one_of(
    st.none(),
    st.none(),
    st.builds(Fault, st.integers(1, 3), kinds(lambda profile: profile.where == COMMIT)),
    st.builds(Fault, st.integers(1, 25), kinds(lambda profile: profile.meets("COMMIT"))),
    st.builds(Fault, st.integers(1, 8), kinds(lambda profile: not profile.meets("COMMIT"))),
    st.builds(Fault, st.integers(1, 6), st.just(FaultKind.PAUSED), SUCCESSORS),
    st.builds(Fault, st.integers(1, 25), st.just(FaultKind.PAUSED_AND_LOST), SUCCESSORS),
    st.builds(
        Fault,
        st.integers(1, 25),
        st.just(FaultKind.CLOCK_MOVED),
        st.tuples(st.builds(op.SetClock, st.integers(-72, 72))),
    ),
    st.builds(Rival, st.integers(1, 8), BUSY),
    st.builds(Rival, st.integers(1, 8), BUSY),
)


def _one(
    name: str,
    operations: st.SearchStrategy[op.Operation],
    disturbances: st.SearchStrategy[Disturbance | None] = DISTURBANCES,
) -> Callable[..., None]:
    """A rule: one of the operations, with a disturbance."""

    def step(self: "Machine", what: op.Operation, disturbance: Disturbance | None) -> None:
        self.pipeline.do(what, disturbance)

    step.__name__ = name  # Hypothesis prints it
    return rule(what=operations, disturbance=disturbances)(step)


class Machine(RuleBasedStateMachine):
    """All operations in any order; :class:`Oracle` checks after each step."""

    def __init__(self, pipeline: PipelineUnderTest) -> None:
        super().__init__()
        self.pipeline = pipeline
        self.oracle = Oracle(self.pipeline)

    @initialize(
        beginning=st.builds(
            op.Beginning,
            partitions=st.integers(1, 3),
            start=st.sampled_from(["earliest", "latest"]),
            offsets=st.sampled_from(["dense", "dense", "sparse"]),
            limit=st.sampled_from([1000, 4, 2]),
            delivery=st.sampled_from(op.DELIVERIES),
            said=SAID,
        )
    )
    def begin(self, beginning: op.Beginning) -> None:
        """A topic with some lines, counted once."""
        self.pipeline.begin(beginning)
        self.pipeline.do(op.Plan())
        self.pipeline.do(op.RunMinute())

    @invariant()
    def everything_holds(self) -> None:
        """See :class:`Oracle`."""
        self.oracle.check()
        self.pipeline.outcomes["steps"] += 1

    # --- minutes

    @rule(
        what=st.builds(op.Produce, NUMBER, SAID | SAID | SAID_WITH_MARKERS),
        disturbance=DISTURBANCES,
    )
    def minute(self, what: op.Operation, disturbance: Disturbance | None) -> None:
        """Some lines, and the batch that counts them; the most frequent step."""
        self.pipeline.do(what)
        self.pipeline.do(op.Plan())
        self.pipeline.do(op.RunMinute(), disturbance)

    @rule(
        what=st.builds(op.Produce, NUMBER, SAID),
        kind=st.sampled_from([FaultKind.COMMIT_LOST, FaultKind.COMMIT_ANSWER_LOST]),
    )
    def minute_without_an_answer(self, what: op.Operation, kind: FaultKind) -> None:
        """The answer to the COMMIT of a batch is lost; the one before is the claim's."""
        self.pipeline.do(what)
        self.pipeline.do(op.Plan())
        self.pipeline.do(op.RunMinute(), Fault(2, kind))

    @rule(what=st.lists(st.builds(op.Produce, NUMBER, SAID), min_size=2, max_size=4))
    def quiet_minutes(self, what: list[op.Operation]) -> None:
        """Several undisturbed batches, so that there are segments to replace."""
        for produce in what:
            self.pipeline.do(produce)
            self.pipeline.do(op.Plan())
            self.pipeline.do(op.RunMinute())

    # Some lines, or a transaction of them; nothing is planned yet.
    produce = _one("produce", st.builds(op.Produce, NUMBER, SAID | SAID_WITH_MARKERS), st.none())

    work = _one("work", BATCHES)  # a step of a batch; a committed one may be run again

    @rule(
        first=st.builds(op.Produce, NUMBER, SAID) | ASK,
        how=st.sampled_from([op.Stop(0), op.Stop(0), op.Kill(0)]),
    )
    def stop_a_worker(self, first: op.Operation, how: op.Operation) -> None:
        """A new batch, and a worker that is stopped before its commit."""
        self.pipeline.do(first)
        self.pipeline.do(op.Plan())
        self.pipeline.do(how)

    @rule(what=st.builds(op.Produce, NUMBER, SAID))
    def fence_a_worker(self, what: op.Operation) -> None:
        """A worker resumes after another attempt has claimed its batch."""
        for operation in (what, op.Plan(), op.Stop(0), op.Stop(0), op.GoOn(-2)):
            self.pipeline.do(operation)

    go_on = _one("go_on", st.builds(op.GoOn, NUMBER))  # a stopped worker resumes

    # The database is restored under a worker, and the batch is planned again with other ranges.
    dump = _one("dump", st.builds(op.Dump), st.none())
    restore = _one("restore", st.builds(op.RestoreDump), st.none())

    @rule(
        first=st.builds(op.Produce, NUMBER, SAID) | ASK,
        then=st.builds(op.Produce, NUMBER, SAID),
        late=st.lists(st.sampled_from([op.Stop(0), op.GoOn(0), op.RunMinute()]), max_size=3),
    )
    def restore_under_a_worker(
        self, first: op.Operation, then: op.Operation, late: list[op.Operation]
    ) -> None:
        """A batch is read, restored away, and planned again with other ranges."""
        before = (op.Dump(), first, op.Plan(), op.Stop(0))
        for operation in (*before, op.RestoreDump(), then, op.Plan(), *late, op.GoOn(0)):
            self.pipeline.do(operation)

    # --- failures, and operators' decisions

    trouble = _one("trouble", TROUBLE, st.none())  # Kafka loses records, or its topic changes

    @rule(what=DECISIONS, disturbance=DISTURBANCES)
    def decide(self, what: op.Operation, disturbance: Disturbance | None) -> None:
        """An operator makes a decision."""
        self.pipeline.do(op.Plan())
        self.pipeline.do(what, disturbance)

    @rule(start=st.sampled_from(["earliest", "latest"]))
    def repair(self, start: str) -> None:
        """Decide everything that blocks the next batch."""
        for operation in (op.Plan(), op.Accept(None), op.Adopt(start), op.Plan(), op.RunMinute()):
            self.pipeline.do(operation)

    configure = _one(
        "configure",
        st.builds(
            op.Configure,
            levels=st.none()
            | st.lists(st.sampled_from(LEVELS), min_size=1, unique=True).map(tuple),
            line_format=st.sampled_from([None, "fixed", "log4j"]),
            offsets=st.sampled_from([None, "dense", "sparse"]),
            limit=st.sampled_from([None, 1, 3, 5, 1000]),
            delivery=st.sampled_from([None, None, "batch", "partition"]),
        ),
        st.none(),
    )

    # --- replays

    ask = _one("ask", ASK)  # a replay is recorded and not run

    @rule(what=ASK, disturbance=DISTURBANCES)
    def replay(self, what: op.Operation, disturbance: Disturbance | None) -> None:
        """A replay is recorded and run."""
        self.pipeline.do(what)
        self.pipeline.do(op.RunReplay(0), disturbance)

    @rule(
        levels=st.sets(st.sampled_from(LEVELS), min_size=1).map(sorted).map(tuple),
        line_format=st.sampled_from([None, "fixed", "log4j"]),
        what=ASK_ALL | ASK,
        disturbance=DISTURBANCES,
    )
    def replay_otherwise(
        self,
        levels: tuple[str, ...],
        line_format: str | None,
        what: op.Operation,
        disturbance: Disturbance | None,
    ) -> None:
        """A replay with other rules: minutes gain lines, lose some, or lose all."""
        self.pipeline.do(op.Configure(levels=levels, line_format=line_format))
        self.pipeline.do(what)
        self.pipeline.do(op.RunReplay(0), disturbance)

    # Any replay is resumed, with its batches in any order.
    go_on_with_a_replay = _one("go_on_with_a_replay", REPLAYS)

    prune = _one("prune", st.just(op.Prune()))

    @rule(what=st.builds(op.Produce, NUMBER, SAID), disturbance=DISTURBANCES)
    def prune_beside_a_replay(self, what: op.Operation, disturbance: Disturbance | None) -> None:
        """Old batches are folded while the newest is to be replayed."""
        minute = (what, op.Plan(), op.RunMinute())
        for operation in (*minute, op.Expire(0, 9), op.Expire(1, 9), *minute, op.AskBatch(0)):
            self.pipeline.do(operation)
        self.pipeline.do(op.Prune(), disturbance)

    audit = _one("audit", st.just(op.Audit()))  # it holds beside concurrent operations, too

    # --- the end

    def teardown(self) -> None:
        """After any sequence all losses can be decided and all records counted."""
        finish(self.pipeline, self.oracle)
