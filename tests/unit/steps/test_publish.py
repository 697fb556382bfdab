"""Publishing to a real bare repository: once and again, beside others, over HTTP with a password, and killed at every request."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from steps.clients.environment import GIT_ROOT
from steps.clients.git import repositories
from steps.clients.git.git_access import GitAccess, local_repository
from steps.clients.git.repositories import Author, Git
from steps.contract import delivery
from steps.contract.canonical import canonical
from steps.contract.delivery import Delivered
from steps.contract.runs.evidence import Evidence
from steps.contract.task import Task, Verb, encode, file_name
from steps.contract.verdict import FailureClass, Status
from tests.unit.steps.git_server import LOGIN, backend, bare, certificate, serving

ROOT = Path(__file__).parents[3]
URL = "https://git.example.org/platform/apps.git"
HOME = "apps/environments/lab/"
TREE = {
    "apps/README.md": "what this is\n",
    f"{HOME}environment.yaml": "name: lab\n",
    f"{HOME}stages/gang/kustomization.yaml": "resources: [kai.yaml]\n",
    f"{HOME}stages/gang/kai.yaml": "kind: Application\n",
    f"{HOME}overlay/kustomization.yaml": "kind: Component\n",
}
WITH_GIT = pytest.mark.skipif(not backend(), reason="git is not installed: no server to push to")
SOMEBODY = Author(name="ada", mail="ada@example.org", when=1_795_000_000)


def task(desk: Any, tree: dict[str, str], **more: Any) -> Task:
    """A task of verb publish; its tree lies in the tasks folder."""
    (desk.root / "tasks" / delivery.TREE_FILE).write_bytes(canonical(tree))
    arguments = {
        "repo": URL,
        "revision": "v1",
        "path": "apps",
        "environment": "lab",
        "owned": [HOME],
        "kept": [f"{HOME}overlay/"],
        "tree": {"digest": delivery.tree_digest(tree)},
    }
    return Task(stage="base_services", name="publish", verb=Verb.PUBLISH, arguments=arguments | more)


@pytest.fixture
def desk(desk: Any) -> Any:
    desk.environment[GIT_ROOT] = str(desk.root / "git")
    return desk


def started(desk: Any, made: Task, **more: str) -> subprocess.Popen[str]:
    """The step as a process that runs meanwhile."""
    environment = {**os.environ, **desk.environment, "PYTHONPATH": str(ROOT), **more}
    command = [sys.executable, "-m", "steps", "publish", "--task", file_name(made.stage, made.name)]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def opened(desk: Any) -> Any:
    return repositories.open_repository(GitAccess(url=URL, local=local_repository(desk.root / "git", URL)))


def last(desk: Any) -> Evidence:
    record: Evidence = desk.record("base_services", "publish")
    return record


def delivered(desk: Any) -> Delivered:
    return delivery.decode((desk.root / "store" / delivery.key("r1")).read_bytes())


def put(repo: Git, files: Mapping[str, str | None], tag: str = "") -> str:
    """Push a commit of somebody else, with a tag if one is given, and return its id."""
    tip = repo.tip("main")
    made = repo.commit(tip, files, "a change of theirs", SOMEBODY)
    repo.push({"refs/heads/main": (tip, made)} | ({f"refs/tags/{tag}": ("", made)} if tag else {}))
    return made


def test_a_tree_is_published_once(desk: Any) -> None:
    done = desk.run(task(desk, TREE))
    assert done.returncode == 0, done.stderr
    first, kept = last(desk), delivered(desk)
    with opened(desk) as repo:
        assert repo.refs()["refs/tags/v1"] == repo.refs()["refs/heads/main"] == kept.commit
        assert repo.read(kept.commit) == TREE
    assert (kept.repo, kept.revision, kept.tree) == (URL, "v1", delivery.tree_digest(TREE))
    assert first.verdict is not None
    assert first.verdict.is_pass
    assert first.observation["changed"] == sorted(TREE)
    assert [change.split(" ")[0] for change in first.changes] == ["pushed", "created"]
    assert desk.run(task(desk, TREE)).returncode == 0
    assert (last(desk).changes, delivered(desk)) == ((), kept)


def test_only_ours_changes(desk: Any) -> None:
    theirs = {"README.md": "site", f"{HOME}overlay/kustomization.yaml": "mine", "apps/environments/notes.md": "1"}
    with opened(desk) as repo:
        put(repo, theirs | {f"{HOME}stages/gang/old.yaml": "1", "apps/README.md": "old"})
    assert desk.run(task(desk, TREE)).returncode == 0
    with opened(desk) as repo:
        assert repo.read(delivered(desk).commit) == TREE | theirs
    assert last(desk).observation["changed"] == sorted(
        {*TREE, f"{HOME}stages/gang/old.yaml"} - {f"{HOME}overlay/kustomization.yaml"}
    )


def test_a_file_that_other_environments_share_is_left_to_them(desk: Any) -> None:
    """Two specs that render it differently would else write over each other's, run by run."""
    theirs = {"apps/README.md": "theirs", "apps/environments/other/environment.yaml": "1"}
    with opened(desk) as repo:
        put(repo, theirs)
    assert desk.run(task(desk, TREE)).returncode == 0
    with opened(desk) as repo:
        assert repo.read(delivered(desk).commit) == TREE | theirs


