"""`bringup stack from-git`: the newest commit of a branch is checked out and checked, within what the command allows."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit import small_stack
from tests.unit.cli.conftest import Machine
from tests.unit.softwarestack import registry_stand_in
from tests.unit.softwarestack.test_stack_builds import KEY, published
from workflows.app.stacks.stack_branch import Allowed, BranchRefused
from workflows.softwarestack.stack_spec import load_stack

AUTHOR = ("-c", "user.name=ada", "-c", "user.email=ada@example.org")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine with a repository `git`, whose stack is published."""
    (tmp_path / "root").mkdir()
    published(tmp_path)
    repository = tmp_path / "git"
    (repository / "stacks").mkdir(parents=True)
    for name in ("stack.yaml", "stack.lock.json"):
        shutil.move(tmp_path / name, repository / "stacks" / name)
    shutil.move(tmp_path / "easyconfigs", repository / "stacks/easyconfigs")
    git(repository, "init", "-q", "-b", "main")
    commit(repository)
    return Machine(tmp_path)


def git(repository: Path, *words: str) -> str:
    """Run Git in the repository and return its output."""
    return subprocess.run(["git", *AUTHOR, *words], cwd=repository, check=True, capture_output=True, text=True).stdout.strip()


def commit(repository: Path) -> str:
    """Commit everything and return the commit."""
    git(repository, "add", "--all")
    git(repository, "commit", "-q", "-m", "a stack")
    return git(repository, "rev-parse", "HEAD")


def rewrite(machine: Machine, **keys: object) -> str:
    """Replace keys of the spec in the repository, and return the commit."""
    where = {"publish": {"root": str(machine.folder / "root")}, "cache": str(machine.folder / "cache")}
    small_stack.write(machine.folder / "git/stacks", **(where | keys))
    return commit(machine.folder / "git")


def test_a_branch_that_is_published_already_needs_no_run(machine: Machine) -> None:
    repository, root = f"{machine.folder}/git", str(machine.folder / "root")
    words = ("stack", "from-git", f"file://{repository}", "stacks/stack.yaml", "--name", "lab-tools", "--root", root)
    done = machine.call(*words)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("nothing changed: 0001-")
    assert not machine.runs
    newer = rewrite(machine, owner="somebody@example.org")
    assert machine.call(*words).code == 0
    (checkout,) = (machine.home / "branches").iterdir()
    assert checkout.name.endswith(f"-{newer}"), "the checkout of the earlier commit is gone"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--branch", "none"), "has no branch none"),
        (("--name", "other"), "stacks/stack.yaml describes stack lab-tools, not other"),
        (("--root", "/srv/stacks"), "and --root allows /srv/stacks"),
        ((), "the spec names the file /etc/bringup/key, which the command does not allow"),
    ],
    ids=["branch", "name", "root", "file"],
)
def test_a_commit_gets_no_more_than_the_command_allows(machine: Machine, words: tuple[str, ...], sentence: str) -> None:
    publish = {"root": str(machine.folder / "root"), "sign": {"file": "/etc/bringup/key"}, "signers": [KEY]}
    rewrite(machine, publish=publish)
    done = machine.call("stack", "from-git", f"file://{machine.folder}/git", "stacks/stack.yaml", *words)
    assert (done.code, done.out) == (64, "")
    assert sentence in done.err
    assert not machine.runs


def test_a_path_that_the_branch_lacks_is_told(machine: Machine) -> None:
    done = machine.call("stack", "from-git", f"file://{machine.folder}/git", "stacks/none.yaml")
    assert done.code == 64
    assert "has no file stacks/none.yaml" in done.err


