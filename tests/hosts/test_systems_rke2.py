"""Bare hosts of other distributions than Debian become a cluster by the command line, with the real package managers.

Servers run the stand-in for RKE2 with a real etcd and API server. Debian with dnf, called Rocky Linux, is a stand-in, and so are
the packages that dnf installs there.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nodes_stand_in
import pytest
import release_site
import rpm_site
from cluster_site import Site
from hostlab import debian
from hostlab.lab import Init, Lab
from test_os_prep_systems import NEEDS_RESTARTING, PLUGINS, repository

from workflows.catalog import profile as catalog
from workflows.plan.compiler import compile_plan

pytestmark = pytest.mark.long


@contextmanager
def ubuntu(up: Any, _: Path) -> Iterator[Lab]:
    """With the packages of its own mirror."""
    yield up(2, Init.SYSTEMD, lower=debian.ubuntu())


@contextmanager
def rocky(up: Any, folder: Path) -> Iterator[Lab]:
    """With packages of a site beside it."""
    packages = [name.split(" or ")[0] for name in catalog.of_system("rocky")["packages"]]
    rpm_site.repository(folder / "rpm", packages, {})
    lab = up(2, Init.SYSTEMD, lower=debian.with_dnf())
    with release_site.serving(folder / "rpm") as url:
        for host in lab.hosts:
            host.run("sh", "-c", f"mkdir -p {PLUGINS}; cat > {PLUGINS}/needs_restarting.py", text=NEEDS_RESTARTING)
            repository(host, url)
        yield lab


@pytest.mark.parametrize(("system", "made"), [(("ubuntu", "24.04"), ubuntu), (("rocky", "9"), rocky)], ids=["ubuntu", "rocky"])
def test_bare_hosts_become_a_cluster(up: Any, tmp_path: Path, source: str, system: tuple[str, str], made: Any) -> None:
    with made(up, tmp_path) as lab:
        site = Site(lab, tmp_path, source)
        site.system = system
        with nodes_stand_in.played(lab, compile_plan(site.write("n001")), tmp_path / "played"):
            said, changed = site.passes("run", "cluster.yaml", "--until", "rke2")
            assert changed == ["n000", "n001"], said
            again, changed = site.passes("run", "cluster.yaml", "--until", "rke2")
            assert changed == []
        for stage in ("os_prep", "rke2"):
            assert re.search(rf"^{stage} +pass +[\d.]+ s .*; 2 hosts: nothing changed$", again, re.MULTILINE), again
        assert f"ID={system[0]}" in lab.hosts[1].run("cat", "/etc/os-release").replace('"', "")
