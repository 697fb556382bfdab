"""Secrets are looked at before anything starts: a CA that no client could read is refused where the run is submitted."""

import shutil
from pathlib import Path

import pytest

from steps.contract import delivery
from steps.contract.runs import approval
from tests.unit.steps import authority
from workflows import examples
from workflows.engines import run_secrets
from workflows.engines.run_secrets import SecretMissing
from workflows.spec import load
from workflows.stages.host_access import SecretFile, secret_files

CANARY = "canary-5c1e"
CA = approval.ca_file("gpu_operator")
SPEC = """approvals:
  - {before: rke2, approvers: [ada]}
  - before: gpu_operator
    approvers: [ada]
    announce: {webhook: {env: CHAT}, ca: {file: ./chat_ca.pem}}
"""


def of_announcement() -> list[SecretFile]:
    """The secret files of the approval that is announced."""
    every = secret_files(load(examples.path("single-node").read_text() + SPEC))
    return [one for one in every if one.name.startswith(approval.ANNOUNCE)]


def test_the_ca_is_a_file_of_its_own_that_says_which_field_gives_it() -> None:
    assert of_announcement() == [
        SecretFile(name="announce.gpu_operator", variable="CHAT"),
        SecretFile(name=CA, path="./chat_ca.pem", certificates="approvals[1].announce.ca"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{CANARY}\n", "holds no certificate; approvals[1].announce.ca takes certificates in PEM"),
        (delivery.pem("AAAABBBBCCCC"), "certificate 1 in the secret file announce_ca.gpu_operator is PEM in form only"),
        (f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----\n", "holds a private key; approvals[1].announce.ca"),
        ("\xff\xfe" + CANARY, "holds no certificate"),
    ],
    ids=["words", "form", "key", "binary"],
)
def test_a_ca_that_is_none_is_refused_before_the_run(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "chat_ca.pem").write_bytes(text.encode("latin-1"))
    with pytest.raises(SecretMissing) as caught:
        run_secrets.read_secrets(of_announcement(), tmp_path, {"CHAT": "https://chat.example.org"})
    assert said in str(caught.value)
    assert CANARY not in str(caught.value)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed: no certificate to read")
def test_a_good_one_goes_along_as_it_is(tmp_path: Path) -> None:
    made = authority.root(tmp_path, "chat_ca")
    found = run_secrets.read_secrets(of_announcement(), tmp_path, {"CHAT": "https://chat.example.org"})
    assert found == {"announce.gpu_operator": b"https://chat.example.org", CA: made.read_bytes()}


def test_known_hosts_of_a_first_contact_goes_along_only_where_there_is_one(tmp_path: Path) -> None:
    file = SecretFile(name="known_hosts", path="./known_hosts", optional=True)
    assert run_secrets.read_secrets([file], tmp_path, {}) == {}
    (tmp_path / "known_hosts").write_text("192.0.2.1 ssh-ed25519 AAAA\n")
    assert run_secrets.read_secrets([file], tmp_path, {}) == {"known_hosts": b"192.0.2.1 ssh-ed25519 AAAA\n"}
    with pytest.raises(SecretMissing, match="bringup host-keys"):
        run_secrets.read_secrets([SecretFile(name="known_hosts", path="./none")], tmp_path, {})