def test_an_overlay_without_a_kustomization_gets_one(desk: Any) -> None:
    """Every stage takes it in: without, Argo CD could build none of them."""
    with opened(desk) as repo:
        bare_overlay = {**TREE, f"{HOME}overlay/mine.yaml": "1"}
        del bare_overlay[f"{HOME}overlay/kustomization.yaml"]
        commit = put(repo, bare_overlay)
    assert desk.run(task(desk, TREE, revision=commit)).returncode == 65
    assert desk.run(task(desk, TREE)).returncode == 0
    with opened(desk) as repo:
        assert repo.read(delivered(desk).commit) == TREE | {f"{HOME}overlay/mine.yaml": "1"}


def test_the_overlay_is_the_sites_from_then_on(desk: Any) -> None:
    assert desk.run(task(desk, TREE)).returncode == 0
    with opened(desk) as repo:
        put(repo, {f"{HOME}overlay/kustomization.yaml": None, f"{HOME}overlay/Kustomization": "1"})
    assert desk.run(task(desk, TREE | {"apps/README.md": "new"}, revision="v2"), *()).returncode == 65  # one run, one delivery
    desk.environment["BRINGUP_RUN"] = "r2"
    assert desk.run(task(desk, TREE | {"apps/README.md": "new"}, revision="v2")).returncode == 0
    with opened(desk) as repo:
        found = repo.read(repo.resolve("v2"), f"{HOME}overlay")
    assert found == {f"{HOME}overlay/Kustomization": "1"}


def test_a_tag_with_another_tree_is_refused_and_never_moved(desk: Any) -> None:
    with opened(desk) as repo:
        foreign = put(repo, {"apps/README.md": "another"}, tag="v1")
    assert desk.run(task(desk, TREE)).returncode == 65
    verdict = last(desk).verdict
    assert verdict is not None
    assert (verdict.status, verdict.failure_class, verdict.final) == (Status.FAIL, FailureClass.COMPARISON, True)
    assert f"tag v1 is there already (commit {foreign}) and differs in 5 files" in verdict.reason
    assert not (desk.root / "store" / delivery.key("r1")).exists()
    with opened(desk) as repo:
        assert repo.refs()["refs/tags/v1"] == repo.refs()["refs/heads/main"] == foreign


@pytest.mark.parametrize("tagged", [False, True])
def test_a_revision_that_is_a_branch_too_is_refused(desk: Any, tagged: bool) -> None:
    with opened(desk) as repo:
        made = put(repo, TREE, tag="v1" if tagged else "")
        repo.push({"refs/heads/v1": ("", made)})
    assert desk.run(task(desk, TREE)).returncode == 65
    verdict = last(desk).verdict
    assert verdict is not None
    assert (verdict.failure_class, verdict.final) == (FailureClass.COMPARISON, True)
    assert "has a branch v1" in verdict.reason
    with opened(desk) as repo:
        assert ("refs/tags/v1" in repo.refs()) == tagged


