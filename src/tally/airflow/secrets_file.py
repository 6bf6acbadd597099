"""Passing secrets to the driver: a file that only its owner can read; its path is passed.

A task that is killed leaves its file behind; the next task deletes it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import tomli_w
from pydantic import BaseModel, SecretStr

from tally.config.settings import OF_DRIVERS, Settings
from tally.leftovers import is_private, new_file

KIND: Final = "secrets"
SUFFIX: Final = ".toml"


@contextmanager
def secrets_file(settings: Settings) -> Iterator[Path]:
    """A file with the settings of the servers, secrets included, for ``TALLY_SECRETS_FILE``.

    Mode 0600; deleted at the end of the block. After a SIGKILL the next call deletes it.

    Raises:
        ConfigError: The folder for it is another user's, or others may read it.
        UnwritableError: The folder is full, or cannot be written.
    """
    descriptor, path = new_file(KIND, SUFFIX, _session_folder())
    try:
        with os.fdopen(descriptor, "wb") as stream:
            sections = {key: getattr(settings, key) for key in OF_DRIVERS}
            plain = {key: _plain(of) for key, of in sections.items() if of is not None}
            tomli_w.dump(plain, stream)
        yield path
    finally:
        path.unlink(missing_ok=True)


def _session_folder() -> Path | None:
    """``$XDG_RUNTIME_DIR``; None where it is not set or not this user's."""
    given = os.environ.get("XDG_RUNTIME_DIR")
    if given and Path(given).is_absolute() and is_private(Path(given)):
        return Path(given)
    return None


def _plain(section: BaseModel) -> dict[str, Any]:
    """The section's values with the secrets in the clear; TOML has no null, so None is left out."""
    return {key: _bare(value) for key, value in section if value is not None}


def _bare(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return str(value) if isinstance(value, Path) else value
