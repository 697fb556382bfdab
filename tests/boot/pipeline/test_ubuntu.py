"""A small image of Ubuntu, built from Ubuntu's own mirror, booted and published: the second distribution for real."""

import hashlib
import shutil
import subprocess
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.boot.pipeline.site import Site

RECIPE = Path(__file__).with_name("ubuntu.yaml")
KEYS = "http://archive.ubuntu.com/ubuntu/pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb"
KEYS_SHA256 = "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8"
"""The package of the release itself, which no update replaces there. Debian 12 has none with Ubuntu's keys."""
SECONDS = 60.0


def keyring(folder: Path) -> Path:
    """Ubuntu's keys, from a package whose digest is known."""
    with urlopen(KEYS, timeout=SECONDS) as answer:
        data = answer.read()
    assert hashlib.sha256(data).hexdigest() == KEYS_SHA256
    (folder / "keys.deb").write_bytes(data)
    subprocess.run(["dpkg-deb", "--extract", folder / "keys.deb", folder / "keys"], check=True)
    return folder / "keys/usr/share/keyrings/ubuntu-archive-keyring.gpg"


@pytest.mark.long
def test_a_small_image_of_ubuntu_is_built_booted_and_published(tmp_path: Path) -> None:
    boot = {"firmware": ["bios"], "memory_mib": 1536, "timeout": "10m"}
    site = Site(tmp_path / "site", recipe="ubuntu.yaml", mirror_keyring=str(keyring(tmp_path)), boot=boot)
    shutil.copy(RECIPE, site.folder)
    site.lock()
    site.run("image", "build")
    (record,) = site.records("image_boot", "boot_bios")
    named = {one["name"]: one["outcome"] for one in record["observation"]["boots"][0]["report"]["results"]}
    assert named["is_ubuntu"] == "pass", named
    site.run("image", "verify", "image.yaml")
    shutil.rmtree(tmp_path)
