"""Acceptance of a Slurm cluster from one of its login nodes, without Kubernetes and without a spec."""

from __future__ import annotations

import getpass
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from steps.clients import slurm_tools
from steps.slurmacceptance import slurm_output
from workflows.accept.slurm_levels import SLURM_LEVELS
from workflows.app import acceptance
from workflows.app.run_options import LOCAL, Pipeline, StartOptions, UsageError, Wish
from workflows.app.runs import run_start
from workflows.app.runs.screen import Screen
from workflows.app.specs import operations
from workflows.plan.model import Plan
from workflows.plan.slurm_acceptance_plan import compile_slurm_acceptance
from workflows.spec.acceptance.acceptance_levels import STANDARD
from workflows.stages.slurm_acceptance_site import SlurmAcceptanceSite

PARTNERS: Final = 2
"""Partners of a single repaired node: one on its leaf switch and one on another where Slurm knows leaves."""
MOST_NODES: Final = 20_000
_NODE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_GPUS: Final = re.compile(r"(?:(?P<type>[A-Za-z][A-Za-z0-9._-]{0,63}):)?(?P<count>\d{1,3})")


@dataclass(frozen=True, kw_only=True)
class SlurmRequest:
    """The choices of an acceptance as the command line has them; texts are unchecked."""

    level: str = STANDARD
    nodes: Sequence[str] = ()
    partition: str = ""
    account: str = ""
    floor: float = 0.0
    gpus_per_node: str = ""
    shared: str = ""
    script_marks: str = ""
    waive_scripts: bool = False
    allow_drain: bool = False
    bandwidth_command: str = ""
    mpi: str = ""


def accept(screen: Screen, request: SlurmRequest, options: StartOptions) -> int:
    """Run the acceptance on this node, follow it, print its sentence last, and return the exit code. Raises UsageError."""
    if options.engine != LOCAL:
        raise UsageError("--slurm runs on a login node of Slurm: it takes no --engine argo")
    site = site_of(request)
    name = _run_name(site.cluster)
    level = site.level
    screen.lines(
        [f"level {level.name}: about {level.minutes} min on {len(site.nodes)} idle nodes of cluster {site.cluster or 'unknown'}"]
    )
    # a loaded spec of any pipeline has these fields
    loaded = SimpleNamespace(name=name, owner=_user(), revision="", approvals=(), schedule=None, secrets={})

    def plan(_: Path, __: Any, ___: Wish) -> Plan:
        return compile_slurm_acceptance(site, name, loaded.owner)

    def ended(run: str, code: int) -> int:
        if sentence := acceptance.last_sentence(run):
            screen.lines([sentence])
        return code

    pipeline = Pipeline("slurm", lambda _: (Path("slurm"), loaded), plan, ended)
    return run_start.start(screen, "slurm", options, Wish(), pipeline)


def site_of(request: SlurmRequest) -> SlurmAcceptanceSite:
    """Return the checked choices, with the nodes that Slurm lists if none are named. Raises UsageError.

    If no controller answers, the nodes are those that were named: the run's first gate says what is down.
    """
    _check(request)
    named, program = _named(request.nodes), _program(request.bandwidth_command)
    config = slurm_tools.ask("scontrol", "show", "config")
    cluster = slurm_output.settings(config.out).cluster
    gpus = _GPUS.fullmatch(request.gpus_per_node) if request.gpus_per_node else None
    return SlurmAcceptanceSite(
        cluster=cluster,
        nodes=_nodes(request.partition, named),
        floor=request.floor,
        level=SLURM_LEVELS[request.level],
        partition=request.partition,
        account=request.account,
        shared=request.shared,
        gpus=int(gpus["count"]) if gpus else -1,
        gpu_type=(gpus["type"] or "") if gpus else "",
        marks=request.script_marks,
        waived=request.waive_scripts,
        allow_drain=request.allow_drain,
        program=program,
        mpi=request.mpi,
    )


def _check(request: SlurmRequest) -> None:
    """Raise UsageError for a choice that cannot be right."""
    if not 0 < request.floor < 100_000:
        raise UsageError(
            "--floor GB_S is missing: the least bandwidth between two nodes that is accepted, such as 0.9 × the site's baseline"
        )
    for option, text in {"--partition": request.partition, "--account": request.account, "--mpi": request.mpi}.items():
        if text and not _WORD.fullmatch(text):
            raise UsageError(f"{option} {text!r}: letters, digits, dots, dashes and underscores are expected")
    if request.gpus_per_node and not _GPUS.fullmatch(request.gpus_per_node):
        raise UsageError(f"--gpus-per-node {request.gpus_per_node!r}: a number, or TYPE:NUMBER as in Gres, is expected")
    for option, text in {"--shared": request.shared, "--script-marks": request.script_marks}.items():
        if text and (not text.startswith("/") or not text.isprintable() or len(text) > 1024):
            raise UsageError(f"{option} {text!r}: an absolute path is expected")
    if request.script_marks and request.waive_scripts:
        raise UsageError("--script-marks asks for a proof that --waive-scripts leaves out: give one of them")
    if len(request.bandwidth_command) > 1024 or not request.bandwidth_command.isprintable():
        raise UsageError("--bandwidth-command: a program with arguments in at most 1,024 characters is expected")


def _program(command: str) -> tuple[str, ...]:
    """Return a command in words, which no shell reads. Raises UsageError for a quotation that has no end."""
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise UsageError(f"--bandwidth-command {command!r} cannot be split into words: {error}") from None


def _named(ranges: Sequence[str]) -> tuple[str, ...]:
    """Return the nodes that ranges name, sorted. Raises UsageError."""
    names = sorted(operations.names(ranges, "--nodes"))
    if len(names) > MOST_NODES:
        raise UsageError(f"--nodes names {len(names)} nodes, limit {MOST_NODES}")
    if strange := next((node for node in names if not _NODE.fullmatch(node)), ""):
        raise UsageError(f"--nodes {strange!r} is no node name")
    return tuple(names)


def _nodes(partition: str, named: tuple[str, ...]) -> tuple[str, ...]:
    """Return the nodes to accept: all of the partition, or the named ones, a single one with partners."""
    if len(named) > 1:
        return named
    done = slurm_tools.ask("scontrol", "--oneliner", "--all", "show", "partition")
    _, members = slurm_output.partitions(done.out)
    listed = tuple(node for node in members.get(partition, ()) if _NODE.fullmatch(node))
    if not named:
        return listed
    shown = slurm_tools.ask("scontrol", "show", "topology")
    leaf = {node: switch for switch, nodes in slurm_output.leaves(shown.out).items() for node in nodes}
    return (*named, *partners(named[0], listed, leaf))


def partners(node: str, others: Sequence[str], leaf: dict[str, str]) -> tuple[str, ...]:
    """Return two partners of a repaired node: one on its leaf and one on another where leaves are known, else the first two."""
    rest = [other for other in others if other != node]
    near = next((other for other in rest if leaf.get(other) == leaf.get(node)), None)
    far = next((other for other in rest if leaf.get(other) != leaf.get(node)), None)
    first = [other for other in (near, far) if other is not None]
    return tuple([*first, *(other for other in rest if other not in first)][:PARTNERS])


def _run_name(cluster: str) -> str:
    """Return a cluster's name in a form that names of runs and of Kubernetes objects may have."""
    return re.sub(r"[^a-z0-9]+", "-", cluster.lower()).strip("-")[:40] or "slurm"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
