"""The schema of Argo's own kinds, reduced from its published CRDs to what the linter reads, with every part stored once."""

import json
from pathlib import Path
from typing import Any

import yaml

from tests.conformance.corpus import DATA

RELEASE = "v4.1.2"
CRDS = DATA.parent / "crds" / f"argo-workflows-{RELEASE}" / "crds"
SHIPPED = Path(__file__).parents[2] / "workflows/render/grammar/argo_schema.json"
KINDS = ("workflows", "workflowtemplates", "cronworkflows", "workfloweventbindings")
KEPT = (
    "type", "format", "enum", "pattern", "required", "minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength",
)  # fmt: skip
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Pool:
    """Schemas by their text, numbered in the order of their first use; a schema refers to its parts by number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, raw: dict[str, Any]) -> int:
        """Return the number of a schema, adding it and its parts to the pool."""
        kept: dict[str, Any] = {key: raw[key] for key in KEPT if key in raw}
        if raw.get("x-kubernetes-int-or-string"):
            kept["type"] = "int-or-string"
        if raw.get("x-kubernetes-preserve-unknown-fields"):
            kept["open"] = True
        if "properties" in raw:
            kept["fields"] = {name: self.number(part) for name, part in raw["properties"].items()}
        for key, name in (("items", "items"), ("additionalProperties", "rest")):
            if isinstance(raw.get(key), dict):
                kept[name] = self.number(raw[key])
        if "x-kubernetes-validations" in raw:
            kept["rules"] = [rule["rule"] for rule in raw["x-kubernetes-validations"]]
        return self.numbers.setdefault(json.dumps(kept, sort_keys=True), len(self.numbers))


def reduced() -> str:
    """Return the text of the shipped file, made from the CRDs: one line for each distinct schema."""
    pool, roots = Pool(), {}
    for plural in KINDS:
        crd = yaml.load((CRDS / f"argoproj.io_{plural}.yaml").read_text(), Loader=_LOADER)
        (version,) = crd["spec"]["versions"]
        schema = version["schema"]["openAPIV3Schema"]
        schema["properties"].pop("status", None)  # only an engine writes it
        roots[crd["spec"]["names"]["kind"]] = pool.number(schema)
    lines = ",\n".join(pool.numbers)
    source = f"https://github.com/argoproj/argo-workflows {RELEASE}, manifests/base/crds/full (Apache-2.0), reduced"
    return f'{{"source": {json.dumps(source)},\n"kinds": {json.dumps(roots)},\n"schemas": [\n{lines}\n]}}\n'


if __name__ == "__main__":
    SHIPPED.write_text(reduced())
