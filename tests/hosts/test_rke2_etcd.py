"""What gate rke2/servers says of a real etcd by the command line: Secrets that lie in it as they are."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nodes_stand_in
import pytest
import release_site
from cluster_site import OLDER, Site
from hostlab.lab import Init
from rke2_settings import kubectl, stored

from workflows.plan.compiler import compile_plan


@pytest.fixture
def source(tmp_path: Path, programs: tuple[Path, ...]) -> Iterator[str]:
    """A download site with one release."""
    with release_site.offered(tmp_path, (OLDER,), programs) as url:
        yield url


@pytest.mark.long
def test_a_server_that_writes_secrets_as_they_are_is_named(up: Any, tmp_path: Path, source: str) -> None:
    site = Site(up(2, Init.SYSTEMD), tmp_path, source)
    server = site.lab.hosts[0]
    with nodes_stand_in.played(site.lab, compile_plan(site.write("n001")), tmp_path / "played"):
        site.passes("run", "cluster.yaml", "--only", "rke2")
        server.run("/usr/local/bin/rke2", "secrets-encrypt", "disable")
        server.run("systemctl", "restart", "rke2-server")
        kubectl(server, "create", "secret", "generic", "one", "--from-literal=word=canary-72")
        assert b"canary-72" in stored(server, "one")

        bare = site.bringup.call("run", "cluster.yaml", "--only", "rke2")
        assert (bare.returncode, "n000: Secrets lie in etcd as they are" in bare.stdout) == (65, True), bare.stdout