def test_a_branch_that_has_the_tree_gets_its_tag_only(desk: Any) -> None:
    with opened(desk) as repo:
        made = put(repo, dict(TREE))
    assert desk.run(task(desk, TREE)).returncode == 0
    assert delivered(desk).commit == made
    assert last(desk).changes == (f"created tag v1 at {made}",)


def test_a_commit_is_compared_and_nothing_is_pushed(desk: Any) -> None:
    with opened(desk) as repo:
        good = put(repo, TREE | {f"{HOME}roots/gang.yaml": "names the commit"})
        put(repo, {"README.md": "later"})
        before = repo.refs()
    assert desk.run(task(desk, TREE | {f"{HOME}overlay/kustomization.yaml": "other"}, revision=good)).returncode == 0
    desk.environment["BRINGUP_RUN"] = "r2"
    kept = {path: text for path, text in TREE.items() if not path.endswith("environment.yaml")}
    assert desk.run(task(desk, kept, revision=good)).returncode == 0
    assert desk.run(task(desk, kept, revision="0123456789" * 4)).returncode == 65
    desk.environment["BRINGUP_RUN"] = "r3"
    assert desk.run(task(desk, {**kept, "apps/README.md": "x"}, revision=good)).returncode == 65
    with opened(desk) as repo:
        assert repo.refs() == before


def test_what_is_not_the_tasks_tree_is_refused(desk: Any) -> None:
    made = task(desk, TREE)
    (desk.root / "tasks" / delivery.TREE_FILE).write_bytes(canonical({"apps/x": "1"}))
    assert desk.run(made).returncode == 64
    for path in ("elsewhere/x", "apps/../x", "/apps/x", "apps//x"):
        assert desk.run(task(desk, {path: "1"})).returncode == 64
    with opened(desk) as repo:
        assert repo.refs() == {}


# ---- others push at the same time ----------------------------------------------------------------------------------------------


@WITH_GIT
def test_two_sites_publish_to_one_branch_at_once(desk: Any, tmp_path: Path) -> None:
    """Each loses sometimes, fetches, and builds on top: nothing of either is lost, and history is a line."""
    folder = bare(tmp_path / "server.git")
    results: list[tuple[int, str]] = []
    (desk.root / "secrets/git").write_text(LOGIN)
    desk.environment[GIT_ROOT] = ""
    with serving(folder) as served:

        def site(name: str) -> None:
            home = f"apps/environments/{name}/"
            tree = {f"{home}environment.yaml": name, "apps/README.md": "same"}
            work = desk.root / name
            work.mkdir()
            (work / delivery.TREE_FILE).write_bytes(canonical(tree))
            arguments = {
                "repo": served.url, "revision": f"v-{name}", "path": "apps", "environment": name, "owned": [home],
                "credentials": "git", "tree": {"digest": delivery.tree_digest(tree)},
            }  # fmt: skip
            one = Task(stage="base_services", name="publish", verb=Verb.PUBLISH, arguments=arguments)
            (work / file_name(one.stage, one.name)).write_bytes(encode(one))
            process = started(desk, one, BRINGUP_TASKS=str(work), BRINGUP_RUN=name)
            said = process.communicate(timeout=60)[1]
            results.append((process.returncode, said))

        together = [threading.Thread(target=site, args=(name,)) for name in ("a", "b", "c")]
        for thread in together:
            thread.start()
        for thread in together:
            thread.join()
    assert [code for code, _ in results] == [0, 0, 0], "".join(said for _, said in results)
    with repositories.open_repository(GitAccess(url=URL, local=folder)) as repo:
        assert set(repo.read(repo.tip("main"))) == {
            "apps/README.md",
            *(f"apps/environments/{name}/environment.yaml" for name in "abc"),
        }
        assert {name for name in repo.refs() if "tags" in name} == {f"refs/tags/v-{name}" for name in "abc"}


