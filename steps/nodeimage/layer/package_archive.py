"""Archive of package files by digest: locked packages are fetched once and kept, because mirrors drop old versions.

`archive/AB/SHA256` plus the suffix of packages. A file is renamed there after its bytes were verified and flushed to disk. Until
then it lies in `archive/incoming`, locked by its writer; a file that nobody locks is left over from a kill and is removed.
"""

import fcntl
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Final
from uuid import uuid4

from msgspec import Struct

from steps.errors import StepError, StoreBusy, Unreachable
from steps.nodeimage.contract import debian
from steps.nodeimage.contract.resolved_recipe import Package, Recipe
from steps.nodeimage.layer.mirror_download import Mirrors, in_words
from steps.nodeimage.store import store_entries
from steps.stages.image_lock.contract import Archive

FOLDER: Final = "archive"
INCOMING: Final = "incoming"
SIDE_BY_SIDE: Final = 4
"""Number of parallel downloads: some mirrors take more for an attack, and four fill a gigabit."""
MOST_PROBLEMS: Final = 20
MOST_SAID: Final = 5
"""Most problems that are printed while the archive is filled; MOST_PROBLEMS go into the record. A dead mirror affects hundreds."""


class _PackageResult(Struct, frozen=True, kw_only=True):
    """Result for one package: `how` is `kept`, `seeded`, `fetched`, `missing` or `wrong` (has other bytes)."""

    package: Package
    how: str
    problem: str = ""
    is_away: bool = False


def path(images: Path, sha256: str) -> Path:
    """Return the path of a package file in the image store's archive, by its digest; it need not exist."""
    return debian.in_archive(images / FOLDER, sha256)


def fill(images: Path, recipe: Recipe, say: Callable[[str], None], seeds: Sequence[Path] = debian.CACHES) -> Archive:
    """Bring every package that the recipe locks into the archive: keep valid files, copy from folders `seeds`, download the rest.

    Never raises for a mirror: packages that cannot be fetched are `missing` in the result (or still `wrong`), with the mirror's
    words. Raises StoreBusy for errors of the disk.
    """
    packages = {package.sha256: package for layer in recipe.layers for package in layer.packages}
    _clean(images)
    try:
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            states = dict(zip(packages, pool.map(lambda sha256: _state(images, sha256), packages), strict=True))
            lacking = [package for sha256, package in packages.items() if states[sha256] != "kept"]
            results = _bring_all(images, recipe, lacking, states, say, seeds, pool) if lacking else []
    except OSError as error:
        raise StoreBusy(f"the archive of packages: {error.filename or images}: {error.strerror}") from error
    return _archive(recipe, list(packages.values()), states, results)


def _state(images: Path, sha256: str) -> str:
    """Return `kept`, `wrong` (other bytes) or `missing` for a package file, and note its use for garbage collection."""
    place = path(images, sha256)
    try:
        store_entries.note_use(place)
        with place.open("rb") as file:
            return "kept" if hashlib.file_digest(file, "sha256").hexdigest() == sha256 else "wrong"
    except FileNotFoundError:
        return "missing"


