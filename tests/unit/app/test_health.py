"""The health of a pipeline, from what is known of it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.unit.values import blank, pipeline

from tally.app.health import Findings, Health, ProblemReason, Surroundings, problems_of, worst_of
from tally.errors import KafkaUnavailableError
from tally.ledger.line_sets import NOTHING_UNSHOWN, Unshown
from tally.ledger.records import BatchRecord
from tally.ledger.rules import Understood
from tally.losses.losses import LossView
from tally.planning.blocks import Block, BlockReason
from tally.views import ErrorView

NOW = datetime(2026, 11, 20, 14, 0, 30, tzinfo=UTC)
BEFORE = NOW - timedelta(minutes=12)
SECOND = timedelta(seconds=1)
ERROR = ErrorView.of(KafkaUnavailableError("no answer", next_step="start it"))
SOUND = Findings(
    unprepared=None,
    kafka_error=None,
    blocks=(),
    open_losses=(),
    lag_offsets=0,
    due_offsets=0,
    due_before=NOW - timedelta(minutes=3),
    overdue_offsets=0,
    overdue_before=BEFORE,
    open_batches=(),
    understood=Understood(records=10, malformed=5),
    alternating=(),
    levels={},
    unshown=NOTHING_UNSHOWN,
    surroundings=Surroundings(),
)
PAUSED = Surroundings(paused=True)
BLOCK = Block(
    topic="a",
    partition=0,
    reason=BlockReason.RECORDS_LOST,
    detail="[3, 6) is gone",
    next_step="tally losses accept first --reason '…'",
)


def loss(partition: int) -> LossView:
    where = {"topic": "a", "partition": partition, "from_offset": 3, "until_offset": 6}
    return blank(LossView, state="open", **where)


def test_each_problem_is_named_once_and_failures_come_before_warnings() -> None:
    """Failures keep something from being counted; the health is that of the first problem."""
    Reason, ok, warn, fail = ProblemReason, Health.OK, Health.WARN, Health.FAIL  # noqa: N806
    of_topic, both = replace(BLOCK, partition=None), [Reason.BLOCKED, Reason.OPEN_LOSS]
    worst_last = {"surroundings": PAUSED, "lag_offsets": 101, "blocks": (BLOCK,)}
    cases: tuple[tuple[dict[str, Any], list[ProblemReason], Health], ...] = (
        # Half of the records malformed is still within the default.
        ({}, [], ok),
        # Without tables nothing is late.
        ({"unprepared": ERROR, "overdue_offsets": 1}, [Reason.UNPREPARED], fail),
        ({"kafka_error": ERROR}, [Reason.KAFKA_UNANSWERED], fail),
        ({"surroundings": Surroundings(engine_error=ERROR)}, [Reason.ENGINE_UNANSWERED], fail),
        ({"blocks": (BLOCK,)}, [Reason.BLOCKED], fail),
        ({"open_losses": (loss(0),)}, [Reason.OPEN_LOSS], fail),
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
        ({"lag_offsets": 100}, [], ok),
        ({"lag_offsets": 101}, [Reason.LAG], warn),
        ({"surroundings": PAUSED}, [Reason.PAUSED], warn),
        (worst_last, [Reason.BLOCKED, Reason.LAG, Reason.PAUSED], fail),
        # Where Kafka was asked, the partition of a loss is blocked, or all of its topic.
        ({"blocks": (BLOCK,), "open_losses": (loss(0),)}, [Reason.BLOCKED], fail),
        ({"blocks": (of_topic,), "open_losses": (loss(0),)}, [Reason.BLOCKED], fail),
        ({"blocks": (BLOCK,), "open_losses": (loss(0), loss(1))}, both, fail),
        # Late is what waits longer than two starts and the patience of one batch.
        ({"open_batches": [blank(BatchRecord, planned_at=BEFORE - SECOND)]}, [Reason.LATE], fail),
        ({"open_batches": [blank(BatchRecord, planned_at=BEFORE)]}, [], ok),
        ({"overdue_offsets": 1, "due_offsets": 1}, [Reason.LATE], fail),
        # Before that no task has even planned a batch of it.
        ({"due_offsets": 1}, [Reason.LATE], warn),
        ({"due_offsets": 1, "open_batches": [blank(BatchRecord, planned_at=NOW)]}, [], ok),
    )
    wrong = []
    for change, reasons, health in cases:
        problems = list(problems_of(pipeline(max_lag_offsets=100), replace(SOUND, **change)))
        assert all(problem.detail and problem.next_step for problem in problems)
        worst = worst_of(problem.health for problem in problems)
        assert worst is (problems[0].health if problems else Health.OK)
        found = ([problem.reason for problem in problems], worst)
        if found != (reasons, health):
            wrong.append((change, found))
    assert wrong == []
    (one,) = problems_of(
        pipeline(), replace(SOUND, understood=Understood(records=1, has_matched=False))
    )
    assert one.detail.startswith("none of 1 line read last and understood is counted, by")
    assert list(problems_of(pipeline(), replace(SOUND, lag_offsets=9))) == []  # without a limit


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
    fresh = replace(SOUND, unshown=Unshown(segments=2, since=BEFORE + SECOND))
    assert list(problems_of(kept, fresh)) == []
    old = replace(SOUND, unshown=Unshown(segments=2, since=BEFORE - SECOND))
    (problem,) = problems_of(kept, old)
    assert (problem.reason, problem.health) == (ProblemReason.UNSHOWN, Health.FAIL)
    assert (
        "2 segments in first_rows, the oldest committed 2026-11-20 13:48:29 UTC" in problem.detail
    )
