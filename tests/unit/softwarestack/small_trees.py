"""Small stacks whose packages are written by hand: files as text, bytes or links, and module files in Lua."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from steps.contract.canonical import digest
from steps.softwarestack.contract.stack_input import BuildCacheLocation, StackInput, StackPackage, StackTestCase, StackTestFile

ROOT = "/software"
"""Place at which the stacks would be published."""
MODULES = f"{ROOT}/small/current/modules"


def hash_of(name: str) -> str:
    """A package's hash of 32 letters and digits."""
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def package(name: str, needs: Iterable[str] = (), module: str | None = None) -> StackPackage:
    """Package NAME 1.0 that needs others when it runs; its module is Core/NAME/1.0 unless told otherwise (empty: none)."""
    return StackPackage(
        hash=hash_of(name),
        name=name,
        version="1.0",
        module=f"Core/{name}/1.0" if module is None else module,
        runtime=tuple(map(hash_of, needs)),
    )


def stack(
    *packages: StackPackage,
    cache: Path | None = None,
    tests: Iterable[StackTestCase] = (),
    reframe: Mapping[str, bytes] | None = None,
    naming: str = "HierarchicalMNS",
) -> StackInput:
    """A stack of these packages, each after what it needs; all of them are roots."""
    files = (StackTestFile(path=path, sha256=hashlib.sha256(data).hexdigest()) for path, data in (reframe or {}).items())
    return StackInput(
        name="small",
        backend="easybuild",
        release="5.4.1",
        root=ROOT,
        packages=packages,
        roots=tuple(one.hash for one in packages),
        cache=BuildCacheLocation(folder=str(cache or "")),
        naming=naming,
        tests=tuple(tests),
        reframe=tuple(files),
    )


def folder(name: str) -> str:
    """The folder name of a package that `package` made."""
    return f"{name}-1.0-{hash_of(name)[:12]}"


def place(name: str) -> str:
    """The published path of a package."""
    return f"{ROOT}/packages/{folder(name)}"


def lua(name: str, *lines: str) -> str:
    """A module file as EasyBuild writes it."""
    body = [f'whatis("Description: {name}")', f'local root = "{place(name)}"', f'conflict("{name}")', *lines]
    return "\n".join([*body, 'prepend_path("PATH", pathJoin(root, "bin"))', ""])


class HandmadePackages:
    """A supply of packages that a test wrote: path → text, bytes, or a link's target in a tuple. Files in bin/ are programs."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, str | bytes | tuple[str]]] = {}
        self.module_files: dict[str, dict[str, str]] = {}
        self.installs = 0
        self.before_install: Callable[[StackPackage], None] = lambda package: None

    def add(self, name: str, files: Mapping[str, str | bytes | tuple[str]] | None = None, *lines: str, at: str = "") -> None:
        """Add a package with files, and a module at `at` (default: Core/NAME/1.0) with further lines."""
        self.files[hash_of(name)] = dict(files or {})
        self.module_files[hash_of(name)] = {f"all/{at or f'Core/{name}/1.0'}.lua": lua(name, *lines)}

    def archive(self, package: StackPackage) -> str:
        if package.hash not in self.files:
            return ""
        content = [self.files[package.hash], self.module_files[package.hash]]
        return digest(msgspec.to_builtins(content))

    def modules(self, package: StackPackage) -> tuple[str, ...]:
        return tuple(self.module_files.get(package.hash, ()))

    def install(self, package: StackPackage, prefix: Path, modules: Path) -> None:
        self.before_install(package)
        self.installs += 1
        prefix.mkdir()
        for path, content in self.files[package.hash].items():
            write(prefix / path, content)
        for path, text in self.module_files[package.hash].items():
            write(modules / path, text)


def write(target: Path, content: str | bytes | tuple[str]) -> None:
    """Write one file or link; programs are executable."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, tuple):
        target.symlink_to(content[0])
        return
    target.write_bytes(content.encode() if isinstance(content, str) else content)
    target.chmod(0o755 if target.parent.name == "bin" or target.suffix in (".sh", ".so") else 0o644)
