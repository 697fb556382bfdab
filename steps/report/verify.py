"""Verifies a run's folder against its seal, names everything that was changed, added or taken away, and copies what was sealed."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from steps.clients import regular_files, signature
from steps.clients.regular_files import FileKind, FolderEntry
from steps.contract.canonical import UNREADABLE_JSON, canonical, digest_bytes
from steps.contract.plain_text import count
from steps.contract.runs import run_seal
from steps.contract.verdict import Status
from steps.errors import BadTask
from steps.report import model


def problems(folder: Path, signer: tuple[str, str] | None = None) -> tuple[str, ...]:
    """Return the problems of a run's folder; empty if it is exactly what was sealed.

    Evidence, logs, events of plays, reports, plan, hosts and quarantine are sealed; secrets are not. `signer` is (name, SSH public
    key): then the seal must carry that key's signature. Without a signature an intact seal excludes accidents, not a forged folder.
    """
    data = _seal_bytes(folder)
    try:
        sealed = run_seal.decode(data)
    except UNREADABLE_JSON as error:
        return (f"{run_seal.FILE}: cannot be read: {error}", *_signature_problems(folder, data, signer))
    # unknown fields or white space would not change the digest, so the bytes are compared as well
    is_whole = sealed.digest == run_seal.own_digest(sealed) and canonical(sealed) == data
    differences = [] if is_whole else [f"{run_seal.FILE}: changed since it was sealed"]
    listed = {file.key: file for file in sealed.files}
    present = {entry.key: entry.kind for entry in regular_files.entries(folder)}
    differences += [f"{shown(key)}: missing" for key in listed if key not in present]
    differences += [f"{shown(key)}: {why}" for key, kind in present.items() if (why := _stranger(key, kind, key in listed))]
    for key, file in listed.items():
        if present.get(key) is FileKind.FILE and (why := _changed(folder, file)):
            differences.append(f"{shown(key)}: {why}")
    return (*differences, *_signature_problems(folder, data, signer))


def _stranger(key: str, kind: FileKind, is_listed: bool) -> str:
    """Return why an entry of a run's folder does not belong to what was sealed; empty if it does, or if no seal covers its kind."""
    if kind is not FileKind.FILE and is_listed:
        return f"is {kind} where the seal has a file"
    if kind not in (FileKind.FILE, FileKind.FOLDER) and (key in ("secrets", *run_seal.UNSEALED) or not run_seal.is_secret(key)):
        return f"is {kind}; a run has only files, and nothing was read through it"
    if kind is FileKind.FOLDER or is_listed or key in run_seal.UNSEALED or run_seal.is_secret(key):
        return ""
    if run_seal.is_hidden(key):
        return "" if run_seal.is_unfinished(key) else "is hidden and not in the seal"
    return "not in the seal"


def _changed(folder: Path, file: run_seal.Sealed) -> str:
    """Return why a sealed file is not as it was sealed; empty if it is."""
    try:
        data = regular_files.read(folder, file.key)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return "" if digest_bytes(data) == file.sha256 else "changed since it was sealed"


def shown(key: str) -> str:
    """Return a file's name for a message; control characters in it are escaped, so that it cannot forge lines."""
    return key if key.isprintable() and key.isascii() else ascii(key)


class Cover(Struct, frozen=True, kw_only=True):
    """Coverage of a seal: the number of files, the key that signed it, and the files and empty folders that it leaves out.

    `key` is empty if the seal is unsigned.
    """

    files: int
    key: str
    left_out: tuple[str, ...]

    def lines(self, own_key: str = "") -> Iterator[str]:
        """Yield the coverage in sentences for people. `own_key` is type and fingerprint of this machine's key."""
        if self.key and self.key == own_key:
            yield f"the seal is signed by this machine's key, {self.key}"
        elif self.key:
            yield f"the seal is signed by {self.key}; whose key that is, --signer NAME=PUBLIC-KEY-FILE checks"
        elif own_key:
            yield "the seal is not signed, although this machine signs: it is from elsewhere or before, or somebody wrote it anew"
        else:
            yield "the seal is not signed: it shows slips, not who would write files and seal anew"
        if self.left_out:
            yield f"not covered by the seal: {', '.join(self.left_out)}"
        if any(name.startswith("secrets/") for name in self.left_out):
            yield "secrets/ opens the cluster: do not hand it out (`bringup report RUN --out FOLDER/` copies what may be)"


