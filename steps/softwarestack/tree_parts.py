"""Parts `tree` and `test` of a stack's build: install and check all packages in one tree, and test that tree."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from steps.contract.runs.evidence import read_observation
from steps.errors import Unreachable
from steps.runtime.context import Context
from steps.softwarestack import task_input
from steps.softwarestack.builds import builder_cpu, package_sandbox
from steps.softwarestack.cache.build_cache_storage import CacheError
from steps.softwarestack.cache.cache_packages import CachePackages
from steps.softwarestack.cache.package_packing import PackingError
from steps.softwarestack.contract.stack_input import StackInput
from steps.softwarestack.contract.stack_tests import StackTested, StackTestResult
from steps.softwarestack.contract.tree_check import TreeObservation
from steps.softwarestack.task_input import STACKS, TREE, StackBuildInput
from steps.softwarestack.tree import lmod_modules, tree_assembly
from steps.softwarestack.tree.link_checks import TraceRules
from steps.softwarestack.tree.lmod_modules import LmodError
from steps.softwarestack.tree_tests import module_tests, reframe_tests, tree_sandbox
from steps.softwarestack.tree_tests.reframe_tests import ReframeRun
from steps.softwarestack.tree_tests.tree_sandbox import TreeSite

ARCHIVES = ".archives"
"""Folder beside the trees through which archives of a registry pass."""
_TREE_STAGE = "stack_tree"
_LMOD = "Lmod is not installed: install package lmod, or name its folder by LMOD_PKG"


def assemble_tree(context: Context, build: StackBuildInput) -> TreeObservation:
    """Install the packages of the stack from the build cache into its tree, and check that."""
    stack = build.stack
    source = CachePackages(stack, task_input.build_cache(context, stack, trees_folder(context) / ARCHIVES))
    rules = TraceRules(workspaces=(package_sandbox.BUILD, str(context.environment.store)), factory=stack.factory)
    try:
        tree = tree_assembly.assemble(trees_folder(context), stack, source, rules)
    except (CacheError, PackingError) as error:
        if isinstance(error, CacheError) and error.is_temporary:
            raise Unreachable(str(error), hint="see that the registry of the build cache is up and reachable") from error
        return TreeObservation(stack=stack.digest, key=stack.key, problem=str(error))
    if tree.digest:
        context.say(f"the tree of {stack.name} has {len(tree.packages)} packages with {tree.size / 1e6:.0f} MB")
    return tree


def test_tree(context: Context, build: StackBuildInput) -> StackTested:
    """Run all tests of the stack in the tree that this run has assembled."""
    stack = build.stack
    tree = assembled(context, stack)
    lmod = lmod_modules.find_lmod(os.environ)
    if tree is None or lmod is None:
        problem = "stage stack_tree of this run has assembled no tree of this stack" if tree is None else _LMOD
        return StackTested(stack=stack.digest, problem=problem)
    interpreter = reframe_tests.find_interpreter(os.environ) if stack.reframe else ""
    lacking = module_tests.lacking_targets(stack, builder_cpu.read())
    listed, results = list[str](), list[StackTestResult]()
    for target in stack.targets or ("",):
        site = tree_sandbox.site(
            stack,
            tree_assembly.tree_folder(trees_folder(context), tree.digest),
            lmod,
            context.log.redactor.text,
            hidden=(context.environment.store, context.environment.secrets),
            programs=reframe_tests.interpreter_folders(interpreter) if interpreter else (),
            target=target,
        )
        if stack.targets and not results:
            results.append(module_tests.load_choice(site, context.say, lacking))
        run = test_site(site, interpreter, build.files, lacking, context.say)
        listed += run.listed
        results += run.results
    return StackTested(stack=stack.digest, tree=tree.digest, listed=tuple(listed), results=tuple(results), lacking=lacking)


def test_site(
    site: TreeSite, interpreter: str, files: Mapping[str, bytes], lacking: Mapping[str, str], say: Callable[[str], None]
) -> ReframeRun:
    """Return the results of all tests with the modules of one CPU target, and the ReFrame tests that were listed.

    `interpreter` is that of ReFrame, empty for a stack without its tests. Nothing of a target in `lacking` is run.
    """
    try:
        routes = module_tests.module_routes(site)
    except LmodError as error:
        # one module file without end stops the spider; loading what is seen first finds it there
        loads = module_tests.load_all(site, module_tests.first_routes(site), say, unlisted=str(error))
        return ReframeRun(results=tuple(loads))
    results = [*module_tests.load_all(site, routes, say)]
    tests = (test for test in site.stack.tests if test.target == site.target)
    results += [module_tests.run_command(site, routes, test, say, lacking) for test in tests]
    run = ReframeRun()
    if interpreter:
        run = reframe_tests.run_all(site, interpreter, files, reframe_tests.has_mpi(site), say, lacking)
    return ReframeRun(listed=run.listed, results=(*results, *run.results))


def assembled(context: Context, stack: StackInput) -> TreeObservation | None:
    """Return the tree of the stack that stage stack_tree of this run assembled and passed; None if there is none."""
    for record in context.store.records(context.environment.run, _TREE_STAGE, TREE):
        tree = read_observation(record.observation, TreeObservation)
        is_passed = record.verdict is not None and record.verdict.is_pass
        if is_passed and tree is not None and tree.stack == stack.digest and tree.digest:
            return tree
    return None


def trees_folder(context: Context) -> Path:
    """Return the folder of the run's store with assembled trees."""
    return context.environment.store / STACKS / tree_assembly.TREES