def test_the_key_that_signs_is_sent_to_no_registry(machine: Machine) -> None:
    key = machine.folder / "sign_ed25519"
    key.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nZW1wdHk=\n-----END OPENSSH PRIVATE KEY-----\n")
    with registry_stand_in.serving() as registry:
        registry.login = "a:b"
        cache = f"oci://{registry.url.removeprefix('http://')}/x"
        rewrite(machine, tests=[], cache=cache, cache_access={"username": "a", "password": {"file": str(key)}})
        words = ("stack", "from-git", f"file://{machine.folder}/git", "stacks/stack.yaml", "--cache", cache)
        done = machine.call(*words, "--may-use", f"stack_sign_key={key}")
        assert (done.code, done.out) == (64, "")
        assert f"the spec names the file {key}, which the command does not allow as cache_password" in done.err
        done = machine.call(*words, "--may-use", f"cache_password={key}")
        assert (done.code, "cache_password has a private key, which no registry may see" in done.err) == (64, True), done.err
        assert not registry.requests


REGISTRY = "oci://registry.example.org/hpc/cache"
OUTSIDE = "/etc/bringup/key"


def login(password: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"cache": REGISTRY, "cache_access": {"username": "builder", "password": password, **more}}


def announced(**announce: Any) -> dict[str, Any]:
    return {"approval": {"approvers": ["ada@example.org"], "announce": announce}}


@pytest.mark.parametrize(
    ("keys", "limits", "sentence"),
    [
        (login({"file": OUTSIDE}), ("stack_sign_key",), "does not allow as cache_password"),
        (login({"file": OUTSIDE}), ("cache_password", "cache_ca"), ""),
        (login({"file": "~/token"}), ("cache_password",), "the spec names the file ~/token, which"),
        (login({"file": "../../token"}), ("cache_password",), "the spec names the file ../../token, which"),
        (login({"env": "AWS_SECRET_ACCESS_KEY"}), (), "cache_password from the environment variable AWS_SECRET_ACCESS_KEY"),
        (login({"file": OUTSIDE}) | {"cache": f"{REGISTRY}/x"}, ("cache_password",), f"cache {REGISTRY}/x, and --cache allows"),
        ({"cache": "/srv/cache"}, (), "the spec has cache /srv/cache, and --cache allows"),
        (login({"file": OUTSIDE}, ca={"file": "./ca.pem"}), ("cache_password",), "of its server, cache_ca, lie in Git"),
        (login({"file": OUTSIDE}, ca={"file": OUTSIDE}), ("cache_password", "cache_ca"), ""),
        (login({"file": "./password"}, ca={"file": "./ca.pem"}), (), ""),
        (announced(webhook={"file": OUTSIDE}) | {"cache": REGISTRY}, ("stack_sign_key",), "as announce.stack_publish"),
        (
            announced(webhook={"file": OUTSIDE}, ca={"file": "./ca.pem"}) | {"cache": REGISTRY},
            ("announce.stack_publish",),
            "announce_ca.stack_publish, lie in Git",
        ),
    ],
    ids=[
        *("role", "allowed", "home", "above", "variable", "registry", "folder", "own_ca", "ca", "in_git", "webhook_role"),
        "webhook_ca",
    ],
)
def test_a_commit_sends_no_secret_of_this_machine_to_a_server_of_its_choice(
    tmp_path: Path, keys: dict[str, Any], limits: tuple[str, ...], sentence: str
) -> None:
    spec, folder = load_stack(small_stack.write(tmp_path, **keys)), tmp_path / "checkout"
    allowed = Allowed(cache=REGISTRY, files=tuple(f"{role}={OUTSIDE}" for role in limits))
    if not sentence:
        allowed.check(spec, folder, folder)
        return
    with pytest.raises(BranchRefused, match=re.escape(sentence)):
        allowed.check(spec, folder, folder)


def test_a_password_of_this_machine_needs_a_limit_of_the_registry(tmp_path: Path) -> None:
    spec = load_stack(small_stack.write(tmp_path, **login({"file": OUTSIDE})))
    with pytest.raises(BranchRefused, match="to any registry") as caught:
        Allowed(files=(f"cache_password={OUTSIDE}",)).check(spec, tmp_path, tmp_path)
    assert "--cache oci://" in caught.value.hint
