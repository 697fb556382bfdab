"""How stage rke2 is taken back, in words: the machines bare again, or after an upgrade the release before."""

import re

from steps.contract.operation import Kind
from workflows.stages.site import Site

DATA, KEPT = "/var/lib/rancher/rke2/server/db", "/var/lib/rancher/download/kept"
RESET = "`bringup reset SPEC`; data of the cluster is lost"


def told(site: Site) -> str:
    """What a person does, in order."""
    if site.operation.kind is not Kind.UPGRADE:
        return RESET
    # as the role names it (playbooks/roles/rke2/vars/main.yml)
    snapshot = f"{DATA}/snapshots/bringup-before-{re.sub('[^A-Za-z0-9.-]', '-', site.spec.rke2.version)}-*"
    return (
        "a host that does not come to a patch release goes back by itself; over a minor, by the snapshot of etcd: "
        "(1) on every server `rke2-killall.sh`; "
        f"(2) on each that was upgraded `cp -a {KEPT}/usr {KEPT}/etc / && systemctl daemon-reload` ({KEPT}/VERSION names it); "
        f"(3) on the server that has {snapshot}: `rke2 server --cluster-reset --cluster-reset-restore-path=FILE`, "
        "then `systemctl start rke2-server`; "
        f"(4) on the others, one at a time: `rm -rf {DATA} && systemctl start rke2-server`; "
        "last the release before in rke2.version, and `bringup run SPEC`"
    )
