"""An inventory becomes a spec that loads; what has no place in it is said; and a spec's inventory gives the same machines again."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from steps.contract.host_play import PYTHON
from workflows import examples
from workflows.app import inventory_import
from workflows.inventory import ansible_inventory, inventory_export, spec_conversion
from workflows.inventory.model import BadInventory, Inventory
from workflows.inventory.spec_conversion import ConversionOptions, convert
from workflows.spec import ClusterSpec, SpecErrors, load


def inventory(groups: Mapping[str, list[str]], **variables: Mapping[str, Any]) -> Inventory:
    """Groups with their hosts; variables by host, `_` for all."""
    common = dict(variables.pop("_", {}))
    hosts = dict.fromkeys(host for members in groups.values() for host in members)
    return Inventory(
        hosts={host: common | dict(variables.get(host, {})) for host in hosts},
        groups={name: tuple(members) for name, members in groups.items()},
    )


def spec_of(found: Inventory, **choice: Any) -> tuple[ClusterSpec, str]:
    """The spec that is written, loaded again, and all notes."""
    made = convert(found, ConversionOptions(name="test", **choice))
    return load(spec_conversion.render_spec(made, "hosts")), "\n".join(made.notes)


def test_hosts_are_folded_and_servers_recognised() -> None:
    gpus = [f"gpu{number:03d}" for number in range(1, 17)]
    addresses = {host: {"ansible_host": f"10.0.1.{number}"} for number, host in enumerate(gpus, 1)}
    spec, notes = spec_of(inventory({"kube_control_plane": ["sv1"], "gpu": gpus, "etcd": ["sv1"]}, **addresses))

    assert spec.hosts["kube_control_plane"].role == "server"
    assert spec.hosts["gpu"].ranges == ("gpu[001-016]",)
    assert spec.hosts["gpu"].addresses.start == "10.0.1.1"
    assert "add accelerator" in notes
    assert "etcd" not in notes, "its hosts are all in the spec"


@pytest.mark.parametrize("name", ["servers", "masters", "control-plane", "rke2_servers", "kube_control_plane", "kube-master"])
def test_usual_names_of_servers(name: str) -> None:
    spec, _ = spec_of(inventory({"workers": ["w1", "w2"], name: ["s1"]}))

    assert [machine.name for machine in spec.servers] == ["s1"]


def test_servers_that_nobody_can_tell_are_asked_for() -> None:
    found = inventory({"blue": ["b1"], "green": ["g1", "g2"]})

    with pytest.raises(BadInventory, match="no group") as refused:
        convert(found, ConversionOptions(name="x"))
    assert "--servers GROUP" in refused.value.hint
    assert "blue (1), green (2)" in refused.value.hint
    assert [machine.name for machine in spec_of(found, servers="blue")[0].servers] == ["b1"]
    with pytest.raises(BadInventory, match="2 hosts, but 1, 3 or 5"):
        convert(found, ConversionOptions(name="x", servers="green"))
    with pytest.raises(BadInventory, match="no group red"):
        convert(found, ConversionOptions(name="x", servers="red"))


def test_a_group_that_is_empty_says_who_was_left_out() -> None:
    found = inventory({"masters": ["S1", "S2", "s3"], "nodes": ["n1"]}, s3={"ansible_connection": "local"})

    with pytest.raises(BadInventory, match="group masters has 0 hosts") as refused:
        convert(found, ConversionOptions(name="x"))
    assert "(left out: host S[1-2]: a node's name has lower-case letters" in str(refused.value)
    assert "; host s3: reached without SSH)" in str(refused.value)
    assert refused.value.hint == "name a group of 1, 3 or 5 hosts: --servers GROUP"
    with pytest.raises(BadInventory, match=r"no host that could be a node \(left out: host A1: a node's name"):
        convert(inventory({"masters": ["A1"]}), ConversionOptions(name="x"))


def test_users_ports_and_jump_hosts() -> None:
    found = inventory(
        {"masters": ["s1"], "far": ["f1", "f2"], "near": ["n1"]},
        _={"ansible_user": "ops", "ansible_ssh_private_key_file": "keys/id"},
        f1={"ansible_ssh_common_args": "-o ProxyJump=ops@b1:2222,ops@b2", "ansible_port": "2022"},
        f2={"ansible_ssh_common_args": '-o ProxyCommand="ssh -W %h:%p -q ops@b1"', "ansible_user": "root"},
    )
    spec, notes = spec_of(found, folder="/srv/inventory")

    assert spec.ssh.user == "ops"
    assert spec.ssh.key is not None
    assert spec.ssh.key.file == "/srv/inventory/keys/id"
    assert spec.ssh.jump_host is None
    assert spec.hosts["far"].jump_host == "ops@b1:2222,ops@b2"
    assert spec.hosts["far"].overrides["f1"].ssh_port == 2022
    assert spec.hosts["far"].overrides["f2"].ssh_user == "root"
    assert "jump host of f2: not ops@b1:2222,ops@b2" in notes


def test_the_place_of_python() -> None:
    python = "ansible_python_interpreter"
    found = inventory(
        {"masters": ["s1", "s2", "s3"], "far": ["f1", "f2", "f3", "f4"]},
        s1={python: "auto_silent"},
        s2={python: "/usr/bin/python3"},
        f1={python: "/opt/py/bin/python"},
        f2={python: "/opt/py/bin/python"},
        f3={python: "python3.12"},
        f4={python: "{{ venv }}/bin/python"},
    )
    spec, notes = spec_of(found)

    assert spec.hosts["masters"].python is None
    places = {machine.name: machine.python for machine in spec.machines}
    assert places == {
        **dict.fromkeys(("s1", "s2", "s3"), ""),
        **dict.fromkeys(("f1", "f2"), "/opt/py/bin/python"),
        **dict.fromkeys(("f3", "f4"), "/usr/bin/python3"),
    }
    assert "ansible_python_interpreter of f3: a spec has no python of this form" in notes
    assert "ansible_python_interpreter of f4: it is a template" in notes


@pytest.mark.parametrize(
    ("variables", "jump", "proxy"),
    [
        ({"ansible_ssh_common_args": "-o ProxyJump=none"}, None, None),
        ({"ansible_ssh_common_args": "-o ProxyCommand=none -J late@b2"}, None, None),
        ({"ansible_ssh_common_args": "-o ProxyJump=first@b1 -o ProxyJump=late@b2"}, "first@b1", None),
        ({"ansible_ssh_args": "-J first@b1", "ansible_ssh_common_args": "-J late@b2"}, "first@b1", None),
        (
            {"ansible_ssh_args": "-J first@b1", "ansible_ssh_common_args": "-o 'ProxyCommand=connect -H p:1 %h %p'"},
            "first@b1",
            None,
        ),
        ({"ansible_ssh_common_args": "-vC -F /dev/null -J first@b1"}, "first@b1", None),
        ({"ansible_ssh_common_args": "-J ops@b1:65536"}, None, None),
    ],
)
def test_of_several_ways_to_a_host_the_first_holds_as_for_ssh(
    variables: dict[str, str], jump: str | None, proxy: str | None
) -> None:
    spec, _ = spec_of(inventory({"masters": ["s1"]}, s1=variables))
    assert (spec.ssh.jump_host, spec.ssh.http_proxy) == (jump, proxy)


@pytest.mark.parametrize("plugin", ["ssh", "paramiko_ssh", "ansible.builtin.paramiko_ssh", "ansible.netcommon.libssh", None, ""])
def test_every_plugin_that_speaks_ssh_reaches_a_node(plugin: str | None) -> None:
    spec, _ = spec_of(inventory({"masters": ["s1"]}, s1={"ansible_connection": plugin}))
    assert [machine.name for machine in spec.machines] == ["s1"]


def test_a_fleet_with_many_holes_has_ranges_as_long_as_a_spec_takes() -> None:
    odd = [f"gpu{number:05d}" for number in range(1, 8000, 2)]
    spec, _ = spec_of(inventory({"masters": ["s1"], "gpu": odd}))
    assert sorted(machine.name for machine in spec.machines if machine.role == "agent") == odd
    assert max(map(len, spec.hosts["gpu"].ranges)) <= 4000


def test_a_domain_that_a_spec_does_not_take_is_part_of_each_address() -> None:
    spec, _ = spec_of(inventory({"masters": ["s1"]}, s1={"ansible_host": "s1.CORP.example"}))
    assert [machine.address for machine in spec.machines] == ["s1.CORP.example"]


def test_one_jump_host_of_all() -> None:
    spec, _ = spec_of(inventory({"masters": ["s1"], "near": ["n1"]}, _={"ansible_ssh_common_args": "-J ops@bastion"}))

    assert spec.ssh.jump_host == "ops@bastion"


@pytest.mark.parametrize(
    ("command", "url"),
    [
        ("nc -X connect -x p1:3128 %h %p", "http://p1:3128"),
        ("/usr/bin/nc.openbsd -x [2001:db8::1]:8080 -X connect -P ops %h %p", "http://[2001:db8::1]:8080"),
        ("ncat --proxy p1:3128 --proxy-type http %h %p", "http://p1:3128"),
        ("connect-proxy -H p1:3128 %h %p", "http://p1:3128"),
        ("corkscrew p1 3128 %h %p", "http://p1:3128"),
        ("nc -X 5 -x p1:1080 %h %p", None),
        ("nc -x p1:1080 %h %p", None),
        ("ncat --proxy p1:3128 --proxy-auth ops:canary-77 %h %p", None),
        ("corkscrew p1 3128 %h %p /home/ops/login", None),
        ("nc -X connect -x p1:99999999 %h %p", None),
        ("nc", None),
    ],
)
def test_an_http_proxy_before_ssh(command: str, url: str | None) -> None:
    arguments = {"ansible_ssh_common_args": f"-o 'ProxyCommand={command}'"}
    found = inventory({"masters": ["s1"], "far": ["f1"]}, s1=arguments, f1=arguments)
    spec, notes = spec_of(found)
    assert spec.ssh.http_proxy == url
    assert ("SSH option proxycommand" in notes) == (url is None)
    assert ("its user ops: a login is given as ssh: {http_proxy_user: NAME" in notes) == ("-P" in command)
    assert "canary-77" not in notes


def test_a_group_with_an_http_proxy_of_its_own() -> None:
    proxied = {"ansible_ssh_common_args": "-o 'ProxyCommand=nc -X connect -x p1:3128 %h %p'"}
    spec, notes = spec_of(inventory({"masters": ["s1"], "far": ["f1", "f2", "f3"]}, f1=proxied, f2=proxied))
    assert (spec.ssh.http_proxy, spec.hosts["far"].http_proxy) == (None, "http://p1:3128")
    assert "http proxy of f3: not http://p1:3128" in notes


def test_an_inventory_goes_through_the_proxy_where_no_jump_host_stands_behind_it() -> None:
    site = SITE.replace(", jump_host: ops@b0", ", http_proxy_user: site, http_proxy_password: {file: /keys/pw}")
    every = inventory_export.export_inventory(load(site), Path("/srv"))["all"]
    assert "'ProxyCommand=nc -X connect -x p0:3128 -P site %h %p'" in every["vars"]["ansible_ssh_common_args"]
    behind = every["children"]["gpu_a"]["hosts"]["rack01-gpu1"]
    assert behind["ansible_ssh_common_args"].endswith("-o ProxyJump=ops@b1,ops@b2:2222")
    assert every["children"]["gpu_b"]["hosts"]["b7"]["bringup_ssh_proxy"] == "http://[2001:db8::1]:8080"
    assert "/keys/pw" not in json.dumps(every)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"ansible_become_password": "canary-77"}, "secrets are given by reference"),
        ({"ansible_password": "canary-77"}, "logs in by key"),
        ({"ansible_host": "{{ lookup('pipe', 'canary-77') }}"}, "template, which is never evaluated"),
        ({"ansible_user": "-oProxyCommand=canary-77"}, "a spec has no user of this form"),
        ({"ansible_port": "99999"}, "it is no port"),
        ({"ansible_ssh_common_args": "-o StrictHostKeyChecking=no"}, "host keys are verified"),
        ({"ansible_ssh_common_args": "-o 'ProxyCommand=nc %h %p; canary-77'"}, "SSH option proxycommand"),
        ({"ansible_ssh_common_args": "-o 'open"}, "with an open quote"),
        (
            {"ansible_ssh_common_args": "-o ProxyCommand=ncat --proxy p:1 --proxy-auth=canary-77 canary-77"},
            "does a value need quotes?",
        ),
        ({"ansible_ssh_common_args": "-o ProxyCommand=ncat -pcanary-77 -F canary-77"}, "the SSH option -F"),
        ({"ansible_ssh_common_args": "-o IdentityFile={{canary-77}}"}, "template, which is never evaluated"),
        ({"ansible_ssh_common_args": "{{ bastion_args }}"}, "template, which is never evaluated"),
        ({"ansible_ssh_common_args": {"__ansible_vault": "canary-77"}}, "encrypted"),
        ({"ansible_python_interpreter": "python3.12"}, "a spec has no python of this form"),
        ({"ansible_host": {"__ansible_vault": "canary-77"}}, "encrypted"),
        ({"license": "canary-77"}, "variables license"),
        ({"bringup_rack": 1.1}, "bringup_rack of s1 is 1.1, no name of a place"),
        ({"bringup_leaf": "{{ canary-77 }}"}, "bringup_leaf of s1 is no name of a place"),
    ],
)
def test_what_has_no_place_is_said_and_never_shown(variables: Mapping[str, Any], said: str) -> None:
    made = convert(inventory({"masters": ["s1"]}, s1=variables), ConversionOptions(name="x"))

    assert said in "\n".join(made.notes)
    assert "canary-77" not in spec_conversion.render_spec(made, "hosts")


def test_hosts_that_are_no_nodes_are_left_out_by_name() -> None:
    found = inventory(
        {"masters": ["s1"], "bastion": ["door"], "other": ["localhost", "GPU_1", "c1"]},
        localhost={"ansible_connection": "local"},
        c1={"ansible_connection": "docker"},
    )
    spec, notes = spec_of(found)

    assert [machine.name for machine in spec.machines] == ["s1"]
    assert "host c1,localhost: reached without SSH" in notes
    assert "host door: it is a jump host" in notes
    assert "host GPU_1: a node's name" in notes
    assert "in a spec each host stands in one group" not in notes, "that is not why they are missing"


def test_several_servers_need_an_address_in_front() -> None:
    groups = {"masters": ["s1", "s2", "s3"]}
    spec, notes = spec_of(inventory(groups, s1={"rke2_api_ip": "10.0.0.10"}))
    assert (spec.rke2.registration_address, notes) == (
        "10.0.0.10",
        "no ansible_user: bringup logs in as root, where ssh: {user: NAME} says nothing else",
    )
    spec, notes = spec_of(inventory(groups))
    assert spec.rke2.registration_address == "s1"
    assert "rke2.registration_address" in notes


def test_groups_that_overlap_are_chosen_or_named() -> None:
    found = inventory({"masters": ["s1"], "rack1": ["g1", "c1"], "gpu": ["g1", "g2"], "cpu": ["c1", "c2"]})
    spec, notes = spec_of(found)
    assert {name: group.names() for name, group in spec.hosts.items()} == {
        "masters": ("s1",),
        "gpu": ("g1", "g2"),
        "cpu": ("c1", "c2"),
    }
    assert "groups rack1: in a spec each host stands in one group" in notes
    spec, notes = spec_of(found, groups=("rack1", "gpu"))
    assert {name: group.names() for name, group in spec.hosts.items()} == {
        "masters": ("s1",),
        "rack1": ("c1", "g1"),
        "gpu": ("g2",),
    }
    assert "hosts c2: in none of the groups rack1, gpu" in notes


SITE = """apiVersion: bringup/v1
kind: Cluster
name: site
owner: tests@example.org
revision: "1"
hosts:
  heads: {role: server, ranges: "sv[1-3]", addresses: {dns_suffix: example.org}}
  gpu_a:
    role: agent
    gpu: true
    ranges: rack[01-02]-gpu[1-4]
    addresses: {pattern: "10.1.{1}.{2}"}
    topology: {rack: "rack{1}"}
    jump_host: ops@b1,ops@b2:2222
    overrides: {rack01-gpu2: {ssh_user: root, ssh_port: 2022}, rack02-gpu4: {gpus: 0}}
  gpu_b:
    role: agent
    ranges: [b7, "a[1-2]"]
    http_proxy: "http://[2001:db8::1]:8080"
    python: /opt/python3.11/bin/python
    overrides: {a2: {python: /usr/bin/python3}}
