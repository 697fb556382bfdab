"""Values that the models derive from valid sections, and the rules of single sections that golden files do not show."""

import json
from datetime import timedelta
from typing import Any, get_args

import pytest
import yaml
from pydantic import ValidationError

from steps.contract.node_tests.fleet_facts import FleetFact
from workflows import spec
from workflows.examples import path
from workflows.spec import cluster_spec
from workflows.spec.sections import services
from workflows.spec.sections.governance import Share

BASE: dict[str, Any] = yaml.safe_load(path("h200-16").read_text(encoding="utf-8"))


def load(**sections: Any) -> spec.ClusterSpec:
    return spec.load(json.dumps({key: value for key, value in (BASE | sections).items() if value is not None}) + "\n")


def hosts(**group: Any) -> dict[str, Any]:
    return {
        "sv": {"role": "server", "ranges": "sv1", "addresses": {"start": "10.255.0.1"}},
        "gpu": {"role": "agent", "gpu": True} | group,
    }


def gpus(**group: Any) -> tuple[spec.Machine, ...]:
    return load(hosts=hosts(**group)).gpu_machines


def argo_cd(**fields: Any) -> dict[str, Any]:
    """The section delivery with these fields."""
    return {"delivery": {"mode": "argo_cd", "argo_cd": {"repo": "https://g.org/a", "revision": "v1", "project": "p"} | fields}}


def announced(**fields: Any) -> dict[str, Any]:
    """The section approvals with one that is announced in this way."""
    return {"approvals": [{"before": "rke2", "approvers": ["a"], "announce": fields}]}


def refused(sentence: str, **sections: Any) -> None:
    with pytest.raises(spec.SpecErrors, match=sentence):
        load(**sections)


def test_addresses_follow_from_names_in_four_ways() -> None:
    assert [one.address for one in gpus(ranges="n[9-11]")] == ["n9", "n10", "n11"]
    assert [one.address for one in gpus(ranges="n[1-2]", addresses={"dns_suffix": "x.org"})] == ["n1.x.org", "n2.x.org"]
    assert [one.address for one in gpus(ranges="n[1-3]", addresses={"start": "10.0.0.254"})] == [
        "10.0.0.254",
        "10.0.0.255",
        "10.0.1.0",
    ]
    assert [one.address for one in gpus(ranges="r[01-02]-n[08-09]", addresses={"pattern": "10.1.{1}.{2}"})] == [
        "10.1.1.8",
        "10.1.1.9",
        "10.1.2.8",
        "10.1.2.9",
    ]
    assert [one.address for one in gpus(ranges="n[1-2]", addresses={"map": {"n1": "a", "n2": "b"}})] == ["a", "b"]


def test_places_follow_from_names_and_order() -> None:
    places = {"rack": "rack{1}", "leaf": "leaf{block:2}", "scalable_unit": "su-{host}-{index}"}
    last = gpus(
        ranges="r[01-02]-n[1-2]", topology=places, overrides={"r02-n2": {"rack": "rack99", "gpus": 7, "address": "10.9.9.9"}}
    )[-1]
    assert (last.rack, last.leaf, last.scalable_unit) == ("rack99", "leaf2", "su-r02-n2-3")
    assert (last.gpus, last.address, last.group) == (7, "10.9.9.9", "gpu")


def test_labels_of_a_host_add_to_those_of_its_group() -> None:
    first, second = gpus(ranges="n[1-2]", labels={"a/b": "1"}, overrides={"n2": {"labels": {"c/d": "2"}}})
    assert (first.labels, second.labels) == ({"a/b": "1"}, {"a/b": "1", "c/d": "2"})


def test_a_taint_without_a_value_is_written_as_nodes_show_it() -> None:
    said, shown = ("a/b=:NoSchedule", "c:NoExecute", "d=x:NoSchedule"), ("a/b:NoSchedule", "c:NoExecute", "d=x:NoSchedule")
    assert gpus(ranges="n1", taints=list(said))[0].taints == shown


