"""The files of an RKE2 release: fetched or found, verified against the release's checksums, and only then put in their places.

install.sh copies some image archives unchecked, and leaves others out (peers §4, traps a to c): we do it ourselves.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import re
import tarfile
import urllib.error
import urllib.parse
from typing import Any

from ansible.module_utils import labels, proxies
from ansible.module_utils.replacing import replacing
from ansible.module_utils.rke2 import files, kept, own_images, prefix

STORE = kept.STORE
IMAGES = "/var/lib/rancher/rke2/agent/images"
ELSEWHERE = ("/usr/bin/rke2", "/opt/rke2/bin/rke2")
"""Where other installers put RKE2; two of them on one host would run side by side (peers §4, trap a)."""
PARTS = ("bin/", "lib/systemd/system/", "share/")
"""Where members of the archive may lie."""
SHUT = re.compile(r"Tunnel connection failed: (40[17])\b")
"""What the library makes of a proxy that refuses a tunnel to who has no login there, or a wrong one."""


class Bad(Exception):
    """Something that stays wrong when tried again: a checksum that differs, a file that is not there."""


class Later(Exception):
    """Something that may be right when tried again: a download that broke off."""


class Release:
    """One release on one host. `source` is a base URL, or `artifacts` a folder that holds its files."""

    def __init__(
        self,
        version: str,
        machine: str,
        source: str,
        artifacts: str,
        checksum: str,
        opener: Any,
        store: str = STORE,
        images: str = IMAGES,
    ) -> None:
        self.version = version
        self.architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
        self.folder = os.path.join(store, version)
        self.archive = "rke2.linux-%s.tar.gz" % self.architecture
        self.sums = "sha256sum-%s.txt" % self.architecture
        self._own_list = own_images.list_name(self.architecture)
        self._own: dict = {}
        self._images = images
        self._base = source.rstrip("/") + "/" + urllib.parse.quote(version, safe="")
        self._artifacts = artifacts
        self._checksum = checksum
        self._open = opener

    def fetch(self, images: list, check_mode: bool) -> list:
        """Have archive and image archives verified and in place; returns what was missing. Raises Bad, Later and OSError."""
        if prefix.refusal():
            raise Bad(prefix.refusal())
        for binary in ELSEWHERE:
            if os.path.exists(binary):
                raise Bad(
                    "%s is there, which packages or another installer brought: remove it, or upgrade it the same way" % binary
                )
        self._own = self._own_sums()
        named = [self._image(name) for name in images]
        wanted = named + sorted(self._found() - {*named, self.archive})
        if not check_mode:
            labels.folders(self.folder, 0o700)
        if check_mode and not self._has_sums():
            return [self.archive, *wanted]
        sums = {} if self._checksum and self._own.keys() >= set(wanted) else self._checksums()
        self._own = {name: digest for name, digest in self._own.items() if name not in sums}
        missing = [] if self._settled(self.folder, self.archive, sums, not check_mode) else [self.archive]
        absent = [name for name in wanted if not self._settled(self._images, name, sums, not check_mode)]
        if not check_mode:
            for name in missing:
                self._place(name, self.folder, self._sum(sums, name), 0o600)
            if wanted:
                self._load(absent, sums)
        return missing + absent

    def supply(self, images: list, check_mode: bool) -> list:
        """The same for the site's own image archives alone, where the release is installed; returns what was missing.

        RKE2 that runs loads them at once. A folder that has gone since is no harm: what it had is in its place.
        """
        named = {name for name in images if own_images.is_archive(name)}
        if not os.path.isdir(self._artifacts):
            for name in sorted(named):
                if not os.path.exists(os.path.join(self._images, name)):
                    raise self._not_there(name)
            return []
        if not check_mode:
            labels.folders(self.folder, 0o700)
        self._own = self._own_sums()
        wanted = {name for name in self._found() if not own_images.RKE2.match(name) or name in self._own} | named
        absent = [name for name in sorted(wanted - self._of_release()) if not self._settled(self._images, name, {}, not check_mode)]
        if absent and not check_mode:
            self._load(absent, {})
        return absent

    def _load(self, names: list, sums: dict) -> None:
        """Put image archives where RKE2 loads them from."""
        for name in names:
            self._place(name, self._images, self._sum(sums, name), 0o644)
        files.touch(os.path.join(self._images, ".cache.json"))  # imports only what is new, not all at every start

    def install(self, replaces: str, check_mode: bool) -> list:
        """Unpack the archive over the installed release, which is kept; returns the files that differed. Raises Bad and OSError."""
        with tarfile.open(os.path.join(self.folder, self.archive), "r:gz") as archive:
            members = [one for one in archive.getmembers() if one.isfile()]
            odd = [one.name for one in members if not _name(one).startswith(PARTS) or ".." in one.name.split("/")]
            if odd:
                raise Bad("%s holds %s, which belongs into no release" % (self.archive, odd[0]))
            differing = [one for one in members if _differs(archive, one)]
            if check_mode:
                return [_name(one) for one in differing]
            if not differing:
                kept.finish()
                return []
            with kept.aside([prefix.place(_name(one)) for one in members], replaces):
                for one in sorted(differing, key=lambda one: prefix.place(_name(one)) == kept.PROGRAM):
                    source = archive.extractfile(one)
                    if source is not None:
                        files.copy(prefix.place(_name(one)), source, 0o755 if one.mode & 0o100 else 0o644)
        return [_name(one) for one in differing]

    def _found(self) -> set:
        """All archives in the artifacts folder, and those that the site's list names: none is left out in silence."""
        if not self._artifacts:
            return set()
        return self._read(lambda: own_images.names(self._artifacts, self.architecture))

    def _own_sums(self) -> dict:
        """File → sha256, as the site says."""
        return self._read(lambda: own_images.checksums(os.path.join(self._artifacts, self._own_list))) if self._artifacts else {}

    def _of_release(self) -> set:
        """What the release's own list names, and its archive: the site's list may name them too."""
        there = os.path.exists(os.path.join(self._artifacts, self.sums))
        return {self.archive, *(self._checksums() if there else ())}

    def _read(self, reader: Any) -> Any:
        try:
            return reader()
        except ValueError as error:
            raise Bad(str(error)) from error

    def _image(self, name: str) -> str:
        """`core` → `rke2-images-core.linux-amd64.tar.zst`; `all` is the archive without a name. One of the site has its own."""
        if own_images.is_archive(name):
            return name
        return "rke2-images%s.linux-%s.tar.zst" % ("" if name == "all" else "-" + name, self.architecture)

    def _has_sums(self) -> bool:
        return bool(self._checksum) or os.path.exists(os.path.join(self._artifacts or self.folder, self.sums))

    def _checksums(self) -> dict:
        """File → sha256, as the release says; downloaded once and kept."""
        path = os.path.join(self._artifacts or self.folder, self.sums)
        if not os.path.exists(path):
            self._place(self.sums, self.folder, "", 0o600)
        with open(path, errors="replace") as source:
            return {os.path.basename(name): digest for digest, name in own_images.SUM.findall(source.read())}

    def _sum(self, sums: dict, name: str) -> str:
        """The checksum that a file must have. Raises Bad where neither release nor site name one."""
        found = self._checksum if name == self.archive and self._checksum else sums.get(name) or self._own.get(name, "")
        if not found:
            self._forget_sums()
            said = "%s has no checksum for %s: give the list of the same release" % (self.sums, name)
            own = ", or, for an archive of your own, write its sha256 into %s beside it" % self._own_list
            raise Bad(said + (own if self._artifacts and name != self.archive else ""))
        return found

    def _settled(self, folder: str, name: str, sums: dict, keep: bool) -> bool:
        """Whether a file is there with its checksum; hashed once, then known by size and time where that may be kept."""
        path, digest = os.path.join(folder, name), self._sum(sums, name)
        try:
            seen = os.stat(path)
        except FileNotFoundError:
            return False
        if files.read_json(self._record(path)) == [digest, seen.st_size, seen.st_mtime_ns]:
            return True
        same = files.sha256(path) == digest
        if same and keep:
            self._keep(path, digest, seen)
        return same

    def _keep(self, path: str, digest: str, seen: os.stat_result) -> None:
        files.write(self._record(path), json.dumps([digest, seen.st_size, seen.st_mtime_ns]).encode(), 0o600)

    def _record(self, path: str) -> str:
        return os.path.join(self.folder, os.path.basename(path) + ".verified")

    def _place(self, name: str, folder: str, digest: str, mode: int) -> None:
        """Copy or download beside its place, verify, and move it there in one step."""
        path = os.path.join(folder, name)
        with replacing(path, mode) as out:
            found = self._copy(name, out)
            if digest and found != digest:
                self._forget_sums()
                said = "%s: its sha256 is %s and %s says %s; nothing was changed"
                raise Bad(said % (self._where(name), found, self._own_list if name in self._own else self.sums, digest))
        if digest:
            self._keep(path, digest, os.stat(path))

    def _forget_sums(self) -> None:
        """The list may have been the wrong one: the next run reads it again."""
        path = os.path.join(self.folder, self.sums)
        if os.path.exists(path):
            os.unlink(path)

    def _where(self, name: str) -> str:
        return os.path.join(self._artifacts, name) if self._artifacts else "%s/%s" % (self._base, name)

    def _not_there(self, name: str) -> Bad:
        said = "%s is not there: put it, and the release's files, into the folder rke2.artifacts of each machine"
        return Bad(said % self._where(name))

    def _copy(self, name: str, out: Any) -> str:
        """Write the file, and return its sha256."""
        digest, size = hashlib.sha256(), 0
        with self._source(name) as source:
            promised = getattr(source, "headers", {}).get("Content-Length", "")
            while True:
                try:
                    block = source.read(files.BLOCK)
                except (OSError, ValueError, http.client.HTTPException) as error:
                    raise Later("%s: broke off after %d bytes: %s" % (self._where(name), size, error)) from error
                if not block:
                    break
                digest.update(block)
                size += len(block)
                out.write(block)
        if promised.isdigit() and size < int(promised):  # the library takes an early end for the end
            raise Later("%s: broke off after %d of %s bytes" % (self._where(name), size, promised))
        return digest.hexdigest()

    def _source(self, name: str) -> Any:
        where = self._where(name)
        if self._artifacts:
            if not os.path.isfile(where):
                raise self._not_there(name)
            return open(where, "rb")
        try:
            return self._open(where, timeout=60)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            raise _judged(where, error) from error


def _judged(where: str, error: Exception) -> Exception:
    """Bad, where the answer would be the same when asked again."""
    code, said = getattr(error, "code", 0), "%s: %s" % (where, error)
    shut = SHUT.search(str(error))
    refused = proxies.refused(int(shut.group(1)) if shut else code)
    if refused:
        return Bad("%s: %s: correct proxy.user and proxy.password in the spec" % (where, refused))
    return Bad(said) if 400 <= code < 500 and code != 429 else Later(said)


def _name(member: tarfile.TarInfo) -> str:
    return member.name[2:] if member.name.startswith("./") else member.name


def _differs(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bool:
    path = prefix.place(_name(member))
    source = archive.extractfile(member)
    if source is None or not os.path.isfile(path) or os.path.getsize(path) != member.size:
        return True
    return files.digest(source) != files.sha256(path)
