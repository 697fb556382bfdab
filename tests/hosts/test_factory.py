"""A factory on real hosts by the command line: bare, again, thrown away and built again, cut off from production, and removed.

Hosts, SSH, Ansible, the embedded engine, Lmod, etcd and the API server are real. RKE2 is its stand-in; nodes, charts and pods in
the API server are played by the simulator. About 300 CPU seconds; most of its time is waiting.
"""

import json
import os
import re
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nodes_stand_in
import pytest
import release_site
import yaml
from bringup_command import Command
from cluster_site import OLDER
from hostlab import lab
from hostlab.lab import Init, Lab
from rke2_settings import kubectl

from workflows.app.factories import factory_pipeline

AGAIN_CPU_SECONDS = 30.0
"""Most CPU time of a second `factory up` with all its processes here. The wall's time, which is printed, is other tests' too."""


class FactorySite:
    """A server and an agent of a factory, a host of production, and the command line beside `factory.yaml`."""

    def __init__(self, hosts: Lab, folder: Path, source: str) -> None:
        self.lab, self.folder = hosts, folder
        self.server, self.agent, self.production = hosts.hosts
        self.bringup = Command(folder, folder / "home")
        self.path = folder / "factory.yaml"
        self._source = source
        self.write()
        production = {"production": {"role": "server", "ranges": "n002", "addresses": {"start": self.production.address}}}
        platform = {**self._document("Cluster"), "name": "production", "hosts": production}
        (folder / "platform.yaml").write_text(yaml.safe_dump(platform))

    def write(self, rebuild: dict[str, Any] | None = None, **sections: Any) -> None:
        """Write the spec of the factory with further sections."""
        document = {
            **self._document("Factory"),
            "projects": {"software": {"groups": ["developers"]}},
            "rebuild": {"diagnostics": str(self.folder / "saved"), **(rebuild or {})},
        }
        self.path.write_text(yaml.safe_dump(document | sections))

    def drill(self, command: str, *boot: str) -> dict[str, Any]:
        """Return a drill that cuts the host of production off."""
        published = {"published": [STACK]} if boot else {}
        return {"platform": "platform.yaml", "hosts": ["n002"], "commands": [command], "boot": list(boot), **published}

    def _document(self, kind: str) -> dict[str, Any]:
        return {
            "apiVersion": "bringup/v1",
            "kind": kind,
            "name": "real-factory",
            "owner": "tests@example.org",
            "revision": "1",
            "hosts": {
                "control": {"role": "server", "ranges": "n000", "addresses": {"start": self.server.address}},
                "builders": {"role": "agent", "ranges": "n001", "addresses": {"start": self.agent.address}},
            },
            "ssh": {"key": {"file": str(self.lab.key)}, "known_hosts": str(self.lab.known_hosts)},
            "os": {
                "distribution": "debian",
                "version": "12",
                "reboot": False,
                "free_disk_gib": {"/var/lib/rancher": 1},
                "tolerate": ["time service"],  # one clock is shared
            },
            # this machine's disk is shared with much else
            "rke2": {"version": OLDER, "source": self._source, "images": ["core"], "drain_seconds": 30, "etcd_fsync_ms": 1000},
        }

    def passes(self, *arguments: str | Path) -> str:
        """Run a command that must pass, and return what it printed."""
        return self.bringup.call(*arguments, check=True).stdout

    def changed(self) -> list[str]:
        """Return what the newest run changed: hosts by name, and objects of the cluster."""
        return [change for attempt in self.bringup.report()["attempts"] for change in attempt["changes"]]


