"""Recognising the supervisor that a token names: with CAs made by RKE2, with the site's own, and with others beside those."""

import hashlib
import shutil
import ssl
import subprocess
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from ansible.module_utils.rke2 import supervisor

from tests.unit.served import served

ADDRESS = "127.55.0.6"
HASHED = hashlib.sha256
CONFIG = f"""[ca]
basicConstraints = critical,CA:TRUE
subjectKeyIdentifier = hash
[leaf]
subjectAltName = IP:{ADDRESS}
"""


def sign(folder: Path, name: str, by: str, kind: str) -> None:
    """Make a key and a certificate of this name, signed by another one's or by itself."""
    key = f"req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"
    signer = f"-signkey {name}.key" if by == name else f"-CA {by}.pem -CAkey {by}.key -CAcreateserial"
    for said in (key, f"x509 -req -in {name}.csr {signer} -extfile config -extensions {kind} -days 2 -out {name}.pem"):
        subprocess.run(["openssl", *said.split()], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """PEM by name: a root, what it signed, what that signed; another CA, and what that signed."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: no certificates")
    folder = tmp_path_factory.mktemp("pki")
    (folder / "config").write_text(CONFIG)
    for name, by, kind in (
        *(("root", "root", "ca"), ("between", "root", "ca"), ("leaf", "between", "leaf")),
        *(("other", "other", "ca"), ("theirs", "other", "leaf")),
    ):
        sign(folder, name, by, kind)
    return {path.name: path.read_text() for path in folder.glob("*.*")}


def der(pem: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem)


def shown(
    tmp_path: Path, cacerts: str, chain: str, key: str, wanted: str, said: dict[str, tuple[int, bytes]] | None = None
) -> tuple[str, list[str]]:
    """Serve a supervisor; return the state that a client with a token of this hash sees, and the logins that the supervisor got.

    `cacerts` is the CA bundle, `chain` and `key` are the supervisor's certificate, `wanted` is the hash in the token, and `said`
    holds status and body by path where they differ from those of a ready supervisor.
    """
    logins: list[str] = []

    class Supervisor(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = {"/ping": b"pong", "/cacerts": cacerts.encode()}.get(self.path, b"ok")
            logins.extend(filter(None, [self.headers.get("Authorization")]))
            code, answer = (said or {}).get(self.path, (200, answer))
            self.send_response(code)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    (tmp_path / "chain").write_text(chain)
    (tmp_path / "key").write_text(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "chain", tmp_path / "key")
    with ThreadingHTTPServer((ADDRESS, supervisor.PORT), Supervisor) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        with served(server):
            return supervisor.state(ADDRESS, f"K10{wanted}::server:word")[0], logins


def test_a_ca_of_the_sites_is_known_by_its_root(made: dict[str, str], tmp_path: Path) -> None:
    bundle, chain = made["between.pem"] + made["root.pem"], made["leaf.pem"] + made["between.pem"]
    state, logins = shown(tmp_path, bundle, chain, made["leaf.key"], HASHED(der(made["root.pem"])).hexdigest())
    assert (state, len(logins)) == (supervisor.PONG, 1)


def test_a_ca_alone_is_known_by_its_file(made: dict[str, str], tmp_path: Path) -> None:
    bundle = made["other.pem"]
    state, _ = shown(tmp_path, bundle, made["theirs.pem"], made["theirs.key"], HASHED(bundle.encode()).hexdigest())
    assert state == supervisor.PONG
    state, logins = shown(tmp_path, bundle, made["theirs.pem"], made["theirs.key"], HASHED(der(bundle)).hexdigest())
    assert (state, logins) == (supervisor.STRANGER, []), "RKE2 hashes one certificate as its file is"


@pytest.mark.parametrize(
    ("path", "code", "answer", "state"),
    [
        ("/ping", 200, b"x", supervisor.STARTING),
        ("/ping", 503, b"pong", supervisor.STARTING),
        ("/cacerts", 503, b"", supervisor.STARTING),
        ("/v1-rke2/readyz", 200, b"not ok", supervisor.STARTING),
        ("/v1-rke2/readyz", 500, b"ok", supervisor.STARTING),
        ("/v1-rke2/readyz", 503, b"ok", supervisor.STARTING),
        ("/v1-rke2/readyz", 401, b"ok", supervisor.REFUSED),
        ("/v1-rke2/readyz", 403, b"ok", supervisor.REFUSED),
    ],
)
def test_a_supervisor_that_answers_may_not_be_ready(
    made: dict[str, str], tmp_path: Path, path: str, code: int, answer: bytes, state: str
) -> None:
    bundle = made["other.pem"]
    wanted = HASHED(bundle.encode()).hexdigest()
    assert shown(tmp_path, bundle, made["theirs.pem"], made["theirs.key"], wanted, {path: (code, answer)})[0] == state


def test_a_stranger_who_shows_the_root_too_is_told_no_token(made: dict[str, str], tmp_path: Path) -> None:
    bundle = made["other.pem"] + made["between.pem"] + made["root.pem"]
    wanted = HASHED(der(made["root.pem"])).hexdigest()
    state, logins = shown(tmp_path, bundle, made["theirs.pem"] + made["other.pem"], made["theirs.key"], wanted)
    assert (state, logins) == (supervisor.SILENT, [])


@pytest.mark.parametrize("bundle", ["", "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n" * 2])
def test_what_holds_no_certificate_of_the_token_is_not_trusted(bundle: str) -> None:
    try:
        found = supervisor.trusted_ca(bundle.encode(), "5" * 64)
    except ValueError:  # as what is no answer of a supervisor
        found = ""
    assert found == ""
