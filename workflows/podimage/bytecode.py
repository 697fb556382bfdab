"""Compile modules with the image's own interpreter to unchecked hash-based `.pyc`, for pods with a read-only root.

The image's own loader starts the interpreter from an unpacked root, for any user; it compiles sources and imports none of them.
"""

import json
import posixpath
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from workflows.podimage import file_tree
from workflows.podimage.errors import BuildError
from workflows.podimage.file_tree import EntryKind, ImageEntry, Tree

LOADER = "lib64/ld-linux-x86-64.so.2"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
SCRIPT = """
import json, py_compile, sys
mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
for source, compiled, seen_as in json.load(sys.stdin):
    try:
        py_compile.compile(source, compiled, seen_as, doraise=True, invalidation_mode=mode)
    except (py_compile.PyCompileError, UnicodeDecodeError, ValueError):
        pass  # a template or a test of syntax errors: no module
"""


def compile_tree(sources: Mapping[str, ImageEntry], below: Iterable[str], root: Path, python: str, folder: Path) -> Tree:
    """Return the compiled modules of all `.py` files below the paths `below`; sources that are no valid module are left out.

    `root` holds the unpacked interpreter of version `python`; `folder` is empty and used for work.
    """
    starts = tuple(f"{path}/" for path in below)
    modules = sorted(
        path for path, entry in sources.items() if entry.kind is EntryKind.FILE and path.endswith(".py") and path.startswith(starts)
    )
    tag = f"cpython-{python.replace('.', '')}"
    jobs = []
    for number, path in enumerate(modules):
        (folder / f"{number}.py").write_bytes(sources[path].data)
        jobs.append((str(folder / f"{number}.py"), str(folder / f"{number}.pyc"), f"/{path}"))
    _compile(jobs, root, python)
    compiled: Tree = {}
    for (_, made, _), path in zip(jobs, modules, strict=True):
        if Path(made).exists():
            where, name = posixpath.split(path)
            compiled[f"{where}/__pycache__/{name.removesuffix('.py')}.{tag}.pyc"] = file_tree.file(Path(made).read_bytes())
    return compiled


def _compile(jobs: list[tuple[str, str, str]], root: Path, python: str) -> None:
    command = [root / LOADER, "--library-path", root / LIBRARIES, root / f"usr/bin/python{python}"]
    done = subprocess.run(
        [*map(str, command), "-S", "-s", "-B", "-W", "ignore", "-c", SCRIPT],
        input=json.dumps(jobs).encode(),
        env={"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "PYTHONHOME": str(root / "usr")},
        capture_output=True,
        check=False,
        cwd="/",  # `-c` imports from the current folder first, and `-P` is unknown to Python 3.10
    )
    if done.returncode != 0:
        stderr = done.stderr.decode(errors="replace").strip()[-500:]
        raise BuildError(
            f"the image's interpreter does not run here: {stderr}", hint="build on a Linux machine of the image's architecture"
        )
