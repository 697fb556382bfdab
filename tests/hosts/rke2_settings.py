"""A spec that says all of RKE2 that a site may want hardened, labelled and kept: as the role writes it on hosts, and as a real etcd
and API server do it."""

import base64
import json
import urllib.request
from typing import Any

import yaml
from hostlab.host import Host

KUBECTL = ("/var/lib/rancher/rke2/bin/kubectl", "--kubeconfig", "/etc/rancher/rke2/rke2.yaml")
RKE2_FILES = "/etc/rancher/rke2"
AUDIT_LOG = "/var/lib/rancher/rke2/server/logs/audit.log"
"""Path of the API server's audit log under RKE2, if a policy is given."""
ETCD_OWNER = "ps -o user= -C etcd"
SECTIONS: dict[str, dict[str, Any]] = {
    "rke2": {
        "profile": "cis",
        "audit": "metadata",
        "etcd_snapshots": {"schedule": "0 */6 * * *", "keep": 10},
        "registry_mirror": "mirror.example.org:5000/all",
        "registries": {"docker.io": {"endpoints": ["https://hub.example.org"], "rewrite": {"^rancher/(.*)": "mirrored/$1"}}},
        "registry_fallback": False,
        "kubelet_args": {"topology-manager-policy": "best-effort"},
        "kubelet_config": {"topologyManagerScope": "pod"},
    },
    "nodes": {
        "labels": {"site/rack": "r1"},
        "taints": ["site/batch=only:NoSchedule"],
        "overrides": {"n001": {"labels": {"site/rack": "r7"}}},
    },
}
"""Further keys of a spec's `rke2`, and of its group of agents."""


def assert_files(server: Host, agent: Host) -> None:
    """Check the files that the role wrote on a server and on an agent."""
    config, joined = (yaml.safe_load(host.run("cat", f"{RKE2_FILES}/config.yaml")) for host in (server, agent))
    assert config["profile"] == joined["profile"] == "cis"
    assert config["kubelet-arg"] == joined["kubelet-arg"] == ["max-pods=110", "topology-manager-policy=best-effort"]
    assert (config["etcd-snapshot-schedule-cron"], config["etcd-snapshot-retention"]) == ("0 */6 * * *", 10)
    assert config["disable-default-registry-endpoint"] is True
    assert "etcd-snapshot-schedule-cron" not in joined, "an agent has no etcd"
    assert joined["node-label"] == ["bringup/group=nodes", "site/rack=r7"]
    assert joined["node-taint"] == ["site/batch=only:NoSchedule"]
    for host in (server, agent):
        assert yaml.safe_load(host.run("cat", f"{RKE2_FILES}/registries.yaml"))["mirrors"] == {
            "*": {"endpoint": ["https://mirror.example.org:5000/v2/all"]},
            "docker.io": {"endpoint": ["https://hub.example.org"], "rewrite": {"^rancher/(.*)": "mirrored/$1"}},
        }
        drop_in = yaml.safe_load(host.run("cat", "/var/lib/rancher/rke2/agent/etc/kubelet.conf.d/90-bringup.conf"))
        assert drop_in["topologyManagerScope"] == "pod"
    assert server.run("stat", "--format=%a", f"{RKE2_FILES}/config.yaml", f"{RKE2_FILES}/audit-policy.yaml").split() == ["600"] * 2
    assert "audit-policy.yaml" not in agent.run("ls", RKE2_FILES)


def assert_guarded(server: Host) -> None:
    """Check the settings on the real etcd and API server: etcd does not run as root, Secrets are encrypted in etcd, and the audit
    log says who created a Secret, not what is in it."""
    assert server.run("sh", "-c", ETCD_OWNER).split() == ["etcd"]
    kubectl(server, "create", "secret", "generic", "one", "--from-literal=word=canary-71")
    assert stored(server, "one").startswith(b"k8s:enc:aescbc:v1:")
    read = json.loads(kubectl(server, "get", "secret", "one", "-o=json"))
    assert base64.b64decode(read["data"]["word"]) == b"canary-71"
    lines = [json.loads(line) for line in server.run("cat", AUDIT_LOG).splitlines()]
    made = [line for line in lines if (line["verb"], line.get("objectRef", {}).get("name")) == ("create", "one")]
    assert [(line["level"], line["stage"], line["user"]["username"]) for line in made] == [
        ("Metadata", "ResponseComplete", "admin")
    ]
    assert read["data"]["word"] not in str(lines)


def assert_registered(server: Host) -> None:
    """The agent's Node, as the real API server has it from what its host's configuration says."""
    node = json.loads(kubectl(server, "get", "node", "n001", "-o=json"))
    assert {key: node["metadata"]["labels"].get(key) for key in ("site/rack", "bringup/group")} == {
        "site/rack": "r7",
        "bringup/group": "nodes",
    }
    assert node["spec"]["taints"] == [{"key": "site/batch", "value": "only", "effect": "NoSchedule"}]


def kubectl(server: Host, *words: str) -> str:
    """Run the real kubectl on a server and return its output."""
    return server.run(*KUBECTL, *words)


def stored(server: Host, name: str) -> bytes:
    """A Secret as etcd itself holds it."""
    key = base64.b64encode(f"/registry/secrets/default/{name}".encode()).decode()
    asked = urllib.request.Request(f"http://{server.address}:2379/v3/kv/range", json.dumps({"key": key}).encode())
    with urllib.request.urlopen(asked, timeout=5) as answer:
        return base64.b64decode(json.load(answer)["kvs"][0]["value"])
