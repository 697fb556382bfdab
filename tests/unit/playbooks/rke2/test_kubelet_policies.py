"""Another policy for CPUs or memory is refused where the kubelet has a checkpoint of the one before: it would not start."""

import json
from pathlib import Path

import pytest
from ansible.module_utils.rke2 import kubelet_policies

STATIC = "# Made by bringup.\napiVersion: kubelet.config.k8s.io/v1beta1\ncpuManagerPolicy: static\n"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A folder with the checkpoints of a kubelet that has no CPU or memory policy set."""
    (tmp_path / "cpu_manager_state").write_text(json.dumps({"policyName": "none", "defaultCpuSet": "", "checksum": 1353318690}))
    (tmp_path / "memory_manager_state").write_text(json.dumps({"policyName": "None", "checksum": 4066466990}))
    return str(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "fields", "said"),
    [
        ([], "", ""),
        (["max-pods=250", "cpu-manager-policy=none"], "", ""),
        (["cpu-manager-policy=none"], STATIC, ""),
        (["cpu-manager-policy-options=full-pcpus-only=true"], "", ""),
        (["cpu-manager-policy=static"], "", "cpuManagerPolicy was none here, and with static it would not start"),
        ([], STATIC, "cpuManagerPolicy was none"),
        (["memory-manager-policy=Static"], "", "memoryManagerPolicy was None"),
    ],
)
def test_a_policy_that_the_kubelet_would_not_start_with_is_refused(
    folder: str, arguments: list[str], fields: str, said: str
) -> None:
    found = kubelet_policies.refusal(arguments, fields, "", folder)
    assert (said in found, bool(found)) == (True, bool(said))


def test_a_policy_that_is_no_longer_asked_for_is_refused_too(folder: str) -> None:
    (Path(folder) / "cpu_manager_state").write_text(json.dumps({"policyName": "static"}))
    assert "cpuManagerPolicy was static here, and with none" in kubelet_policies.refusal([], "", STATIC, folder)
    assert "and with none" in kubelet_policies.refusal([], "", "kubelet-arg:\n-   cpu-manager-policy=static\n", folder)
    assert kubelet_policies.refusal([], "", "", folder) == "", "somebody else's drop-in may say it"
    assert kubelet_policies.refusal([], STATIC, STATIC, folder) == ""


def test_a_node_whose_kubelet_never_ran_takes_any_policy(tmp_path: Path) -> None:
    assert kubelet_policies.refusal(["cpu-manager-policy=static"], STATIC, "", str(tmp_path)) == ""
