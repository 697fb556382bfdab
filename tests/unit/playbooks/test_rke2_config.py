"""What the module rke2_config refuses before it writes anything."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

PATH = Path(__file__).parents[3] / "playbooks" / "library" / "rke2_config.py"
THERE = "# Made by bringup.\ncluster-cidr: 10.42.0.0/16\ncni:\n-   canal\ndisable-kube-proxy: false\nservice-cidr: '10.43.0.0/16'\n"


@pytest.fixture
def module() -> Any:
    """The module, loaded from where Ansible finds it."""
    found = importlib.util.spec_from_file_location("rke2_config", PATH)
    assert found is not None
    assert found.loader is not None
    loaded = importlib.util.module_from_spec(found)
    found.loader.exec_module(loaded)
    return loaded


@pytest.mark.parametrize(
    "config",
    [
        {"cluster-cidr": "10.42.0.0/16", "service-cidr": "10.43.0.0/16", "disable-kube-proxy": False},
        {"cluster-domain": "site.example.org", "cni": ["multus", "canal"]},
        {"cluster-domain": "site.example.org"},
    ],
)
def test_what_a_cluster_was_founded_with_may_be_said_again(module: Any, config: dict[str, Any]) -> None:
    module.check_fixed(config, THERE)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"cluster-cidr": "10.44.0.0/14"}, "cluster-cidr: the cluster was founded with 10.42.0.0/16"),
        ({"service-cidr": "10.45.0.0/16"}, "service-cidr: the cluster was founded with 10.43.0.0/16"),
        ({"disable-kube-proxy": True}, "disable-kube-proxy: the cluster was founded with false"),
        ({"cni": ["cilium"]}, "cni: the cluster was founded with canal, and RKE2 changes no cluster's plugin"),
        ({"cni": ["multus", "calico"]}, "cni: the cluster was founded with canal"),
    ],
)
def test_a_server_that_would_not_start_again_is_left_as_it_is(module: Any, config: dict[str, Any], said: str) -> None:
    with pytest.raises(module.Conflict, match=said):
        module.check_fixed(config, THERE)


@pytest.mark.parametrize("there", ["cni: cilium\n", "token: x\ncni:\n- multus\n- cilium\ntls-san:\n- a\n", 'cni: "cilium"\n'])
def test_a_network_plugin_is_known_however_it_was_written(module: Any, there: str) -> None:
    module.check_fixed({"cni": ["cilium"]}, there)
    with pytest.raises(module.Conflict, match="founded with cilium"):
        module.check_fixed({"cni": ["canal"]}, there)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("50-site.yaml", "data-dir: /data/rke2\n", "50-site.yaml: data-dir: RKE2's data lies in /var/lib/rancher/rke2"),
        ("50-site.yaml", "cluster-reset: true\n", "50-site.yaml: cluster-reset: it would make a cluster of one server"),
        ("50-site.yaml", "cni: none\n", "50-site.yaml sets cni, and would win over config.yaml"),
        ("50-site.YML", "cni: none\n", "50-site.YML sets cni"),
        (".hidden.yml", "  'cni': none\n", "hidden.yml sets cni"),
        ("50-rancher.yaml", '{\n  "node-label": ["a=b"],\n  "cni": "calico"\n}\n', "50-rancher.yaml sets cni"),
        ("50-site.yaml", "cni+: [multus]\n", r"50-site.yaml sets cni\+"),
        ("50-site.yaml", "node-ip+: 192.0.2.7\n", r"50-site.yaml sets node-ip\+"),
        ("50-site.yaml", "d: /data/rke2\n", "50-site.yaml: data-dir: RKE2's data lies in"),
        ("50-site.yaml", "token: abc\n", "50-site.yaml sets token, and config.yaml token-file, which exclude each other"),
        ("50-site.yaml", "{cni: none}\n", "50-site.yaml cannot be read .it is no JSON.*write one key a line there"),
        ("50-site.yaml", "&all cni: none\n", "50-site.yaml cannot be read .line 1."),
    ],
)
def test_a_drop_in_that_would_undo_what_is_written_is_refused(module: Any, tmp_path: Path, name: str, text: str, said: str) -> None:
    config = {"cni": ["canal"], "tls-san": ["a"], "node-ip": "192.0.2.1", "token-file": "/etc/rancher/rke2/token"}
    (tmp_path / "10-debug.yaml").write_text("debug: true\ntls-san+: [b]\n")
    (tmp_path / "50-site.yaml.old").write_text("cni: none\n")
    module.check_drop_ins(config, str(tmp_path))
    (tmp_path / name).write_text(text)
    with pytest.raises(module.Conflict, match=said):
        module.check_drop_ins(config, str(tmp_path))