ssh: {user: ops, key: {file: "/keys/my id"}, known_hosts: "/keys/known hosts", jump_host: ops@b0, http_proxy: "http://p0:3128"}
rke2: {registration_address: 10.0.0.1}
accelerator: {product: H100, per_node: 4, driver: host, driver_version: "580.10"}
"""


EXAMPLE = examples.path("h200-16").read_text()
OLDER = """  older:
    role: agent
    ranges: old[1-2]
    gpu: true
    addresses: {start: 10.10.2.1}
    accelerator: {product: A100-80GB, per_node: 4}
"""
TWO_PRODUCTS = EXAMPLE.replace("\nssh:\n", f"{OLDER}\nssh:\n")


@pytest.mark.parametrize("form", ["yaml", "ini", "json"])
@pytest.mark.parametrize("source", [SITE, EXAMPLE, TWO_PRODUCTS], ids=["site", "h200-16", "two-products"])
def test_an_inventory_of_a_spec_gives_the_same_machines_again(source: str, form: Any, tmp_path: Path) -> None:
    before = load(source)
    (tmp_path / "site").write_text(inventory_export.render_inventory(inventory_export.export_inventory(before, tmp_path), form))

    list(inventory_import.import_inventory(tmp_path / "site", tmp_path / "cluster.yaml", "", (), None))
    after = load(tmp_path / "cluster.yaml")

    def plain(spec: ClusterSpec) -> set[tuple[Any, ...]]:
        return {
            (
                machine.name,
                machine.group,
                machine.role,
                machine.address,
                machine.ssh_user or spec.ssh.user,
                machine.ssh_port or spec.ssh.port,
                machine.ssh_jump or spec.ssh.jump_host,
                machine.ssh_http_proxy or spec.ssh.http_proxy,
                machine.python or PYTHON,
                machine.gpu,
                machine.gpus,
                machine.product,
                machine.rack,
                machine.leaf,
                machine.scalable_unit,
            )
            for machine in spec.machines
        }

    assert plain(after) == plain(before)
    assert after.accelerator == before.accelerator
    assert (after.ssh.known_hosts or "").rpartition("/")[2] == (before.ssh.known_hosts or "").rpartition("/")[2]
    assert after.ssh.key is not None
    assert after.rke2.registration_address == before.rke2.registration_address


@pytest.mark.parametrize("rack", ["0x10", "1e5", "[1]", "True", "007", "it's # 1", "{}"])
def test_a_text_stays_one_in_every_form(tmp_path: Path, rack: str) -> None:
    spec = load(
        SITE.replace('topology: {rack: "rack{1}"}', f"overrides: {{rack01-gpu1: {{rack: {json.dumps(rack)}}}}}", 1).replace(
            "    overrides: {rack01-gpu2: {ssh_user: root, ssh_port: 2022}, rack02-gpu4: {gpus: 0}}\n", ""
        )
    )
    (tmp_path / "hosts").write_text(inventory_export.render_inventory(inventory_export.export_inventory(spec, tmp_path), "ini"))

    assert ansible_inventory.read(tmp_path / "hosts").hosts["rack01-gpu1"]["bringup_rack"] == rack
    list(inventory_import.import_inventory(tmp_path / "hosts", tmp_path / "cluster.yaml", "", (), None))
    assert {machine.name: machine.rack for machine in load(tmp_path / "cluster.yaml").machines if machine.rack} == {
        "rack01-gpu1": rack
    }


def test_a_group_that_ansible_means_otherwise_is_refused() -> None:
    with pytest.raises(BadInventory, match=r"hosts\.all: Ansible has a group all of its own"):
        inventory_export.export_inventory(load(SITE.replace("heads:", "all:")), Path("/srv"))


@pytest.mark.parametrize(
    "said",
    [
        {"bringup_gpu": True},
        {"bringup_gpu": True, "bringup_gpu_product": "K80"},
        {"bringup_gpu": True, "bringup_gpu_product": "H100", "bringup_gpu_driver": "host"},
        {"bringup_gpu": "{{ x }}", "bringup_gpu_product": "H100"},
    ],
)
def test_gpus_that_variables_do_not_tell_wholly_are_left_to_the_user(said: dict[str, Any]) -> None:
    spec, notes = spec_of(inventory({"masters": ["s1"], "gpu": ["g1"]}, g1=said))
    assert (spec.accelerator, spec.hosts["gpu"].gpu) == (None, False)
    assert "GPUs of gpu: an inventory does not say which" in notes


def test_a_group_has_gpus_only_where_all_its_hosts_are_marked() -> None:
    marked = {"bringup_gpu": True, "bringup_gpu_product": "H200"}
    spec, _ = spec_of(inventory({"masters": ["s1"], "a": ["a1", "a2"], "b": ["b1"]}, a1=marked, b1=marked))
    assert [name for name, group in spec.hosts.items() if group.gpu] == ["b"]


def test_ten_thousand_hosts_are_no_long_file() -> None:
    gpus = [f"gpu{number:05d}" for number in range(10_000)]
    made = convert(inventory({"masters": ["s1"], "gpu": gpus}), ConversionOptions(name="big"))

    assert len(spec_conversion.render_spec(made, "hosts")) < 2000
    assert len(load(spec_conversion.render_spec(made, "hosts")).machines) == 10_001


def test_json_is_what_a_dynamic_inventory_prints() -> None:
    answer = json.loads(inventory_export.render_inventory(inventory_export.export_inventory(load(SITE), Path("/srv")), "json"))

    assert answer["rke2_agents"] == {"children": ["gpu_a", "gpu_b"]}
    assert answer["_meta"]["hostvars"]["sv1"] == {"ansible_host": "sv1.example.org"}
    assert (
        yaml.safe_load(inventory_export.render_inventory(inventory_export.export_inventory(load(SITE), Path("/srv")), "yaml"))[
            "all"
        ]["vars"]["ansible_become"]
        is True
    )


VALUES = st.one_of(
    st.text(max_size=30),
    st.integers(-5, 70_000),
    st.booleans(),
    st.none(),
    st.lists(st.text(max_size=3), max_size=2),
    st.dictionaries(st.text(max_size=3), st.one_of(st.text(max_size=3), st.booleans(), st.none()), max_size=2),
    st.sampled_from(
        ["-J a,b", "-o ProxyJump=x@y:22", "-o 'ProxyCommand=ssh -W %h:%p -p 22 j'", "{{ x }}", "10.0.0.1", "~/key", "o'p"]
    ),
)
NAMES = st.sampled_from(
    [
        *("ansible_host", "ansible_user", "ansible_port", "ansible_ssh_private_key_file", "ansible_ssh_common_args", "rke2_api_ip"),
        *("loadbalancer_apiserver", "apiserver_loadbalancer_domain_name", "opt_tls_san", "node_labels", "k8s_node_label", "ip"),
        "openhpc_nodegroups",
    ]
)


def problems(written: str) -> set[str]:
    """Return the problems that loading a spec reports; none if the spec loads."""
    try:
        load(written)
    except SpecErrors as refused:
        return {error.problem for error in refused.errors}
    return set()


@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.dictionaries(NAMES, VALUES, max_size=4), st.dictionaries(NAMES, VALUES, max_size=3))
def test_whatever_variables_hold_the_spec_loads(server: dict[str, Any], worker: dict[str, Any]) -> None:
    made = convert(
        inventory({"masters": ["s1"], "nodes": ["w1"]}, s1=server, w1=worker), ConversionOptions(name="x", folder="/srv")
    )

    assert problems(spec_conversion.render_spec(made, "hosts")) <= {"s1 and w1 have the same address"}


KUBESPRAY = {
    "kube_version": "1.33.1",
    "kube_pods_subnet": "10.233.64.0/18",
    "kube_service_addresses": "10.233.0.0/18",
    "kube_network_plugin": "calico",
    "upstream_dns_servers": ["8.8.8.8"],
}


def test_networks_and_plugin_of_kubespray_are_those_of_the_spec() -> None:
    spec, notes = spec_of(inventory({"kube_control_plane": ["n1"], "kube_node": ["n2", "n3"]}, _=KUBESPRAY))
    assert (spec.rke2.cluster_cidr, spec.rke2.service_cidr, spec.rke2.cni) == ("10.233.64.0/18", "10.233.0.0/18", ("calico",))
    assert "variable kube_version: RKE2 brings its own Kubernetes" in notes
    assert "upstream_dns_servers: write it as os: {dns: {servers: […]}}" in notes
    assert "kube_pods_subnet" not in notes


@pytest.mark.parametrize(
    ("changed", "note"),
    [
        ({"kube_pods_subnet": "10.233.64.0/24"}, "has no room for a /24 for each of 3 nodes"),
        ({"kube_pods_subnet": "fd00::/48"}, "kube_pods_subnet: it is no IPv4 network"),
        ({"kube_service_addresses": "{{ x }}"}, "kube_service_addresses: it is no IPv4 network"),
        ({"kube_network_plugin": "kube-ovn"}, "RKE2 has canal, calico, cilium, flannel only"),
    ],
)
def test_what_rke2_cannot_have_is_named(changed: dict[str, Any], note: str) -> None:
    _, notes = spec_of(inventory({"kube_control_plane": ["n1"], "kube_node": ["n2", "n3"]}, _=KUBESPRAY | changed))
    assert note in notes


SERVERS = {"kube_control_plane": ["n1", "n2", "n3"], "kube_node": ["n4", "n5"]}
BALANCER = {"address": "10.0.0.100", "port": 6443}


@pytest.mark.parametrize(
    ("variables", "front", "names", "note"),
    [
        ({"loadbalancer_apiserver": BALANCER}, "10.0.0.100", (), "must forward port 9345 too"),
        (
            {"loadbalancer_apiserver": BALANCER, "apiserver_loadbalancer_domain_name": "k8s.example.org"},
            "10.0.0.100",
            ("k8s.example.org",),
            "must forward port 9345 too",
        ),
        ({"apiserver_loadbalancer_domain_name": "k8s.example.org"}, "k8s.example.org", (), "must forward port 9345 too"),
        ({"api_endpoint": "{{ vip }}"}, "n1", (), "api_endpoint has a template, which is never evaluated; n1, the first"),
        ({"loadbalancer_apiserver": {"address": "{{ vip }}"}}, "n1", (), "loadbalancer_apiserver has a template"),
        ({"loadbalancer_apiserver": "nonsense"}, "n1", (), "no variable has the address in front of the servers"),
        ({"opt_tls_san": ["a.example.org", "{{ b }}"]}, "n1", ("a.example.org",), "opt_tls_san: 1 of 2 are no names or addresses"),
    ],
)
def test_the_address_in_front_of_the_servers(variables: dict[str, Any], front: str, names: tuple[str, ...], note: str) -> None:
    spec, notes = spec_of(inventory(SERVERS, _=variables))
    assert (spec.rke2.registration_address, spec.rke2.tls_san) == (front, names)
    assert note in notes
    assert "your roles' own" not in notes


def test_labels_of_nodes_are_those_of_groups_and_hosts() -> None:
    labels = {"rack": "r1", "site.example.org/hot": True, "nvidia.com/gpu.product": "H100", "kubernetes.io/role": "x"}
    labels |= {"kubernetes.io/hostname": "w1", "bringup/group": "old"}
    spec, notes = spec_of(
        inventory(
            {"masters": ["s1"], "nodes": ["w1", "w2", "w3"]},
            w1={"node_labels": labels},
            w2={"k8s_node_label": ["rack=r1"]},
            w3={"node_labels": "rack=r1,row={{ row }}"},
        )
    )
    assert spec.hosts["nodes"].labels == {"rack": "r1"}
    assert {host: dict(odd.labels) for host, odd in spec.hosts["nodes"].overrides.items()} == {
        "w1": {"site.example.org/hot": "true"}
    }
    assert "node_labels of w[1,3]: some of it is no label that a kubelet may set, or one that each node gets by itself" in notes


def test_settings_of_other_projects_are_not_called_the_sites_own() -> None:
    known = {"container_manager": "crio", "kubelet_max_pods": 250, "server_config_yaml": "x: y", "nfs_configurations": []}
    groups = [{"name": "hopper", "gres": [{"conf": "gpu:h200:8"}]}, {"name": "std"}, "odd", {"name": "x", "gres": ["{{ y }}"]}]
    _, notes = spec_of(
        inventory(
            {"masters": ["s1"], "gpu": ["g1"]},
            _=known | {"openhpc_nodegroups": groups, "ours": 1},
            g1={"ansible_host": "10.0.0.1", "ip": "10.1.0.1"},
        )
    )
    assert "container_manager: RKE2 brings its own containerd" in notes
    assert "kubelet_max_pods: write it as rke2: {kubelet_args: {max-pods: …}}" in notes
    assert "GPUs of gpu: Slurm's groups of nodes say hopper: gpu:h200:8; add accelerator" in notes
    assert "ip or access_ip of g1: nodes take the address that SSH dials" in notes
    assert "variables ours: they are your roles' own" in notes


EXTERNAL, GPU_TAINT = "node.example.com/external=true:NoSchedule", "nvidia.com/gpu:NoSchedule"
NODES = {"kube_control_plane": ["n1"], "gpu": ["g1", "g2", "g3"], "kube_node": ["n2", "n3"]}
TAINTED: dict[str, tuple[dict[str, Any], dict[str, tuple[str, ...]], str]] = {
    "of a group": (
        {host: {"node_taints": [GPU_TAINT]} for host in ("g1", "g2", "g3")},
        {"gpu": (GPU_TAINT,)},
        "",
    ),
    "of all, and of one host more": (
        {"_": {"node_taints": [EXTERNAL]}, "g2": {"node_taints": [EXTERNAL, "nvidia.com/gpu=:NoSchedule"]}},
        {
            "kube_control_plane": (EXTERNAL,),
            "gpu": (EXTERNAL,),
            "gpu_tainted": (EXTERNAL, GPU_TAINT),
            "kube_node": (EXTERNAL,),
        },
        f"hosts g2: their taints ({EXTERNAL}, {GPU_TAINT}) differ in group gpu, so they have group gpu_tainted",
    ),
    "of a role for RKE2": (
        {"_": {"rke2_server_node_taints": ["CriticalAddonsOnly=true:NoExecute"], "rke2_agent_node_taints": []}},
        {"kube_control_plane": ("CriticalAddonsOnly=true:NoExecute",)},
        "",
    ),
    "of k3s": (
        {"n2": {"k3s_node_taints": [{"a": "b:NoExecute"}]}},
        {"kube_node_tainted": ("a=b:NoExecute",)},
        "group kube_node_tainted",
    ),
    "of most of a group": (
        {host: {"node_taints": [GPU_TAINT]} for host in ("g1", "g2")},
        {"gpu": (GPU_TAINT,)},
        "hosts g3: their taints (none) differ in group gpu, so they have group gpu_untainted",
    ),
    "templates and words": (
        {"n2": {"node_taints": ["{{ secret }}", "a:b"]}, "n3": {"node_taints": "words"}},
        {},
        "node_taints of n[2-3]: some of it is no taint",
    ),
}
"""Variables of hosts, the taints of the spec's groups that have some, and a part of the notes."""


