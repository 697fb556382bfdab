"""The life of a software stack: lock, plan, build, use, no change, a changed package, rollback, verification, garbage collection.

The tests share one stack and run in this order.
"""

import json
import os
import re
import subprocess
from pathlib import Path

from tests.stack.conftest import Published
from tests.stack.stack_site import Site, written

PACKAGES = 13
"""Packages that are compiled; three more make the modules of the toolchain."""
RAN = re.compile(r"^2 ranks agree: crc32 2d1e6f59, xxh64 c99eed511a391f0a$", re.MULTILINE)


def test_all_packages_are_locked_planned_built_tested_and_published(first: Published) -> None:
    site = first.site
    assert first.lock.splitlines()[-1].endswith(f"{PACKAGES + 3} of {PACKAGES + 3} packages locked")
    assert f"{PACKAGES + 3} builds of {PACKAGES + 3} packages: 0 are in the cache" in first.plan
    built = site.built()
    assert len(built) == PACKAGES + 3
    assert {package["outcome"] for package in built.values()} == {"built"}
    (tested,) = site.records("stack_test", "test")
    assert (tested["verdict"]["status"], tested["verdict"]["gate"]) == ("pass", "stack_test/tests")
    outcomes = {result["name"]: result["outcome"] for result in tested["observation"]["results"]}
    assert outcomes["mpi_sum"] == outcomes["stack_checks.py: RanksAgree"] == "pass"
    assert site.current.startswith("0001-")
    assert "<testsuite" in (site.folder / "report.xml").read_text()


def test_users_load_modules_of_each_level_and_run_programs(first: Published) -> None:
    site = first.site
    summed = site.loaded("mpirun", "-n", "2", "mpisum", modules=("gompi", "mpisum"))
    assert RAN.search(summed.stdout), summed
    measured = site.loaded("mpirun", "-n", "2", "NPmpi", "-u", "64", "-o", "/dev/null", modules=("gompi", "NetPIPE"))
    assert (measured.returncode, "bytes" in measured.stdout + measured.stderr) == (0, True), measured
    matched = site.loaded("lua", "-e", 'print(require("lpeg").P("ab"):match("abc"))', modules=("GCC", "LPeg"))
    assert matched.stdout == "3\n", matched
    image = site.loaded("qrencode", "-o", str(site.folder / "code.png"), "a stack", modules=("GCC", "qrencode"))
    assert image.returncode == 0, image
    assert "OK" in site.loaded("pngcheck", str(site.folder / "code.png"), modules=("GCC", "pngcheck")).stdout
    # without modules, by paths
    program = site.published / "current/view/bin/pngcheck"
    viewed = subprocess.run([program, site.folder / "code.png"], capture_output=True, text=True, check=False)
    assert (viewed.returncode, "OK" in viewed.stdout) == (0, True), viewed
    hidden = site.loaded("true", modules=("mpisum",))
    assert hidden.returncode != 0, "a module of the MPI level was there without its compiler and MPI"


def test_an_unchanged_stack_writes_nothing(first: Published) -> None:
    site = first.site
    before = written(site.root) | written(site.folder) | written(site.cache)
    said = site.run("build")
    assert said == f"nothing changed: {site.current} of first is published from this lock and these settings\n"
    assert written(site.root) | written(site.folder) | written(site.cache) == before
    assert site.run("lock").endswith(f"stack.lock.json: unchanged, {PACKAGES + 3} packages\n")


def test_a_changed_package_rebuilds_itself_and_its_dependents_alone(first: Published) -> None:
    site = first.site
    one = site.current
    running = _program(site, "lua")
    site.change("Lua", "'noopt': True", "'lowopt': True")
    changes = site.run("lock").splitlines()
    assert changes[:-1] == [
        "~ Compiler/GCC/12.2.0/Lua/5.4.4: its easyconfig changed",
        "~ Compiler/GCC/12.2.0/LPeg/1.0.2: something that it needs changed",
    ]
    site.run("build")
    assert {title: package["outcome"] for title, package in site.built().items()} == {"Lua@5.4.4": "built", "LPeg@1.0.2": "built"}
    assert site.current.startswith("0002-")
    assert _program(site, "lua") != running
    assert Path(running).is_file(), "a running job lost its program"
    assert _packages_of(site, site.current) & _packages_of(site, one) == _packages_of(site, one) - _of(site, one, "Lua", "LPeg")


def test_a_rollback_brings_the_earlier_modules_back_and_all_is_as_listed(first: Published) -> None:
    site = first.site
    one, two = sorted(os.listdir(site.published / "versions"))
    assert site.current == two
    site.run("rollback")
    assert site.current == one
    assert RAN.search(site.loaded("mpirun", "-n", "2", "mpisum", modules=("gompi", "mpisum")).stdout)
    site.run("verify")
    listed = json.loads(site.run("list", "-o", "json"))
    assert one in json.dumps(listed)
    assert two in json.dumps(listed)


def test_packages_that_no_version_names_any_more_are_removed(first: Published) -> None:
    site = first.site
    one, two = sorted(os.listdir(site.published / "versions"))
    gone = _of(site, one, "Lua", "LPeg") | _of(site, two, "Lua", "LPeg")
    assert len(gone) == 4
    for names in (("Lua", "LPeg"), ("lz4",)):
        for name in names:
            site.easyconfig(name).unlink()
        site.write(publish={"root": str(site.root), "keep": 2})
        site.run("lock")
        site.run("build")
    three, four = sorted(os.listdir(site.published / "versions"))
    assert (four, {one, two} & {three, four}) == (site.current, set())
    site.run("gc")
    packages = set(os.listdir(site.root / "packages"))
    assert not gone & packages
    assert packages >= _packages_of(site, three)
    site.run("verify", "--stack", "first")


def _program(site: Site, name: str) -> str:
    return site.loaded("bash", "-c", f"type -p {name}", modules=("GCC", "LPeg")).stdout.strip()


def _packages_of(site: Site, version: str) -> frozenset[str]:
    manifest = json.loads((site.published / "versions" / version / "manifest.json").read_text())
    return frozenset(package["folder"] for package in manifest["packages"] if package["folder"] != manifest.get("view"))


def _of(site: Site, version: str, *names: str) -> frozenset[str]:
    return frozenset(folder for folder in _packages_of(site, version) if folder.startswith(tuple(f"{name}-" for name in names)))
