"""Node images: a full build, one small package more, nothing changed, boots; the same packages by plain mmdebstrap + mksquashfs.

The peer gets the same packages from the same archive, and does what its manual's first example does: a root from nothing, packed
with mksquashfs's defaults. On a change it has no other way than to begin anew. Boots count on an idle machine.
"""

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml
from figures import Figures

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.boot import boot
from tests.boot.pipeline.site import Site, stood

MORE = {
    "apiVersion": "bringup/v1",
    "kind": "ImageRecipe",
    "name": "more",
    "description": "compute with one small package more.",
    "extends": "compute",
    "layers": [{"name": "site", "packages": ["strace"]}],
}
"""A package of about a megabyte as it is fetched (bookworm: 1.3 MB, unpacked 2.9)."""
FULL, CHANGE, LAYER_MB, NOTHING, BOOT = 60.0, 10.0, 5.0, 1.0, 120.0
TEST = 1.0
"""Seconds of tests in a sandbox: of all, and so of each, those too that compile or start MPI."""
RATIO_FULL, RATIO_CHANGE = 1.05, 5.0


def timed(act: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds, those of children too."""
    began, before = time.monotonic(), _cpu()
    act()
    return time.monotonic() - began, _cpu() - before


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def packages(site: Site) -> list[str]:
    """`name=version` of all that the image holds."""
    seen = site.records("image_layers", "layer_hpc")[-1]["observation"]
    return list(seen["installed"])


def plain(folder: Path, chosen: list[str], cache: Path) -> None:
    """Build an image of these packages by plain mmdebstrap and mksquashfs; packages in the cache are not downloaded again."""
    target = folder / "plain"
    put = f'mkdir -p "$1"/var/cache/apt/archives; cp {cache}/*.deb "$1"/var/cache/apt/archives/'
    keep = f'cp -n "$1"/var/cache/apt/archives/*.deb {cache}/ || true'
    command = [
        "mmdebstrap",
        "--quiet",
        "--mode=root",
        "--variant=minbase",
        f"--include={','.join(chosen)}",
        "--skip=download/empty",
    ]
    command += [f"--setup-hook={put if any(cache.iterdir()) else 'true'}", f"--customize-hook={keep}", "bookworm", str(target)]
    environment = {**os.environ, "TMPDIR": str(folder)}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    packed = ["mksquashfs", target, folder / "plain.squashfs", "-noappend", "-no-progress", "-quiet"]
    subprocess.run(packed, check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(target)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-boots", action="store_true", help="leave out the boots")
    parser.add_argument("--no-peer", action="store_true", help="leave out plain mmdebstrap")
    options = parser.parse_args()
    figures = Figures(f"images (load {os.getloadavg()[0]:.1f} at the start)")
    if reasons := boot.missing():
        figures.skip("builds and boots", "; ".join(reasons))
        return
    with tempfile.TemporaryDirectory(prefix="bringup-bench-", dir="/var/tmp") as base:
        site = Site(Path(base) / "site", recipe="compute")
        site.lock()
        full, cpu = timed(lambda: site.run("image", "build", "--until", "image_assemble"))
        figures.at_most("full compute image, packages in the archive", full, FULL, "s")
        figures.note("its CPU", f"{cpu:.1f} s")
        size = sum(path.stat().st_size for path in site.images.glob("assembled/*/root.squashfs")) / 1e6
        figures.note("its squashfs", f"{size:.1f} MB, {len(packages(site))} packages")
        chosen = packages(site)
        changed = _change(site, figures)
        if not options.no_boots:
            _boots(site, figures)
        if options.no_peer:
            figures.skip("plain mmdebstrap + mksquashfs", "left out")
        else:
            _peer(Path(base), chosen, full, changed, figures)
    figures.exit()


def _change(site: Site, figures: Figures) -> float:
    """Seconds of one small package more, from the command to the packed image."""
    site.run("image", "build", "--reuse", site.runs[-1], "--until", "image_sandbox")
    _tests(site, figures)
    (site.folder / "more.yaml").write_text(yaml.safe_dump(MORE))
    site.write(recipe="more.yaml", lock="more.lock.json")
    site.lock()
    changed, _ = timed(lambda: site.run("image", "build", "--until", "image_assemble"))
    layer = site.records("image_layers", "layer_site")[-1]["observation"]
    figures.at_most("one small package more", changed, CHANGE, "s")
    figures.at_most("its layer", layer["size"] / 1e6, LAYER_MB, "MB")
    return changed


def _tests(site: Site, figures: Figures) -> None:
    """Seconds of all tests on the root of compute, which run side by side, and of the slowest ones."""
    seen = site.records("image_sandbox", "tests")[-1]["observation"]
    slowest = sorted(seen["results"], key=lambda one: one.get("seconds", 0.0))[::-1]
    figures.at_most("sandbox tests of compute, all", seen["seconds"], TEST, "s")
    figures.at_most(f"slowest of {len(slowest)}: {slowest[0]['name']}", slowest[0].get("seconds", 0.0), TEST, "s")
    for one in slowest[1:3]:
        figures.note(f"test {one['name']}", f"{one.get('seconds', 0.0):.2f} s")


def _boots(site: Site, figures: Figures) -> None:
    """Each firmware alone, then the publication upon the second, then nothing."""
    for firmware in ("bios", "uefi"):
        site.write(recipe="more.yaml", lock="more.lock.json", boot={"firmware": [firmware], "timeout": "10m"})
        site.run("image", "build", "--until", "image_boot")
        seen = site.records("image_boot", f"boot_{firmware}")[-1]["observation"]
        figures.at_most(f"boot test, {firmware}, until its report", seen["boots"][0]["seconds"], BOOT, "s")
    site.run("image", "build", "--reuse", site.runs[-1])
    said: list[str] = []
    before = stood(site.folder)
    nothing, _ = timed(lambda: said.append(site.run("image", "build")))
    after = stood(site.folder)
    if not said[0].startswith("nothing changed"):
        raise SystemExit(f"something was built: {said[0]}")
    figures.at_most("nothing changed", nothing, NOTHING, "s")
    written = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    figures.at_most(f"nothing changed: written, of {len(before)} paths", len(written), 0, "")


def _peer(base: Path, chosen: list[str], full: float, changed: float, figures: Figures) -> None:
    cache = base / "debs"
    cache.mkdir()
    plain(base, chosen, cache)  # fills the cache, and is not counted
    took, _ = timed(lambda: plain(base, chosen, cache))
    figures.note("plain mmdebstrap + mksquashfs, the same packages", f"{took:.1f} s")
    figures.at_most("full build / plain", full / took, RATIO_FULL, "")
    figures.at_least("plain, which begins anew / one package more", took / changed, RATIO_CHANGE, "")


if __name__ == "__main__":
    main()
