"""The node profile: required settings of a machine, merged from the YAML layers whose criteria a spec meets.

The merged profile is the single argument of the Ansible module `playbooks/library/node_profile.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from workflows.catalog.criteria import DIMENSIONS, Facts, matches
from workflows.catalog.model import Criteria
from workflows.spec.fields import Section, problem
from workflows.spec.parsing.loading import load_as

HERE = Path(__file__).parent
BASE = "base"
KEYS = frozenset(
    {
        *("packages", "files", "directories", "modules", "blacklist", "sysctls", "kernel_parameters", "hugepages", "memlock"),
        *("swap_off", "services", "time_service", "time_servers", "disks", "ports", "mounts", "dns", "links", "routes", "selinux"),
        *("executable", "containerd_templates", "background", "kernel_headers", "pod_resolv_conf", "link_types"),
        *("default_route", "interface_names", "given_away", "apparmor", "firewall", "repositories"),
        *("server_ports", "agent_ports", "system_users", "users", "pcie_acs", "system"),
    }
)
"""Allowed keys of a profile, which are those of `playbooks/library/node_profile.py`."""

CONFINEMENT = {"selinux": "SELinux", "apparmor": "AppArmor"}
"""Security modules that confine programs: key in the profile → name of the setting in a host's report."""

Profile = dict[str, Any]


class ProfileLayer(Section):
    """One YAML file of this folder: settings that all machines or GPU machines need, and the criteria under which they apply."""

    criteria: Criteria = Field(default={}, description="Criteria under which the layer applies; default: always.")
    machines: Literal["all", "gpu"] = Field(
        default="all", description="Whether the layer is for all machines or for those with GPUs only."
    )
    profile: Mapping[str, Any] = Field(description="Keys and values of the layer.")

    @model_validator(mode="after")
    def _known_words(self) -> ProfileLayer:
        for key in self.profile:
            if key not in KEYS:
                raise problem(f"a node profile has no key {key}", f"choose from {', '.join(sorted(KEYS))}")
        for dimension in self.criteria:
            if dimension not in DIMENSIONS:
                raise problem(f"{dimension} is no dimension", f"choose from {', '.join(DIMENSIONS)}")
        return self


def layers(*more: Path) -> dict[str, ProfileLayer]:
    """Return every layer by file name: the package's, then those of the folders `more`, which replace layers of equal name.

    Raises:
        SpecErrors: a file is invalid.
    """
    return {file.stem: load_as(ProfileLayer, file) for folder in (HERE, *more) for file in sorted(folder.glob("*.yaml"))}


@cache
def _packaged() -> Mapping[str, ProfileLayer]:
    return layers()


def resolve(facts: Facts, known: Mapping[str, ProfileLayer] | None = None) -> tuple[Profile, Profile]:
    """Return two profiles for the facts of a spec (`criteria.facts`): one for all machines, and the additions for GPU machines."""
    every = _packaged() if known is None else known
    # the base, then general before specific, then by name
    order = sorted(every, key=lambda name: (name != BASE, len(every[name].criteria), name))
    chosen = [every[name] for name in order if matches(every[name].criteria, facts)]
    return _merged(chosen, "all"), _merged(chosen, "gpu")


def of_system(distribution: str) -> Profile:
    """Return the profile of a machine without GPUs by the id of its Linux distribution, for plays that run without a plan."""
    facts = dict.fromkeys(DIMENSIONS, "none") | {"os": distribution}
    return resolve(facts)[0]


def _merged(chosen: Iterable[ProfileLayer], machines: str) -> Profile:
    merged: Profile = {}
    for layer in chosen:
        if layer.machines == machines:
            merged = merge_layers(merged, layer.profile)
    return merged


def merge_layers(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> Profile:
    """Return `upper` merged over `lower`: maps merge, new list items are appended, null deletes a key, any other value replaces."""
    merged = dict(lower)
    for key, value in upper.items():
        below = merged.get(key)
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            merged[key] = merge_layers(below if isinstance(below, Mapping) else {}, value)
        elif isinstance(value, list | tuple):
            kept = list(below) if isinstance(below, list) else []
            merged[key] = kept + [item for item in value if item not in kept]
        else:
            merged[key] = value
    return merged
