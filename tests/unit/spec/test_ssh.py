"""What a spec says of SSH beside users and keys, as plays get it."""

from typing import Any

import pytest

from workflows import spec
from workflows.stages.access import ssh_arguments

HEAD = """apiVersion: bringup/v1
kind: Cluster
name: x
owner: tests@example.org
revision: "1"
hosts: {servers: {role: server, ranges: s1}}
"""


@pytest.mark.parametrize(
    ("said", "given"), [("{}", {}), ("{post_quantum: false}", {}), ("{post_quantum: true}", {"post_quantum": True})]
)
def test_plays_hear_of_post_quantum_where_it_is_asked_for(said: str, given: dict[str, Any]) -> None:
    found = ssh_arguments(spec.load(f"{HEAD}ssh: {said}\n"))
    assert {name: value for name, value in found.items() if name == "post_quantum"} == given


def test_the_field_says_what_it_costs_and_what_is_lost_without_it() -> None:
    described = spec.json_schema("Cluster")["$defs"]["Ssh"]["properties"]["post_quantum"]
    assert described["default"] is False
    for said in ("80 ms of CPU a login", "curve25519", "mlkem768"):
        assert said in described["description"]
