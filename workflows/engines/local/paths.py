"""Where `/bringup/...` of a manifest lies on this machine, and the rewriting of texts that name it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from workflows.render.grammar.gotext import fnv1a

_HOUSE = re.compile(r"(?<![\w./-])/bringup/(tasks|fleet|secrets|store|out)(?![\w-])")
_FOREIGN = re.compile(r"(?<![\w./-])/tmp(?=/)")


@dataclass(frozen=True, slots=True)
class RunPaths:
    """The run-level folders; `private_tmp` also turns `/tmp/` into the attempt's own folder (manifests that are not ours)."""

    tasks: Path
    fleet: Path
    secrets: Path
    store: Path
    private_tmp: bool = False

    @classmethod
    def below(cls, run_dir: Path, *, private_tmp: bool = False) -> RunPaths:
        """All of them inside the run directory."""
        return cls(run_dir / "tasks", run_dir / "fleet", run_dir / "secrets", run_dir / "store", private_tmp)

    def make(self) -> None:
        """Create what is missing; `secrets` only for the owner."""
        for folder in (self.tasks, self.fleet, self.store):
            folder.mkdir(parents=True, exist_ok=True)
        self.secrets.mkdir(parents=True, exist_ok=True, mode=0o700)

    def rewrite(self, text: str, out: Path) -> str:
        """`text` with every such prefix replaced, in one pass; `out` is the attempt's folder."""
        folders = {"tasks": self.tasks, "fleet": self.fleet, "secrets": self.secrets, "store": self.store, "out": out}
        if not self.private_tmp:
            return _HOUSE.sub(lambda match: str(folders[match[1]]), text)
        return re.sub(f"{_HOUSE.pattern}|{_FOREIGN.pattern}", lambda match: str(folders[match[1]]) if match[1] else str(out), text)


def slug(path: str) -> str:
    """A file name for a node: readable, unique by hash, free of separators."""
    readable = re.sub(r"[^A-Za-z0-9._-]+", ".", path).strip(".")[-80:]
    return f"{readable}-{fnv1a(path):08x}"
