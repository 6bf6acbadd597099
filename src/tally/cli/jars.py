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
    """Fetch Spark's Kafka connector, and prepare Spark's start.

    The connector of the PySpark that Tally is tested with, and what it needs, by exact version from
    Maven Central, checked against checksums that come with Tally. Needs Java and the extra "spark".
    An archive of the classes that Spark loads is made beside the jars: with it Spark starts in half
    the time. Call this again after an update of Java or PySpark.
    """
    from tally.spark.class_archive import build_archive  # noqa: PLC0415 - --help does without
    from tally.spark.jars import install_connector  # noqa: PLC0415

    found = install_connector(folder.absolute(), app.out.note)
    build_archive(folder, app.out.note)
    app.out.line(f"{plural(len(found), 'jar')} in {folder.absolute()}; in tally.toml:")
    app.out.line()
    app.out.line("[spark]")
    app.out.line(f'jars_dir = "{folder.absolute()}"')
