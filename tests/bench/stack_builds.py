"""A real stack by EasyBuild: overhead of each build beside the tool's own time, one changed package, no change.

It builds all packages of `tests/stack/easyconfigs` in a folder of its own, which takes a minute of CPU.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from figures import Figures

from tests.stack import debian_sources
from tests.stack import stack as needs
from tests.stack.stack_site import Site, written

OVERHEAD_S, UNCHANGED_S, CHANGED = 1.0, 1.0, {"Lua@5.4.4", "LPeg@1.0.2"}


def main() -> None:
    """Print the figures."""
    figures = Figures("builds of a software stack by EasyBuild")
    if missing := needs.missing():
        figures.skip("builds of a stack", "; ".join(missing))
        figures.exit()
    debian_sources.fetch()
    with tempfile.TemporaryDirectory(prefix="bringup-stack-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        measure(figures, Site(folder / "user", folder / "published", folder / "cache", "bench"))
    figures.exit()


def measure(figures: Figures, site: Site) -> None:
    """Build a stack, then one changed package of it, then nothing, and print what each cost."""
    site.run("lock")
    elapsed = timed(site, "build")
    packages = site.built()
    overheads = sorted((package["overhead_seconds"], title) for title, package in packages.items())
    tool = sum(package["tool_seconds"] for package in packages.values())
    figures.note("packages, elapsed, EasyBuild alone in sum", f"{len(packages)}, {elapsed:.0f} s, {tool:.0f} s")
    figures.note("overhead of a build, median", f"{statistics.median(seconds for seconds, _ in overheads):.2f} s")
    figures.at_most(f"overhead of a build, most ({overheads[-1][1]})", overheads[-1][0], OVERHEAD_S, "s")

    site.change("Lua")
    site.run("lock")
    elapsed = timed(site, "build")
    others = len(site.built().keys() - CHANGED)
    figures.at_most("one package changed, others that are built again", others, 0, "")
    figures.at_most("overhead of a build, most", max(each["overhead_seconds"] for each in site.built().values()), OVERHEAD_S, "s")
    tool = sum(each["tool_seconds"] for each in site.built().values())
    figures.note("one package changed, elapsed, of that EasyBuild", f"{elapsed:.1f} s, {tool:.1f} s")

    paths = written(site.folder) | written(site.root) | written(site.cache)
    figures.at_most("nothing changed", min(timed(site, "build") for _ in range(3)), UNCHANGED_S, "s")
    changed = dict((written(site.folder) | written(site.root) | written(site.cache)).items() ^ paths.items())
    figures.at_most("nothing changed, paths written", len(changed), 0, "")


def timed(site: Site, *words: str) -> float:
    """Run a command and return its seconds."""
    began = time.monotonic()
    site.run(*words)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
