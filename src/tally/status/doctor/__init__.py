"""Checks of everything that Tally needs, in their order; a check that fails says what to do."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from tally.config.loading import load_settings
from tally.config.settings import CORRECT_THEM, Settings
from tally.context import open_context
from tally.errors import ConfigError, TallyError
from tally.status.doctor import diagnosis, machine, servers
from tally.status.doctor.diagnosis import Diagnosis, fail, ok, skip
from tally.status.health import Health
from tally.status.status import Statuses, StatusView
from tally.status.surroundings import UNKNOWN, ask_airflow, engine_error, is_configured

CONFIG: Final = "config.valid"
NEEDED: Final = frozenset({"mysql.reachable", "mysql.tables", "kafka.reachable"})
"""Without these no check of a pipeline is possible."""


def examine(config: Path, airflow: Mapping[str, str]) -> Iterator[Diagnosis]:
    """Check everything, most fundamental first; each diagnosis as soon as it is made.

    A failure that a check covers is never raised: a server that is down is a diagnosis.

    Args:
        config: The configuration file.
        airflow: Environment variables that say which Airflow to ask, besides this process's.
    """
    yield machine.check_python()
    yield machine.check_distribution()
    try:
        settings = load_settings(config)
    except ConfigError as error:
        yield diagnosis.refused(CONFIG, error)
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

    def made(checks: Iterator[Diagnosis]) -> Iterator[Diagnosis]:
        for found in diagnosis.until_failed(checks):
            failed.update({found.check} if found.health is Health.FAIL else ())
            yield found

    yield from made(servers.check_database(ctx, config))
    if not NEEDED & failed:
        yield from made(servers.check_console(settings))
    yield from made(servers.check_broker(ctx, config))
    yield from machine.check_engine(settings)
    around = UNKNOWN
    if is_configured({**os.environ, **airflow}):
        around = ask_airflow(airflow, settings)
        yield from machine.check_airflow(around, pipelines)
    else:
        yield machine.no_airflow()
    if NEEDED & failed:
        yield skip("pipeline.*", "first what has failed above")
        return
    around = replace(around, engine_error=engine_error(settings.spark))
    statuses = Statuses(ctx=ctx, surroundings=around)
    for name in pipelines:
        try:
            yield diagnosis_of(statuses.of(name))
        except TallyError:
            yield skip(f"pipeline.{name}", "the ledger could not be asked")


def diagnosis_of(view: StatusView) -> Diagnosis:
    """A pipeline's health as one diagnosis."""
    check, lag, read = f"pipeline.{view.pipeline}", view.lag_offsets or 0, view.understood
    if view.health is not Health.OK:
        return Diagnosis(
            check=check,
            health=view.health,
            detail="; ".join(problem.detail for problem in view.problems),
            next_step=next((p.next_step for p in view.problems if p.next_step), None),
        )
    if view.last_committed_batch is None:
        return ok(check, f"nothing counted yet, lag {lag:,}")
    return ok(check, f"lag {lag:,}, {read.malformed:,} of the last {read.records:,} malformed")
