"""The static pod of kube-vip asks the API server of its own machine, under the name of its node."""

import json
from typing import Any

import jinja2
import pytest
import yaml

from steps.clients.ansible.workspace import playbook_path

TEMPLATE = playbook_path("os_prep").parent / "roles/rke2/templates/kube-vip.yaml.j2"


def manifest(address: str) -> dict[str, Any]:
    """Render the kube-vip manifest of the role for a registration address."""
    kept = jinja2.Environment(undefined=jinja2.StrictUndefined)
    kept.filters["to_json"] = json.dumps
    given = {"interface": "eth0", "image": "registry.example.org:5000/kube-vip/kube-vip:v1.0.1"}
    said = kept.from_string(TEMPLATE.read_text()).render(rke2_virtual_address=given, rke2_registration_address=address)
    loaded: dict[str, Any] = yaml.safe_load(said)
    return loaded


@pytest.mark.parametrize(("address", "width"), [("10.77.200.1", "32"), ("2001:db8::5", "128")])
def test_it_holds_the_registration_address(address: str, width: str) -> None:
    (container,) = manifest(address)["spec"]["containers"]
    said = {one["name"]: one.get("value") for one in container["env"]}
    assert (said["address"], said["vip_subnet"], said["vip_interface"]) == (address, width, "eth0")


def test_the_api_server_that_it_asks_is_its_own_machines() -> None:
    """Given an admin's kubeconfig, kube-vip asks `kubernetes:6443` and takes that name from hostAliases."""
    pod = manifest("10.77.200.1")["spec"]
    (container,) = pod["containers"]
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/etc/kubernetes/admin.conf"]
    assert pod["hostAliases"] == [{"ip": "127.0.0.1", "hostnames": ["kubernetes"]}]


def test_two_servers_of_one_host_name_are_two_candidates() -> None:
    (container,) = manifest("10.77.200.1")["spec"]["containers"]
    (name,) = [one for one in container["env"] if one["name"] == "vip_nodename"]
    assert name["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
