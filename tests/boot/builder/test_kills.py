"""A build that is killed leaves no mount, no process and no half entry, and the next one builds the same."""

from pathlib import Path

import pytest

from steps.nodeimage.contract import build_keys
from steps.nodeimage.contract.resolved_recipe import LayerCommand, ResolvedLayer
from steps.stages.image_layers.contract import Built
from tests.boot.builder import tiny
from tests.boot.builder.started import SECONDS, Build, mounts
from tests.hosts.hostlab.waiting import until

ENTRIES = ("entry.json", "tree")


def left(images: Path) -> list[str]:
    return sorted(path.name for path in (images / "layers").iterdir() if not path.name.endswith(".lock"))


UNPACKED, CONFIGURED, ADDED = "usr/bin/dpkg", "etc/passwd", "srv/data"


@pytest.mark.sampled("kills of image builds")
@pytest.mark.parametrize("place", [CONFIGURED, *(pytest.param(place, marks=pytest.mark.long) for place in (UNPACKED, ADDED))])
def test_while_packages_are_installed(reference: tuple[Path, Built], empty: Path, place: str) -> None:
    build = Build(empty, tiny.recipe(), "ground")
    assert until(lambda: list(empty.glob(f"layers/.*.part*/tree/{place}")) or build.process.poll() is not None, SECONDS)
    build.kill()
    check(empty, tiny.recipe(), "ground", reference[1].digest)


@pytest.mark.sampled("kills of image builds")
@pytest.mark.parametrize("line", ["site: commands 1", "site: normal form"])
def test_while_a_layer_is_finished(reference: tuple[Path, Built], line: str) -> None:
    run = "for n in $(seq 300); do echo $n > /opt/$n; done"
    wanted = tiny.with_layer(ResolvedLayer(name="site", commands=(LayerCommand(run=f"{run}; echo {line}"),)))
    build = Build(reference[0], wanted, "site")
    build.wait_for(line)
    build.kill()
    check(reference[0], wanted, "site", "")


@pytest.mark.sampled("kills of image builds")
def test_while_a_command_hangs(reference: tuple[Path, Built]) -> None:
    wanted = tiny.with_layer(
        ResolvedLayer(name="hung", commands=(LayerCommand(run="mkfifo /tmp/f; touch /opt/hangs; cat /tmp/f"),))
    )
    build = Build(reference[0], wanted, "hung")
    assert until(lambda: list(reference[0].glob("layers/.*.part*/tree/opt/hangs")) or build.process.poll() is not None, SECONDS)
    build.kill()
    assert not mounts(reference[0])
    assert not (reference[0] / "layers" / build_keys.layers(wanted)["hung"]).exists()


def check(images: Path, wanted: object, layer: str, digest: str) -> None:
    """Nothing runs, nothing is mounted, no entry is half there; and a build makes the same and removes what was left."""
    assert not mounts(images)
    key = build_keys.layers(wanted)[layer]
    assert key not in left(images) or sorted(path.name for path in (images / "layers" / key).iterdir()) == list(ENTRIES)
    again = tiny.build(images, wanted, layer)
    assert not again.failed, again.output
    assert digest in ("", again.digest)
    assert not [name for name in left(images) if name.startswith(f".{key}")]