@pytest.mark.parametrize("name", TAINTED)
def test_taints_of_nodes_are_those_of_their_group(name: str) -> None:
    variables, taints, note = TAINTED[name]
    spec, notes = spec_of(inventory(NODES, **variables))
    assert {group: hosts.taints for group, hosts in spec.hosts.items() if hosts.taints} == taints
    assert sorted(machine.name for machine in spec.machines) == ["g1", "g2", "g3", "n1", "n2", "n3"]
    assert note in notes
    assert "secret" not in notes
    assert "variables node_taints" not in notes


def test_settings_of_k3s_say_where_a_spec_has_them_and_show_no_token() -> None:
    variables = {
        "k3s_version": "v1.30.2+k3s1",
        "token": "changeme!",
        "extra_server_args": "--token=secret",
        "api_endpoint": "10.0.0.9",
    }
    spec, notes = spec_of(inventory({"server": ["a", "b", "c"], "agent": ["d"]}, _=variables))
    assert spec.rke2.registration_address == "10.0.0.9"
    assert "token: not read: each cluster gets a join token of its own" in notes
    assert "changeme" not in notes + repr(spec)
    assert "secret" not in notes


def test_slurm_appliance_gives_groups_by_partition_and_says_what_else_it_has() -> None:
    machines = {"control": ["c"], "login": ["l"], "compute": ["g-0", "g-1", "s-0"], "lab_gpu": ["g-0", "g-1"], "lab_std": ["s-0"]}
    variables = {"openhpc_cluster_name": "lab", "openhpc_nodegroups": [{"name": "gpu"}]}
    spec, notes = spec_of(inventory(machines, _=variables), servers="control")
    assert sorted(machine.name for machine in spec.machines) == ["c", "g-0", "g-1", "l", "s-0"]
    assert "openhpc_nodegroups: write them as slurm: {partitions: …}" in notes
    assert "openhpc_cluster_name: write it as name: of the spec" in notes


def test_every_variable_that_is_not_converted_is_named() -> None:
    variables = {f"own_{number:02d}": number for number in range(40)}
    _, notes = spec_of(inventory({"servers": ["a"]}, _=variables))
    assert all(name in notes for name in variables)
