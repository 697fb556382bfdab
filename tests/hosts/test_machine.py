"""What of the node profile belongs to the kernel, on a machine that has one of its own: a Debian with GRUB under QEMU, emulated.

Modules, the kernel's command line with its IOMMU and huge pages, the reboot that these need, swap, and the Access Control Services
of PCI bridges: looked at by SSH, beside what bringup says of them.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import time_server
import yaml
from bringup_command import Command
from hostlab.waiting import until
from machine import qemu
from machine.qemu import Machine

from steps.clients.ansible import playing
from steps.contract.play import FailureKind, HostStatus, PlayHost, PlayRequest, PlayResult
from steps.contract.stages.os_prep import Expectation
from steps.contract.verdict import FailureClass, Verdict
from steps.gates import os_prep as gate
from steps.probes import os_prep as probe
from workflows import spec as specs
from workflows.stages.os_prep import node_profile

pytestmark = pytest.mark.long

NAME = "m001"
HERE = "10.0.2.2"
"""Where the machine sees this one's 127.0.0.1."""
WORDS = ("iommu=pt", "intel_iommu=on", "hugepages=64", "hugepagesz=1G", "hugepages=1")
CARD = "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00"
"""How a GPU of NVIDIA tells udev of itself; this machine has none."""
LOOK = f"""
import glob, json, re, subprocess

def text(path):
    with open(path) as source:
        return source.read()

def told(*command):
    return subprocess.run(command, capture_output=True, text=True).stdout

print(json.dumps({{
    "boot": text("/proc/sys/kernel/random/boot_id").strip(),
    "words": text("/proc/cmdline").split(),
    "modules": [line.split()[0] for line in text("/proc/modules").splitlines()],
    "driver": told("modprobe", "--use-blacklist", "--show-depends", "--quiet", "{CARD}"),
    "swap": [line.split()[0] for line in text("/proc/swaps").splitlines()[1:]],
    "pages": {{re.search("([0-9]+)kB", path)[1]: int(text(path)) for path in glob.glob("/sys/kernel/mm/hugepages/*/nr_hugepages")}},
    "total": int(re.search("HugePages_Total: *([0-9]+)", text("/proc/meminfo"))[1]),
    "groups": sorted({{text(path).strip() for path in glob.glob("/sys/kernel/iommu_groups/*/type")}}),
    "acs": re.findall("ACSCtl:.*", told("lspci", "-vv")),
}}))
"""
ACS = "ACSCtl:\tSrcValid{0} TransBlk- ReqRedir{0} CmpltRedir{0} UpstreamFwd{0} EgressCtrl- DirectTrans-"
SLOW = """[Unit]
Before=chrony.service bringup-acs-off.service
[Service]
Type=oneshot
ExecStart=/bin/sleep 30
[Install]
WantedBy=multi-user.target
"""
"""A service of the site that keeps the time service, and what turns ACS off, waiting at each boot, while SSH answers already."""
UNDONE = """set -e
swapon /dev/vda2
sed -i '/ swap /s/^# bringup: //' /etc/fstab
setpci -s 00:01.0 ECAP_ACS+6.w=001d
modprobe nouveau
rm /etc/default/grub.d/90-bringup.cfg
update-grub
"""
SECONDS_AGAIN = 30.0
"""Most of a second run, interpreters that QEMU emulates included; it takes 11."""
REBOOT_SECONDS = 60


