"""``version``: what is installed."""

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from platform import python_version
from typing import Final

import click

from tally import __version__
from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import pass_app
from tally.formatting import ABSENT

BESIDE: Final = ("pyspark", "pyspark-client", "apache-airflow", "confluent-kafka", "PyMySQL")


@click.command(cls=Command, examples=["tally version"])
@pass_app
def version(app: App) -> None:
    """Show the versions of Tally and of what it runs on."""
    app.out.line(f"tally {__version__}")
    app.out.line(f"python {python_version()}")
    for name in BESIDE:
        app.out.line(f"{name} {_installed(name)}")


def _installed(name: str) -> str:
    try:
        return version_of(name)
    except PackageNotFoundError:
        return ABSENT
