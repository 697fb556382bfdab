"""OS prep on real systemd hosts against its peers: pyinfra, a shell script a host, plain Ansible tasks, Kubespray.

Every row starts from the same hosts, put back by fresh overlays; packages are installed before, in every row. `--hosts N` for a
quick look (limits are those of 50), `--only ROW…` for single rows, `--sample` to run plain Ansible on ten hosts, scaled.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import os_prep_items as items
import os_prep_peers as peers
from figures import Figures
from real_hosts import ROOT, lab, needs, profile

from steps.contract.host_play import HostStatus, PlayResult

HERE = Path(__file__).parent
SAMPLE = 10
"""Hosts that plain Ansible runs on with `--sample`: its five forks take hosts in fives, so time grows with their number."""

PYINFRA, SHELL, PLAIN, KUBESPRAY, RERUN, CPU, DEAD = 0.85, 2.2, 5.0, 4.0, 0.6, 1.5, 15.0
"""Goals: ours over pyinfra, over the script; plain Ansible and Kubespray over ours; second run over first; CPU; seconds."""


@dataclass(frozen=True)
class Took:
    """One measured command: seconds of wall time, and of CPU on the controller's side."""

    wall: float
    cpu: float
    code: int
    output: str


class Bench:
    """Runs rows on the same hosts, and keeps what each took."""

    def __init__(self, hosts: int, folder: Path, *, sample: bool) -> None:
        self.hosts = hosts
        self.folder = folder
        self.sample = sample
        self.took: dict[str, Took] = {}

    def fresh(self, most: int = 0) -> lab.Lab:
        """The hosts as they came from their installer."""
        lab.down()
        made = lab.up(most or self.hosts, lab.Init.SYSTEMD, prepared=True)
        os.sync()  # the first row finds the disk as idle as the others, whose hosts' files were not just unpacked
        return made

    def measure(self, name: str, command: tuple[str, ...], environment: dict[str, str] | None = None) -> Took:
        """Run a command to its end, whatever it starts. Raises RuntimeError where it fails."""
        report = self.folder / f"{name}.json"
        whole = [sys.executable, str(HERE / "os_prep_measured.py"), str(report), *command]
        settings = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
        done = subprocess.run(whole, env=settings, capture_output=True, text=True, check=False)
        seen = json.loads(report.read_text())
        self.took[name] = took = Took(seen["wall"], seen["cpu"], seen["code"], done.stdout + done.stderr)
        print(f"  {name:<50} {took.wall:10.1f} s     CPU {took.cpu:.1f} s", flush=True)
        if took.code != 0:
            raise RuntimeError(f"{name} ended with {took.code}: {took.output[-600:]}")
        return took

    def play(self, name: str, made: lab.Lab, forks: int = 50) -> PlayResult:
        """One play of ours on all hosts, and its gate."""
        request, result = self.folder / "request", self.folder / "result"
        request.write_bytes(msgspec.json.encode(profile.request(made, forks=forks)))
        self.measure(name, (sys.executable, str(HERE / "os_prep_ours.py"), str(request), str(result)))
        return msgspec.json.decode(result.read_bytes(), type=PlayResult)


def ours(bench: Bench, figures: Figures) -> None:
    """Bare → passed, then again."""
    made = bench.fresh()
    first = bench.play("ours", made)
    again = bench.play("ours, second run", made)
    seen = {item["name"] for item in first.hosts[0].facts["items"]}
    figures.note("items", _difference(seen))
    figures.at_most("second run: hosts with a change", sum(one.changed > 0 for one in again.hosts), 0, "")
    figures.at_most("second run / first", bench.took["ours, second run"].wall / bench.took["ours"].wall, RERUN, "x")


def _difference(seen: set[str]) -> str:
    only, lacking = sorted(seen - items.names()), sorted(items.names() - seen)
    more = f"only ours: {', '.join(only) or 'none'}; only the peers': {', '.join(lacking) or 'none'}"
    return f"{len(seen)} of ours, {len(items.names())} of the peers; {more}"


