"""Check `dns` of stage rke2 as data: its objects, rights and expectation, with RKE2's ingress controllers and without."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from workflows import catalog, spec
from workflows.stages import rke2
from workflows.stages.stage import Site, Step

EXAMPLE = Path(__file__).parents[3] / "workflows/examples/h200-16.yaml"
EXAMPLE_HOSTS = yaml.load(EXAMPLE.read_text(), Loader=yaml.CSafeLoader)["hosts"]

NAMES = ["prometheus-community.github.io", "charts.jetstack.io"]
"""Hosts of the first chart repositories that the example's stages need."""

GIT = "https://git.example.org/platform/apps.git"


def step(name: str, given: dict[str, Any], taint: str = "", also: dict[str, Any] | None = None) -> Step:
    """A step of the example with these fields of `rke2`, this taint on every machine, and these other sections."""
    written = yaml.load(EXAMPLE.read_text(), Loader=yaml.CSafeLoader) | (also or {})
    written["rke2"] |= given
    for group in written["hosts"].values():
        group["taints"] = [taint] if taint else []
    cluster = spec.load(yaml.safe_dump(written))
    releases = {release.id: release for release in catalog.resolve(cluster, catalog.load())}
    made = rke2.build(Site(spec=cluster, machines=cluster.machines, releases=releases))
    assert made is not None
    return next(one for one in made.steps if one.name == name)


def environment(check: Step) -> dict[str, Any]:
    job = check.task.arguments["objects"][-1]
    return {row["name"]: row.get("value") for row in job["spec"]["template"]["spec"]["containers"][0]["env"]}


def ingress(check: Step) -> list[dict[str, Any]]:
    return [one for one in check.task.arguments["objects"] if one["kind"] == "Ingress"]


@pytest.mark.parametrize(
    ("given", "found", "workload"),
    [
        ({}, "nginx", "DaemonSet rke2-ingress-nginx-controller"),
        ({"ingress_controller": "traefik"}, "traefik", "DaemonSet rke2-traefik"),
        ({"version": "v1.36.3+rke2r1"}, "traefik", "DaemonSet rke2-traefik"),
        ({"version": "v1.36.3+rke2r1", "ingress_controller": "ingress-nginx"}, "nginx", "DaemonSet rke2-ingress-nginx-controller"),
    ],
)
def test_the_controller_follows_from_spec_and_release(given: dict[str, Any], found: str, workload: str) -> None:
    check = step("functional", given)
    assert [one["spec"]["ingressClassName"] for one in ingress(check)] == [found]
    assert check.task.expectations == {"ingress": True, "outside": NAMES}
    assert environment(check)["INGRESS_AT"].count(" ") == 2, "three machines that any pod may ask"
    assert any("ingresses" in rule.resources for rule in check.rules)
    assert workload in step("control", given).task.expectations["workloads"]


@pytest.mark.parametrize(
    ("given", "taint"),
    [({"ingress_controller": "none"}, ""), ({}, "site/reserved=true:NoSchedule")],
    ids=["the spec wants none", "taints keep it from every node"],
)
def test_without_a_controller_nobody_asks_for_it(given: dict[str, Any], taint: str) -> None:
    check = step("functional", given, taint)
    assert ingress(check) == []
    assert check.task.expectations == {"outside": NAMES}
    assert "INGRESS_HOST" not in environment(check)
    assert not any("ingresses" in rule.resources for rule in check.rules)


def test_a_taint_that_only_prefers_keeps_nobody_away() -> None:
    assert ingress(step("functional", {}, "site/reserved=true:PreferNoSchedule"))


def test_machines_that_sunk_locks_are_no_ways_in() -> None:
    """SUNK's lock evicts the ingress controller's pods, which tolerate no taint, so the check uses none of these machines."""
    sunk = {"kind": "sunk", "repo": "oci://r.example.org/sunk", "version": "7.3.0"}
    servers_last = {"hosts": {name: EXAMPLE_HOSTS[name] for name in ("gpu", "servers")}}
    assert environment(step("functional", {}, also=servers_last))["INGRESS_AT"].split()[0] == "10.10.1.1"
    locked = environment(step("functional", {}, also=servers_last | {"slurm": sunk}))
    assert locked["INGRESS_AT"] == "10.10.0.11 10.10.0.12 10.10.0.13"


def test_the_service_with_an_address_is_there_before_the_pods_that_are_told_of_it() -> None:
    kinds = [(one["kind"], one["metadata"]["name"]) for one in step("functional", {}).task.arguments["objects"]]
    assert kinds == [("Namespace", "bringup-check"), ("Service", "dns"), ("Service", "vip"), ("Ingress", "dns"), ("Job", "dns")]


@pytest.mark.parametrize(
    ("also", "names"),
    [
        ({}, NAMES),
        ({"proxy": {"http": "http://proxy.example.org:3128"}}, ["proxy.example.org"]),
        ({"proxy": {"http": "http://10.0.0.9:3128"}}, []),
        (
            {"delivery": {"mode": "argo_cd", "argo_cd": {"repo": GIT, "revision": "v1", "project": "platform"}}},
            ["git.example.org", "argoproj.github.io"],
        ),
    ],
    ids=["chart repositories", "a proxy by name", "a proxy by address", "the Git repository of Argo CD"],
)
def test_names_that_later_stages_need_are_asked_for(also: dict[str, Any], names: list[str]) -> None:
    check = step("functional", {}, also=also)
    assert check.task.expectations.get("outside", []) == names
    assert environment(check)["OUTSIDE"] == " ".join(names)
    host = step("host_network", {}, also=also)
    assert environment(host)["OUTSIDE"] == "".join(names[:1])
    assert host.task.expectations.get("outside", "") == "".join(names[:1])


def test_servers_ask_in_their_own_network_with_the_dns_servers_of_the_kubelet() -> None:
    check = step("host_network", {})
    assert (check.task.arguments["select"], check.task.arguments["checks"]) == ("server", ["host", "answer"])
    kinds = [(one["kind"], one["metadata"]["name"]) for one in check.task.arguments["objects"]]
    assert kinds == [("Namespace", "bringup-check"), ("Service", "answer"), ("Job", "answer"), ("Job", "host")]
    answer, host = (one["spec"] for one in check.task.arguments["objects"][2:])
    assert answer["completions"] == 3, "one for the asking server, one that may be broken, one that answers"
    pod = host["template"]["spec"]
    assert (pod["hostNetwork"], pod["dnsPolicy"], host["completions"]) == (True, "Default", "@count")
    assert not any("ports" in container for container in pod["containers"]), "nothing listens in a server's network"
    assert any("services" in rule.resources for rule in check.rules)


@pytest.mark.parametrize(
    ("given", "batches"),
    [({"join_batch": 1}, 50), ({"join_batch": 3}, 17), ({"upgrade_batch": 2}, 25), ({"upgrade_batch": 2, "join_batch": 1}, 50)],
)
def test_a_shard_has_time_for_all_its_batches(given: dict[str, Any], batches: int) -> None:
    drained, ready = 600, 900
    assert step("agents", given).task.deadline_seconds == batches * (drained + ready)


def test_limits_of_etcd_are_those_of_the_spec() -> None:
    assert step("servers", {}).task.expectations["etcd"] == {"fsync_p99": 0.01}
    assert step("servers", {"etcd_fsync_ms": 25}).task.expectations["etcd"] == {"fsync_p99": 0.025}
    assert "etcd" not in step("agents", {}).task.expectations
