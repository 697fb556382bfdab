"""Upgrade paths: an upgrade that the vendor does not support from the running release is refused before anything is written.

The GPU Operator, for example, is upgraded within one YY.MM line or to the next one (`steps/docs/facts/gpu.md`, upgrade path).
"""

from collections.abc import Mapping, Sequence

from steps.contract.verdict import FailureClass, Verdict, failed
from steps.stages.shared import probe_charts
from steps.stages.shared.kube_reader import KubeReader


def refusal(kube: KubeReader, gate: str, upgrade_from: Mapping[str, Sequence[str]]) -> Verdict | None:
    """Return a failed verdict for the first running release whose line cannot be upgraded; None if all can.

    `upgrade_from` maps `NAMESPACE/NAME` to the lines (`26.3`) that can be upgraded. A version that cannot be read is refused too.
    """
    for name, lines in upgrade_from.items():
        namespace, _, release = name.partition("/")
        deployed = probe_charts.deployed_revision(kube, namespace, release)
        # a release that is not installed has no line; an unreadable version matches none and is refused
        if deployed is None or line(deployed.chart_version) in lines:
            continue
        return failed(
            gate,
            FailureClass.INPUT,
            seen=f"release {name} revision {deployed.number} runs {deployed.chart_version or 'a version that cannot be read'}",
            expected=f"none, or one of line {' or '.join(lines)}",
            next_step=f"upgrade to {lines[0]} first, or remove the release",
            final=True,
        )
    return None


def line(version: str) -> str:
    """Return the release line of a version: `26.3` of `v26.3.1`."""
    return ".".join(version.removeprefix("v").split(".")[:2])
