"""Kernel settings of the node profile, on a machine with a kernel of its own: a Debian with GRUB, emulated by QEMU.

Modules, the kernel's command line with its IOMMU and huge pages, the reboot that these need, swap, the Access Control Services of
PCI bridges, the rules of a firewall, and its own clock: looked at by SSH, beside what bringup says of them.
"""

import json
import re
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import time_server
from bringup_command import Command

from steps.contract.host_play import FailureKind, HostStatus
from steps.contract.verdict import FailureClass, Verdict
from steps.stages.os_prep import probe
from tests.hosts.hostlab.waiting import until
from tests.hosts.machine import plays, qemu
from tests.hosts.machine.plays import HERE, judged, play
from tests.hosts.machine.qemu import BOOT_SECONDS, Machine
from workflows import spec as specs
from workflows.stages.os_prep import node_profile

pytestmark = pytest.mark.long

WORDS = ("iommu=pt", "intel_iommu=on", "hugepages=64", "hugepagesz=1G", "hugepages=1")
CARD = "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00"
"""Modalias by which udev would learn of an NVIDIA GPU; this machine has none."""
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
    "firewall": [told("systemctl", "is-" + state, "firewalld").strip() for state in ("active", "enabled")],
    "rules": sorted(line.split()[2] for line in told("nft", "list", "tables").splitlines()),
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
systemctl enable --now firewalld
rm /etc/default/grub.d/90-bringup.cfg
update-grub
"""
SECONDS_AGAIN = 30.0
"""Most of a second run, interpreters that QEMU emulates included; it takes 11."""
SERVES = "127.0.0.1"
"""Address at which the machine's time server listens; the machine sees it as `HERE`."""
AHEAD = timedelta(hours=2)
BACK = timedelta(days=2000)
CLOCKS = r"""date +%s.%N
cat /sys/class/rtc/rtc0/since_epoch
cut -d' ' -f1 /proc/uptime
dmesg | sed -n 's/^\[ *\([0-9.]*\)\].*: setting system clock to .*(\([0-9]*\))$/\1 \2/p'
"""
CLOSE_SECONDS = 3.0
"""Within which a clock counts as right: that in hardware has whole seconds, and an answer of the machine takes its time."""
AROUND_SECONDS = 30.0
"""By how much what a play measures may differ from what was set: a play takes its time."""
FIREWALL_SECONDS, SYNC_SECONDS = 60.0, 90.0
FOUND_SECONDS = 15
"""Time that a play waits for a clock that nobody corrects."""
REPOSITORY = r"""set -e
mkdir -p /srv/site && cd /srv/site && touch Packages
sum=$(sha256sum Packages | cut -d' ' -f1)
printf 'Suite: ./\nDate: %s\nSHA256:\n %s 0 Packages\n' "$(date --utc --rfc-email)" "$sum" > Release
rm -f /etc/apt/sources.list /etc/apt/sources.list.d/*
echo 'deb [trusted=yes] file:///srv/site ./' > /etc/apt/sources.list
apt-get --option APT::Update::Error-Mode=any update
"""
"""A site's own repository, made this minute."""