@pytest.mark.parametrize(
    "key",
    [
        "node-role.kubernetes.io/worker",
        "kubernetes.io/role",
        "k8s.io/a",
        "sub.k8s.io/a",
        "topology.kubernetes.io/rack",
        "xnode.kubernetes.io/a",
    ],
)
def test_labels_that_a_kubelet_does_not_start_with_are_refused(key: str) -> None:
    why = f"a kubelet does not start with the label {key}"
    refused(rf"hosts\.gpu\.labels\n(.*\n)?.*{why}", hosts=hosts(ranges="n1", labels={key: "x"}))
    refused(rf"overrides\.n1\.labels\n(.*\n)?.*{why}", hosts=hosts(ranges="n1", overrides={"n1": {"labels": {key: "x"}}}))


@pytest.mark.parametrize(
    "key",
    [
        "node.kubernetes.io/a",
        "feature.node.kubernetes.io/a",
        "kubelet.kubernetes.io/a",
        "topology.kubernetes.io/zone",
        "kubernetes.io/hostname",
        "beta.kubernetes.io/instance-type",
        "notkubernetes.io/a",
        "mink8s.io/a",
        "plain",
    ],
)
def test_labels_that_a_kubelet_may_give_its_node_are_taken(key: str) -> None:
    assert gpus(ranges="n1", labels={key: "x"})[0].labels == {key: "x"}


@pytest.mark.parametrize(
    ("group", "sentence"),
    [
        ({"ranges": "n[1-2]", "addresses": {"start": "10.0.0.1", "pattern": "x"}}, "more than one way"),
        ({"ranges": "n[1-2]", "addresses": {"pattern": "10.0.0.{nr}"}}, "unknown placeholder"),
        ({"ranges": "n[1-2]", "addresses": {"pattern": "10.0.0.{1.__class__}"}}, "unknown placeholder"),
        ({"ranges": "n[1-2]", "addresses": {"start": "10.0.0.300"}}, "not an IP address"),
        ({"ranges": "n[1-2]", "addresses": {"map": {"n1": "a"}}}, "ranges differ: n2"),
        ({"ranges": "n[1-2]", "overrides": {"n3": {"gpus": 7}}}, "n3 is not a host of this group"),
        ({"ranges": []}, "at least 1 is expected"),
        ({"ranges": "n1", "taints": ["gpu"]}, "expected form"),
    ],
)
def test_a_bad_group_is_refused(group: dict[str, Any], sentence: str) -> None:
    refused(sentence, hosts=hosts(**group))


@pytest.mark.parametrize(
    ("text", "total", "needed"),
    [
        ("all", 16, 16),
        ("15", 16, 15),
        (15, 16, 15),
        ("15", 8, 8),
        ("15/16", 16, 15),
        ("15/16", 19, 18),
        ("97%", 232, 226),
        ("93.75%", 16, 15),
        ("100%", 7, 7),
    ],
)
def test_a_quorum_rounds_up(text: object, total: int, needed: int) -> None:
    assert Share.model_validate(text).needed(total) == needed


@pytest.mark.parametrize("text", ["", "0", "-1", "1/0", "0/4", "5/4", "0%", "101%", "most", "1.5", True, None])
def test_a_bad_quorum_is_refused(text: object) -> None:
    with pytest.raises(ValidationError):
        Share.model_validate(text)


def test_the_default_example_wants_15_of_16() -> None:
    cluster = spec.load(path("h200-16"))
    assert cluster.quorum.share("validation").needed(len(cluster.gpu_machines)) == 15
    assert cluster.approvals[0].timeout == timedelta(hours=24)
    assert not cluster.approvals[0].signed
    assert cluster.registration_address == "10.10.0.10"


