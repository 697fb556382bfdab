"""A software stack as its builder reads it: packages of the lock, batches of builds, tests, and where things lie.

The compiler writes `stack.json` and `stack_files.json` beside the tasks; tasks name both by digest.
"""

import base64
import binascii
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

import msgspec
from msgspec import Struct

from steps.contract.canonical import UNREADABLE_JSON, canonical, digest, digest_bytes
from steps.contract.detachment import NO_FACTORY, Factory
from steps.softwarestack.contract import cpu_targets, output_patterns
from steps.softwarestack.contract.output_patterns import OutputReference
from steps.softwarestack.contract.spack_layout import HIERARCHICAL

SCHEMA: Final = 1
FILE: Final = "stack.json"
"""File name of the stack in the tasks folder."""
FILES: Final = "stack_files.json"
"""File name, in the tasks folder, of easyconfigs, patches and test files: sha256 → base64 of the zlib stream of the bytes."""
MAX_BYTES: Final = 800_000
"""Most bytes of both files together, which share a ConfigMap of at most 1 MiB with the tasks."""
LARGEST_BYTES: Final = 64 << 20
"""Most bytes of the stack, or of one of its files, after decompression."""
BEST: Final = "best"
"""Folder, beside those of the CPU targets, with the module that chooses the best target of a node (`choice_module`)."""
PACKAGES: Final = "packages"
"""Folder of the installed packages below the install root; versions of all stacks share it."""
LUA, TCL = "lua", "tcl"
"""Languages of module files."""
HASH_CHARACTERS: Final = 12
"""Characters of a package's hash in the name of its folder."""
_PLAIN_BYTES: Final = 200_000
"""Most bytes of a stack that is written as plain JSON, which people can read."""


class StackInputError(ValueError):
    """Error: a file is no stack that this version can build; the message says why."""


class StackSource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A source archive or patch: its file name and SHA-256 (64 hexadecimal digits)."""

    name: str
    sha256: str


class StackPackage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One package of a stack.

    `runtime` are hashes that the installed package needs when it runs, `build` those that only its build needs. An `external` is
    provided by the site, and nothing builds it. `module` is its module's full name. `jobs` and `memory_mib` are what its build
    gets. EasyBuild: `easyconfig` is its path in the robot folders, `sha256` its digest. Spack has all in `StackInput.spack`.
    `target` is the CPU target if that is not the one of the stack.
    """

    hash: str
    name: str
    version: str
    module: str = ""
    external: bool = False
    runtime: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    easyconfig: str = ""
    sha256: str = ""
    sources: tuple[StackSource, ...] = ()
    patches: tuple[StackSource, ...] = ()
    size_class: str = ""
    jobs: int = 1
    memory_mib: int = 0
    target: str = ""

    @property
    def title(self) -> str:
        """Name and version, for people, such as `hdf5@1.14.3`."""
        return f"{self.name}@{self.version}"


class StackBatch(Struct, frozen=True, kw_only=True):
    """Packages that one task builds, in order: mostly one, several tiny ones in a large stack."""

    packages: tuple[str, ...]