@pytest.fixture(scope="module")
def machine(able: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """As its installer left it, with a time server and a slow service of its site; a driver for displays is loaded."""
    folder = tmp_path_factory.mktemp("machine")
    kept = qemu.made(folder)
    with time_server.serving("127.0.0.1", 0) as port, qemu.started(kept, folder) as made:
        made.run(f"echo server {HERE} port {port} iburst > /etc/chrony/sources.d/site.sources; chronyc reload sources")
        made.run("cat > /etc/systemd/system/site-slow.service", SLOW)
        made.run("systemctl enable site-slow.service; modprobe nouveau")
        yield made


def spec(machine: Machine, folder: Path) -> specs.ClusterSpec:
    """A spec of the machine, written into a folder."""
    document: dict[str, Any] = {
        "apiVersion": "bringup/v1",
        "kind": "Cluster",
        "name": "machine",
        "owner": "tests@example.org",
        "revision": "1",
        "stages": ["os_prep", "rke2"],
        "hosts": {"control": {"role": "server", "ranges": NAME, "addresses": {"start": "127.0.0.1"}}},
        "ssh": {"key": {"file": str(machine.disk.key)}, "known_hosts": str(machine.known_hosts), "port": machine.port},
        "os": {
            "distribution": "debian",
            "version": "12",
            "free_disk_gib": {"/var/lib/rancher": 1},
            "kernel_parameters": ["intel_iommu=on", "hugepages=64"],
            "hugepages": {"size": "1G", "count": 1},
            "peer_to_peer": True,
        },
        "rke2": {"version": "v1.35.7+rke2r1"},
    }
    (folder / "cluster.yaml").write_text(yaml.safe_dump(document))
    return specs.load(folder / "cluster.yaml")


def look(machine: Machine) -> dict[str, Any]:
    """What the machine shows of itself."""
    return dict(json.loads(machine.run("python3 -", text=LOOK)))


def assert_ready(state: dict[str, Any]) -> None:
    """Nothing is left that the spec does not want."""
    assert " ".join(WORDS) in " ".join(state["words"])
    assert {"overlay", "br_netfilter", "nf_conntrack"} <= set(state["modules"])
    assert ("nouveau" in state["modules"], state["driver"]) == (False, ""), "not there, and no card brings it"
    assert state["swap"] == []
    assert (state["total"], state["pages"]) == (64, {"2048": 64, "1048576": 1})
    assert state["groups"] == ["identity"], "the IOMMU passes through"
    assert state["acs"] == [ACS.format("-")] * len(qemu.PORTS)


def assert_same(state: dict[str, Any], before: dict[str, Any]) -> None:
    """As it was, and in the same boot; whatever else has loaded a module."""
    assert_ready(state)
    assert {**state, "modules": before["modules"]} == before


def play(machine: Machine, profile: dict[str, Any], *, check: bool = False) -> PlayResult:
    """The play alone, whose reboot is given up sooner than a run's."""
    variables = {"os_prep_profile": profile, "os_prep_reboot": True, "os_prep_reboot_seconds": REBOOT_SECONDS}
    host = PlayHost(name=NAME, address="127.0.0.1", port=machine.port, key_path=str(machine.disk.key))
    return playing.play(
        PlayRequest(playbook="os_prep", hosts=(host,), variables=variables, known_hosts=str(machine.known_hosts), check=check)
    )


def judged(result: PlayResult) -> Verdict:
    return gate.nodes(probe.from_play(result.hosts), Expectation(nodes=(NAME,)))


def test_a_bare_machine_is_prepared_by_one_reboot_and_then_left_alone(machine: Machine, tmp_path: Path) -> None:
    spec(machine, tmp_path)
    bringup = Command(tmp_path, tmp_path / "home")
    bare = look(machine)
    assert not set(WORDS) & set(bare["words"])
    assert "nouveau" in bare["modules"]
    assert "nouveau.ko" in bare["driver"]
    assert (bare["swap"], bare["total"]) == (["/dev/vda2"], 0)
    assert bare["groups"] not in ([], ["identity"]), "its IOMMU translates"
    assert bare["acs"] == [ACS.format("+")] * len(qemu.PORTS), "its kernel turns it on at each boot"

    first = bringup.call("run", "--until", "os_prep", check=True).stdout
    assert "os_prep: pass: 1 of 1 nodes passed all gates" in first
    ready = look(machine)
    assert_ready(ready)
    assert ready["boot"] != bare["boot"]
    assert machine.boots == 2, "one reboot for all that needs one"
    assert "etc/modprobe.d/90-bringup.conf" in machine.run("lsinitramfs /boot/initrd.img-$(uname -r)")
    assert "console=ttyS0" in ready["words"], "what the site had said"

    began = time.monotonic()
    again = bringup.call("run", "--until", "os_prep", check=True).stdout
    assert time.monotonic() - began < SECONDS_AGAIN
    assert "1 host: nothing changed" in again
    assert_same(look(machine), ready)


def test_what_is_undone_by_hand_is_found_and_mended_in_the_same_boot(machine: Machine, tmp_path: Path) -> None:
    profile = node_profile(spec(machine, tmp_path))
    bringup = Command(tmp_path, tmp_path / "home")
    bringup.call("run", "--until", "os_prep", check=True)
    ready = look(machine)

    machine.run(UNDONE)
    seen = probe.from_play(play(machine, profile, check=True).hosts).nodes[0]
    found = {item.name for item in seen.items if item.status not in ("ok", "unavailable")}
    assert found == {
        *("swap now", "swap /etc/fstab", "module nouveau", "PCIe ACS"),
        *("kernel parameter iommu=pt", "kernel parameter intel_iommu=on"),
        *("kernel parameter hugepages=64", "kernel parameter hugepagesz=1G hugepages=1"),
    }
    mended = bringup.call("run", "--until", "os_prep", check=True).stdout
    assert "1 of 1 host changed" in mended
    assert_same(look(machine), ready)
    entries = machine.run("grep '^[[:space:]]*linux' /boot/grub/grub.cfg").splitlines()
    assert entries
    assert all(" ".join(WORDS) in entry for entry in entries)


def test_a_machine_that_does_not_come_back_from_its_reboot_is_named_with_that_cause_in_time(
    machine: Machine, tmp_path: Path
) -> None:
    """Somebody has given its kernel another disk to boot from, which only the next boot shows."""
    machine.run("echo 'GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX root=/dev/gone\"' > /etc/default/grub.d/99-site.cfg")
    profile = node_profile(spec(machine, tmp_path))
    boots, began = machine.boots, time.monotonic()

    result = play(machine, profile | {"kernel_parameters": [*profile["kernel_parameters"], "audit=0"]})

    (host,) = result.hosts
    assert (host.status, host.kind) == (HostStatus.FAILED, FailureKind.REBOOT), host.message
    verdict = judged(result)
    assert verdict.failure_class is FailureClass.HARDWARE
    assert "did not come back" in verdict.nodes[0].next_step
    assert machine.boots == boots + 1
    assert until(lambda: "/dev/gone does not exist" in machine.console, REBOOT_SECONDS), machine.console[-2000:]
    assert time.monotonic() - began < 4 * REBOOT_SECONDS
