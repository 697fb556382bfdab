"""Profile parts that a plan adds, on real systemd hosts: kernel command line and reboot, ACS, users, DNS, CIS, mounts, links.

A host has neither a boot loader nor PCI bridges of its own: `machine` gives it stand-ins for both that outlive its reboots, in the
files that the module reads, and one for networkctl. Everything else on the host is real, setpci included.
"""

import struct
from typing import Any

import pytest
from hostlab import faults
from hostlab.hardware import Hardware, show
from hostlab.host import Host
from hostlab.lab import Init, Lab

from steps.clients.ansible import playing
from steps.contract.host_play import FailureKind, HostStatus, PlayHost, PlayRequest, PlayResult
from steps.contract.verdict import FailureClass, Status, Verdict
from steps.stages.os_prep import gate, probe
from steps.stages.os_prep.contract import Facts, Item, ItemStatus, NodesExpectation
from workflows.catalog import profile

pytestmark = pytest.mark.sampled("preparing hosts")

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAbcdefghijklmnopqrstuvwxyz0123456789ABCDEF ops"
BRIDGES = ("0000:3a:00.0", "0000:5d:00.0")
ACS_ON = 0x1D

GRUB = """#!/bin/sh
# Stand-in for update-grub: makes the menu from what grub's own files say.
set -e
GRUB_CMDLINE_LINUX=
for file in /etc/default/grub.d/*.cfg; do . "$file"; done
mkdir -p /boot/grub
echo "linux /boot/vmlinuz-6.1.0 root=/dev/vda1 ro $GRUB_CMDLINE_LINUX" > /boot/grub/grub.cfg
"""
FIRMWARE = """#!/bin/sh
# Stand-in for a boot: the kernel gets its menu's command line, and the bridges come up with ACS on.
set -e
sed -n 's/^linux //p' MENU > /run/cmdline
mount --bind /run/cmdline /proc/cmdline
cp -r /srv/pci-at-power-on /run/pci
mount --bind /run/pci /sys/bus/pci/devices
"""
NETWORKCTL = """#!/bin/sh
echo "  Network File: /run/systemd/network/10-eth0.network"
"""
UNIT = """[Unit]
DefaultDependencies=no
Before=sysinit.target bringup-acs-off.service
[Service]
Type=oneshot
ExecStart=/usr/local/sbin/firmware
[Install]
WantedBy=sysinit.target
"""
SLOW = """[Unit]
Before=bringup-acs-off.service
[Service]
Type=oneshot
ExecStart=/bin/sleep 3
[Install]
WantedBy=multi-user.target
"""
"""A service of the site: at each boot SSH answers before it has ended, and ACS is still on."""


def configuration() -> bytes:
    """A PCI bridge's configuration space: PCI Express, then Access Control Services with what firmware often turns on."""
    space = bytearray(4096)
    struct.pack_into("<HHHH", space, 0, 0x1000, 0xC010, 0, 0x10)
    space[0x34], space[0x40] = 0x40, 0x10
    struct.pack_into("<IHH", space, 0x100, 0x0001000D, 0x5F, ACS_ON)
    return bytes(space)


def machine(host: Host, *, menu: str = "") -> None:
    """Give a host a boot loader and bridges, as its next boots and now; `menu` is another menu that it boots by."""
    firmware = FIRMWARE.replace("MENU", menu or "/boot/grub/grub.cfg")
    tools = {"/usr/sbin/update-grub": GRUB, "/usr/local/sbin/firmware": firmware, "/usr/local/sbin/networkctl": NETWORKCTL}
    for name, text in tools.items():
        host.run("sh", "-c", f"cat > {name} <<'END'\n{text}END\nchmod 755 {name}")
    host.run("sh", "-c", f"mkdir -p /etc/default/grub.d; cat > /etc/systemd/system/firmware.service <<'END'\n{UNIT}END\n")
    octal = "".join(f"\\{byte:03o}" for byte in configuration()[:0x108])
    for bridge in BRIDGES:
        folder = f"/srv/pci-at-power-on/{bridge}"
        files = {"class": "0x060400", "vendor": "0x1000", "device": "0xc010", "irq": "0", "resource": "0x0 0x0 0x0"}
        host.run("mkdir", "-p", folder)
        host.run("sh", "-c", "; ".join(f"echo {text} > {folder}/{name}" for name, text in files.items()))
        host.run("sh", "-c", f"printf '{octal}' > {folder}/config; truncate --size=4096 {folder}/config")
    if menu:
        host.run("sh", "-c", f"echo 'linux /boot/vmlinuz-6.1.0 root=/dev/vda1 ro' > {menu}")
    host.run("touch", "/etc/default/grub.d/10-none.cfg")
    host.run("/usr/sbin/update-grub")
    host.run("systemctl", "enable", "--now", "firmware.service")


