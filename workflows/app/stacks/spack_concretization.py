"""Lock a stack of Spack: have Spack concretize a copy of the environment.

Package repositories are Python that Spack executes as the caller, as `spack` itself does.
"""

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from steps.clients import process
from steps.errors import BadTask, Temporary
from steps.softwarestack.builds.builders import log_spack
from workflows.softwarestack import spack_environment_file, spack_lock, spack_resolution
from workflows.softwarestack.bounded_files import read_bounded
from workflows.softwarestack.build_graph import BuildGraph, LockError
from workflows.softwarestack.stack_spec import SpackSettings, StackSpec

CONCRETIZE_SECONDS: Final = 7200.0
"""Longest concretization: 45 CPU seconds for 8 roots, some minutes for hundreds, and the solver's time is not bounded."""
_INSTALL: Final = "put Spack's folder bin on PATH; its Python needs clingo (pip install clingo), or run `spack bootstrap now`"
_ISOLATED: Final = ("SPACK_DISABLE_LOCAL_CONFIG=1", "SPACK_COLOR=never")
"""Settings of the user and of the system would change what is locked unseen. Spack's caches in the home folder stay in use."""


def lock(spec: StackSpec, section: SpackSettings, folder: Path) -> tuple[bytes, BuildGraph]:
    """Return the content of a new lock for a spec in a folder, and its graph.

    Raises `LockError` if Spack is missing or of another release, or cannot concretize the environment.
    """
    program = _program(section)
    environment = spack_environment_file.read(folder / section.environment)
    content = dict(environment.content) | _repositories(environment.content, environment.folders)
    content["packages"] = _for_target(content.get("packages"), spec.target)
    with tempfile.TemporaryDirectory(prefix="bringup-stack-") as name:
        copy = Path(name)
        (copy / "spack.yaml").write_bytes(msgspec.json.encode({"spack": content}))
        # packages that happen to be installed here must not decide what is locked
        _run([program, "-c", "concretizer:reuse:false", "-e", str(copy), "concretize", "-f"], folder / section.environment)
        path = copy / "spack.lock"
        if not path.is_file():
            raise LockError(f"{folder / section.environment}: Spack concretized it and wrote no lock", "add specs to it")
        data = read_bounded(path, spack_lock.LARGEST_BYTES, "lock a smaller environment")
    graph = spack_lock.parse(data, spec.lock_path)
    return spack_resolution.with_wishes(data, environment), graph


def _program(section: SpackSettings) -> str:
    program = shutil.which("spack")
    if program is None:
        raise LockError("Spack is not installed: spack is not on the search path", _INSTALL)
    done = _started([program, "--version"])
    release, wanted = (done.out.split() or [""])[0], spack_resolution.tagged_release(section)
    if wanted and release != wanted:
        raise LockError(
            f"Spack {release or 'of no release'} is installed, the stack names {section.revision}",
            f"check out {section.revision} of {section.url}, or correct spack.revision",
        )
    return program


def _run(command: Sequence[str], environment: Path) -> None:
    done = _started(command)
    verdict = log_spack.read(command, done.code, f"{done.out}\n{done.err}")
    if not verdict.is_done:
        reason = " ".join(verdict.lines[:3]) or "it wrote no reason"
        raise LockError(f"{environment}: Spack cannot concretize it: {reason}", "correct the environment")


def _started(command: Sequence[str]) -> process.Done:
    try:
        return process.run(["env", *_ISOLATED, *command], seconds=CONCRETIZE_SECONDS)
    except (BadTask, Temporary) as error:
        raise LockError(str(error), error.hint or "lock a smaller environment") from error


def _repositories(content: Mapping[str, Any], folders: Sequence[Path]) -> dict[str, Any]:
    """Return the section `repos` with absolute paths, since the copy of the environment lies in another folder."""
    paths = [os.path.abspath(folder) for folder in folders]
    if not paths:
        return {}
    section = content["repos"]
    return {"repos": dict(zip(section, paths, strict=True)) if isinstance(section, dict) else paths}


def _for_target(packages: object, target: str) -> dict[str, Any]:
    """Return the section `packages` with the stack's CPU target as preference; requirements of the environment are stronger."""
    section = dict(packages) if isinstance(packages, dict) else {}
    every = section.get("all")
    section["all"] = {"target": [target]} | (every if isinstance(every, dict) else {})
    return section
