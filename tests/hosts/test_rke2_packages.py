"""A reset of hosts that RKE2's packages were installed on: by the script that they brought; what stays of them counts."""

from typing import Any

import pytest
from hostlab.lab import Init
from rke2_plays import Site, play, said

pytestmark = pytest.mark.sampled("rke2 on hosts")

PACKAGES = """
mkdir -p /var/lib/rancher/rke2/server/db/etcd
printf '#!/bin/sh\n' > /usr/bin/rke2
printf '#!/bin/sh\ntouch /var/killed\n' > /usr/bin/rke2-killall.sh
printf '#!/bin/sh\nrm -rf /var/lib/rancher/rke2; @REMOVE@\n' > /usr/bin/rke2-uninstall.sh
chmod +x /usr/bin/rke2*
"""


def test_packages_are_taken_away_by_their_own_script_and_count_where_they_stay(up: Any, site: Site) -> None:
    lab = up(2, Init.SSHD)
    whole, stuck = lab.hosts
    whole.run("sh", "-ec", PACKAGES.replace("@REMOVE@", "rm /usr/bin/rke2*"))
    stuck.run("sh", "-ec", PACKAGES.replace("@REMOVE@", "echo no repository answers >&2; exit 1"))

    result = play(lab, site, "rke2_reset", [whole, stuck])

    assert said(result) == []
    left = [outcome.facts["traces"]["paths"] for outcome in result.hosts]
    assert left == [[], ["/usr/bin/rke2", "/usr/bin/rke2-killall.sh", "/usr/bin/rke2-uninstall.sh"]]
    assert [host.run("ls", "/var/killed").strip() for host in lab.hosts] == ["/var/killed"] * 2
