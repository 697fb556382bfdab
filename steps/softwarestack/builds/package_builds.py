"""Builds packages: cache, dependencies, sources, sandbox, archive; the same for every build tool.

A build leaves nothing but its cache entry, its log and its result. Its workspace is removed, after a kill by the next build.
"""

import contextlib
import errno
import itertools
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.clients import private_folder
from steps.clients.store import AlreadyWritten, Store
from steps.contract import plain_text
from steps.contract.canonical import digest_bytes
from steps.errors import BadTask
from steps.runtime.context import Context
from steps.softwarestack import task_input
from steps.softwarestack.builds import build_process, package_sandbox
from steps.softwarestack.builds.builders import easybuild_program, spack_program
from steps.softwarestack.builds.builders.easybuild_program import EasyBuildProgram
from steps.softwarestack.builds.builders.package_builder import (
    FETCHED,
    MODULES,
    PACKAGES,
    SOURCES,
    BuildCommand,
    BuildPlace,
    CommandVerdict,
    PackageBuilder,
)
from steps.softwarestack.builds.builders.spack_program import SpackProgram
from steps.softwarestack.builds.package_sandbox import BUILD, NOBODY, SandboxedWords, SandboxMount
from steps.softwarestack.builds.package_sources import SourceArchiveError, SourceShelf
from steps.softwarestack.cache import package_packing
from steps.softwarestack.cache.build_cache import BuildCache
from steps.softwarestack.cache.build_cache_storage import CacheEntry, CacheError
from steps.softwarestack.cache.package_packing import PackedContent, PackingError
from steps.softwarestack.cache.unpacked_packages import UnpackedPackages
from steps.softwarestack.contract.package_build import RETRIED, BuildFailure, BuildOutcome, PackageBuilt
from steps.softwarestack.contract.stack_input import StackInput, StackPackage, package_folder
from steps.softwarestack.task_input import STACKS, StackBuildInput
from steps.stages.stack_build.contract import BatchBuilt

