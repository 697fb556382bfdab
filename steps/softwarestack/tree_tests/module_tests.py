"""Tests of an assembled tree: every module loads, then the spec's commands succeed, with their modules loaded."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from steps.contract import plain_text
from steps.softwarestack.contract import cpu_targets, output_patterns
from steps.softwarestack.contract.cpu_targets import CpuFacts
from steps.softwarestack.contract.stack_input import StackInput, StackPackage, StackTestCase, choice_module
from steps.softwarestack.contract.stack_release import MODULES
from steps.softwarestack.contract.stack_tests import PERFORMANCE, StackTestKind, StackTestOutcome, StackTestResult, choice_name
from steps.softwarestack.tree import lmod_modules, target_choice
from steps.softwarestack.tree.lmod_modules import LmodError, ModuleRoute
from steps.softwarestack.tree_tests.bounded_process import BoundedEnd
from steps.softwarestack.tree_tests.tree_sandbox import MOST_TEXT, TreeSite

_LOADS_AT_ONCE: Final = 4
"""Modules that are loaded at a time; each is a sandbox and a Lua program, a fifth of a second together."""
_CANNOT_START: Final = (126, 127)
"""Exit codes by which prlimit and setpriv say that a program cannot be started, or does not exist."""
_SKIPPED: Final = 77
"""Exit code by which test suites skip a test, as Automake's do."""
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


def module_routes(site: TreeSite) -> tuple[ModuleRoute, ...]:
    """Return all modules that users of the tree can load, as Lmod's spider lists them. Raises LmodError."""
    seconds = site.stack.limits.load_seconds + len(site.stack.installed)  # it evaluates some hundred module files a second
    folders = site.module_path.split(":")
    ended = site.run([site.lmod.spider, "-o", "spider-json", *folders], seconds)
    if ended.code or ended.is_late or ended.is_cut:
        raise LmodError(f"Lmod's spider did not list the modules: {site.text(lmod_modules.reason(ended.tail)) or _end(ended)}")
    return lmod_modules.routes(ended.out, site.modules_root)


def first_routes(site: TreeSite) -> tuple[ModuleRoute, ...]:
    """Return the modules that users see first, by the names of their files: what can be loaded where Lmod's spider fails."""
    return tuple(
        ModuleRoute(
            name=path.relative_to(site.tree / folder).as_posix().removesuffix(".lua"), path=path.relative_to(site.tree).as_posix()
        )
        for folder in site.start
        for path in sorted((site.tree / folder).rglob("*"))
        if path.is_file()
    )


def load_all(
    site: TreeSite, routes: tuple[ModuleRoute, ...], say: Callable[[str], None], unlisted: str = ""
) -> Iterator[StackTestResult]:
    """Yield a result for the module of each package of the tree: it and all that it needs load in a clean environment.

    `unlisted` says why modules without a route could not be tried, if Lmod's spider failed.
    """
    packages = [package for package in site.packages if package.module]
    with ThreadPoolExecutor(max_workers=_LOADS_AT_ONCE) as beside:
        for result in beside.map(lambda package: _load(site, routes, package, unlisted), packages):
            if result.outcome is not StackTestOutcome.PASS:
                say(f"module {result.name}: {result.outcome.value}: {result.output}")
            yield result


