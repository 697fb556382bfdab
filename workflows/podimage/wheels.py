"""Unpack Python wheels into a tree, as an installer does, from the wheels' bytes alone; nothing of them runs."""

import configparser
import io
import zipfile
from collections.abc import Iterable
from pathlib import PurePosixPath

from workflows.podimage import file_tree
from workflows.podimage.downloads import Cache
from workflows.podimage.errors import BuildError
from workflows.podimage.file_tree import ImageEntry, Tree
from workflows.podimage.pod_recipe import Wheel

PYTHON = "/usr/bin/python3"
SCRIPT = """#!{python}
import sys
from {module} import {name}
if __name__ == "__main__":
    sys.exit({call}())
"""
SCHEMES = {"purelib": "", "platlib": "", "scripts": "bin/", "data": ""}
"""Places of the parts of a wheel's `.data` folder, below the folder of all wheels; headers are left out."""


def unpack_wheels(wheels: Iterable[Wheel], folder: str, cache: Cache) -> Tree:
    """Return the files of all wheels as a tree below `folder`, with their programs in `folder/bin`."""
    whole: Tree = {}
    for wheel in sorted(wheels, key=lambda wheel: wheel.name):
        data = cache.read_package(wheel.sha256).read_bytes()
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                content = _content(archive)
        except zipfile.BadZipFile as error:
            raise BuildError(f"{wheel.name}=={wheel.version} is no wheel: {error}") from error
        whole |= {f"{folder}/{path}": entry for path, entry in content.items()}
    return whole


def _content(archive: zipfile.ZipFile) -> Tree:
    tree: Tree = {}
    for member in archive.infolist():
        place = _place(file_tree.normal_path(member.filename))
        if place is None or member.is_dir():
            continue
        tree[place] = _entry(archive.read(member), member.external_attr >> 16, is_program=place.startswith("bin/"))
        if place.endswith(".dist-info/entry_points.txt"):
            tree |= _programs(tree[place].data.decode())
    return tree


def _place(path: str) -> str | None:
    top, _, rest = path.partition("/")
    if not top.endswith(".data"):
        return path
    scheme, _, rest = rest.partition("/")
    return f"{SCHEMES[scheme]}{rest}" if scheme in SCHEMES and rest else None


def _entry(data: bytes, mode: int, *, is_program: bool) -> ImageEntry:
    if is_program and data.startswith(b"#!python"):
        data = f"#!{PYTHON}".encode() + data[data.index(b"\n") :]
    return file_tree.file(data, file_tree.PROGRAM_MODE if is_program or mode & 0o100 else file_tree.FILE_MODE)


def _programs(text: str) -> Tree:
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # the documented way to keep the case of names
    parser.read_string(text)
    section = parser["console_scripts"] if parser.has_section("console_scripts") else {}
    programs: Tree = {}
    for name, target in section.items():
        module, _, call = target.partition("[")[0].strip().partition(":")
        script = SCRIPT.format(python=PYTHON, module=module, name=call.split(".")[0], call=call)
        programs[f"bin/{PurePosixPath(name).name}"] = file_tree.file(script.encode(), file_tree.PROGRAM_MODE)
    return programs
