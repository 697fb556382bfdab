"""SSH signatures (`ssh-keygen -Y`) over approvals and seals, by any SSH key of a person or a machine."""

import tempfile
from pathlib import Path

from steps.clients import process
from steps.errors import BadTask

NAMESPACE = "bringup"
"""Namespace of signatures. A signature made for another purpose does not verify."""


def sign(data: bytes, key: Path, namespace: str = NAMESPACE) -> bytes:
    """Return an armoured signature. Raises BadTask if the key cannot sign."""
    done = process.run(["ssh-keygen", "-Y", "sign", "-n", namespace, "-f", str(key)], data=data)
    if done.code != 0:
        raise BadTask(f"cannot sign with {key.name}: {done.err.strip()}")
    return done.out.encode()


def key_of(data: bytes, signature: bytes, namespace: str = NAMESPACE) -> str:
    """Return type and fingerprint of the key that made a signature, `ED25519 SHA256:…`, trusted or not.

    Empty if the signature is not over these bytes.
    """
    with tempfile.TemporaryDirectory(prefix="bringup-") as folder:
        signed = Path(folder, "signature")
        signed.write_bytes(signature)
        done = process.run(["ssh-keygen", "-Y", "check-novalidate", "-n", namespace, "-s", str(signed)], data=data)
    # `Good "bringup" signature with ED25519 key SHA256:…`
    _, _, named = done.out.strip().partition(" with ")
    return named.replace(" key ", " ", 1) if done.code == 0 else ""


def fingerprint(public_key: str) -> str:
    """Return type and fingerprint of a public key as `key_of` does, `ED25519 SHA256:…`; empty if the text is no key."""
    done = process.run(["ssh-keygen", "-l", "-f", "-"], data=public_key.encode())
    # `256 SHA256:… comment (ED25519)`
    words = done.out.split()
    return f"{words[-1].strip('()')} {words[1]}" if done.code == 0 and len(words) > 2 else ""


def verify(data: bytes, signature: bytes, who: str, public_keys: tuple[str, ...], namespace: str = NAMESPACE) -> str:
    """Return why a signature of `data` by `who` is not valid with any of the keys (`ssh-ed25519 AAAA…`); empty if it is valid."""
    with tempfile.TemporaryDirectory(prefix="bringup-") as folder:
        allowed, signed = Path(folder, "allowed"), Path(folder, "signature")
        allowed.write_text("".join(f'{who} namespaces="{namespace}" {key.strip()}\n' for key in public_keys))
        signed.write_bytes(signature)
        command = ["ssh-keygen", "-Y", "verify", "-n", namespace, "-f", str(allowed), "-I", who, "-s", str(signed)]
        done = process.run(command, data=data)
    return "" if done.code == 0 else (done.err or done.out).strip() or "the signature does not verify"
