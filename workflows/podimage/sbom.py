"""Software bill of materials: CycloneDX 1.5, every Debian package and Python distribution with version and digest.

`python -m workflows.podimage.sbom` prints it for the checkout in the current folder (the Containerfile does).
"""

import sys
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from steps.contract.canonical import digest
from workflows.podimage import pod_recipe
from workflows.podimage.pod_recipe import Deb, Sources, Wheel

SPEC_VERSION = "1.5"
PLACE = "usr/share/bringup/sbom.cdx.json"
"""Path of the bill in the image."""


def build_sbom(sources: Sources, code: str) -> bytes:
    """Return the document. `code` is the digest of the copied folders, so that the serial number names this very image."""
    top: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_OID, f"{sources.digest} {code} {sources.version}").urn,
        "version": 1,
        "metadata": {"timestamp": sources.recipe.created, "component": _image(sources, code)},
        "components": [
            *(_deb(deb, _distribution(sources), sources.recipe.architecture) for deb in sources.every),
            *(_wheel(wheel) for wheel in sources.every_wheel),
        ],
    }
    return msgspec.json.format(msgspec.json.encode(top), indent=1) + b"\n"


def _image(sources: Sources, code: str) -> dict[str, Any]:
    digest = {"name": "bringup:application", "value": code}
    name = sources.recipe.title
    return {"type": "container", "bom-ref": name, "name": name, "version": sources.version, "properties": [digest]}


def _distribution(sources: Sources) -> str:
    return sources.recipe.debian.repositories[0].split()[1]


def _deb(deb: Deb, distribution: str, architecture: str) -> dict[str, Any]:
    kind = "all" if deb.path.endswith("_all.deb") else architecture
    return _component(
        deb, f"pkg:deb/debian/{quote(deb.name, safe='')}@{quote(deb.version, safe='')}?arch={kind}&distro={distribution}"
    )


def _wheel(wheel: Wheel) -> dict[str, Any]:
    return _component(wheel, f"pkg:pypi/{wheel.name}@{quote(wheel.version, safe='')}")


def _component(one: Deb | Wheel, purl: str) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": purl,
        "name": one.name,
        "version": one.version,
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": one.sha256}],
    }


if __name__ == "__main__":
    read = pod_recipe.read(Path())
    sys.stdout.buffer.write(build_sbom(read, digest(pod_recipe.application_tree(read.recipe.application, read.source))))
