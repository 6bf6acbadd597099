"""How long the tasks of a minute may take, all derived from the pipeline's patience."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tally.errors import ConfigError
from tally.settings import MySQLSettings, Pipeline

# A failed attempt is tried again soon: Airflow's own 300 s are five batches.
RETRIES: Final = 3
RETRY_DELAY: Final = timedelta(seconds=10)

# Parts of the patience. Planning asks Kafka and writes a few rows; a run holds one plan, one count
# and what Airflow needs between them.
_PLAN: Final = 0.2
_RUN: Final = 1.25


@dataclass(frozen=True, kw_only=True, slots=True)
class Timeouts:
    """Longest durations, each shorter than the next."""

    plan: timedelta
    """One attempt of ``plan``; longer than MySQL waits for a lock."""
    count: timedelta
    """One attempt of ``count``: the pipeline's patience."""
    run: timedelta
    """The whole run, attempts and pauses included."""

    @classmethod
    def of(cls, pipeline: Pipeline, mysql: MySQLSettings) -> "Timeouts":
        """The time-outs of a pipeline.

        Raises:
            ConfigError: The patience is so short that a task would be killed while it waits for a
                lock that MySQL would have reported in time.
        """
        patience = timedelta(seconds=pipeline.patience_s)
        plan = patience * _PLAN
        if plan.total_seconds() <= mysql.lock_wait_timeout_s:
            raise ConfigError(
                f"pipelines.{pipeline.name}.patience_s = {pipeline.patience_s}: a fifth of it, the "
                "time-out of the task plan, must be more than mysql.lock_wait_timeout_s = "
                f"{mysql.lock_wait_timeout_s}",
                next_step="raise patience_s or lower mysql.lock_wait_timeout_s",
            )
        return cls(plan=plan, count=patience, run=patience * _RUN)
