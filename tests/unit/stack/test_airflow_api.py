"""The demonstration's client for Airflow, with a stand-in for Airflow."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tally.errors import StackError
from tally_local.demo import airflow_api
from tally_local.demo.airflow_api import AirflowApi, RefusedError


class StandIn(ThreadingHTTPServer):
    """Gives a token, and says a number of times that it does not know the DAG."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.unknown = 0
        self.asked: list[Any] = []
        self.address = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """One question."""

    server: StandIn

    def log_message(self, *_: object) -> None:
        """Write nothing to stderr."""

    def do_POST(self) -> None:
        """The token, to who knows the password; what is wrong with the DAG files; unpause."""
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null")
        status, document = 200, {}
        if self.command == "POST":
            known = body == {"username": "ann", "password": "s3cret"}
            status, document = 201 if known else 401, {"access_token": "t0ken"}
        elif self.command == "GET":
            document = {"import_errors": [{"filename": "a.py", "stack_trace": "oops"}]}
        else:
            self.server.asked.append(("PATCH", self.path, body, self.headers["Authorization"]))
            self.server.unknown -= 1
            status = (404, 500)[self.server.unknown % 2] if self.server.unknown >= 0 else 200
        text = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PATCH = do_POST  # noqa: N815 - the names that the server calls


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """The stand-in; a proxy that the environment names has nothing to do with it."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setattr(airflow_api, "PAUSE_S", 0.01)
    with StandIn() as server:
        threading.Thread(target=server.serve_forever).start()
        yield server
        server.shutdown()


def test_an_unknown_dag_is_waited_for(airflow: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same question again, after a 500 too; if it never comes, the error has the cause."""
    airflow.unknown = 2
    api = AirflowApi(airflow.address, "ann", "s3cret")
    api.unpause("error_log")
    question = ("PATCH", "/api/v2/dags/error_log", {"is_paused": False}, "Bearer t0ken")
    assert airflow.asked == [question] * 3
    monkeypatch.setattr(airflow_api, "PATIENCE_S", 0.1)
    airflow.unknown = 1_000_000
    with pytest.raises(
        StackError, match=r"does not know the DAG error_log .*(404|500).*a\.py: oops"
    ):
        api.unpause("error_log")


def test_a_refusal_differs_from_no_answer(airflow: StandIn) -> None:
    """With its status; no password is in the message."""
    with pytest.raises(RefusedError, match="refused POST /auth/token with 401") as caught:
        AirflowApi(airflow.address, "ann", "wr0ng").ask("GET", "/api/v2/dags")
    assert caught.value.status == 401
    assert "wr0ng" not in str(caught.value)
    with pytest.raises(StackError, match="did not answer POST /auth/token") as silent:
        AirflowApi("http://127.0.0.1:1", "ann", "s3cret").ask("GET", "/api/v2/dags")
    assert not isinstance(silent.value, RefusedError)