def test_an_approver_is_a_name_or_a_public_key_line() -> None:
    key = "ssh-ed25519 " + "A" * 60
    approval = load(approvals=[{"before": "rke2", "approvers": [f"{key} ada@example.org"]}]).approvals[0]
    assert (approval.approvers[0].name, approval.approvers[0].key) == ("ada@example.org", key)
    assert approval.signed
    refused("some approvers have a key", approvals=[{"before": "rke2", "approvers": ["grace", f"{key} ada"]}])


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"fabric": {"kind": "infiniband", "mode": "macvlan"}}, "macvlan needs Ethernet"),
        ({"fabric": {"kind": "infiniband", "mode": "ipoib"}}, "name of its master"),
        ({"fabric": {"kind": "infiniband", "mode": "sriov"}}, "has no addresses"),
        (
            {"fabric": {"kind": "roce", "mode": "sriov", "ip_pool": {"subnet": "10.0.0.0/24", "gateway": "10.1.0.1"}}},
            "lies outside",
        ),
        ({"sharing": {"mode": "mps"}}, "number of shares"),
        ({"sharing": {"mode": "mig", "profile": "1g.18gb", "replicas": 2}}, "no meaning"),
        ({"sharing": {"mode": "time_slicing", "replicas": 2, "profile": "1g.18gb"}}, "no meaning"),
        ({"accelerator": {"product": "H200", "driver": "host"}}, "version that the machines have"),
        ({"scheduler": {"gang": "volcano", "queues": [{"name": "q", "namespace": "a", "gpus": 1}]}}, "no quota system"),
        ({"scheduler": {"quota": "kueue", "queues": [{"name": "q", "namespace": "a", "gpus": 1}] * 2}}, "same name"),
        ({"slurm": {"kind": "sunk"}}, "needs repo, version"),
        ({"slurm": {"kind": "slinky", "repo": "https://x.example.org"}}, "repo belongs to kind: sunk"),
        ({"slurm": {"kind": "slinky", "partitions": [{"name": "a", "groups": "gpu"}] * 2}}, "same name"),
        ({"delivery": {"mode": "argo_cd"}}, "needs its repository"),
        ({"delivery": {"argo_cd": {"repo": "https://g.org/a", "revision": "v1", "project": "p"}}}, "the mode is helm_controller"),
        (
            {"delivery": {"mode": "argo_cd", "argo_cd": {"repo": "https://g.org/a", "revision": "v1", "project": "default"}}},
            "anywhere",
        ),
        (argo_cd(repo="http://g.org/a", credentials={"env": "GIT"}), "in the clear"),
        (argo_cd(known_hosts="./hosts"), "reached by SSH"),
        (argo_cd(repo="git@g.org:a"), "needs known_hosts"),
        (argo_cd(repo="git@g.org:a", known_hosts="./hosts", ca={"file": "./ca.pem"}), "reached by https"),
        (argo_cd(ca="-----BEGIN CERTIFICATE-----"), "by reference only"),
        (argo_cd(repo="ssh://git@g.org/a"), "write known_hosts: ./git_known_hosts"),
        (argo_cd(branch="a..b"), "not a valid name in Git"),
        (argo_cd(revision="v1.lock"), "not a valid name in Git"),
        (announced(), "exactly one of command and webhook"),
        (announced(ca={"file": "./ca.pem"}), "exactly one of command and webhook"),
        (announced(command=["notify"], ca={"file": "./ca.pem"}), "ca belongs to a webhook"),
        (announced(command=["notify"], ca={"file": "./ca.pem"}), "remove ca, or write webhook in place of command"),
        (announced(webhook={"env": "URL"}, ca="-----BEGIN CERTIFICATE-----"), "by reference only"),
        (announced(webhook={"env": "URL"}, ca={}), "exactly one of file, secret and env"),
        ({"stages": ["os_prep", "slurm"], "slurm": None, "approvals": None}, "has no work for this stage"),
        ({"slurm": None, "approvals": [{"before": "slurm", "approvers": ["a"]}]}, "does not run"),
        ({"rke2": {"cni": ["multus"], "registration_address": "x"}}, "exactly one CNI besides multus"),
        ({"rke2": {"cni": ["canal", "cilium"], "registration_address": "x"}}, "exactly one CNI besides multus"),
        ({"accelerator": None, "fabric": {"kind": "none"}}, "the spec names no accelerator"),
        ({"accelerator": None}, "finds its nodes by the GPU Operator"),
        ({"hosts": {"sv": {"role": "server", "ranges": "sv1"}}}, "no host group has gpu: true"),
        ({"quorum": {"default": 20}}, "only 19 nodes"),
        ({"quorum": {"stages": {"slurm": "all"}}, "slurm": None, "approvals": None}, "its quorum has no effect"),
        (
            {"scheduler": {"quota": "kueue", "queues": [{"name": "q", "namespace": "a", "gpus": 8, "borrowing_limit": 4}]}},
            "nobody to borrow from",
        ),
        (
            {"delivery": {"mode": "argo_cd", "argo_cd": {"repo": "https://u:p@g.org/a", "revision": "v1", "project": "p"}}},
            "password",
        ),
    ],
)
def test_a_bad_section_is_refused(sections: dict[str, Any], sentence: str) -> None:
    refused(sentence, **sections)


