"""The DAGs of each pipeline, made from the configuration; reads files, contacts no server."""

import logging
from datetime import timedelta
from pathlib import Path
from typing import Final

from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException
from airflow.utils.helpers import validate_key

from tally.airflow.audit_dag import audit_dag
from tally.airflow.count import COUNT
from tally.airflow.losses_dag import losses_dag
from tally.airflow.minute_dag import TallyMinuteOperator, minute_dag
from tally.airflow.policies import RUN_TYPES, TAG, check_patience, timetable
from tally.airflow.replay_dag import replay_dag
from tally.config.loading import load_settings
from tally.config.pipeline import Pipeline
from tally.errors import ConfigError

log = logging.getLogger(__name__)

# Of a task that only says what is wrong.
_SHORT_TASK: Final = timedelta(minutes=2)


def pipeline_dags(*, config: Path, job: Path, doc_md: str) -> dict[str, DAG]:
    """All DAGs of the configuration, by id.

    Args:
        config: The configuration file.
        job: The Spark entry point, ``jobs/count_errors.py``.
        doc_md: What Airflow shows as the DAGs' documentation.

    A pipeline that is configured wrong has one DAG, whose runs are red and name the mistakes.

    Raises:
        ConfigError: The configuration of the servers is not valid; Airflow shows it as the file's
            import error.
    """
    settings = load_settings(config)
    dags: dict[str, DAG] = {}
    for name in settings.names:
        try:
            pipeline = settings.pipeline(name)
            check_patience(pipeline, settings)
            found = [
                minute_dag(pipeline, config=config, job=job, doc_md=doc_md),
                replay_dag(pipeline, config=config, job=job),
                losses_dag(pipeline, config=config),
                audit_dag(pipeline, config=config, doc_md=doc_md),
            ]
        except ConfigError as error:
            log.error("pipeline %s is disabled: %s", name, error.what)  # noqa: TRY400 - no bug
            # Another pipeline's DAG may have its name: Airflow registers each DAG that is made.
            has_dag = is_dag_id(name) and name not in dags
            found = [disabled_dag(name, error.what, config=config, job=job)] if has_dag else []
        dags |= {dag.dag_id: dag for dag in found}
    return dags


def is_dag_id(name: str) -> bool:
    """Whether Airflow takes a name as a DAG's."""
    try:
        validate_key(name)
    except AirflowException:
        return False
    return True


def disabled_dag(name: str, wrong: str, *, config: Path, job: Path) -> DAG:
    """In place of a pipeline's DAGs: one whose runs are red until its configuration is right."""
    with DAG(
        name,
        description=f"Disabled, as it is configured wrong: {wrong}",
        schedule=timetable(Pipeline.model_fields["schedule"].default, "schedule"),
        catchup=False,
        max_active_runs=1,
        allowed_run_types=RUN_TYPES,
        tags=[TAG, "disabled"],
        doc_md=f"This pipeline is configured wrong and counts nothing: {wrong}",
    ) as dag:
        TallyMinuteOperator(
            task_id=COUNT,
            pipeline=name,
            config=str(config),
            application=str(job),
            execution_timeout=_SHORT_TASK,
        )
    return dag
