"""Generated passwords and keys of one stack, made once and kept in one private file."""

import base64
import secrets
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from tally_local.stack.private_files import read_json, write_private_json


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
