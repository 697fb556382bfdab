"""The real step image: built twice to the same digest, then run as a pod runs it: uid 8737, read-only root, five folders."""

import gzip
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steps.contract import fleet, paths
from steps.contract.task import Task, Verb, encode, file_name
from tests.unit.images.containerfile import containerfile, step_stages
from workflows.podimage import downloads

ROOT = Path(__file__).parents[2]
LIMIT = 150_000_000
USER = 8737
ABSENT = ("hera", "typer", "rich", "workflows")
"""Not in the image at all."""
NOT_LOADED = ("pydantic", "kubernetes", "ansible_runner")
"""In the image (kubernetes requires pydantic), but no step loads it when it is imported."""
WITHOUT_LIBRARY = {"usr/lib/python3.11/lib-dynload/_dbm.cpython-311-x86_64-linux-gnu.so"}
"""dbm files: their library is left out by the recipe."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to start programs in the image's root as another user")

START = """set -e
root=$1; folders=$2; shift 2
mount --bind "$root" "$root"
for name in tasks fleet secrets store out; do mount --bind "$folders/$name" "$root/bringup/$name"; done
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mount -o remount,bind,ro "$root"
cd "$root"
exec chroot --userspec=8737:8737 "$root" /usr/bin/env -i "$@"
"""


@dataclass(frozen=True)
class Pod:
    """The unpacked image and the five folders."""

    root: Path
    folders: Path
    config: dict[str, Any]

    def run(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        environment = [*self.config["Env"], *(f"{name}={value}" for name, value in more.items())]
        words = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", START, "sh", str(self.root), str(self.folders)]
        return subprocess.run([*words, *environment, *command], capture_output=True, text=True, check=False, timeout=120)

    def good(self, *command: str) -> str:
        done = self.run(*command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def build(out: Path, tree: Path = ROOT, **environment: str) -> dict[str, Any]:
    words = [sys.executable, "-c", "from workflows.cli.main import main; main()", "image", "step", "build", "-o", "json"]
    done = subprocess.run(
        [*words, "--tree", str(tree), "--out", str(out)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree, so that nobody edits it meanwhile."""
    copy = tmp_path_factory.mktemp("tree")
    for name in ("steps", "playbooks", "images"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "uv.lock", copy)
    return copy


