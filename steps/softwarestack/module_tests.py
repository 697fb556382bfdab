"""Tests of an assembled tree: every module loads, then the spec's commands succeed, with their modules loaded."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from msgspec.structs import replace

from steps.contract import plain_text
from steps.softwarestack import lmod_modules
from steps.softwarestack.bounded_process import BoundedEnd
from steps.softwarestack.contract import output_patterns
from steps.softwarestack.contract.stack_input import StackTestCase
from steps.softwarestack.contract.stack_tests import PERFORMANCE, StackTestKind, StackTestOutcome, StackTestResult
from steps.softwarestack.lmod_modules import LmodError, ModuleRoute
from steps.softwarestack.tree_sandbox import MOST_TEXT, TreeSite

_LOADS_AT_ONCE: Final = 4
"""Modules that are loaded at a time; each is a sandbox and a Lua program, a fifth of a second together."""
_NOT_RUN: Final = (126, 127)
"""Exit codes by which prlimit and setpriv say that a program cannot be started, or does not exist."""
_SKIPPED: Final = 77
"""Exit code by which test suites skip a test, as Automake's do."""


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
    names = [package.module for package in site.stack.installed if package.module]
    with ThreadPoolExecutor(max_workers=_LOADS_AT_ONCE) as beside:
        for result in beside.map(lambda name: _load(site, routes, name, unlisted), names):
            if result.outcome is not StackTestOutcome.PASS:
                say(f"module {result.name}: {result.outcome.value}: {result.output}")
            yield result


def _load(site: TreeSite, routes: tuple[ModuleRoute, ...], module: str, unlisted: str) -> StackTestResult:
    result = StackTestResult(name=module, kind=StackTestKind.LOAD, outcome=StackTestOutcome.PASS)
    route = lmod_modules.route_of(module, routes)
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
    site: TreeSite, routes: tuple[ModuleRoute, ...], test: StackTestCase, say: Callable[[str], None]
) -> StackTestResult:
    """Return the result of one test: its modules load, its command ends with 0 within its time and prints what is expected."""
    result = StackTestResult(name=test.name, kind=StackTestKind.COMMAND, outcome=StackTestOutcome.PASS, incident=test.incident)
    outcome, output, loading, variables = _loaded(site, _in_order(test.modules, routes))
    if outcome is not StackTestOutcome.PASS:
        text = f"its modules {', '.join(test.modules)} do not load: {output}"
        return replace(result, outcome=outcome, seconds=loading.seconds, output=site.text(text))
    ended = site.run(test.command, test.timeout_seconds, variables)
    say(f"test {test.name} ended with {ended.code} after {ended.seconds:.1f} s\n{site.redact(ended.tail)}".rstrip())
    if ended.is_late:
        outcome, output = StackTestOutcome.TIMEOUT, f"{ended.tail} (ended after {test.timeout_seconds} s)"
    elif ended.code == _SKIPPED and test.may_skip:
        outcome, output = StackTestOutcome.NOT_TESTED, ended.tail or "no reason"
    elif ended.code in _NOT_RUN:
        outcome, output = StackTestOutcome.ERROR, ended.tail
    elif ended.code:
        outcome, output = StackTestOutcome.FAIL, f"{ended.tail or 'no output'} (it ended with {ended.code})"
    else:
        return _judged(test, replace(result, seconds=ended.seconds, output=site.text(ended.tail)), ended)
    return replace(result, outcome=outcome, seconds=ended.seconds, output=site.text(output))


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
