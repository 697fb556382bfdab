"""What a schedule of a node image starts: a branch of a real Git repository becomes a build on a home cluster, once a state."""

import base64
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from dulwich.repo import Repo

from steps.clients import git
from steps.clients.git import Author
from steps.clients.git_access import GitAccess
from steps.contract import revision
from tests.unit import small_image
from tests.unit.engines.argo.lab import Lab, full_crd, until
from workflows import image
from workflows.cli import compiling, pipelines
from workflows.engines.argo import going_on, install, starts
from workflows.engines.argo.objects import PLAN, Workflow
from workflows.render import from_git
from workflows.render.steps import Settings

COMMAND = Path(sys.executable).with_name("bringup")
AUTHOR = Author(name="site", mail="hpc@example.org", when=1_795_000_000)
PUBLISH = {
    **small_image.SPEC["publish"],
    "ssh": {"host": "boot.example.org", "key": {"secret": {"name": "boot", "key": "key"}}, "known_hosts": "./known_hosts"},
}
SOURCE = {"repository": "https://git.example.org/site.git", "path": "nodes/image.yaml"}
SPEC = {**small_image.SPEC, "publish": PUBLISH, "schedule": {"cron": "0 2 * * *", "source": SOURCE}}
NAME = "lab-nodes"


@dataclass(frozen=True)
class Desk:
    """A home cluster, and a site's repository beside it."""

    lab: Lab
    bare: Path

    @property
    def url(self) -> str:
        """As a pod would reach it."""
        return f"file://{self.bare}"

    def commit(self, spec: Mapping[str, Any] | None = None, **more: Any) -> str:
        """Put a spec into the repository, `more` replacing keys of it; the commit."""
        text = yaml.safe_dump({**(SPEC if spec is None else spec), **more})
        files = {"nodes/image.yaml": text, "nodes/known_hosts": "boot.example.org ssh-ed25519 AAAA\n"}
        with git.opened(GitAccess(url="https://git.example.org/site.git", local=self.bare)) as repo:
            before = repo.tip("main")
            made = repo.commit(before, files, "a change", AUTHOR)
            repo.push({"refs/heads/main": (before, made)})
        return made

    def install(self, **more: Any) -> None:
        """What a person does once: accounts and schedule."""
        path = self.lab.folder / "image.yaml"
        path.write_text(yaml.safe_dump({**SPEC, **more}))
        plan = pipelines.IMAGE.plan(path, pipelines.IMAGE.read(str(path))[1], pipelines.Wish())
        bundle = compiling.rendered(plan, image.build, Settings(namespace=self.lab.where.namespace))
        install.install(self.lab.home, plan, bundle, {})

    def run(self, *words: str, path: str = "nodes/image.yaml") -> subprocess.CompletedProcess[str]:
        """The command of the schedule's pod."""
        where = ("--home-kubeconfig", self.lab.where.kubeconfig, "--namespace", self.lab.where.namespace)
        line = [str(COMMAND), "image", "from-git", self.url, path, "--name", NAME, *where, *words]
        environment = {**os.environ, "BRINGUP_HOME": str(self.lab.folder / "runs")}
        return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120)

    def going(self) -> tuple[Workflow, ...]:
        """Builds of the image that have not ended."""
        return going_on.runs(self.lab.home, NAME, image.KIND)

    def found(self, kind: str, name: str) -> Mapping[str, Any] | None:
        """An object of the home cluster."""
        return self.lab.home.ask(lambda kube: kube.get(self.lab.home.core(kind, name), dict[str, Any]))


@pytest.fixture
def desk(cluster: Lab, tmp_path: Path) -> Desk:
    for plural in starts.KINDS:
        if not cluster.served(plural):
            cluster.ensure(full_crd(plural))
    until(lambda: all(cluster.served(plural) for plural in starts.KINDS), "schedules and events")
    bare = tmp_path / "site.git"
    Repo.init_bare(str(bare), mkdir=True, default_branch=b"main").close()
    cluster.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "boot", "namespace": cluster.where.namespace},
            "data": {"key": base64.b64encode(b"a key").decode()},
        }
    )
    return Desk(cluster, bare)


