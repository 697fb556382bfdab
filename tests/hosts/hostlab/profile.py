"""The node profile that plays on hosts of the lab are given: the catalog's own, with a disk that a test machine has."""

from typing import Any

from hostlab.host import Host
from hostlab.lab import Lab

from steps.contract.host_play import PlayHost, PlayRequest, PlayResult
from steps.contract.verdict import Verdict
from steps.stages.os_prep import gate, probe
from steps.stages.os_prep.contract import NodesExpectation
from workflows.catalog import profile as catalog

DISTRIBUTION = "debian"
FREE = {"/var/lib/rancher": 100}
NO_TIME = ("time service",)
"""Items that no host in namespaces can have: the clock belongs to the whole machine."""

CHANGE = "Bring the node to its profile"


def variables(distribution: str = DISTRIBUTION, **changes: Any) -> dict[str, Any]:
    """Variables of the play os_prep; `changes` are keys of the profile."""
    return {"os_prep_profile": {**catalog.of_system(distribution), "disks": FREE, **changes}, "os_prep_clock_seconds": 0}


def reached(lab: Lab, host: Host, **words: Any) -> PlayHost:
    """Return a host as plays reach it: as root with the lab's key; `words` override fields."""
    return PlayHost(**{"name": host.name, "address": host.address, "key_path": str(lab.key), **words})


def request(lab: Lab, *hosts: PlayHost, **words: Any) -> PlayRequest:
    """The play os_prep on all hosts of the lab, or on these."""
    chosen = hosts or tuple(reached(lab, host) for host in lab.hosts)
    return PlayRequest(
        **{"playbook": "os_prep", "hosts": chosen, "variables": variables(), "known_hosts": str(lab.known_hosts), **words}
    )


def judged(result: PlayResult, **words: Any) -> Verdict:
    """Judge a play with the gate of OS prep; `words` override the expectation."""
    names = tuple(outcome.host for outcome in result.hosts)
    want = NodesExpectation(**{"nodes": names, "items": ("package chrony", "sysctl *"), "tolerate": NO_TIME, **words})
    return gate.nodes(probe.from_play(result.hosts), want)
