"""Makes the two locks: apt resolves the recipe's packages from nothing; uv and pip choose the wheels of uv.lock's group."""

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

from workflows.images import fetch, recipe
from workflows.images.cache import Cache
from workflows.images.errors import BuildError, FetchError
from workflows.images.recipe import FOLDER, PACKAGES, WHEELS, Deb, Recipe, Wheel

MADE = "# Made by `bringup image step lock` from {source}; review changes, do not edit.\n"
_URI = re.compile(r"'(\S+)' (\S+) \d+ SHA256:([0-9a-f]{64})")


def lock(tree: Path, cache: Cache) -> tuple[int, int]:
    """Write both locks of a source tree; how many packages and wheels they name."""
    wanted = recipe.read_recipe(tree)
    with cache.locked(), cache.scratch() as scratch:
        debs = _debs(wanted, scratch)
        wheels = _wheels(wanted, tree, scratch, cache)
    _write(tree / FOLDER / PACKAGES, MADE.format(source="recipe.yaml"), [f"{d.name}={d.version} {d.sha256} {d.path}" for d in debs])
    pins = [f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}" for wheel in wheels]
    _write(tree / FOLDER / WHEELS, MADE.format(source=f"uv.lock, group {wanted.wheels.group}"), pins)
    return len(debs), len(wheels)


def _write(path: Path, head: str, lines: Sequence[str]) -> None:
    path.write_text(head + "".join(f"{line}\n" for line in sorted(lines)))


def _debs(wanted: Recipe, folder: Path) -> list[Deb]:
    """What apt would install on a machine that has nothing yet, less what the recipe leaves out."""
    debian = wanted.debian
    listed = "".join(f"deb [signed-by={debian.keyring}] {debian.archive}/{one}\n" for one in debian.repositories)
    (folder / "sources.list").write_text(listed)
    (folder / "status").touch()
    options = {
        "Dir::State": folder,
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "APT::Architecture": wanted.architecture,
        "APT::Architectures": wanted.architecture,
        "APT::Sandbox::User": "",
        "Acquire::ForceHash": "SHA256",
        "Acquire::Languages": "none",
    }
    for needed in ("lists/partial", "cache/archives/partial"):
        (folder / needed).mkdir(parents=True)
    apt = ["apt-get", *(word for key, value in options.items() for word in ("-o", f"{key}={value}"))]
    _apt([*apt, "update", "--error-on=any"])
    said = _apt([*apt, "install", "--print-uris", "-qq", "--no-install-recommends", *debian.packages])
    resolved = [_deb(debian.archive, *found) for found in _URI.findall(said)]
    if strange := set(debian.without) - {deb.name for deb in resolved}:
        raise BuildError(
            f"the recipe leaves out {', '.join(sorted(strange))}, which nothing needs any more", hint="remove them there"
        )
    return [deb for deb in resolved if deb.name not in debian.without]


def _apt(command: list[str]) -> str:
    done = fetch.run(command, "apt (on Debian and its kin)")
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.startswith("E:")]
        raise FetchError(f"apt cannot resolve the recipe: {' '.join(errors) or done.stderr.strip()}")
    return done.stdout


def _deb(archive: str, address: str, file: str, sha256: str) -> Deb:
    name, version, _ = unquote(file).split("_")
    return Deb(name, version, sha256, address.removeprefix(f"{archive}/"))


def _wheels(wanted: Recipe, tree: Path, folder: Path, cache: Cache) -> list[Wheel]:
    exported = folder / "requirements.txt"
    command = ["uv", "export", "--project", str(tree), "--frozen", "--quiet", "--only-group", wanted.wheels.group]
    done = fetch.run([*command, "--no-emit-project", "--no-annotate", "--no-header", "--output-file", str(exported)], "uv")
    if done.returncode != 0:
        raise BuildError(f"uv.lock: {done.stderr.strip()}")
    found = []
    for path in fetch.download_wheels(exported, wanted, folder / "wheels"):
        name, version = path.name.split("-")[:2]
        found.append(Wheel(re.sub(r"[-_.]+", "-", name).lower(), version, cache.add_package(path)))
    return found