def dead(bench: Bench, figures: Figures) -> None:
    """One host of all is off."""
    made = bench.fresh()
    made.hosts[len(made.hosts) // 2].silence()
    result = bench.play("ours, one host dead", made)
    lost = [one for one in result.hosts if one.status is HostStatus.UNREACHABLE]
    if len(lost) != 1:
        raise RuntimeError(f"{len(lost)} hosts are unreachable instead of one")
    figures.at_most("one dead host: seconds more", bench.took["ours, one host dead"].wall - bench.took["ours"].wall, DEAD, "s")


def pyinfra(bench: Bench, figures: Figures) -> None:
    """pyinfra on the same hosts."""
    made = bench.fresh()
    peer = peers.pyinfra(made, bench.folder)
    took = bench.measure("pyinfra", peer.command, peer.environment)
    bench.measure("pyinfra, second run", peer.command, peer.environment)
    mine = bench.took["ours"]
    figures.at_most(f"ours / pyinfra ({mine.wall:.1f} / {took.wall:.1f} s)", mine.wall / took.wall, PYINFRA, "x")
    each = f"{1000 * mine.cpu / bench.hosts:.0f} / {1000 * took.cpu / bench.hosts:.0f} ms"
    figures.at_most(f"controller CPU a host, ours / pyinfra ({each})", mine.cpu / took.cpu, CPU, "x")


def shell(bench: Bench, figures: Figures) -> None:
    """One script a host over SSH."""
    made = bench.fresh()
    peer = peers.shell(made, bench.folder)
    took = bench.measure("shell script", peer.command, peer.environment)
    bench.measure("shell script, second run", peer.command, peer.environment)
    mine = bench.took["ours"]
    figures.at_most(f"ours / shell script ({mine.wall:.1f} / {took.wall:.1f} s)", mine.wall / took.wall, SHELL, "x")


def ansible(bench: Bench, figures: Figures) -> None:
    """Plain tasks with Ansible's defaults."""
    most = min(SAMPLE, bench.hosts) if bench.sample else bench.hosts
    peer = peers.ansible(bench.fresh(), bench.folder, most)
    took = bench.measure(f"plain Ansible on {most} hosts", peer.command, peer.environment)
    wall, mine = took.wall * bench.hosts / most, bench.took["ours"].wall
    scaled = "" if most == bench.hosts else f", from {most} hosts"
    figures.at_least(f"plain Ansible / ours ({wall:.0f} / {mine:.1f} s{scaled})", wall / mine, PLAIN, "x")


def kubespray(bench: Bench, figures: Figures) -> None:
    """Kubespray's bootstrap and preinstall on ten hosts, and ours on as many; its packages are left out too."""
    most = min(SAMPLE, bench.hosts)
    made = bench.fresh(most)
    with peers.kubespray(made, bench.folder, most) as peer:
        if peer is None:
            figures.skip("Kubespray / ours", f"not run: no checkout of Kubespray in ${peers.KUBESPRAY}")
            return
        took = bench.measure(f"Kubespray on {most} hosts", peer.command, peer.environment)
    bench.play(f"ours on {most} hosts", bench.fresh(most))
    mine = bench.took[f"ours on {most} hosts"]
    figures.at_least(f"Kubespray / ours, {most} hosts ({took.wall:.1f} / {mine.wall:.1f} s)", took.wall / mine.wall, KUBESPRAY, "x")


def forks(bench: Bench, figures: Figures) -> None:
    """Measure a second run, which changes nothing, with 10, 25 and 50 Ansible forks, i.e. hosts at one time."""
    made = bench.fresh()
    bench.play("ours, before the forks", made)
    took = []
    for number in (10, 25, 50):
        bench.play(f"ours, second run with {number} forks", made, number)
        took.append(f"{number}: {bench.took[f'ours, second run with {number} forks'].wall:.1f} s")
    figures.note("forks", ", ".join(took))


ROWS: dict[str, Callable[[Bench, Figures], None]] = {
    "ours": ours,
    "dead": dead,
    "pyinfra": pyinfra,
    "shell": shell,
    "ansible": ansible,
    "kubespray": kubespray,
    "forks": forks,
}
DEFAULT = [name for name in ROWS if name != "forks"]


def main() -> None:
    """Run the rows and print the table."""
    options = _options()
    figures = Figures(f"OS prep, {options.hosts} systemd hosts")
    reasons = needs.missing()
    if reasons:
        figures.skip("OS prep on real hosts", "; ".join(reasons))
        return
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options.hosts, Path(folder), sample=options.sample)
        try:
            for name, row in ROWS.items():
                if name == "ours" or name in options.only:
                    _row(row, name, bench, figures)
        finally:
            lab.down()
    for text in items.DIFFERENCES:
        figures.note("what differs", text)
    figures.note("hidden", items.HIDDEN)
    figures.exit()


def _row(row: Callable[[Bench, Figures], None], name: str, bench: Bench, figures: Figures) -> None:
    """A peer that cannot be had or does not run is no figure of ours."""
    if name in ("ours", "dead"):
        row(bench, figures)
        return
    try:
        row(bench, figures)
    except RuntimeError as error:
        figures.skip(name, " ".join(str(error).split()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=50)
    parser.add_argument("--only", nargs="*", choices=list(ROWS), default=DEFAULT)
    parser.add_argument("--sample", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
