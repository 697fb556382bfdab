"""An image of CNCF distribution as Debian packages it, which runs as the image `registry` does: with its settings as variables."""

import re
import shutil
import subprocess
from pathlib import Path

from kubelab import images
from kubelab.images import Image
from kubelab.node import Node

from tests.boot.published import servers

NAME = "localhost/registry:2.8"
PROGRAM = "/usr/bin/docker-registry"
CONFIG_FILE = "/etc/docker/registry/config.yml"
CONFIG = """version: 0.1
log: {fields: {service: registry}}
storage: {cache: {blobdescriptor: inmemory}, filesystem: {rootdirectory: /var/lib/registry}}
http: {addr: ":5000", headers: {X-Content-Type-Options: [nosniff]}}
health: {storagedriver: {enabled: true, interval: 10s, threshold: 3}}
"""
"""The configuration that the image `registry:2.8.3` has
(https://github.com/distribution/distribution-library-image/blob/release/2.8/config-example.yml)."""


def load(node: Node, folder: Path) -> None:
    """Give the image to a node: the program, the libraries that it is linked with, and the configuration.

    Where the package is not installed it is unpacked in `folder`, because installing it would start a registry on this machine.
    """
    installed = shutil.which(PROGRAM)
    program = Path(installed) if installed else servers.unpacked("docker-registry", folder) / PROGRAM.lstrip("/")
    linked = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    files: dict[str, Path | str] = {path: Path(path) for path in re.findall(r"(/\S+) \(0x", linked)}
    files |= {PROGRAM: program, CONFIG_FILE: CONFIG}
    node.load(images.pack(Image(NAME, (PROGRAM, "serve", CONFIG_FILE), files), node.folder / "registry.tar"))