def cover(folder: Path) -> Cover:
    """Return what a run's seal covers. Raises BadTask if there is no readable seal."""
    data = _seal_bytes(folder)
    try:
        sealed = run_seal.decode(data)
    except UNREADABLE_JSON as error:
        raise BadTask(f"{folder / run_seal.FILE} cannot be read: {error}") from error
    signed = _signature(folder)
    key = signature.key_of(data, signed) if signed is not None else ""
    entries = tuple(regular_files.entries(folder))
    names = [why for entry in entries if (why := _uncovered(entry))]
    return Cover(files=len(sealed.files), key=key, left_out=tuple(names))


def _uncovered(entry: FolderEntry) -> str:
    """Return the name of an entry that a whole seal does not cover, with what it is; empty for one that it covers."""
    key = shown(entry.key)
    if entry.kind is FileKind.FOLDER:
        return f"{key}/ (empty)" if entry.is_empty else ""
    if run_seal.is_sealed(entry.key) or entry.key in run_seal.UNSEALED:
        return ""
    return f"{key} (an unfinished write)" if run_seal.is_unfinished(entry.key) and not run_seal.is_secret(entry.key) else key


def distrusted(report: model.Report, differences: tuple[str, ...]) -> model.Report:
    """Return a report as it must read if the run's files differ from the seal: inconclusive, with a difference in the headline."""
    if not differences:
        return report
    sentence = f"the run's files are not what was sealed ({count(len(differences), 'difference')}; {differences[0]})"
    sentence = f"{sentence}, so what follows proves nothing: bringup verify {report.run}"
    return msgspec.structs.replace(report, status=Status.INCONCLUSIVE.value, sentence=sentence, unsealed=differences)


def listed(differences: tuple[str, ...]) -> str:
    """Return the first of some differences, and the number of the others."""
    return differences[0] + (f" and {len(differences) - 1} more" if len(differences) > 1 else "")


def hand_out(folder: Path, to: Path) -> int:
    """Copy the sealed files and the seal, no secrets, to another folder; return their number.

    Raises BadTask without a seal, if the run is not what was sealed, and if a link is in the way of a copy.
    """
    if differences := problems(folder):
        raise BadTask(
            f"{folder} is not what was sealed, so nothing is handed out: {listed(differences)}",
            hint=f"bringup verify {folder} names every difference",
        )
    keys = [entry.key for entry in regular_files.entries(folder) if entry.kind is FileKind.FILE]
    names = [key for key in keys if run_seal.is_sealed(key) or key in run_seal.UNSEALED]
    if (kind := regular_files.kind_of(to)) not in (None, FileKind.FOLDER):
        raise BadTask(f"{to} is {kind}: evidence is copied into a folder, never through a link")
    for name in names:
        try:
            regular_files.write(to, name, regular_files.read(folder, name))
        except OSError as error:
            raise BadTask(f"{to / name} cannot be written: {error.filename} {error.strerror}") from error
    return len(names)


def _seal_bytes(folder: Path) -> bytes:
    try:
        return regular_files.read(folder, run_seal.FILE)
    except OSError as error:
        raise BadTask(
            f"{folder} has no {run_seal.FILE}: {error.strerror}", hint="give the folder of a finished run (runs/RUN of a store)"
        ) from error


def _signature(folder: Path) -> bytes | None:
    """Return the seal's signature, None if there is none."""
    try:
        return regular_files.read(folder, run_seal.SIGNATURE)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadTask(f"{folder / run_seal.SIGNATURE} {error.strerror}") from error


def _signature_problems(folder: Path, data: bytes, signer: tuple[str, str] | None) -> list[str]:
    signed = _signature(folder)
    if signer is None:
        is_another = signed is not None and not signature.key_of(data, signed)
        return [f"{run_seal.SIGNATURE}: is no signature of this seal"] if is_another else []
    if signed is None:
        return [f"{run_seal.SIGNATURE}: missing, the seal is not signed"]
    why = signature.verify(data, signed, signer[0], (signer[1],))
    return [f"{run_seal.SIGNATURE}: {why}"] if why else []
