"""The commands that set Tally up, and keep what it needs in order."""

import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from pathlib import Path
from platform import python_version
from tempfile import TemporaryDirectory
from typing import Final

import click

from tally import __version__
from tally.cli import options
from tally.cli.app import App
from tally.cli.command import Group, command
from tally.config.loading import load_settings
from tally.config.names import DAG_SUFFIXES
from tally.config.settings import CORRECT_THEM
from tally.errors import EXIT_FINDINGS, EXIT_OK, ConfigError, UsageError
from tally.formatting import ABSENT, close_to, plural
from tally.packaged import AIRFLOW_FILES, MONITORING_FILES, write_packaged
from tally.set_up import configuration

BESIDE: Final = ("pyspark", "pyspark-client", "apache-airflow", "confluent-kafka", "PyMySQL")

folder_argument = click.argument(
    "folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False)
)


@command()
@options.dry_run
@click.option("--check", is_flag=True, help="As --dry-run, and exit with 1 unless all is there.")
@click.option(
    "--expand",
    is_flag=True,
    help="Apply only what older versions count beside; before this one is installed everywhere.",
)
def migrate(app: App, dry_run: bool, check: bool, expand: bool) -> int:
    """Create or update Tally's tables in MySQL.

    Applies the numbered files of sql/ that the database does not have yet, and creates the result
    tables of the configured pipelines. It can be run at any time, by several processes at once, and
    again after it was interrupted. Where a pipeline is configured wrong, exit code 2, after all is
    done for the others. The preview also tries the rights that it needs, on tables that it drops
    again, and names what older versions of Tally will not count after.

    Examples:
        tally migrate --check
        tally migrate --expand
        tally migrate
    """
    from tally.mysql.migrations import pending, stopping  # noqa: PLC0415 - brings the clients
    from tally.set_up.migrate import check_rights, migrate, missing  # noqa: PLC0415 - the same

    database = app.context.database
    if previews := dry_run or check:
        if expand:
            raise UsageError("--expand previews nothing", next_step="leave out one of the options")
        done = missing(database, app.settings)
    else:
        done = migrate(database, app.settings, expand_only=expand)
    for name in done:
        app.out.line(f"{'would apply' if previews else 'applied'} {name}")
    if previews and done:
        if refusing := stopping(done):
            app.out.note(f"after {', '.join(refusing)} older versions of Tally no longer count")
        check_rights(database)
    if expand:
        if left := pending(database):
            app.out.note(f"left for tally migrate: {', '.join(left)}")
    elif disabled := app.settings.disabled:
        raise ConfigError(
            f"nothing is prepared for what is disabled: {', '.join(sorted(disabled))}",
            next_step=CORRECT_THEM,
        )
    if not done:
        app.out.line("nothing to apply" if expand else "everything is there")
    return EXIT_FINDINGS if check and done else EXIT_OK


@click.group(cls=Group)
def config() -> None:
    """Show the configuration that applies."""


@config.command(document=configuration.ConfigView)
@options.pipeline
def show(app: App, pipeline: str | None) -> None:
    """Show every value that applies, and where it comes from.

    The source is an environment variable, a file, or the default. Secrets are hidden. With
    PIPELINE, of the pipelines only this one. In Airflow its connections override the addresses and
    passwords of Kafka, MySQL and Spark.

    Examples:
        tally config show
        tally config show error_log --json | jq '.settings[] | select(.source != "default")'
    """
    names = [app.pipeline(pipeline)] if pipeline else app.settings.names
    view = configuration.effective(app.settings, app.config_path, names)
    app.out.document(view)
    for setting in view.settings:
        value = ABSENT if setting.value is None else setting.value
        app.out.line(f"{setting.key} = {value}  ({_near(setting.source)})")


def _near(source: str) -> str:
    """The path of a file below the current folder, relative to it."""
    folder, path = Path.cwd(), Path(source)
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else source


class AirflowGroup(Group):
    """Other words than its commands are probably Airflow's."""

    instead = "one of Airflow's is called by: tally airflow cli {words}"


@click.group(cls=AirflowGroup)
def airflow() -> None:
    """Let an Airflow of your own find Tally, and call it."""


replace_option = click.option(
    "--replace", is_flag=True, help="Replace files that have another content."
)


def _write(app: App, folder: Path, names: Sequence[str], replace: bool) -> None:
    for path, is_written in write_packaged(folder, names, replace=replace).items():
        app.out.line(f"{'written' if is_written else 'unchanged'}  {path}")


@airflow.command()
@folder_argument
@replace_option
def init(app: App, folder: Path, replace: bool) -> None:
    """Write the DAG file, the plugin and the Spark entry point into DIR.

    They import what is installed. The configuration is DIR/tally.toml, or the file that
    TALLY_CONFIG names.

    Examples:
        tally airflow init .
        tally airflow init /opt/airflow --replace
    """
    folder = folder.absolute()
    _write(app, folder, AIRFLOW_FILES, replace)
    app.out.line()
    app.out.line("Airflow finds them with")
    app.out.line(f"  AIRFLOW__CORE__DAGS_FOLDER={folder}/dags")
    app.out.line(f"  AIRFLOW__CORE__PLUGINS_FOLDER={folder}/plugins")
    app.out.line(f"or link the files of {folder}/dags and {folder}/plugins into its own folders.")


