"""``python -m tally_local.stack``: what the set-up and the Makefile do with the stack."""

import argparse
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from tally.errors import EXIT_OK, TallyError
from tally.spark.class_archive import build_archive
from tally.spark.jars import CONNECTOR, folder_checksums
from tally_local.stack.server import SERVERS
from tally_local.stack.stack import Stack


def _announce(message: str) -> None:
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


def _install(stack: Stack) -> None:
    stack.install()
    build_archive(stack.jars_dir, _announce)


def _lock_jars(stack: Stack) -> None:
    """Write the lists of checksums in the checkout again, from what Ivy fetches now."""
    for wanted in (CONNECTOR, SERVERS):
        lines: list[str] = []
        for configuration in wanted.titles:
            jars = wanted.fetch(configuration, stack.layout.downloads, _announce)
            digests = folder_checksums(jars).items()
            lines += [f"{digest}  {configuration}/{name}\n" for name, digest in digests]
        with resources.as_file(wanted.source / "jars.sha256") as path:
            path.write_text("".join(lines), encoding="utf-8")


_ACTIONS: dict[str, Callable[[Stack], object]] = {
    "install": _install,
    "down": Stack.down,
    "lock-jars": _lock_jars,
}


def main() -> int:
    """Run one action; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tally_local.stack")
    parser.add_argument("action", choices=_ACTIONS)
    parser.add_argument("--project", type=Path, default=Path.cwd(), help="the checkout")
    parser.add_argument("--home", type=Path, help="the stack's folder (default: .tally in it)")
    asked = parser.parse_args()
    try:
        _ACTIONS[asked.action](Stack(project=asked.project, home=asked.home, announce=_announce))
    except TallyError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
