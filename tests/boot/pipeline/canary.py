"""Looks for a secret in every file that a run left: plain, as programs write it down, and within whatever is packed."""

import base64
import hashlib
import subprocess
import tarfile
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

PACKED = {
    b"\x28\xb5\x2f\xfd": ("zstd", "-dcq"),
    b"\x1f\x8b": ("gzip", "-dc"),
    b"\xfd7zXZ": ("xz", "-dc"),
}
SQUASHFS = b"hsqs"
TAR = b"ustar"
CPIO = b"070701"


def forms(secret: bytes) -> tuple[bytes, ...]:
    """As it is, in hex, and in base64 at each of its offsets without what its neighbours change."""
    coded = (base64.b64encode(bytes(offset) + secret)[4 if offset else 0 : -4] for offset in range(3))
    return (secret, secret.hex().encode(), *coded)


def left(home: Path, *secrets: bytes) -> list[str]:
    """Files of a home that hold one, but for the copies that a run has to go on with, which their owner alone may read."""
    copies = {str(path): path.stat().st_mode & 0o077 for path in home.glob("inputs/*/secrets/*")}
    assert not any(copies.values()), copies
    return [path for path in Search(secrets).below(home) if path not in copies]


class Search:
    """A search for secrets below folders; equal files that hold none are looked at once. `packed` counts what was opened."""

    def __init__(self, secrets: Collection[bytes]) -> None:
        self.needles = [form for secret in secrets for form in forms(secret)]
        self.packed: dict[str, int] = {}
        self.files = 0
        self._clean: set[bytes] = set()

    def below(self, folder: Path) -> Iterator[str]:
        """Paths of files that hold one."""
        for path in sorted(folder.rglob("*")):
            yield from (f"the name {path}" for needle in self.needles if needle in str(path).encode())
            if path.is_symlink():
                yield from (f"the link {path}" for needle in self.needles if needle in str(path.readlink()).encode())
            elif path.is_file():
                yield from (f"{path}{where}" for where in self._file(path))

    def _file(self, path: Path) -> Iterator[str]:
        data = path.read_bytes()
        digest = hashlib.sha256(data).digest()
        if digest not in self._clean:
            self.files += 1
            found = list(self._data(data))
            yield from found
            if not found:
                self._clean.add(digest)

    def _data(self, data: bytes) -> Iterator[str]:
        if any(needle in data for needle in self.needles):
            yield ""
        if data.startswith(SQUASHFS):
            yield from self._squashfs(data)
        elif data[257:262] == TAR:
            yield from self._tar(data)
        elif data.startswith(CPIO):
            yield from self._behind(data)
        for magic, command in PACKED.items():
            if data.startswith(magic):
                yield from self._opened(command[0], subprocess.run(command, input=data, capture_output=True, check=False).stdout)

    def _opened(self, kind: str, data: bytes) -> Iterator[str]:
        self.packed[kind] = self.packed.get(kind, 0) + 1
        yield from (f" in {kind}{where}" for where in self._data(data))

    def _behind(self, data: bytes) -> Iterator[str]:
        """An initrd: what lies packed behind its first archive."""
        found = [at for magic in PACKED if (at := data.find(magic, data.find(b"TRAILER!!!"))) >= 0]
        self.packed["cpio"] = self.packed.get("cpio", 0) + 1
        if found and not data[data.find(b"TRAILER!!!") + 10 : min(found)].strip(b"\0"):
            yield from self._data(data[min(found) :])

    def _tar(self, data: bytes) -> Iterator[str]:
        self.packed["tar"] = self.packed.get("tar", 0) + 1
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            with tarfile.open(file.name) as archive:
                for member in archive:
                    inner = archive.extractfile(member) if member.isfile() else None
                    if inner is not None:
                        yield from (f" in {member.name}{where}" for where in self._data(inner.read()))

    def _squashfs(self, data: bytes) -> Iterator[str]:
        self.packed["squashfs"] = self.packed.get("squashfs", 0) + 1
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "image").write_bytes(data)
            command = ["unsquashfs", "-no-progress", "-quiet", "-dest", f"{folder}/root", f"{folder}/image"]
            subprocess.run(command, check=True, capture_output=True)
            Path(folder, "image").unlink()
            yield from (f" in the root: {where}" for where in self.below(Path(folder)))