@airflow.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]...")
def cli(app: App, arguments: tuple[str, ...]) -> None:
    """Call Airflow's command line, with ARGUMENTS as they are.

    On the Airflow that AIRFLOW_HOME names; without it on that of the local stack, if there is one.
    What dags pause and dags unpause print is the state before.

    Examples:
        tally airflow cli dags unpause error_log
        tally airflow cli dags list-runs error_log
    """
    if arguments[:2] in {("dags", "pause"), ("dags", "unpause")}:
        _mention_unknown(app, arguments[2:])
    environment = {**os.environ, **app.airflow_environment}
    # It would warn with each command that a package is missing, with which it draws pictures.
    quiet = [environment.get("PYTHONWARNINGS", ""), "ignore:Could not import graphviz"]
    environment["PYTHONWARNINGS"] = ",".join(filter(None, quiet))
    program = [sys.executable, "-m", "airflow", *arguments]
    os.execve(sys.executable, program, environment)  # noqa: S606 - no shell; it gets the terminal


def _mention_unknown(app: App, dag_ids: Sequence[str]) -> None:
    """Name a DAG whose name looks like one of Tally's: Airflow takes a misspelt one for success."""
    try:
        pipelines = load_settings(app.config_path, needs_pipeline=False).names
    except ConfigError:  # Airflow's commands work without
        return
    known = [f"{name}{suffix}" for name in pipelines for suffix in ("", *DAG_SUFFIXES)]
    for dag_id in dag_ids:
        if dag_id not in known and (like := close_to(dag_id, known)):
            app.out.note(f"Tally has no DAG {dag_id}{like}")


@click.group(cls=Group)
def monitoring() -> None:
    """Let a Prometheus and a Grafana of your own watch Tally."""


@monitoring.command()
@folder_argument
@replace_option
def export(app: App, folder: Path, replace: bool) -> None:
    """Write the alert rules of Prometheus and the dashboard of Grafana below DIR.

    Examples:
        tally monitoring export /etc/prometheus
    """
    _write(app, folder.absolute(), MONITORING_FILES, replace)


@command()
@folder_argument
@click.option(
    "--python",
    "with_python",
    is_flag=True,
    help="Archive the Python packages, too, for executors on other machines.",
)
def jars(app: App, folder: Path, with_python: bool) -> None:
    """Fetch Spark's Kafka connector, and prepare Spark's start.

    The connector of the PySpark that Tally is tested with, and what it needs, by exact version from
    Maven Central, checked against checksums that come with Tally. Needs Java and the extra "spark".
    An archive of the classes that Spark loads is made beside the jars: with it Spark starts in half
    the time. Call this again after an update of Java or PySpark, with --python also of Tally.

    Examples:
        tally jars /opt/tally/jars
    """
    from tally.spark.class_archive import build_archive  # noqa: PLC0415 - --help does without
    from tally.spark.jars import install_connector  # noqa: PLC0415
    from tally.spark.python_archive import build_python_archive  # noqa: PLC0415

    found = install_connector(folder.absolute(), app.out.note)
    build_archive(folder, app.out.note)
    if with_python:
        build_python_archive(folder.absolute(), app.out.note)
    app.out.line(f"{plural(len(found), 'jar')} in {folder.absolute()}; in tally.toml:")
    app.out.line()
    app.out.line("[spark]")
    app.out.line(f'jars_dir = "{folder.absolute()}"')


@command("connect-server")
@click.option(
    "--master",
    default="local[*]",
    metavar="MASTER",
    help="Spark's master: where the server's tasks run.",
)
@click.option(
    "--port",
    type=options.Number("a port", max=65_535),
    default=15_002,
    help="The port on the loopback address.",
)
@click.option(
    "--memory",
    default="1g",
    metavar="SIZE",
    help="The heap of the server, in Java's notation.",
)
def connect_server(app: App, master: str, port: int, memory: str) -> None:
    """Keep a Spark Connect server running, so that no batch starts a Spark.

    Batches of Airflow and of `tally run` count on it when `spark.master`, or the connection
    tally_spark, is sc://localhost:PORT. It is started again when its JVM has ended, has run out of
    memory, does not answer for a minute, or has a task that still runs a minute after it was
    cancelled. It listens on the loopback address and asks for `spark.connect_token`; for other
    machines put a proxy with TLS in front of it. `spark.jars_dir` and `spark.conf` apply to it.

    Examples:
        tally connect-server
        tally connect-server --master spark://spark-master:7077 --memory 2g
    """
    from tally.spark import connect_server as server  # noqa: PLC0415 - as above, --help does without

    settings = load_settings(app.config_path, needs_pipeline=False).spark
    token = settings.connect_token.get_secret_value()
    if not token:
        raise ConfigError(
            "spark.connect_token is missing: the server would count for everybody on this machine",
            next_step="set it in a private file or as TALLY_SPARK__CONNECT_TOKEN, for the clients "
            "as well",
        )
    with TemporaryDirectory(prefix="tally-connect-server-") as folder:
        command = server.server_command(
            settings.model_copy(update={"master": master}),
            port=port,
            scratch=Path(folder),
            memory=memory,
        )
        app.out.note(f"a Spark Connect server on {master} is kept at sc://localhost:{port}")
        server.keep(command, port, environment=server.server_environment(token))


@command()
def version(app: App) -> None:
    """Show the versions of Tally and of what it runs on.

    Examples:
        tally version
    """
    app.out.line(f"tally {__version__}")
    app.out.line(f"python {python_version()}")
    for name in BESIDE:
        try:
            app.out.line(f"{name} {version_of(name)}")
        except PackageNotFoundError:
            app.out.line(f"{name} {ABSENT}")