def test_each_state_of_the_branch_is_built_once_and_ends_the_one_before(desk: Desk) -> None:
    desk.install()
    first = desk.commit()
    done = desk.run()
    assert (done.returncode, done.stderr) == (0, "")
    (run,) = desk.going()
    source = revision.from_token(run.argument("source"))
    assert source is not None
    assert (source.commit, source.path, source.dirty) == (first, "nodes/image.yaml", False)
    assert run.metadata.labels == {"bringup/cluster": NAME, "bringup/pipeline": "image"}

    again = desk.run()
    assert again.returncode == 0
    assert f"run {run.metadata.name} builds exactly this: {desk.url}, branch main is at {first}" in again.stdout
    assert [one.metadata.name for one in desk.going()] == [run.metadata.name]

    desk.commit(revision="2026-11-22.1")
    newer = desk.run()
    assert newer.returncode == 0
    assert f"{run.metadata.name} is superseded, and is being cancelled" in newer.stdout
    older, latest = sorted(desk.going(), key=lambda one: one.metadata.name != run.metadata.name)
    assert (older.spec.shutdown, latest.spec.shutdown) == ("Stop", "")
    assert older.metadata.annotations[PLAN] != latest.metadata.annotations[PLAN]
    assert "the schedule of lab-nodes" in older.metadata.annotations["bringup/cancelled"]

    desk.commit()  # back to the first state, whose build is being ended: it is no reason to build nothing
    back = desk.run()
    assert f"{latest.metadata.name} is superseded" in back.stdout
    assert "submitted" in back.stdout


def test_who_may_do_what_is_left_to_whoever_installs_the_schedule(desk: Desk) -> None:
    desk.commit()
    done = desk.run()
    assert done.returncode == 64
    assert "has no ServiceAccount bringup-executor, and this account makes none" in done.stderr
    assert "bringup image build SPEC --engine argo" in done.stderr
    assert desk.going() == ()
    desk.install()
    assert desk.found("serviceaccounts", from_git.account_name(NAME)) is not None
    assert desk.run().returncode == 0
    desk.install(schedule=None)
    assert desk.found("serviceaccounts", from_git.account_name(NAME)) is None, "its token ends with the schedule"


@pytest.mark.parametrize(
    ("more", "words", "path", "code", "sentence"),
    [
        ({"name": "other"}, (), "nodes/image.yaml", 64, "describes image other, not lab-nodes"),
        ({}, (), "nodes/none.yaml", 64, "has no file nodes/none.yaml"),
        ({}, ("--branch", "next"), "nodes/image.yaml", 64, "has no branch next"),
        ({"boot": {"nodes": 0}}, (), "nodes/image.yaml", 64, "boot.nodes"),
        ({"schedule": None, "publish": small_image.SPEC["publish"]}, (), "nodes/image.yaml", 64, "add publish.ssh"),
        ({}, ("--secrets", "/nonexistent"), "nodes/image.yaml", 64, "has none of credentials, known_hosts and ca"),
    ],
    ids=["another name", "no file", "no branch", "bad spec", "a folder of one machine", "no secrets"],
)
def test_what_cannot_be_built_is_said_and_nothing_is_submitted(
    desk: Desk, more: dict[str, Any], words: tuple[str, ...], path: str, code: int, sentence: str
) -> None:
    desk.install()
    desk.commit(**more)
    done = desk.run(*words, path=path)
    assert (done.returncode, sentence in done.stderr) == (code, True), done.stderr
    assert desk.going() == ()


def test_a_repository_that_is_not_there_is_refused_with_the_key_of_the_spec(desk: Desk) -> None:
    desk.install()
    done = subprocess.run(
        [str(COMMAND), "image", "from-git", "file:///no/such.git", "image.yaml"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 64
    assert "there is no Git repository" in done.stderr
    assert "see schedule.source.repository" in done.stderr
