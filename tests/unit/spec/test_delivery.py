"""Values that a delivery or an air gap must not have: tokens in an address, and a CA that nothing could use."""

from typing import Any

import pytest
import yaml

from tests.unit.rehearsal.small import SMALL
from workflows.spec import SpecErrors, load

CANARY = "canary-7f3a9b2c1d"
ARGO_CD: dict[str, Any] = {"repo": "https://git.example.org/p.git", "revision": "v1", "project": "platform"}
CA = {"ca": {"file": "./ca.pem"}}


def refused(more: dict[str, Any]) -> str:
    with pytest.raises(SpecErrors) as raised:
        load(yaml.safe_dump(SMALL | more))
    return str(raised.value)


@pytest.mark.parametrize("tail", [f"?access_token={CANARY}", f"#{CANARY}"])
def test_a_token_in_the_address_is_refused_and_not_shown(tail: str) -> None:
    said = refused({"delivery": {"mode": "argo_cd", "argo_cd": ARGO_CD | {"repo": f"https://git.example.org/p.git{tail}"}}})
    assert "query or a fragment" in said
    assert CANARY not in said


def test_a_ca_needs_a_server_that_a_config_map_can_name() -> None:
    address = {"repo": "https://[fd00::1]/p.git"}
    assert "IPv6" in refused({"delivery": {"mode": "argo_cd", "argo_cd": ARGO_CD | address | CA}})
    assert load(yaml.safe_dump(SMALL | {"delivery": {"mode": "argo_cd", "argo_cd": ARGO_CD | address}}))


def test_a_ca_of_the_mirror_is_refused_with_what_to_do() -> None:
    airgap = {"registry": "r.example.org", "charts": "oci://r.example.org/charts", **CA}
    assert "configs: {tls: {certificates" in refused({"airgap": airgap})
