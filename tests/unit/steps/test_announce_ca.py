"""A webhook behind a CA of the site: for its server what `announce.ca` gives is trusted and nothing else, also through proxies."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steps.contract import delivery
from steps.contract.runs import approval
from steps.contract.runs.evidence import Evidence
from steps.contract.task import Task, Verb
from steps.contract.verdict import FailureClass, Status, Verdict
from tests.unit.steps import authority, tunnel
from tests.unit.steps.chat import CANARY, Chat, serving

URL, CA = approval.webhook_file("validation"), approval.ca_file("validation")
TASK = Task(
    stage="validation",
    name=approval.ANNOUNCE,
    verb=Verb.ANNOUNCE,
    arguments={"cluster": "h200", "approved": "slurm", "webhook": URL, "ca": CA},
)

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed: no CA to trust")


@dataclass
class Site:
    """A CA, one below it that signed the chat's certificate, a CA that signed nothing of the chat, and the chat."""

    root: Path
    below: Path
    other: Path
    chat: Chat


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    root, other = authority.root(tmp_path, "root"), authority.root(tmp_path, "other")
    below = authority.below(tmp_path, "below", root)
    signed = authority.server(tmp_path, "chat", below)
    with serving(signed=signed) as chat:
        yield Site(root, below, other, chat)


def announce(desk: Any, url: str, ca: str | None, task: Task = TASK) -> tuple[int, Verdict]:
    """One attempt with this text as the CA's file, or none of it: its exit code and verdict; no secret was said anywhere."""
    (desk.root / "secrets" / URL).write_text(url + "\n")
    if ca is not None:
        (desk.root / "secrets" / CA).write_text(ca)
    done = desk.run(task)
    kept = [path.read_bytes() for path in (desk.root / "store").rglob("*") if path.is_file()]
    assert CANARY not in done.stdout + done.stderr
    assert not [data for data in kept if CANARY.encode() in data]
    record: Evidence = desk.store.records("r1", "validation", approval.ANNOUNCE)[0]
    assert record.verdict is not None
    return done.returncode, record.verdict


def chain(*certificates: Path) -> str:
    return "".join(one.read_text() for one in certificates)


def test_what_the_ca_signed_is_told(desk: Any, site: Site) -> None:
    code, verdict = announce(desk, site.chat.url, chain(site.root, site.below))
    assert (code, verdict.reason, len(site.chat.got)) == (0, "the webhook took it", 1)


def test_a_ca_that_is_no_root_is_enough(desk: Any, site: Site) -> None:
    assert (announce(desk, site.chat.url, chain(site.other, site.below))[0], len(site.chat.got)) == (0, 1)


def test_no_other_ca_is_trusted_not_even_those_of_this_machine(desk: Any, site: Site, tmp_path: Path) -> None:
    (tmp_path / "machine.pem").write_text(chain(site.root, site.below))
    desk.environment["SSL_CERT_FILE"] = str(tmp_path / "machine.pem")
    code, verdict = announce(desk, site.chat.url, chain(site.other))
    assert (code, verdict.status, verdict.failure_class) == (65, Status.FAIL, FailureClass.DEPENDENCY)
    assert "was not told: its certificate is not trusted by approvals[].announce.ca (unable to get" in verdict.reason
    assert "in approvals[].announce.ca (PEM)" in verdict.next_step
    assert site.chat.got == []
    arguments = {name: value for name, value in TASK.arguments.items() if name != "ca"}
    told = msgspec.structs.replace(TASK, arguments=arguments)
    assert announce(desk, site.chat.url, None, told)[0] == 0  # as without `ca`: it is the machine's that signed it


def test_a_name_that_the_certificate_does_not_have_is_not_said(desk: Any, site: Site) -> None:
    code, verdict = announce(desk, site.chat.url.replace("127.0.0.1", "localhost"), chain(site.below))
    assert (code, site.chat.got) == (65, [])
    assert "not trusted by approvals[].announce.ca (it is for another name)" in verdict.reason
    assert "localhost" not in verdict.reason + verdict.next_step


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read: FileNotFoundError"),
        ("", "is empty"),
        (f"no certificate, {CANARY}", "holds no certificate"),
        (delivery.pem("AAAABBBBCCCC"), "certificate 1 in the secret file announce_ca.validation is PEM in form only"),
        (f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----\n", "holds a private key"),
    ],
    ids=["absent", "empty", "words", "form", "key"],
)
def test_a_ca_that_is_none_tells_nobody(desk: Any, site: Site, text: str | None, said: str) -> None:
    code, verdict = announce(desk, site.chat.url, text)
    assert (code, verdict.status, verdict.failure_class) == (65, Status.FAIL, FailureClass.INPUT)
    assert said in verdict.reason
    assert "approvals[].announce.ca" in verdict.next_step
    assert "bringup approve r1 --as NAME" in verdict.next_step
    assert site.chat.got == []


def test_a_url_without_tls_is_not_told_past_the_ca(desk: Any, site: Site) -> None:
    with serving() as plain:
        code, verdict = announce(desk, plain.url, chain(site.root))
    assert (code, verdict.failure_class, plain.got) == (65, FailureClass.INPUT, [])
    assert "begins with http://" in verdict.reason
    assert "write https://, or remove approvals[].announce.ca" in verdict.next_step


def test_a_server_that_speaks_no_tls_is_no_matter_of_certificates(desk: Any, site: Site) -> None:
    with serving() as plain:
        code, verdict = announce(desk, plain.url.replace("http://", "https://"), chain(site.root))
    assert (code, plain.got) == (65, [])
    assert "TLS with it could not be agreed" in verdict.reason
    assert "(PEM)" not in verdict.next_step


@pytest.mark.parametrize("trusted", [True, False], ids=["by-the-ca", "by-another"])
def test_through_a_proxy_the_server_is_known_by_the_ca(desk: Any, site: Site, trusted: bool) -> None:
    with tunnel.serving() as proxy:
        desk.environment["HTTPS_PROXY"] = proxy.url
        code, verdict = announce(desk, site.chat.url, chain(site.below if trusted else site.other))
    assert (code, len(site.chat.got)) == ((0, 1) if trusted else (65, 0))
    assert trusted or "not trusted by approvals[].announce.ca" in verdict.reason
    assert [line.split()[0] for line in proxy.asked] == ["CONNECT"]


@pytest.mark.parametrize("by_machine", [True, False], ids=["by-this-machine", "by-the-ca"])
def test_a_proxy_that_speaks_tls_is_known_by_this_machine_alone(desk: Any, site: Site, tmp_path: Path, by_machine: bool) -> None:
    desk.environment["SSL_CERT_FILE"] = str(site.other)
    with tunnel.serving(authority.server(tmp_path, "proxy", site.other if by_machine else site.below)) as proxy:
        desk.environment["HTTPS_PROXY"] = proxy.url
        code, verdict = announce(desk, site.chat.url, chain(site.below))
    assert (code, len(proxy.asked), len(site.chat.got)) == ((0, 1, 1) if by_machine else (75, 0, 0))
    assert by_machine or "the proxy on the way to the webhook makes no connection" in verdict.reason