class StackTestCase(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command that must end with 0 once `modules` are loaded; no shell reads it.

    `expect` is a pattern that a line of its output must match, `reference` a figure that it must print, and `incident` a sentence
    about what went wrong where nobody tested this. With `may_skip` exit code 77 means that the package was built without what is
    tested. `target` is one of `StackInput.targets`, if there are any: the test loads modules of that target.
    """

    name: str
    command: tuple[str, ...]
    modules: tuple[str, ...] = ()
    timeout_seconds: int = 600
    expect: str = ""
    reference: OutputReference | None = None
    incident: str = ""
    may_skip: bool = False
    target: str = ""


class StackTestFile(Struct, frozen=True, kw_only=True):
    """A file of ReFrame tests: its path in the folder of the spec, and the SHA-256 by which the files of the stack have it."""

    path: str
    sha256: str


class ModuleProvider(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A module whose loading makes further modules visible: that of a compiler, or of an MPI library.

    `module` is its full name, `family` is `compiler` or `mpi`: of a family one module is loaded at a time. `unlocks` are the
    folders of the modules that then become visible. `site`: the site provides it, so the stack writes its module; `prefix` is its
    folder, empty for programs that are on every search path.
    """

    module: str
    family: str
    unlocks: tuple[str, ...]
    site: bool = False
    prefix: str = ""


class SpackFiles(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Spack's part of a stack, by SHA-256 in the files of the stack.

    `lock` is the whole `spack.lock`. `settings` is JSON of those sections of `spack.yaml` that builds need (compilers, packages).
    `repositories` are package repositories, the first one first: absolute paths in the builder image, or names of folders that
    `recipes` fill, whose paths begin with such a name. `providers` are the modules by which a hierarchy is walked; a stack without
    hierarchy has none.
    """

    lock: str
    settings: str
    repositories: tuple[str, ...] = ()
    recipes: tuple[StackTestFile, ...] = ()
    providers: tuple[ModuleProvider, ...] = ()


class StackView(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """View of a stack: hashes of the packages to whose files it has links, and of those that win a path before others, in order."""

    packages: tuple[str, ...]
    order: tuple[str, ...] = ()


class StackLimits(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits of a stack's tasks: seconds of one package's build, of loading one module, and of all ReFrame tests.

    `tree_bytes` is the size budget of the installed stack; 0: any size.
    """

    build_seconds: int = 6 * 3600
    load_seconds: int = 60
    reframe_seconds: int = 3600
    tree_bytes: int = 0


class CacheRegistry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A build cache in an OCI registry: the registry's URL, the repository, and names of secret files for access to it.

    No `username`: requests are anonymous. No `ca`: the certificates that the machine trusts count.
    """

    url: str
    repository: str
    username: str = ""
    password: str = ""
    ca: str = ""

    @property
    def place(self) -> str:
        """Registry and repository as in a spec, such as `oci://registry.example.org:5000/hpc/cache`."""
        return f"oci://{self.url.partition('://')[2]}/{self.repository}"


class BuildCacheLocation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The build cache: its folder or registry, the secret file with the key that signs entries, and public keys that are trusted.

    Neither folder nor registry: the cache lies in the run store. No key: entries are written unsigned. No signers: entries are read
    by digest alone.
    """

    folder: str
    key: str = ""
    signers: tuple[str, ...] = ()
    registry: CacheRegistry | None = None

    @property
    def place(self) -> str:
        """Folder or registry, for people; empty for the cache of the run store."""
        return self.registry.place if self.registry is not None else self.folder


class StackInput(Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """A stack with all that its tasks need; the content of `stack.json`.

    `backend` is `easybuild` or `spack`, `release` its version, `naming` the module naming scheme, `target` the CPU target. A stack
    that is built for several has no `target`, and `targets`: each package names its own, and modules lie in a folder a target.
    `packages` are those of the lock, each after all that it needs. `batches` are the builds that were missing in the cache when the
    run was planned; the shard of a task `package` is an index of it. `root` is the absolute path at which users see the install
    root. `sources` are folders with source archives, read before the network is asked.
    """

    name: str
    backend: str
    release: str
    root: str
    packages: tuple[StackPackage, ...]
    roots: tuple[str, ...]
    cache: BuildCacheLocation
    batches: tuple[StackBatch, ...] = ()
    naming: str = ""
    syntax: str = LUA
    """Language of the module files: `lua`, or `tcl`."""
    target: str = ""
    targets: tuple[str, ...] = ()
    builder: str = ""
    sources: tuple[str, ...] = ()
    tests: tuple[StackTestCase, ...] = ()
    reframe: tuple[StackTestFile, ...] = ()
    spack: SpackFiles | None = None
    view: StackView | None = None
    limits: StackLimits = StackLimits()
    factory: Factory = NO_FACTORY
    """Hosts and folders of the factory that no published file may name."""
    lock: str = ""
    """Digest of the lock file."""
    origin: str = ""
    """Origin of the stack (a commit, a folder); no part of any digest."""
    schema: int = SCHEMA

    @cached_property
    def digest(self) -> str:
        """Digest by which tasks name the stack; it does not cover the origin."""
        return digest(msgspec.structs.replace(self, origin=""))

    @cached_property
    def key(self) -> str:
        """Digest of what a published version of this stack depends on: packages, modules, place and tests, not the cache."""
        installed = [package.hash for package in self.installed]
        target = " ".join(self.targets) or self.target
        head = [self.name, self.backend, self.release, self.naming, target, self.root, list(self.roots), installed]
        head += [self.arrangement] if self.arrangement else []
        tests = [msgspec.structs.replace(test, incident="") for test in self.tests]  # words about a test change nothing
        return digest([head, msgspec.to_builtins(tests), msgspec.to_builtins(self.reframe)])

    @property
    def arrangement(self) -> list[Any]:
        """Places and language of module files, as far as hashes of packages do not cover them, and the view; empty if all is usual.

        Hashes of Spack cover nothing about modules, those of EasyBuild all.
        """
        view = [msgspec.to_builtins(self.view)] if self.view is not None else []
        if self.spack is None:
            return view
        providers = msgspec.to_builtins(self.spack.providers)
        placed = [[package.module for package in self.installed], providers] if self.naming == HIERARCHICAL else []
        return [*placed, *([self.syntax] if self.syntax != LUA else []), *view]

    @cached_property
    def by_hash(self) -> Mapping[str, StackPackage]:
        """Packages by hash."""
        return {package.hash: package for package in self.packages}

    @property
    def installed(self) -> tuple[StackPackage, ...]:
        """Packages of a published version, in the order of the lock: roots and what they need when they run, without externals."""
        return tuple(package for package in self.closure(*self.roots) if not package.external)

    def closure(self, *hashes: str) -> tuple[StackPackage, ...]:
        """Return the packages with these hashes and all that they need when they run, externals too, in the order of the lock."""
        members, waiting = set(hashes), list(hashes)
        while waiting:
            fresh = [needed for needed in self.by_hash[waiting.pop()].runtime if needed not in members]
            members.update(fresh)
            waiting += fresh
        return tuple(package for package in self.packages if package.hash in members)

    def needed_to_build(self, hash_: str) -> tuple[StackPackage, ...]:
        """Return the packages to install before a package is built: its dependencies and what these need when they run."""
        package = self.by_hash[hash_]
        return self.closure(*package.runtime, *package.build)

    def target_of(self, package: StackPackage) -> str:
        """Return the CPU target that a package is compiled for."""
        return package.target or self.target

    def module_folder(self, package: StackPackage) -> str:
        """Return the folder of a package's module files below the folder of modules: that of its target, if there are several."""
        return package.target if self.targets else ""

    def module_title(self, package: StackPackage) -> str:
        """Return the full name of a package's module, behind its target if the stack has several."""
        return f"{package.target}/{package.module}" if self.targets else package.module

    def package_path(self, package: StackPackage) -> str:
        """Return the absolute path at which users and all other packages see an installed package."""
        return f"{self.root}/{PACKAGES}/{package_folder(package)}"


def choice_module(stack: str) -> str:
    """Return the name of the module by which users get the best CPU target of a node: another name for each stack."""
    return f"target-{stack}"


def package_folder(package: StackPackage) -> str:
    """Return the name of an installed package's folder, `NAME-VERSION-HASH12`, in characters that every program takes."""
    plain = re.sub(r"[^A-Za-z0-9+._-]", "-", f"{package.name}-{package.version}")
    return f"{plain}-{package.hash[:HASH_CHARACTERS]}"


def prefix_digest(root: str) -> str:
    """Return the name of the cache folder for an install root: eight hex digits. Binaries embed the root, so caches are apart."""
    return digest_bytes(root.encode()).removeprefix("sha256:")[:8]


def encode(stack: StackInput) -> bytes:
    """Return the bytes of `stack.json`: plain JSON, or a zlib stream in JSON above the size that people read."""
    plain = canonical(stack)
    if len(plain) <= _PLAIN_BYTES:
        return plain
    return canonical({"zlib": base64.b64encode(zlib.compress(plain, 9)).decode(), "schema": SCHEMA})


def decode(data: bytes) -> StackInput:
    """Return the stack in the bytes of `stack.json`. Raises StackInputError."""
    if len(data) > MAX_BYTES:
        raise StackInputError(f"{FILE} has {len(data)} bytes, limit {MAX_BYTES}")
    try:
        packed = msgspec.json.decode(data, type=_Packed)
        plain = _inflated(packed.zlib, FILE) if packed.zlib else data
        stack = msgspec.json.decode(plain, type=StackInput)
    except UNREADABLE_JSON as error:
        raise StackInputError(f"{FILE}: {error}") from error
    if stack.schema != SCHEMA:
        raise StackInputError(f"{FILE} has schema {stack.schema}, this version reads {SCHEMA}: render again with this version")
    if problem := next(_problems(stack), ""):
        raise StackInputError(f"{FILE}: {problem}")
    return stack


def encode_files(files: Iterable[bytes]) -> bytes:
    """Return the bytes of `stack_files.json`; equal files give equal bytes."""
    packed = {digest_bytes(data).removeprefix("sha256:"): base64.b64encode(zlib.compress(data, 9)).decode() for data in files}
    return canonical(packed)


def decode_files(data: bytes) -> dict[str, bytes]:
    """Return sha256 → bytes from `stack_files.json`. Raises StackInputError if a file has another digest than its name."""
    if len(data) > MAX_BYTES:
        raise StackInputError(f"{FILES} has {len(data)} bytes, limit {MAX_BYTES}")
    try:
        packed = msgspec.json.decode(data, type=dict[str, str])
    except UNREADABLE_JSON as error:
        raise StackInputError(f"{FILES}: {error}") from error
    files = dict[str, bytes]()
    for sha256, text in packed.items():
        files[sha256] = _inflated(text, FILES)
        if digest_bytes(files[sha256]) != f"sha256:{sha256}":
            raise StackInputError(f"{FILES}: the file {sha256[:64]!r} has another digest")
    return files


def files_digest(data: bytes) -> str:
    """Return the digest by which tasks name `stack_files.json`."""
    return digest_bytes(data)


class _Packed(Struct):
    """`stack.json` as far as it says how it is packed."""

    zlib: str = ""


def _inflated(text: str, file: str) -> bytes:
    try:
        stream = zlib.decompressobj()
        plain = stream.decompress(base64.b64decode(text, validate=True), LARGEST_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise StackInputError(f"{file}: {error}") from error
    if not stream.eof:
        raise StackInputError(f"{file}: a part is cut off, or has more than {LARGEST_BYTES >> 20} MiB")
    return plain


_HASH = re.compile(r"[a-z0-9]{16,64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,99}")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._:/=~^-]{0,199}")
_PATH = re.compile(r"(?:[A-Za-z0-9][A-Za-z0-9+._-]*/)*[A-Za-z0-9][A-Za-z0-9+._-]*")
_RECIPE = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9+._-]*/)*[A-Za-z0-9_][A-Za-z0-9+._-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TARGET = re.compile(r"[a-z0-9_]{2,30}")
_ROOT = re.compile(r"(?:/[A-Za-z0-9][A-Za-z0-9+._-]*)+")
_REGISTRY = re.compile(r"https?://(?:[A-Za-z0-9][A-Za-z0-9.-]{0,252}|\[[0-9a-fA-F:.]{2,45}\])(?::[0-9]{1,5})?")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")


def _problems(stack: StackInput) -> Iterator[str]:
    """Yield what in a stack cannot be: its names become paths and arguments."""
    if not _NAME.fullmatch(stack.name):
        yield f"{stack.name[:60]!r} is no name of a stack"
    if not _ROOT.fullmatch(stack.root):
        yield f"{stack.root[:100]!r} is no absolute path of plain names"
    earlier = set[str]()
    yield from _target_problems(stack)
    yield from _cache_problems(stack.cache.registry)
    if stack.syntax not in (LUA, TCL):
        yield f"{stack.syntax[:40]!r} is no language of module files"
    yield from _spack_problems(stack)
    yield from _test_problems(stack)
    for package in stack.packages:
        yield from _package_problems(package, earlier)
        earlier.add(package.hash)
    if stack.view is not None:
        own = {package.hash for package in stack.packages if not package.external}
        viewed = (*stack.view.packages, *stack.view.order)
        yield from (f"{hash_[:64]!r} of the view is none of its packages" for hash_ in viewed if hash_ not in own)
    named = (*stack.roots, *(hash_ for batch in stack.batches for hash_ in batch.packages))
    yield from (f"{hash_[:64]!r} is none of its packages" for hash_ in named if hash_ not in earlier)


def _target_problems(stack: StackInput) -> Iterator[str]:
    """Yield what in the CPU targets cannot be: they become folders and arguments of compilers."""
    named = (*stack.targets, *(package.target for package in stack.packages), *(test.target for test in stack.tests))
    yield from (f"{target[:60]!r} is no CPU target" for target in dict.fromkeys(named) if target and not _TARGET.fullmatch(target))
    # a node compares features to choose among several, and nobody knows those of a target that is not in the table
    unknown = [target for target in stack.targets if _TARGET.fullmatch(target) and not cpu_targets.is_known(target)]
    yield from (f"the features of CPU target {target[:60]!r} are not known" for target in unknown if target != BEST)
    if stack.targets and (stack.target or BEST in stack.targets):
        yield f"the stack has CPU targets {', '.join(stack.targets)[:100]} beside {stack.target or BEST}"
    members = (
        *((package.title, package.target) for package in stack.packages),
        *((test.name, test.target) for test in stack.tests),
    )
    strange = [name for name, target in members if stack.targets and target not in stack.targets]
    yield from (f"{name[:100]!r} is for none of the CPU targets of the stack" for name in strange)


def _cache_problems(registry: CacheRegistry | None) -> Iterator[str]:
    if registry is not None and not _REGISTRY.fullmatch(registry.url):
        yield f"{registry.url[:100]!r} is no URL of a registry"
    if registry is not None and not (len(registry.repository) <= 200 and _REPOSITORY.fullmatch(registry.repository)):
        yield f"{registry.repository[:100]!r} is no repository of a registry"


def _test_problems(stack: StackInput) -> Iterator[str]:
    for test in stack.tests:
        patterns = ((test.expect, None), (test.reference.pattern, 1)) if test.reference is not None else ((test.expect, None),)
        for pattern, groups in patterns:
            if why := output_patterns.problem(pattern, groups):
                yield f"test {test.name[:60]!r} has the pattern {pattern[:60]!r}: {why}"


def _spack_problems(stack: StackInput) -> Iterator[str]:
    if (stack.backend == "spack") != (stack.spack is not None):
        yield f"a stack of {stack.backend[:40]!r} {'has no' if stack.spack is None else 'has'} files of Spack"
    if stack.spack is not None:
        wrong = [path for path in stack.spack.repositories if not (_ROOT.fullmatch(path) or _RECIPE.fullmatch(path))]
        wrong += [recipe.path for recipe in stack.spack.recipes if not _RECIPE.fullmatch(recipe.path)]
        yield from (f"{path[:100]!r} is no path of a package repository" for path in wrong)
        digests = [stack.spack.lock, stack.spack.settings, *(recipe.sha256 for recipe in stack.spack.recipes)]
        yield from (f"{sha256[:80]!r} is no SHA-256 of a file of Spack" for sha256 in digests if not _SHA256.fullmatch(sha256))
        for provider in stack.spack.providers:
            names = (provider.module, provider.family, *provider.unlocks)
            yield from (f"{name[:100]!r} is no name of a module or of its folder" for name in names if not _PATH.fullmatch(name))
            if provider.module.count("/") < 2:
                yield f"{provider.module[:100]!r} of a provider is no module FOLDER/NAME/VERSION"
            if provider.prefix and not _ROOT.fullmatch(provider.prefix):
                yield f"{provider.prefix[:100]!r} is no folder of a provider of modules"


def _package_problems(package: StackPackage, earlier: set[str]) -> Iterator[str]:
    if not _HASH.fullmatch(package.hash) or package.hash in earlier:
        yield f"{package.hash[:80]!r} is no package hash, or there twice"
    if not _NAME.fullmatch(package.name) or not _VERSION.fullmatch(package.version):
        yield f"{package.title[:120]!r} is no name and version of a package"
    paths = (package.module, package.easyconfig)
    yield from (f"{path[:100]!r} of {package.title} is no path" for path in paths if path and not _PATH.fullmatch(path))
    if package.sha256 and not _SHA256.fullmatch(package.sha256):
        yield f"{package.title} has the sha256 {package.sha256[:80]!r}"
    for file in (*package.sources, *package.patches):
        if not _PATH.fullmatch(file.name.replace("~", "-")) or "/" in file.name or not _SHA256.fullmatch(file.sha256):
            yield f"{file.name[:100]!r} of {package.title} is no file name with a SHA-256"
    if missing := [hash_ for hash_ in (*package.runtime, *package.build) if hash_ not in earlier]:
        yield f"{package.title} needs {missing[0][:64]!r}, which no package before it has"
