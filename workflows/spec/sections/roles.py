"""Ansible roles of a site before or after a stage: their section in a spec, and their folders as archives for the plan.

A role is code of the site and runs as root on its machines. Its folder is packed when the spec is loaded: files in sorted order
without times and owners, so that equal files give equal digests. Links and devices are refused.
"""

import hashlib
import io
import json
import os
import re
import stat
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, StringConstraints, field_validator, model_validator

from workflows import user_paths
from workflows.spec.errors import SpecError
from workflows.spec.fields import Argument, Duration, Section, SnakeId, problem
from workflows.spec.parsing import secrecy
from workflows.stage_names import StageName

LARGEST_BYTES = 500_000
"""Limit in bytes of all packed roles together: on Argo they travel in the ConfigMap of the tasks, which holds 1 MiB."""
MOST_FILES = 2000
_SKIPPED = {".git", "__pycache__", ".DS_Store", "molecule"}
_NAME = re.compile(r"[A-Za-z0-9._@+-][A-Za-z0-9 ._@+-]{0,99}")
_TEMPLATE = re.compile(r"\{[{%#]")
_LARGEST_VARIABLES = 2000
OURS = frozenset({"os_prep", "rke2", "rke2_reset"})
"""Names of bringup's own roles (`playbooks/roles`), which a site's role must not have."""

VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]


class SiteRole(Section):
    """An Ansible role of the site that runs before or after a stage."""

    name: SnakeId = Field(description="Name of the role, and of its task.", examples=["site_hardening"])
    path: Argument = Field(description="Folder of the role, relative to the spec.", examples=["./roles/site_hardening"])
    before: StageName | None = Field(
        default=None, description="Stage that the role runs before; exactly one of before and after is given.", examples=["os_prep"]
    )
    after: StageName | None = Field(
        default=None, description="Stage that the role runs after; exactly one of before and after is given.", examples=["rke2"]
    )
    hosts: Literal["all"] | SnakeId = Field(
        default="all", description="Hosts that the role runs on: all, or the name of a host group.", examples=["gpu"]
    )
    variables: Mapping[VariableName, Any] = Field(
        default={}, description="Variables of the role; no secrets, no templates.", examples=[{"site_banner": "GPU cluster"}]
    )
    secrets: Mapping[VariableName, SnakeId] = Field(
        default={},
        description="Variables of the role that are secrets → their names under secrets of the spec.",
        examples=[{"site_license": "license"}],
    )
    timeout: Duration = Field(
        default=timedelta(minutes=30),
        description="Longest time of the role. A task that hangs on one host ends after four fifths of it, or 20 minutes.",
        examples=["30m"],
    )
    _archive: bytes = PrivateAttr(default=b"")

    @field_validator("name")
    @classmethod
    def _not_one_of_ours(cls, name: str) -> str:
        if name in OURS:
            raise problem(f"{name} is the name of a role of bringup", "give your role another name")
        return name

    @field_validator("variables", "secrets")
    @classmethod
    def _plain_variables(cls, variables: Mapping[str, Any]) -> Mapping[str, Any]:
        text = json.dumps(variables, default=str)
        if _TEMPLATE.search(text):
            raise problem("a variable holds a template, which would run where Ansible runs", "put templates into the role itself")
        if len(text) > _LARGEST_VARIABLES:
            raise problem(
                f"the variables have {len(text)} characters, limit {_LARGEST_VARIABLES}", "put them into vars/ of the role"
            )
        named = next((name for name in variables if name.startswith(("ansible_", "bringup_"))), "")
        if named:
            raise problem(f"variable {named} would steer Ansible itself", "choose another name")
        return variables

    @model_validator(mode="after")
    def _one_place(self) -> "SiteRole":
        if (self.before is None) == (self.after is None):
            raise problem("a role runs before or after exactly one stage", "give one of before: STAGE and after: STAGE")
        return self

    @property
    def stage(self) -> StageName:
        """The stage that the role runs before or after; the role becomes one of its tasks."""
        return self.before or self.after or "os_prep"

    @property
    def archive(self) -> bytes:
        """The folder of the role as a tar file; empty if the spec was not loaded from a file."""
        return self._archive

    @property
    def digest(self) -> str:
        """Digest (`sha256:…`) of the archive, by which the role's task names it."""
        return f"sha256:{hashlib.sha256(self._archive).hexdigest()}"


@dataclass(frozen=True)
class BadRole(Exception):
    """Exception for a role folder that cannot be packed into a plan; `fix` says what to do."""

    sentence: str
    fix: str


def attach(roles: tuple[SiteRole, ...], folder: Path) -> Iterator[SpecError]:
    """Pack the folder of each role into its archive, and yield an error for each folder that cannot be packed."""
    total = 0
    for index, role in enumerate(roles):
        try:
            role._archive = pack(folder / user_paths.expand_home(role.path))
        except BadRole as bad:
            yield SpecError(f"roles[{index}].path", bad.sentence, bad.fix, role.path)
        total += len(role.archive)
        if total > LARGEST_BYTES:
            fix = f"all roles together may have {LARGEST_BYTES} bytes: let a role download what is large"
            yield SpecError(f"roles[{index}].path", f"with it the roles have {total} bytes", fix, role.path)


def pack(folder: Path) -> bytes:
    """Return a role folder as a tar file. Raises BadRole for links, devices, odd names, secrets, and folders that are too large or
    no role.
    """
    if not folder.is_dir() or folder.is_symlink():
        raise BadRole(f"there is no folder {folder}", "name the role's folder, relative to the spec")
    if not (folder / "tasks").is_dir():
        raise BadRole("the folder has no tasks/", "name the folder of one role, with tasks/main.yml in it")
    out, size = io.BytesIO(), 0
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for number, path in enumerate(_files(folder)):
            if size > LARGEST_BYTES or number > MOST_FILES:
                raise BadRole(
                    f"it has more than {LARGEST_BYTES} bytes or {MOST_FILES} files", "let the role download what is large"
                )
            data = path.read_bytes()
            form = secrecy.form_of(data.decode("latin-1"))
            if form and form != secrecy.URL:  # in a template, user and password of a URL are variables
                raise BadRole(f"{path.name} has {form} in it", "name it under secrets of the role")
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            entry.size, entry.mode = len(data), 0o755 if os.access(path, os.X_OK) else 0o644
            tar.addfile(entry, io.BytesIO(data))
            size += len(data)
    return out.getvalue()


def _files(folder: Path) -> Iterator[Path]:
    """Yield every file below a role folder in sorted order. Raises BadRole for links, which could pull in files from outside."""
    for path in sorted(folder.iterdir()):
        if path.name in _SKIPPED:
            continue
        if not _NAME.fullmatch(path.name):
            raise BadRole(f"file name {path.name!r} has characters that not every system takes", "rename it")
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode):
            yield from _files(path)
        elif stat.S_ISREG(mode):
            yield path
        else:
            raise BadRole(f"{path.name} is a link or a device", "put the file itself there")
