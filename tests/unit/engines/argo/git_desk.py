"""A home cluster, and a Git repository beside it from which schedules build: the spec of a node image, or any files."""

import base64
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from dulwich.repo import Repo

from steps.clients.git import repositories
from steps.clients.git.git_access import GitAccess
from steps.clients.git.repositories import Author
from tests.unit import small_image, warm_commands
from tests.unit.engines.argo.lab import Lab, full_crd, until
from workflows import image
from workflows.app.images import image_pipeline
from workflows.app.run_options import Wish
from workflows.app.specs import manifests
from workflows.engines.argo import installer, schedules, submission
from workflows.engines.argo.workflow_objects import Workflow
from workflows.render.steps import Settings

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

    def commit(self, spec: Mapping[str, Any] | None = None, *, folder: str = "nodes/", **more: Any) -> str:
        """Put a spec into a folder of the repository, `more` replacing keys of it; the commit."""
        text = yaml.safe_dump({**(SPEC if spec is None else spec), **more})
        files = {f"{folder}image.yaml": text, f"{folder}known_hosts": "boot.example.org ssh-ed25519 AAAA\n"}
        files[f"{folder}lock/of-the-site"] = "1\n"
        return self.push(files)

    def push(self, files: Mapping[str, str]) -> str:
        """Put files into the repository, path → text, and return the commit."""
        with repositories.open_repository(GitAccess(url="https://git.example.org/site.git", local=self.bare)) as repo:
            before = repo.tip("main")
            made = repo.commit(before, files, "a change", AUTHOR)
            repo.push({"refs/heads/main": (before, made)})
        return made

    def install(self, **more: Any) -> None:
        """Install the accounts and the schedule, as an operator does once."""
        path = self.lab.folder / "image.yaml"
        path.write_text(yaml.safe_dump({**SPEC, **more}))
        plan = image_pipeline.IMAGE.plan(path, image_pipeline.IMAGE.read(str(path))[1], Wish())
        bundle = manifests.rendered(plan, image.build, Settings(namespace=self.lab.where.namespace))
        installer.install(self.lab.home, plan, bundle, {})

    def run(self, *words: str, path: str = "nodes/image.yaml") -> subprocess.CompletedProcess[str]:
        """The command of the schedule's pod."""
        return self.command("image", "from-git", self.url, path, "--name", NAME, "--may-use", "publish_ssh_key=boot/key", *words)

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command about this home cluster."""
        where = ("--home-kubeconfig", self.lab.where.kubeconfig, "--namespace", self.lab.where.namespace)
        environment = {**os.environ, "BRINGUP_HOME": str(self.lab.folder / "runs")}
        return warm_commands.run([*words, *where], environment, Path.cwd())

    def starter(self, name: str) -> str:
        """A Workflow as the schedule starts it; its uid."""
        labels = {"bringup/starts": "image", "bringup/cluster": NAME}
        meta = {"name": name, "namespace": self.lab.where.namespace, "labels": labels}
        self.lab.create({"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": meta, "spec": {}})
        return self.lab.home.workflow(name).metadata.uid

    def going(self) -> tuple[Workflow, ...]:
        """Builds of the image that have not ended."""
        return submission.unfinished_runs(self.lab.home, NAME, image.KIND)

    def found(self, kind: str, name: str) -> Mapping[str, Any] | None:
        """An object of the home cluster."""
        return self.lab.home.ask(lambda kube: kube.get(self.lab.home.core(kind, name), dict[str, Any]))


def desk_of(cluster: Lab, folder: Path, crd: Callable[[str], dict[str, Any]] = full_crd) -> Desk:
    """One with an empty repository, and the Secret that its specs name; `crd` gives the CRDs of schedules and events."""
    for plural in schedules.KINDS:
        if not cluster.served(plural):
            cluster.ensure(crd(plural))
    until(lambda: all(cluster.served(plural) for plural in schedules.KINDS), "schedules and events")
    bare = folder / "site.git"
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
