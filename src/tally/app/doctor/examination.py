"""The order of the checks, and which of them are skipped after a failed one."""

from collections.abc import Callable, Iterator
from pathlib import Path

from tally.app.context import open_context
from tally.app.doctor.broker import check_broker
from tally.app.doctor.database import check_database
from tally.app.doctor.diagnosis import Diagnosis, DoctorView, Health, fail, ok, skip
from tally.app.doctor.engine import check_engine
from tally.app.doctor.environment import check_python
from tally.app.doctor.orchestration import check_airflow
from tally.config.complaints import CORRECT_THEM
from tally.config.loading import load_settings
from tally.errors import ConfigError

CONFIG = "config.valid"


def doctor(config: Path, *, on_check: Callable[[Diagnosis], None] = lambda _: None) -> DoctorView:
    """Check everything, most fundamental first.

    Args:
        config: The configuration file.
        on_check: Called with each diagnosis as soon as it is made.
    """
    found: list[Diagnosis] = []
    for diagnosis in examine(config):
        found.append(diagnosis)
        on_check(diagnosis)
    failed = any(diagnosis.health is Health.FAIL for diagnosis in found)
    return DoctorView(healthy=not failed, checks=tuple(found))


def examine(config: Path) -> Iterator[Diagnosis]:
    """Each diagnosis as soon as it is made.

    A failure that a check covers is never raised: a server that is down is a diagnosis.
    """
    yield check_python()
    try:
        settings = load_settings(config, none_valid=True)
    except ConfigError as error:
        yield fail(CONFIG, error.what, error.next_step)
        yield skip("mysql, kafka, spark", "the configuration does not say where they are")
        return
    for name, wrong in settings.disabled.items():
        yield fail(CONFIG, f"pipeline {name} is disabled: {'; '.join(wrong)}", CORRECT_THEM)
    if settings.pipelines:
        yield ok(CONFIG, f"{config}, pipelines {', '.join(sorted(settings.pipelines))}")
    ctx = open_context(settings)
    yield from check_database(ctx)
    yield from check_broker(ctx)
    yield from check_engine(settings)
    yield from check_airflow()
