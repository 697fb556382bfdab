"""`bringup stack from-git`: the newest commit of a branch is checked out and checked, within what the command allows."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit import small_stack
from tests.unit.cli.conftest import Machine
from tests.unit.softwarestack.test_stack_builds import KEY, published

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
