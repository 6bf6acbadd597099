"""``config``: the configuration that applies."""

from pathlib import Path

import click

from tally.app.configuration import effective
from tally.cli.app import App
from tally.cli.command import Command, Group
from tally.cli.options import json_option, pass_app, pipeline_argument
from tally.formatting import ABSENT


@click.group(cls=Group)
def config() -> None:
    """Show the configuration that applies."""


@config.command(
    cls=Command,
    examples=[
        "tally config show",
        "tally config show error_log --json | jq '.settings[] | select(.source != \"default\")'",
    ],
)
@pipeline_argument
@json_option
@pass_app
def show(app: App, pipeline: str | None) -> None:
    """Show every value that applies, and where it comes from.

    The source is an environment variable, a file, or the default. Secrets are hidden. With
    PIPELINE, of the pipelines only this one. In Airflow its connections override the addresses and
    passwords of Kafka, MySQL and Spark.
    """
    view = effective(app.settings, app.config_path, app.chosen(pipeline))
    if app.out.as_json:
        app.out.view(view)
        return
    for setting in view.settings:
        value = ABSENT if setting.value is None else setting.value
        app.out.line(f"{setting.key} = {value}  ({_near(setting.source)})")


def _near(source: str) -> str:
    """A file below the current folder, told from there."""
    folder = Path.cwd()
    path = Path(source)
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else source
