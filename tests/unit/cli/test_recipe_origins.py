"""Origin of an image recipe: the commit of each file that decides what the recipe says, and the version of bringup."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from steps import __version__
from steps.nodeimage.contract import resolved_recipe
from tests.unit import small_image
from workflows.app.images import image_pipeline
from workflows.app.run_options import Wish
from workflows.app.specs import revisions
from workflows.nodeimage import recipe_files

OURS = {
    "apiVersion": "bringup/v1",
    "kind": "ImageRecipe",
    "name": "ours",
    "description": "The base, and a banner.",
    "extends": "base",
    "layers": [{"name": "site", "files": [{"path": "/etc/motd", "source": "files/motd"}]}],
}
BROUGHT = f"bringup {__version__}"


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", "-C", folder, *who, *words], check=True, capture_output=True, text=True).stdout.strip()


def committed(folder: Path) -> str:
    """All files of the folder, committed."""
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "all")
    return git(folder, "rev-parse", "HEAD")


def origin(folder: Path) -> str:
    """Return the recipe origin that a plan of the image spec in this folder records."""
    path, loaded = image_pipeline.IMAGE.read(str(folder / "image.yaml"))
    plan = image_pipeline.IMAGE.plan(path, loaded, Wish())
    return resolved_recipe.decode(plan.archives[resolved_recipe.FILE]).origin


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A spec with a recipe, a placed file and a lock of its own, in folders of their own."""
    folder = tmp_path / "site"
    (folder / "recipes/files").mkdir(parents=True)
    (folder / "recipes/files/motd").write_text("hello\n")
    (folder / "recipes/ours.yaml").write_text(yaml.safe_dump(OURS))
    lock = yaml.safe_load((recipe_files.RECIPES / "base.lock.json").read_text())
    lock["layers"].append({"name": "site", "packages": []})
    (folder / "locks").mkdir()
    (folder / "locks/ours.lock.json").write_text(json.dumps(lock))
    small_image.spec(folder, recipe="recipes/ours.yaml", lock="locks/ours.lock.json")
    return folder


def edited(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text((folder / name).read_text() + "\n")


def ignored(folder: Path) -> None:
    """The placed file is one that Git shall not know."""
    (folder / ".gitignore").write_text("motd\n")
    git(folder, "rm", "--quiet", "--cached", "recipes/files/motd")
    git(folder, "add", ".gitignore")
    git(folder, "commit", "--quiet", "--message", "ignored")


def linked_out(folder: Path) -> None:
    """The lock is a link to a file that no commit holds."""
    (folder / "locks/ours.lock.json").rename(folder.parent / "elsewhere.json")
    (folder / "locks/ours.lock.json").symlink_to(folder.parent / "elsewhere.json")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "linked")


CHANGES: dict[str, Callable[[Path], object]] = {
    "spec": edited("image.yaml"),
    "recipe": edited("recipes/ours.yaml"),
    "placed file": edited("recipes/files/motd"),
    "lock": edited("locks/ours.lock.json"),
    "ignored": ignored,
    "link": linked_out,
}


def test_a_recipe_of_ones_own_is_at_its_commit_on_bringups_version(site: Path) -> None:
    commit = committed(site)
    (site / "unrelated").write_text("nothing of the image")
    assert origin(site).startswith(f"{commit}, on {BROUGHT}")


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_differs_from_the_commit_is_told(site: Path, change: str) -> None:
    committed(site)
    CHANGES[change](site)
    assert origin(site).startswith(f"{git(site, 'rev-parse', 'HEAD')} with changes, on {BROUGHT}")


def test_a_recipe_that_no_git_knows_says_so(site: Path) -> None:
    assert origin(site).startswith(f"not in Git, on {BROUGHT}")


def test_a_shipped_recipe_is_bringups_and_the_spec_has_its_own_commit(tmp_path: Path) -> None:
    small_image.spec(tmp_path)
    assert origin(tmp_path).removesuffix(" with changes") == BROUGHT
    commit = committed(tmp_path)
    assert origin(tmp_path).endswith(f", spec {commit}")
    edited("image.yaml")(tmp_path)
    assert origin(tmp_path).endswith(f", spec {commit} with changes")


