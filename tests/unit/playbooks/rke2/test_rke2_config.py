"""Settings and files that the module rke2_config refuses before it writes anything."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.playbooks.library import loaded

THERE = "# Made by bringup.\ncluster-cidr: 10.42.0.0/16\ncni:\n-   canal\ndisable-kube-proxy: false\nservice-cidr: '10.43.0.0/16'\n"


@pytest.fixture
def module() -> Any:
    """The module, loaded from where Ansible finds it."""
    return loaded("rke2_config")


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
    with pytest.raises(module.ConfigConflict, match=said):
        module.check_fixed(config, THERE)


@pytest.mark.parametrize("there", ["cni: cilium\n", "token: x\ncni:\n- multus\n- cilium\ntls-san:\n- a\n", 'cni: "cilium"\n'])
def test_a_network_plugin_is_known_however_it_was_written(module: Any, there: str) -> None:
    module.check_fixed({"cni": ["cilium"]}, there)
    with pytest.raises(module.ConfigConflict, match="founded with cilium"):
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
        ("50-site.yaml", "token: abc\n", "50-site.yaml: token: the token lies in /etc/rancher/rke2/token .token-file., and"),
        ("50-site.yaml", "t: abc\n", "50-site.yaml: token: the token lies in"),
        ("50-site.yaml", "agent-token: abc\n", "50-site.yaml: agent-token: agents would need another token.*; remove it"),
        ("50-site.yaml", "agent-token: |\n  abc\n", "50-site.yaml: agent-token: agents would need another token"),
        ("50-site.yaml", "agent-token-file: /etc/agent\n", "50-site.yaml: agent-token-file: agents would need another token"),
        ("50-site.yaml", "datastore-endpoint: etcd\n", "50-site.yaml: datastore-endpoint: the cluster's data lies in an etcd"),
        ("50-site.yaml", "disable-etcd: true\n", "50-site.yaml: disable-etcd: the cluster's data lies in an etcd"),
        ("50-site.yaml", "disable-apiserver: true\n", "50-site.yaml: disable-apiserver: a server counts as ready once its own API"),
        ("50-site.yaml", "bind-address: 192.0.2.1\n", "50-site.yaml: bind-address: a host is asked at 127.0.0.1"),
        ("50-site.yaml", "o: /root/kubeconfig\n", "50-site.yaml: write-kubeconfig: a server's kubeconfig is read from"),
        ("50-site.yaml", "with-node-id: true\n", "50-site.yaml: with-node-id: nodes are known by the names of their hosts"),
        ("50-site.yaml", "server: https://192.0.2.9:9345\n", "50-site.yaml sets server, and would win over config.yaml"),
        ("50-site.yaml", "private-registry: /etc/r.yaml\n", "50-site.yaml: private-registry: RKE2 would not read /etc/rancher"),
        ("50-site.yaml", "{cni: none\n", "50-site.yaml cannot be read .it is no JSON.*write one key a line there"),
        ("50-site.yaml", "x: *all\ncni: none\n", "50-site.yaml cannot be read .line 1."),
    ],
)
def test_a_drop_in_that_would_undo_what_is_written_is_refused(module: Any, tmp_path: Path, name: str, text: str, said: str) -> None:
    config = {"cni": ["canal"], "tls-san": ["a"], "node-ip": "192.0.2.1", "token-file": "/etc/rancher/rke2/token"}
    paths = ["/etc/rancher/rke2/token", "/etc/rancher/rke2/registries.yaml"]
    (tmp_path / "10-debug.yaml").write_text("debug: true\ntls-san+: [b]\n")
    (tmp_path / "50-site.yaml.old").write_text("cni: none\n")
    module.check_drop_ins(config, paths, str(tmp_path))
    (tmp_path / name).write_text(text)
    with pytest.raises(module.ConfigConflict, match=said):
        module.check_drop_ins(config, paths, str(tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        "data-dir: /var/lib/rancher/rke2\nwrite-kubeconfig: '/etc/rancher/rke2/rke2.yaml'\n",
        "cluster-reset: false\ndisable-etcd: False\ndisable-apiserver: false\nwith-node-id: false\n",
        "private-registry: /etc/rancher/rke2/registries.yaml\n",
        "etcd-expose-metrics: true\nadvertise-address: 192.0.2.7\nnode-external-ip: 198.51.100.7\n",
    ],
    ids=["places that RKE2 takes anyway", "switches that are off", "our registries", "what hinders nobody"],
)
def test_a_drop_in_that_says_what_holds_anyway_is_let_be(module: Any, tmp_path: Path, text: str) -> None:
    (tmp_path / "50-site.yaml").write_text(text)
    module.check_drop_ins({"cni": ["canal"]}, ["/etc/rancher/rke2/registries.yaml"], str(tmp_path))


def test_registries_of_the_site_lie_where_it_says_as_long_as_the_spec_has_none(module: Any, tmp_path: Path) -> None:
    (tmp_path / "50-site.yaml").write_text("private-registry: /etc/r.yaml\n")
    module.check_drop_ins({}, ["/etc/rancher/rke2/token"], str(tmp_path))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"agent-token": "abc"}, "config.yaml: agent-token: agents would need another token than servers"),
        ({"disable-etcd": True}, "config.yaml: disable-etcd: the cluster's data lies in an etcd"),
        ({"token": "abc"}, "config.yaml: token: the token lies in /etc/rancher/rke2/token"),
        ({"cluster-init": True}, "config.yaml: cluster-init: RKE2 has no such key"),
        ({"cni": ["canal", "multus"]}, "config.yaml: cni: multus must stand first"),
    ],
)
def test_keys_that_nobody_may_set_are_refused_in_config_yaml_too(module: Any, config: dict[str, Any], said: str) -> None:
    fine = {"server": "https://192.0.2.1:9345", "cluster-reset": False, "cni": ["canal"]}
    module.check(fine, [])
    with pytest.raises(module.ConfigConflict, match=said):
        module.check(fine | config, [])


def entry(path: str, content: str = "# Made by bringup.\na: 1\n", *, absent: bool = False) -> dict[str, Any]:
    """A file as the role gives it."""
    return {"path": path, "content": content, "mode": "0600", "restart": True, "absent": absent}


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        (
            "HTTPS_PROXY=http://192.0.2.9:3128\n",
            "/etc/sysconfig/rke2-agent sets HTTPS_PROXY, and is read after /etc/default/rke2-agent",
        ),
        (' NO_PROXY=".old"\n', "/etc/sysconfig/rke2-agent sets NO_PROXY"),
        ('HTTPS_PROXY="http://192.0.2.5:3128"\n', ""),
        ("# HTTPS_PROXY=http://192.0.2.9:3128\nGOGC='50'\n", ""),
        ("", ""),
    ],
)
def test_a_later_environment_file_that_would_win_is_refused(module: Any, tmp_path: Path, theirs: str, said: str) -> None:
    ours = entry("/etc/default/rke2-agent", "# Made by bringup.\nHTTPS_PROXY=http://192.0.2.5:3128\nNO_PROXY=.site\n")
    (tmp_path / "etc/sysconfig").mkdir(parents=True)
    (tmp_path / "etc/sysconfig/rke2-agent").write_text(theirs)
    module.check_environment([ours | {"absent": True}], str(tmp_path))
    if not said:
        return module.check_environment([ours], str(tmp_path))
    with pytest.raises(module.ConfigConflict, match=said):
        module.check_environment([ours], str(tmp_path))
    return None


def test_a_file_of_the_site_is_kept_aside_once_and_told(module: Any, tmp_path: Path) -> None:
    root = str(tmp_path)
    config, registries = "/etc/rancher/rke2/config.yaml", "/etc/rancher/rke2/registries.yaml"
    default, token = "/etc/default/rke2-agent", "/etc/rancher/rke2/token"
    manifest = "/var/lib/rancher/rke2/agent/pod-manifests/kube-vip.yaml"
    there = {
        config: "node-name: golden\n",
        registries: "# Made by bringup.\n",
        default: "A=1\n",
        token: "x\n",
        manifest: "kind: Pod\n",
    }
    for path, text in there.items():
        (tmp_path / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path[1:]).write_text(text)
    (tmp_path / default[1:]).chmod(0o640)
    wanted = [entry(config), entry(registries), entry(default), entry(token, "y\n"), entry(manifest), entry("/etc/new")]
    found = module.of_the_site([*wanted, entry("/etc/default/rke2-agent", absent=True)], root)
    assert found == [config, default, manifest], "a token is one, whoever wrote it"

    kept = [module.site_backups.back_up(path, root) for path in found]
    assert kept == [
        "/etc/rancher/rke2.before-bringup/config.yaml",
        "/etc/default/rke2-agent.before-bringup",
        "/var/lib/rancher/rke2.before-bringup/agent/pod-manifests/kube-vip.yaml",
    ]
    assert [module.site_backups.back_up(path, root) for path in found] == kept, "a run that was killed before ours were written"
    assert [(tmp_path / path[1:]).read_text() for path in kept] == [there[path] for path in found]
    assert (tmp_path / kept[1][1:]).stat().st_mode & 0o777 == 0o640
    (tmp_path / config[1:]).write_text("node-name: another\n")
    assert module.site_backups.back_up(config, root) == kept[0] + "-2", "what was kept first stays"
    assert module.site_backups.backups(root) == sorted([*kept, kept[0] + "-2"])


def test_a_first_start_that_founded_nothing_binds_no_server(module: Any, tmp_path: Path) -> None:
    config, etcd = tmp_path / "config.yaml", tmp_path / "etcd"
    etcd.mkdir()
    for name in ("name", "config"):  # which RKE2 writes before etcd runs
        (etcd / name).touch()
    config.write_text(THERE)
    assert not module.is_of_a_cluster(str(etcd / "member"), str(config))
    config.write_text(THERE + "server: https://10.9.0.9:9345\n")
    assert module.is_of_a_cluster(str(etcd / "member"), str(config)), "the cluster that it joins is there"
    config.write_text(THERE)
    (etcd / "member").mkdir()
    assert module.is_of_a_cluster(str(etcd / "member"), str(config))
