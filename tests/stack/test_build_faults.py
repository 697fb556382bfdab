"""Builds that fail, each told by gate stack_build/batch with its cause: compiler, sources, cache entries, a full disk."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.stack import debian_sources
from tests.stack.conftest import SiteMaker
from tests.stack.stack_site import SECONDS, Site

pytestmark = pytest.mark.sampled("builds that fail")
GATE = "stack_build/batch"
BROKEN = "toolchain = {'name': 'GCC', 'version': '12.2.0'}\nprebuildopts = 'echo \"int broken(\" >> src/lapi.c && '"
MORE_MIB = 1
"""Size of a disk that a build of bzip2 fills."""


def failed(site: Site, title: str, failure: str) -> dict[str, Any]:
    """Return the result of a package that failed with this cause; the gate says the cause, and nothing was published."""
    records = {package["title"]: record for record in site.records("stack_build", "package") for package in packages(record)}
    verdict, package = records[title]["verdict"], site.built()[title]
    assert (verdict["gate"], verdict["status"]) == (GATE, "fail"), verdict
    assert (package["outcome"], package["failure"]) == ("failed", failure), package
    assert f"{title} failed" in verdict["seen"], verdict
    assert site.current == ""
    return package


def packages(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the results of the packages in a record."""
    results: list[dict[str, Any]] = record["observation"]["packages"]
    return results


def test_a_compile_error_stops_its_dependents_alone_and_is_reproduced(small: SiteMaker) -> None:
    site = small("Lua", "LPeg", "bzip2")
    site.change("Lua", "toolchain = {'name': 'GCC', 'version': '12.2.0'}", BROKEN)
    site.change("bzip2")
    site.run("lock")
    said = site.run("build", code=65)
    package = failed(site, "Lua@5.4.4", "compile")
    (decisive, *_) = [line for line in package["lines"] if "error:" in line]
    assert "lapi.c" in decisive, package
    assert {title: result["outcome"] for title, result in site.built().items()} == {"Lua@5.4.4": "failed", "bzip2@1.0.8": "built"}
    for named in ("Lua@5.4.4 failed", "(compile)", decisive[:60], package["reproduce"]):
        assert named in said, (named, said)
    rows = {each["title"]: each for each in site.report()["stack"]["builds"]}
    row = {key: rows["Lua@5.4.4"][key] for key in ("failure", "lines", "reproduce")}
    assert row == {key: package[key] for key in row}
    done = by_hand(site, package["reproduce"])
    assert done.returncode != 0
    assert "expected declaration specifiers" in logs(site, done), done.stdout[-3000:]


def by_hand(site: Site, command: str) -> subprocess.CompletedProcess[str]:
    """Run the command that a report names in the folder of the spec, with EasyBuild set up for this machine."""
    folders = [str(debian_sources.folder()), str(debian_sources.OWN)]
    settings = {
        "EASYBUILD_PREFIX": str(site.folder / "laptop"),
        "EASYBUILD_SOURCEPATH": ":".join([str(site.folder / "laptop/sources"), *folders]),
        "EASYBUILD_ALLOW_USE_AS_ROOT_AND_ACCEPT_CONSEQUENCES": "1",
        "EASYBUILD_TMP_LOGDIR": str(site.folder / "laptop/logs"),
        "LMOD_CMD": "/usr/share/lmod/lmod/libexec/lmod",
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(site.folder / "laptop"),
    }
    (site.folder / "laptop").mkdir()
    words = shlex.split(command, comments=True)
    return subprocess.run(words, cwd=site.folder, env=settings, capture_output=True, text=True, timeout=SECONDS)


def logs(site: Site, done: subprocess.CompletedProcess[str]) -> str:
    """Return all that a command by hand wrote: its output, and EasyBuild's logs."""
    files = (site.folder / "laptop/logs").rglob("*.log")
    return "\n".join([done.stdout, done.stderr, *(path.read_text(errors="replace") for path in files)])


def test_a_source_that_is_gone_and_one_that_differs_are_told_apart(small: SiteMaker) -> None:
    gone = small("bzip2", suffix="_gone", sources=[str(debian_sources.OWN)])
    gone.change("bzip2")
    gone.run("lock")
    with gone.start("stack", "build") as trying:  # a fetch is tried again, which takes a while
        differs = small("bzip2", suffix="_differs")
        shelf = differs.folder / "shelf"
        shelf.mkdir()
        (shelf / "bzip2_1.0.8.orig.tar.gz").write_bytes(b"another archive")
        differs.write(sources=[str(shelf)], tests=[])
        differs.change("bzip2")
        differs.run("lock")
        differs.run("build", code=65)
        (line, *_) = failed(differs, "bzip2@1.0.8", "checksum")["lines"]
        assert str(shelf / "bzip2_1.0.8.orig.tar.gz") in line
        assert trying.wait(SECONDS) == 65, gone.log.read_text()
    assert "bzip2_1.0.8.orig.tar.gz" in " ".join(failed(gone, "bzip2@1.0.8", "fetch")["lines"])


def test_a_damaged_and_an_unsigned_cache_entry_are_refused_and_stay(small: SiteMaker) -> None:
    damaged = small("zlib", "pngcheck", suffix="_damaged", own_cache=True)
    damaged.change("pngcheck")
    damaged.run("lock")
    archives = [path for path in damaged.cache.rglob("*.json") if '"title":"zlib@' in path.read_text()]
    (archive,) = archives[0].parent.glob(f"{archives[0].stem}-*.tar.zst")
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 1
    archive.write_bytes(content)
    damaged.run("build", code=65)
    failed(damaged, "pngcheck@3.0.3", "tampered")
    assert archive.read_bytes() == content

    unsigned = small("zlib", "pngcheck", suffix="_unsigned")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", unsigned.folder / "key"], check=True)
    signers = [(unsigned.folder / "key.pub").read_text().strip()]
    unsigned.write(package_signing={"sign": {"file": "./key"}, "signers": signers}, tests=[])
    unsigned.change("pngcheck")
    unsigned.run("lock")
    unsigned.run("build", code=65)
    failed(unsigned, "pngcheck@3.0.3", "unsigned")


def test_a_full_disk_is_told(small: SiteMaker) -> None:
    site = small("bzip2", own_cache=True)
    site.change("bzip2")
    site.run("lock")
    scratch = site.home / "store/stacks"
    scratch.mkdir(parents=True)
    site.within = mounting(scratch, MORE_MIB)
    site.run("build", code=65)
    site.within = ()
    failed(site, "bzip2@1.0.8", "disk_full")


def mounting(folder: Path, mib: int) -> tuple[str, ...]:
    """Return the beginning of a command that runs with a small disk at a folder, which nothing else on the machine sees."""
    unshare = shutil.which("unshare")
    assert unshare is not None
    return (unshare, "--mount", "sh", "-c", f'mount -t tmpfs -o size={mib}m none {shlex.quote(str(folder))} && exec "$@"', "sh")
