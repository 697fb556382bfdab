"""Announcements by the run itself: tried again only where nobody can have heard, and the URL is said nowhere."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steps.contract import paths
from steps.contract.runs import approval
from steps.contract.runs.evidence import Evidence
from steps.contract.task import Task, Verb
from steps.contract.verdict import FailureClass, Status
from tests.unit.steps.chat import CANARY, CUT, Chat, serving
from tests.unit.steps.git_server import certificate

SECRET = approval.webhook_file("validation")
TASK = Task(
    stage="validation",
    name=approval.ANNOUNCE,
    verb=Verb.ANNOUNCE,
    arguments={"cluster": "h200", "approvers": ["ada@example.org", "bob"], "webhook": SECRET, "approved": "slurm"},
)


@pytest.fixture
def webhook() -> Iterator[Chat]:
    with serving() as made:
        yield made


def announce(desk: Any, url: str | None) -> tuple[int, Evidence]:
    """One attempt: its exit code and record; the URL must have been said nowhere."""
    if url is not None:
        (desk.root / "secrets" / SECRET).write_text(url + "\n")
    done = desk.run(TASK)
    assert CANARY not in done.stdout + done.stderr
    kept = [path for path in (desk.root / "store").rglob("*") if path.is_file()]
    assert not [path for path in kept if CANARY.encode() in path.read_bytes()]
    return done.returncode, desk.store.records("r1", "validation", "announce")[0]


def verdict(record: Evidence) -> tuple[Status, FailureClass | None]:
    assert record.verdict is not None
    return record.verdict.status, record.verdict.failure_class


def test_it_is_told_once(desk: Any, webhook: Chat) -> None:
    digest = desk.store.evidence_digest("r1", "slurm")
    how = f"bringup approve r1 --as NAME --evidence {digest}"
    assert announce(desk, webhook.url)[0] == 0
    code, record = announce(desk, webhook.url)  # as an engine does that lost the first one's end
    assert (code, record.attempt, verdict(record)) == (0, 2, (Status.PASS, None))
    (told,) = webhook.got
    since = told.pop("since")
    assert told == {
        "text": f"h200: run r1 waits for an approval before validation since {since}: {how}",
        "run": "r1",
        "cluster": "h200",
        "stage": "validation",
        "approvers": ["ada@example.org", "bob"],
        "evidence": digest,
        "how": how,
        "changes": "",
        "type": "application/json",
    }
    assert (desk.root / "out/verdict").read_text() == "pass"


def test_a_pod_tells_a_command_that_works_from_any_machine(desk: Any, webhook: Chat) -> None:
    """The command that is announced holds the digest of the evidence to be approved, and of no other stage's."""
    desk.environment |= {paths.ENGINE: "argo", paths.NAMESPACE: "building-1"}
    judged = msgspec.structs.replace(announce(desk, webhook.url)[1], stage="slurm", task="judge", attempt=1)
    empty = webhook.got[0]["evidence"]
    desk.store.write_evidence(judged, msgspec.json.encode)
    shutil.rmtree(desk.root / "store/runs/r1/evidence/validation")
    assert announce(desk, webhook.url)[0] == 0
    digest = desk.store.evidence_digest("r1", "slurm")
    told = webhook.got[1]
    assert (told["evidence"], digest != empty) == (digest, True)
    assert told["how"] == f"bringup approve r1 --as NAME --evidence {digest} --engine argo --namespace building-1"
    assert told["text"].endswith(told["how"])


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_is_away_is_tried_again_by_the_engine(desk: Any, webhook: Chat, status: int) -> None:
    webhook.answers = [status, 200]
    code, record = announce(desk, webhook.url)
    assert (code, verdict(record)) == (75, (Status.INCONCLUSIVE, FailureClass.DEPENDENCY))
    assert record.verdict is not None
    assert f"the webhook answered {status}" in record.verdict.reason
    assert "bringup approve r1 --as NAME" in record.verdict.next_step
    code, record = announce(desk, webhook.url)
    assert (code, verdict(record)[0]) == (0, Status.PASS)
    assert len({one["since"] for one in webhook.got}) == 1  # the wait began when the first attempt did


def test_nobody_there_is_tried_again(desk: Any) -> None:
    code, record = announce(desk, f"http://127.0.0.1:1/{CANARY}")
    assert (code, verdict(record)) == (75, (Status.INCONCLUSIVE, FailureClass.DEPENDENCY))


