"""Small installed packages on disk, and archives of them, for tests of packing and of the build cache."""

import io
import os
import random
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

from steps.softwarestack.cache import package_packing
from steps.softwarestack.contract.stack_input import prefix_digest

ROOT = "/software/lab"
MODULES_ROOT = f"{ROOT}/demo/current/modules"
PLACE = f"{ROOT}/packages/zlib-1.3-0123456789ab"
MODULE = "all/Core/zlib/1.3.lua"
PREFIX_FOLDER = prefix_digest(ROOT)


def install(folder: Path, files: dict[str, str | bytes]) -> Path:
    """Write a package: a text that begins with `-> ` is a link, one that ends with `/` as a name is a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        elif isinstance(content, str) and content.startswith("-> "):
            path.symlink_to(content.removeprefix("-> "))
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def module_file(folder: Path, text: str = "") -> Path:
    """Write the package's module file below a folder of modules."""
    return install(folder, {MODULE: text or f'prepend_path("MODULEPATH", "{MODULES_ROOT}/all/Compiler")\n'})


def packed(prefix: Path | None, modules: Path, names: Iterable[str] = (MODULE,), place: str = PLACE) -> bytes:
    """The archive of a package."""
    out = io.BytesIO()
    with open(os.memfd_create("archive"), "w+b") as file:
        package_packing.pack(prefix, modules, names, place=place, modules_root=MODULES_ROOT, out=file)
        file.seek(0)
        out.write(file.read())
    return out.getvalue()


def random_files(chance: random.Random) -> dict[str, str | bytes]:
    """Files of a package with names of any bytes, links within the package, empty folders and large contents."""
    names = [
        f"{chance.choice(['bin', 'lib', 'share/a b', 'ü', 'deep/er/still'])}/{number}" for number in range(chance.randint(1, 12))
    ]
    files: dict[str, str | bytes] = {"share/empty/": ""}
    for name in names:
        files[name] = chance.randbytes(chance.choice([0, 1, 700, 70_000]))
    files["link"] = f"-> {names[0]}"
    files["lib64"] = f"-> {PLACE}/{names[0].partition('/')[0]}"
    files["other"] = f"-> {ROOT}/packages/other-1.0-abcdefabcdef/lib"
    return files


def listing(folder: Path) -> dict[str, tuple[int, str | bytes]]:
    """Path → mode, and content or target, of everything below a folder."""
    return {
        path.relative_to(folder).as_posix(): (
            path.lstat().st_mode & 0o777 if not path.is_symlink() else 0,
            os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else "",
        )
        for path in sorted(folder.rglob("*"))
    }


def archive_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """An archive with these members, which `pack` would not write."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member, data in members:
            archive.addfile(member, io.BytesIO(data))
    return subprocess.run(["zstd", "-q", "-c"], input=plain.getvalue(), capture_output=True, check=True).stdout


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", data: bytes = b"") -> tuple[tarfile.TarInfo, bytes]:
    """One member of an archive."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(data)
    return info, data
