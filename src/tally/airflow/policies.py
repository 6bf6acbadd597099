"""What all DAGs of a pipeline share."""

from collections.abc import Sequence
from inspect import cleandoc
from typing import Any, Final

from tally.airflow.timeouts import RETRIES, RETRY_DELAY
from tally.config.names import DAG_SUFFIXES
from tally.config.pipeline import Pipeline

TAG: Final = "tally"

REPLAY_SUFFIX, LOSSES_SUFFIX, AUDIT_SUFFIX = DAG_SUFFIXES

# A pipeline ignores dates: the ledger says what is counted next. A backfill over dates would only
# start the same batch many times.
SCHEDULED: Final = ("scheduled", "manual")
BY_HAND: Final = ("manual",)


def shared(
    pipeline: Pipeline, doc_md: str, run_types: Sequence[str] = SCHEDULED, *, active_runs: int = 1
) -> dict[str, Any]:
    """Arguments of a DAG.

    One that only runs by hand is not paused at first: its runs would wait for somebody who unpauses
    it, and by itself it does nothing.
    """
    return {
        "catchup": False,
        "is_paused_upon_creation": None if "scheduled" in run_types else False,
        "max_active_runs": active_runs,
        "allowed_run_types": list(run_types),
        "doc_md": doc_md,
        "tags": [TAG, *pipeline.tags],
        "default_args": {
            "owner": pipeline.owner,
            "retries": RETRIES,
            "retry_delay": RETRY_DELAY,
            "retry_exponential_backoff": False,
            "depends_on_past": False,
        },
    }


def documented(operator: type) -> dict[str, str]:
    """A task's documentation: its operator's docstring."""
    return {"doc_md": cleandoc(operator.__doc__ or "")}
