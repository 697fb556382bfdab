"""Variables that plans give to plays have the names and types that roles declare, so no play checks them for each host."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from steps.contract.runs.operation import Operation, OperationKind
from steps.contract.task import Task, Verb
from steps.stages.site_roles import contract as site_roles
from workflows import examples, spec
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan

PLAYBOOKS, STAGES = (Path(__file__).parents[3] / folder for folder in ("playbooks", "workflows/stages"))
EVERYTHING: dict[str, Any] = {
    "rke2": {
        "cni": ["multus", "cilium"],
        "tls_san": ["api.example.org"],
        "registration_address": "10.10.0.10",
        "registry_mirror": "r.example.org",
        "registry_fallback": False,
        "registries": {
            "docker.io": {"endpoints": ["https://m.example.org"]},
            "m.example.org": {"username": "pull", "password": {"env": "PULL"}, "ca": {"file": "./ca"}},
        },
        "profile": "cis",
        "audit": "metadata",
        "etcd_snapshots": {"schedule": "0 1 * * *", "keep": 9},
        "virtual_address": {"interface": "eth0"},
        "ingress_controller": "none",
        "kubelet_args": {"topology-manager-policy": "best-effort"},
        "kubelet_config": {"reservedSystemCPUs": "0-3"},
        "join_batch": 5,
        "upgrade_batch": 3,
        "drain_seconds": 60,
        "source": "https://files.example.org/rke2",
        "images": ["core"],
        "artifacts": "/srv/rke2",
    },
    "os": {
        "distribution": "rhel",
        "version": "9.6",
        "selinux": "enforcing",
        "reboot": False,
        "time_servers": ["ntp.example.org"],
        "kernel_parameters": ["intel_iommu=on"],
        "hugepages": {"size": "1G", "count": 4},
        "dns": {"servers": ["10.0.0.53"], "search": ["example.org"]},
        "mounts": {"/var/lib/rancher": {}},
        "tolerate": ["time service"],
    },
    "ssh": {"post_quantum": True},
}
"""Every option of the two sections that changes what a play is given."""


def cluster(**sections: Any) -> spec.ClusterSpec:
    written = yaml.load(examples.path("h200-16").read_text(), Loader=yaml.CSafeLoader)
    return spec.load(yaml.safe_dump(written | {name: written.get(name, {}) | said for name, said in sections.items()}))


def operated(kind: OperationKind, *hosts: str, **sections: Any) -> Plan:
    until = "" if kind is OperationKind.RESET else "rke2"
    return compile_plan(cluster(**sections), until=until, operation=Operation(kind=kind, hosts=frozenset(hosts)))


PLANS = {
    **{
        name: lambda name=name: compile_plan(spec.load(examples.path(name)))
        for name in ("single-node", "h200-16", "multi-rack-232", "dra")
    },
    "everything": lambda: compile_plan(cluster(**EVERYTHING), until="rke2"),
    "add-node": lambda: operated(OperationKind.ADD_NODE, "gpu016"),
    "replace-node": lambda: operated(OperationKind.REPLACE_NODE, "gpu007", "sv2"),
    "upgrade": lambda: operated(OperationKind.UPGRADE),
    "rollback": lambda: operated(OperationKind.ROLLBACK),
    "reset of all": lambda: operated(OperationKind.RESET, **EVERYTHING),
    "reset of one": lambda: operated(OperationKind.RESET, "gpu007"),
}


def plays(plan: Plan) -> list[Task]:
    """The plays of ours; a role of the site declares its own variables."""
    return [task for task in plan.tasks if task.verb is Verb.PLAY and task.arguments["playbook"] != site_roles.PLAYBOOK]


def declared(playbook: str) -> dict[str, Any]:
    """The options of every role that a playbook names."""
    text = (PLAYBOOKS / f"{playbook}.yml").read_text()
    found: dict[str, Any] = {}
    for role in sorted(set(re.findall(r"(?:name|role): ([a-z0-9_]+)$", text, re.MULTILINE))):
        specs = yaml.safe_load((PLAYBOOKS / "roles" / role / "meta" / "argument_specs.yml").read_text())
        found |= specs["argument_specs"]["main"]["options"]
    return found


def wrong(playbook: str, variables: dict[str, Any]) -> list[str]:
    """Return errors about variables of a play: neither declared by its roles nor read by a playbook itself, or of a wrong type."""
    options, text = declared(playbook), "".join(path.read_text() for path in PLAYBOOKS.glob("*.yml"))
    said = [name for name in variables if name not in options and not re.search(rf"\b{name} \| default\(", text)]
    given = {name: value for name, value in variables.items() if name in options}
    # what the playbook adds itself (rke2_kind) is not among the plan's variables
    checked = ArgumentSpecValidator({name: {**options[name], "required": False} for name in given}).validate(given)
    turned = [name for name in given if json.dumps(checked.validated_parameters[name]) != json.dumps(given[name])]
    return [*said, *checked.error_messages, *(f"{name} would be turned into another type" for name in turned)]


@pytest.mark.parametrize("name", PLANS)
def test_every_variable_of_a_plan_is_declared_by_a_role_with_its_type(name: str) -> None:
    found = plays(PLANS[name]())
    assert found
    for task in found:
        assert wrong(task.arguments["playbook"], task.arguments["variables"]) == [], (task.stage, task.name)
        elsewhere = json.dumps(task.arguments["variables"].get("rke2_registries", {}))
        secrets = set(task.arguments.get("secret_variables", {})) - set(declared(task.arguments["playbook"]))
        assert all(f'"{secret}"' in elsewhere for secret in secrets), secrets


def test_the_plans_above_give_every_variable_that_stages_name() -> None:
    """Else a variable that only a rare spec gives would not be among those that are checked."""
    tasks = [task for made in PLANS.values() for task in plays(made())]
    given = {name for task in tasks for part in ("variables", "secret_variables") for name in task.arguments.get(part, {})}
    sources = "".join(path.read_text() for path in STAGES.glob("*.py"))
    named = set(re.findall(r'"((?:os_prep|rke2)_[a-z0-9_]+)"', sources)) - {path.stem for path in PLAYBOOKS.glob("*.yml")}
    assert len(named) > 20
    assert named - given == set()


@pytest.mark.parametrize(
    ("playbook", "variables"),
    [
        ("os_prep", {"os_prep_reboots": True}),
        ("os_prep", {"os_prep_reboot": "yes"}),
        ("rke2_agent", {"rke2_cni": "canal"}),
        ("rke2_agent", {"rke2_tls_san": [1]}),
        ("rke2_server", {"rke2_profile": "strict"}),
        ("rke2_server", {"rke2_upgrade_batches": 3}),
    ],
)
def test_a_wrong_name_type_or_choice_is_found(playbook: str, variables: dict[str, Any]) -> None:
    assert wrong(playbook, variables)


@pytest.mark.parametrize(
    ("system", "told"),
    [
        ({"distribution": "rhel", "version": "9.6", "selinux": "enforcing"}, {"selinux": True}),
        ({"distribution": "rhel", "version": "9.6", "selinux": "permissive"}, None),
        ({"distribution": "ubuntu", "version": "24.04", "selinux": "permissive"}, None),
    ],
)
def test_rke2_is_told_where_selinux_enforces(system: dict[str, str], told: object) -> None:
    written = yaml.load(examples.path("h200-16").read_text(), Loader=yaml.CSafeLoader)
    written["os"] = {**written.get("os", {}), **system}
    plan = compile_plan(spec.load(yaml.safe_dump(written)), until="rke2")
    plays = [one.arguments["variables"] for one in plan.tasks if one.stage == "rke2" and one.verb is Verb.PLAY]
    assert [one.get("rke2_config") for one in plays] == [told, told]
