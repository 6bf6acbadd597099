"""The files of a local stack: where they are, and those that only their owner may read."""

import base64
import json
import os
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from tally.errors import StackError

FOLDER = ".tally"
"""The hidden folder in the checkout."""


class Layout:
    """The folders of one stack. Several stacks of one checkout share only the downloads.

    Args:
        project: The checkout.
        home: What belongs to this stack alone; the checkout's hidden folder when None.
    """

    def __init__(self, project: Path, home: Path | None = None) -> None:
        self.project = project.resolve()
        """The checkout, absolute."""
        self.home = (self.project / FOLDER if home is None else home).resolve()
        """What belongs to this stack alone, absolute."""
        self.downloads = self.project / FOLDER / "downloads"
        """Jars and servers, the same for every stack of the checkout."""
        self.airflow = self.home / "airflow"
        """Airflow's own folder, ``AIRFLOW_HOME``."""
        self.connections = self.airflow / "connections.json"
        """The connections of the stack's servers, in Airflow's format."""
        self.run = self.home / "run"
        """One record per started part."""
        self.logs = self.home / "logs"
        """One log per part, and one of its previous start."""
        self.lock = self.home / "stack.lock"
        """Held while parts are started or stopped."""
        self.ports = self.home / "ports.json"
        """The chosen ports."""
        self.credentials = self.home / "credentials.json"
        """The generated passwords and keys."""
        self.overlay = self.home / "stack.toml"
        """The settings of the stack's servers, which override ``tally.toml``, with passwords."""


def _password() -> str:
    return secrets.token_urlsafe(24)


def _fernet_key() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """Generated secrets of letters, digits, ``-`` and ``_`` (the Fernet key also has ``=``)."""

    mysql_root: str = field(default_factory=_password, repr=False)
    """MySQL's root account."""
    mysql_tally: str = field(default_factory=_password, repr=False)
    """MySQL's account of the application."""
    mysql_console: str = field(default_factory=_password, repr=False)
    """MySQL's account of the console, which may only read."""
    spark_token: str = field(default_factory=_password, repr=False)
    """The token of the Spark Connect server."""
    airflow_admin: str = field(default_factory=_password, repr=False)
    """Airflow's user ``admin``."""
    airflow_jwt: str = field(default_factory=_password, repr=False)
    """Signs Airflow's tokens."""
    airflow_secret: str = field(default_factory=_password, repr=False)
    """Signs Airflow's sessions and log requests."""
    airflow_fernet: str = field(default_factory=_fernet_key, repr=False)
    """Encrypts connections in Airflow's database."""

    @classmethod
    def of(cls, path: Path) -> "Credentials":
        """The credentials in ``path``; missing ones are generated and stored, for its owner."""
        known = read_json(path)
        names = {item.name for item in fields(cls)}
        credentials = cls(**{name: str(known[name]) for name in names & known.keys()})
        write_private_json(path, asdict(credentials))
        return credentials


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
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise StackError(f"{path} is no JSON object", next_step=f"look at {path} and delete it")
    return value
