"""The order of the checks, and which of them are skipped after a failed one."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tally.app.doctor.broker import check_broker
from tally.app.doctor.console import check_console
from tally.app.doctor.database import check_database
from tally.app.doctor.diagnosis import Diagnosis, DoctorView, fail, ok, skip
from tally.app.doctor.engine import check_engine
from tally.app.doctor.environment import check_distribution, check_python
from tally.app.doctor.orchestration import check_airflow, no_airflow
from tally.app.doctor.pipelines import check_pipelines
from tally.app.health import Health
from tally.app.orchestration import ask_airflow, is_configured
from tally.app.surroundings import surroundings
from tally.config.loading import load_settings
from tally.config.settings import CORRECT_THEM, Settings
from tally.context import open_context
from tally.errors import ConfigError

CONFIG = "config.valid"
NEEDED = frozenset({"mysql.reachable", "mysql.tables", "kafka.reachable"})
"""Without these nothing can be said of a pipeline."""


def doctor(
    config: Path,
    *,
    airflow: Mapping[str, str] | None = None,
    on_check: Callable[[Diagnosis], None] = lambda _: None,
) -> DoctorView:
    """Check everything, most fundamental first.

    Args:
        config: The configuration file.
        airflow: Environment variables that say which Airflow to ask, besides this process's.
        on_check: Called with each diagnosis as soon as it is made.
    """
    found: list[Diagnosis] = []
    for diagnosis in examine(config, airflow or {}):
        found.append(diagnosis)
        on_check(diagnosis)
    failed = any(diagnosis.health is Health.FAIL for diagnosis in found)
    return DoctorView(healthy=not failed, checks=tuple(found))


def examine(config: Path, airflow: Mapping[str, str]) -> Iterator[Diagnosis]:
    """Each diagnosis as soon as it is made.

    A failure that a check covers is never raised: a server that is down is a diagnosis.
    """
    yield check_python()
    yield check_distribution()
    try:
        settings = load_settings(config)
    except ConfigError as error:
        yield fail(CONFIG, error.what, error.next_step)
        yield skip("mysql, kafka, spark", "the configuration does not say where they are")
        return
    for name, wrong in settings.disabled.items():
        yield fail(CONFIG, f"pipeline {name} is disabled: {'; '.join(wrong)}", CORRECT_THEM)
    if settings.pipelines:
        yield ok(CONFIG, f"{config}, pipelines {', '.join(sorted(settings.pipelines))}")
    yield from _examine_all(config, settings, airflow)


def _examine_all(
    config: Path, settings: Settings, airflow: Mapping[str, str]
) -> Iterator[Diagnosis]:
    ctx, pipelines = open_context(settings), sorted(settings.pipelines)
    failed: set[str] = set()

    def noted(checks: Iterator[Diagnosis]) -> Iterator[Diagnosis]:
        for diagnosis in checks:
            if diagnosis.health is Health.FAIL:
                failed.add(diagnosis.check)
            yield diagnosis

    yield from noted(check_database(ctx, config))
    if not NEEDED & failed:
        yield from check_console(settings)
    yield from noted(check_broker(ctx, config))
    yield from check_engine(settings)
    answer = None
    if is_configured({**os.environ, **airflow}):
        answer = ask_airflow(airflow, pipelines)
        yield from check_airflow(answer, pipelines)
    else:
        yield no_airflow()
    if NEEDED & failed:
        yield skip("pipeline.*", "first what has failed above")
    else:
        yield from check_pipelines(ctx, surroundings(settings, answer))
