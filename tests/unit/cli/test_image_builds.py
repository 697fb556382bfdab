"""`bringup image build` before anything is built: where it may publish to, and which builds a newer one ends."""

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from tests.unit.cli.conftest import until

Write = Callable[..., str]


@pytest.fixture
def mute() -> Iterator[str]:
    """URL of a mirror that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/debian"


@pytest.fixture
def write(machine: Any) -> Write:
    """Writes an image spec of that name, and gives its file's."""
    (machine.folder / "published").mkdir()

    def made(name: str, mirror: str, **publish: Any) -> str:
        told = {"root": str(machine.folder / "published"), "url": "http://boot.example.org/images", **publish}
        spec = {"apiVersion": "bringup/v1", "kind": "Image", "name": name, "owner": "hpc", "revision": "1", "recipe": "base"}
        (machine.folder / f"{name}.yaml").write_text(yaml.safe_dump({**spec, "mirror": mirror, "publish": told}))
        return f"{name}.yaml"

    return made


def test_a_newer_build_ends_those_of_this_image_and_no_other(machine: Any, write: Write, mute: str) -> None:
    other = machine.start("image", "build", write("lab-gpu", mute))
    other.say("run lab-gpu-")
    older = machine.start("image", "build", write("lab", mute))
    older.say("run lab-")
    until(lambda: len(machine.processes()) >= 2, "both to fetch packages", 30)
    newer = machine.start("image", "build", "lab.yaml", "--supersede", "--until", "image_lock")
    newer.say("is superseded, and is being cancelled")
    assert older.end().code == 65
    assert other.process.poll() is None, "a name that begins alike is another image"
    machine.call("cancel", "--now")
    for one in (newer, other):
        one.process.kill()


@pytest.mark.parametrize(
    ("publish", "words", "sentence"),
    [
        ({"root": "/no/such/folder"}, (), "publish.root /no/such/folder is no folder of this machine"),
        ({}, ("--engine", "argo", "--image", "registry.example.org/builder:1"), "pods have none of it: add publish.ssh"),
        ({"url": "https://boot.example.org/images"}, (), "publish.url"),
    ],
    ids=["no folder", "argo", "https"],
)
def test_what_could_not_be_published_is_said_before_anything_is_built(
    machine: Any, write: Write, publish: dict[str, Any], words: tuple[str, ...], sentence: str
) -> None:
    done = machine.call("image", "build", write("lab", "http://127.0.0.1:9/debian", **publish), *words)
    assert done.code == 64
    assert sentence in done.err
    assert machine.runs == []


def test_the_step_image_cannot_build_images(machine: Any, write: Write) -> None:
    ssh = {"host": "boot.example.org", "key": {"file": "./key"}, "known_hosts": "./known_hosts"}
    done = machine.call("image", "build", write("lab", "http://127.0.0.1:9/debian", ssh=ssh), "--engine", "argo")
    assert done.code == 64
    assert "the step image has no programs that build images" in done.err