@pytest.mark.parametrize(
    ("answer", "said"),
    [(404, "answered 404"), (403, "answered 403"), (302, "answered 302"), (CUT, "was connected, and did not answer")],
)
def test_what_refuses_or_may_have_taken_it_is_asked_once(desk: Any, webhook: Chat, answer: int, said: str) -> None:
    webhook.answers = [answer]
    code, record = announce(desk, webhook.url)
    assert (code, verdict(record)) == (65, (Status.FAIL, FailureClass.DEPENDENCY))
    assert record.verdict is not None
    assert said in record.verdict.reason
    assert len(webhook.got) == 1  # redirects are not followed
    assert (desk.root / "out/verdict").read_text() == "fail"


@pytest.mark.parametrize("url", [None, CANARY, f"ftp://example.org/{CANARY}", f"https://exa mple.org/{CANARY}", ""])
def test_what_is_no_webhook_is_said_without_what_it_is(desk: Any, url: str | None) -> None:
    code, record = announce(desk, url)
    assert (code, verdict(record)[0]) == (65, Status.FAIL)
    assert record.verdict is not None
    assert (SECRET if url is None else "the webhook's URL") in record.verdict.reason


def test_nobody_is_told_of_what_was_answered_meanwhile(desk: Any, webhook: Chat) -> None:
    webhook.answers = [503]
    assert announce(desk, webhook.url)[0] == 75
    _, first = announce(desk, webhook.url)
    desk.store.write_evidence(msgspec.structs.replace(first, task=approval.CONFIRM, attempt=1), msgspec.json.encode)
    code, record = announce(desk, webhook.url)
    assert (code, verdict(record)) == (0, (Status.SKIPPED, None))
    assert len(webhook.got) == 2


def test_a_rehearsal_tells_nobody(desk: Any, webhook: Chat) -> None:
    desk.environment["BRINGUP_SIMULATOR"] = "http://127.0.0.1:1"
    code, record = announce(desk, webhook.url)
    assert (code, verdict(record), webhook.got) == (0, (Status.SKIPPED, None), [])


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed: no certificate to distrust")
def test_a_certificate_that_is_not_trusted_is_called_so(desk: Any, tmp_path: Path) -> None:
    both = certificate(tmp_path, "chat")
    with serving(signed=both) as webhook:
        code, record = announce(desk, webhook.url.replace("https", "HTTPS"))
        assert (code, verdict(record)) == (65, (Status.FAIL, FailureClass.DEPENDENCY))
        assert record.verdict is not None
        assert "was not told: its certificate is not trusted here (self" in record.verdict.reason
        assert webhook.got == []
        desk.environment["SSL_CERT_FILE"] = str(both.with_suffix(".pem"))
        code, record = announce(desk, webhook.url.replace("127.0.0.1", "localhost"))
        assert record.verdict is not None
        assert (code, "(it is for another name)" in record.verdict.reason) == (65, True)
        code, record = announce(desk, webhook.url.replace("https", "HTTPS"))
        assert record.verdict is not None
        assert (code, record.verdict.reason, len(webhook.got)) == (0, "the webhook took it", 1)


def test_plain_http_is_told_and_remarked(desk: Any, webhook: Chat) -> None:
    _, record = announce(desk, webhook.url)
    assert record.verdict is not None
    assert "over plain http: whoever listens" in record.verdict.reason


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy"])
def test_the_proxy_of_the_environment_is_asked(desk: Any, webhook: Chat, name: str) -> None:
    desk.environment[name] = webhook.url.replace("http://", "").removesuffix(f"/{CANARY}")
    code, _ = announce(desk, f"http://chat.invalid/{CANARY}")
    assert (code, len(webhook.got)) == (0, 1)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_is_away_is_tried_again(desk: Any, scheme: str) -> None:
    desk.environment[f"{scheme.upper()}_PROXY"] = f"http://me:{CANARY}@127.0.0.1:1"
    code, record = announce(desk, f"{scheme}://chat.invalid/{CANARY}")
    assert (code, verdict(record)) == (75, (Status.INCONCLUSIVE, FailureClass.DEPENDENCY))
    assert record.verdict is not None
    assert "the proxy on the way to the webhook" in record.verdict.reason


def test_a_proxy_that_is_none_is_said_without_what_it_is(desk: Any) -> None:
    desk.environment["HTTPS_PROXY"] = f"socks5://{CANARY}:1"
    code, record = announce(desk, "https://chat.invalid/x")
    assert (code, verdict(record)) == (65, (Status.FAIL, FailureClass.INPUT))


def test_no_proxy_is_kept_to(desk: Any, webhook: Chat) -> None:
    desk.environment |= {"HTTP_PROXY": "http://127.0.0.1:1", "NO_PROXY": "127.0.0.1"}
    assert (announce(desk, webhook.url)[0], len(webhook.got)) == (0, 1)


def test_it_is_no_part_of_what_is_approved(desk: Any, webhook: Chat) -> None:
    before = desk.store.evidence_digest("r1", "validation")
    announce(desk, webhook.url)
    assert desk.store.evidence_digest("r1", "validation") == before
