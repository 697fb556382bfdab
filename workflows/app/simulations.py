"""The use case of `bringup simulate`: serve a simulated cluster by itself."""

from collections.abc import Sequence
from pathlib import Path

from workflows.app.runs.screen import Screen
from workflows.app.specs import sources
from workflows.plan.compiler import compile_plan
from workflows.rehearsal import standalone_cluster
from workflows.rehearsal.rehearsal_run import RehearsalOptions


def serve(screen: Screen, spec: str, kubeconfig_out: Path, *, faults: Sequence[str], speed: float, bare: bool) -> None:
    """Serve the simulated cluster of a spec and say where; return after SIGINT or SIGTERM (see `standalone_cluster.serving`)."""
    loaded = sources.read(spec)[1]
    plan = compile_plan(loaded)
    RehearsalOptions(faults=faults).check(loaded, plan)
    with standalone_cluster.serving(plan, kubeconfig_out, faults=faults, speed=speed, bare=bare) as address:
        kubectl = f"kubectl --kubeconfig {kubeconfig_out} get nodes"
        screen.lines([f"simulated cluster of {plan.name} at {address}; {kubectl}; Ctrl-C ends it"])
        standalone_cluster.until_interrupted()
