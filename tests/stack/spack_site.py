"""A site whose stack Spack builds, by the stand-in for `spack` and the lock of a recorded stack of 19 packages."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.stack import spack_stand_in
from tests.stack.stack_site import Site

RECORDED = Path(os.environ.get("BRINGUP_TEST_DATA") or Path(__file__).parents[3] / "shared") / "samples/spack/real_0.23"
LOCK = "env_stack.spack.lock"
SPACK = {"url": "https://github.com/spack/spack.git", "revision": "v0.23.0", "environment": "spack.yaml"}
TESTS = [{"name": "sed_runs", "modules": ["sed"], "command": ["sed", "--version"], "timeout": "60s"}]


def recorded(name: str, **names: str) -> str:
    """Return a recorded output of Spack, with `names` of packages replaced."""
    text = (RECORDED / name).read_text()
    for old, new in names.items():
        text = text.replace(old, new)
    return text


class SpackSite(Site):
    """A site with a spec for Spack; `home` of the stand-in is the folder `spack`."""

    def write(self, **more: Any) -> None:
        """Write spec and environment, and install the stand-in; `more` replaces keys of the spec."""
        self.program = self.folder / "spack"
        if not self.program.exists():
            variables = spack_stand_in.write_program(self.program, (RECORDED / LOCK).read_bytes())
            self.environment |= variables
        (self.folder / "spack.yaml").write_text((RECORDED / "env_stack.spack.yaml").read_text())
        spec: dict[str, Any] = {
            "apiVersion": "bringup/v1",
            "kind": "Stack",
            "name": self.name,
            "owner": "hpc@example.org",
            "revision": "1",
            "spack": SPACK,
            "builder": "registry.example.org/builder:2026.11",
            "target": "x86_64",
            "jobs": 2,
            "builds_at_once": 2,
            "cache": str(self.cache),
            "tests": TESTS,
            "publish": {"root": str(self.root), "keep": 3},
        }
        (self.folder / "stack.yaml").write_text(yaml.safe_dump(spec | more))

    def fail(self, faults: Mapping[str, tuple[int, str]]) -> None:
        """Make commands of the stand-in fail, by exit code and output; an empty mapping repairs all."""
        spack_stand_in.write_faults(self.program, faults)
