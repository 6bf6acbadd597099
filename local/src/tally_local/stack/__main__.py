"""``python -m tally_local.stack``: what the set-up and the Makefile do with the stack."""

import sys
from collections.abc import Callable
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Final

import click

from tally.errors import TallyError
from tally.spark.class_archive import build_archive
from tally.spark.jars import CONNECTOR, Announce, folder_checksums
from tally_local.stack.server import SERVERS
from tally_local.stack.stack import Stack

_ANNOUNCE: Final[Announce] = partial(click.echo, err=True)


def _install(stack: Stack) -> None:
    stack.install()
    build_archive(stack.jars_dir, _ANNOUNCE)


def _lock_jars(stack: Stack) -> None:
    """Write the lists of checksums in the checkout again, from what Ivy fetches now."""
    for wanted in (CONNECTOR, SERVERS):
        lines: list[str] = []
        for configuration in wanted.titles:
            jars = wanted.fetch(configuration, stack.layout.downloads, _ANNOUNCE)
            digests = folder_checksums(jars).items()
            lines += [f"{digest}  {configuration}/{name}\n" for name, digest in digests]
        with resources.as_file(wanted.source / "jars.sha256") as path:
            path.write_text("".join(lines), encoding="utf-8")


_ACTIONS: Final[dict[str, Callable[[Stack], object]]] = {
    "install": _install,
    "down": Stack.down,
    "lock-jars": _lock_jars,
}


@click.command()
@click.argument("action", type=click.Choice(list(_ACTIONS)))
@click.option("--project", type=Path, default=Path.cwd, help="The checkout.")
@click.option("--home", type=Path, help="The stack's folder (default: .tally in the checkout).")
def main(action: str, project: Path, home: Path | None) -> None:
    """Run one action."""
    try:
        _ACTIONS[action](Stack(project=project, home=home, announce=_ANNOUNCE))
    except TallyError as error:
        click.echo(str(error), err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main(prog_name="python -m tally_local.stack")
