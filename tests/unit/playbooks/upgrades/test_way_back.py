"""The way back over a minor, as the failure of an upgrade tells it: in order, with the place of the snapshot and the release."""

from typing import Any

import jinja2
import pytest

from tests.unit.playbooks.library import PLAYBOOKS

ROLE = PLAYBOOKS / "roles/rke2"
SNAPSHOTS = "/var/lib/rancher/rke2/server/db/snapshots"
WAY = {
    "before": "v1.35.7+rke2r1",
    "wanted": "v1.36.1+rke2r1",
    "path": f"{SNAPSHOTS}/bringup-before-v1.36.1-rke2r1-20260301-sv1-1772323200",
    "holder": "sv1",
    "address": "10.10.0.11",
    "joined": False,
    "founder": "",
    "others": ["sv2", "sv3"],
    "virtual": "",
}
PUT_BACK = (
    "`if grep -Fqx v1.35.7+rke2r1 /var/lib/rancher/download/kept/VERSION; then cp -dR --preserve=mode,timestamps "
    "/var/lib/rancher/download/kept/*/ /; xargs -rd '\\n' rm -f < /var/lib/rancher/download/kept/ABSENT; systemctl daemon-reload; "
    "fi` and then `rke2 --version` must say v1.35.7+rke2r1; "
)
RESET = f"umask 022; rke2 server --cluster-reset --cluster-reset-restore-path={WAY['path']}"
RESTORE = f"`{RESET}`, and once that has ended `systemctl start rke2-server`"
WIPE = "`rm -rf /var/lib/rancher/rke2/server/db/etcd/* && systemctl start rke2-server`"
LAST = (
    "; last: write rke2.version: v1.35.7+rke2r1 into the spec, and `bringup run SPEC`; agents that have v1.36.1+rke2r1 already are "
    "to be reset and run again"
)
SV1 = "sv1, where /var/lib/rancher/rke2/server/db/etcd may be no mount and no link, for RKE2 renames it"
BEGIN = "or go back to v1.35.7+rke2r1, without what was written since the snapshot, as root and in this order: "
STOP = "(1) on sv1, sv2, sv3, all of them stopped before any goes on: `rke2-killall.sh`; "
ON_EACH = f"(2) on each of them: {PUT_BACK}"
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "the founder holds the snapshot": (
        {},
        f"{BEGIN}{STOP}{ON_EACH}(3) on {SV1}: {RESTORE}; "
        f"(4) on sv2, sv3, one after the other, each once the one before is Ready: {WIPE}{LAST}",
    ),
    "one that joined holds it, and the founder is to join": (
        {"joined": True, "founder": "sv2"},
        f"{BEGIN}{STOP}{ON_EACH}(3) on {SV1}: `sed -i /^server:/d /etc/rancher/rke2/config.yaml`, {RESTORE}; "
        "(4) on sv2, sv3, one after the other, each once the one before is Ready: (on sv2 first "
        f"`echo 'server: https://10.10.0.11:9345' >> /etc/rancher/rke2/config.yaml`) {WIPE}{LAST}",
    ),
    "a server that is alone": (
        {"others": []},
        f"{BEGIN}{STOP.replace(', sv2, sv3, all of them stopped before any goes on', '')}"
        f"{ON_EACH.replace('on each of them', 'there')}(3) on {SV1}: {RESTORE}{LAST}",
    ),
    "servers that hold the registration address themselves": (
        {"virtual": "10.10.0.9/32 dev bond0"},
        f"{BEGIN}{STOP.removesuffix('; ')}, and where it is still there `ip address delete 10.10.0.9/32 dev bond0`; "
        f"{ON_EACH}(3) on {SV1}: {RESTORE}; (4) on sv2, sv3, one after the other, each once the one before is Ready: {WIPE}{LAST}",
    ),
    "no snapshot": (
        {"path": ""},
        "no server that answers has a snapshot from before v1.36.1+rke2r1: there is no way back to v1.35.7+rke2r1, and forward is "
        "the only one",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_way_back_is_told_in_order(case: str) -> None:
    over, told = CASES[case]
    text = (ROLE / "templates/way-back.j2").read_text()
    # as Ansible reads it: the newline after a block goes, and what nobody gave is an error
    template = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined, autoescape=False).from_string(text)
    assert " ".join(template.render(way=WAY | over).split()) == told
