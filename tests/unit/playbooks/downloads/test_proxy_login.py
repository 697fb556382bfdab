"""A proxy that wants a login gets it, for downloads and for tools; no command line has the password, and nothing that is said."""

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils import proxy_login
from ansible.module_utils.rke2 import release_files
from ansible.module_utils.urls import open_url

from steps.clients.ansible import module_packing
from steps.clients.ansible.failures import failure_reason
from steps.clients.redact import Redactor
from steps.contract.host_play import FailureKind
from tests.unit.playbooks import library
from tests.unit.playbooks.library import PLAYBOOKS
from tests.unit.served import served

PASSWORD = "p@ss/w%rd: canary"
LOGIN = {"proxy_user": "bringup", "proxy_password": PASSWORD}
ARCHIVE = b"archive"
FILES = {
    "rke2.linux-amd64.tar.gz": ARCHIVE,
    "sha256sum-amd64.txt": f"{hashlib.sha256(ARCHIVE).hexdigest()}  rke2.linux-amd64.tar.gz\n".encode(),
}


@contextmanager
def proxy(refuses: int = 407) -> Iterator[str]:
    """The URL of a proxy that wants the login above, and has what lies behind it; with which code it refuses others."""
    wanted = "Basic " + base64.b64encode(f"bringup:{PASSWORD}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Proxy-Authorization") != wanted:
                self.send_error(refuses)
                return
            body = FILES[self.path.rpartition("/")[2]]
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, served(server):
        yield f"http://127.0.0.1:{server.server_address[1]}"


OPENERS = (open_url, library.loaded("urls", "packed").open_url)
"""Functions that open URLs for a module: Ansible's own, and its replacement in a packed module."""


def fetched(store: Path, opener: Any = open_url) -> list[str]:
    one = release_files.HostRelease("v1.35.7+rke2r1", "x86_64", "http://files.example.org/rke2", "", "", opener, str(store))
    found: list[str] = one.fetch([], check_mode=False)
    return found


@pytest.mark.parametrize("opener", OPENERS, ids=("unpacked", "packed"))
def test_a_release_comes_through_a_proxy_that_wants_a_login(opener: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with proxy() as url:
        monkeypatch.setenv("http_proxy", url)
        proxy_login.log_in(LOGIN)
        assert fetched(tmp_path, opener) == ["rke2.linux-amd64.tar.gz"]
        proxy_login.log_in(LOGIN)
        assert os.environ["http_proxy"].count("@") == 1, "a second time changes nothing"


@pytest.mark.parametrize("opener", OPENERS, ids=("unpacked", "packed"))
@pytest.mark.parametrize("login", [{}, {"proxy_user": "", "proxy_password": ""}, {**LOGIN, "proxy_password": "canary-2"}])
def test_no_login_or_a_wrong_one_is_told(
    login: dict[str, str], opener: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxy() as url:
        monkeypatch.setenv("http_proxy", url)
        proxy_login.log_in(login)
        with pytest.raises(release_files.InvalidRelease) as caught:
            fetched(tmp_path, opener)
    assert failure_reason(str(caught.value)) is FailureKind.PROXY
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(("login", "kind"), [({**LOGIN, "proxy_password": "canary-2"}, FailureKind.PROXY), ({}, None)])
def test_an_answer_as_of_a_site_is_the_proxys_where_a_login_was_given(
    login: dict[str, str], kind: FailureKind | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxy(refuses=401) as url:
        monkeypatch.setenv("http_proxy", url)
        proxy_login.log_in(login)
        with pytest.raises(release_files.InvalidRelease) as caught:
            fetched(tmp_path)
    assert failure_reason(str(caught.value)) is (kind or FailureKind.TASK_FAILED)


def test_what_is_reached_without_a_proxy_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "http://10.0.0.1")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    proxy_login.log_in(LOGIN)
    assert os.environ["NO_PROXY"] == "http://10.0.0.1"
    assert os.environ["HTTPS_PROXY"] == "http://bringup:p%40ss%2Fw%25rd%3A%20canary@proxy:3128"


@pytest.mark.parametrize("form", [PASSWORD, "p%40ss%2Fw%25rd%3A%20canary"])
def test_neither_form_of_the_password_is_repeated(form: str, tmp_path: Path) -> None:
    said = f"could not connect to http://bringup:{form}@proxy:3128"
    assert proxy_login.redact_login(said, LOGIN) == "could not connect to http://bringup:[redacted]@proxy:3128"
    (tmp_path / "proxy_password").write_text(f"{PASSWORD}\n")
    assert form not in Redactor([tmp_path]).text(said)


def test_a_module_tells_no_password_and_has_none_on_its_command_line(tmp_path: Path) -> None:
    given = {"profile": {}, **LOGIN, "_ansible_check_mode": True, "_ansible_no_log": True}
    script = module_packing.packed_module(PLAYBOOKS, "node_profile")
    script = script.replace('"<<INCLUDE_ANSIBLE_MODULE_COMPLEX_ARGS>>"', repr(json.dumps(given).encode()))
    environment = {**os.environ, "http_proxy": "http://proxy:3128"}
    done = subprocess.run([sys.executable, "-"], input=script, env=environment, capture_output=True, text=True, check=True)
    assert "observation" in json.loads(done.stdout)
    assert "canary" not in done.stdout + done.stderr


@pytest.mark.parametrize("login", [True, False])
def test_rke2_s_own_environment_has_the_login(login: bool, tmp_path: Path) -> None:
    """The template of the role, as Ansible makes it."""
    told = {"rke2_proxy": {"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": ".svc", "http_proxy": "http://proxy:3128"}}
    told |= {f"bringup_{name}": value for name, value in LOGIN.items()} if login else {}
    place = tmp_path / "made"
    command = [str(Path(sys.executable).with_name("ansible")), "localhost", "--connection", "local", "--module-name", "template"]
    command += ["--args", f"src={PLAYBOOKS / 'roles/rke2/templates/environment.j2'} dest={place}"]
    told |= {"ansible_python_interpreter": sys.executable}
    environment = {**os.environ, "ANSIBLE_HOME": str(tmp_path)}
    subprocess.run([*command, "--extra-vars", json.dumps(told)], env=environment, capture_output=True, check=True)
    said = "bringup:p%40ss%2Fw%25rd%3A%20canary@" if login else ""
    assert place.read_text() == f"# Made by bringup.\nHTTP_PROXY=http://{said}proxy:3128\nNO_PROXY=.svc\n"
