"""``jars``: Spark's Kafka connector, for a Spark that does not have it."""

from pathlib import Path

import click

from tally.cli.app import App
from tally.cli.command import Command
from tally.cli.options import pass_app
from tally.formatting import plural


@click.command(cls=Command, examples=["tally jars /opt/tally/jars"])
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@pass_app
def jars(app: App, folder: Path) -> None:
    """Fetch Spark's Kafka connector into a folder.

    The connector of the PySpark that Tally is tested with, and what it needs, by exact version from
    Maven Central, each file checked against a checksum that comes with Tally. Needs Java and the
    extra "spark". A second call fetches nothing that is not there yet.
    """
    from tally.spark.jars import install_connector  # noqa: PLC0415 - --help does without

    found = install_connector(folder.absolute(), app.out.note)
    app.out.line(f"{plural(len(found), 'jar')} in {folder.absolute()}; in tally.toml:")
    app.out.line()
    app.out.line("[spark]")
    app.out.line(f'jars_dir = "{folder.absolute()}"')
