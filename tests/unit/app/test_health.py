"""The health of a pipeline, from what is known of it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.unit.values import P0, blank, kafka, known, pipeline, span

from tally.errors import KafkaUnavailableError
from tally.ledger.decisions import LossRecord
from tally.ledger.line_sets import Unshown
from tally.ledger.records import BatchRecord
from tally.ledger.rules import Understood
from tally.status.health import Health, ProblemReason, problems_of, worst_of
from tally.status.state import PipelineState
from tally.status.surroundings import Surroundings
from tally.views import ErrorView

NOW = datetime(2026, 11, 20, 14, 0, 30, tzinfo=UTC)
SECOND = timedelta(seconds=1)
ERROR = ErrorView.of(KafkaUnavailableError("no answer", next_step="start it"))
SOUND = PipelineState(
    pipeline=pipeline(max_lag_offsets=100),
    now=NOW,
    known=known(0),
    understood=Understood(records=10, malformed=5),
    kafka=kafka((0, 0)),
)
BEFORE = SOUND.overdue_before
PAUSED = Surroundings(paused={"first": True})
LOST = {"known": known(1, 0), "kafka": kafka((4, 9), (0, 9))}
"""The first of two partitions is blocked."""
ONE = {"kafka": kafka((0, 1)), "due_until": {P0: None}}
"""A record waits, and a batch of it is due."""


def read(**changes: Any) -> PipelineState:
    """What is known when something is as no sound pipeline has it."""
    return replace(SOUND, **changes)


def loss(partition: int) -> LossRecord:
    return blank(LossRecord, state="open", range=span(3, 6, partition))


def test_each_problem_is_named_once_and_failures_come_before_warnings() -> None:
    """Failures keep something from being counted; the health is that of the first problem."""
    Reason, ok, warn, fail = ProblemReason, Health.OK, Health.WARN, Health.FAIL  # noqa: N806
    both = [Reason.BLOCKED, Reason.OPEN_LOSS]
    worst_last = {**LOST, "surroundings": PAUSED, "kafka": kafka((4, 9), (0, 101))}
    overdue = {**ONE, "overdue_until": {P0: None}}
    cases: tuple[tuple[dict[str, Any], list[ProblemReason], Health], ...] = (
        # Half of the records malformed is still within the default.
        ({}, [], ok),
        # Without tables nothing is late.
        ({**overdue, "unprepared": ERROR}, [Reason.UNPREPARED], fail),
        ({"kafka": None, "kafka_error": ERROR}, [Reason.KAFKA_UNANSWERED], fail),
        ({"surroundings": Surroundings(engine_error=ERROR)}, [Reason.ENGINE_UNANSWERED], fail),
        (LOST, [Reason.BLOCKED], fail),
        ({"kafka": None, "open_losses": (loss(0),)}, [Reason.OPEN_LOSS], fail),
        ({"understood": Understood(records=10, malformed=6)}, [Reason.MALFORMED], warn),
        # 2 of 3 lines, beside 7 records that begin none.
        (
            {"understood": Understood(records=10, malformed=2, continuations=7)},
            [Reason.MALFORMED],
            warn,
        ),
        # And where all begin none.
        ({"understood": Understood(records=10, continuations=10)}, [Reason.MALFORMED], warn),
        ({"understood": Understood(records=10, has_matched=False)}, [Reason.NOTHING_MATCHED], warn),
        (
            {"understood": Understood(records=5, malformed=5, has_matched=False)},
            [Reason.MALFORMED],
            warn,
        ),
        ({"alternating": ("a (1)", "b (2)")}, [Reason.RULES_ALTERNATE], warn),
        ({"kafka": kafka((0, 100))}, [], ok),
        ({"kafka": kafka((0, 101))}, [Reason.LAG], warn),
        ({"surroundings": PAUSED}, [Reason.PAUSED], warn),
        (worst_last, [Reason.BLOCKED, Reason.LAG, Reason.PAUSED], fail),
        # Where Kafka was asked, the partition of a loss is blocked, or all of its topic.
        ({**LOST, "open_losses": (loss(0),)}, [Reason.BLOCKED], fail),
        ({"known": known(1, topic_id="old"), "open_losses": (loss(0),)}, [Reason.BLOCKED], fail),
        ({**LOST, "open_losses": (loss(0), loss(1))}, both, fail),
        # Late is what waits longer than two starts and the patience of one batch.
        ({"open_batches": [blank(BatchRecord, planned_at=BEFORE - SECOND)]}, [Reason.LATE], fail),
        ({"open_batches": [blank(BatchRecord, planned_at=BEFORE)]}, [], ok),
        (overdue, [Reason.LATE], fail),
        # Before that no task has even planned a batch of it.
        (ONE, [Reason.LATE], warn),
        ({**ONE, "open_batches": [blank(BatchRecord, planned_at=NOW)]}, [], ok),
    )
    wrong = []
    for change, reasons, health in cases:
        problems = list(problems_of(read(**change)))
        assert all(problem.detail and problem.next_step for problem in problems)
        worst = worst_of(problem.health for problem in problems)
        assert worst is (problems[0].health if problems else Health.OK)
        found = ([problem.reason for problem in problems], worst)
        if found != (reasons, health):
            wrong.append((change, found))
    assert wrong == []
    (one,) = problems_of(read(understood=Understood(records=1, has_matched=False)))
    assert one.detail.startswith("none of 1 line read last and understood is counted, by")
    assert list(problems_of(read(pipeline=pipeline(), kafka=kafka((0, 999))))) == []  # no limit


def test_what_is_late_follows_from_the_schedule() -> None:
    """At 14:00:30, two starts ago and ten minutes of patience before that."""
    for schedule, before in (
        ("* * * * *", datetime(2026, 11, 20, 13, 49, tzinfo=UTC)),
        ("@daily", datetime(2026, 11, 18, 23, 50, tzinfo=UTC)),
    ):
        assert pipeline(schedule=schedule).due_before(NOW, 600) == before


def test_lines_that_readers_do_not_see_are_a_failure_once_a_plan_should_have_shown_them() -> None:
    """A run that was killed behind its commit leaves them to the next one."""
    kept = pipeline(delivery="rows")
    fresh = read(pipeline=kept, unshown=Unshown(segments=2, since=BEFORE + SECOND))
    assert list(problems_of(fresh)) == []
    old = read(pipeline=kept, unshown=Unshown(segments=2, since=BEFORE - SECOND))
    (problem,) = problems_of(old)
    assert (problem.reason, problem.health) == (ProblemReason.UNSHOWN, Health.FAIL)
    assert (
        "2 segments in first_rows, the oldest committed 2026-11-20 13:48:59 UTC" in problem.detail
    )
