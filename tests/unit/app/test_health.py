"""The health of a pipeline, from what is known of it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tally.app.health import (
    UNKNOWN,
    Findings,
    Health,
    ProblemReason,
    Surroundings,
    health_of,
    problems_of,
)
from tally.app.losses import LossView
from tally.app.views import ErrorView
from tally.config.pipeline import Pipeline
from tally.errors import KafkaUnavailableError
from tally.ledger.reading import BatchRecord
from tally.ledger.row_sets import NOTHING_UNSHOWN, Unshown
from tally.ledger.rules import Understood
from tally.model import BatchKind, BatchState, LossCause
from tally.planning.blocks import Block, BlockReason

NOW = datetime(2026, 11, 20, 14, 0, 30, tzinfo=UTC)
BEFORE = NOW - timedelta(minutes=12)
ERROR = ErrorView.of(KafkaUnavailableError("no answer", next_step="start it"))
SOUND = Findings(
    unprepared=None,
    kafka_error=None,
    blocks=(),
    open_losses=(),
    lag_offsets=0,
    overdue_offsets=0,
    overdue_before=BEFORE,
    open_batches=(),
    understood=Understood(records=10, malformed=5),
    unshown=NOTHING_UNSHOWN,
    surroundings=UNKNOWN,
)
BLOCK = Block(
    topic="a",
    partition=0,
    reason=BlockReason.RECORDS_LOST,
    detail="[3, 6) is gone",
    next_step="tally losses accept first --reason …",
)


def pipeline(**keys: Any) -> Pipeline:
    """A pipeline that starts each minute and has the default patience of ten."""
    return Pipeline.model_validate({"name": "first", "topics": ["a"], **keys})


def loss(partition: int) -> LossView:
    """An open loss."""
    return LossView(
        topic="a",
        partition=partition,
        from_offset=3,
        until_offset=6,
        lost_range_id=1,
        cause=LossCause.EXPIRED,
        topic_id="id",
        state="open",
        detected_at=NOW,
        decided_at=None,
        decided_by=None,
        reason=None,
    )


def batch(**times: datetime) -> BatchRecord:
    """A batch that was planned or committed at a time."""
    absent = dict.fromkeys(
        (
            "replay_id",
            "run_id",
            "claimed_at",
            "claimed_by",
            "committed_at",
            "committed_version",
            "format_fingerprint",
            "scheduled_at",
            "read_at",
            "abandoned_at",
            "abandoned_by",
            "reason",
            "records",
            "matched",
            "unmatched",
            "malformed",
        )
    )
    known: dict[str, Any] = {
        "batch_id": 7,
        "pipeline": "first",
        "kind": BatchKind.INGEST,
        "state": BatchState.PLANNED,
        "attempt": 1,
        "planned_at": NOW,
        "planned_version": "1",
        "requested_by": "someone",
        "segments": 1,
        "superseded": 0,
        "offsets": 3,
    }
    return BatchRecord(**{**absent, **known, **times})


def reasons(found: Findings, **keys: Any) -> list[ProblemReason]:
    """What is wrong; each problem says what to do."""
    problems = list(problems_of(pipeline(**keys), found))
    assert all(problem.detail and problem.next_step for problem in problems)
    assert health_of(problems) is (problems[0].health if problems else Health.OK)
    return [problem.reason for problem in problems]


def test_a_pipeline_without_problems_is_well() -> None:
    """Half of its records malformed is still within the default."""
    assert reasons(SOUND) == []


@pytest.mark.parametrize(
    ("change", "reason", "health"),
    [
        ({"unprepared": ERROR}, ProblemReason.UNPREPARED, Health.FAIL),
        ({"kafka_error": ERROR}, ProblemReason.KAFKA_UNANSWERED, Health.FAIL),
        (
            {"surroundings": Surroundings(engine_error=ERROR)},
            ProblemReason.ENGINE_UNANSWERED,
            Health.FAIL,
        ),
        ({"blocks": (BLOCK,)}, ProblemReason.BLOCKED, Health.FAIL),
        ({"open_losses": (loss(0),)}, ProblemReason.OPEN_LOSS, Health.FAIL),
        (
            {"understood": Understood(records=10, malformed=6)},
            ProblemReason.MALFORMED,
            Health.WARN,
        ),
        ({"lag_offsets": 101}, ProblemReason.LAG, Health.WARN),
        ({"surroundings": Surroundings(paused=True)}, ProblemReason.PAUSED, Health.WARN),
    ],
)
def test_each_problem_is_named(
    change: dict[str, Any], reason: ProblemReason, health: Health
) -> None:
    """Failures keep something from being counted, warnings do not."""
    found = replace(SOUND, **change)
    assert reasons(found, max_lag_offsets=100) == [reason]
    assert health_of(list(problems_of(pipeline(max_lag_offsets=100), found))) is health


def test_failures_come_before_warnings() -> None:
    """The health is that of the first problem."""
    found = replace(SOUND, lag_offsets=9, blocks=(BLOCK,), surroundings=Surroundings(paused=True))
    wanted = [ProblemReason.BLOCKED, ProblemReason.LAG, ProblemReason.PAUSED]
    assert reasons(found, max_lag_offsets=8) == wanted


def test_a_loss_is_named_once() -> None:
    """Where Kafka was asked, its partition is blocked, or all of its topic."""
    of_topic = replace(BLOCK, partition=None)
    for blocks in ((BLOCK,), (of_topic,)):
        assert reasons(replace(SOUND, blocks=blocks, open_losses=(loss(0),))) == [
            ProblemReason.BLOCKED
        ]
    other = replace(SOUND, blocks=(BLOCK,), open_losses=(loss(0), loss(1)))
    assert reasons(other) == [ProblemReason.BLOCKED, ProblemReason.OPEN_LOSS]


@pytest.mark.parametrize(
    "waiting",
    [{"open_batches": [batch(planned_at=BEFORE - timedelta(seconds=1))]}, {"overdue_offsets": 1}],
    ids=["planned", "not planned"],
)
def test_what_waits_too_long_is_late(waiting: dict[str, Any]) -> None:
    """Longer than two starts of the schedule and the patience of one batch."""
    assert reasons(replace(SOUND, **waiting)) == [ProblemReason.LATE]


def test_what_waits_no_longer_than_it_may_is_not_late() -> None:
    """A batch that was planned then, or records that came since."""
    assert reasons(replace(SOUND, open_batches=[batch(planned_at=BEFORE)])) == []
    assert reasons(replace(SOUND, lag_offsets=9)) == []


@pytest.mark.parametrize(
    ("schedule", "before"),
    [
        ("* * * * *", datetime(2026, 11, 20, 13, 49, tzinfo=UTC)),
        ("@daily", datetime(2026, 11, 18, 23, 50, tzinfo=UTC)),
    ],
)
def test_what_is_late_follows_from_the_schedule(schedule: str, before: datetime) -> None:
    """At 14:00:30, two starts ago and ten minutes of patience before that."""
    assert pipeline(schedule=schedule).overdue_before(NOW) == before


def test_lines_that_readers_do_not_see_are_a_failure_once_a_plan_should_have_shown_them() -> None:
    """A run that was killed behind its commit leaves them to the next one."""
    kept = pipeline(delivery="rows")
    fresh = replace(SOUND, unshown=Unshown(segments=2, since=BEFORE + timedelta(seconds=1)))
    assert list(problems_of(kept, fresh)) == []
    old = replace(SOUND, unshown=Unshown(segments=2, since=BEFORE - timedelta(seconds=1)))
    (problem,) = problems_of(kept, old)
    assert (problem.reason, problem.health) == (ProblemReason.UNSHOWN, Health.FAIL)
    assert (
        "2 segments in first_rows, the oldest committed 2026-11-20 13:48:29 UTC" in problem.detail
    )
