"""The DAG that reprocesses ranges; made by :mod:`tally.airflow.factory`."""

from inspect import cleandoc
from pathlib import Path
from typing import Any, Final

from airflow.sdk import DAG

from tally.airflow.assets import result_asset, topic_assets
from tally.airflow.count import TallyCountOperator
from tally.airflow.operators import COUNT
from tally.airflow.policies import BY_HAND, REPLAY_SUFFIX, documented, shared
from tally.airflow.replay_fields import form
from tally.airflow.replay_tasks import (
    OUTCOME,
    PREVIEW,
    REQUEST,
    TallyReplayOutcomeOperator,
    TallyReplayPreviewOperator,
    TallyReplayRequestOperator,
)
from tally.airflow.timeouts import Timeouts
from tally.config.pipeline import Pipeline

# A preview need not wait for a long replay. Batches are still counted one at a time, in all runs
# together: each is a driver of its own.
ACTIVE_RUNS: Final = 4
DRIVERS: Final = 1

DOC: Final = """
    Reprocesses ranges of a pipeline: the new counts replace the old ones, so that each line stays
    counted exactly once.

    1. **Trigger** it with *Dry run* on. The run ends green after `preview`, whose log shows what
       would be read and replaced. Nothing is changed.
    2. **Trigger again with this config**, with the switch off. `request` writes the replay and its
       reason into the ledger, `count` runs batch after batch, `outcome` reports the whole replay.

    The ranges are widened to whole segments. Offsets that the schedule has not counted yet, and
    offsets that Kafka no longer holds, are refused. The minute DAG may run meanwhile; readers of
    the result see a batch's old counts or its new ones. If a task is red, clear it: committed
    batches are not run again.
"""


def replay_dag(pipeline: Pipeline, timeouts: Timeouts, *, config: Path, job: Path) -> DAG:
    """``preview >> request >> count (one task for each batch) >> outcome``, by hand only."""
    # The run has no timeout: its number of batches is not known here, and each batch has a timeout.
    with DAG(
        f"{pipeline.name}{REPLAY_SUFFIX}",
        description=f"Reprocesses offsets, times, batches or minutes of {pipeline.table}",
        schedule=None,
        params=form(pipeline),
        **shared(pipeline, cleandoc(DOC), BY_HAND, active_runs=ACTIVE_RUNS),
    ) as dag:
        light: dict[str, Any] = {
            "pipeline": pipeline.name,
            "config": str(config),
            "execution_timeout": timeouts.plan,
        }
        preview = TallyReplayPreviewOperator(
            task_id=PREVIEW, **light, **documented(TallyReplayPreviewOperator)
        )
        request = TallyReplayRequestOperator(
            task_id=REQUEST, **light, **documented(TallyReplayRequestOperator)
        )
        count = TallyCountOperator.partial(
            task_id=COUNT,
            config=str(config),
            application=str(job),
            name=f"tally_{pipeline.name}_replay",
            execution_timeout=timeouts.count,
            inlets=topic_assets(pipeline),
            outlets=[result_asset(pipeline)],
            map_index_template="{{ task.batch_name }}",
            max_active_tis_per_dag=DRIVERS,
            **documented(TallyCountOperator),
        ).expand_kwargs(request.output)
        outcome = TallyReplayOutcomeOperator(
            task_id=OUTCOME,
            trigger_rule="all_done",
            **light,
            **documented(TallyReplayOutcomeOperator),
        )
        preview >> request >> count >> outcome
    return dag
