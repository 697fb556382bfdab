"""Limits of a commit that a schedule's pod builds: it gets no foreign files or Secrets, and cannot drop or change an approval."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.engines.argo.git_desk import PUBLISH, Desk, desk_of
from tests.unit.engines.argo.lab import Lab

CANARY = "canary-77ab12"
BESIDE = {"host": "boot.example.org", "key": {"secret": {"name": "boot", "key": "key"}}}


@pytest.fixture
def desk(cluster: Lab, tmp_path: Path) -> Desk:
    (tmp_path / "token").write_text(CANARY)
    return desk_of(cluster, tmp_path)


def known(path: str) -> dict[str, Any]:
    return {"publish": {**PUBLISH, "ssh": {**BESIDE, "known_hosts": path}}}


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"secrets": {"license": {"file": "TOKEN"}}}, "the spec has license from a file or a variable"),
        ({"secrets": {"license": {"env": "CANARY"}}}, "the spec has license from a file or a variable"),
        ({"publish": {**PUBLISH, "sign": {"file": "TOKEN"}, "signers": [f"ssh-ed25519 AAAAC3{'x' * 60}"]}}, "has image_sign_key"),
        (known("TOKEN"), "token, which does not lie in its folder of the repository"),
        (known("~/token"), "the spec names ~/token, which does not lie in"),
        (known("../../token"), "the spec names ../../token, which does not lie in"),
        (
            {"secrets": {"license": {"secret": {"name": "boot", "key": "admin"}}}},
            "names license=boot/admin of the cluster's Secrets",
        ),
        ({"secrets": {"license": {"secret": {"name": "boot", "key": "key"}}}}, "names license=boot/key of the cluster's Secrets"),
        ({"secrets": {"license": {"secret": {"name": "other", "key": "key"}}}}, "names license=other/key of the cluster's Secrets"),
    ],
    ids=[
        "file",
        "variable",
        "key",
        "known hosts",
        "known hosts at home",
        "known hosts above",
        "another key",
        "another role",
        "another secret",
    ],
)
def test_a_commit_makes_the_pod_hand_over_nothing(
    desk: Desk, more: dict[str, Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the commit has no schedule, whose rules the spec keeps only with one."""
    monkeypatch.setenv("CANARY", CANARY)
    monkeypatch.setenv("HOME", str(tmp_path))
    desk.install()
    commit = desk.commit(**json.loads(json.dumps(more).replace("TOKEN", str(tmp_path / "token"))), schedule=None)
    done = desk.run()
    assert (done.returncode, sentence in done.stderr) == (64, True), done.stderr
    assert f"error: {desk.url}, branch main, commit {commit}: " in done.stderr
    assert desk.going() == ()
    for kind in ("configmaps", "secrets"):
        there = desk.lab.home.fetch(desk.lab.home.core(kind))
        assert CANARY.encode() not in there
        assert base64.b64encode(CANARY.encode()) not in there


ADA, GRACE = "ada@example.org", "grace@example.org"


@pytest.mark.parametrize(
    ("installed", "approvers", "code"),
    [((ADA,), [], 64), ((ADA,), [GRACE], 64), ((ADA,), [ADA, GRACE], 64), ((ADA,), [ADA], 0), ((), [ADA], 0)],
)
def test_a_commit_drops_no_approval_and_changes_no_approver(
    desk: Desk, installed: tuple[str, ...], approvers: list[str], code: int
) -> None:
    desk.install(approval={"approvers": [ADA]})
    desk.commit(approval={"approvers": approvers} if approvers else None)
    done = desk.run(*(word for one in installed for word in ("--approver", one)))
    assert done.returncode == code, done.stderr
    if code:
        assert "was installed with an approval by ada@example.org, and the spec has none or others" in done.stderr
        assert "installs the schedule anew" in done.stderr
