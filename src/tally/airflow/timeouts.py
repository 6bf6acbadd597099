"""How long the tasks of a minute may take, all derived from the pipeline's patience.

Each is shorter than the next: an answer of Kafka or a lock wait, a statement, the task, the run. So
what is wrong is said by whoever knows it, before somebody else gives up waiting. The settings keep
the same order where no task is involved.
"""

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tally.config.pipeline import Pipeline
from tally.config.settings import Settings
from tally.errors import ConfigError

# A failed attempt is tried again soon: Airflow's own 300 s are five batches.
RETRIES: Final = 3
RETRY_DELAY: Final = timedelta(seconds=10)

AUDIT_TIMEOUT: Final = timedelta(hours=1)

# Parts of the patience. Planning asks Kafka and writes a few rows; a run holds one plan, one count
# and what Airflow needs between them.
_PLAN: Final = 0.2
_RUN: Final = 1.25

# The longest wait for one answer, as a part of its task's time-out.
_ANSWER: Final = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeouts:
    """Longest durations, each shorter than the next."""

    plan: timedelta
    """One attempt of ``plan``; more than twice as long as any answer is waited for."""
    count: timedelta
    """One attempt of ``count``: the pipeline's patience."""
    run: timedelta
    """The whole run, attempts and pauses included."""

    @classmethod
    def of(cls, pipeline: Pipeline, settings: Settings) -> "Timeouts":
        """The time-outs of a pipeline.

        Raises:
            ConfigError: The patience is so short that ``plan`` could be killed while it waits for
                an answer that would have told what is wrong.
        """
        patience = timedelta(seconds=pipeline.patience_s)
        _check_plan(pipeline, settings)
        return cls(plan=patience * _PLAN, count=patience, run=patience * _RUN)


def bounded(settings: Settings, task: timedelta) -> Settings:
    """The settings with which a task gives a statement up before its own time is over."""
    longest = math.ceil(task.total_seconds() * _ANSWER)
    statement_s = min(settings.mysql.statement_timeout_s, longest)
    mysql = settings.mysql.model_copy(update={"statement_timeout_s": statement_s})
    return settings.model_copy(update={"mysql": mysql})


def _check_plan(pipeline: Pipeline, settings: Settings) -> None:
    longest = pipeline.patience_s * _PLAN * _ANSWER
    waits = {
        "mysql.lock_wait_timeout_s": settings.mysql.lock_wait_timeout_s,
        "mysql.connect_timeout_s": settings.mysql.connect_timeout_s,
        "kafka.request_timeout_s": settings.kafka.request_timeout_s,
    }
    for key, seconds in waits.items():
        if seconds >= longest:
            raise ConfigError(
                f"pipelines.{pipeline.name}.patience_s = {pipeline.patience_s}: a tenth of it, "
                f"half of the time-out of the task plan, must be more than {key} = {seconds:g}",
                next_step=f"raise patience_s or lower {key}",
            )