def play(lab: Lab, *, reboot: bool = True, check: bool = False, **more: Any) -> PlayResult:
    wanted = profile.merge_layers(profile.of_system("debian"), {"disks": {"/var/lib/rancher": 100}, "gpu_groups": ["gpu"], **more})
    hosts = tuple(
        PlayHost(name=host.name, address=host.address, key_path=str(lab.key), groups=("gpu", "agent")) for host in lab.hosts
    )
    variables = {"os_prep_profile": wanted, "os_prep_reboot": reboot, "os_prep_reboot_seconds": 60}
    return playing.play(
        PlayRequest(playbook="os_prep", hosts=hosts, variables=variables, known_hosts=str(lab.known_hosts), check=check)
    )


def judged(result: PlayResult, *items: str, **words: Any) -> Verdict:
    names = tuple(outcome.host for outcome in result.hosts)
    want = NodesExpectation(nodes=names, gpu_items=items, tolerate=("time service",), **words)
    return gate.nodes(probe.from_play(result.hosts), want)


def seen(result: PlayResult, number: int = 0) -> tuple[dict[str, Item], Facts]:
    node = probe.from_play(result.hosts).nodes[number]
    assert node.facts is not None, node
    return {item.name: item for item in node.items}, node.facts


WANTED = {
    "system_users": {"etcd": "etcd user"},
    "users": [{"name": "ops", "keys": [KEY], "groups": ["adm"], "sudo": True}],
    "dns": {"servers": ["10.77.255.254"], "search": ["lab.example.org"]},
    "gpu": {
        "kernel_parameters": ["iommu=pt", "hugepagesz=1G hugepages=2"],
        "pcie_acs": "off",
        "links": {"names": ["eth0"], "mtu": 1400},
        "routes": [{"to": "10.77.0.0/16", "device": "eth0"}],
    },
}
ITEMS = ("kernel parameter *", "PCIe ACS", "link eth0", "MTU of eth0", "route *", "user ops", "system user etcd", "DNS")


def test_what_a_plan_adds_is_set_proven_by_a_reboot_and_then_left_alone(up: Any) -> None:
    lab = up(1, Init.SYSTEMD)
    host = lab.hosts[0]
    machine(host)

    looked = play(lab, check=True, **WANTED)
    assert seen(looked)[0]["PCIe ACS"].before == "on: 0000:3a:00.0 0x1d, 0000:5d:00.0 0x1d"
    assert not host.run("sh", "-c", "getent passwd ops || true")
    host.run("sh", "-c", "cat > /etc/systemd/system/site-slow.service; systemctl enable site-slow.service", text=SLOW)

    first = play(lab, **WANTED)
    items, facts = seen(first)
    assert judged(first, *ITEMS).is_pass, judged(first, *ITEMS).reason
    assert facts.rebooted_from not in ("", facts.boot_id)
    assert "iommu=pt hugepagesz=1G hugepages=2" in facts.cmdline
    assert items["PCIe ACS"].after == "off", "the boot unit turned it off again after the reboot"

    again = play(lab, **WANTED)
    assert [(outcome.status, outcome.changed) for outcome in again.hosts] == [(HostStatus.OK, 0)]
    assert seen(again)[1].boot_id == facts.boot_id
    assert judged(again, *ITEMS).is_pass, judged(again, *ITEMS).reason

    assert host.run("cat", "/sys/class/net/eth0/mtu") == "1400\n"
    assert "MTUBytes=1400" in host.run("cat", "/etc/systemd/network/10-eth0.network.d/90-bringup.conf")
    assert KEY in host.run("cat", "/home/ops/.ssh/authorized_keys")
    assert host.run("stat", "--format=%U %a", "/home/ops/.ssh/authorized_keys") == "ops 600\n"
    assert "ops" in host.run("getent", "group", "adm")
    assert "nologin" in host.run("getent", "passwd", "etcd")
    assert host.run("cat", "/etc/resolv.conf").splitlines()[-2:] == ["search lab.example.org", "nameserver 10.77.255.254"]


