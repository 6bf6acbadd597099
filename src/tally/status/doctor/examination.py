"""The order of the checks, and which of them are skipped after a failed one."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tally.config.loading import load_settings
from tally.config.settings import CORRECT_THEM, Settings
from tally.context import Context, open_context
from tally.errors import ConfigError, TallyError
from tally.status.doctor.diagnosis import Diagnosis, DoctorView, FailedError, fail, ok, skip
from tally.status.doctor.machine import (
    check_airflow,
    check_distribution,
    check_engine,
    check_python,
    no_airflow,
)
from tally.status.doctor.servers import check_broker, check_console, check_database
from tally.status.health import Health
from tally.status.overview import Statuses
from tally.status.status import StatusView
from tally.status.surroundings import Surroundings, ask_airflow, is_configured, surroundings

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
        try:
            for diagnosis in checks:
                if diagnosis.health is Health.FAIL:
                    failed.add(diagnosis.check)
                yield diagnosis
        except FailedError as error:
            failed.add(error.diagnosis.check)
            yield error.diagnosis

    yield from noted(check_database(ctx, config))
    if not NEEDED & failed:
        yield from noted(check_console(settings))
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


def check_pipelines(ctx: Context, surroundings: Mapping[str, Surroundings]) -> Iterator[Diagnosis]:
    """The health of each pipeline.

    Args:
        ctx: What is needed from outside.
        surroundings: What is known of Airflow and of the engine, by pipeline.
    """
    statuses = Statuses(ctx=ctx)
    for name in sorted(ctx.settings.pipelines):
        try:
            view = statuses.of(name, surroundings[name])
        except TallyError:
            yield skip(f"pipeline.{name}", "the ledger could not be asked")
        else:
            yield diagnosis_of(view)


def diagnosis_of(view: StatusView) -> Diagnosis:
    """A pipeline's health as one diagnosis."""
    check = f"pipeline.{view.pipeline}"
    if view.health is Health.OK:
        return ok(check, _sound(view))
    return Diagnosis(
        check=check,
        health=view.health,
        detail="; ".join(problem.detail for problem in view.problems),
        next_step=next((p.next_step for p in view.problems if p.next_step), None),
    )


def _sound(view: StatusView) -> str:
    if view.last_committed_batch is None:
        return f"nothing counted yet, lag {view.lag_offsets or 0:,}"
    read = view.understood
    return (
        f"lag {view.lag_offsets or 0:,}, {read.malformed:,} of the last {read.records:,} malformed"
    )
