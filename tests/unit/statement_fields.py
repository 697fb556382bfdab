"""Fields of in-toto statements as the public specifications name them, and a version whose statement somebody replaced."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from steps.contract import release_layout
from steps.contract.canonical import digest_bytes

RESOURCE = {"name": str, "uri": str, "digest": dict, "mediaType": str, "annotations": dict}
STATEMENT = {"_type": str, "subject": [RESOURCE], "predicateType": str}
SPECIFIED: dict[str, Any] = {
    "provenance.json": {
        **STATEMENT,
        "predicate": {
            "buildDefinition": {
                "buildType": str,
                "externalParameters": dict,
                "internalParameters": dict,
                "resolvedDependencies": [RESOURCE],
            },
            "runDetails": {
                "builder": {"id": str, "builderDependencies": [RESOURCE], "version": dict},
                "metadata": {"invocationId": str, "startedOn": str, "finishedOn": str},
                "byproducts": [RESOURCE],
            },
        },
    },
    "test-result.json": {
        **STATEMENT,
        "predicate": {
            "result": str,
            "configuration": [RESOURCE],
            "url": str,
            "passedTests": list,
            "warnedTests": list,
            "failedTests": list,
        },
    },
}
"""Fields of in-toto Statement v1, SLSA provenance v1 and test-result v0.1, as their specifications name and type them."""
REQUIRED = {
    "provenance.json": ["buildDefinition.buildType", "buildDefinition.externalParameters", "runDetails.builder.id"],
    "test-result.json": ["result", "configuration"],
}


def unspecified(value: Any, fields: Any, place: str = "") -> list[str]:
    """Places in a document that the specification does not have, or has with another type."""
    if isinstance(fields, dict):
        if not isinstance(value, dict):
            return [place]
        known = [unspecified(value[name], fields[name], f"{place}.{name}") for name in value if name in fields]
        return [f"{place}.{name}" for name in value if name not in fields] + [bad for places in known for bad in places]
    if isinstance(fields, list):
        if not isinstance(value, list):
            return [place]
        return [bad for item in value for bad in unspecified(item, fields[0], f"{place}[]")]
    return [] if isinstance(value, fields) else [place]


def rewritten(version: Path, file: str, data: bytes | None) -> None:
    """Replace or remove a file of a version, and correct its list of digests as whoever hides it would."""
    (version / file).unlink()
    sums = release_layout.read_sums((version / "SHA256SUMS").read_bytes())
    del sums[file]
    if data is not None:
        (version / file).write_bytes(data)
        sums[file] = digest_bytes(data)
    lines = (f"{digest.removeprefix('sha256:')}  {name}\n" for name, digest in sorted(sums.items()))
    (version / "SHA256SUMS").write_text("".join(lines))


def absent(statement: dict[str, Any], paths: Iterable[str]) -> list[str]:
    """Return those paths, such as `runDetails.builder.id`, at which a statement's predicate has no value, or an empty one."""
    return [path for path in paths if not _value(statement["predicate"], path.split("."))]


def _value(holder: Any, names: list[str]) -> Any:
    for name in names:
        holder = holder.get(name) if isinstance(holder, dict) else None
    return holder
