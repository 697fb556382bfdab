"""Refuses to upgrade a release from a line that its vendor does not upgrade from (gpu_stack §9 P14), before anything is written."""

from collections.abc import Mapping, Sequence

from steps.contract.verdict import FailureClass, Verdict, failed
from steps.probes import charts
from steps.probes.reader import KubeReader


def refusal(kube: KubeReader, gate: str, upgrade_from: Mapping[str, Sequence[str]]) -> Verdict | None:
    """The verdict on the first release that is in force in a line from which it cannot be upgraded; None when all may go on.

    `upgrade_from` holds by `NAMESPACE/NAME` the lines (`26.3`) that may be upgraded. A version that cannot be read is refused too.
    """
    for name, lines in upgrade_from.items():
        namespace, _, release = name.partition("/")
        found = charts.deployed(kube, namespace, release)
        if found is None or line(found.chart_version) in lines:
            continue
        return failed(
            gate,
            FailureClass.INPUT,
            seen=f"release {name} revision {found.number} runs {found.chart_version or 'a version that cannot be read'}",
            expected=f"none, or one of line {' or '.join(lines)}",
            next_step=f"upgrade to {lines[0]} first, or remove the release",
            final=True,
        )
    return None


def line(version: str) -> str:
    """`26.3` of `v26.3.1`."""
    return ".".join(version.removeprefix("v").split(".")[:2])
