"""A rehearsal of the whole bring-up with 16 to 10,000 GPU nodes: time, CPU time and memory of its processes, time of each stage."""

import argparse
import os
import resource
import tempfile
import threading
import time
from pathlib import Path

from figures import Figures

from steps.clients.store import Store
from steps.contract.runs import evidence
from steps.contract.verdict import Status
from workflows import bringup, examples
from workflows.engines.folders import RunFolder, StateFolder
from workflows.plan.compiler import compile_plan
from workflows.rehearsal import approver
from workflows.rehearsal.rehearsal_run import RehearsalOptions, rehearse
from workflows.render.bundle import render
from workflows.spec import ClusterSpec, load

LIMIT_SECONDS = {16: 60.0, 300: 120.0, 1000: 300.0, 2000: 500.0, 10_000: 900.0}
LIMIT_MEMORY = {10_000: 2048.0}
USUAL = (16, 1000)
"""Sizes that are measured unless others are named. What grows faster than the fleet shows from 1,000 to 2,000 nodes."""
SAMPLE_SECONDS = 0.5


def spec_of(nodes: int) -> ClusterSpec:
    """The default example with another number of GPU nodes, and the address space that they need."""
    text = examples.path("h200-16").read_text()
    if nodes != 16:
        text = text.replace("gpu[001-016]", f"gpu[{1:0{len(str(nodes))}d}-{nodes}]").replace("15/16", "95%")
        text = text.replace('{pattern: "10.10.1.{1}"}', "{start: 10.64.0.1}")
        text = text.replace("  cni: canal", "  cni: canal\n  cluster_cidr: 100.64.0.0/10")
    return load(text)


class Memory(threading.Thread):
    """Watches the memory (PSS) of this process and all its descendants, in MiB, and the CPU seconds of those that last."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0.0
        self.parts: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(SAMPLE_SECONDS):
            processes = descendants(os.getpid())
            for process in processes:
                name = _name(process)
                if name != "steps":  # a step ends before the next look
                    self.cpu[name] = max(_cpu(process), self.cpu.get(name, 0.0))
            # the PSS is at most this sum, and to read it takes a long time of the processes themselves
            if sum(map(_resident, processes)) > self.peak:
                self._weigh(processes)

    def _weigh(self, processes: list[int]) -> None:
        parts: dict[str, float] = {}
        for process in processes:
            parts[_name(process)] = parts.get(_name(process), 0.0) + _pss(process)
        if sum(parts.values()) > self.peak:
            self.peak, self.parts = sum(parts.values()), parts

    def stop(self) -> None:
        """End the watch."""
        self._done.set()
        self.join()


def descendants(root: int) -> list[int]:
    """Return the IDs of a process and of all its descendants."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (stat := _read(folder / "stat")):
            parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(folder.name))
    found = [root]
    for process in found:
        found += parents.get(process, [])
    return found


def _name(process: int) -> str:
    words = _read(Path(f"/proc/{process}/cmdline")).split("\0")
    name = next((part for part in ("apiserver", "simulator") if any(word.endswith(f"rehearsal.{part}") for word in words)), "")
    return name or ("engine" if process == os.getpid() else "steps")


def _resident(process: int) -> float:
    words = _read(Path(f"/proc/{process}/statm")).split()
    return int(words[1]) * resource.getpagesize() / (1 << 20) if words else 0.0


def _pss(process: int) -> float:
    rollup = _read(Path(f"/proc/{process}/smaps_rollup"))
    return int(rollup.partition("\nPss:")[2].split()[0]) / 1024 if rollup else 0.0


def _cpu(process: int) -> float:
    words = _read(Path(f"/proc/{process}/stat")).rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK") if words else 0.0


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""  # the process ended meanwhile


def cpu_seconds() -> float:
    """CPU time of this process and of all that it waited for."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in both)


def stage_seconds(folder: RunFolder) -> dict[str, float]:
    """From the start of a stage's first task to the end of its last one."""
    store = Store(folder.home.store)
    spans: dict[str, tuple[float, float]] = {}
    for key in store.keys(f"runs/{folder.name}/evidence"):
        record = evidence.decode(store.path(key).read_bytes())
        first, last = spans.get(record.stage, (record.started, record.finished))
        spans[record.stage] = min(first, record.started), max(last, record.finished)
    return {stage: last - first for stage, (first, last) in sorted(spans.items(), key=lambda item: item[1])}


def failures(folder: RunFolder) -> list[str]:
    """Return a line for each record whose verdict is no pass, with its time of waiting in seconds."""
    store, lines = Store(folder.home.store), []
    for key in store.keys(f"runs/{folder.name}/evidence"):
        record = evidence.decode(store.path(key).read_bytes())
        if record.verdict is not None and record.verdict.status not in (Status.PASS, Status.SKIPPED):
            lines.append(f"{record.stage}.{record.task} after {record.finished - record.started:.0f} s: {record.verdict.reason}")
    return lines


def measure(figures: Figures, nodes: int, home: Path) -> None:
    """Rehearse once."""
    plan = compile_plan(spec_of(nodes))
    folder = StateFolder(home).run(f"bench-{nodes}")
    memory, spent, began = Memory(), cpu_seconds(), time.perf_counter()
    memory.start()
    result = rehearse(folder, plan, render(plan, bringup.build), RehearsalOptions(), [approver.approving_observer(folder)])
    took = time.perf_counter() - began
    memory.stop()
    figures.at_most(f"{nodes} nodes: exit code of the run", result.exit_code, 0, "")
    figures.at_most(f"{nodes} nodes: wall time", took, LIMIT_SECONDS[nodes], "s")
    figures.note(f"{nodes} nodes: CPU time", f"{cpu_seconds() - spent:.1f} s, load of this machine {os.getloadavg()[0]:.1f}")
    figures.note(
        f"{nodes} nodes: CPU time by process", ", ".join(f"{name} {used:.1f} s" for name, used in sorted(memory.cpu.items()))
    )
    figures.at_most(f"{nodes} nodes: peak memory of all processes", memory.peak, LIMIT_MEMORY.get(nodes, 1024.0), "MiB")
    figures.note(f"{nodes} nodes: at the peak", ", ".join(f"{name} {used:.0f} MiB" for name, used in sorted(memory.parts.items())))
    for reason in failures(folder):
        figures.note(f"{nodes} nodes: no pass", reason)
    for stage, seconds in stage_seconds(folder).items():
        figures.note(f"{nodes} nodes: {stage}", f"{seconds:.1f} s")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", choices=sorted(LIMIT_SECONDS), default=USUAL)
    figures = Figures("rehearsal of the whole bring-up")
    for nodes in parser.parse_args().nodes:
        with tempfile.TemporaryDirectory(prefix="bringup-bench-") as folder:
            measure(figures, nodes, Path(folder))
    figures.exit()


if __name__ == "__main__":
    main()
