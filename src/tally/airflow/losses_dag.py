"""The DAG that asks an operator about lost records; made by :mod:`tally.airflow.factory`."""

from datetime import timedelta
from inspect import cleandoc
from pathlib import Path
from typing import Any, Final

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import DAG

from tally.airflow.losses_tasks import (
    ACCEPT,
    DECIDE,
    KEEP,
    LOOK,
    LOSSES_KEY,
    SETTLE,
    TallyLookOperator,
    TallySettleOperator,
    decision_fields,
    reason_field,
)
from tally.airflow.policies import BY_HAND, LOSSES_SUFFIX, documented, shared
from tally.airflow.timeouts import Timeouts
from tally.config.pipeline import Pipeline

# After that the run fails; an operator who sees a red run of the minute DAG triggers it again.
PATIENCE: Final = timedelta(days=7)

DOC: Final = """
    Asks an operator what to do about lost records: offsets that Kafka's retention has deleted, that
    were lost with a truncation, or that have no record. Until the operator decides, their partition
    is not counted and the runs of the minute DAG are red; the other partitions are counted,
    each line exactly once.

    Trigger it, open *Required Actions* of `decide`, and answer with a reason. Before accepting,
    check whether the records can be restored: accepted offsets are never counted. Without open
    losses the run ends green. To accept some of several losses, or to adopt a topic that was
    created again, use `tally losses accept` and `tally topics adopt`.
"""

DECIDE_DOC: Final = """
    Wait for an operator, who answers under *Required Actions*. No worker is occupied meanwhile.
"""


def losses_dag(pipeline: Pipeline, timeouts: Timeouts, *, config: Path) -> DAG:
    """``look >> [decide >> settle]``, by hand only."""
    shown = f"ti.xcom_pull(task_ids='{LOOK}', key='{LOSSES_KEY}')"
    with DAG(
        f"{pipeline.name}{LOSSES_SUFFIX}",
        description=f"Asks an operator about records that {pipeline.name} has lost",
        schedule=None,
        dagrun_timeout=PATIENCE + 2 * timeouts.run,
        params=decision_fields(),
        **shared(pipeline, cleandoc(DOC), BY_HAND),
    ) as dag:
        light: dict[str, Any] = {
            "pipeline": pipeline.name,
            "config": str(config),
            "execution_timeout": timeouts.plan,
        }
        look = TallyLookOperator(task_id=LOOK, **light, **documented(TallyLookOperator))
        decide = HITLOperator(
            task_id=DECIDE,
            subject=f"Records of {pipeline.name} are lost",
            body=f"{{{{ {shown}['text'] }}}}\n\n"
            f"**{ACCEPT}**: counting continues after them; they are never counted.\n\n"
            f"**{KEEP}**: nothing changes, and the runs stay red, until they are restored.",
            options=[ACCEPT, KEEP],
            params=reason_field(),
            response_timeout=PATIENCE,
            retries=0,
            doc_md=cleandoc(DECIDE_DOC),
        )
        settle = TallySettleOperator(
            task_id=SETTLE,
            trigger_rule="none_failed_min_one_success",
            **light,
            **documented(TallySettleOperator),
        )
        # Behind `decide`, or at once when the run was triggered with a decision.
        look >> [decide, settle]
        decide >> settle
    return dag
