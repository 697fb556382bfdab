"""Asks Slurm's tools for the state of the cluster: controllers, settings, nodes, topology, accounting, and the controller's log."""

import os
from pathlib import Path
from typing import Final

from steps.clients import slurm_tools
from steps.contract.verdict import ToolError
from steps.slurmacceptance import slurm_output
from steps.stages.slurm_acceptance.contract import ControlObservation, SlurmSettings

LOG_TAIL: Final = 1 << 20
"""Bytes at the end of slurmctld's log that are read: some hours of a large cluster."""
LARGEST_FILE: Final = 4 << 20
"""Largest file with a topology that is read: 10,000 switches on one line each have a tenth of it."""


class Survey:
    """Answers of Slurm's tools, and the errors of those that failed."""

    def __init__(self) -> None:
        self.errors: list[ToolError] = []

    def text(self, *command: str) -> str:
        """Return what a command prints; its error is kept if it fails."""
        done = slurm_tools.ask(*command)
        if done.code:
            self.errors.append(slurm_output.tool_error(" ".join(command[:3]), done.code, f"{done.err}\n{done.out}"))
        return done.out


def control() -> ControlObservation:
    """Return what the tools show. If no controller answers, nothing else is asked: each tool would wait for it."""
    survey = Survey()
    ping = slurm_tools.ask("scontrol", "ping")
    controllers = slurm_output.controllers(ping.out)
    if not any(answer.up for answer in controllers):
        if not controllers:
            survey.errors.append(slurm_output.tool_error("scontrol ping", ping.code, f"{ping.err}\n{ping.out}"))
        return ControlObservation(controllers=controllers, errors=tuple(survey.errors))
    config = survey.text("scontrol", "show", "config")
    available, _ = slurm_output.partitions(survey.text("scontrol", "--oneliner", "--all", "show", "partition"))
    nodes = slurm_output.nodes(survey.text("scontrol", "--oneliner", "--all", "show", "node"))
    settings = slurm_output.settings(config)
    return ControlObservation(
        controllers=controllers,
        settings=settings,
        available=available,
        nodes=nodes,
        # without a topology this fails, and that is no error of the cluster
        topology=slurm_output.leaves(slurm_tools.ask("scontrol", "show", "topology").out),
        topology_file=_topology_file(slurm_output.configuration_file(config)),
        clusters=_clusters(survey, settings),
        causes=slurm_output.causes(_tail(slurm_output.log_file(config))),
        errors=tuple(survey.errors),
    )


def scripts() -> tuple[str | None, str | None]:
    """Return the configured prolog and epilog; None for what is unknown."""
    return slurm_output.scripts(slurm_tools.ask("scontrol", "show", "config").out)


def leaf_of() -> dict[str, str]:
    """Return the leaf switch of each node as slurmctld uses it; empty without a tree."""
    done = slurm_tools.ask("scontrol", "show", "topology")
    return {node: switch for switch, nodes in slurm_output.leaves(done.out).items() for node in nodes}


def _clusters(survey: Survey, known: SlurmSettings) -> tuple[str, ...]:
    if not known.accounting.endswith("slurmdbd"):
        return ()
    text = survey.text("sacctmgr", "--noheader", "--parsable2", "show", "cluster", "format=Cluster")
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def _topology_file(configuration: str) -> dict[str, tuple[str, ...]] | None:
    """Return the topology that a file beside slurm.conf holds; None if there is none. Slurm prefers topology.yaml (25.05)."""
    for name, read in (("topology.yaml", slurm_output.leaves_of_yaml), ("topology.conf", slurm_output.leaves)):
        try:
            with Path(configuration).with_name(name).open(errors="replace") as file:
                return read(file.read(LARGEST_FILE))
        except (OSError, ValueError):
            continue
    return None


def _tail(name: str) -> str:
    """Return the end of slurmctld's log; empty where this node or user may not read it."""
    try:
        with open(name, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_TAIL))
            return file.read(LOG_TAIL).decode(errors="replace")
    except OSError:
        return ""
