"""The section rke2: what is refused there with a sentence, and which variables and secret files the play gets of the rest."""

import json
from typing import Any

import pytest

from workflows import spec
from workflows.plan.compiler import compile_plan
from workflows.spec import cluster_spec
from workflows.stages.host_access import secret_files
from workflows.stages.rke2 import further_settings, secret_variables, variables

HEAD = """apiVersion: bringup/v1
kind: Cluster
name: x
owner: tests@example.org
revision: "1"
hosts:
  servers: {role: server, ranges: s1, addresses: {start: 10.9.0.1}}
  workers: {role: agent, ranges: "w[1-3]", addresses: {start: 10.9.1.1}}
rke2: RKE2
"""
REGISTRIES = """{registries: {
  "*": {endpoints: ["https://mirror.example.org"], rewrite: {"^(.*)": "all/$1"}, username: puller, password: {env: PULL}},
  docker.io: {ca: {file: ./ca.pem}, cert: {file: ./cert.pem}, key: {file: ./key.pem}}}}"""


def load(rke2: str) -> Any:
    return spec.load(HEAD.replace("RKE2", rke2))


IPV6 = "IPv6 clusters are not supported: RKE2 would listen on ::1, while its clients on the host use 127.0.0.1"


@pytest.mark.parametrize(
    ("networks", "places"),
    [
        ({"cluster_cidr": "fd00:42::/56", "service_cidr": "fd00:43::/112"}, ["rke2.cluster_cidr", "rke2.service_cidr"]),
        ({"cluster_cidr": "fd00:42::/56"}, ["rke2.cluster_cidr"]),
        ({"service_cidr": "fd00:43::/112"}, ["rke2.service_cidr"]),
    ],
    ids=["IPv6 alone", "of pods", "of Services"],
)
def test_networks_of_ipv6_are_refused(networks: dict[str, str], places: list[str]) -> None:
    with pytest.raises(spec.SpecErrors) as caught:
        load(json.dumps(networks))
    errors = caught.value.errors
    assert [(error.path, error.value, error.problem) for error in errors] == [
        (place, json.dumps(networks[place.removeprefix("rke2.")]), IPV6) for place in places
    ]
    assert {error.fix for error in errors} == {"write an IPv4 network, as in 10.42.0.0/16; addresses that SSH dials may be IPv6"}


def test_networks_of_both_versions_are_refused() -> None:
    with pytest.raises(spec.SpecErrors) as caught:
        load('{cluster_cidr: "10.42.0.0/16,fd00:42::/56"}')
    assert [(error.path, error.problem) for error in caught.value.errors] == [("rke2.cluster_cidr", "not a network")]


def test_what_ssh_dials_may_be_of_ipv6() -> None:
    loaded = spec.load(HEAD.replace("10.9.0.1", '"fd00:9::1"').replace("10.9.1.1", '"fd00:9:1::1"').replace("RKE2", "{}"))
    assert [machine.address for machine in loaded.machines] == ["fd00:9::1", "fd00:9:1::1", "fd00:9:1::2", "fd00:9:1::3"]


@pytest.mark.parametrize(
    ("rke2", "sentence"),
    [
        ("{registries: {a.org: {username: u}}}", "username and password belong together"),
        ("{registries: {a.org: {cert: {file: c}}}}", "cert and key belong together"),
        ("{registries: {a.org: {insecure: false}}}", "the entry of this registry has no effect"),
        ('{registries: {a.org: {rewrite: {"a": "b"}}}}', "there are no mirrors"),
        ('{registries: {a.org: {endpoints: ["mirror"]}}}', "rke2.registries.a.org.endpoints"),
        ("{registries: {a.org: {password: plain}}}", "a secret (password) is written out in the spec"),
        ("{virtual_address: {interface: eth0}}", "an IP address that no machine has"),
        ("{virtual_address: {interface: eth0}, registration_address: 10.9.0.1}", "servers cannot hold 10.9.0.1"),
        ("{virtual_address: {interface: eth0}, registration_address: api.example.org}", "servers cannot hold api.example.org"),
        ('{etcd_snapshots: {schedule: "hourly"}}', "rke2.etcd_snapshots.schedule"),
        ('{etcd_snapshots: {schedule: "TZ=UTC 0 2 * * 6"}}', "it counts in the time zone of the servers"),
        ('{etcd_snapshots: {schedule: "99 * * * *"}}', "99 is no minute"),
        ('{etcd_snapshots: {schedule: "0 24 * * *"}}', "24 is no hour"),
        ('{etcd_snapshots: {schedule: "0 2 * * 7"}}', "7 is no day of week"),
        ('{etcd_snapshots: {schedule: "*/0 * * * *"}}', "no step that counts"),
        ('{etcd_snapshots: {schedule: "0 2 31 feb *"}}', "it never comes"),
        (
            '{registry_mirror: a.org, registries: {"*": {endpoints: ["https://b.org"]}}}',
            "keep one: registry_mirror, or the entry * of registries",
        ),
        ("{registry_fallback: false}", "there is no mirror for all"),
        ('{registry_fallback: false, registries: {a.org: {endpoints: ["https://m.org"]}}}', "there is no mirror for all"),
        ("{registry_fallback: false, registries: {'*': {insecure: true}}}", "there is no mirror for all"),
        (
            "{registry_fallback: false, registry_mirror: m.org, registries: {a.org: {insecure: true}}}",
            "insecure of a.org would make RKE2 use a.org directly",
        ),
        (
            """{registry_fallback: false, registry_mirror: m.org, registries: {
              a.org: {endpoints: ["https://n.org:5000"], username: u, password: {env: P}, ca: {file: c}}}}""",
            "username, ca of a.org would make RKE2 use a.org directly, and registry_fallback is false\n"
            "  fix    move the keys of n.org:5000 into an entry named after that host; "
            "or add https://a.org to the endpoints of a.org",
        ),
        ("{upgrade_batch: 51}", "rke2.upgrade_batch"),
        ("{kubelet_config: {Reserved-CPUs: x}}", "kubelet_config"),
        ('{kubelet_config: {maxPods: "250"}}', "maxPods is '250', which is not a number of pods"),
        ("{kubelet_config: {maxPods: true}}", "maxPods is True"),
        ("{kubelet_config: {maxPods: 0}}", "maxPods is 0"),
        ("{kubelet_args: {max-pods: many}}", "max-pods is many"),
    ],
)
def test_what_cannot_work_is_refused(rke2: str, sentence: str) -> None:
    with pytest.raises(spec.SpecErrors) as caught:
        load(rke2)
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("said", "pods"),
    [
        ("{}", 110),
        ("{kubelet_config: {maxPods: 250}}", 250),
        ('{kubelet_args: {max-pods: "64"}}', 64),
        ('{kubelet_args: {max-pods: "64"}, kubelet_config: {maxPods: 250}}', 64),
    ],
)
def test_the_number_of_pods_is_what_the_spec_says_by_flag_or_field(said: str, pods: int) -> None:
    cluster = load(said)
    task = next(task for task in compile_plan(cluster, until="rke2").tasks if (task.stage, task.name) == ("rke2", "servers"))
    assert cluster_spec.max_pods(cluster) == pods
    assert task.arguments["variables"]["rke2_kubelet_args"]["max-pods"] == str(pods)


