"""Health as the real Argo CD evaluates it: `argocd admin settings resource-overrides health`, for which no cluster is needed."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kubelab import parts

from workflows.gitops.projects import CONFIG_MAP, HEALTH

Object = dict[str, Any]
COMMAND = ("admin", "settings", "resource-overrides", "health")
SEVERAL = "tests.invalid_Several"
"""A kind of our own whose script asks several scripts about several objects: one process instead of hundreds."""

_ASK = """\
local scripts, said = {%s}, {}
for _, script in ipairs(scripts) do
  local line = {}
  for _, one in ipairs(obj.items) do
    local ran, found = pcall(script, one)
    line[#line + 1] = ran and found.status .. "\\29" .. (found.message or "") or "error\\29" .. tostring(found)
  end
  said[#said + 1] = table.concat(line, "\\30")
end
return {status = "Healthy", message = table.concat(said, "\\31")}
"""
_TURNED = {"==": "~=", "~=": "=="}
_OUTCOMES = ("Healthy", "Progressing", "Degraded", "Suspended", "Missing", "Unknown")
_PLACES = re.compile("|".join([*(f'"{one}"' for one in _OUTCOMES), "==", "~="]))


@dataclass(frozen=True)
class Health:
    """Health of an object as Argo CD evaluates it."""

    status: str
    message: str


@dataclass(frozen=True)
class Evaluator:
    """Argo CD's command with a folder for its files. `settings` are keys of argocd-cm."""

    folder: Path

    def health(self, settings: Mapping[str, str], manifest: Object) -> Health:
        """The health of an object. Raises AssertionError with what the command said when it gives none."""
        paths = self.folder / "object.yaml", self.folder / "argocd-cm.yaml"
        meta = {"name": CONFIG_MAP, "namespace": "argocd", "labels": {"app.kubernetes.io/part-of": "argocd"}}
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": dict(settings)}
        for path, document in zip(paths, (manifest, config), strict=True):
            path.write_text(yaml.safe_dump(document))
        command = [str(parts.built(parts.ARGO_CD) / "argocd"), *COMMAND, str(paths[0]), "--argocd-cm-path", str(paths[1])]
        environment = os.environ | {"HOME": str(self.folder), "KUBECONFIG": os.devnull}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        found = re.fullmatch(r"STATUS: (\w+)\nMESSAGE: (.*)\n", done.stdout, re.DOTALL)
        assert found is not None, f"{done.stdout}{done.stderr}"
        return Health(found[1], found[2])

    def each(self, scripts: Sequence[str], objects: Sequence[Object]) -> list[list[Health]]:
        """Evaluate each script on each object, all in one process; return a row for each script, status `error` where it fails."""
        asked = ",\n".join(f"function(obj)\n{script}end" for script in scripts)
        group, _, kind = SEVERAL.partition("_")
        every = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "all"}, "items": list(objects)}
        said = self.health({f"{HEALTH}{SEVERAL}": _ASK % asked}, every).message
        return [[Health(*one.split("\x1d")) for one in line.split("\x1e")] for line in said.split("\x1f")]


def variants(script: str) -> Iterator[tuple[str, str]]:
    """Every way in which one outcome or one comparison of a script is wrong: what was changed, and the script so."""
    for found in _PLACES.finditer(script):
        other = _TURNED.get(found[0]) or ('"Degraded"' if found[0] == '"Healthy"' else '"Healthy"')
        line = script.count("\n", 0, found.start()) + 1
        yield f"line {line}: {found[0]} as {other}", script[: found.start()] + other + script[found.end() :]