MOST_LINES: Final = 12
LONGEST_LINE: Final = 400
"""Limits of the decisive lines in a record."""
MOST_LOG: Final = 4 << 20
"""Bytes at the end of a build's log that are kept."""
SHARED: Final = "shared"
"""Folder in the sandbox, below that of the build, with folders that builds share."""
ARCHIVES: Final = "archives"
"""Folder in the sandbox, below that of the build, with the site's own folders of source archives."""
MOST_OUTPUT: Final = 1 << 20
"""Bytes at the end of a program's output that are read."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_DENIED: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_PROXIES: Final = frozenset({"http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy"})
_ROOM: Final = 1 << 20
"""Free bytes below which a disk counts as full, if a program could not write."""


class BuildSite(Struct, frozen=True, kw_only=True):
    """Surroundings of a machine's builds.

    `scratch` is a folder on a local disk, `logs` the key in the run store below which logs of builds lie, `key` the private key
    that signs cache entries. `hidden` are folders that no build may see. `redact` removes secrets from a text.
    """

    stack: StackInput
    builder: PackageBuilder
    cache: BuildCache
    sources: SourceShelf
    scratch: Path
    store: Store
    logs: str
    hidden: tuple[Path, ...]
    key: Path | None
    say: Callable[[str], None]
    redact: Callable[[str], str]


class BuildStopped(Exception):
    """Error: a build ended without a package; `verdict` says why, `needs` is the hash of a missing dependency."""

    def __init__(self, verdict: CommandVerdict, needs: str = "") -> None:
        super().__init__(verdict.lines[0] if verdict.lines else "")
        self.verdict, self.needs = verdict, needs


def build_package(site: BuildSite, package: StackPackage) -> PackageBuilt:
    """Return the result of one package: found in the cache, or built now. Raises BadTask if this machine cannot build at all."""
    start = time.monotonic()
    draft = PackageBuilt(hash=package.hash, title=package.title, outcome=BuildOutcome.FAILED)
    try:
        if (entry := site.cache.entry(package.hash)) is not None:
            site.say(f"{package.title} is in the build cache")
            result = _available(draft, entry, BuildOutcome.CACHED)
        else:
            site.cache.require_writable()
            with _workspace(site.scratch) as folder:
                result = _PackageBuild(site, package, folder).result(draft)
    except (CacheError, OSError) as error:
        result = _failed(site, draft, _of_error(error))
    seconds = time.monotonic() - start
    return msgspec.structs.replace(
        result, seconds=round(seconds, 3), overhead_seconds=round(max(0.0, seconds - result.tool_seconds), 3)
    )


class _PackageBuild:
    """The build of one package in a workspace, of which the sandbox shows the folder `build`."""

    def __init__(self, site: BuildSite, package: StackPackage, workspace: Path) -> None:
        self._site, self._package, self._output = site, package, workspace / "output"
        self._folder = workspace / "build"
        self._tool_seconds = 0.0
        self._mounts = list[SandboxMount]()
        self._earlier_modules = frozenset[str]()
        self._log = self._log_key = ""
        stack = site.stack
        self._name = package_folder(package)
        self._place = BuildPlace(
            workspace=Path(BUILD),
            folder=self._folder,
            packages=f"{stack.root}/{PACKAGES}",
            modules=f"{stack.root}/{stack.name}/current/{MODULES}",
            sources=Path(BUILD) / SHARED,
            archives=tuple(Path(BUILD) / ARCHIVES / str(number) for number in range(len(stack.sources))),
        )

    def result(self, draft: PackageBuilt) -> PackageBuilt:
        """Build the package, store it in the cache, and return the result."""
        site = self._site
        draft = msgspec.structs.replace(draft, reproduce=site.builder.reproduce(site.stack, self._package))
        try:
            self._prepare()
            self._run_commands()
            result = _available(draft, self._store(), BuildOutcome.BUILT)
            site.say(f"built {self._package.title} in {self._tool_seconds:.0f} s")
        except BuildStopped as error:
            outcome = BuildOutcome.NOT_STARTED if error.needs else BuildOutcome.FAILED
            result = _failed(site, msgspec.structs.replace(draft, outcome=outcome, needs=error.needs), error.verdict)
        except SourceArchiveError as error:
            result = _failed(
                site,
                draft,
                CommandVerdict(failure=error.failure, phase="fetch", retry=error.failure in RETRIED, lines=(str(error),)),
            )
        except PackingError as error:
            result = _failed(site, draft, CommandVerdict(failure=BuildFailure.SANITY, phase="pack", lines=(str(error),)))
        except (CacheError, OSError) as error:
            result = _failed(site, draft, _of_error(error))
        return msgspec.structs.replace(result, tool_seconds=round(self._tool_seconds, 3), log=self._keep_log())

    def _prepare(self) -> None:
        self._folder.mkdir()
        for name in (PACKAGES, MODULES, SOURCES, FETCHED, SHARED, ARCHIVES):
            (self._folder / name).mkdir()
        self._place.prefix(self._name).mkdir()
        self._install_dependencies()
        self._site.builder.prepare(self._site.stack, self._package, self._place)
        for name in self._site.builder.shared:
            folder = self._site.sources.shared(name)
            self._mounts.append(SandboxMount(str(folder), f"{BUILD}/{SHARED}/{name}", writable=True))
            _own(folder)
        for path in (self._folder, *self._folder.rglob("*")):
            _own(path)

    def _install_dependencies(self) -> None:
        """Show the packages that the build needs at their published paths. Raises BuildStopped if the cache lacks one."""
        site, stack = self._site, self._site.stack
        unpacked = UnpackedPackages(site.scratch, site.cache, stack.root)
        for needed in stack.needed_to_build(self._package.hash):
            if needed.external:
                continue
            entry = site.cache.entry(needed.hash)
            if entry is None:
                line = f"{needed.title}, which it needs, is not in the build cache"
                raise BuildStopped(CommandVerdict(failure=BuildFailure.DEPENDENCY, lines=(line,)), needed.hash)
            folder = unpacked.folder(entry, stack.package_path(needed))
            package_packing.install_modules(folder, entry.modules, self._folder / MODULES, self._place.modules)
            if (folder / package_packing.PREFIX).is_dir():
                self._place.prefix(package_folder(needed)).mkdir()
                self._mounts.append(SandboxMount(str(folder / package_packing.PREFIX), stack.package_path(needed)))
        self._earlier_modules = frozenset(_files_below(self._folder / MODULES))

    def _run_commands(self) -> None:
        site, package = self._site, self._package
        missing = site.sources.missing(package)
        for command in site.builder.commands(site.stack, package, self._place):
            if command.network and package.sources and not missing and not command.unlocked:
                continue
            self._run(command)
            if command.network:
                site.sources.keep_fetched(missing, self._folder / FETCHED)
                missing = ()

    def _run(self, command: BuildCommand) -> None:
        """Run a program in the sandbox. Raises BuildStopped if it fails, BadTask if no sandbox can be made on this machine."""
        site, package = self._site, self._package
        host = package_sandbox.view_host(
            (self._place.packages, self._place.modules), (*site.hidden, site.scratch, site.cache.folder), site.builder.programs
        )
        program = SandboxedWords(
            words=command.arguments,
            mounts=tuple(self._all_mounts()),
            environment=_proxies() | command.environment if command.network else command.environment,
            limits=package_sandbox.limits(package.memory_mib),
            network=command.network,
        )
        seconds = timeouts.SOURCE_FETCH if command.network else float(site.stack.limits.build_seconds)
        end = build_process.run(package_sandbox.command(program, host, as_root=os.geteuid() == 0), self._output, seconds)
        self._tool_seconds += end.seconds
        self._require_folders()
        output = _end_of(self._output)
        if end.code and output.startswith("bwrap: "):
            raise BadTask(f"bubblewrap refuses to run here: {output.splitlines()[0][:300]}", hint=_NO_SANDBOX)
        text = "\n".join(filter(None, (output, site.builder.log(package, self._place))))
        self._log += f"{command.phase}: {' '.join(command.arguments)}\n{text}\nended with {end.code} after {end.seconds:.1f} s\n"
        verdict = site.builder.read(package, command, end.code, text)
        if verdict.failure is not None and shutil.disk_usage(self._folder).free < _ROOM:
            line = f"{site.scratch} has no room left"  # not every program that cannot write says so
            verdict = msgspec.structs.replace(verdict, failure=BuildFailure.DISK_FULL, lines=(line, *verdict.lines))
        if end.is_late:
            line = f"{command.phase} did not end within {seconds:.0f} s"
            verdict = msgspec.structs.replace(
                verdict, failure=BuildFailure.TIME, retry=command.network, lines=(line, *verdict.lines)
            )
        if verdict.failure is not None:
            raise BuildStopped(verdict)

    def _require_folders(self) -> None:
        """Raise BuildStopped if a build has put a link in place of a folder from which this process reads, maybe as root."""
        prefix = self._place.prefix(self._name)
        for folder in (self._folder, *(self._folder / name for name in (PACKAGES, MODULES, FETCHED)), prefix):
            is_removed = folder == prefix and not os.path.lexists(prefix)  # Spack removes it if the build fails
            if folder.is_symlink() or not (folder.is_dir() or is_removed):
                line = f"the build replaced the folder {folder.name} of its workspace"
                raise BuildStopped(CommandVerdict(failure=BuildFailure.SANITY, lines=(line,)))

    def _all_mounts(self) -> Iterator[SandboxMount]:
        yield SandboxMount(str(self._folder), BUILD, writable=True)
        yield SandboxMount(str(self._folder / SOURCES), f"{BUILD}/{SOURCES}")
        for source in self._package.sources:
            if (path := self._site.sources.path(source)).is_file():
                (self._folder / SOURCES / source.name).touch()  # a place for the mount
                yield SandboxMount(str(path), f"{BUILD}/{SOURCES}/{source.name}")
        for folder, place in zip(self._site.stack.sources, self._place.archives, strict=True):
            if os.path.isdir(folder):
                yield SandboxMount(folder, str(place))
        yield SandboxMount(str(self._folder / PACKAGES), self._place.packages, writable=True)
        yield SandboxMount(str(self._folder / MODULES), self._place.modules, writable=True)
        yield from self._mounts

    def _store(self) -> CacheEntry:
        """Pack what was installed, and put it into the cache. Raises BuildStopped, PackingError, OSError."""
        site, package, modules = self._site, self._package, self._folder / MODULES
        prefix = self._place.prefix(self._name)
        self._keep_log()  # before its files are removed from the package
        if not prefix.is_dir():
            line = f"the build left no folder {self._name}"
            raise BuildStopped(CommandVerdict(failure=BuildFailure.SANITY, phase="install", lines=(line,)))
        files = prefix if site.builder.tidy(package, prefix) else None
        if files is not None:
            package_packing.settle_bytecode(files)
        written = sorted(frozenset(_files_below(modules)) - self._earlier_modules)
        names = site.builder.module_files(package, written)
        if not names and package.module:
            line = f"the build wrote no module file, and the lock names {package.module}"
            raise BuildStopped(CommandVerdict(failure=BuildFailure.SANITY, phase="module", lines=(line,)))

        def write(file: IO[bytes]) -> PackedContent:
            place = site.stack.package_path(package)
            try:
                return package_packing.pack(files, modules, names, place=place, modules_root=self._place.modules, out=file)
            except (BadTask, BrokenPipeError) as error:
                # the compressor ends without a word if it cannot write; the half archive is still there
                if shutil.disk_usage(site.cache.folder).free < _ROOM:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(site.cache.folder)) from error
                raise

        draft = CacheEntry(
            hash=package.hash,
            title=package.title,
            root=site.stack.root,
            archive="",
            size=0,
            modules=(),
            members=0,
            unpacked=0,
            seconds=round(self._tool_seconds, 3),
            builder=site.builder.name,
            log=digest_bytes(self._log.encode(errors="replace")),
        )
        return site.cache.put(draft, write, site.key)

    def _keep_log(self) -> str:
        """Store the log of the build, and return its key; empty if no program ran."""
        if self._log_key or not self._log:
            return self._log_key
        data = self._site.redact(self._log)[-MOST_LOG:].encode(errors="replace")
        for number in itertools.count(1):
            key = f"{self._site.logs}/{self._name}/{number:02d}.log"
            with contextlib.suppress(AlreadyWritten):
                self._site.store.write(key, data)
                self._log_key = key
                break
        return self._log_key


_NO_SANDBOX: Final = "run the builder with the right to make namespaces (in a pod: SYS_ADMIN), or allow user namespaces"


def _available(draft: PackageBuilt, entry: CacheEntry, outcome: BuildOutcome) -> PackageBuilt:
    return msgspec.structs.replace(draft, outcome=outcome, archive=entry.archive, size=entry.size)


def _failed(site: BuildSite, draft: PackageBuilt, verdict: CommandVerdict) -> PackageBuilt:
    lines = tuple(plain_text.truncate(plain_text.line(site.redact(line)), LONGEST_LINE) for line in verdict.lines[:MOST_LINES])
    failure = verdict.failure or BuildFailure.UNKNOWN
    how = "was not started" if draft.outcome is BuildOutcome.NOT_STARTED else "failed"
    site.say(f"{draft.title} {how} ({failure.value}): {lines[0] if lines else 'it wrote no reason'}")
    return msgspec.structs.replace(draft, failure=failure, retry=verdict.retry, phase=verdict.phase, lines=lines)


def _of_error(error: CacheError | OSError) -> CommandVerdict:
    """Return the verdict on a build that an error of the cache or of the operating system ended."""
    if isinstance(error, CacheError):
        return CommandVerdict(failure=error.failure, phase="cache", retry=error.is_temporary, lines=(str(error),))
    kinds = dict.fromkeys(_FULL, BuildFailure.DISK_FULL) | dict.fromkeys(_DENIED, BuildFailure.PERMISSION)
    kind = kinds.get(error.errno or 0, BuildFailure.UNKNOWN)
    return CommandVerdict(failure=kind, lines=(f"{error.filename or 'the build'}: {error.strerror or error}",))


@contextlib.contextmanager
def _workspace(scratch: Path) -> Iterator[Path]:
    """Yield a private folder that is removed at the end; folders of killed builds are removed now."""
    place = scratch / "work"
    place.mkdir(parents=True, exist_ok=True)
    with private_folder.private_folder(str(place), sockets=False) as folder:
        try:
            yield folder
        finally:
            _make_removable(folder)


def _make_removable(folder: Path) -> None:
    """Give the owner all rights on the folders below: caches of Go are read-only, and only root removes these as they are."""
    if os.geteuid() != 0:
        for path, folders, _ in os.walk(folder):
            for name in folders:
                with contextlib.suppress(OSError):
                    if not os.path.islink(os.path.join(path, name)):
                        os.chmod(os.path.join(path, name), stat.S_IRWXU)


def _proxies() -> dict[str, str]:
    """Return the variables of this process that name HTTP proxies, which only a program that fetches gets."""
    return {name: value for name, value in os.environ.items() if name.lower() in _PROXIES}


def _own(path: Path) -> None:
    """Give a file or folder to the user as which builds run, if that is not the caller."""
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def _files_below(folder: Path) -> Iterator[str]:
    for path, _, names in os.walk(folder):
        yield from (os.path.relpath(os.path.join(path, name), folder) for name in names)


def _end_of(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - MOST_OUTPUT))
        return file.read().decode(errors="replace")


def build(context: Context, build: StackBuildInput) -> BatchBuilt:
    """Build the packages of a task's batch, in order, and return the observation of gate stack_build/batch."""
    site, stack = site_of(context, build), build.stack
    UnpackedPackages(site.scratch, site.cache, stack.root).remove_old(time.time())
    with contextlib.suppress(OSError, BadTask):  # of other builders, on a disk that may be read-only for this one
        site.cache.remove_leftovers(timeouts.CACHE_LEFTOVERS, time.time())
    results = tuple(build_package(site, stack.by_hash[hash_]) for hash_ in build.batch.packages)
    return BatchBuilt(stack=stack.digest, batch=build.shard, packages=results)