@pytest.fixture(scope="module")
def machine(able: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """As its installer left it, with a firewall that runs, a clock two hours ahead that no server of the distribution's sets right,
    and a slow service of its site; a driver for displays is loaded."""
    folder = tmp_path_factory.mktemp("machine")
    kept = qemu.made(folder)
    with qemu.started(kept, folder, AHEAD) as made:
        made.run("cat > /etc/systemd/system/site-slow.service", SLOW)
        made.run("systemctl enable site-slow.service; modprobe nouveau")
        yield made


@pytest.fixture
def on_time(machine: Machine) -> Iterator[None]:
    """Run a time server with the right time for the machine."""
    with time_server.serving(SERVES):
        yield


def spec(machine: Machine, folder: Path) -> specs.ClusterSpec:
    """A spec of the machine that asks for whatever a kernel has to give, and names the time server of its site."""
    wanted = {
        "kernel_parameters": ["intel_iommu=on", "hugepages=64"],
        "hugepages": {"size": "1G", "count": 1},
        "peer_to_peer": True,
    }
    return plays.spec(machine, folder, time_servers=[HERE], **wanted)


def clocks(machine: Machine) -> tuple[float, float, float]:
    """By how many seconds these are ahead: the machine's time, that of its clock in hardware, and that of its kernel's begin."""
    begin = time.time()
    now, hardware, up, then, told = map(float, machine.run(CLOCKS).split())
    end = time.time()
    one, two, three = (max(0.0, value - end) - max(0.0, begin - value) for value in (now, hardware, told + up - then))
    return one, two, three


def off_by(verdict: Verdict) -> float:
    """By how many seconds a clock is off, as the gate says."""
    found = re.search(r"the clock is off by ([0-9.]+) s", verdict.reason)
    assert found, verdict.reason
    return float(found[1])


def following(machine: Machine) -> bool:
    """Return True if the machine's time service has measured a server."""
    return "Leap status     : Normal" in machine.run("chronyc tracking")


def look(machine: Machine) -> dict[str, Any]:
    """Read the machine's state with script `LOOK`."""
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
    assert (state["firewall"], state["rules"]) == (["inactive", "disabled"], []), "nobody closes a port"


def assert_same(state: dict[str, Any], before: dict[str, Any]) -> None:
    """As it was, and in the same boot; whatever else has loaded a module."""
    assert_ready(state)
    assert {**state, "modules": before["modules"]} == before


def test_a_bare_machine_is_prepared_by_one_reboot_and_then_left_alone(machine: Machine, tmp_path: Path, on_time: None) -> None:
    spec(machine, tmp_path)
    bringup = Command(tmp_path, tmp_path / "home")
    bare = look(machine)
    assert not set(WORDS) & set(bare["words"])
    assert "nouveau" in bare["modules"]
    assert "nouveau.ko" in bare["driver"]
    assert (bare["swap"], bare["total"]) == (["/dev/vda2"], 0)
    assert bare["groups"] not in ([], ["identity"]), "its IOMMU translates"
    assert bare["acs"] == [ACS.format("+")] * len(qemu.PORTS), "its kernel turns it on at each boot"
    assert until(lambda: "firewalld" in look(machine)["rules"], FIREWALL_SECONDS, every=1.0)
    assert all(abs(off - AHEAD.total_seconds()) < CLOSE_SECONDS for off in clocks(machine))

    first = bringup.call("run", "--until", "os_prep", check=True).stdout
    assert "os_prep: pass: 1 of 1 nodes passed all gates" in first
    ready = look(machine)
    assert_ready(ready)
    assert ready["boot"] != bare["boot"]
    assert machine.boots == 2, "one reboot for all that needs one"
    assert "etc/modprobe.d/90-bringup.conf" in machine.run("lsinitramfs /boot/initrd.img-$(uname -r)")
    assert "console=ttyS0" in ready["words"], "what the site had said"
    assert all(abs(off) < CLOSE_SECONDS for off in clocks(machine)), "set by its server, and kept in hardware before the reboot"

    began = time.monotonic()
    again = bringup.call("run", "--until", "os_prep", check=True).stdout
    assert time.monotonic() - began < SECONDS_AGAIN
    assert "1 host: nothing changed" in again
    assert_same(look(machine), ready)


def test_what_is_undone_by_hand_is_found_and_mended_in_the_same_boot(machine: Machine, tmp_path: Path, on_time: None) -> None:
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
        *("kernel parameter hugepages=64", "kernel parameter hugepagesz=1G hugepages=1", "service firewalld.service"),
    }
    mended = bringup.call("run", "--until", "os_prep", check=True).stdout
    assert "1 of 1 host changed" in mended
    assert_same(look(machine), ready)
    entries = machine.run("grep '^[[:space:]]*linux' /boot/grub/grub.cfg").splitlines()
    assert entries
    assert all(" ".join(WORDS) in entry for entry in entries)