@pytest.mark.parametrize(
    ("repo", "right"),
    [
        ("https://git.example.org/platform.git", True),
        ("https://git.example.org:8443/a/b", True),
        ("ssh://git@git.example.org:2222/platform.git", True),
        ("ssh://git.example.org/platform.git", True),
        ("git@git.example.org:team/platform.git", True),
        ("git://git.example.org/platform.git", False),
        ("file:///srv/git/platform.git", False),
        ("oci://registry.example.org/charts", False),
        ("git.example.org/platform.git", False),
        ("https://git.example.org/a b", False),
        ("ssh://git:password@git.example.org/a", False),
    ],
)
def test_a_repository_is_one_that_can_be_pushed_to(repo: str, right: bool) -> None:
    if right:
        known = {} if repo.startswith("https:") else {"known_hosts": "./hosts"}
        assert load(**argo_cd(repo=repo, **known)).delivery.argo_cd is not None
    else:
        with pytest.raises(spec.SpecErrors) as refusal:
            load(**argo_cd(repo=repo))
        (error,) = refusal.value.errors
        assert (error.path, bool(error.fix)) == ("delivery.argo_cd.repo", True)


@pytest.mark.parametrize("path", ["/apps", "apps/", "../apps", "apps/../x", ".git", ""])
def test_the_folder_lies_below_the_repositorys_root(path: str) -> None:
    with pytest.raises(spec.SpecErrors, match=r"delivery\.argo_cd\.path"):
        load(**argo_cd(path=path))


def test_delivery_fills_in_what_follows() -> None:
    argo = load(**argo_cd()).delivery.argo_cd
    assert argo is not None
    assert (argo.branch, argo.path, argo.install, argo.is_commit) == ("main", "apps", True, False)
    commit = load(**argo_cd(revision="0" * 40, repo="git@g.org:a", known_hosts="./hosts")).delivery.argo_cd
    assert commit is not None
    assert commit.is_commit


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("45m", 2700), ("24h", 86400), ("1h30m", 5400), ("2d", 172800), ("1d2h3m4s", 93784)]
)
def test_durations(text: str, seconds: int) -> None:
    assert load(validation={"timeout": text, "nccl": {"inter_node_floor_gb_s": 1}}).validation.timeout == timedelta(seconds=seconds)


def test_stages_without_work_are_absent() -> None:
    assert load(slurm=None, scheduler=None, approvals=None).enabled_stages() == (
        "os_prep",
        "rke2",
        "base_services",
        "gpu_operator",
        "network_operator",
        "sharing",
        "validation",
    )


SHARED: list[tuple[dict[str, Any], dict[str, int], str, tuple[str, str] | None]] = [
    ({"mode": "none"}, {"nvidia.com/gpu": 8}, "NVIDIA-H200", None),
    (
        {"mode": "time_slicing", "replicas": 4},
        {"nvidia.com/gpu.shared": 32, "nvidia.com/gpu": 0},
        "NVIDIA-H200",
        ("nvidia.com/device-plugin.config", "shared"),
    ),
    (
        {"mode": "mps", "replicas": 2, "rename": False},
        {"nvidia.com/gpu": 16},
        "NVIDIA-H200-SHARED",
        ("nvidia.com/device-plugin.config", "shared"),
    ),
    (
        {"mode": "mig", "profile": "1g.18gb"},
        {"nvidia.com/gpu": 56},
        "NVIDIA-H200-MIG-1g.18gb",
        ("nvidia.com/mig.config", "all-1g.18gb"),
    ),
    (
        {"mode": "mig", "profile": "3g.71gb", "strategy": "mixed"},
        {"nvidia.com/mig-3g.71gb": 16, "nvidia.com/gpu": 0},
        "NVIDIA-H200",
        ("nvidia.com/mig.config", "all-3g.71gb"),
    ),
    ({"mode": "dra"}, {}, "NVIDIA-H200", ("nvidia.com/dra-kubelet-plugin", "true")),
]


