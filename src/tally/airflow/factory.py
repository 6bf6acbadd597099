"""The DAGs of each pipeline, made from the configuration; reads files, contacts no server."""

import logging
from datetime import timedelta
from inspect import cleandoc
from pathlib import Path
from typing import Any, Final

from airflow.sdk import DAG, CronTriggerTimetable
from airflow.sdk.exceptions import AirflowException, AirflowTimetableInvalid
from airflow.utils.helpers import validate_key

from tally.airflow.assets import result_asset, topic_assets
from tally.airflow.count import TallyCountOperator
from tally.airflow.losses_dag import losses_dag
from tally.airflow.operators import (
    AUDIT,
    BLOCKED,
    COUNT,
    PLAN,
    PRUNE,
    TallyAuditOperator,
    TallyBlockedOperator,
    TallyPlanOperator,
    TallyPruneOperator,
    from_note,
)
from tally.airflow.policies import (
    AUDIT_SUFFIX,
    LOSSES_SUFFIX,
    REPLAY_SUFFIX,
    SCHEDULED,
    TAG,
    documented,
    shared,
)
from tally.airflow.replay_dag import replay_dag
from tally.airflow.timeouts import AUDIT_TIMEOUT, SHORT_TASK, Timeouts
from tally.config.loading import load_settings
from tally.config.pipeline import Pipeline, PipelineSettings
from tally.config.settings import Settings
from tally.errors import ConfigError

log = logging.getLogger(__name__)

# Daily, at a minute that few others choose.
AUDIT_SCHEDULE: Final = "17 3 * * *"


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
            found = _dags_of(settings, name, config, job, cleandoc(doc_md))
        except ConfigError as error:
            log.error("pipeline %s is disabled: %s", name, error.what)  # noqa: TRY400 - no bug
            # Another pipeline's DAG may have its name: Airflow registers each DAG that is made.
            has_dag = is_dag_id(name) and name not in dags
            found = [disabled_dag(name, error.what, config=config)] if has_dag else []
        dags |= {dag.dag_id: dag for dag in found}
    return dags


def _dags_of(settings: Settings, name: str, config: Path, job: Path, doc_md: str) -> list[DAG]:
    """The DAGs of a pipeline.

    Raises:
        ConfigError: It is configured wrong.
    """
    pipeline = settings.pipeline(name)
    timeouts = Timeouts.of(pipeline, settings)
    return [
        minute_dag(pipeline, timeouts, config=config, job=job, doc_md=doc_md),
        replay_dag(pipeline, timeouts, config=config, job=job),
        losses_dag(pipeline, timeouts, config=config),
        audit_dag(pipeline, config=config, doc_md=doc_md),
    ]


def is_dag_id(name: str) -> bool:
    """Whether Airflow takes a name as a DAG's."""
    try:
        validate_key(name)
    except AirflowException:
        return False
    return True


def disabled_dag(name: str, wrong: str, *, config: Path) -> DAG:
    """In place of a pipeline's DAGs: one whose runs are red until its configuration is right."""
    options: dict[str, Any] = {
        "description": f"Disabled, as it is configured wrong: {wrong}",
        "catchup": False,
        "max_active_runs": 1,
        "allowed_run_types": list(SCHEDULED),
        "tags": [TAG, "disabled"],
        "doc_md": f"This pipeline is configured wrong and counts nothing: {wrong}",
    }
    schedule = _timetable(PipelineSettings.model_fields["schedule"].default, "schedule")
    with DAG(name, schedule=schedule, **options) as dag:
        TallyPlanOperator(
            task_id=PLAN,
            pipeline=name,
            config=str(config),
            execution_timeout=SHORT_TASK,
            **documented(TallyPlanOperator),
        )
    return dag


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
            catch_up=timeouts.catch_up,
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
    """The daily audit of the ledger and the result; behind it, the pruning of the ledger."""
    with DAG(
        f"{pipeline.name}{AUDIT_SUFFIX}",
        description=f"Proves that {pipeline.table} is what was counted",
        schedule=_timetable(AUDIT_SCHEDULE, "AUDIT_SCHEDULE"),
        dagrun_timeout=AUDIT_TIMEOUT * 3,
        **shared(pipeline, doc_md),
    ) as dag:
        audit = TallyAuditOperator(
            task_id=AUDIT,
            pipeline=pipeline.name,
            config=str(config),
            execution_timeout=AUDIT_TIMEOUT,
            inlets=[result_asset(pipeline)],
            **documented(TallyAuditOperator),
        )
        if pipeline.prune_after_days:
            prune = TallyPruneOperator(
                task_id=PRUNE,
                pipeline=pipeline.name,
                config=str(config),
                older_than=timedelta(days=pipeline.prune_after_days),
                execution_timeout=AUDIT_TIMEOUT,
                **documented(TallyPruneOperator),
            )
            audit >> prune
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