def test_a_clock_that_is_years_back_is_named_by_how_far_and_by_what_it_keeps_from_working(
    machine: Machine, tmp_path: Path, on_time: None
) -> None:
    """Somebody has set it: a time service that has run for long does not jump any more."""
    profile = node_profile(spec(machine, tmp_path))
    machine.run(REPOSITORY)
    machine.run(f"date --set=@{time.time() - BACK.total_seconds():.0f}")

    wanted = profile | {"packages": [*profile["packages"], "site-tool"]}
    verdict = judged(play(machine, wanted, os_prep_clock_seconds=FOUND_SECONDS), clock_synchronized=True)
    assert verdict.failure_class is FailureClass.DEPENDENCY
    assert "not valid yet: is this machine's clock behind?" in verdict.reason
    assert abs(off_by(verdict) - BACK.total_seconds()) < AROUND_SECONDS

    machine.run("systemctl restart chrony")
    assert until(lambda: abs(clocks(machine)[0]) < CLOSE_SECONDS and following(machine), SYNC_SECONDS, every=1.0)
    bringup = Command(tmp_path, tmp_path / "home")
    assert "1 host: nothing changed" in bringup.call("run", "--until", "os_prep", check=True).stdout
    assert abs(clocks(machine)[0]) < CLOSE_SECONDS


def test_a_time_server_that_is_wrong_and_one_that_is_gone_are_told_apart(machine: Machine, tmp_path: Path) -> None:
    profile = node_profile(spec(machine, tmp_path))
    with time_server.serving(SERVES, off=-AHEAD.total_seconds()):
        machine.run("systemctl restart chrony")
        assert until(lambda: clocks(machine)[0] < -CLOSE_SECONDS, SYNC_SECONDS, every=1.0), "it does as its server says"
        wrong = judged(play(machine, profile, os_prep_clock_seconds=FOUND_SECONDS), clock_synchronized=True)
    machine.run("systemctl restart chrony")
    gone = judged(play(machine, profile, os_prep_clock_seconds=FOUND_SECONDS), clock_synchronized=True)
    for verdict in (wrong, gone):
        assert verdict.failure_class is FailureClass.DEPENDENCY
        assert abs(off_by(verdict) - AHEAD.total_seconds()) < AROUND_SECONDS
    assert "is its time server right?" in wrong.nodes[0].next_step
    assert "that it can reach" in gone.nodes[0].next_step
    assert "chronyd says no" in gone.reason


def test_a_machine_that_was_booted_without_selinux_is_not_made_to_enforce(machine: Machine, tmp_path: Path, on_time: None) -> None:
    profile = node_profile(spec(machine, tmp_path))
    result = play(machine, profile | {"selinux": "enforcing"}, os_prep_clock_seconds=0)
    (refused,) = [item for item in probe.from_play(result.hosts).nodes[0].items if item.status not in ("ok", "unavailable")]
    assert (refused.name, refused.status, refused.before) == ("SELinux", "failed", "disabled, and permissive after a boot")
    assert "label the files first (fixfiles -F onboot), and boot with it" in refused.why
    assert machine.run("grep ^SELINUX= /etc/selinux/config").strip() == "SELINUX=permissive"


def test_a_machine_that_does_not_come_back_from_its_reboot_is_named_with_that_cause_in_time(
    machine: Machine, tmp_path: Path
) -> None:
    """Somebody has given its kernel another disk to boot from, which only the next boot shows."""
    machine.run("echo 'GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX root=/dev/gone\"' > /etc/default/grub.d/99-site.cfg")
    profile, given_up = node_profile(spec(machine, tmp_path)), 60
    changed = profile | {"kernel_parameters": [*profile["kernel_parameters"], "audit=0"]}
    boots, began = machine.boots, time.monotonic()

    result = play(machine, changed, os_prep_clock_seconds=0, os_prep_reboot_seconds=given_up)

    assert time.monotonic() - began < 4 * given_up
    (host,) = result.hosts
    assert (host.status, host.kind) == (HostStatus.FAILED, FailureKind.REBOOT), host.message
    verdict = judged(result)
    assert verdict.failure_class is FailureClass.HARDWARE
    assert "did not come back" in verdict.nodes[0].next_step
    assert machine.boots == boots + 1
    assert until(lambda: "/dev/gone does not exist" in machine.console, BOOT_SECONDS), machine.console[-2000:]
