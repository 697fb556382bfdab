"""A stack in pods: EasyBuild builds and Lmod loads in tasks of Argo's stand-in, which see the run store and nothing else."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from steps.clients.store import Store
from tests.stack.stack_site import EASYBUILD, Site
from tests.unit.engines.argo.lab import Lab, lab

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


def test_a_stack_is_built_assembled_and_tested_by_pods(home: Lab, ground: Path) -> None:
    site = Site(ground / "argo" / "user", ground / "argo" / "published", ground / "argo" / "cache", "argo")
    site.keep_only()
    test = {"name": "mpi_is_there", "modules": ["gompi"], "command": ["mpirun", "--version"], "timeout": "60s"}
    easybuild = {"release": EASYBUILD, "easyconfigs": ["easyconfigs/gompi-2022.12.eb"]}
    site.write(easybuild=easybuild, tests=[test], module_syntax="tcl", **IN_THE_STORE)
    site.environment["KUBECONFIG"] = home.where.kubeconfig
    site.run("lock")
    where = ("--engine", "argo", "--namespace", home.where.namespace)
    assert "pods: they have none of the folder publish.root" in site.run("build", *where, code=64)
    site.run("build", *where, "--until", "stack_test", "--wait")

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
    assert not list(site.root.iterdir()), "nothing is published from pods"
