"""The timeouts of the minute DAG's tasks, all derived from the pipeline's ``patience_s``.

Each is shorter than the next: an answer of Kafka or a lock wait, a statement, the task, the run. So
the innermost timeout fires first, and its error names the cause. The settings keep the same order
where no task is involved.
"""

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from tally.config.pipeline import Pipeline
from tally.config.settings import Settings
from tally.errors import ConfigError

# A failed attempt is retried soon: Airflow's default delay, 300 s, is five batches.
RETRIES: Final = 3
RETRY_DELAY: Final = timedelta(seconds=10)

AUDIT_TIMEOUT: Final = timedelta(hours=1)

# Of a task that only says what is wrong.
SHORT_TASK: Final = timedelta(minutes=2)

# Parts of the patience. Planning asks Kafka and writes a few rows; a run holds one plan, one count
# and what Airflow needs between them.
_PLAN: Final = 0.2
_RUN: Final = 1.25
_CATCH_UP: Final = 0.8

# The longest wait for one answer, as a part of its task's timeout.
_ANSWER: Final = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeouts:
    """Timeouts, each shorter than the next."""

    plan: timedelta
    """One attempt of ``plan``; more than twice as long as the wait for any answer."""
    count: timedelta
    """One attempt of ``count``: the pipeline's patience."""
    catch_up: timedelta
    """The part of it in which batches of a backlog are counted back to back."""
    run: timedelta
    """The whole run, attempts and pauses included."""

    @classmethod
    def of(cls, pipeline: Pipeline, settings: Settings) -> "Timeouts":
        """The timeouts of a pipeline.

        Raises:
            ConfigError: ``patience_s`` is so short that ``plan`` could be killed while it waits
                for an answer.
        """
        patience = timedelta(seconds=pipeline.patience_s)
        _check_plan(pipeline, settings)
        return cls(
            plan=patience * _PLAN,
            count=patience,
            catch_up=patience * _CATCH_UP,
            run=patience * _RUN,
        )


def bounded(settings: Settings, task: timedelta) -> Settings:
    """The settings with which statements time out before their task does."""
    longest = math.ceil(task.total_seconds() * _ANSWER)
    statement_s = min(settings.mysql.statement_timeout_s, longest)
    bound = {"statement_timeout_s": statement_s}
    update: dict[str, Any] = {"mysql": settings.mysql.model_copy(update=bound)}
    if settings.results is not None:
        update["results"] = settings.results.model_copy(update=bound)
    return settings.model_copy(update=update)


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
                f"half of the timeout of the task plan, must be more than {key} = {seconds:g}",
                next_step=f"raise patience_s or lower {key}",
            )
