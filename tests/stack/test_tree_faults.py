"""Stacks that are built and must not be published.

A dangling link, a wrong rpath, the address of a factory, a broken module, a failing test of ReFrame.
"""

from typing import Any

from tests.stack.conftest import SiteMaker
from tests.stack.stack_site import REFRAME, Site
from tests.unit.factories.conftest import STARTER

LOST_MANUALS = "postinstallcmds = ['rm -r %(installdir)s/share/man']\n"
FACTORY = "/srv/factory/lib"
FACTORY_HOST = "factory01"
"""A host of the starter spec of factories."""
MIRROR = f"""
postinstallcmds = ['echo "mirror http://{FACTORY_HOST}/" > %(installdir)s/pngcheck.conf']
"""
BROKEN_MODULE = """
# fails where EasyBuild's own variables are missing: everywhere but in the build
modluafooter = 'if not os.getenv("EB_SCRIPT_PATH") then LmodError("only in the factory") end'
"""


def refused(site: Site, stage: str, task: str, gate: str) -> dict[str, Any]:
    """Build a stack that must not be published, and return the record of the task that refuses it."""
    site.run("lock")
    site.run("build", code=65)
    (record,) = site.records(stage, task)
    assert (record["verdict"]["gate"], record["verdict"]["status"]) == (gate, "fail"), record["verdict"]
    assert site.current == ""
    return record


def problems(record: dict[str, Any], kind: str) -> list[str]:
    """Return the problems of a kind in a tree's record, each with its path."""
    return [f"{problem['path']}: {problem['detail']}" for problem in record["observation"]["problems"] if problem["kind"] == kind]


def test_links_rpaths_and_addresses_that_lead_out_are_named_with_their_files(small: SiteMaker) -> None:
    site = small("xxHash", "zlib", "pngcheck")
    (site.folder / "factory.yaml").write_text(STARTER.read_text())
    site.write(tests=[], factory="factory.yaml")
    site.change("xxHash", LOST_MANUALS, "")
    site.change("pngcheck", 'LDFLAGS="$LDFLAGS"', f'LDFLAGS="$LDFLAGS -Wl,-rpath,{FACTORY}"')
    site.change("pngcheck", new=MIRROR)
    record = refused(site, "stack_tree", "tree", "stack_tree/tree")
    links = problems(record, "dangling_link")
    assert len(links) == 3
    assert all("xxhsum.1" in link for link in links)
    (rpath,) = problems(record, "rpath")
    assert "bin/pngcheck" in rpath
    assert FACTORY in rpath
    (address,) = problems(record, "factory")
    assert "pngcheck.conf" in address
    assert FACTORY_HOST in address


def test_a_module_that_loads_in_the_factory_alone_is_named(small: SiteMaker) -> None:
    site = small("bzip2")
    site.change("bzip2", new=BROKEN_MODULE)
    record = refused(site, "stack_test", "test", "stack_test/tests")
    assert "only in the factory" in record["verdict"]["seen"]
    outcomes = {result["name"]: result["outcome"] for result in record["observation"]["results"]}
    assert outcomes == {"Core/GCC/12.2.0": "pass", "Compiler/GCC/12.2.0/bzip2/1.0.8": "fail"}


def test_failing_tests_of_reframe_and_of_the_spec_are_named(small: SiteMaker) -> None:
    site = small("zlib", "xxHash", "mpisum")
    (site.folder / "checks.py").write_text(REFRAME.replace("2 ranks agree", "3 ranks agree"))
    wrong = {"name": "three_ranks", "modules": ["gompi", "mpisum"], "command": ["mpisum", "--no-such"], "timeout": "60s"}
    site.write(reframe=["checks.py"], tests=[wrong | {"command": ["grep", "-q", "such", "/etc/hostname"]}])
    record = refused(site, "stack_test", "test", "stack_test/tests")
    ended = {result["name"]: result["outcome"] for result in record["observation"]["results"]}
    assert (ended["three_ranks"], ended["checks.py: RanksAgree"]) == ("fail", "fail")
    assert "RanksAgree" in record["verdict"]["seen"]
