"""Kubeconfigs that a command line names: what is wrong with one is said before anything begins, and the hint names the option."""

import os
from pathlib import Path

from steps.clients.kube import kubeconfig
from steps.errors import BadTask
from workflows.cli import naming
from workflows.engines.argo.home import Home, NoHomeCluster, Where, chosen


def require(file: Path, option: str) -> None:
    """Raise BadTask where no API server can be reached by this file."""
    try:
        kubeconfig.load(file)
    except BadTask as problem:
        raise _named(problem, f"name the kubeconfig of a running API server with {option}") from problem


def home(given: str, context: str, namespace: str) -> Home:
    """The home cluster of a command line, or of the environment. Raises NotAName, NoHomeCluster, BadTask."""
    naming.require_namespace(namespace)
    return reached(chosen(given, context, namespace, os.environ), NoHomeCluster.hint)


def reached(where: Where, hint: str = "give the home cluster's kubeconfig of now with --home-kubeconfig") -> Home:
    """A home cluster that is known, as what this machine remembers of a run. Raises BadTask."""
    try:
        return Home(where)
    except BadTask as problem:
        raise _named(problem, hint) from problem


def _named(problem: BadTask, hint: str) -> BadTask:
    """Of a file that cannot be read the client's own hint is about steps, which find it elsewhere."""
    own = "" if isinstance(problem.__cause__, OSError) else problem.hint
    return BadTask(str(problem), hint=own or hint)
