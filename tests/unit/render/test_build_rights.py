"""Rights of pods that build node images, which no other pod may have."""

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.unit import small_image
from workflows import image
from workflows.nodeimage.image_plan import compile_image
from workflows.plan.model import Plan
from workflows.render import manifest_policy
from workflows.render.building import CAPABILITIES
from workflows.render.bundle import render
from workflows.render.steps import Settings

OTHERS = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


@pytest.fixture
def template(tmp_path: Path) -> dict[str, Any]:
    plan = compile_image(small_image.spec(tmp_path), small_image.recipe(), small_image.files())
    return render(plan, image.build, Settings(image="step:1", builder="builder:1")).template


def pods(template: dict[str, Any], *, builds: bool) -> dict[str, dict[str, Any]]:
    """Containers by the name of their template."""
    every = {one["name"]: one["container"] for one in template["spec"]["templates"] if "container" in one}
    return {name: one for name, one in every.items() if (one["args"][0] == "build") is builds}


def test_builders_are_root_with_what_building_takes_and_nothing_more(template: dict[str, Any]) -> None:
    found = pods(template, builds=True)
    assert set(found) >= {"image-lock-archive", "image-layers-layer-base", "image-assemble-outputs", "image-boot-boot-uefi"}
    for one in found.values():
        told = one["securityContext"]
        assert one["image"] == "builder:1"
        assert told["capabilities"] == {"drop": ["ALL"], "add": list(CAPABILITIES)}
        assert (told["runAsUser"], told["runAsNonRoot"], told["readOnlyRootFilesystem"]) == (0, False, True)
        assert "privileged" not in told
    others = pods(template, builds=False)
    assert {"image-publish-tree", "image-boot-judge", "run-open", "run-seal"} <= set(others)
    assert all(one["image"] == "step:1" and one["securityContext"] == OTHERS for one in others.values())


def test_test_machines_have_room_in_their_pod(template: dict[str, Any]) -> None:
    found = pods(template, builds=True)
    asked = {name: one["resources"]["requests"]["memory"] for name, one in found.items()}
    assert (asked["image-boot-boot-bios"], asked["image-lock-archive"]) == (f"{2 * 3072 + 1024}Mi", "1024Mi")


@pytest.mark.parametrize(
    ("which", "told", "sentence"),
    [
        ("run-open", {"runAsUser": 0}, "only verb build is root"),
        ("run-open", {"runAsNonRoot": False}, "only verb build is root"),
        ("run-open", {"appArmorProfile": {"type": "Unconfined"}}, "goes without AppArmor"),
        ("run-open", {"capabilities": {"add": ["SYS_ADMIN"]}}, "SYS_ADMIN is more than its verb needs"),
        ("image-lock-archive", {"capabilities": {"add": ["SYS_MODULE"]}}, "SYS_MODULE is more than its verb needs"),
        ("image-lock-archive", {"privileged": True}, "privileged is more than its verb needs"),
        ("run-open", {"seccompProfile": {"type": "Unconfined"}}, "goes without AppArmor and seccomp"),
    ],
)
def test_more_rights_than_a_verb_needs_are_a_breach(
    template: dict[str, Any], which: str, told: dict[str, Any], sentence: str
) -> None:
    assert manifest_policy.breaches(template) == ()
    changed = copy.deepcopy(template)
    (one,) = (one for one in changed["spec"]["templates"] if one["name"] == which)
    one["container"]["securityContext"] |= told
    (breach,) = manifest_policy.breaches(changed)
    assert sentence in breach


def test_the_proxy_of_a_spec_is_told_to_those_who_fetch_and_to_nobody_else(tmp_path: Path) -> None:
    told = {"webhook": {"secret": {"name": "chat", "key": "url"}}}
    asked = {"approval": {"approvers": ["ada@example.org"], "announce": told}}

    def planned(**more: Any) -> Plan:
        return compile_image(small_image.spec(tmp_path, **asked, **more), small_image.recipe(), small_image.files())

    before, plan = planned(), planned(proxy={"http": "http://proxy.example.org:3128", "no_proxy": [".corp"]})
    assert plan.digest == before.digest, "nothing else is done, and what was shown of this image still holds"
    assert plan.inputs != before.inputs, "what is installed is another one"
    found = render(plan, image.build, Settings(image="step:1", builder="builder:1")).template["spec"]["templates"]
    every = {
        one["name"]: {entry["name"]: entry["value"] for entry in one["container"]["env"]} for one in found if "container" in one
    }
    through = {name for name, env in every.items() if any("proxy" in variable.lower() for variable in env)}
    assert through == {"image-lock-archive", "image-publish-announce"}
    for env in (every[name] for name in through):
        assert env["http_proxy"] == env["HTTPS_PROXY"] == "http://proxy.example.org:3128"
        assert {".svc", ".cluster.local", "localhost", ".corp"} <= set(env["no_proxy"].split(","))
