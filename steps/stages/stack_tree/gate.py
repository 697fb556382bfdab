"""Gate of stack_tree: all packages of the lock are in the tree, and nothing in it leads to what nodes lack."""

from collections.abc import Iterator
from typing import Final

from steps.contract import plain_text
from steps.contract.verdict import FailureClass, Verdict, passed
from steps.softwarestack.contract.tree_check import TreeFinding, TreeProblemKind
from steps.stages.shared.finding import Finding, fail, unknown
from steps.stages.stack_tree.contract import TreeExpectation, TreeObservation

GATE: Final = "stack_tree/tree"
_MOST_NAMED: Final = 3
_AGAIN: Final = "run again; if it stays so, report it as a bug"
_KINDS: Final = {
    TreeProblemKind.MISSING: ("all packages and modules of the lock", "see why stack_build left it out, and build again"),
    TreeProblemKind.DANGLING_LINK: ("links that lead to files", "correct the package's recipe, and build again"),
    TreeProblemKind.LINK_OUT: ("links within the published folders", "have the recipe copy the file, or make a relative link"),
    TreeProblemKind.RPATH: ("rpaths in packages of the stack", "correct the rpath in the package's recipe (patchelf --set-rpath)"),
    TreeProblemKind.LIBRARY: (
        "libraries of the stack or of the system",
        "add the package that has it as a dependency, and lock again",
    ),
    TreeProblemKind.SHEBANG: ("interpreters of the stack or of the system", "correct the script in the package's recipe"),
    TreeProblemKind.MODULE: ("module files that Lmod can read", "see the module settings of the package's recipe"),
    TreeProblemKind.VIEW: (
        "one package for each path of the view",
        "leave one of both out of view.packages, or name both in view.order, and build again",
    ),
    TreeProblemKind.FACTORY: (
        "nothing that leads into the factory, without which published stacks must work",
        "have the recipe replace the name or path, and build again",
    ),
    TreeProblemKind.WORKSPACE: (
        "no trace of the workspace of builds",
        "have the recipe replace the path, or remove the file, and build again",
    ),
}
"""Kind of a problem → what was expected, and the next step; in the order of importance."""


def tree(seen: TreeObservation, want: TreeExpectation) -> Verdict:
    """Check that the tree of this stack holds all packages with their modules, and that no check of it has found a problem."""
    if first := next(_findings(seen, want), None):
        return first.verdict(GATE)
    text = f"{plain_text.count(len(seen.packages), 'package')}, {plain_text.count(len(seen.modules), 'module file')}"
    text += f", a view with {plain_text.count(seen.view_links, 'link')}" if seen.view_links else ""
    return passed(
        GATE, f"{text}, {seen.files} files with {seen.size / 1e6:.1f} MB, {seen.elf_files} programs and libraries: no problem"
    )


def _findings(seen: TreeObservation, want: TreeExpectation) -> Iterator[Finding]:
    if seen.stack != want.stack or seen.key != want.key:
        read = f"the tree is that of stack {seen.stack or 'unknown'} with key {seen.key or 'unknown'}"
        step = "render again, and submit all files together"
        yield unknown(FailureClass.INPUT, read, f"stack {want.stack} with key {want.key}", step)
    if seen.problem:
        yield fail(
            FailureClass.RUNTIME, f"no tree could be installed: {seen.problem}", "an installed tree", "see the hint in the log"
        )
    yield from _problems(seen)
    yield from _size(seen, want)
    yield from _packages(seen, want)
    if want.view and not seen.view_links:
        yield unknown(FailureClass.RUNTIME, "the view of the stack has no link", "a link for each file of its packages", _AGAIN)
    yield from _content(seen)


def _size(seen: TreeObservation, want: TreeExpectation) -> Iterator[Finding]:
    if want.largest and seen.size > want.largest:
        size, budget = (f"{number / (1 << 30):.2f} GiB" for number in (seen.size, want.largest))
        step = "leave packages out of the stack, or raise publish.largest_gib, and build again"
        yield fail(FailureClass.INPUT, f"the tree has {size}", f"at most {budget} (publish.largest_gib)", step)


def _problems(seen: TreeObservation) -> Iterator[Finding]:
    ranked = sorted(seen.problems, key=lambda problem: list(_KINDS).index(problem.kind))
    if not ranked:
        if seen.total_problems:
            yield fail(FailureClass.HEALTH, f"{seen.total_problems} problems, none of them named", "no problem", _AGAIN)
        return
    expected, step = _KINDS[ranked[0].kind]
    total = len(ranked) + seen.total_problems
    sentence = f"{plain_text.count(total, 'problem')} in the tree: {_sentence(ranked[0])}"
    others = [problem.path for problem in ranked[1:]]
    more = total - 1 - min(len(others), _MOST_NAMED)
    tail = f"; also {', '.join(others[:_MOST_NAMED])}" if others else ""
    kind = FailureClass.DEPENDENCY if ranked[0].kind in _OF_DEPENDENCIES else FailureClass.HEALTH
    yield fail(kind, f"{sentence}{tail}{f' and {more} more' if more else ''}", expected, step)


_OF_DEPENDENCIES: Final = (TreeProblemKind.MISSING, TreeProblemKind.LIBRARY)


def _sentence(problem: TreeFinding) -> str:
    return f"{problem.path}: {problem.detail}"


def _packages(seen: TreeObservation, want: TreeExpectation) -> Iterator[Finding]:
    whole = f"{want.packages} packages, {want.modules} of them with a module"
    if not want.packages:
        yield unknown(FailureClass.INPUT, "the stack has no package to install", "at least one package", "see the lock's roots")
    if len({package.hash for package in seen.packages}) != want.packages or len(seen.packages) != want.packages:
        yield unknown(FailureClass.RUNTIME, f"the tree has {len(seen.packages)} packages", whole, _AGAIN)
    for package in seen.packages:
        if not (package.hash and package.folder and package.archive):
            step = "run again; if it stays so, see the entry in the build cache"
            name = package.folder or package.hash or "a package"
            yield unknown(FailureClass.RUNTIME, f"{name} is listed without hash, folder or archive", "all three", step)
    named = [package.module for package in seen.packages if package.module]
    if len(named) != want.modules:
        yield unknown(FailureClass.RUNTIME, f"{len(named)} packages have a module", whole, _AGAIN)
    paths = {path.removesuffix(".lua") for path in seen.modules}
    if lacking := [module for module in named if not any(path.endswith(f"/{module}") for path in paths)]:
        step = "see the module settings of the packages' recipes"
        yield fail(FailureClass.HEALTH, f"no module file of {plain_text.some(lacking, _MOST_NAMED)}", whole, step)


def _content(seen: TreeObservation) -> Iterator[Finding]:
    if not seen.digest:
        yield unknown(FailureClass.RUNTIME, "the tree has no digest", "the digest that tests and publication name", _AGAIN)
    if not seen.files or not seen.size:
        yield unknown(
            FailureClass.RUNTIME, f"{seen.files} files with {seen.size} bytes were read", "the files of all packages", _AGAIN
        )
