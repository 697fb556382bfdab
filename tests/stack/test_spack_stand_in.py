"""A recorded lock of Spack from lock to published modules, built by the stand-in for `spack`; failures are recorded ones.

The stand-in compiles nothing, so what is tested here is ours: commands, graph of builds, cache, tree, modules and publication.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.stack.spack_site import LOCK, RECORDED, SPACK, SpackSite, recorded

BUILT = 16
"""Packages of the recorded lock that are no externals."""
DEPENDENTS_OF_XZ = {"hwloc@2.9.0", "libxml2@2.9.14", "mpi-ring@1.0", "zstd@1.5.4"}


@pytest.fixture
def site(ground: Path, request: pytest.FixtureRequest) -> SpackSite:
    """Return a site with a publish root and a build cache of its own, and a lock that the stand-in made."""
    folder = ground / f"spack-{request.node.originalname[5:25].strip('_')}"
    site = SpackSite(folder / "site", folder / "stacks", folder / "cache", "lab")
    site.run("lock")
    return site


def _lock_of(site: SpackSite) -> dict[str, Any]:
    """Return the content of a site's lock as Spack wrote it, without the section in which bringup remembers recipes."""
    content = json.loads((site.folder / "spack.lock").read_bytes())
    return {name: value for name, value in content.items() if name != "bringup"}


def test_a_recorded_lock_is_built_published_and_loaded(site: SpackSite) -> None:
    assert _lock_of(site) == json.loads((RECORDED / LOCK).read_bytes())
    assert "unchanged" in site.run("lock")
    site.run("build")
    built = site.built()
    assert len(built) == BUILT
    assert {result["outcome"] for result in built.values()} == {"built"}
    loaded = site.loaded("zstd", modules=("zstd",))
    assert (loaded.returncode, loaded.stdout) == (0, "zstd 1.5.4\n"), loaded.stderr
    assert "nothing changed" in site.run("build")
    # other places and another language of the modules need no build
    site.write(spack=SPACK | {"naming": "hierarchical"}, module_syntax="tcl")
    site.run("build")
    assert (site.current[:5], site.built()) == ("0002-", {})
    assert not list((site.published / "current/modules").rglob("*.lua"))
    assert site.loaded("true", modules=("mpi-ring",)).returncode
    loaded = site.loaded("mpi-ring", modules=("openmpi", "mpi-ring"))
    assert (loaded.returncode, loaded.stdout) == (0, "mpi-ring 1.0\n"), loaded.stderr


def test_a_package_that_does_not_compile_stops_its_dependents_alone(site: SpackSite) -> None:
    site.fail({"xz": (1, recorded("fail_compile_error.txt", badcompile="xz"))})
    site.run("build", code=65)
    built = site.built()
    assert built["xz@5.4.1"]["failure"] == "compile"
    assert built["xz@5.4.1"]["phase"] == "build"
    assert any("undeclared_name" in line for line in built["xz@5.4.1"]["lines"])
    assert not DEPENDENTS_OF_XZ & {title for title, result in built.items() if result["outcome"] == "built"}
    assert len([title for title, result in built.items() if result["outcome"] == "built"]) == BUILT - len(DEPENDENTS_OF_XZ) - 1
    site.fail({})
    site.run("build")
    assert set(site.built()) == {"xz@5.4.1", *DEPENDENTS_OF_XZ}
    assert site.current


def test_an_install_that_ends_with_0_and_does_nothing_is_a_failure(site: SpackSite) -> None:
    site.fail({"sed": (0, recorded("fail_install_only_concrete_without_lock.txt"))})
    site.run("build", code=65)
    assert (site.built()["sed@4.9"]["outcome"], site.built()["sed@4.9"]["failure"]) == ("failed", "input")
    assert not site.current


def test_an_environment_that_cannot_be_concretized_leaves_the_lock(site: SpackSite) -> None:
    site.fail({"concretize": (1, recorded("fail_unsat.txt"))})
    assert "cannot satisfy a requirement for package 'zlib'" in site.run("lock", code=64)
    assert _lock_of(site) == json.loads((RECORDED / LOCK).read_bytes())
