"""Canonical JSON and digests: the same data gives the same bytes, hence the same digest, everywhere."""

import hashlib

import msgspec


def canonical(value: object) -> bytes:
    """JSON with sorted keys and no spaces. `value` is built-in data or msgspec Structs."""
    return msgspec.json.encode(msgspec.to_builtins(value), order="sorted")


def digest(value: object) -> str:
    """`sha256:` and 64 hex digits over the canonical JSON."""
    return digest_bytes(canonical(value))


def digest_bytes(data: bytes) -> str:
    """`sha256:` and 64 hex digits over the bytes themselves."""
    return "sha256:" + hashlib.sha256(data).hexdigest()