def site_of(context: Context, build: StackBuildInput) -> BuildSite:
    """Return the surroundings of a task's builds on this machine. Raises BadTask if a program is missing."""
    environment, stack = context.environment, build.stack
    stacks = environment.store / STACKS
    # a pod's own disk; the store may be a network file system, on which builds are slow
    scratch = (environment.out if environment.is_on_argo else stacks) / "scratch"
    return BuildSite(
        stack=stack,
        builder=builder_of(build),
        cache=task_input.build_cache(context, stack, scratch / "archives"),
        sources=SourceShelf(stacks / "sources", stack.sources),
        scratch=scratch,
        store=context.store,
        logs=f"runs/{environment.run}/builds",
        hidden=(environment.store, environment.secrets, environment.tasks, environment.fleet, environment.out),
        key=environment.secrets / build.wanted.key if build.wanted.key else None,
        say=context.say,
        redact=context.log.redactor.text,
    )


def builder_of(build: StackBuildInput) -> PackageBuilder:
    """Return the program that builds a stack's packages. Raises BadTask if this machine lacks it."""
    if build.stack.backend == "easybuild":
        return EasyBuildProgram(build.files, easybuild_program.locate(build.stack, os.environ))
    if build.stack.backend == "spack":
        return SpackProgram(build.stack, build.files, spack_program.locate(build.stack, os.environ))
    raise BadTask(f"no program builds stacks of {build.stack.backend!r}", hint="render with the version that runs the steps")