def load_choice(site: TreeSite, say: Callable[[str], None], lacking: Mapping[str, str]) -> StackTestResult:
    """Return the result for the module that chooses the CPU target: with it MODULEPATH has the best one that this CPU runs."""
    name = choice_name(site.stack)
    result = StackTestResult(name=name, kind=StackTestKind.LOAD, outcome=StackTestOutcome.PASS)
    words = [site.lmod.lmod, "python", "load", choice_module(site.stack.name)]
    folder = f"{site.modules_root}{target_choice.FOLDER.removeprefix(MODULES)}"
    ended = site.run(words, site.stack.limits.load_seconds, {"MODULEPATH": folder})
    best = next((target for target in cpu_targets.best_first(site.stack.targets) if target not in lacking), "")
    try:
        variables = lmod_modules.environment(ended.out) if not ended.code else {}
    except LmodError:
        variables = {}
    chosen, reason = variables.get(target_choice.variable(site.stack.name), ""), site.text(lmod_modules.reason(ended.tail))
    folders = variables.get("MODULEPATH", "").split(":")
    absent = next((folder for folder in site.first_folders(best) if folder not in folders), "") if best else ""
    if chosen == best and not absent and (best or target_choice.NONE_FITS in reason):
        say(f"module {name} chooses {best or 'no target'}")
        return replace(result, seconds=ended.seconds, output=f"it chooses {best or 'no target'} on this machine")
    text = f"it chooses {chosen or 'no target'}, expected {best or 'none'}"
    text += f"; MODULEPATH lacks {absent}" if chosen == best and absent else f": {reason or _end(ended)}"
    return replace(result, outcome=StackTestOutcome.FAIL, seconds=ended.seconds, output=site.text(text))


def _load(site: TreeSite, routes: tuple[ModuleRoute, ...], package: StackPackage, unlisted: str) -> StackTestResult:
    title = site.stack.module_title(package)
    result = StackTestResult(name=title, kind=StackTestKind.LOAD, outcome=StackTestOutcome.PASS)
    route = lmod_modules.route_of(package.module, routes)
    if route is None and unlisted:
        return replace(result, outcome=StackTestOutcome.ERROR, output=site.text(unlisted))
    if route is None:
        text = "Lmod does not find it: nothing that users can load adds its folder to MODULEPATH"
        return replace(result, outcome=StackTestOutcome.FAIL, output=text)
    outcome, output, ended, variables = _loaded(site, route.load)
    if outcome is StackTestOutcome.PASS and not lmod_modules.is_loaded(route.name, variables):
        outcome, output = StackTestOutcome.FAIL, f"Lmod succeeded without loading {route.name}"
    return replace(result, outcome=outcome, seconds=ended.seconds, output=output)


def _loaded(site: TreeSite, modules: tuple[str, ...]) -> tuple[StackTestOutcome, str, BoundedEnd, dict[str, str]]:
    """Return outcome, reason and end of loading modules in a clean environment, and the environment that comes of it."""
    limit = site.stack.limits.load_seconds
    ended = site.run([site.lmod.lmod, "python", "load", *modules], limit)
    if ended.is_late:
        return StackTestOutcome.TIMEOUT, f"ended after {limit} s: {site.text(ended.tail)}", ended, {}
    try:
        variables = lmod_modules.environment(ended.out) if not ended.code and not ended.is_cut else None
    except LmodError:
        variables = None
    if variables is None:
        reason = site.text(lmod_modules.reason(ended.tail)) or _end(ended)
        return StackTestOutcome.FAIL, reason, ended, {}
    return StackTestOutcome.PASS, "", ended, variables


def run_command(
    site: TreeSite,
    routes: tuple[ModuleRoute, ...],
    test: StackTestCase,
    say: Callable[[str], None],
    lacking: Mapping[str, str] = _NOTHING,
) -> StackTestResult:
    """Return the result of one test: its modules load, its command ends with 0 within its time and prints what is expected.

    It is not tested if a package that it loads, or one that such a package needs, is for a CPU target in `lacking`.
    """
    result = StackTestResult(name=test.name, kind=StackTestKind.COMMAND, outcome=StackTestOutcome.PASS, incident=test.incident)
    outcome, output, loading, variables = _loaded(site, _in_order(test.modules, routes))
    if outcome is not StackTestOutcome.PASS:
        text = f"its modules {', '.join(test.modules)} do not load: {output}"
        return replace(result, outcome=outcome, seconds=loading.seconds, output=site.text(text))
    if target := next((target for target in _targets_of(site, routes, variables) if target in lacking), ""):
        say(f"test {test.name} is not run: {lacking_sentence(target, lacking)}")
        return as_not_tested(replace(result, seconds=loading.seconds), target, lacking)
    ended = site.run(test.command, test.timeout_seconds, variables)
    say(f"test {test.name} ended with {ended.code} after {ended.seconds:.1f} s\n{site.redact(ended.tail)}".rstrip())
    if ended.is_late:
        outcome, output = StackTestOutcome.TIMEOUT, f"{ended.tail} (ended after {test.timeout_seconds} s)"
    elif ended.code == _SKIPPED and test.may_skip:
        outcome, output = StackTestOutcome.NOT_TESTED, ended.tail or "no reason"
    elif ended.code in _CANNOT_START:
        outcome, output = StackTestOutcome.ERROR, ended.tail
    elif ended.code:
        outcome, output = StackTestOutcome.FAIL, f"{ended.tail or 'no output'} (it ended with {ended.code})"
    else:
        return _judged(test, replace(result, seconds=ended.seconds, output=site.text(ended.tail)), ended)
    return replace(result, outcome=outcome, seconds=ended.seconds, output=site.text(output))


