"""A packed module opens URLs as Ansible's own library does: logins of the URL and of ~/.netrc, redirects, gzip, authorities."""

import base64
import gzip
import ssl
import subprocess
import urllib.error
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.urls import open_url

from tests.unit.playbooks import library
from tests.unit.served import served

PACKED = library.loaded("urls", "packed")
OPENERS = pytest.mark.parametrize("opener", [open_url, PACKED.open_url], ids=["unpacked", "packed"])


class Site(BaseHTTPRequestHandler):
    """Answers with the login that a request has, plain, compressed, after a redirect, or after asking for it."""

    def do_GET(self) -> None:
        login = self.headers.get("Authorization", "")
        code = {"/moved": 302, "/missing": 404}.get(self.path, 401 if self.path == "/guarded" and not login else 200)
        body = gzip.compress(login.encode()) if self.path == "/gzip" else login.encode()
        self.send_response(code)
        self.send_header("Location", "/plain")
        self.send_header("WWW-Authenticate", 'Basic realm="site"')
        self.send_header("Content-Encoding", "gzip" if self.path == "/gzip" else "identity")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def site(context: ssl.SSLContext | None = None) -> Iterator[str]:
    """The address of a site on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server, served(server):
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        yield f"127.0.0.1:{server.server_address[1]}"


@OPENERS
def test_a_login_comes_from_the_url_or_from_netrc(opener: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1\nlogin robot\npassword canary\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    robot, user = (f"Basic {base64.b64encode(login).decode()}" for login in (b"robot:canary", b"me:p@ss"))
    with site() as address:
        for path in ("/plain", "/gzip", "/moved"):
            assert opener(f"http://{address}{path}", timeout=5).read().decode() == robot
        assert opener(f"http://me:p%40ss@{address}/guarded", timeout=5).read().decode() == user
        monkeypatch.setenv("NETRC", str(tmp_path / "none"))
        assert opener(f"http://{address}/plain", timeout=5).read() == b""
        for path, code in (("/guarded", 401), ("/missing", 404)):
            with pytest.raises(urllib.error.HTTPError) as caught:
                opener(f"http://{address}{path}", timeout=5)
            assert caught.value.code == code
            caught.value.close()


def test_only_authorities_of_the_host_are_trusted(tmp_path: Path) -> None:
    make = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 9 -subj /CN=site -keyout key -out own.crt"
    )
    subprocess.run([*make.split(), "-addext", "subjectAltName=IP:127.0.0.1"], cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "broken.pem").write_text("no certificate\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "own.crt", tmp_path / "key")
    with site(context) as address:
        for opener in (open_url, PACKED.open_url):
            with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
                opener(f"https://{address}/plain", timeout=5)
        folders = (str(tmp_path), str(tmp_path / "none"))
        assert PACKED.open_url(f"https://{address}/plain", timeout=5, authorities=folders).status == 200
