"""``python -m tally_local.stack``: the stack without Tally's commands, for the set-up."""

import argparse
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from tally.errors import EXIT_FINDINGS, EXIT_OK, TallyError
from tally.spark.jars import CONNECTOR, Jars, folder_checksums
from tally_local.stack.server import Part, PartState
from tally_local.stack.server_jars import SERVERS
from tally_local.stack.stack import ALL_PARTS, USUAL_PARTS, Stack


def _announce(message: str) -> None:
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()


def _install(stack: Stack, parts: list[Part]) -> int:  # noqa: ARG001
    from tally.spark.class_archive import build_archive  # noqa: PLC0415 - Spark is heavy

    stack.install()
    build_archive(stack.jars_dir, _announce)
    return EXIT_OK


def _up(stack: Stack, parts: list[Part]) -> int:
    wanted = parts or list(USUAL_PARTS)
    stack.up(wanted)
    return _status(stack, wanted)


def _down(stack: Stack, parts: list[Part]) -> int:
    stack.down(parts or ALL_PARTS)
    return EXIT_OK


def _status(stack: Stack, parts: list[Part]) -> int:
    found = [status for status in stack.status() if not parts or status.part in parts]
    for status in found:
        sys.stdout.write(
            f"{status.part:8} {status.state:8} {status.address or '-':24} pid {status.pid or '-'}\n"
        )
        sys.stdout.writelines(f"    {line}\n" for line in status.log_tail)
    healthy = all(status.state is not PartState.CRASHED for status in found)
    return EXIT_OK if healthy else EXIT_FINDINGS


def _foreground(stack: Stack, parts: list[Part]) -> int:
    wanted = parts or list(USUAL_PARTS)
    try:
        with stack.foreground(wanted):
            _status(stack, wanted)
            stack.watch(wanted)
    except KeyboardInterrupt:
        pass
    return EXIT_OK


def _lock_jars(stack: Stack, parts: list[Part]) -> int:  # noqa: ARG001
    """Write the lists of checksums in the checkout again, from what Ivy fetches now."""
    for wanted in (CONNECTOR, SERVERS):
        jars = Jars(stack.layout.downloads, wanted)
        lines = [
            f"{digest}  {configuration}/{name}\n"
            for configuration in wanted.titles
            for name, digest in folder_checksums(jars.fetch(configuration, _announce)).items()
        ]
        with resources.as_file(wanted.folder / "jars.sha256") as path:
            path.write_text("".join(lines), encoding="utf-8")
    return EXIT_OK


_ACTIONS: dict[str, Callable[[Stack, list[Part]], int]] = {
    "install": _install,
    "up": _up,
    "down": _down,
    "status": _status,
    "foreground": _foreground,
    "lock-jars": _lock_jars,
}


def main() -> int:
    """Run one action; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tally_local.stack")
    parser.add_argument("action", choices=_ACTIONS)
    parser.add_argument("parts", nargs="*", type=Part, metavar="PART")
    parser.add_argument("--project", type=Path, default=Path.cwd(), help="the checkout")
    parser.add_argument("--home", type=Path, help="the stack's folder (default: .tally in it)")
    arguments = parser.parse_args()
    stack = Stack(project=arguments.project, home=arguments.home, announce=_announce)
    try:
        return _ACTIONS[arguments.action](stack, arguments.parts)
    except TallyError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
