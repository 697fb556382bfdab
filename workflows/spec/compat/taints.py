"""Rule about the taints of host groups: P36."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from steps.contract.node_taints import from_text, tolerates
from workflows.spec.cluster_spec import gpu_groups, keeping_taints
from workflows.spec.compat.rule_table import Platform, ReleaseFacts, RuleFinding, rule

CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_ON_CONTROL_PLANE = frozenset({"gpu_operator", "network_operator"})
"""Charts whose controllers tolerate the usual taints of servers by default (values.yaml of both charts)."""
_DAEMONS: Mapping[str, tuple[str, ...]] = {
    "gpu_operator": ("daemonsets.tolerations", "node-feature-discovery.worker.tolerations"),
    "dra_driver": ("kubeletPlugin.tolerations",),
}
"""Release id → Helm values with the tolerations of its DaemonSets on GPU nodes."""
_NO_PODS = frozenset({"prometheus_operator_crds", "slurm_operator_crds"})


@rule("P36", "error", source="https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/", later=())
def taints_are_tolerated(platform: Platform) -> Iterator[RuleFinding]:
    """Controllers of the planned charts have machines whose taints they tolerate, and DaemonSets tolerate those of GPU machines."""
    yield from _controllers(platform)
    yield from _daemons(platform)


def _controllers(platform: Platform) -> Iterator[RuleFinding]:
    spec = platform.spec
    taints = {name: keeping_taints(spec, [name]) for name in spec.hosts}
    if not all(taints.values()):
        return
    nowhere = [
        release.id
        for release in platform.releases.values()
        if release.id not in _NO_PODS and not any(_accepts(release, of_group) for of_group in taints.values())
    ]
    if nowhere:
        listed = ", ".join(f"{name} ({', '.join(of_group)})" for name, of_group in taints.items())
        problem = f"every host group has a taint, so pods of these charts run nowhere: {', '.join(nowhere)}; groups: {listed}"
        yield RuleFinding("hosts", problem, "leave the taints of one group out, as a rule of the servers")


def _accepts(release: ReleaseFacts, taints: tuple[str, ...]) -> bool:
    """Return True if controllers of a release run on machines with these taints: by default, or by tolerations in its values."""
    own = list(_tolerations(release.values))
    keys = CONTROL_PLANE if release.id in _ON_CONTROL_PLANE else ()
    return all(taint["key"] in keys or tolerates(own, taint) for taint in map(from_text, taints))


def _daemons(platform: Platform) -> Iterator[RuleFinding]:
    for text in keeping_taints(platform.spec, gpu_groups(platform.spec)):
        taint = from_text(text)
        for name, paths in _DAEMONS.items():
            release = platform.releases.get(name)
            for path in paths if release is not None else ():
                tolerations = release.value(path) if release is not None else None
                if isinstance(tolerations, list) and not tolerates(tolerations, taint):
                    problem = f"DaemonSets of {name} do not tolerate {text} of the GPU machines, so they never run there"
                    fix = f"add {{key: {taint['key']}, operator: Exists}}, or leave the key out: it then has the taints of the spec"
                    yield RuleFinding(f"overrides.{name}.values.{path}", problem, fix)


def _tolerations(values: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for key, value in values.items():
        if key == "tolerations" and isinstance(value, list):
            yield from (entry for entry in value if isinstance(entry, Mapping))
        elif isinstance(value, Mapping) and key not in ("daemonsets", "worker", "kubeletPlugin", "nodes"):
            yield from _tolerations(value)
