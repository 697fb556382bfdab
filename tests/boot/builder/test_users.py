"""A user without rights builds the same bytes in a user namespace; where that cannot be, one sentence says what is missing."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from steps.nodeimage.contract.resolved_recipe import LayerCommand, ResolvedLayer
from steps.stages.image_layers.contract import Built
from tests.boot.builder import tiny
from tests.boot.builder.started import ROOT, Build

UID = 54321
NAME = "image-builder"


@pytest.fixture
def home(archive: Path) -> Iterator[Path]:
    """A folder that the user may reach and write to, with a store that has the packages."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    folder.chmod(0o755)
    images = folder / "images"
    shutil.copytree(archive / "archive", images / "archive")
    for path in (images, *images.rglob("*")):
        shutil.chown(path, UID, UID)
    shutil.chown(images, UID, 1234)
    images.chmod(0o2775)  # a folder that a group shares
    yield folder
    shutil.rmtree(folder)


WITHOUT = "exec unshare --user --map-users=0,0,65536 --map-groups=0,0,65536 sh -ec"
"""In a user namespace of all ids of a system, where as on a machine of its own a switch may be set."""
OFF = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'


def as_user(folder: Path, *, ranges: bool = True, namespaces: bool = True) -> tuple[str, ...]:
    """The command before another one that runs it as the user, who exists in a mount namespace alone, as do its subordinate ids;
    without `namespaces` no user may make a user namespace there."""
    account = f"{NAME}:x:{UID}:{UID}::/nonexistent:/bin/sh\n"
    for name, line in (("passwd", account), ("group", f"{NAME}:x:{UID}:\n"), ("subuid", ""), ("subgid", "")):
        before = Path("/etc", name).read_text() if Path("/etc", name).exists() else ""
        (folder / name).write_text(before + (line or (f"{NAME}:600000:65536\nroot:0:65536\n" if ranges else "")))
        (folder / name).chmod(0o644)
    script = [f"mount --bind {folder}/{name} /etc/{name}" for name in ("passwd", "group", "subuid", "subgid")]
    for number, closed in enumerate(_closed()):
        upper, work = folder / f"upper{number}", folder / f"work{number}"
        upper.mkdir(mode=0o755, exist_ok=True)
        work.mkdir(exist_ok=True)
        script.append(f"mount -t overlay -o lowerdir={closed},upperdir={upper},workdir={work} none {closed}")
    become = f"setpriv --reuid {UID} --regid {UID} --clear-groups"
    run = f'cd {ROOT}; exec {become} "$@"' if namespaces else f"cd {ROOT}; {WITHOUT} '{OFF}' sh {become} \"$@\""
    return ("unshare", "--mount", "--propagation", "private", "sh", "-ec", "; ".join([*script, run]), "sh")


def _closed() -> list[Path]:
    """Folders on the way to this interpreter and checkout that only root may enter."""
    ways = [Path(sys.executable), Path(sys.executable).resolve(), ROOT]
    found = {folder for way in ways for folder in way.parents if not folder.stat().st_mode & 0o001}
    return sorted(found)


@pytest.mark.sampled("equal bytes")
def test_a_user_builds_the_same_bytes(reference: tuple[Path, Built], home: Path) -> None:
    built = Build(home / "images", tiny.recipe(), "ground", as_user(home)).built()
    assert not built.failed, f"{built.failed}: {built.output}"
    assert built.digest == reference[1].digest
    top = Build(home / "images", tiny.recipe(), "top", as_user(home)).built()
    assert top.digest == tiny.build(reference[0], tiny.recipe(), "top").digest
    again = Build(home / "images", tiny.recipe(), "top", as_user(home)).built()
    assert again.cached


def test_a_user_hands_a_secret_to_its_command_alone(home: Path) -> None:
    token = home / "images/secrets/token"
    token.parent.mkdir()
    token.write_text("canary-8c1f0a6e\n")
    for path in (token.parent, token):
        shutil.chown(path, UID, UID)
        path.chmod(0o700)
    uses = LayerCommand(run=f"grep -q canary /run/secrets/token; ! grep -q . /proc/1/root{token}", secrets=("token",))
    other = LayerCommand(run=f"test -e /proc/1/root{token}; test ! -e /run/secrets; ! grep -q . /proc/1/root{token}")
    wanted = tiny.with_layer(ResolvedLayer(name="secret", commands=(uses, other)))
    built = Build(home / "images", wanted, "secret", as_user(home)).built()
    assert (built.failed, built.output, built.secrets_found) == ("", "", ())


@pytest.mark.parametrize(
    ("lacking", "sentence"),
    [
        ({"ranges": False}, "/etc/subuid gives it no 65536 subordinate ids"),
        ({"namespaces": False}, "/proc/sys/user/max_user_namespaces is 0"),
    ],
    ids=str,
)
def test_what_a_user_lacks_is_one_sentence(lacking: dict[str, bool], sentence: str, home: Path) -> None:
    build = Build(home / "images", tiny.recipe(), "ground", as_user(home, **lacking))
    build.process.wait()
    said = build.output.read_text().splitlines()[-1]
    assert said == f"steps.errors.BadTask: user {NAME} cannot build images here: {sentence}"
    assert not (home / "images/layers").exists(), "before anything is begun"
