"""``airflow``: let an Airflow of one's own find Tally, and call Airflow's own command line."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from tally.app.airflow_files import write_airflow_files
from tally.cli.app import App
from tally.cli.command import Command, Group
from tally.cli.extensions import airflow_environment
from tally.cli.options import pass_app
from tally.config.names import DAG_SUFFIXES
from tally.errors import ConfigError
from tally.formatting import close_to


class AirflowGroup(Group):
    """Other words than its commands are probably Airflow's."""

    def instead(self, args: Sequence[str], known: Sequence[str]) -> str:  # noqa: ARG002
        """The command that hands the words to Airflow."""
        return f"one of Airflow's is called by: tally airflow cli {shlex.join(args)}"


@click.group(cls=AirflowGroup)
def airflow() -> None:
    """Let an Airflow of your own find Tally, and call it."""


@airflow.command(
    cls=Command, examples=["tally airflow init .", "tally airflow init /opt/airflow --replace"]
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option("--replace", is_flag=True, help="Replace files that have another content.")
@pass_app
def init(app: App, folder: Path, replace: bool) -> None:
    """Write the DAG file, the plugin and the Spark entry point into DIR.

    They are short and import what is installed, so they seldom change with a new version of Tally.
    The configuration is DIR/tally.toml, or the file that TALLY_CONFIG names.
    """
    view = write_airflow_files(folder.absolute(), replace=replace)
    for file in view.files:
        app.out.line(f"{file.state}  {file.path}")
    app.out.line()
    app.out.line("Airflow finds them with")
    app.out.line(f"  AIRFLOW__CORE__DAGS_FOLDER={view.folder}/dags")
    app.out.line(f"  AIRFLOW__CORE__PLUGINS_FOLDER={view.folder}/plugins")
    app.out.line(f"or link {view.folder}/dags and {view.folder}/plugins into the folders it has.")


@airflow.command(
    cls=Command,
    examples=[
        "tally airflow cli dags unpause error_log",
        "tally airflow cli dags list-runs error_log",
    ],
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]...")
@pass_app
def cli(app: App, arguments: tuple[str, ...]) -> None:
    """Call Airflow's command line, with ARGUMENTS as they are.

    On the Airflow that AIRFLOW_HOME names; without it on that of the local stack, if there is one.
    What dags pause and dags unpause print is the state before.
    """
    if arguments[:2] in {("dags", "pause"), ("dags", "unpause")}:
        _mention_unknown(app, arguments[2:])
    environment = {**os.environ, **airflow_environment(app)}
    # It would warn with each command that a package is missing, with which it draws pictures.
    quiet = [environment.get("PYTHONWARNINGS", ""), "ignore:Could not import graphviz"]
    environment["PYTHONWARNINGS"] = ",".join(filter(None, quiet))
    program = [sys.executable, "-m", "airflow", *arguments]
    os.execve(sys.executable, program, environment)  # noqa: S606 - no shell; it gets the terminal


def _mention_unknown(app: App, dag_ids: Sequence[str]) -> None:
    """Name a DAG whose name looks like one of Tally's: Airflow takes a misspelt one for success."""
    from tally.config.loading import load_settings  # noqa: PLC0415 - --help does without

    try:
        pipelines = load_settings(app.config_path, needs_pipeline=False).names
    except ConfigError:  # Airflow's commands work without
        return
    known = [f"{name}{suffix}" for name in pipelines for suffix in ("", *DAG_SUFFIXES)]
    for dag_id in dag_ids:
        if dag_id not in known and (like := close_to(dag_id, known)):
            app.out.note(f"Tally has no DAG {dag_id}{like}")