def _bring_all(
    images: Path,
    recipe: Recipe,
    lacking: Sequence[Package],
    states: dict[str, str],
    say: Callable[[str], None],
    seeds: Sequence[Path],
    pool: ThreadPoolExecutor,
) -> list[_PackageResult]:
    size = sum(package.size for package in lacking)
    say(f"{len(lacking)} of {len(states)} packages are not in the archive: {size / 1e6:.0f} MB")
    results, done, problems = [], 0, 0
    with closing(Mirrors(SIDE_BY_SIDE)) as mirrors:

        def bring(package: Package) -> _PackageResult:
            return _bring(images, recipe, package, states[package.sha256], seeds, mirrors)

        for number, result in enumerate(pool.map(bring, lacking), 1):
            results.append(result)
            done += result.package.size
            problems += bool(result.problem)
            if result.problem and problems <= MOST_SAID:
                say(result.problem)
            elif number == len(lacking) or number % max(1, len(lacking) // 5) == 0:
                say(f"{number} of {len(lacking)} packages, {done / 1e6:.0f} MB")
    return results


def _bring(images: Path, recipe: Recipe, package: Package, before: str, seeds: Sequence[Path], mirrors: Mirrors) -> _PackageResult:
    source = recipe.sources[package.source].url.rstrip("/") if package.source < len(recipe.sources) else ""
    with _incoming(images) as (file, unfinished):
        is_seeded = any(_copied(seed, package, file) for seed in seeds)
        if not is_seeded and not source:
            problem = f"{_named(package)}: the recipe has no source {package.source}"
            return _PackageResult(package=package, how=before, problem=problem)
        try:
            if not is_seeded:
                mirrors.fetch(source, package, file)
        except StepError as error:
            is_away, problem = isinstance(error, Unreachable), f"{_named(package)}: {in_words(error)}"
            return _PackageResult(package=package, how=before, problem=problem, is_away=is_away)
        _appear(file, unfinished, path(images, package.sha256))
    return _PackageResult(package=package, how="seeded" if is_seeded else "fetched")


def _copied(seed: Path, package: Package, file: IO[bytes]) -> bool:
    """Copy a package file from a folder, such as apt's cache or another archive; return True if the folder had it."""
    for there in (debian.in_archive(seed, package.sha256), seed / debian.cached_name(package)):
        try:
            data = there.read_bytes() if there.stat().st_size == package.size else b""
        except OSError:
            continue
        if hashlib.sha256(data).hexdigest() == package.sha256:
            file.write(data)
            return True
    return False


@contextmanager
def _incoming(images: Path) -> Iterator[tuple[IO[bytes], Path]]:
    """Yield a locked temporary file and its path; it is removed at the end unless it was renamed."""
    folder = images / FOLDER / INCOMING
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        unfinished = folder / uuid4().hex
        with unfinished.open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not unfinished.exists():  # taken for a left-over in the moment before it was locked
                continue
            try:
                yield file, unfinished
            finally:
                unfinished.unlink(missing_ok=True)
            return


def _appear(file: IO[bytes], unfinished: Path, place: Path) -> None:
    file.flush()
    os.fsync(file.fileno())
    place.parent.mkdir(exist_ok=True)
    unfinished.replace(place)
    folder = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _clean(images: Path) -> None:
    """Remove the temporary files of killed processes: those that nobody locks."""
    folder = images / FOLDER / INCOMING
    for unfinished in folder.iterdir() if folder.is_dir() else ():
        try:
            with unfinished.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                unfinished.unlink(missing_ok=True)
        except OSError:
            continue  # somebody writes it just now, or has just ended


def _archive(recipe: Recipe, packages: Sequence[Package], states: dict[str, str], results: Sequence[_PackageResult]) -> Archive:
    counted = Counter(result.how for result in results)
    problems = list(dict.fromkeys(result.problem for result in results if result.problem))
    if len(problems) > MOST_PROBLEMS:
        problems[MOST_PROBLEMS:] = [f"and {len(problems) - MOST_PROBLEMS} more"]
    return Archive(
        recipe=recipe.digest,
        packages=sum(len(layer.packages) for layer in recipe.layers),
        kept=sum(state == "kept" for state in states.values()),
        fetched=counted["fetched"] + counted["seeded"],
        bytes=sum(package.size for package in packages),
        missing=tuple(sorted(_named(result.package) for result in results if result.how == "missing")),
        wrong=tuple(sorted(_named(result.package) for result in results if result.how == "wrong")),
        problems=tuple(problems),
        away=sum(result.is_away for result in results if result.how == "missing"),
    )


def _named(package: Package) -> str:
    return f"{package.name}={package.version}"