def test_a_recipe_in_a_work_tree_of_its_own_has_its_own_commit(site: Path) -> None:
    inner = committed(site / "recipes")
    shutil.rmtree(site / ".git", ignore_errors=True)
    outer = committed(site)
    assert origin(site).startswith(f"{outer}, {inner}, on {BROUGHT}")


@pytest.fixture
def no_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who told git of no work tree that it may trust."""
    allowed = ("GIT_ALLOW_PROTOCOL", "GIT_NO_LAZY_FETCH", "GIT_SSH", "GIT_SSH_COMMAND")
    for name in ("SUDO_UID", "GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS", *allowed):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")


def given_away(folder: Path) -> None:
    """The work tree is another user's, and git knows."""
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (1, 1), follow_symlinks=False)  # git would read each file again
        os.chown(path, 1234, 1234, follow_symlinks=False)
    refused = subprocess.run(["git", "-C", folder, "status"], capture_output=True, text=True)
    assert "dubious ownership" in refused.stderr, "this git asks nobody whose the tree is"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.usefixtures("no_trust")
@pytest.mark.parametrize("change", ["", *CHANGES])
def test_a_work_tree_of_another_user_is_asked_and_none_of_its_programs_is_run(site: Path, change: str) -> None:
    committed(site)
    if change:
        CHANGES[change](site)
    commit, ran = git(site, "rev-parse", "HEAD"), site.parent / "ran"
    (site / ".git/info/attributes").write_text("* filter=theirs\n")
    git(site, "config", "filter.theirs.clean", f"touch {ran}; cat")
    given_away(site)
    told = f"{commit} with changes" if change else commit
    assert origin(site).startswith(f"{told}, on {BROUGHT}")
    assert not ran.exists()
    subprocess.run(["git", "-c", "safe.directory=*", "-C", site, "status"], check=True, capture_output=True)
    assert ran.exists(), "what a look without care would have started"


WITHOUT_ROOM = """
import pathlib, sys, tempfile
from workflows.app.specs import revisions
tree = pathlib.Path(sys.argv[1])
tempfile.tempdir = str(tree / "nowhere")
print(revisions.state(tree, [tree / "image.yaml"]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.usefixtures("no_trust")
def test_a_work_tree_of_another_user_is_none_where_nothing_can_be_written(site: Path) -> None:
    committed(site)
    given_away(site)
    said = subprocess.run([sys.executable, "-c", WITHOUT_ROOM, site], capture_output=True, text=True)
    assert (said.stdout, said.stderr) == ("None\n", "")


FETCHES = {
    "ext": {"url": "ext::sh -c touch% {ran}"},
    "upload-pack": {"url": "{site}", "uploadpack": "touch {ran};"},
    "ssh": {"url": "ssh://example.org/tree"},
}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.usefixtures("no_trust")
@pytest.mark.parametrize("how", FETCHES)
def test_what_is_missing_in_a_work_tree_of_another_user_is_not_fetched_by_its_programs(site: Path, how: str) -> None:
    commit, ran = committed(site), site.parent / "ran"
    whole = revisions.state(site, [site / "image.yaml"])
    assert whole == (commit, False)
    settings = {f"remote.origin.{key}": value.format(ran=ran, site=site) for key, value in FETCHES[how].items()}
    settings |= {"core.repositoryFormatVersion": "1", "extensions.partialClone": "origin", "remote.origin.promisor": "true"}
    settings |= {f"protocol.{name}.allow": "always" for name in ("ext", "file", "ssh")}
    settings |= {
        "core.sshCommand": f"touch {ran};",
        "core.fsmonitor": f"touch {ran};",
        "core.alternateRefsCommand": f"touch {ran};",
    }
    for key, value in settings.items():
        git(site, "config", key, value)
    tree = git(site, "rev-parse", "HEAD^{tree}")
    (site / ".git/objects" / tree[:2] / tree[2:]).unlink()
    given_away(site)
    assert revisions.top(site) == site.resolve()
    assert revisions.state(site, [site / "image.yaml"]) is None
    assert origin(site).startswith(f"not in Git, on {BROUGHT}")
    assert not ran.exists()
    subprocess.run(["git", "-c", "safe.directory=*", "-C", site, "ls-tree", commit], capture_output=True)
    assert ran.exists(), "what a look without care would have started"