@pytest.mark.parametrize("line", ["0 */12 * * *", "5,35 0-6/2 1 jan-mar SAT", "0 2 * * 0"])
def test_a_schedule_of_snapshots_that_rke2_reads_is_taken(line: str) -> None:
    assert load(f'{{etcd_snapshots: {{schedule: "{line}"}}}}').rke2.etcd_snapshots.schedule == line


@pytest.mark.parametrize("count", [2, 4])
def test_an_even_number_of_servers_is_refused(count: int) -> None:
    with pytest.raises(spec.SpecErrors, match=f"{count} servers cannot hold an etcd majority well"):
        spec.load(HEAD.replace("ranges: s1", f'ranges: "s[1-{count}]"').replace("RKE2", "{registration_address: 10.9.2.1}"))


def test_what_is_left_open_is_left_to_the_role() -> None:
    assert variables(load("{}").rke2) == {}
    assert secret_variables(load("{}").rke2) == {}


def test_registries_name_their_secrets_and_never_hold_them() -> None:
    cluster = load(REGISTRIES)
    assert variables(cluster.rke2)["rke2_registries"] == {
        "*": {
            "endpoints": ["https://mirror.example.org"],
            "rewrite": {"^(.*)": "all/$1"},
            "username": "puller",
            "secrets": {"password": "rke2_registry_1_password"},
        },
        "docker.io": {"secrets": {part: f"rke2_registry_2_{part}" for part in ("ca", "cert", "key")}},
    }
    files = {file.name: file for file in secret_files(cluster)}
    assert set(secret_variables(cluster.rke2).values()) <= set(files)
    assert files["registry_1_password"].variable == "PULL"
    assert files["registry_2_ca"].certificates == "rke2.registries.docker.io.ca"
    assert files["registry_2_key"].certificates == ""


def test_mirrors_alone_are_asked_where_a_registry_itself_is_no_fallback() -> None:
    assert further_settings(load("{registry_mirror: r.example.org}")) == {}
    told = further_settings(load("{registry_fallback: false, registry_mirror: r.example.org}"))
    assert told == {"rke2_config": {"disable-default-registry-endpoint": True}}


@pytest.mark.parametrize(
    "registries",
    [
        "m.org: {ca: {file: c}}",
        'a.org: {endpoints: ["https://n.org:5000/v2/x"]}, "n.org:5000": {insecure: true}',
        'a.org: {endpoints: ["https://a.org"], insecure: true}',
        'docker.io: {endpoints: ["https://n.org", "https://registry-1.docker.io"], username: u, password: {env: P}}',
    ],
)
def test_logins_of_what_is_asked_anyway_need_no_fallback(registries: str) -> None:
    found = load(f"{{registry_fallback: false, registry_mirror: m.org/path, registries: {{{registries}}}}}")
    assert not found.rke2.registry_fallback


def test_what_is_said_reaches_the_role() -> None:
    said = """{source: "https://files.example.org/rke2", images: [core, canal], audit: metadata, upgrade_batch: 3,
      drain_seconds: 60, etcd_snapshots: {keep: 9}, kubelet_config: {reservedSystemCPUs: "0-3"}, registration_address: 10.9.0.9,
      virtual_address: {interface: eth0}}"""
    assert variables(load(said).rke2) == {
        "rke2_source": "https://files.example.org/rke2",
        "rke2_images": ["core", "canal"],
        "rke2_kubelet_config": {"reservedSystemCPUs": "0-3"},
        "rke2_audit": "metadata",
        "rke2_upgrade_batch": 3,
        "rke2_drain_seconds": 60,
        "rke2_snapshot_schedule": "0 */12 * * *",
        "rke2_snapshots_kept": 9,
        "rke2_virtual_address": {"interface": "eth0", "image": "ghcr.io/kube-vip/kube-vip:v1.0.1"},
    }
