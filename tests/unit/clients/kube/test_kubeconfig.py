"""Kubeconfigs: where a token or certificate may stand, and what is said when it does not."""

import base64
import datetime
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from steps.clients.kube import kubeconfig
from steps.clients.kube.api import Http
from steps.errors import BadTask, Unreachable
from tests.unit.served import served
from workflows.rehearsal.apiserver.emulated_server import self_signed

CREDENTIAL = '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "%s"}}'


def written(folder: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None) -> Path:
    server = {"server": "https://192.0.2.1:6443/", **(cluster or {})}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": server}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


def plug_in(code: str) -> dict[str, Any]:
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": sys.executable, "args": ["-c", code], "interactiveMode": "Never"}}


def test_a_token_file_is_read_anew_each_time(tmp_path: Path) -> None:
    path = written(tmp_path, {"tokenFile": "token"})
    for token in ("first", "second"):
        (tmp_path / "token").write_text(f"{token}\n")
        assert kubeconfig.load(path).token == token


def test_an_exec_plug_in_is_asked_each_time(tmp_path: Path) -> None:
    given = CREDENTIAL % "from-the-plug-in"
    code = f"open({str(tmp_path / 'asked')!r}, 'a').write('x'); print({given!r})"
    path = written(tmp_path, plug_in(code))
    found = [kubeconfig.load(path) for _ in range(2)]
    assert [(one.server, one.token) for one in found] == [("https://192.0.2.1:6443", "from-the-plug-in")] * 2
    assert (tmp_path / "asked").read_text() == "xx"


def test_several_files_are_one_kubeconfig(tmp_path: Path) -> None:
    """As kubectl joins them: of each name the first entry holds, whichever file it is in; files lie beside who names them."""
    other = {"server": "https://192.0.2.2", "certificate-authority": "ca.crt"}
    first, second = (tmp_path / name for name in ("first", "second"))
    for folder in (first, second):
        folder.mkdir()
        (folder / "token").write_text(folder.name)
        (folder / "ca.crt").write_text(CERTIFICATE.public)
    a, b = written(first, {"tokenFile": "token"}), written(second, {"tokenFile": "token"}, other)
    b.write_text(b.read_text().replace("name: x", "name: lab").replace("name: u", "name: v").replace("user: u", "user: v"))
    assert kubeconfig.load(a, b) == kubeconfig.load(a)
    lab = kubeconfig.load(a, b, context="lab")
    assert (lab.server, lab.token) == ("https://192.0.2.1:6443", "second"), "its cluster's name is that of the first file"
    assert kubeconfig.load(b, a, context="lab").server == "https://192.0.2.2"
    with pytest.raises(BadTask, match=f"kubeconfig {a}:{b}: no entry 'gone' under contexts") as refused:
        kubeconfig.load(a, b, context="gone")
    assert refused.value.hint == "contexts there: lab, x"
    empty = tmp_path / "empty"
    empty.touch()
    assert kubeconfig.load(empty, a) == kubeconfig.load(a), "kubectl takes an empty file as one without entries"
    empty.write_text("a: [\nb")
    with pytest.raises(BadTask, match="is no YAML") as broken:
        kubeconfig.load(empty, a)
    assert "\n" not in str(broken.value)
    b.write_text("current-context: lab\ncontexts: {a: b}")
    with pytest.raises(BadTask, match=f"kubeconfig {b}: contexts is no list"):
        kubeconfig.load(b, a)


def test_a_plug_in_is_found_in_the_second_file_too(tmp_path: Path) -> None:
    first, second = (tmp_path / name for name in ("first", "second"))
    for folder in (first, second):
        folder.mkdir()
    a = written(first, {"token": "t"})
    b = written(second, plug_in(f"print({CREDENTIAL % 'from-the-plug-in'!r})"))
    b.write_text(b.read_text().replace("name: x", "name: lab").replace("name: u", "name: v").replace("user: u", "user: v"))
    assert kubeconfig.load(a, b, context="lab").token == "from-the-plug-in"


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


CERTIFICATE, OTHER = (self_signed(datetime.datetime.now(datetime.UTC)) for _ in range(2))
PUBLIC, KEY = base64_of(CERTIFICATE.public), base64_of(CERTIFICATE.key)
GARBAGE = base64_of("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")


