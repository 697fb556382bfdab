"""Notes beside a verdict: files of the site that were moved aside, and what stays in the kernel until the boot after a reset."""

from typing import Any

import pytest

from steps.contract.host_play import HostOutcome, HostStatus
from steps.stages.reset import contract as reset_contract
from steps.stages.reset import gate as reset_gate
from steps.stages.reset import probe as reset
from steps.stages.rke2 import contract as rke2_contract
from steps.stages.rke2 import gate as rke2_gate
from steps.stages.rke2 import probe as rke2

CONFIG, DEFAULT = "/etc/rancher/rke2.before-bringup/config.yaml", "/etc/default/rke2-agent.before-bringup"
KEPT = {"gpu001": [CONFIG], "gpu002": [CONFIG], "gpu003": [], "gpu004": [CONFIG, DEFAULT]}
NOTES = (
    f"files of the site were in the places of ours, and are kept as {CONFIG} on gpu[001-002]",
    f"files of the site were in the places of ours, and are kept as {CONFIG}, {DEFAULT} on gpu004",
)


def outcomes(**facts: Any) -> tuple[HostOutcome, ...]:
    """Hosts that showed these facts, each with what is kept there."""
    return tuple(HostOutcome(host=name, status=HostStatus.OK, facts={**facts, "aside": kept}) for name, kept in KEPT.items())


def test_a_run_says_which_files_it_kept_aside() -> None:
    seen = outcomes(service="rke2-agent", restarts=0, version="v1.35.7+rke2r1", state="active", enabled=True, ready=True)
    want = rke2_contract.PlayExpectation(version="v1.35.7+rke2r1", service="rke2-agent", nodes=tuple(KEPT))
    verdict = rke2_gate.agents(rke2.from_play(seen), want)
    assert (verdict.is_pass, tuple(verdict.notes)) == (True, NOTES)


def test_a_reset_says_where_they_still_lie() -> None:
    kinds = ("processes", "mounts", "links", "addresses", "routes", "rules", "paths", "units")
    seen = outcomes(traces={**{kind: [] for kind in kinds}, "looked": dict.fromkeys(kinds, 1)})
    verdict = reset_gate.agents(reset.from_play(seen), reset_contract.ResetExpectation(nodes=tuple(KEPT)))
    assert (verdict.is_pass, tuple(verdict.notes)) == (True, NOTES)


@pytest.mark.parametrize(
    ("kind", "note"),
    [
        ("foreign_driver", "the NVIDIA driver of a container stays in the kernel of gpu[001-002] until the next boot"),
        (
            "cilium_programs",
            "BPF programs and maps of Cilium stay in the kernel of gpu[001-002] until the next boot: reboot before another network "
            "plugin runs there",
        ),
    ],
)
def test_a_reset_says_what_is_still_in_the_kernel(kind: str, note: str) -> None:
    kinds = ("processes", "mounts", "links", "addresses", "routes", "rules", "paths", "units")
    facts = {"traces": {**{kind: [] for kind in kinds}, "looked": dict.fromkeys(kinds, 1)}}
    told = {"gpu001": True, "gpu002": True, "cpu001": False}
    seen = [HostOutcome(host=name, status=HostStatus.OK, facts={**facts, kind: one}) for name, one in told.items()]
    seen.append(HostOutcome(host="cpu002", status=HostStatus.OK, facts=facts))
    verdict = reset_gate.agents(reset.from_play(seen), reset_contract.ResetExpectation(nodes=(*told, "cpu002")))
    assert (verdict.is_pass, tuple(verdict.notes)) == (True, (note,))
