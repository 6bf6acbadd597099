"""``tally`` with a reader that needs no Spark; all else is the real command line."""

from contextlib import nullcontext

from tally.cli import cli
from tally.cli.app import App
from tally.config.settings import Settings
from tally.context import OpenReader
from tests.python_reader import PythonReader


def read_with(settings: Settings, *_: object) -> OpenReader:
    """See :attr:`tally.cli.app.App.read_with`."""
    return lambda: nullcontext(PythonReader(kafka=settings.kafka))


if __name__ == "__main__":
    cli.main(obj=App(read_with=read_with), prog_name="tally")
