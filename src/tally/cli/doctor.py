"""``doctor``: check everything that Tally needs."""

import click

from tally.app.doctor import Diagnosis, Health, examine
from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import json_option
from tally.errors import EXIT_FINDINGS
from tally.formatting import plural

_LABELS = {Health.OK: "ok", Health.WARN: "warn", Health.FAIL: "FAIL", Health.SKIP: "skip"}


_INDENT = 32


@click.command(
    cls=Command,
    examples=["tally doctor", "tally doctor --json | jq '.checks[] | select(.health != \"ok\")'"],
)
@json_option
@click.pass_context
def doctor(context: click.Context) -> None:
    """Check everything Tally needs and say what to do.

    Looks at the configuration and the environment, MySQL (version, storage engine, session and
    server settings, grants, tables), Kafka (answers, topics, rights, and whether they are those
    of the ledger), Java and Spark with its Kafka connector, and Airflow's connections. Changes
    nothing; statements that try a right are rolled back. Exit code 1 when a check fails.
    """
    app = context.ensure_object(App)
    found: list[Diagnosis] = []
    for diagnosis in examine(app.config_path):
        found.append(diagnosis)
        if not app.out.as_json:
            _say(app, diagnosis)
    failed = [d for d in found if d.health is Health.FAIL]
    if app.out.as_json:
        app.out.document({"healthy": not failed, "checks": [_shape(d) for d in found]})
    else:
        _sum_up(app, found)
    context.exit(EXIT_FINDINGS if failed else 0)


def _say(app: App, diagnosis: Diagnosis) -> None:
    app.out.labelled(_LABELS[diagnosis.health], f"{diagnosis.check:24}  {diagnosis.detail}")
    if diagnosis.next_step:
        app.out.line(f"{'':{_INDENT}}next: {diagnosis.next_step}")


def _sum_up(app: App, found: list[Diagnosis]) -> None:
    counted = {health: sum(d.health is health for d in found) for health in Health}
    app.out.line()
    app.out.line(
        f"{plural(len(found) - counted[Health.SKIP], 'check')}: {counted[Health.FAIL]} failed, "
        f"{counted[Health.WARN]} to look at, {counted[Health.SKIP]} not asked"
    )


def _shape(diagnosis: Diagnosis) -> dict[str, str | None]:
    return {
        "check": diagnosis.check,
        "health": str(diagnosis.health),
        "detail": diagnosis.detail,
        "next_step": diagnosis.next_step or None,
    }