def test_a_parameter_waits_for_its_reboot_and_one_that_the_reboot_did_not_bring_fails(up: Any) -> None:
    lab = up(1, Init.SYSTEMD)
    machine(lab.hosts[0], menu="/srv/other-menu")
    wanted = {"gpu": {"kernel_parameters": ["iommu=pt"]}}

    waiting = play(lab, reboot=False, **wanted)
    verdict = judged(waiting, "kernel parameter *")
    assert (verdict.status, verdict.failure_class) == (Status.FAIL, FailureClass.RUNTIME)
    assert "the next boot brings it" in verdict.reason
    assert "allow it with os.reboot" in verdict.reason
    assert play(lab, reboot=False, **wanted).hosts[0].changed == 0, "waiting is no change"

    lab.hosts[0].run("systemd-run", "--unit=rke2-agent.service", "sleep", "1000")
    busy = play(lab, **wanted)
    assert (busy.hosts[0].changed, seen(busy)[1].rebooted_from) == (0, ""), "pods may run there"
    assert "drain and reboot n000" in judged(busy, "kernel parameter *").reason
    lab.hosts[0].run("systemctl", "stop", "rke2-agent.service")

    lost = play(lab, **wanted)
    assert lost.hosts[0].status is HostStatus.FAILED
    assert seen(lost)[1].rebooted_from != seen(lost)[1].boot_id
    assert "the reboot did not bring it" in judged(lost, "kernel parameter *").reason


def test_what_a_machine_lacks_is_named_and_nothing_is_pretended(up: Any) -> None:
    lab = up(1)
    host = lab.hosts[0]
    gpu = {
        "kernel_parameters": ["iommu=pt"],
        "links": {"names": ["ibs1"], "mtu": 4092},
        "routes": [{"to": "192.168.0.0/16", "via": "192.168.0.1"}],
        "selinux": "enforcing",
    }
    faults.holding(host, "python3", "-c", LISTENER)
    host.run("sh", "-c", "mkdir /srv/data; mount -t tmpfs data /srv/data")
    result = play(
        lab, mounts={"/var/lib/rancher": ["xfs"], "/srv/data": ["xfs", "ext4"]}, packages=["bringup-no-such-package"], gpu=gpu
    )

    items, _ = seen(result)
    assert items["kernel parameter iommu=pt"].status is ItemStatus.UNAVAILABLE
    assert items["SELinux"].status is ItemStatus.UNAVAILABLE
    assert items["MTU of ibs1"].status is ItemStatus.UNAVAILABLE
    assert (items["link ibs1"].status, items["link ibs1"].why) == (ItemStatus.FAILED, "the machine shows eth0")
    assert items["route 192.168.0.0/16"].after == ""
    assert items["mount /var/lib/rancher"].before == "part of /"
    wrong = items["mount /srv/data"]
    assert (wrong.status, wrong.after) == (ItemStatus.FAILED, "mounted, tmpfs")
    assert "it is tmpfs: make the file system anew" in wrong.why
    assert (items["ports"].status, items["ports"].after) == (ItemStatus.FAILED, "6443 by python3")
    assert "bringup-no-such-package" in items["package bringup-no-such-package"].why
    assert items["package socat"].status is ItemStatus.CHANGED, "the other packages are installed all the same"
    assert judged(result).failure_class is FailureClass.DEPENDENCY


INTERRUPTED = """Package: none
Status: install ok installed
Version: 1
Architecture: all
Maintainer: none
Description: what dpkg had not yet written when it was killed
"""
LISTENER = """import signal, socket
held = socket.create_server(("", 6443))
open("/run/held", "w").close()
signal.pause()
"""
FUTURE = """mkdir /srv/future
cp /srv/packages/Packages /srv/future
printf 'Date: %s\\nSHA256:\\n %s %s Packages\\n' "$(date --utc --date '+9 days' '+%a, %d %b %Y %T UTC')" \
    "$(sha256sum < /srv/future/Packages | cut -d ' ' -f 1)" "$(stat --format=%s /srv/future/Packages)" > /srv/future/Release
echo 'deb [trusted=yes] file:///srv/future ./' > /etc/apt/sources.list
"""
"""A mirror whose list was made nine days from now, as it looks to a host whose clock is behind."""
HELD = """import fcntl, signal
file = open("/var/lib/dpkg/lock-frontend", "w")
fcntl.lockf(file, fcntl.LOCK_EX)
open("/run/held", "w").close()
signal.pause()
"""


