"""`down` leaves this machine as it was before `up`, also after a crash of everything."""

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubelab import box, lab

SYSCTLS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys")
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "containerd", "helm-controller")


OURS = re.compile(rf"({box.CGROUP}|{box.SPACE}|{box.LINK})(?![-0-9])|cni0|/cni-")
"""Marks of what this box's cluster makes; others may run containers on this machine, or clusters in other boxes."""


def said(*command: str) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def ours(lines: list[str]) -> list[str]:
    return sorted(line for line in lines if OURS.search(line))


def running() -> list[str]:
    """Programs of a cluster and of its pods, told by their arguments or their cgroup."""
    names = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            marks = (process / "cmdline").read_text() + (process / "cgroup").read_text()
            if OURS.search(marks):
                names.append((process / "comm").read_text().strip())
    return sorted(name for name in names if name in {program[:15] for program in (*PROGRAMS, "sh", "sleep", "unshare", "nsenter")})


def traces() -> dict[str, list[str]]:
    """Return the things on this machine now that a cluster could leave behind, by kind."""
    folders = (box.folder(), Path("/var/lib/kubelet"), Path("/var/lib/cni"), Path("/var/log/pods"))
    return {
        "processes": running(),
        "mounts": ours([line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]),
        "namespaces": ours(said("ip", "netns", "list")),
        "links": ours([line.split(": ")[1] for line in said("ip", "-o", "link")]),
        "rules": [line for line in said("iptables-save", "-t", "nat") if line.startswith("-A")],
        "cgroups": [str(path) for path in box.CGROUPS.rglob(box.CGROUP)],
        "folders": [str(path) for top in folders for path in (top, *top.rglob("*")) if path.exists()],
        "sysctls": [Path("/proc/sys", name).read_text() for name in SYSCTLS],
    }


@pytest.fixture
def before(able: None) -> Iterator[dict[str, list[str]]]:
    """The machine without a cluster. `conftest.py` puts this file before those that share one."""
    with lab.alone():
        lab.down()
        yield traces()
        lab.down()


def test_down_removes_all_that_up_made(before: dict[str, list[str]]) -> None:
    cluster = lab.up()
    cluster.plane.kubectl("run", "left", "--image=localhost/shell:1", "--image-pull-policy=Never", "--", "-c", "sleep 9999")
    cluster.plane.kubectl("wait", "pod/left", "--for=condition=Ready", "--timeout=60s")
    during = traces()
    assert {name[:15] for name in PROGRAMS} <= set(during["processes"])
    assert during["sysctls"] == before["sysctls"]
    lab.down()
    assert traces() == before
    lab.down()


def test_down_removes_what_a_crash_left(before: dict[str, list[str]]) -> None:
    lab.up()
    for pid in said("ip", "netns", "pids", box.SPACE):
        with contextlib.suppress(OSError):  # ended meanwhile
            if Path(f"/proc/{pid}/comm").read_text().strip() in ("containerd", "kubelet", "etcd"):
                os.kill(int(pid), signal.SIGKILL)
    lab.down()
    assert traces() == before
