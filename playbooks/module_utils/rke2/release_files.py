"""The files of an RKE2 release: downloaded or found, verified against the release's checksums, and only then put in place.

RKE2's install.sh copies some image archives without a check and silently skips others, so this module does the work itself.
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

from ansible.module_utils import atomic_files, proxy_login, selinux_labels
from ansible.module_utils.atomic_files import replacement
from ansible.module_utils.rke2 import install_prefix, release_backup, site_images

STORE = release_backup.STORE
IMAGES = "/var/lib/rancher/rke2/agent/images"
OTHER_BINARIES = ("/usr/bin/rke2", "/opt/rke2/bin/rke2")
"""Paths of the program that other installers of RKE2 use. Two installations on one host would run side by side."""
PARTS = ("bin/", "lib/systemd/system/", "share/")
"""Folders that files of the release archive may lie in."""
TUNNEL_REFUSED = re.compile(r"Tunnel connection failed: (40[17])\b")
"""http.client's message when a proxy refuses a tunnel for a missing or wrong login."""


class InvalidRelease(Exception):
    """Error that a retry would not change, such as a checksum that differs or a missing file."""


class DownloadInterrupted(Exception):
    """Error that a retry may cure, such as an interrupted download."""


class HostRelease:
    """An RKE2 release on this host. Its files are downloaded from the base URL `source`, or found in the folder `artifacts`."""

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
        self._own_list = site_images.list_name(self.architecture)
        self._own: dict = {}
        self._images = images
        self._base = source.rstrip("/") + "/" + urllib.parse.quote(version, safe="")
        self._artifacts = artifacts
        self._checksum = checksum
        self._open = opener

    def fetch(self, images: list, check_mode: bool) -> list:
        """Fetch and verify the release archive and all image archives, put the images in place, and return what was missing.

        In check mode nothing is written. Raises InvalidRelease, DownloadInterrupted and OSError.
        """
        if install_prefix.refusal():
            raise InvalidRelease(install_prefix.refusal())
        for binary in OTHER_BINARIES:
            if os.path.exists(binary):
                message = "%s is there, which packages or another installer brought: remove it, or upgrade it the same way"
                raise InvalidRelease(message % binary)
        self._own = self._own_sums()
        named = [self._image(name) for name in images]
        wanted = named + sorted(self._found() - {*named, self.archive})
        if not check_mode:
            selinux_labels.make_folders(self.folder, 0o700)
        has_sums = self._checksum or os.path.exists(os.path.join(self._artifacts or self.folder, self.sums))
        # the list would have to be downloaded, so nothing can be compared with it
        if check_mode and not has_sums:
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
        """Put the site's own image archives in place on a host that has the release, and return the names that were missing.

        A running RKE2 imports them at once. If the artifacts folder no longer exists, archives that are already in place are
        enough. Raises InvalidRelease for a missing one.
        """
        named = {name for name in images if site_images.is_archive(name)}
        if not os.path.isdir(self._artifacts):
            for name in sorted(named):
                if not os.path.exists(os.path.join(self._images, name)):
                    raise self._not_there(name)
            return []
        if not check_mode:
            selinux_labels.make_folders(self.folder, 0o700)
        self._own = self._own_sums()
        wanted = {name for name in self._found() if not site_images.RELEASE_ARCHIVE.match(name) or name in self._own} | named
        absent = [name for name in sorted(wanted - self._of_release()) if not self._settled(self._images, name, {}, not check_mode)]
        if absent and not check_mode:
            self._load(absent, {})
        return absent

    def _load(self, names: list, sums: dict) -> None:
        """Put image archives into the folder that RKE2 imports from."""
        for name in names:
            self._place(name, self._images, self._sum(sums, name), 0o644)
        atomic_files.touch(os.path.join(self._images, ".cache.json"))  # imports only what is new, not all at every start

    def install(self, replaces: str, check_mode: bool) -> list:
        """Back up the installed release `replaces`, unpack the archive over it, and return the names of the files that differed.

        Raises InvalidRelease for an archive with files in unexpected folders, and OSError.
        """
        with tarfile.open(os.path.join(self.folder, self.archive), "r:gz") as archive:
            members = [member for member in archive.getmembers() if member.isfile()]
            odd = [member.name for member in members if not _name(member).startswith(PARTS) or ".." in member.name.split("/")]
            if odd:
                raise InvalidRelease("%s holds %s, which belongs into no release" % (self.archive, odd[0]))
            differing = [member for member in members if _differs(archive, member)]
            if check_mode:
                return [_name(member) for member in differing]
            if not differing:
                # a run that was killed after its last file has left the marker
                release_backup.finish()
                return []
            with release_backup.replacement_of([install_prefix.target_path(_name(member)) for member in members], replaces):
                targets = [(install_prefix.target_path(_name(member)), member) for member in differing]
                for path, member in sorted(targets, key=lambda pair: pair[0] == release_backup.PROGRAM):
                    source = archive.extractfile(member)
                    if source is not None:
                        atomic_files.copy(path, source, 0o755 if member.mode & 0o100 else 0o644)
        return [_name(member) for member in differing]

    def _found(self) -> set:
        """Return the names of all archives in the artifacts folder or the site's checksum list; empty without such a folder."""
        if not self._artifacts:
            return set()
        return self._read(lambda: site_images.archive_names(self._artifacts, self.architecture))

    def _own_sums(self) -> dict:
        """Return file → SHA-256 from the site's checksum list in the artifacts folder; empty without such a folder or list."""
        return self._read(lambda: site_images.checksums(os.path.join(self._artifacts, self._own_list))) if self._artifacts else {}

    def _of_release(self) -> set:
        """Return the names of the release archive and of all files in the release's checksum list, which the site's may repeat."""
        there = os.path.exists(os.path.join(self._artifacts, self.sums))
        return {self.archive, *(self._checksums() if there else ())}

    def _read(self, reader: Any) -> Any:
        try:
            return reader()
        except ValueError as error:
            raise InvalidRelease(str(error)) from error

    def _image(self, name: str) -> str:
        """Return the file name of an image archive: `core` → `rke2-images-core.linux-amd64.tar.zst`; an archive's own name stays.

        For `all` the name has no part, as in `rke2-images.linux-amd64.tar.zst`.
        """
        if site_images.is_archive(name):
            return name
        return "rke2-images%s.linux-%s.tar.zst" % ("" if name == "all" else "-" + name, self.architecture)

    def _checksums(self) -> dict:
        """Return file → SHA-256 from the release's checksum list, which is downloaded once and kept."""
        path = os.path.join(self._artifacts or self.folder, self.sums)
        if not os.path.exists(path):
            self._place(self.sums, self.folder, "", 0o600)
        with open(path, errors="replace") as source:
            return {os.path.basename(name): digest for digest, name in site_images.CHECKSUM_LINE.findall(source.read())}

    def _sum(self, sums: dict, name: str) -> str:
        """Return the SHA-256 that a file must have. Raises InvalidRelease if neither the release's nor the site's list names it."""
        checksum = self._checksum if name == self.archive and self._checksum else sums.get(name) or self._own.get(name, "")
        if not checksum:
            self._forget_sums()
            message = "%s has no checksum for %s: give the list of the same release" % (self.sums, name)
            own = ", or, for an archive of your own, write its sha256 into %s beside it" % self._own_list
            raise InvalidRelease(message + (own if self._artifacts and name != self.archive else ""))
        return checksum

    def _settled(self, folder: str, name: str, sums: dict, keep: bool) -> bool:
        """Return True if a file has its checksum; with `keep`, record size and time so that the file is not hashed again."""
        path, digest = os.path.join(folder, name), self._sum(sums, name)
        try:
            stat = os.stat(path)
        except FileNotFoundError:
            return False
        if atomic_files.read_json(self._record(path)) == [digest, stat.st_size, stat.st_mtime_ns]:
            return True
        same = atomic_files.sha256(path) == digest
        if same and keep:
            self._keep(path, digest, stat)
        return same

    def _keep(self, path: str, digest: str, seen: os.stat_result) -> None:
        atomic_files.write(self._record(path), json.dumps([digest, seen.st_size, seen.st_mtime_ns]).encode(), 0o600)

    def _record(self, path: str) -> str:
        return os.path.join(self.folder, os.path.basename(path) + ".verified")

    def _place(self, name: str, folder: str, digest: str, mode: int) -> None:
        """Copy or download a file beside its target, verify it, and rename it into place.

        Raises InvalidRelease for a wrong checksum.
        """
        path = os.path.join(folder, name)
        with replacement(path, mode) as out:
            actual = self._copy(name, out)
            if digest and actual != digest:
                self._forget_sums()
                source = self._own_list if name in self._own else self.sums
                message = "%s: its sha256 is %s and %s says %s; nothing was changed"
                raise InvalidRelease(message % (self._where(name), actual, source, digest))
        if digest:
            self._keep(path, digest, os.stat(path))

    def _forget_sums(self) -> None:
        """Remove the kept checksum list, which may be another release's, so that the next run downloads it again."""
        path = os.path.join(self.folder, self.sums)
        if os.path.exists(path):
            os.unlink(path)

    def _where(self, name: str) -> str:
        return os.path.join(self._artifacts, name) if self._artifacts else "%s/%s" % (self._base, name)

    def _not_there(self, name: str) -> InvalidRelease:
        message = "%s is not there: put it, and the release's files, into the folder rke2.artifacts of each machine"
        return InvalidRelease(message % self._where(name))

    def _copy(self, name: str, out: Any) -> str:
        """Write a file of the release to `out` and return its SHA-256. Raises DownloadInterrupted if it breaks off."""
        digest, size = hashlib.sha256(), 0
        with self._source(name) as source:
            promised = getattr(source, "headers", {}).get("Content-Length", "")
            while True:
                try:
                    block = source.read(atomic_files.BLOCK)
                except (OSError, ValueError, http.client.HTTPException) as error:
                    raise DownloadInterrupted("%s: broke off after %d bytes: %s" % (self._where(name), size, error)) from error
                if not block:
                    break
                digest.update(block)
                size += len(block)
                out.write(block)
        if promised.isdigit() and size < int(promised):  # the library takes an early end for the end
            raise DownloadInterrupted("%s: broke off after %d of %s bytes" % (self._where(name), size, promised))
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
            raise _classify(where, error) from error


def _classify(where: str, error: Exception) -> Exception:
    """Return InvalidRelease for a failed download that a retry would not change, such as HTTP 404, else DownloadInterrupted."""
    code, message = getattr(error, "code", 0), "%s: %s" % (where, error)
    shut = TUNNEL_REFUSED.search(str(error))
    refused = proxy_login.login_refusal(int(shut.group(1)) if shut else code)
    if refused:
        return InvalidRelease("%s: %s: correct proxy.user and proxy.password in the spec" % (where, refused))
    return InvalidRelease(message) if 400 <= code < 500 and code != 429 else DownloadInterrupted(message)


def _name(member: tarfile.TarInfo) -> str:
    return member.name[2:] if member.name.startswith("./") else member.name


def _differs(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bool:
    path = install_prefix.target_path(_name(member))
    source = archive.extractfile(member)
    if source is None or not os.path.isfile(path) or os.path.getsize(path) != member.size:
        return True
    return atomic_files.digest(source) != atomic_files.sha256(path)
