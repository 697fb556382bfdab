"""Lock files of small stacks, for tests."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

DATA = Path(os.environ.get("BRINGUP_TEST_DATA", Path(__file__).parents[4] / "shared")) / "samples" / "spack"


def hash_of(name: str) -> str:
    """Return a package hash in Spack's form, 32 characters of a base32 alphabet, made from a name."""
    digest = hashlib.sha256(name.encode()).digest()
    return "".join("abcdefghijklmnopqrstuvwxyz234567"[byte % 32] for byte in digest)


def spec(package: str, runtime: Iterable[str] = (), build: Iterable[str] = (), **fields: Any) -> dict[str, Any]:
    """Return one concrete spec; dependencies are given by name."""
    edges = [(needed, ["build", "link"]) for needed in runtime] + [(needed, ["build"]) for needed in build]
    dependencies = [
        {"name": needed, "hash": hash_of(needed), "parameters": {"deptypes": types, "virtuals": []}} for needed, types in edges
    ]
    return {"name": package, "version": "1.0", "hash": hash_of(package), "dependencies": dependencies} | fields


def lock(specs: Mapping[str, Mapping[str, Any]], roots: Iterable[str], version: int = 5) -> bytes:
    """Return a lock file's content; `specs` are by name, `roots` are names."""
    content = {
        "_meta": {"file-type": "spack-lockfile", "lockfile-version": version, "specfile-version": 4},
        "roots": [{"hash": hash_of(root), "spec": root} for root in roots],
        "concrete_specs": {hash_of(name): dict(fields) for name, fields in specs.items()},
    }
    return json.dumps(content).encode()


def chain() -> dict[str, dict[str, Any]]:
    """Return specs in which app needs lib and, to build, tool; lib needs base; base needs the external libc."""
    return {
        "app": spec("app", ["lib"], ["tool"]),
        "lib": spec("lib", ["base"]),
        "base": spec("base", ["libc"]),
        "tool": spec("tool", ["base"]),
        "libc": spec("libc", external={"path": "/usr"}),
    }
