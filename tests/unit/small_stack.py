"""A small stack spec and what it resolves to, as data: a compiler of the site, two packages that need each other, one alone."""

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import yaml

from workflows.softwarestack import easybuild_lock, stack_resolution
from workflows.softwarestack.easybuild_lock import EasyBuildLock, LockedEasyconfig, LockedSource, with_hash
from workflows.softwarestack.stack_resolution import ResolvedStack
from workflows.softwarestack.stack_spec import StackSpec, load_stack

BUILDER = ("5.4.1", "HierarchicalMNS", "x86_64_v3")
PACKAGES = {"GCC": (), "zlib": ("GCC",), "libpng": ("GCC", "zlib"), "lz4": ("GCC",)}
"""Packages with what they need at run time; GCC comes from the site."""
SPEC: dict[str, Any] = {
    "apiVersion": "bringup/v1",
    "kind": "Stack",
    "name": "lab-tools",
    "owner": "hpc-software@example.org",
    "revision": "2026-11-21.1",
    "easybuild": {"release": "5.4.1", "easyconfigs": ["easyconfigs/libpng-1.0.eb", "easyconfigs/lz4-1.0.eb"]},
    "builder": "registry.example.org/builder:2026.11",
    "tests": [{"name": "png", "modules": ["libpng/1.0"], "command": ["libpng-config", "--version"]}],
    "publish": {"root": "/srv/stacks", "keep": 4},
}


def write(folder: Path, **more: Any) -> Path:
    """Write spec, easyconfigs and lock into a folder and return the spec's path; `more` replaces top-level keys of the spec."""
    path = folder / "stack.yaml"
    path.write_text(yaml.safe_dump({**SPEC, **more}))
    (folder / "easyconfigs").mkdir(exist_ok=True)
    for name in PACKAGES:
        (folder / f"easyconfigs/{name}-1.0.eb").write_bytes(easyconfig(name))
    (folder / "stack.lock.json").write_text(easybuild_lock.text(lock()))
    return path


def resolved(folder: Path, **more: Any) -> tuple[StackSpec, ResolvedStack]:
    """Return the loaded spec and what it resolves to, from files that are written to a folder."""
    spec = load_stack(write(folder, **more))
    return spec, stack_resolution.resolve(spec, folder)


def easyconfig(name: str) -> bytes:
    """Return the bytes of a package's easyconfig, which nothing here executes."""
    return f"name = '{name}'\nversion = '1.0'\n".encode()


def lock() -> EasyBuildLock:
    """Return the lock of the stack."""
    hashes, packages = dict[str, str](), list[LockedEasyconfig]()
    for name, needed in PACKAGES.items():
        sha256 = hashlib.sha256(easyconfig(name)).hexdigest()
        runtime = tuple(hashes[entry] for entry in needed)
        package = LockedEasyconfig(hash="", name=name, version="1.0", module=f"Core/{name}/1.0", external=name == "GCC")
        if name != "GCC":
            sources = (LockedSource(name=f"{name}.tar.gz", sha256="ab" * 32),)
            package = msgspec.structs.replace(
                package, easyconfig=f"{name}-1.0.eb", sha256=sha256, toolchain="GCC/1.0", runtime=runtime, sources=sources
            )
        packages.append(with_hash(BUILDER, package))
        hashes[name] = packages[-1].hash
    release, naming, target = BUILDER
    return EasyBuildLock(
        kind=easybuild_lock.KIND,
        schema=easybuild_lock.SCHEMA,
        easybuild=release,
        naming=naming,
        target=target,
        roots=(hashes["libpng"], hashes["lz4"]),
        packages=tuple(packages),
    )


def hash_of(name: str) -> str:
    """Return the hash of a package of the stack."""
    return next(package.hash for package in lock().packages if package.name == name)
