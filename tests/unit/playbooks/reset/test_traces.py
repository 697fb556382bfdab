"""Traces that RKE2 leaves on a host: packet filters, routes to pods, processes, mounts, and programs in the kernel.

A kernel that cannot have packet filters has no rules left; if nobody can tell, the rules count as not looked at.
"""

import os
import subprocess
from pathlib import Path

import pytest
from ansible.module_utils.rke2 import rke2_mounts, traces

PLAIN = "0000000000000000 T _stext\n0000000000000000 t nf_conntrack_init_net\n"
BUILT_IN = PLAIN + "0000000000000000 t nf_tables_newtable\n"
MODULE = PLAIN + "0000000000000000 t nft_do_chain\t[nf_tables]\n"


@pytest.mark.parametrize(
    ("symbols", "tables", "none"),
    [
        (PLAIN, (), True),
        (BUILT_IN, (), False),
        (MODULE, (), False),
        (PLAIN, ("ip_tables_names",), False),
        (PLAIN, ("ip6_tables_names",), False),
        ("", (), False),
        (None, (), False),
    ],
)
def test_a_kernel_without_packet_filters_has_neither_kind(
    tmp_path: Path, symbols: str | None, tables: tuple[str, ...], none: bool
) -> None:
    (tmp_path / "proc/net").mkdir(parents=True)
    for name in tables:
        (tmp_path / "proc/net" / name).touch()
    if symbols is not None:
        (tmp_path / "proc/kallsyms").write_text(symbols)
    assert traces.has_no_filters(str(tmp_path)) is none


IP = """#!/bin/sh
case "$*" in
    "-oneline -4 route show") cat @FOLDER@/four ;;
    *) echo "$*" >> @FOLDER@/asked ;;
esac
"""
FOUR = """default via 192.0.2.1 dev eth0 proto dhcp metric 100
192.0.2.0/24 dev eth0 proto kernel scope link src 192.0.2.11
10.42.1.0/24 via 10.42.1.0 dev flannel.1 onlink
blackhole default metric 4278198272
blackhole 10.42.0.0/16
blackhole 10.42.3.0/24
blackhole 10.42.3.9
blackhole 10.0.0.0/8
blackhole 203.0.113.0/24 metric 5
"""


@pytest.mark.parametrize(
    ("pods", "found"),
    [
        ("10.42.0.0/16", (["10.42.3.0/24", "10.42.3.9/32"], 10)),
        ("10.99.0.0/16", ([], 10)),
        ("", ([], 1)),
    ],
)
def test_routes_that_drop_what_goes_to_pods_of_this_host_are_found_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pods: str, found: tuple[list[str], int]
) -> None:
    for name, text in (("four", FOUR), ("asked", ""), ("ip", IP.replace("@FOLDER@", str(tmp_path)))):
        (tmp_path / name).write_text(text)
    (tmp_path / "ip").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert traces.routes(pods) == found
    traces.remove_routes(found[0])
    assert (tmp_path / "asked").read_text().splitlines() == [f"-4 route delete blackhole {route}" for route in found[0]]
    (tmp_path / "ip").write_text("#!/bin/sh\nexit 1\n")
    assert traces.routes(pods) == ([], 0 if pods else 1), "nobody could look"


def test_who_reads_the_program_is_as_any_other_process() -> None:
    with subprocess.Popen(["grep", "/usr/local/bin/rke2", "-"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as reader:
        assert bool(traces.processes([reader.pid])) is bool(traces.processes([os.getpid()]))


@pytest.mark.parametrize(
    ("target", "commands"),
    [
        ("/run/k3s/containerd/sandbox", ["umount --lazy /run/k3s/containerd/sandbox"]),
        ("/run/nvidia/driver", ["mount --make-rprivate /run/nvidia/driver", "umount --lazy /run/nvidia/driver"]),
        ("/run/nvidia/driver/var/log", ["mount --make-rprivate /run/nvidia/driver", "umount --lazy /run/nvidia/driver/var/log"]),
        ("/run/mellanox/drivers/sys", ["mount --make-rprivate /run/mellanox/drivers", "umount --lazy /run/mellanox/drivers/sys"]),
        ("/run/nvidia/drivers-of-ours", ["umount --lazy /run/nvidia/drivers-of-ours"]),
    ],
)
def test_nothing_of_the_host_is_unmounted_with_a_driver_containers_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, commands: list[str]
) -> None:
    for tool in ("mount", "umount"):
        (tmp_path / tool).write_text(f'#!/bin/sh\necho "{tool} $*" >> {tmp_path}/asked\n')
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    traces.unmount(target)
    assert (tmp_path / "asked").read_text().splitlines() == commands

    (tmp_path / "asked").unlink()
    (tmp_path / "mount").write_text("#!/bin/sh\nexit 1\n")
    traces.unmount(target)
    assert (tmp_path / "asked").exists() is (len(commands) == 1), "what may be the host's stays, and is told"


@pytest.mark.parametrize(
    ("target", "counts"),
    [
        ("/run/k3s/containerd/sandbox", True),
        ("/run/calico/cgroup", True),
        ("/run/cilium/cgroupv2", True),
        ("/run/cilium/bpffs", True),
        ("/run/nvidia/driver/dev", True),
        ("/sys/fs/bpf", False),
        ("/sys/fs/cgroup", False),
        ("/run/calicoctl", False),
    ],
)
def test_what_network_plugins_mount_counts_and_what_systemd_mounts_does_not(target: str, counts: bool) -> None:
    assert rke2_mounts.is_of_pods(target) is counts


@pytest.mark.parametrize(
    ("pin", "there"),
    [
        ("cilium/socketlb/links/cgroup/cil_sock4_connect", True),
        ("tc/globals/cilium_lb4_services_v2", True),
        ("tc/globals/of_the_site", False),
        ("", False),
    ],
)
def test_what_cilium_pinned_tells_that_its_programs_are_in_the_kernel(tmp_path: Path, pin: str, there: bool) -> None:
    path = tmp_path / "sys/fs/bpf" / pin
    path.parent.mkdir(parents=True)
    path.touch() if pin else path.mkdir()
    assert traces.has_cilium_programs(str(tmp_path)) is there
