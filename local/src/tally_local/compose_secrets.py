"""The secrets of ``docker-compose.yml``: one private file each, made once.

Run it from the checkout before the first ``docker compose up``; the standard library is enough::

    PYTHONPATH=local/src python3 -m tally_local.compose_secrets

Servers keep the passwords of their first start, so existing secrets are never changed. For new
ones: ``docker compose down --volumes``, delete the folder, run this again.
"""

import base64
import json
import secrets
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

FOLDER: Final = Path(".tally") / "compose" / "secrets"
"""The folder in which the Compose file expects them, relative to the checkout."""

COMPOSE_FILE: Final = "docker-compose.yml"


def secret_files() -> dict[str, str]:
    """New secrets by file name; a secret that several servers share is the same in all files."""
    mysql, console, postgres, spark = (_password() for _ in range(4))
    return {
        "airflow_api_secret_key": _password(),
        "airflow_connections.json": json.dumps(_connections(mysql, console, spark), indent=2),
        "airflow_database": f"postgresql+psycopg2://airflow:{postgres}@postgres/airflow",
        "airflow_fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "airflow_jwt_secret": _password(),
        "airflow_passwords.json": json.dumps({"admin": _password()}),
        "mysql_console.sql": f"create user 'tally_console'@'%' identified by '{console}';\n"
        "grant select on tally.* to 'tally_console'@'%';\n",
        "mysql_root_password": _password(),
        "mysql_tally_password": mysql,
        "postgres_password": postgres,
        "tally.toml": f'[mysql]\npassword = "{mysql}"\n[spark]\nconnect_token = "{spark}"\n',
    }


def write_secrets(folder: Path) -> bool:
    """Create ``folder`` with all the secrets, readable by its owner only; all of them or none.

    Returns:
        False when the folder existed already; then nothing was changed.
    """
    if folder.exists():
        return False
    new = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700, parents=True)
    for name, text in secret_files().items():
        (new / name).touch(mode=0o600)
        (new / name).write_text(text, encoding="utf-8")
    new.rename(folder)
    return True


def _connections(
    mysql_password: str, console_password: str, spark_token: str
) -> Mapping[str, Mapping[str, object]]:
    """Airflow's connections, in the format of its local-filesystem backend."""
    return {
        "tally_kafka": {"conn_type": "kafka", "extra": {"bootstrap.servers": "kafka:9092"}},
        "tally_mysql": {
            "conn_type": "mysql",
            "host": "mysql",
            "port": 3306,
            "login": "tally",
            "password": mysql_password,
            "schema": "tally",
        },
        "tally_console": {
            "conn_type": "mysql",
            "login": "tally_console",
            "password": console_password,
        },
        # The server in the scheduler's network.
        "tally_spark": {
            "conn_type": "spark_connect",
            "host": "localhost",
            "port": 15002,
            "password": spark_token,
        },
    }


def _password() -> str:
    # Letters, digits, `-` and `_`: nothing to escape in a URL, in TOML, in JSON or in SQL.
    return secrets.token_urlsafe(24)


def main() -> int:
    """Write the secrets of the checkout in the working directory; return the exit code."""
    if not Path(COMPOSE_FILE).is_file():
        sys.stderr.write(f"there is no {COMPOSE_FILE} here. Next: run this from the checkout\n")
        return 2
    if write_secrets(FOLDER):
        sys.stderr.write(f"wrote {FOLDER}; the password of Airflow's admin is in ")
        sys.stderr.write("airflow_passwords.json\n")
    else:
        sys.stderr.write(f"{FOLDER} exists already and was not changed\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
