"""Labels of nodes in inventories of Kubespray and RKE2 roles, which a spec has for groups of hosts and for single hosts.

Sources: https://github.com/kubernetes-sigs/kubespray/blob/master/docs/ansible/vars.md, https://github.com/lablabs/ansible-role-rke2
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from steps.contract.host_ranges import fold
from workflows.spec.compat.taints import is_set_by_cluster
from workflows.spec.sections.hosts import NodeLabels

VARIABLES = ("node_labels", "k8s_node_label", "rke2_node_labels", "k3s_node_labels")
"""Variables with labels, as a mapping, as a list of `KEY=VALUE`, or as such texts with commas between them."""
MOST = 50
"""Largest number of labels that one variable is read for."""
_OPERATORS = ("nvidia.com", "feature.node.kubernetes.io")
"""Ends of the prefixes of labels that operators write by what a machine has."""
_LABELS: TypeAdapter[Mapping[str, str]] = TypeAdapter(NodeLabels)


def set_labels(members: Sequence[str], hosts: Mapping[str, Mapping[str, Any]], group: dict[str, Any]) -> list[str]:
    """Set the labels of a group's hosts in `group`: common ones for the group, others host by host. Return notes about the rest."""
    of_host: dict[str, dict[str, str]] = {}
    wrong: dict[str, list[str]] = {}
    for host in members:
        of_host[host] = {}
        for variable in VARIABLES:
            for key, value in _pairs(hosts[host].get(variable)):
                if is_label(key, value):
                    of_host[host][key] = value
                else:
                    wrong.setdefault(variable, []).append(host)
    common = set.intersection(*(set(labels.items()) for labels in of_host.values())) if of_host else set()
    if common:
        group["labels"] = dict(sorted(common))
    for host, labels in of_host.items():
        if own := dict(sorted(set(labels.items()) - common)):
            group.setdefault("overrides", {}).setdefault(host, {})["labels"] = own
    left_out = (
        "some of it is no label that a kubelet may set, or one that each node gets by itself or from an operator, and was left out"
    )
    return [f"{variable} of {fold(sorted(set(named)))}: {left_out}" for variable, named in wrong.items()]


def is_label(key: str, value: str) -> bool:
    """Return True if a spec takes a label."""
    try:
        _LABELS.validate_python({key: value})
    except ValidationError:
        return False
    return "{{" not in value and not is_set_by_cluster(key) and not key.rpartition("/")[0].endswith(_OPERATORS)


def _pairs(value: Any) -> Iterator[tuple[str, str]]:
    """Yield key and value of each label of a variable; an entry of another form gives an empty key, which is no label."""
    if isinstance(value, Mapping):
        entries: list[Any] = list(value.items())
    elif isinstance(value, str):
        entries = [part for part in value.split(",") if part.strip()]
    else:
        entries = value if isinstance(value, list) else [None] if value is not None else []
    for entry in entries[:MOST]:
        if isinstance(entry, tuple):
            yield str(entry[0]), _text(entry[1])
        elif isinstance(entry, str) and "=" in entry:
            key, _, text = entry.partition("=")
            yield key.strip(), text.strip()
        else:
            yield "", ""


def _text(value: Any) -> str:
    """Return a label's value as Kubernetes has it: YAML reads a bare true as a boolean."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, str | int) else "{{"
