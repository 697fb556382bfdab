"""Canonical JSON and digests: equal data gives equal bytes, hence the same digest, on every machine."""

import hashlib

import msgspec

UNREADABLE_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Exceptions of decoding bytes that are not the expected JSON.

msgspec has no error of its own for texts that are no UTF-8, and for values that are nested too deeply.
"""


def canonical(value: object) -> bytes:
    """Return JSON with sorted keys and no spaces. `value` is built-in data or msgspec Structs."""
    return msgspec.json.encode(msgspec.to_builtins(value), order="sorted")


def digest(value: object) -> str:
    """Return `sha256:` and 64 hex digits over the canonical JSON of a value."""
    return digest_bytes(canonical(value))


def digest_bytes(data: bytes) -> str:
    """Return `sha256:` and 64 hex digits over bytes."""
    return "sha256:" + hashlib.sha256(data).hexdigest()