@pytest.fixture(scope="module")
def built(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return build(tmp_path_factory.mktemp("image") / "step.tar", tree)


@pytest.fixture(scope="module")
def archive(built: dict[str, Any]) -> Iterator[tarfile.TarFile]:
    with tarfile.open(built["archive"]) as opened:
        yield opened


def member(archive: tarfile.TarFile, digest: str) -> bytes:
    found = archive.extractfile(f"blobs/{digest.replace(':', '/')}")
    assert found is not None
    return found.read()


@pytest.fixture(scope="module")
def layers(built: dict[str, Any], archive: tarfile.TarFile) -> list[bytes]:
    """The layers' tar archives."""
    manifest = json.loads(member(archive, built["digest"]))
    return [gzip.decompress(member(archive, layer["digest"])) for layer in manifest["layers"]]


def unpack(layer: bytes, root: Path) -> None:
    root.mkdir(exist_ok=True)
    subprocess.run(
        ["tar", "--extract", "--numeric-owner", "--preserve-permissions", "--directory", str(root)], input=layer, check=True
    )


@pytest.fixture(scope="module")
def pod(built: dict[str, Any], archive: tarfile.TarFile, layers: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> Pod:
    root, folders = tmp_path_factory.mktemp("pod") / "root", tmp_path_factory.mktemp("folders")
    for layer in layers:
        unpack(layer, root)
    for folder in (root / "proc", root / "dev"):
        folder.mkdir(exist_ok=True)
    for name in paths.FOLDERS:
        (folders / name).mkdir()
    for name in ("store", "out"):
        os.chown(folders / name, USER, USER)
    for path in (folders, *folders.parents[:2], root.parent):
        path.chmod(0o755)
    return Pod(root, folders, json.loads(member(archive, built["image_id"]))["config"])


def test_it_is_small(built: dict[str, Any]) -> None:
    assert built["size"] <= LIMIT


@pytest.mark.sampled("ways to build the step image")
def test_a_second_build_elsewhere_gives_the_same_digest(built: dict[str, Any], tree: Path, tmp_path: Path) -> None:
    """All layers anew; only the fetched packages are shared."""
    packages = tmp_path / "another cache" / "images" / "packages"
    shutil.copytree(downloads.default_cache_folder() / "packages", packages)
    again = build(tmp_path / "again.tar", tree, BRINGUP_CACHE=str(tmp_path / "another cache"), TZ="Asia/Tokyo", LC_ALL="C")
    assert (again["digest"], again["image_id"]) == (built["digest"], built["image_id"])
    assert Path(again["archive"]).read_bytes() == Path(built["archive"]).read_bytes()


def test_every_module_of_steps_is_there_and_loads_nothing_heavy(pod: Pod) -> None:
    code = f"""
import importlib, importlib.util, pathlib, sys
top = pathlib.Path("/opt/bringup")
modules = [path.relative_to(top).with_suffix("").as_posix().replace("/", ".") for path in sorted(top.glob("steps/**/*.py"))]
for name in modules:
    if not name.endswith("__main__"):
        importlib.import_module(name.removesuffix(".__init__"))
loaded = [name for name in {NOT_LOADED} if name in sys.modules]
print(len(modules), loaded, [name for name in {ABSENT} if importlib.util.find_spec(name)])
"""
    count = len(list((pod.root / "opt/bringup/steps").rglob("*.py")))
    assert pod.good("python3", "-c", code).split(maxsplit=1) == [str(count), "[] []\n"]


def test_a_judge_without_records_writes_its_own_and_ends_with_65(pod: Pod) -> None:
    arguments = {"checks": [{"task": "control", "gate": "gang/control"}], "needed": 1}
    task = Task(stage="gang", name="judge", verb=Verb.JUDGE, arguments=arguments)
    name = file_name(task.stage, task.name)
    (pod.folders / "tasks" / name).write_bytes(encode(task))
    hosts = [fleet.Host(name="gpu1", address="gpu1", group="g", role="agent", gpus=8)]
    (pod.folders / "fleet" / fleet.shard_file(0)).write_bytes(gzip.compress(msgspec.json.encode(hosts), mtime=0))
    index = fleet.Index(plan="sha256:p", hosts=1, shards=1)
    (pod.folders / "fleet" / fleet.INDEX).write_bytes(msgspec.json.encode(index))
    entry = pod.config["Entrypoint"]
    done = pod.run(*entry, "judge", "--task", f"{paths.ROOT}/tasks/{name}", BRINGUP_RUN="r1")
    assert done.returncode == 65, done.stdout + done.stderr
    assert (pod.folders / "out/verdict").read_text() == "inconclusive"
    records = [path for path in (pod.folders / "store").rglob("*.json") if "judge" in path.as_posix()]
    assert records
    assert {path.stat().st_uid for path in records} == {USER}


def test_ansible_ssh_and_kubernetes_work_in_it(pod: Pod) -> None:
    said = pod.good("ansible-playbook", "--version")
    assert "ansible-playbook [core 2.19" in said
    assert "executable location = /opt/bringup/lib/bin/ansible-playbook" in said
    for playbook in ("os_prep", "rke2_server", "rke2_agent"):
        pod.good("ansible-playbook", "--syntax-check", "--inventory", "localhost,", f"/opt/bringup/playbooks/{playbook}.yml")
    pod.good("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/bringup/out/key")
    assert "OpenSSH" in pod.run("ssh", "-V").stderr
    unknown = pod.run("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=2", "-p", "1", "127.0.0.1")
    assert "No user exists" not in unknown.stderr
    modules = "kubernetes, ansible_runner, yaml, jinja2, tenacity, dulwich.client, dulwich.repo"
    pod.good("python", "-c", f"import {modules}; assert yaml.__with_libyaml__")
    assert int(pod.good("python3", "-c", "import ssl; print(ssl.create_default_context().cert_store_stats()['x509_ca'])")) > 100


def test_a_step_is_nobody_special_and_cannot_change_the_image(pod: Pod) -> None:
    assert pod.good("id").startswith("uid=8737(bringup) gid=8737(bringup)")
    for path in ("/new", "/tmp/new", "/opt/bringup/steps/new", "/bringup/tasks/new"):
        assert "Read-only file system" in pod.run("touch", path).stderr or "Permission denied" in pod.run("touch", path).stderr
    assert pod.good("python3", "-c", "import tempfile; print(tempfile.gettempdir())") == "/bringup/out\n"
    special = [
        path for path in pod.root.rglob("*") if not path.is_symlink() and path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)
    ]
    assert not special


def test_every_shared_library_is_there(pod: Pod) -> None:
    code = """
import pathlib, subprocess
for top in ("/usr/bin", "/usr/lib", "/usr/sbin", "/opt/bringup/lib"):
    for path in sorted(pathlib.Path(top).rglob("*")):
        if path.is_file() and not path.is_symlink() and path.open("rb").read(4) == b"\\x7fELF":
            said = subprocess.run(["/lib64/ld-linux-x86-64.so.2", "--list", path], capture_output=True, text=True)
            if "not found" in said.stdout + said.stderr or "cannot open shared" in said.stderr:
                print(str(path)[1:])
"""
    assert set(pod.good("python3", "-c", code).split()) == WITHOUT_LIBRARY


def test_modules_are_compiled(pod: Pod) -> None:
    modules = list((pod.root / "opt/bringup/steps").rglob("*.py"))
    lacking = [path for path in modules if not (path.parent / "__pycache__" / f"{path.stem}.cpython-311.pyc").exists()]
    assert not lacking
    flags = {path.read_bytes()[4:8] for path in (pod.root / "opt/bringup/steps").rglob("*.pyc")}
    assert flags == {b"\x01\0\0\0"}, "hash-based and unchecked"
    assert not list((pod.root / "opt/bringup/playbooks").rglob("*.pyc"))


def _tree(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Mode, owner and content of everything, but for compiled modules."""
    found = {}
    for path in root.rglob("*"):
        if "__pycache__" in path.parts:
            continue
        facts = path.lstat()
        content = str(path.readlink()).encode() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[path.relative_to(root).as_posix()] = (facts.st_mode, facts.st_uid, content)
    return found


def _is_bookworm() -> bool:
    release = platform.freedesktop_os_release() if Path("/etc/os-release").exists() else {}
    return release.get("VERSION_CODENAME") == "bookworm"


@pytest.fixture
def overlay(tmp_path: Path) -> Callable[[str], Path]:
    """Runs a script as root in a throw-away copy of this machine's root, and returns what it left in /image."""

    def run(script: str) -> Path:
        prepare = """set -e
mount -t tmpfs tmpfs "$1"; cd "$1"; mkdir upper work root
mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work overlay root
cp -r "$2/images/step/files" root/files; cp "$2"/images/step/*.lock root/
mount -t proc proc root/proc; mount --bind /dev root/dev
printf '%s' "$3" | chroot root sh
cp -a root/image "$4"
"""
        (tmp_path / "disk").mkdir()
        words = [
            "unshare",
            "--mount",
            "sh",
            "-c",
            prepare,
            "sh",
            str(tmp_path / "disk"),
            str(ROOT),
            script,
            str(tmp_path / "image"),
        ]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return tmp_path / "image"

    return run


_NEEDS_BOOKWORM = pytest.mark.skipif(
    not _is_bookworm(), reason="the Containerfile's first stages start from Debian 12; this machine is another"
)


@pytest.mark.sampled("ways to build the step image")
@_NEEDS_BOOKWORM
def test_the_containerfiles_own_commands_give_the_same_root(
    layers: list[bytes], overlay: Callable[[str], Path], tmp_path: Path
) -> None:
    unpack(layers[0], tmp_path / "ours")
    theirs = _tree(overlay("\n".join(step_stages()["root"].all("RUN"))))
    ours = _tree(tmp_path / "ours")
    assert set(theirs) == set(ours)
    assert not {path: (ours[path][:2], theirs[path][:2]) for path in ours if ours[path] != theirs[path]}


@pytest.mark.sampled("ways to build the step image")
@_NEEDS_BOOKWORM
@pytest.mark.skipif(not Path("/usr/lib/python3/dist-packages/pip").exists(), reason="python3-pip is not on this machine")
def test_the_containerfiles_own_commands_install_the_same_wheels(
    layers: list[bytes], overlay: Callable[[str], Path], tmp_path: Path
) -> None:
    """But for pip's own notes, and for programs, whose texts differ between installers."""
    unpack(layers[1], tmp_path / "ours")
    notes = ("RECORD", "INSTALLER", "REQUESTED")

    def files(root: Path) -> dict[str, bytes]:
        found = {path: content for path, (mode, _, content) in _tree(root).items() if stat.S_ISREG(mode)}
        return {path: b"" if "/lib/bin/" in path else found[path] for path in found if Path(path).name not in notes}

    theirs, ours = files(overlay(step_stages()["wheels"].all("RUN")[-1])), files(tmp_path / "ours")
    assert set(theirs) == set(ours)
    assert not [path for path in ours if ours[path] != theirs[path]]


# ---- the image of pods that build stacks ----------------------------------------------------------------------------------------

STACK_BUILD = """set -e
mount -t tmpfs tmpfs "$1"; cd "$1"; mkdir upper work root
mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work overlay root
rm -rf root/opt/bringup; mkdir -p root/opt; cp -r "$2" root/opt/bringup; cp "$3" root/requirements.txt
mount -t proc proc root/proc; mount --bind /dev root/dev
chroot root sh -c "$4" >&2
shift 4
exec chroot root env -i --chdir=/opt/bringup "$@"
"""
STACK_LOOK = """set -e
python3 -m steps --help | head -n 1
"$EB_PYTHON" -m easybuild.main --version
/opt/stacks/bin/reframe --version
"$LMOD_CMD" bash --version 2>&1
for tool in bwrap git zstd xz patch make gcc g++ gfortran mpicc mpirun python; do
  "$tool" --version >/dev/null || echo "no $tool"
done
for name in tasks fleet secrets store out; do test -d "/bringup/$name" || echo "no folder $name"; done
"""


@pytest.mark.sampled("ways to build the step image")
@_NEEDS_BOOKWORM
def test_the_stack_builders_own_commands_make_an_image_that_builds(pod: Pod, tmp_path: Path) -> None:
    """In a throw-away copy of this machine's root in place of its base image; packages come from Debian and PyPI. 35 s of CPU."""
    image = containerfile(ROOT / "images/stackbuilder/Containerfile")[-1]
    (disk := tmp_path / "disk").mkdir()
    requirements, script = ROOT / "images/stackbuilder/requirements.txt", "\n".join(image.all("RUN"))
    variables = [f"{name}={value}" for name, value in image.pairs("ENV").items()]
    words = ["unshare", "--mount", "sh", "-c", STACK_BUILD, "sh", disk, pod.root / "opt/bringup", requirements, script, *variables]
    done = subprocess.run([*words, "sh", "-c", STACK_LOOK], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    pins = dict(line.split(" ", 1)[0].split("==") for line in requirements.read_text().splitlines() if "==" in line)
    assert json.loads(image.all("ENTRYPOINT")[0]) == ["python3", "-m", "steps"]
    assert done.stdout.startswith("usage: python -m steps")
    for version in (f"EasyBuild {pins['easybuild-framework']}", pins["reframe-hpc"], "Modules based on Lua: Version"):
        assert version in done.stdout
    assert "no " not in done.stdout
