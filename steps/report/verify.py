"""Verifies a run's folder against its seal and names every sealed file that was changed (secrets are not sealed)."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from steps.clients import signature
from steps.contract import run_seal
from steps.contract.canonical import canonical, digest_bytes
from steps.errors import BadTask


def problems(folder: Path, signer: tuple[str, str] | None = None) -> tuple[str, ...]:
    """Return the problems of a run's folder; empty if it is exactly what was sealed.

    Evidence, logs, events of plays, reports, plan, hosts and quarantine are sealed; secrets are not. `signer` is (name, SSH public
    key): then the seal must carry that key's signature. Without a signature an intact seal excludes accidents, not a forged folder.
    """
    data = _seal_bytes(folder)
    try:
        sealed = run_seal.decode(data)
    except msgspec.DecodeError as error:
        return (f"{run_seal.FILE}: cannot be read: {error}", *_signature_problems(folder, data, signer))
    # unknown fields or white space would not change the digest, so the bytes are compared as well
    is_whole = sealed.digest == run_seal.own_digest(sealed) and canonical(sealed) == data
    differences = [] if is_whole else [f"{run_seal.FILE}: changed since it was sealed"]
    listed = {file.key: file for file in sealed.files}
    present = {key: path for key, path in _files(folder).items() if run_seal.is_sealed(key)}
    differences += [f"{key}: missing" for key in listed if key not in present]
    differences += [f"{key}: not in the seal" for key in present if key not in listed]
    for key, file in listed.items():
        if key in present and digest_bytes(present[key].read_bytes()) != file.sha256:
            differences.append(f"{key}: changed since it was sealed")
    return (*differences, *_signature_problems(folder, data, signer))


class Cover(Struct, frozen=True, kw_only=True):
    """Coverage of a seal: the number of files, the key that signed it, and the files and empty folders that it leaves out.

    `key` is empty if the seal is unsigned, or if its signature does not fit (`signed` is then True).
    """

    files: int
    signed: bool
    key: str
    left_out: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """Yield the coverage in sentences for people."""
        if self.key:
            yield f"the seal is signed by {self.key}; whose key that is, --signer NAME=PUBLIC-KEY-FILE checks"
        elif self.signed:
            yield f"{run_seal.SIGNATURE} is no signature of this seal"
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
    except msgspec.DecodeError as error:
        raise BadTask(f"{folder / run_seal.FILE} cannot be read: {error}") from error
    signed = folder / run_seal.SIGNATURE
    key = signature.key_of(data, signed.read_bytes()) if signed.exists() else ""
    below = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    files = [
        name for name, path in below.items() if path.is_file() and name not in run_seal.UNSEALED and not run_seal.is_sealed(name)
    ]
    empty = [f"{name}/ (empty)" for name, path in below.items() if path.is_dir() and not any(path.iterdir())]
    return Cover(files=len(sealed.files), signed=signed.exists(), key=key, left_out=(*files, *empty))


def hand_out(folder: Path, to: Path) -> int:
    """Copy the sealed files and the seal, no secrets, to another folder; return their number. Raises BadTask without a seal."""
    names = [name for name in _files(folder) if run_seal.is_sealed(name) or name in run_seal.UNSEALED]
    _seal_bytes(folder)
    for name in names:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        (to / name).write_bytes((folder / name).read_bytes())
    return len(names)


def _files(folder: Path) -> dict[str, Path]:
    return {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}


def _seal_bytes(folder: Path) -> bytes:
    try:
        return (folder / run_seal.FILE).read_bytes()
    except OSError as error:
        raise BadTask(
            f"{folder} has no {run_seal.FILE}: {error.strerror}", hint="give the folder of a finished run (runs/RUN of a store)"
        ) from error


def _signature_problems(folder: Path, data: bytes, signer: tuple[str, str] | None) -> list[str]:
    if signer is None:
        return []
    signed = folder / run_seal.SIGNATURE
    if not signed.exists():
        return [f"{run_seal.SIGNATURE}: missing, the seal is not signed"]
    why = signature.verify(data, signed.read_bytes(), signer[0], (signer[1],))
    return [f"{run_seal.SIGNATURE}: {why}"] if why else []
