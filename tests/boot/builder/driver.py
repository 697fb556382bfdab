"""Builds a layer in a process of its own, which tests kill or run as another user: `driver.py IMAGES RECIPE.json LAYER`.

Secrets lie in IMAGES/secrets.
"""

import sys
from pathlib import Path

import msgspec

from steps.nodeimage.contract import resolved_recipe
from steps.nodeimage.layer import layer_cache
from tests.boot.builder import tiny


def main(images: str, wanted: str, layer: str) -> None:
    """Say each line on stdout, and last what was built, as JSON."""
    read = resolved_recipe.decode(Path(wanted).read_bytes())
    secrets = Path(images) / "secrets"
    built = layer_cache.build(Path(images), read, tiny.files(), layer, secrets, lambda line: print(line, flush=True))
    print(msgspec.json.encode(built).decode(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
