"""Container images without daemon and registry: a directory tree as a one-layer OCI archive, the same bytes for the same tree."""

import hashlib
import io
import json
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

BUSYBOX = Path("/usr/bin/busybox")
LAYER = "application/vnd.oci.image.layer.v1.tar"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
TOOLS = (
    "sh sleep cat echo wget ls env mkdir cp base64 grep sed cut tr id true false date test touch head tail tee printf "
    "nc ssl_client sha256sum sync mv find rm chmod mktemp tar uname wc"
)
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Image:
    """An image to be: its name as pods say it, what is run, and files by their absolute path in it."""

    name: str
    command: tuple[str, ...]
    files: Mapping[str, Path | str] = field(default_factory=dict)
    """A Path is copied (a folder with all it holds), a text becomes a script that can be run."""
    user: str = "0:0"


PAUSE = Image("localhost/pause:1", ("/bin/sleep", "2147483647"))
SHELL = Image("localhost/shell:1", ("/bin/sh",))


def pack(image: Image, out: Path) -> Path:
    """Write the archive of an image that has busybox in it, and its files."""
    with tempfile.TemporaryDirectory(prefix="bringup-image-") as folder:
        tree = Path(folder)
        _busybox(tree)
        for name, content in image.files.items():
            target = tree / name.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, str):
                target.write_text(content)
                target.chmod(0o755)
            elif content.is_dir():
                shutil.copytree(content, target, symlinks=True)
            else:
                shutil.copy(content, target)
        return archive(tree, image.name, image.command, out, user=image.user)


def archive(tree: Path, name: str, command: Sequence[str], out: Path, *, user: str = "0:0") -> Path:
    """Write a directory tree as an OCI archive that `ctr images import` takes."""
    layer = _layer(tree)
    running = {"Entrypoint": list(command), "Env": [_PATH], "WorkingDir": "/", "User": user}
    rootfs = {"type": "layers", "diff_ids": [_digest(layer)]}
    config = _json({"architecture": "amd64", "os": "linux", "config": running, "rootfs": rootfs})
    parts = {"config": _descriptor(CONFIG, config), "layers": [_descriptor(LAYER, layer)]}
    manifest = _json({"schemaVersion": 2, "mediaType": MANIFEST, **parts})
    listed = _descriptor(MANIFEST, manifest) | {"annotations": {"io.containerd.image.name": name}}
    files = {f"blobs/sha256/{_digest(blob).removeprefix('sha256:')}": blob for blob in (layer, config, manifest)}
    files["index.json"] = _json({"schemaVersion": 2, "manifests": [listed]})
    files["oci-layout"] = _json({"imageLayoutVersion": "1.0.0"})
    with tarfile.open(out, "w", format=tarfile.PAX_FORMAT) as target:
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o644
            target.addfile(entry, io.BytesIO(content))
    return out


def _busybox(tree: Path) -> None:
    """busybox under every name that it answers to, and the folders that programs expect."""
    binaries = tree / "bin"
    binaries.mkdir()
    shutil.copy(BUSYBOX, binaries / "busybox")
    for name in TOOLS.split():
        (binaries / name).symlink_to("busybox")
    for name in ("tmp", "etc", "var", "run", "root"):
        (tree / name).mkdir()
    (tree / "tmp").chmod(0o1777)
    (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")


def _layer(tree: Path) -> bytes:
    """The tree as a tar without times and owners, in the order of its names."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as target:
        for path in sorted(tree.rglob("*")):
            entry = target.gettarinfo(str(path), str(path.relative_to(tree)))
            entry.uid = entry.gid = entry.mtime = 0
            entry.uname = entry.gname = ""
            if entry.isreg():
                with path.open("rb") as content:
                    target.addfile(entry, content)
            else:
                target.addfile(entry)
    return made.getvalue()


def _descriptor(kind: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
