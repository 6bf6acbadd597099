"""``doctor``: check everything that Tally needs."""

from functools import partial

import click

from tally.app import doctor as use_case
from tally.app.doctor import Diagnosis, DoctorView, Health
from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.extensions import airflow_environment
from tally.cli.options import json_option
from tally.cli.ui.values import HEALTH_LABELS
from tally.errors import EXIT_FINDINGS
from tally.formatting import plural

_INDENT = 32


@click.command(
    cls=Command,
    examples=["tally doctor", "tally doctor --json | jq '.checks[] | select(.health != \"ok\")'"],
)
@json_option
@click.pass_context
def doctor(context: click.Context) -> None:
    """Check everything Tally needs and say what to do.

    Checks the configuration and the environment, MySQL (version, storage engine, settings, grants,
    tables), Kafka (topics, access rights), Java and Spark with its Kafka connector, Airflow
    (connections, scheduler, DAGs), and the health of each pipeline. Changes nothing; statements
    that try a grant are rolled back.
    """
    app = context.ensure_object(App)
    view = use_case.doctor(
        app.config_path, airflow=airflow_environment(app), on_check=partial(_show, app)
    )
    if app.out.as_json:
        app.out.view(view)
    else:
        _sum_up(app, view)
    context.exit(0 if view.healthy else EXIT_FINDINGS)


def _show(app: App, diagnosis: Diagnosis) -> None:
    if app.out.as_json:
        return
    app.out.labelled(HEALTH_LABELS[diagnosis.health], f"{diagnosis.check:24}  {diagnosis.detail}")
    if diagnosis.next_step:
        app.out.line(f"{'':{_INDENT}}next: {diagnosis.next_step}")


def _sum_up(app: App, view: DoctorView) -> None:
    skipped = view.count(Health.SKIP)
    app.out.line()
    app.out.line(
        f"{plural(len(view.checks) - skipped, 'check')}: {view.count(Health.FAIL)} failed, "
        f"{view.count(Health.WARN)} to look at, {skipped} skipped"
    )