@WITH_GIT
def test_a_branch_that_moves_during_the_push_gets_the_tree_nevertheless(desk: Any, tmp_path: Path) -> None:
    """The server takes each ref by itself: a tag that it took beside a branch that it refused would look as if all were done."""
    folder = bare(tmp_path / "server.git")
    with repositories.open_repository(GitAccess(url=URL, local=folder)) as repo:
        put(repo, {"README.md": "site"})
        tip = repo.tip("main")
        theirs = repo.commit(tip, {"theirs": "1"}, "a change of theirs", SOMEBODY)
        repo.push({"refs/heads/waiting": ("", theirs)})
    hook = folder / "hooks/update"
    moving = f"test -e moved || {{ : > moved; git update-ref refs/heads/main {theirs} {tip}; }}"
    hook.write_text(f'#!/bin/sh\ncase "$1" in refs/heads/main) {moving};; esac\n')
    hook.chmod(0o755)
    (desk.root / "secrets/git").write_text(LOGIN)
    desk.environment[GIT_ROOT] = ""
    with serving(folder) as served:
        done = desk.run(task(desk, TREE, repo=served.url, credentials="git"))
    assert done.returncode == 0, done.stderr
    assert (folder / "moved").exists()
    with repositories.open_repository(GitAccess(url=URL, local=folder)) as repo:
        assert repo.read(repo.tip("main")) == {"README.md": "site", "theirs": "1", **TREE}
        assert repo.resolve("v1") == repo.tip("main")


@WITH_GIT
def test_credentials_are_used_and_never_told(desk: Any, tmp_path: Path) -> None:
    folder = bare(tmp_path / "server.git")
    desk.environment[GIT_ROOT] = ""
    with serving(folder) as served:
        (desk.root / "secrets/git").write_text(LOGIN.replace("7", "8"))
        refused = desk.run(task(desk, TREE, repo=served.url, credentials="git"))
        assert refused.returncode == 65
        verdict = last(desk).verdict
        assert verdict is not None
        assert verdict.failure_class is FailureClass.PERMISSION
        assert desk.run(task(desk, TREE, repo=served.url)).returncode == 65
        (desk.root / "secrets/git").write_text(LOGIN)
        done = desk.run(task(desk, TREE, repo=served.url, credentials="git"))
        assert done.returncode == 0
    assert desk.run(task(desk, TREE, repo=served.url, credentials="git")).returncode == 75  # the server is away
    told = "".join(path.read_text() for path in (desk.root / "store").rglob("*") if path.is_file()) + refused.stderr + done.stderr
    assert "canary" not in told
    assert served.url in told


# ---- over SSH ------------------------------------------------------------------------------------------------------------------

SSH = """#!/bin/sh
# A stand-in of ssh that reaches no other machine: it notes how it was called, and runs the server's part here.
printf '%s\\n' "$@" >> "$SSH_NOTES"
if [ -n "$SSH_SAYS" ]; then echo "$SSH_SAYS" >&2; exit 255; fi
while [ "$1" != "${1#-}" ]; do
  case "$1" in
    -i) stat -L -c 'key %a' "$2" >> "$SSH_NOTES"; shift 2 ;;
    -o|-F|-p) shift 2 ;;
    *) shift ;;
  esac
done
exec sh -c "$2"
"""


@WITH_GIT
def test_over_ssh_with_our_key_and_known_hosts_only(desk: Any, tmp_path: Path) -> None:
    folder = bare(tmp_path / "server.git")
    notes, program = tmp_path / "notes", tmp_path / "bin/ssh"
    program.parent.mkdir()
    program.write_text(SSH)
    program.chmod(0o755)
    (desk.root / "secrets/git").write_text(
        "-----BEGIN OPENSSH PRIVATE KEY-----\ncanary-7f3a9b2c1d\n-----END OPENSSH PRIVATE KEY-----\n"
    )
    (desk.root / "secrets/hosts").write_text("git.example.org ssh-ed25519 AAAA\n")
    desk.environment |= {GIT_ROOT: "", "PATH": f"{program.parent}:{os.environ['PATH']}", "SSH_NOTES": str(notes), "SSH_SAYS": ""}
    made = task(desk, TREE, repo=f"ssh://git@git.example.org{folder}", credentials="git", known_hosts="hosts")
    assert desk.run(made).returncode == 0
    with repositories.open_repository(GitAccess(url=URL, local=folder)) as repo:
        assert repo.read(repo.resolve("v1")) == TREE
    said = notes.read_text().splitlines()
    assert {"BatchMode=yes", "StrictHostKeyChecking=yes", "IdentitiesOnly=yes", "key 600", "git@git.example.org"} <= set(said)
    assert f"UserKnownHostsFile={desk.root / 'secrets/hosts'}" in said
    for words, code in (("Host key verification failed.", 64), ("ssh: Could not resolve hostname git.example.org", 75)):
        desk.environment["SSH_SAYS"] = words
        assert desk.run(made).returncode == code
        assert words in last(desk).error


