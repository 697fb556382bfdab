"""Each pod mounts the secret files that its task names, and no other."""

from typing import Any

import pytest

from steps.contract.task import Task, Verb
from workflows import bringup, examples
from workflows.app.specs.manifests import rendered
from workflows.plan.compiler import compile_plan
from workflows.plan.model import Plan
from workflows.render import names
from workflows.render.bundle import Bundle
from workflows.render.secret_volumes import needed_secrets
from workflows.spec import load
from workflows.stages.host_access import SecretFile

TOLD = """approvals:
  - before: rke2
    approvers: [registry]
    announce: {webhook: {secret: {name: chat, key: url}}}
  - before: gpu_operator
    approvers: [registry]
    announce: {webhook: {env: CHAT}, ca: {file: ./chat_ca.pem}}
secrets: {registry: {env: REGISTRY}}
target: {kubeconfig: {file: ./kubeconfig}}
"""


def plan(name: str, more: str = "") -> Plan:
    return compile_plan(load(examples.path(name).read_text() + more))


def mounted(made: Bundle) -> dict[str, set[str]]:
    """Names of the secret files that each container template has."""
    spec: dict[str, Any] = made.template["spec"]
    held = {
        volume["name"]: {item["path"] for row in volume["projected"]["sources"] for item in row["secret"]["items"]}
        for volume in spec["volumes"]
        if "projected" in volume
    }
    found = {}
    for one in spec["templates"]:
        if "container" in one:
            chosen = [mount["name"] for mount in one["container"]["volumeMounts"] if mount["mountPath"] == "/bringup/secrets"]
            assert len(chosen) <= 1
            found[one["name"]] = held[chosen[0]] if chosen else set()
    assert {frozenset(files) for files in held.values()} == {frozenset(files) for files in found.values() if files}
    assert len(held) <= 8
    return found


def test_who_announces_has_its_url_and_its_ca_and_nothing_else() -> None:
    found = mounted(rendered(plan("single-node", TOLD), bringup.build))
    assert found["rke2-announce"] == {"announce.rke2"}
    assert found["gpu-operator-announce"] == {"announce.gpu_operator", "announce_ca.gpu_operator"}
    who = [name for name, files in found.items() if any(file.startswith("announce") for file in files)]
    assert who == ["rke2-announce", "gpu-operator-announce"]


def test_an_announcement_names_no_secret_in_the_words_of_people() -> None:
    files = tuple(SecretFile(name=name, path=name) for name in ("ada", "h200", "slurm", "hook", "ca"))
    said = {"cluster": "h200", "approvers": ["ada"], "approved": "slurm", "webhook": "hook"}
    assert needed_secrets(Task(stage="s", name="t", verb=Verb.ANNOUNCE, arguments=said), files) == ("hook",)
    assert needed_secrets(Task(stage="s", name="t", verb=Verb.ANNOUNCE, arguments=said | {"ca": "ca"}), files) == ("ca", "hook")


def test_who_decides_and_who_reports_has_none() -> None:
    found = mounted(rendered(plan("single-node", TOLD), bringup.build))
    assert found["rke2-confirm"] == found["gpu-operator-confirm"] == found["run-report"] == set()


def test_hosts_are_reached_by_who_plays_alone() -> None:
    found = mounted(rendered(plan("single-node", TOLD), bringup.build))
    with_key = {name for name, files in found.items() if "ssh_key" in files}
    assert with_key == {"run-open", "os-prep-play", "rke2-servers"}
    assert found["rke2-servers"] == {"kubeconfig", "known_hosts", "ssh_key"}
    assert found["gpu-operator-judge"] == found["run-seal"] == {"kubeconfig"}


def test_the_login_of_the_proxy_before_ssh_lies_where_the_key_does() -> None:
    login = "http_proxy_user: site, http_proxy_password: {secret: {name: ssh-proxy, key: password}}"
    text = examples.path("single-node").read_text().replace("ssh: {", f'ssh: {{http_proxy: "http://proxy:3128", {login}, ')
    made = rendered(compile_plan(load(text)), bringup.build)
    found = mounted(made)
    assert {name for name, files in found.items() if "ssh_proxy_password" in files} == {"run-open", "os-prep-play", "rke2-servers"}
    sources = [row["secret"] for one in made.template["spec"]["volumes"] for row in one.get("projected", {}).get("sources", ())]
    items = {item["path"]: (row["name"], item["key"]) for row in sources for item in row["items"]}
    assert items["ssh_proxy_password"] == ("ssh-proxy", "password")


def test_git_is_let_in_for_who_pushes_or_tells_argo_cd() -> None:
    found = mounted(rendered(plan("multi-rack-232"), bringup.build))
    assert {name for name, files in found.items() if "git_credentials" in files} == {
        "base-services-publish",
        "base-services-delivery-settings",
    }
    assert found["base-services-publish"] == {"git_credentials"}


@pytest.mark.parametrize("name", examples.names())
def test_what_a_task_names_it_has(name: str) -> None:
    made = plan(name)
    found, known = mounted(rendered(made, bringup.build)), {file.name for file in made.secrets}
    for one in made.tasks:
        ssh = one.arguments.get("ssh") or {}
        told = {ssh.get("key"), ssh.get("known_hosts"), ssh.get("sudo_password"), (ssh.get("jump") or {}).get("key_path")}
        told |= set((one.arguments.get("secret_variables") or {}).values())
        told |= {one.arguments.get("credentials"), one.arguments.get("ca")}
        assert known & told <= found[names.template(one.stage, one.name)]


def test_a_name_is_found_wherever_a_task_has_it() -> None:
    files = tuple(SecretFile(name=name, path=name) for name in ("a", "b", "c", "kubeconfig"))
    deep = {"x": [{"y": ("a", {"b": "is a key, not a name"})}]}
    assert needed_secrets(Task(stage="s", name="t", verb=Verb.PLAY, arguments=deep), files) == ("a", "kubeconfig")
    assert needed_secrets(Task(stage="s", name="t", verb=Verb.PUBLISH, expectations=deep), files) == ("a",)
    assert needed_secrets(Task(stage="s", name="t", verb=Verb.JUDGE), files[:1]) == ()