def lacking_sentence(target: str, lacking: Mapping[str, str]) -> str:
    """Return in words why code for a CPU target is not run on this machine."""
    return f"the CPU of this machine lacks {lacking[target]}, which {target} needs"


def as_not_tested(result: StackTestResult, target: str, lacking: Mapping[str, str]) -> StackTestResult:
    """Return the result of a test that this machine's CPU cannot run."""
    return replace(result, outcome=StackTestOutcome.NOT_TESTED, output=lacking_sentence(target, lacking), target=target)


def lacking_targets(stack: StackInput, cpu: CpuFacts) -> dict[str, str]:
    """Return the CPU targets of a stack's installed packages that a CPU does not run, each with what it lacks."""
    targets = sorted({stack.target_of(package) for package in stack.installed})
    return {target: missing for target in targets if (missing := cpu_targets.missing_features(target, cpu))}


def _targets_of(site: TreeSite, routes: tuple[ModuleRoute, ...], variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the CPU targets of the packages whose modules are loaded, and of all that these need when they run."""
    files = {path.replace(site.modules_root, MODULES, 1) for path in variables.get("_LMFILES_", "").split(":")}
    loaded = [
        package.hash
        for package in site.packages
        if package.module and (route := lmod_modules.route_of(package.module, routes)) is not None and route.path in files
    ]
    yield from dict.fromkeys(site.stack.target_of(package) for package in site.stack.closure(*loaded) if not package.external)


def _judged(test: StackTestCase, result: StackTestResult, ended: BoundedEnd) -> StackTestResult:
    """Return the result of a command that ended well, judged by what it printed: exit codes alone prove little."""
    output = f"{ended.out}\n{ended.tail}"
    if test.expect and output_patterns.matching_line(test.expect, output) is None:
        text = f"no line matches {plain_text.line(test.expect)}: {result.output or 'no output'}"
        return replace(result, outcome=StackTestOutcome.FAIL, output=text[:MOST_TEXT])
    if test.reference is None:
        return result
    match = output_patterns.matching_line(test.reference.pattern, output)
    try:
        value = float(match[1]) if match is not None else None
    except (TypeError, ValueError):
        value = None
    if value is None:
        text = f"no figure like {plain_text.line(test.reference.pattern)}: {result.output or 'no output'}"
        return replace(result, outcome=StackTestOutcome.FAIL, output=text[:MOST_TEXT])
    if not test.reference.has(value):
        text = f"{PERFORMANCE}the figure is {value:g}, expected {test.reference.range}"
        return replace(result, outcome=StackTestOutcome.FAIL, output=text)
    return replace(result, value=value)


def _in_order(modules: tuple[str, ...], routes: tuple[ModuleRoute, ...]) -> tuple[str, ...]:
    """Return the names by which Lmod loads a test's modules; full names of a hierarchy bring those that come before them."""
    ordered = list[str]()
    for module in modules:
        route = lmod_modules.route_of(module, routes)
        ordered += route.load if route is not None and route.name != module else [module]
    return tuple(dict.fromkeys(ordered))


def _end(ended: BoundedEnd) -> str:
    return f"it was ended after {ended.seconds:.0f} s" if ended.is_late else f"it ended with {ended.code} and said nothing"