@pytest.mark.parametrize(("sharing", "allocatable", "label", "node_label"), SHARED)
def test_sharing_changes_what_nodes_show(
    sharing: dict[str, Any], allocatable: dict[str, int], label: str, node_label: tuple[str, str] | None
) -> None:
    cluster = load(sharing=sharing)
    assert cluster_spec.allocatable(cluster) == allocatable
    assert cluster_spec.product_label(cluster) == label
    assert cluster_spec.sharing_label(cluster) == node_label


def test_floors_come_from_the_spec_or_the_published_table() -> None:
    assert cluster_spec.intra_node_floor(load()) == 431.0
    assert cluster_spec.ib_write_bw_floor(load()) == 360.0
    slow = load(fabric={"kind": "infiniband", "rate_gbit": 200})
    assert cluster_spec.ib_write_bw_floor(slow) == 180.0
    own = load(validation={"nccl": {"intra_node_floor_gb_s": 400, "inter_node_floor_gb_s": 1}, "ib_write_bw_floor_gbit_s": 300})
    assert (cluster_spec.intra_node_floor(own), cluster_spec.ib_write_bw_floor(own)) == (400.0, 300.0)


def test_facts_may_differ_with_a_reason() -> None:
    assert load().validation.allowed_differences == {}
    wanted = [{"fact": name, "reason": "why"} for name in get_args(services.FactName)]
    found = load(validation=BASE["validation"] | {"may_differ": wanted}).validation.allowed_differences
    assert set(found) == {fact.value for fact in FleetFact}, "the gates compare these"
    for entry, sentence in (
        ([{"fact": "vbios"}], "reason"),
        ([{"fact": "bios", "reason": "x"}], "vbios"),
        ([{"fact": "vbios", "reason": "x"}, {"fact": "vbios", "reason": "y"}], "lists a fact twice"),
    ):
        refused(sentence, validation=BASE["validation"] | {"may_differ": entry})


def test_a_spec_is_frozen() -> None:
    cluster = load()
    with pytest.raises(ValidationError):
        cluster.name = "other"


def test_a_group_is_a_node_label() -> None:
    assert cluster_spec.node_labels(load(hosts=hosts(ranges="n1", labels={"a/b": "1"})), "gpu") == {
        "a/b": "1",
        "bringup/group": "gpu",
    }


def test_an_unknown_kind_is_one_error_that_names_the_kinds() -> None:
    with pytest.raises(spec.SpecErrors, match="this kind of spec is unknown") as refused:
        spec.load("apiVersion: bringup/v1\nkind: Foo\nname: x\n")
    (error,) = refused.value.errors
    assert (error.path, error.line, error.fix) == ("kind", 2, "write one of Cluster, Factory, Stack, Image, ImageRecipe")


def test_storage_to_measure_has_one_place() -> None:
    for storage in ({}, {"storage_class": "shared", "path": "/mnt/shared"}):
        benchmarks = {"benchmarks": {"image": "bench:1", "storage": storage}}
        refused("write either storage_class or path", validation=BASE["validation"] | benchmarks)


def test_message_sizes_that_do_not_grow_are_refused_with_their_right_order() -> None:
    with pytest.raises(spec.SpecErrors, match=r"write sizes: \[512M, 1G, 8G\]"):
        load(validation={"nccl": {"inter_node_floor_gb_s": 1, "sizes": ["8G", "512M", "1G"]}})
    assert load(validation={"nccl": {"inter_node_floor_gb_s": 1, "sizes": ["1024", "1G"]}}).validation.nccl.sizes == ("1024", "1G")
