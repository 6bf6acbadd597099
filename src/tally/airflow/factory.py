"""The DAGs of each pipeline, made from the configuration; reads files, contacts no server."""

from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Final

from airflow.sdk import DAG, CronTriggerTimetable
from airflow.sdk.exceptions import AirflowTimetableInvalid

from tally.airflow.assets import result_asset, topic_assets
from tally.airflow.count import TallyCountOperator
from tally.airflow.losses_dag import losses_dag
from tally.airflow.operators import (
    AUDIT,
    BLOCKED,
    COUNT,
    PLAN,
    TallyAuditOperator,
    TallyBlockedOperator,
    TallyPlanOperator,
    from_note,
)
from tally.airflow.policies import (
    AUDIT_SUFFIX,
    LOSSES_SUFFIX,
    REPLAY_SUFFIX,
    documented,
    shared,
)
from tally.airflow.replay_dag import replay_dag
from tally.airflow.timeouts import AUDIT_TIMEOUT, Timeouts
from tally.config.loading import load_settings
from tally.config.pipeline import Pipeline
from tally.config.settings import Settings
from tally.errors import ConfigError

# Daily, at a minute that few others choose.
AUDIT_SCHEDULE: Final = "17 3 * * *"


def pipeline_dags(*, config: Path, job: Path, doc_md: str) -> dict[str, DAG]:
    """All DAGs of the configuration, by id.

    Args:
        config: The configuration file.
        job: The Spark entry point, ``jobs/count_errors.py``.
        doc_md: What Airflow shows as the DAGs' documentation.

    Raises:
        ConfigError: The configuration is not valid; Airflow shows it as the file's import error.
    """
    settings = load_settings(config)
    dags: dict[str, DAG] = {}
    for dag in _all_dags(settings, config, job, cleandoc(doc_md)):
        if dag.dag_id in dags:
            raise ConfigError(
                f"pipelines.{dag.dag_id}: the DAG id is already that of another pipeline's DAG",
                next_step="give one of the two pipelines another name",
            )
        dags[dag.dag_id] = dag
    return dags


def _all_dags(settings: Settings, config: Path, job: Path, doc_md: str) -> Iterator[DAG]:
    for name in sorted(settings.pipelines):
        pipeline = settings.pipeline(name)
        timeouts = Timeouts.of(pipeline, settings)
        yield minute_dag(pipeline, timeouts, config=config, job=job, doc_md=doc_md)
        yield replay_dag(pipeline, timeouts, config=config, job=job)
        yield losses_dag(pipeline, timeouts, config=config)
        yield audit_dag(pipeline, config=config, doc_md=doc_md)


def minute_dag(
    pipeline: Pipeline, timeouts: Timeouts, *, config: Path, job: Path, doc_md: str
) -> DAG:
    """``plan >> [count, blocked]``, on the pipeline's schedule."""
    with DAG(
        pipeline.name,
        description=f"Counts {', '.join(pipeline.topics)} into {pipeline.table}, each line exactly "
        f"once. To reprocess, use {pipeline.name}{REPLAY_SUFFIX}, not a backfill over dates.",
        schedule=_timetable(pipeline.schedule, f"pipelines.{pipeline.name}.schedule"),
        dagrun_timeout=timeouts.run,
        **shared(pipeline, doc_md),
    ) as dag:
        plan = TallyPlanOperator(
            task_id=PLAN,
            pipeline=pipeline.name,
            config=str(config),
            execution_timeout=timeouts.plan,
            **documented(TallyPlanOperator),
        )
        count = TallyCountOperator(
            task_id=COUNT,
            config=str(config),
            application=str(job),
            name=f"tally_{pipeline.name}",
            execution_timeout=timeouts.count,
            inlets=topic_assets(pipeline),
            outlets=[result_asset(pipeline)],
            **documented(TallyCountOperator),
        )
        blocked = TallyBlockedOperator(
            task_id=BLOCKED,
            message=from_note("blocked"),
            losses_dag=f"{pipeline.name}{LOSSES_SUFFIX}",
            retries=0,
            execution_timeout=timeouts.plan,
            **documented(TallyBlockedOperator),
        )
        # In parallel on purpose: a run's state is that of its last tasks, and a `blocked` that is
        # skipped after a failed `count` would turn the run green.
        plan >> [count, blocked]
    return dag


def audit_dag(pipeline: Pipeline, *, config: Path, doc_md: str) -> DAG:
    """The daily audit of the ledger and the result."""
    with DAG(
        f"{pipeline.name}{AUDIT_SUFFIX}",
        description=f"Proves that {pipeline.table} is what was counted",
        schedule=_timetable(AUDIT_SCHEDULE, "AUDIT_SCHEDULE"),
        dagrun_timeout=AUDIT_TIMEOUT * 2,
        **shared(pipeline, doc_md),
    ) as dag:
        TallyAuditOperator(
            task_id=AUDIT,
            pipeline=pipeline.name,
            config=str(config),
            execution_timeout=AUDIT_TIMEOUT,
            inlets=[result_asset(pipeline)],
            **documented(TallyAuditOperator),
        )
    return dag


def _timetable(cron: str, key: str) -> CronTriggerTimetable:
    timetable = CronTriggerTimetable(cron, timezone="UTC")
    try:
        timetable.validate()
    except AirflowTimetableInvalid as error:
        raise ConfigError(
            f"{key} = {cron!r}: {error}",
            next_step='a cron expression of five fields, such as "* * * * *"',
        ) from None
    return timetable
