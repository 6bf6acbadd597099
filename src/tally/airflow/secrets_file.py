"""Handing the driver its secrets: a file for its owner alone, of which only the path is passed."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, SecretStr

from tally.config.settings import Settings

PREFIX: Final = "tally-secrets-"
_SECTIONS: Final = ("kafka", "mysql", "spark")


@contextmanager
def secrets_file(settings: Settings) -> Iterator[Path]:
    """A file with how to reach the servers, secrets included, for ``TALLY_SECRETS_FILE``.

    Mode 0600; gone at the end, however that comes, short of a SIGKILL.
    """
    descriptor, name = tempfile.mkstemp(prefix=PREFIX, suffix=".toml")  # mode 0600
    path = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(_toml(settings))
        yield path
    finally:
        path.unlink(missing_ok=True)


def _toml(settings: Settings) -> str:
    return "\n".join(_table(name, _plain(getattr(settings, name))) for name in _SECTIONS)


def _plain(section: BaseModel) -> dict[str, Any]:
    """The section's values with the secrets in the clear; TOML has no null, so None is left out."""
    return {key: _bare(value) for key, value in section if value is not None}


def _bare(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value) if isinstance(value, Path) else value


def _table(name: str, values: Mapping[str, Any]) -> str:
    lines = [f"[{name}]"]
    lines += [
        f"{_text(key)} = {_scalar(value)}"
        for key, value in values.items()
        if not isinstance(value, Mapping)
    ]
    lines += [
        _table(f"{name}.{_text(key)}", value)
        for key, value in values.items()
        if isinstance(value, Mapping)
    ]
    return "\n".join([*lines, ""])


def _scalar(value: Any) -> str:
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _text(value: str) -> str:
    # A JSON string is a TOML string, so long as nothing is escaped as a pair; only TOML minds DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