@pytest.mark.parametrize(
    ("user", "cluster", "said"),
    [
        pytest.param({"tokenFile": "gone"}, {}, "tokenFile gone: No such file or directory", id="token file"),
        pytest.param({}, {"certificate-authority": "ca.crt"}, "certificate-authority ca.crt: No such file", id="certificate"),
        pytest.param({}, {"certificate-authority": "/dev/null"}, "certificate-authority /dev/null is empty", id="empty file"),
        pytest.param({"client-key-data": "%"}, {}, "client-key-data is no base64 text", id="base64"),
        pytest.param(plug_in("import sys; sys.exit(3)"), {}, "the plug-in of context 'x' gave no credentials", id="plug-in"),
        pytest.param({"exec": "aws"}, {}, "the plug-in of context 'x' gave no credentials", id="plug-in of another form"),
        pytest.param({}, {"certificate-authority-data": base64_of("CA")}, "certificate-authority is no certificate", id="ca"),
        pytest.param({}, {"certificate-authority-data": GARBAGE}, "certificate-authority is no certificate", id="garbage ca"),
        pytest.param(
            plug_in(f"print({CREDENTIAL % 't'!r})"),
            {"certificate-authority-data": GARBAGE},
            "is no certificate",
            id="ca and plug-in",
        ),
        pytest.param({"client-certificate-data": PUBLIC}, {}, "it has a client-certificate and no client-key", id="no key"),
        pytest.param({"client-key-data": KEY}, {}, "it has a client-key and no client-certificate", id="no certificate"),
        pytest.param(
            {"client-certificate-data": GARBAGE, "client-key-data": KEY},
            {},
            "client-certificate and client-key cannot",
            id="garbage",
        ),
        pytest.param(
            {"client-certificate-data": base64_of(OTHER.public), "client-key-data": KEY},
            {},
            "cannot be used (key values mismatch)",
            id="of another key",
        ),
        pytest.param({"token": 12}, {}, "token is no text; put it in quotes", id="number"),
        pytest.param({}, {"insecure-skip-tls-verify": "false"}, "insecure-skip-tls-verify is neither true nor false", id="flag"),
        pytest.param({}, {"server": "192.0.2.1:6443"}, "server '192.0.2.1:6443' is no URL of an API server", id="no scheme"),
        pytest.param({}, {"server": "https://a:b"}, "is no URL of an API server", id="port"),
        pytest.param({}, {"server": "https://u:p@a"}, "is no URL of an API server", id="login"),
        pytest.param({"token": "t"}, {"server": "http://192.0.2.1:6443"}, "credentials over plain http", id="plain http"),
        pytest.param({"token": "t"}, {"server": None}, "its cluster names no server", id="no server"),
        pytest.param({"token": "t"}, {"proxy-url": "http://proxy:3128"}, "proxy-url of entry 'c' under clusters", id="proxy"),
        pytest.param({"token": "t", "as": "system:nobody"}, {}, "as of entry 'u' under users is not honoured here", id="as"),
        pytest.param(plug_in("") | {"as-groups": ["g"]}, {}, "as-groups of entry 'u'", id="as with plug-in"),
        pytest.param({"username": "ada", "password": "p"}, {}, "username of entry 'u'", id="password"),
    ],
)
def test_what_is_missing_or_wrong_is_named(tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], said: str) -> None:
    path = written(tmp_path, user, cluster)
    with pytest.raises(BadTask) as caught:
        kubeconfig.load(path)
    assert str(caught.value).startswith(f"kubeconfig {path}: ")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"current-context": None}, "it has no current-context"),
        ({"current-context": "y"}, "no entry 'y' under contexts"),
        ({"users": [{"name": "u", "user": None}]}, "entry 'u' under users has no mapping user"),
        ({"users": [{"name": "u"}]}, "entry 'u' under users has no mapping user"),
        ({"users": None}, "no entry 'u' under users"),
        ({"clusters": [{"name": "c", "cluster": None}]}, "entry 'c' under clusters has no mapping cluster"),
        ({"clusters": {"name": "c"}}, "clusters is no list"),
        ({"contexts": [{"name": "x", "context": "c"}]}, "entry 'x' under contexts has no mapping context"),
    ],
)
def test_entries_of_another_form_are_named(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    path = written(tmp_path, {"token": "t"})
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changed))
    with pytest.raises(BadTask) as caught:
        kubeconfig.load(path)
    assert str(caught.value) == f"kubeconfig {path}: {said}"


def test_plain_http_is_for_servers_of_this_machine(tmp_path: Path) -> None:
    for server in ("http://127.0.0.1:8001", "http://localhost:8001", "http://[::1]:8001"):
        assert kubeconfig.load(written(tmp_path, {"token": "t"}, {"server": server})).server == server


@pytest.fixture
def secured() -> Iterator[int]:
    """The port of an API server at 127.0.0.2, whose certificate is for localhost and 127.0.0.1."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.2", 0), Handler) as server:
        server.socket = CERTIFICATE.context().wrap_socket(server.socket, server_side=True)
        with served(server):
            yield server.server_address[1]


def test_the_server_is_known_by_the_name_that_the_kubeconfig_gives(tmp_path: Path, secured: int) -> None:
    cluster = {"server": f"https://127.0.0.2:{secured}", "certificate-authority-data": PUBLIC}
    tunnelled = kubeconfig.load(written(tmp_path, {"token": "t"}, cluster | {"tls-server-name": "localhost"}))
    assert Http(tunnelled).request("GET", "/version") == b"{}"
    for named in ({}, {"tls-server-name": "another.example.org"}):
        stranger = kubeconfig.load(written(tmp_path, {"token": "t"}, cluster | named))
        with pytest.raises(Unreachable, match="certificate verify failed"):
            Http(stranger).text("/version")
