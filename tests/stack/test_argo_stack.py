"""A stack from a commit to its publication by pods: EasyBuild builds and Lmod loads in tasks of Argo's stand-in.

The tasks see the run store, and the published folder at its own path, as a kubelet mounts it by the claim.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steps.clients.store import Store
from steps.softwarestack.cache import store_collection
from tests.stack.stack_site import EASYBUILD, Site, written
from tests.unit.engines.argo.git_desk import Desk, desk_of
from tests.unit.engines.argo.lab import Lab, lab, minimal_crd, until
from workflows import stack
from workflows.app.run_options import Wish
from workflows.app.specs import manifests
from workflows.app.stacks import stack_pipeline
from workflows.engines.argo import installer, submission
from workflows.render import from_git
from workflows.render.steps import USER, Settings

LMOD = "/usr/share/lmod/lmod/libexec/lmod"
PODS = {"EB_PYTHON": sys.executable, "LMOD_CMD": LMOD}
"""Environment of the builder image: EasyBuild in its Python, and Lmod."""
IN_THE_STORE: dict[str, Any] = {"cache": None, "sources": []}
"""Pods have no folders of this machine: packages lie in the run store."""


@pytest.fixture
def home(ground: Path) -> Iterator[Lab]:
    """A home cluster with the stand-in for Argo's controller."""
    folder = ground / "home"
    folder.mkdir()
    made = lab(folder)
    try:
        made.prepare()
        made.stand_in(environment=PODS)
        yield made
    finally:
        made.close()


def evidence(home: Lab, stage: str, task: str) -> list[Any]:
    """Return the records of a task in the only run of the store."""
    (run,) = (path.name for path in (home.store / "runs").iterdir())
    return list(Store(home.store).records(run, stage, task))


@pytest.fixture
def site(home: Lab, ground: Path) -> Site:
    """A locked stack with a claim for pods and a schedule."""
    made = Site(ground / "argo" / "user", ground / "argo" / "published", ground / "argo" / "cache", "argo")
    made.keep_only()
    test = {"name": "mpi_is_there", "modules": ["gompi"], "command": ["mpirun", "--version"], "timeout": "60s"}
    easybuild = {"release": EASYBUILD, "easyconfigs": ["easyconfigs/gompi-2022.12.eb"]}
    schedule = {"cron": "0 2 * * *", "source": {"repository": "https://git.example.org/site.git", "path": "tools/stack.yaml"}}
    publish = {"root": str(made.root), "claim": "share"}
    made.write(easybuild=easybuild, tests=[test], module_syntax="tcl", publish=publish, schedule=schedule, **IN_THE_STORE)
    made.environment["KUBECONFIG"] = home.where.kubeconfig
    made.run("lock")
    return made


def install(home: Lab, site: Site) -> list[str]:
    """Install the schedule, as an operator does once, and return the arguments of its pod."""
    path, loaded = stack_pipeline.read(str(site.folder / "stack.yaml"))
    plan = stack_pipeline.STACK.plan(path, loaded, Wish())
    settings = Settings(namespace=home.where.namespace, builder=plan.builder)
    installer.install(home.home, plan, manifests.rendered(plan, stack.build, settings), {})
    (pod,) = home.home.template(from_git.template_name(site.name, stack.KIND))["spec"]["templates"]
    arguments: list[str] = pod["container"]["args"]
    at = arguments.index("--starter")
    return arguments[1:at] + arguments[at + 2 :]


def can_be_published_by_pods(tree: Path) -> bool:
    """Return True if the user of pods that publish, who did not make a tree, can hold and read all of it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgid(USER)
            os.setuid(USER)
            with store_collection.hold_tree(tree):
                for path in tree.rglob("*"):
                    assert path.is_dir() or path.is_symlink() or path.read_bytes() is not None
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_commit_is_built_tested_and_published_by_pods_and_not_built_again(home: Lab, site: Site, ground: Path) -> None:
    where = ("--engine", "argo", "--namespace", home.where.namespace)
    assert "has no PersistentVolumeClaim share, which publish.claim names" in site.run("build", *where, code=64)
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    meta = {"name": "share", "namespace": home.where.namespace}
    home.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": claim})
    desk: Desk = desk_of(home, ground / "argo", minimal_crd)
    files = {f"tools/{path.relative_to(site.folder)}": path.read_text() for path in site.easyconfigs.iterdir()}
    files |= {f"tools/{name}": (site.folder / name).read_text() for name in ("stack.yaml", "stack.lock.json")}
    desk.push(files)
    arguments = [desk.url if word.startswith("https:") else word for word in install(home, site)]

    assert "submitted" in site.run(*arguments)
    (run,) = submission.unfinished_runs(home.home, site.name, stack.KIND)
    until(lambda: home.home.workflow(run.metadata.name).finished, "the run", seconds=300)
    assert site.current.startswith("0001-")
    assert can_be_published_by_pods(next(path for path in (home.store / "stacks/trees").iterdir() if path.is_dir()))
    before = written(ground / "argo/published")
    assert f"nothing changed: {site.current} of argo is published" in site.run(*arguments)
    assert written(ground / "argo/published") == before
    assert not submission.unfinished_runs(home.home, site.name, stack.KIND), "nothing is started"

    built = [package for record in evidence(home, "stack_build", "package") for package in record.observation["packages"]]
    assert {package["title"]: package["outcome"] for package in built} == {
        "GCC@12.2.0": "built",
        "OpenMPI@4.1.4": "built",
        "gompi@2022.12": "built",
    }
    (tested,) = evidence(home, "stack_test", "test")
    assert tested.verdict is not None
    assert tested.verdict.is_pass, tested.verdict.reason
    assert "mpi_is_there" in json.dumps(tested.observation)
    modules = [path.read_text() for path in (home.store / "stacks/trees").glob("*/modules/**/*") if path.is_file()]
    assert [text[:8] for text in modules] == ["#%Module"] * 3
    assert list((home.store / "stacks/cache").rglob("*.tar.zst")), "packages lie in the run store"
