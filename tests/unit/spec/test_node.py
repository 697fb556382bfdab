"""Section `os` of a spec: accepted values, and errors with path and fix."""

from pathlib import Path

import pytest
import yaml

from workflows import spec

EXAMPLE = Path(__file__).parents[3] / "workflows/examples/h200-16.yaml"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAbcdefghijklmnopqrstuvwxyz0123456789ABCDEF ops@example.org"


def load(**os: object) -> spec.ClusterSpec:
    written = yaml.load(EXAMPLE.read_text(), Loader=yaml.CSafeLoader)
    return spec.load(yaml.safe_dump(written | {"os": {**written.get("os", {}), **os}}))


def test_a_site_can_say_all_of_it() -> None:
    said = load(
        kernel_parameters=["intel_iommu=on", "nosmt"],
        hugepages={"size": "1G", "count": 64},
        dns={"servers": ["10.10.0.53"], "search": ["cluster.example.org"]},
        users=[{"name": "ops", "keys": [KEY], "groups": ["adm"], "sudo": True}],
        interface_names={"fab0": "0000:18:00.0"},
        routes=[{"to": "192.168.0.0/16", "via": "192.168.1.254"}],
        apparmor="enabled",
        mounts={"/var/lib/rancher": {"filesystem": ["xfs"]}},
        selinux="enforcing",
        rke2_repository={"baseurl": "file:///srv/rke2/el9", "gpgkey": "https://mirror.example.org/public.key"},
        firewall="keep",
        firewall_networks=["10.0.0.0/255.0.0.0", "fd01::/64"],
    ).os
    assert said.hugepages is not None
    assert said.users[0].keys == (KEY,)
    assert said.firewall_networks == ("10.0.0.0/8", "fd01::/64"), "as firewalls write them"


@pytest.mark.parametrize(
    ("os", "path", "said"),
    [
        ({"kernel_parameters": ["iommu=pt; reboot"]}, "os.kernel_parameters", "iommu=pt; reboot"),
        ({"hugepages": {"size": "4K", "count": 1}}, "os.hugepages.size", "4K"),
        ({"hugepages": {"size": "1G", "count": 0}}, "os.hugepages.count", "0"),
        ({"dns": {"servers": ["dns.example.org"]}}, "os.dns.servers", "not an IP address"),
        ({"users": [{"name": "ops", "keys": ["AAAA"]}]}, "os.users", "AAAA"),
        ({"users": [{"name": "ops"}, {"name": "ops"}]}, "os", "ops twice"),
        ({"routes": [{"to": "192.168.0.0/16"}]}, "os.routes", "neither gateway nor interface"),
        ({"mounts": {"var": {}}}, "os.mounts", "var"),
        ({"selinux": "disabled"}, "os.selinux", "disabled"),
        ({"rke2_repository": {"baseurl": "ftp://mirror.example.org"}}, "os.rke2_repository.baseurl", "ftp://"),
        ({"rke2_repository": {"gpgkey": "https://a/{{key}}"}}, "os.rke2_repository.gpgkey", "{{key}}"),
        ({"rke2_repository": {"write": False, "baseurl": "https://a/b"}}, "os.rke2_repository", "write is false"),
        ({"firewall": "start"}, "os.firewall", "start"),
        ({"firewall": "keep", "firewall_networks": ["10.0.0.1/8"]}, "os.firewall_networks", "not a network"),
        ({"firewall_networks": ["10.0.0.0/8"]}, "os", "for a firewall that is kept"),
        ({"apparmor": "complain"}, "os.apparmor", "complain"),
        ({"apparmor": "enabled", "kernel_parameters": ["apparmor=0"]}, "os", "kernel_parameters has apparmor=0"),
        ({"interface_names": {"fab0": "0000:18:00.0", "fab1": "0000:18:00.0"}}, "os", "0000:18:00.0 twice"),
        ({"routes": [{"to": "fd01::/64", "via": "10.1.0.1"}]}, "os.routes", "different IP versions"),
        ({"routes": [{"to": "10.0.0.0/8", "device": "a"}, {"to": "10.0.0.0/255.0.0.0", "device": "b"}]}, "os", "10.0.0.0/8 twice"),
        ({"interface_names": {"fab0": "18:00.0"}}, "os.interface_names.fab0", "18:00.0"),
        ({"interface_names": {"ib0": "0000:18:00.0"}}, "os.interface_names.ib0", "the kernel assigns the name ib0 itself"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(os: dict[str, object], path: str, said: str) -> None:
    with pytest.raises(spec.SpecErrors) as caught:
        load(**os)
    (error,) = caught.value.errors
    assert error.path.startswith(path), error
    assert said in str(caught.value)
    assert error.fix
