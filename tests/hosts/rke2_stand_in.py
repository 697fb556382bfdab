"""A stand-in for an RKE2 release: an archive with units, scripts and a program that opens RKE2's ports and says what RKE2 says.

It knows only what the plays ask for; `rke2_stand_in_files` holds its parts.

With the programs that `tests/cluster` builds in its images, its servers run a real etcd and API server
(`control_plane_stand_in.py`), in which `nodes_stand_in.py` plays nodes and pods.
"""

import hashlib
import io
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

PARTS = Path(__file__).with_name("rke2_stand_in_files")
CONTROL_PLANE = Path(__file__).with_name("control_plane_stand_in.py")
UNIT = """[Unit]
Description=Stand-in for RKE2 (@KIND@)
[Service]
Type=notify
NotifyAccess=all
KillMode=process
ExecStart=/usr/local/bin/rke2 @KIND@
Restart=on-failure
RestartSec=1
StartLimitInterval=0
[Install]
WantedBy=multi-user.target
"""
ARCHIVE, SUMS, IMAGES = "rke2.linux-amd64.tar.gz", "sha256sum-amd64.txt", "rke2-images-core.linux-amd64.tar.zst"


def authority(folder: Path) -> None:
    """Write the CA that every stand-in server signs its certificate with, as RKE2's servers share theirs."""
    folder.mkdir(parents=True, exist_ok=True)
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 9 -subj /CN=stand-in-ca"
    subprocess.run([*make.split(), "-keyout", "ca.key", "-out", "ca.pem"], cwd=folder, check=True, capture_output=True)


def release(folder: Path, version: str, ca: Path, programs: Iterable[Path] = ()) -> None:
    """Write `FOLDER/VERSION/` with the archive, an image archive and their list of checksums, as a download site has them.

    With `programs` (etcd, etcdutl, kube-apiserver, kubectl) in its images, a server of this release runs a real API server on etcd.
    """
    place = folder / version
    place.mkdir(parents=True)
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        _add(archive, "bin/rke2", (PARTS / "rke2.py").read_text().replace("@VERSION@", version), 0o755)
        for script in ("killall", "uninstall"):
            _add(archive, f"bin/rke2-{script}.sh", (PARTS / f"{script}.sh").read_text(), 0o755)
        for kind in ("server", "agent"):
            _add(archive, f"lib/systemd/system/rke2-{kind}.service", UNIT.replace("@KIND@", kind), 0o644)
        _add(archive, "share/rke2-stand-in/control_plane.py", CONTROL_PLANE.read_text(), 0o644)
        _add(archive, "share/rke2-stand-in/kubectl.py", (PARTS / "kubectl.py").read_text(), 0o755)
        for name in ("ca.pem", "ca.key"):
            _add(archive, f"share/rke2-stand-in/{name}", (ca / name).read_text(), 0o644)
    files = {ARCHIVE: data.getvalue(), IMAGES: _images(version, programs)}
    for name, content in files.items():
        (place / name).write_bytes(content)
    (place / SUMS).write_text("".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items()))


def _images(version: str, programs: Iterable[Path]) -> bytes:
    """Return a release's archive of container images: a tar of programs if there are any, else some text."""
    data, found = io.BytesIO(), tuple(programs)
    with tarfile.open(fileobj=data, mode="w") as archive:
        for program in found:
            archive.add(program, program.name)
    return data.getvalue() if found else f"images of {version}".encode()


def _add(archive: tarfile.TarFile, name: str, text: str, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text.encode()), mode
    archive.addfile(entry, io.BytesIO(text.encode()))
