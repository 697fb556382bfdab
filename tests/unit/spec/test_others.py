"""The specs of factory, stack and image: small, with the same errors; and what is out of scope, as data."""

import pytest

from workflows import spec
from workflows.nodeimage import image_spec
from workflows.softwarestack import stack_spec
from workflows.spec.parsing.out_of_scope import find
from workflows.spec.starter import starter

FACTORY = """
apiVersion: bringup/v1
kind: Factory
name: factory
owner: hpc-software@example.org
revision: "1"
hosts:
  nodes: {role: server, ranges: "f[1-3]", addresses: {start: 10.1.0.1}}
ssh: {user: root, key: {file: ./id_ed25519}}
rke2: {registration_address: 10.1.0.10}
schedule: {cron: "0 2 * * 6"}
"""
STACK = """
apiVersion: bringup/v1
kind: Stack
name: stack
owner: hpc-software@example.org
revision: "1"
lock: spack.lock
spack: {url: https://github.com/spack/spack.git, revision: v1.1.0, environment: spack.yaml}
builder: registry.example.org/builder:2026.11
cache: /srv/bringup/buildcache
tests: [{name: mpi_hello, command: [mpirun, -n, "2", hello]}]
publish: {root: /srv/bringup/stacks}
"""
IMAGE = """
apiVersion: bringup/v1
kind: Image
name: compute
owner: hpc-software@example.org
revision: "1"
recipe: recipes/compute.yaml
boot: {firmware: [uefi]}
publish: {root: /srv/bringup/images, url: "http://boot.example.org/images", keep: 5}
"""


def test_they_load() -> None:
    assert spec.load_factory(FACTORY).hosts["nodes"].names() == ("f1", "f2", "f3")
    assert stack_spec.load_stack(STACK).tests[0].command == ("mpirun", "-n", "2", "hello")
    assert image_spec.load_image(IMAGE).boot.firmware == ("uefi",)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (FACTORY.replace("f[1-3]", "f[1-2]"), "2 servers cannot hold"),
        (FACTORY.replace("rke2: {registration_address: 10.1.0.10}\n", ""), "one address in front"),
        (FACTORY.replace('"0 2 * * 6"', "weekly"), "cron has five fields, this has 1"),
        (FACTORY.replace("role: server", "role: server, gpu: true"), "no accelerators"),
        (FACTORY.replace("kind: Factory", "kind: Cluster"), "not one of: Factory"),
        (STACK.replace("v1.1.0", "develop"), "different things at different times"),
        (STACK.replace("v1.1.0", "HEAD"), "different things at different times"),
        (STACK.replace("environment: spack.yaml", "environment: ../spack.yaml"), "leads outside"),
        (STACK.replace("environment: spack.yaml", "environment: /etc/spack.yaml"), "leads outside"),
        (STACK.replace("lock:", "lok:"), "did you mean lock"),
        (IMAGE.replace("keep: 5", "keep: 1"), "at least 2"),
        (IMAGE.replace("[uefi]", "[efi]"), "write uefi"),
        (FACTORY.replace('6"', '6", timezone: Europe/Belin'), "write Europe/Berlin"),
        (FACTORY + "registry: {size_gib: 10}\n", "did you mean size"),
        (FACTORY + "wipe: true\n", "not in this version: run rke2-uninstall"),
        (STACK + "parallel: 8\n", "not in this version"),
        (STACK.replace("stacks}", "stacks, signing_key: {env: KEY}}"), "not in this version"),
        (IMAGE + "compression: zstd\n", "not in this version"),
        (IMAGE + "signing_token: hunter2hunter2\n", "written out in the spec"),
    ],
)
def test_their_errors_are_of_the_same_kind(text: str, sentence: str) -> None:
    load = {"Factory": spec.load_factory, "Stack": stack_spec.load_stack, "Image": image_spec.load_image}
    name = next(
        kind
        for kind, good in (("Factory", FACTORY), ("Stack", STACK), ("Image", IMAGE))
        if good[:60] in text or kind.lower() in text[:80].lower()
    )
    with pytest.raises(spec.SpecErrors, match=sentence) as caught:
        load[name](text)
    assert caught.value.exit_code == 64


def test_what_is_out_of_scope_is_said_in_one_sentence_each() -> None:
    assert len({entry.sentence for entry in spec.OUT_OF_SCOPE}) == len(spec.OUT_OF_SCOPE)
    for entry in spec.OUT_OF_SCOPE:
        assert "out of scope" in entry.sentence
        assert entry.sentence.endswith(".")
        assert entry.sentence.count(". ") == 0
        assert all(find(key) is entry for key in entry.keys)
    for topic in ("cluster autoscaling", "inference serving", "managed clouds"):
        assert topic in {entry.topic for entry in spec.OUT_OF_SCOPE}


@pytest.mark.parametrize("key", [key for entry in spec.OUT_OF_SCOPE for key in entry.keys])
def test_no_key_of_ours_is_out_of_scope(key: str) -> None:
    with pytest.raises(spec.SpecErrors, match="out of scope"):
        spec.load(starter() + f"{key}: {{}}\n")