@pytest.fixture(scope="module")
def site(able: None, programs: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[FactorySite]:
    """Three bare hosts, with nodes and pods played where the stand-in for RKE2 runs."""
    folder = tmp_path_factory.mktemp("factory")
    lab.down()
    with release_site.offered(folder, (OLDER,), programs) as source:
        made = FactorySite(lab.up(3, Init.SYSTEMD, prepared=True), folder, source)
        path, spec = factory_pipeline.read(str(made.path))
        with nodes_stand_in.played(made.lab, factory_pipeline.plan_of(path, spec), folder / "played"):
            yield made
    lab.down()


REMAINS = (
    "find /etc/rancher /var/lib/rancher /var/lib/kubelet -mindepth 1 2>/dev/null; ls /usr/local/bin | grep rke2; "
    "pgrep -a 'rke2|etcd' || true"
)
STACK = "/srv/bringup/stacks/science"
VERSION = f"{STACK}/versions/1"
LOAD = f"module use {STACK}/current/modules && module load hello && test $(hello -s) = Linux"
STAGES = ("os_prep", "rke2", "base_services", "factory_registry", "factory_projects", "factory_argo")
PHASES = ("preparation of the nodes", "Kubernetes", "services")


def test_a_factory_from_bare_hosts_is_built_found_unchanged_rebuilt_and_removed(site: FactorySite) -> None:
    built_by_phase(site)
    found_unchanged(site)
    kept_while_somebody_works(site)
    refused_by_production(site)
    with release_site.serving(boot_files(site.folder / "www")) as boot:
        (site.folder / "www/boot/default.ipxe").write_text(f"#!ipxe\nchain {boot}/boot/gpu.ipxe\n")
        (site.folder / "www/boot/gpu.ipxe").write_text(f"#!ipxe\nkernel {boot}/vmlinuz\ninitrd {boot}/initrd.img || goto failed\n")
        drilled(site, boot)
    removed(site)


def boot_files(folder: Path) -> Path:
    """Write a kernel and an initial RAM disk for a boot server outside of the factory, and return its folder."""
    (folder / "boot").mkdir(parents=True)
    for name in ("vmlinuz", "initrd.img"):
        (folder / name).write_text("plain files that a boot loader would fetch")
    return folder


def built_by_phase(site: FactorySite) -> None:
    """Build the factory; its report compares each phase with the goal, and its status gives the kubeconfig."""
    printed = site.passes("factory", "up", "factory.yaml")
    assert "all 6 stages passed" in printed
    for phase in PHASES:
        assert re.search(rf"^phase {phase}: .* of (15|30) min, kept$", printed, re.MULTILINE), printed
    # asked of the real API server's authorizer
    assert re.search(r"access pass: developers of 1 project submit and read logs; \d+ other deeds refused", printed), printed
    shown = json.loads(site.passes("factory", "status", "factory.yaml", "-o", "json"))
    assert [(stage["stage"], stage["status"]) for stage in shown["stages"]] == [(stage, "pass") for stage in STAGES]
    assert not shown["rehearsal"]
    kubeconfig = Path(shown["kubeconfig"])
    assert kubeconfig.stat().st_mode & 0o777 == 0o600


def found_unchanged(site: FactorySite) -> None:
    """Bring the factory up again: nothing is changed, measured or waited for, which takes some seconds on an idle machine."""
    began, before = time.monotonic(), cpu_seconds()
    printed = site.passes("factory", "up", "factory.yaml")
    seconds, used = time.monotonic() - began, cpu_seconds() - before
    print(f"second factory up: {seconds:.1f} s, {used:.1f} CPU s, load {os.getloadavg()[0]:.1f}")
    assert "all 6 stages passed" in printed
    changes = [change for change in site.changed() if not change.startswith(("unchanged ", "created run "))]
    assert changes == []
    attempts = {(attempt["stage"], attempt["task"]): attempt for attempt in site.bringup.report()["attempts"]}
    checks = [("rke2", "functional"), *((stage, "functional") for stage in STAGES[2:] if stage != "factory_projects")]
    assert all(attempts[check]["reused"] for check in checks), "a check that still holds was made again"
    assert used < AGAIN_CPU_SECONDS


def kept_while_somebody_works(site: FactorySite) -> None:
    """Refuse a rebuild while a job of a user and a slurmd run, and change nothing."""
    site.agent.run("sh", "-c", "cp /bin/sleep /usr/local/sbin/slurmd")
    site.agent.run("systemd-run", "--unit=user-job", "--uid=guest", "/bin/sleep", "900")
    site.agent.run("systemd-run", "--unit=slurmd-stand-in", "/usr/local/sbin/slurmd", "900")
    refused = site.bringup.call("factory", "rebuild", "factory.yaml", "--yes", "--force", "a reason overrides neither")
    assert refused.returncode == 65, refused.stdout + refused.stderr
    for reason in ("n001 runs slurmd", "n001 runs 1 process of user guest", "nothing was changed"):
        assert reason in refused.stderr
    assert site.server.run("systemctl", "is-active", "rke2-server").strip() == "active"
    site.agent.run("systemctl", "stop", "user-job", "slurmd-stand-in")


def refused_by_production(site: FactorySite) -> None:
    """Cut production off while a command of it needs the factory: the drill fails before anything is removed."""
    needs = f"exec 3<>/dev/tcp/{site.server.address}/22"
    site.write(drill=site.drill(needs))
    before = uid(site)
    failed = site.bringup.call("factory", "drill", "factory.yaml", "--yes")
    assert failed.returncode == 65, failed.stdout + failed.stderr
    assert f"broken: n002: does not work without the factory: {needs}: ended with 1" in failed.stdout
    assert "nothing was removed" in failed.stdout
    assert uid(site) == before
    site.production.run("bash", "-c", needs)


def drilled(site: FactorySite, boot: str) -> None:
    """Cut production off, build the factory again up to RKE2, and find nothing lost: another cluster, the old one's data saved."""
    released(site)
    (site.folder / "copies").mkdir()
    (site.folder / "copies/science.tar").write_text("a copy of what is published")
    rebuild = {"copies": [{"what": "published stacks", "path": str(site.folder / "copies/science.tar"), "within": "1h"}]}
    site.write(drill=site.drill(LOAD, f"{boot}/boot/default.ipxe"), rebuild=rebuild)
    before = uid(site)
    printed = site.passes("factory", "drill", "factory.yaml", "--yes", "--until", "rke2")
    for line in (
        f"n002: works without the factory: {LOAD}",
        f"n002: boots without the factory: {boot}",
        "n002: 4 boot files answered",
    ):
        assert line in printed
    assert "reset: pass: 2 of 2 nodes passed all gates" in printed
    assert "rke2: pass: 2 of 2 nodes passed all gates" in printed
    assert "production works without it, and its rebuild lost nothing" in printed
    assert uid(site) not in ("", before)
    (saved,) = (path for path in (site.folder / "saved").iterdir() if path.is_dir())
    assert {file.stem for file in saved.iterdir()} >= {"workflows", "workflowtemplates", "pods", "events"}
    reports = [json.loads(path.read_bytes()) for path in sorted((site.folder / "saved").glob("*-drill-*.json"))]
    assert [(report["rebuilt"], report["lost"], bool(report["broken"])) for report in reports] == [
        (False, [], True),
        (True, [], False),
    ]
    assert site.production.run("ip", "rule", "show", "pref", "9877").strip() == ""


def released(site: FactorySite) -> None:
    """Publish a stack on the host of production: plain files of one version, and the pointer to it. Lmod is Debian's."""
    site.production.run("sh", "-c", "apt-get update && apt-get install --yes --no-install-recommends lmod")
    site.production.run("sh", "-c", f"mkdir -p {VERSION}/bin {VERSION}/modules && cp /bin/uname {VERSION}/bin/hello")
    site.production.run("ln", "-s", "versions/1", f"{STACK}/current")
    site.production.run("sh", "-c", f"cat > {VERSION}/modules/hello.lua", text=f'prepend_path("PATH", "{STACK}/current/bin")\n')


def cpu_seconds() -> float:
    """Return the CPU seconds that this process's children, which have ended, and their own have taken."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def removed(site: FactorySite) -> None:
    """Remove the factory: nothing of RKE2 stays on its hosts."""
    site.passes("factory", "down", "factory.yaml", "--yes")
    for host in (site.server, site.agent):
        assert host.run("sh", "-c", REMAINS).strip() == "", host.name


def uid(site: FactorySite) -> str:
    """Return the UID of the cluster that runs on the factory's server."""
    return kubectl(site.server, "get", "namespace", "kube-system", "-o=jsonpath={.metadata.uid}")
