"""A client for the few requests that the demonstration sends to Airflow's API."""

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Self

import httpx
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from tally.errors import StackError
from tally_local.stack.airflow_server import ADMIN
from tally_local.stack.server import Part
from tally_local.stack.stack import Stack

REQUEST_TIMEOUT_S: Final = 10
PATIENCE_S: Final = 180
PAUSE_S: Final = 1.0
ANSWER_CHARACTERS: Final = 500


class RefusedError(StackError):
    """Airflow has answered with an error.

    Args:
        what: As for every error.
        status: The HTTP status.
        next_step: As for every error.
    """

    def __init__(self, what: str, *, status: int, next_step: str = "") -> None:
        super().__init__(what, next_step=next_step)
        self.status = status


@dataclass(frozen=True, slots=True)
class AirflowApi:
    """Airflow's API, as one user."""

    address: str
    """Where the API server listens, ``http://host:port``."""
    user: str
    """The user."""
    password: str = field(repr=False)
    """The user's password."""
    timeout_s: float = REQUEST_TIMEOUT_S
    """Seconds that an answer may take."""

    @classmethod
    def of(cls, stack: Stack, *, timeout_s: float = REQUEST_TIMEOUT_S) -> Self:
        """That of a stack whose Airflow runs, as its admin."""
        (status,) = (s for s in stack.status() if s.part is Part.AIRFLOW)
        password = stack.credentials().airflow_admin
        return cls(str(status.address), ADMIN, password, timeout_s=timeout_s)

    def unpause(self, dag_id: str) -> None:
        """Unpause a DAG; waits until Airflow has parsed it and its database is free.

        Raises:
            StackError: Airflow did not know the DAG in time; its import errors are in the message.
        """
        parsed = Retrying(
            retry=retry_if_exception(_is_transient),
            stop=stop_after_delay(PATIENCE_S),
            wait=wait_fixed(PAUSE_S),
            reraise=True,
        )
        try:
            parsed(self.ask, "PATCH", f"/api/v2/dags/{dag_id}", is_paused=False)
        except RefusedError as error:
            answer = self.ask("GET", "/api/v2/importErrors")
            causes = [f"{e['filename']}: {e['stack_trace']}" for e in answer["import_errors"]]
            raise StackError(
                f"Airflow does not know the DAG {dag_id} ({error.what}); import errors: "
                f"{causes or 'none'}",
                next_step="look at the DAG processor's part of Airflow's log",
            ) from error

    def pause(self, dag_id: str) -> None:
        """Pause a DAG: its running tasks go on, no run begins.

        Raises:
            StackError: Airflow does not know the DAG, or does not answer.
        """
        self.ask("PATCH", f"/api/v2/dags/{dag_id}", is_paused=True)

    def ask(self, method: str, path: str, **body: Any) -> Any:
        """Send a request, for instance ``GET /api/v2/dags``; returns the JSON of the answer.

        Raises:
            RefusedError: Airflow answers with an error, for instance as it does not know the user.
            StackError: Airflow does not answer.
        """
        token = self._ask("POST", "/auth/token", {}, username=self.user, password=self.password)
        headers = {"Authorization": f"Bearer {token['access_token']}"}
        return self._ask(method, path, headers, **body)

    def _ask(self, method: str, path: str, headers: dict[str, str], **body: Any) -> Any:
        try:
            answer = httpx.request(
                method,
                self.address + path,
                json=body or None,
                headers=headers,
                timeout=self.timeout_s,
                trust_env=False,  # the address is this machine's: a proxy would not find it
            )
            answer.raise_for_status()
            return answer.json()
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            raise RefusedError(
                f"Airflow at {self.address} refused {method} {path} with {status}: "
                f"{error.response.text[:ANSWER_CHARACTERS]}",
                status=status,
                next_step="look at Airflow's log below .tally/logs",
            ) from error
        except (httpx.HTTPError, ValueError) as error:
            raise StackError(
                f"Airflow at {self.address} did not answer {method} {path}: {error}",
                next_step="tally status, and the end of Airflow's log below .tally/logs",
            ) from error


def _is_transient(error: BaseException) -> bool:
    """Whether Airflow has not parsed the DAG yet, or its SQLite was locked by another writer."""
    return isinstance(error, RefusedError) and (
        error.status == HTTPStatus.NOT_FOUND or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    )
