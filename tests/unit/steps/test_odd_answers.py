"""An API server whose answers cannot be read ends no task as a bug: the record says what came, and the code says what to do."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from steps.contract.exit import ExitCode
from steps.contract.task import Task, Verb
from steps.contract.verdict import FailureClass, Status
from workflows.rehearsal.apiserver.emulated_server import kubeconfig_text

ANSWER = {"body": b""}


@pytest.fixture(scope="module")
def odd() -> Iterator[str]:
    """A kubeconfig of a server that says the same to everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(ANSWER["body"])

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield kubeconfig_text(f"http://127.0.0.1:{server.server_address[1]}", "t")
        server.shutdown()
        thread.join()


WAIT = Task(
    stage="gang",
    name="control",
    verb=Verb.WAIT,
    deadline_seconds=0,
    arguments={"gate": "gang/control"},
    expectations={"deployments": ["scheduler"]},
)


@pytest.mark.parametrize(
    ("body", "code", "status", "kind", "said"),
    [
        (b"<html>proxy</html>", ExitCode.TEMPORARY, Status.INCONCLUSIVE, FailureClass.RUNTIME, "no JSON"),
        (
            b'{"kind": "Odd", "resources": 3, "items": 3}',
            ExitCode.GATE_FAILED,
            Status.FAIL,
            FailureClass.DEPENDENCY,
            "this Odd",
        ),
    ],
    ids=["a page of a proxy", "another form"],
)
def test_an_answer_that_cannot_be_read_is_recorded(
    desk: Any, odd: str, body: bytes, code: ExitCode, status: Status, kind: FailureClass, said: str
) -> None:
    ANSWER["body"] = body
    (desk.root / "secrets" / "kubeconfig").write_text(odd)
    done = desk.run(WAIT)
    assert desk.store.records("r1", WAIT.stage, WAIT.name), done.stderr
    record = desk.record(WAIT.stage, WAIT.name)
    assert (done.returncode, record.verdict.status, record.verdict.failure_class) == (code, status, kind), done.stderr
    assert said in record.verdict.reason
    assert said in record.error
    assert "Traceback" not in done.stderr
