"""The playbooks for RKE2 as tests play them: hosts, a download site and secrets of theirs, and what their gates say."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hostlab.host import Host
from hostlab.lab import Lab

from steps.clients.ansible import playing
from steps.contract.host_play import HostStatus, PlayHost, PlayRequest, PlayResult
from steps.stages.rke2 import gate, probe
from steps.stages.rke2.contract import PlayExpectation

VERSION = "v1.35.7+rke2r1"
NEWER = "v1.35.8+rke2r1"
MINOR = "v1.36.1+rke2r1"
RELEASES = (VERSION, NEWER, MINOR)


@dataclass(frozen=True)
class Site:
    """A download site as the hosts see it, the folder that it serves, and a folder for secrets."""

    url: str
    folder: Path
    secrets: Path


def play(
    lab: Lab,
    site: Site,
    playbook: str,
    hosts: list[Host],
    helpers: list[Host] | None = None,
    *,
    secrets: Mapping[str, str] | None = None,
    reach: Mapping[str, Mapping[str, Any]] | None = None,
    **variables: Any,
) -> PlayResult:
    """Play on these hosts; `helpers` are servers that can act for them, `secrets` variables by the files that hold them, `reach`
    how single hosts are reached otherwise than as root."""
    groups = ("gpu", "agent" if playbook.startswith("rke2_agent") else "server")
    token = site.secrets / "token"
    if not token.exists():
        token.write_text("canary-55")
    (site.secrets / "password").write_text("canary-60")
    common = {
        "rke2_version": VERSION,
        "rke2_source": site.url,
        "rke2_images": ["core"],
        "rke2_registration_address": lab.hosts[0].address,
        "rke2_reset_servers": [host.address for host in lab.hosts],
        "rke2_first_server": lab.hosts[0].name,
        "rke2_ready_seconds": 25,
        "rke2_drain_seconds": 5,
        "rke2_ingress_controller": "ingress-nginx",
    }
    return playing.play(
        PlayRequest(
            playbook=playbook,
            hosts=tuple(reached(lab, host, groups, **(reach or {}).get(host.name, {})) for host in hosts),
            helpers=tuple(reached(lab, host, ("server",), **(reach or {}).get(host.name, {})) for host in helpers or ()),
            known_hosts=str(lab.known_hosts),
            together=playbook.startswith("rke2_server"),
            variables=common | variables,
            secret_variables={"rke2_token": str(token), "rke2_secret_1": str(site.secrets / "password"), **(secrets or {})},
        )
    )


def reached(lab: Lab, host: Host, groups: tuple[str, ...], **words: Any) -> PlayHost:
    return PlayHost(**{"name": host.name, "address": host.address, "key_path": str(lab.key), "groups": groups, **words})


def lacks(result: PlayResult, kind: str, version: str = VERSION) -> str:
    """Why the gate does not let the hosts pass, and what they said; empty where it does."""
    names = tuple(outcome.host for outcome in result.hosts)
    want = PlayExpectation(version=version, service=f"rke2-{kind}", nodes=names)
    verdict = getattr(gate, f"{kind}s")(probe.from_play(result.hosts), want)
    return "" if verdict.is_pass else f"{verdict.reason} {said(result)}"


def said(result: PlayResult) -> list[tuple[str, str, str]]:
    return [(outcome.host, outcome.task, outcome.message) for outcome in result.hosts if outcome.status is not HostStatus.OK]


def nodes(server: Host) -> dict[str, Any]:
    """The nodes that a stand-in server knows, with what was done to them."""
    return dict(json.loads(server.run("cat", "/var/lib/rancher/rke2/server/db/etcd/nodes.json")))


def tell(host: Host, **faults: Any) -> None:
    """Tell the stand-in on a host what it is to do (`rke2_stand_in_files/README.md`)."""
    host.run("sh", "-c", "cat > /etc/rke2-stand-in.json", text=json.dumps(faults))