@pytest.mark.skipif(
    not backend() or shutil.which("openssl") is None, reason="git or openssl is not installed: no server to push to"
)
def test_over_https_by_the_ca_of_the_site_and_no_other(desk: Any, tmp_path: Path) -> None:
    folder, ours, other = bare(tmp_path / "server.git"), certificate(tmp_path, "ours"), certificate(tmp_path, "other")
    desk.environment[GIT_ROOT] = ""
    (desk.root / "secrets/git").write_text(LOGIN)
    with serving(folder, signed=ours) as server:
        for ca in ("", other.with_suffix(".pem").read_text(), "no certificate", delivery.pem("AAAABBBBCCCC")):
            (desk.root / "secrets/git_ca").write_text(ca)
            made = task(desk, TREE, repo=server.url, credentials="git", **({"ca": "git_ca"} if ca else {}))
            assert desk.run(made).returncode == 64
            assert "delivery.argo_cd.ca" in last(desk).verdict.next_step
            assert last(desk).verdict.failure_class is FailureClass.INPUT
        assert server.requests == []
        (desk.root / "secrets/git_ca").write_text(ours.with_suffix(".pem").read_text())
        assert desk.run(task(desk, TREE, repo=server.url, credentials="git", ca="git_ca")).returncode == 0
    with repositories.open_repository(GitAccess(url=URL, local=folder)) as repo:
        assert repo.read(repo.resolve("v1")) == TREE


# ---- killed at every request ---------------------------------------------------------------------------------------------------


@WITH_GIT
@pytest.mark.parametrize("answered", [False, True], ids=["before", "after"])
def test_a_kill_at_any_request_loses_and_duplicates_nothing(desk: Any, tmp_path: Path, answered: bool) -> None:
    """At every request that sends something; what is only asked changes nothing."""
    desk.environment[GIT_ROOT] = ""
    (desk.root / "secrets/git").write_text(LOGIN)
    asked: list[str] = []
    number = 0
    while number <= len(asked):
        folder = bare(tmp_path / f"server-{number}.git")
        desk.environment["BRINGUP_RUN"] = f"k{number}"
        with serving(folder) as served:
            made = task(desk, TREE, repo=served.url, credentials="git")
            (desk.root / "tasks" / file_name(made.stage, made.name)).write_bytes(encode(made))
            child = started(desk, made)

            def end(at: int, done: bool, child: subprocess.Popen[str] = child, number: int = number) -> None:
                if (at, done) == (number, answered):
                    os.kill(child.pid, signal.SIGKILL)

            served.at = end
            child.communicate(timeout=60)
            assert child.returncode == (-signal.SIGKILL if number else 0)
            asked = asked or list(served.requests)
            served.at = lambda _number, _answered: None
            if number:
                again = desk.run(made)
                assert again.returncode == 0, again.stderr
        with repositories.open_repository(GitAccess(url=URL, local=folder)) as repo:
            commit = repo.tip("main")
            assert repo.refs()["refs/tags/v1"] == commit
            assert repo.read(commit) == TREE
        assert delivery.decode((desk.root / "store" / delivery.key(f"k{number}")).read_bytes()).commit == commit
        later = (at for at, request in enumerate(asked, 1) if at > number and request.startswith("POST"))
        number = next(later, len(asked) + 1)
    assert any("receive-pack" in request for request in asked)
