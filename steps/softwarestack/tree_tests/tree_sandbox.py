"""Sandbox in which a stack's tree is tested: it is seen, read-only, where it will be published, with Lmod and no network."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from steps.contract import plain_text
from steps.softwarestack.builds import package_sandbox
from steps.softwarestack.builds.package_sandbox import BUILD, HostView, SandboxedWords, SandboxMount
from steps.softwarestack.contract.stack_input import PACKAGES, StackInput, StackPackage
from steps.softwarestack.contract.stack_release import MODULES, VIEW
from steps.softwarestack.tree import lmod_modules, package_view
from steps.softwarestack.tree.lmod_modules import LmodPrograms
from steps.softwarestack.tree_tests import bounded_process
from steps.softwarestack.tree_tests.bounded_process import BoundedEnd

MOST_TEXT: Final = 400
"""Characters of a test's output in its result: the end, which has the reason of a failure."""
SITE_MODULES: Final = Path("/etc/lmod/modulespath")
"""File in which a site lists the folders of its own modules, which a stack may depend on."""
_LONGEST_SITE: Final = 64 << 10
_ENVIRONMENT: Final = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": BUILD,
    "TMPDIR": "/tmp",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "LMOD_IGNORE_CACHE": "yes",  # a cache of the site's modules would hide those of the tree
    "LMOD_PAGER": "none",
    "LMOD_COLORIZE": "no",
}
_MPI: Final = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # a builder may have one processor, and tests are about the library
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",  # process_vm_readv needs a right that a sandbox does not give
    "OMPI_MCA_plm_rsh_agent": "",  # all ranks are local; the stack's MPI must not look for ssh
    "HWLOC_HIDE_ERRORS": "2",
}


class TreeSite(Struct, frozen=True, kw_only=True):
    """Surroundings of a tree's tests: stack, tree folder, Lmod, the folders to `module use` first, and what the sandbox shows.

    `redact` removes secrets from a text. `target` is the CPU target whose modules are seen, in a stack that is built for several.
    """

    stack: StackInput
    tree: Path
    lmod: LmodPrograms
    start: tuple[str, ...]
    host: HostView
    redact: Callable[[str], str]
    target: str = ""

    @property
    def packages(self) -> tuple[StackPackage, ...]:
        """Return the installed packages whose modules are in the folder of this site's CPU target."""
        return tuple(package for package in self.stack.installed if self.stack.module_folder(package) == self.target)

    @property
    def modules_root(self) -> str:
        """Return the path at which users see the module files."""
        return f"{self.stack.root}/{self.stack.name}/current/{MODULES}"

    @property
    def module_path(self) -> str:
        """Return the value of MODULEPATH with which a user of the stack begins."""
        own = (self._published(folder) for folder in self.start)
        needs_site = any(package.external and package.module for package in self.stack.packages)
        return ":".join((*own, *(site_modules() if needs_site else ())))

    def first_folders(self, target: str) -> tuple[str, ...]:
        """Return the published folders that users of a CPU target name first to `module use`."""
        return tuple(self._published(folder) for folder in _start_folders(self.stack, self.tree, target))

    def _published(self, folder: str) -> str:
        return self.modules_root + folder.removeprefix(MODULES)

    def run(
        self, words: Sequence[str], seconds: float, environment: Mapping[str, str] | None = None, scratch: Path | None = None
    ) -> BoundedEnd:
        """Run a program in a sandbox of its own, with an empty folder of its own, or `scratch`, as current folder and HOME."""
        if scratch is None:
            with scratch_folder() as empty:
                return self.run(words, seconds, environment, empty)
        mounts = (
            SandboxMount(str(self.tree / PACKAGES), f"{self.stack.root}/{PACKAGES}"),
            SandboxMount(str(self.tree / MODULES), self.modules_root),
            SandboxMount(str(scratch), BUILD, writable=True),
            *self._view_mounts(),
        )
        program = SandboxedWords(
            words=tuple(words),
            mounts=mounts,
            environment={**_ENVIRONMENT, **_MPI, "MODULEPATH": self.module_path, **(environment or {})},
            limits=package_sandbox.limits(),
        )
        return bounded_process.run(package_sandbox.command(program, self.host, as_root=os.geteuid() == 0), seconds)

    def _view_mounts(self) -> Iterator[SandboxMount]:
        """Yield the mount of the view at its path in a version, if the stack has a view."""
        if self.stack.view is not None:
            place = f"{PACKAGES}/{package_view.folder(self.stack, self.stack.view)}"
            yield SandboxMount(str(self.tree / place), f"{self.stack.root}/{self.stack.name}/current/{VIEW}")

    def text(self, output: str) -> str:
        """Return the end of a test's output as one line without secrets."""
        line = plain_text.line(" ".join(self.redact(output).split()))
        return line if len(line) <= MOST_TEXT else f"…{line[1 - MOST_TEXT :]}"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield an empty folder for a test, which may run as nobody; other users of the machine cannot reach it."""
    with tempfile.TemporaryDirectory(prefix="bringup-test-", ignore_cleanup_errors=True) as name:
        scratch = Path(name) / "scratch"
        scratch.mkdir()
        scratch.chmod(0o777)
        yield scratch


def site(
    stack: StackInput,
    tree: Path,
    lmod: LmodPrograms,
    redact: Callable[[str], str],
    *,
    hidden: Iterable[Path] = (),
    programs: Iterable[Path] = (),
    target: str = "",
) -> TreeSite:
    """Return the surroundings of the tests of an assembled tree, with the modules of one CPU `target` if it has several.

    `hidden` are folders that no test may see, `programs` folders of this machine that test programs need beside the system's.
    """
    return TreeSite(
        stack=stack,
        tree=tree,
        lmod=lmod,
        start=_start_folders(stack, tree, target),
        host=package_sandbox.view_host((stack.root,), tuple(hidden), (*programs, Path(lmod.lmod).parent.parent)),
        redact=redact,
        target=target,
    )


def _start_folders(stack: StackInput, tree: Path, target: str) -> tuple[str, ...]:
    """Return the tree paths of the folders that users name first to `module use`."""
    paths = (path.relative_to(tree).as_posix() for path in (tree / MODULES).rglob("*") if path.is_file())
    return lmod_modules.start_folders(stack.naming, paths, target)


def site_modules() -> tuple[str, ...]:
    """Return the folders of the site's own modules that exist on this machine."""
    try:
        with SITE_MODULES.open("rb") as file:
            lines = file.read(_LONGEST_SITE).decode(errors="replace").splitlines()
    except OSError:
        return ()
    folders = (folder.strip() for line in lines if not line.startswith("#") for folder in line.split(":"))
    return tuple(folder for folder in dict.fromkeys(folders) if folder.startswith("/") and Path(folder).is_dir())


def is_missing(program: str) -> bool:
    """Return True if a program of this machine is not in its search path."""
    return shutil.which(program, path=_ENVIRONMENT["PATH"]) is None
