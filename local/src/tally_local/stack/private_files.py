"""Files that only their owner may read, written whole or not at all."""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tally.errors import StackError


def write_private(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` with mode 0600; a reader sees either the old text or the new one.

    A file that already holds ``text`` keeps its time stamp.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists() and path.stat().st_mode & 0o777 == 0o600 and path.read_text() == text:
        return
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_private_json(path: Path, value: Mapping[str, Any]) -> None:
    """``write_private`` of ``value`` as JSON."""
    write_private(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """The object in ``path``; empty when there is no such file.

    Raises:
        StackError: The file holds something else, so Tally has not written it.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise StackError(
            f"{path} is not JSON: {error}", next_step=f"look at {path} and delete it"
        ) from error
    if not isinstance(value, dict):
        raise StackError(f"{path} is no JSON object", next_step=f"look at {path} and delete it")
    return value