def test_a_package_manager_that_does_not_work_is_one_reason_and_half_installed_packages_are_healed(up: Any) -> None:
    lab = up(4)
    locked, closed, interrupted, behind = lab.hosts
    faults.holding(locked, "python3", "-c", HELD)
    closed.run("sh", "-c", "echo 'deb [trusted=yes] file:///srv/gone ./' > /etc/apt/sources.list")
    interrupted.run("sh", "-c", f"cat > /var/lib/dpkg/updates/0001 <<'END'\n{INTERRUPTED}END\n")

    behind.run("sh", "-ec", FUTURE)

    result = play(lab, packages=["bringup-no-such-package"], system={"lock_seconds": 1})

    reasons = [[item.why for item in seen(result, number)[0].values() if item.status is ItemStatus.FAILED] for number in range(4)]
    assert [len(whys) for whys in reasons] == [1, 1, 1, 1]
    assert "another package manager holds the lock" in reasons[0][0]
    assert "its repositories cannot be reached" in reasons[1][0]
    assert "no-such-package" in reasons[2][0]
    assert "not valid yet" in reasons[3][0]
    assert (result.hosts[3].kind, judged(result).nodes[3].failure_class) == (FailureKind.CLOCK, FailureClass.DEPENDENCY)
    assert seen(result, 2)[0]["package socat"].status is ItemStatus.CHANGED
    assert result.hosts[0].kind is FailureKind.PACKAGE_LOCK


UPGRADE = """[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'until [ -e /run/upgraded ]; do sleep 0.2; done; date +%%s > /run/ended'
"""
"""Stand-in for Debian's own unit of this name, which downloads lists of packages."""
TEMPLATE = "/var/lib/rancher/rke2/agent/etc/containerd/config.toml.tmpl"
CONDITIONS = """set -e
mkdir -p /var/lib/kubelet $(dirname TEMPLATE)
mount -t tmpfs -o noexec tmpfs /var/lib/kubelet
echo 'version = 2' > TEMPLATE
echo 'nameserver 127.0.0.53' > /etc/resolv.conf
echo 1 > /proc/sys/kernel/modules_disabled
cat > /etc/systemd/system/apt-daily.service
systemctl daemon-reload
systemctl start --no-block apt-daily.service
"""
REPAIRED = """set -e
umount /var/lib/kubelet
echo '{{ template "base" . }}' > TEMPLATE
echo 'nameserver 10.77.255.254' > /etc/resolv.conf
echo 0 > /proc/sys/kernel/modules_disabled
mkdir -p /lib/modules/$(uname -r)/build
setsid sh -c "sleep 8; touch /run/upgraded" > /dev/null 2>&1 &
"""
BUILT = ("the GPU Operator's NVIDIA driver",)
LOOKED_AT = {
    "exec /var/lib/kubelet": "noexec at /var/lib/kubelet",
    "containerd templates": TEMPLATE,
    "DNS of pods": "127.0.0.53",
    "link type of mlx5_1": "Ethernet",
}


def test_what_would_stop_rke2_and_pods_later_is_read_and_an_upgrade_is_waited_for(up: Any) -> None:
    lab = up(1, Init.SYSTEMD, prepared=True)
    host = lab.hosts[0]
    rails = {"mlx5_0": "InfiniBand", "mlx5_1": "Ethernet"}
    show(host, Hardware(nics={}, gpus=8, rails=rails, signed_only=True))
    gpu = {"kernel_headers": True, "link_types": {"layer": "InfiniBand", "devices": ["15b3:1021"], "count": 2}}
    upgrades = {"units": ["apt-daily.service"]}
    host.run("sh", "-c", CONDITIONS.replace("TEMPLATE", TEMPLATE), text=UPGRADE)

    bad = play(lab, background=upgrades | {"seconds": 1}, gpu=gpu)
    items, facts = seen(bad)
    assert {name: items[name].after for name in LOOKED_AT} == LOOKED_AT
    assert {items[name].status for name in LOOKED_AT} == {ItemStatus.FAILED}
    assert items["exec /var/lib/rancher"].status is ItemStatus.OK
    assert items["link type of mlx5_0"].status is ItemStatus.OK
    assert "apt-daily.service still at work after" in items["other work on the machine"].why
    assert "no package repository of this machine offers linux-headers-" in items["kernel headers"].why
    assert "the kernel takes no module until the next boot" in items["module loading"].why
    assert (facts.secure_boot, facts.signed_modules_only) == (False, True)
    verdict = judged(bad, *LOOKED_AT, "kernel headers", built_drivers=BUILT)
    assert (verdict.status, verdict.nodes[0].failure_class) == (Status.FAIL, FailureClass.DEPENDENCY)

    host.run("sh", "-c", REPAIRED.replace("TEMPLATE", TEMPLATE))
    show(host, Hardware(nics={}, gpus=8, rails=dict.fromkeys(rails, "InfiniBand")))
    good = play(lab, background=upgrades | {"seconds": 60}, gpu=gpu)
    items, facts = seen(good)
    assert items["other work on the machine"].status is ItemStatus.OK
    assert int(host.run("stat", "--format=%Y", "/run/ended")) <= facts.clock.epoch, "the play read the machine after the upgrade"
    assert items["kernel headers"].after == "installed"
    assert "module loading" not in items
    assert {items[name].status for name in LOOKED_AT} == {ItemStatus.OK}
