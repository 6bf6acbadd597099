"""The few questions that the demonstration asks of Airflow's API."""

import json
import time
import urllib.error
import urllib.request
from typing import Any, Final

from tally.errors import StackError

REQUEST_TIMEOUT_S: Final = 10
PATIENCE_S: Final = 180
PAUSE_S: Final = 1.0


class AirflowApi:
    """Airflow's API, as one user.

    Args:
        address: Where the API server listens, ``http://host:port``.
        user: The user.
        password: The user's password.
    """

    def __init__(self, address: str, user: str, password: str) -> None:
        self._address = address.rstrip("/")
        self._user = user
        self._password = password

    def unpause(self, dag_id: str) -> None:
        """Let a DAG be scheduled; waits until Airflow has parsed it.

        Raises:
            StackError: Airflow did not know the DAG in time; its import errors are in the message.
        """
        headers = self._headers()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self._ask("PATCH", f"/api/v2/dags/{dag_id}", headers, is_paused=False)
            except urllib.error.HTTPError as error:
                if error.code != 404 or time.monotonic() > deadline:
                    raise self._unknown(dag_id, headers, error) from error
                time.sleep(PAUSE_S)
            else:
                return

    def ask(self, method: str, path: str, **body: Any) -> Any:
        """One question, for instance ``GET /api/v2/dags``; the answer as JSON has it.

        Raises:
            HTTPError: Airflow refuses.
            StackError: It does not answer.
        """
        return self._ask(method, path, self._headers(), **body)

    def _headers(self) -> dict[str, str]:
        token = self._ask("POST", "/auth/token", {}, username=self._user, password=self._password)
        return {"Authorization": f"Bearer {token['access_token']}"}

    def _unknown(
        self, dag_id: str, headers: dict[str, str], error: urllib.error.HTTPError
    ) -> StackError:
        answer = self._ask("GET", "/api/v2/importErrors", headers)
        causes = [f"{e['filename']}: {e['stack_trace']}" for e in answer["import_errors"]]
        return StackError(
            f"Airflow does not know the DAG {dag_id} ({error}); import errors: {causes or 'none'}",
            next_step="look at the DAG processor's part of Airflow's log",
        )

    def _ask(self, method: str, path: str, headers: dict[str, str], **body: Any) -> Any:
        request = urllib.request.Request(  # noqa: S310 - the stack's own address
            self._address + path,
            data=json.dumps(body).encode() if body else None,
            headers={"Content-Type": "application/json", **headers},
            method=method,
        )
        try:
            with urllib.request.urlopen(  # noqa: S310
                request, timeout=REQUEST_TIMEOUT_S
            ) as answer:
                return json.load(answer)
        except urllib.error.HTTPError:
            raise  # an answer; what it means depends on the question
        except OSError as error:
            raise StackError(
                f"Airflow at {self._address} did not answer {method} {path}: {error}",
                next_step="tally status, and the end of Airflow's log below .tally/logs",
            ) from error
