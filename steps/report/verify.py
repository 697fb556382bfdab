"""Checks a run's folder against its seal: every change to what is sealed (not logs or secrets) is named; needs only the folder."""

from pathlib import Path

import msgspec

from steps.clients import signature
from steps.contract import seal
from steps.contract.canonical import canonical, digest_bytes
from steps.errors import BadTask


def problems(folder: Path, signer: tuple[str, str] | None = None) -> tuple[str, ...]:
    """What is wrong with a run's folder; empty when it is exactly what was sealed, the seal itself included.

    Evidence, reports, plan, hosts and quarantine are sealed; secrets and logs are not (the engines' logs lie outside the store).
    `signer` is (name, SSH public key): then the seal must carry that key's signature. Without it a whole seal shows that
    nothing was changed by accident, not that nobody wrote it anew.
    """
    data = _seal_bytes(folder)
    try:
        sealed = seal.decode(data)
    except msgspec.DecodeError as error:
        return (f"{seal.FILE}: cannot be read: {error}", *_signature_problems(folder, data, signer))
    found = [] if _is_whole(sealed, data) else [f"{seal.FILE}: changed since it was sealed"]
    listed = {file.key: file for file in sealed.files}
    there = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    present = {key: path for key, path in there.items() if seal.is_sealed(key)}
    found += [f"{key}: missing" for key in listed if key not in present]
    found += [f"{key}: not in the seal" for key in present if key not in listed]
    for key, file in listed.items():
        if key in present and digest_bytes(present[key].read_bytes()) != file.sha256:
            found.append(f"{key}: changed since it was sealed")
    return (*found, *_signature_problems(folder, data, signer))


def _is_whole(sealed: seal.Seal, data: bytes) -> bool:
    """Whether these are the very bytes that were written: the digest covers what is said, the canonical form how."""
    return sealed.digest == seal.own_digest(sealed) and canonical(sealed) == data


def _seal_bytes(folder: Path) -> bytes:
    try:
        return (folder / seal.FILE).read_bytes()
    except OSError as error:
        raise BadTask(
            f"{folder} has no {seal.FILE}: {error.strerror}", hint="give the folder of a finished run (runs/RUN of a store)"
        ) from error


def _signature_problems(folder: Path, data: bytes, signer: tuple[str, str] | None) -> list[str]:
    if signer is None:
        return []
    signed = folder / seal.SIGNATURE
    if not signed.exists():
        return [f"{seal.SIGNATURE}: missing, the seal is not signed"]
    why = signature.verify(data, signed.read_bytes(), signer[0], (signer[1],))
    return [f"{seal.SIGNATURE}: {why}"] if why else []
