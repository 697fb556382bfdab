"""Make the software bill of materials: CycloneDX 1.5, every Debian package and Python distribution with version and digest.

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


def build_sbom(sources: Sources, code: str) -> bytes:
    """Return the bill of materials as JSON. Its serial number has `code`, the digest of the copied folders, so it is unique."""
    title, debian, architecture = sources.recipe.title, sources.recipe.debian, sources.recipe.architecture
    properties = [{"name": "bringup:application", "value": code}]
    image = {"type": "container", "bom-ref": title, "name": title, "version": sources.version, "properties": properties}
    distribution = debian.repositories[0].split()[1]
    top: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_OID, f"{sources.digest} {code} {sources.version}").urn,
        "version": 1,
        "metadata": {"timestamp": sources.recipe.created, "component": image},
        "components": [
            *(_deb(deb, distribution, architecture) for deb in sources.every),
            *(_component(wheel, f"pkg:pypi/{wheel.name}@{quote(wheel.version, safe='')}") for wheel in sources.every_wheel),
        ],
    }
    return msgspec.json.format(msgspec.json.encode(top), indent=1) + b"\n"


def _deb(deb: Deb, distribution: str, architecture: str) -> dict[str, Any]:
    kind = "all" if deb.path.endswith("_all.deb") else architecture
    named = f"{quote(deb.name, safe='')}@{quote(deb.version, safe='')}"
    return _component(deb, f"pkg:deb/debian/{named}?arch={kind}&distro={distribution}")


def _component(package: Deb | Wheel, purl: str) -> dict[str, Any]:
    hashes = [{"alg": "SHA-256", "content": package.sha256}]
    head = {"type": "library", "bom-ref": purl, "name": package.name, "version": package.version}
    return {**head, "purl": purl, "hashes": hashes}


if __name__ == "__main__":
    read = pod_recipe.read(Path())
    sys.stdout.buffer.write(build_sbom(read, digest(pod_recipe.application_tree(read.recipe.application, read.source))))
