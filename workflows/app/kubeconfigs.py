"""Kubeconfigs that a command line names: load them before any other work, and name the option in the hint of an error."""

import os
from pathlib import Path

from steps.clients.kube import kubeconfig
from steps.errors import BadTask
from workflows.app import name_checks
from workflows.engines.argo.home import Home, NoHomeCluster, choose_home
from workflows.engines.argo.home_address import HomeAddress


def require(file: Path, option: str) -> None:
    """Raise BadTask if the kubeconfig cannot be loaded; the hint names `option`. No request is made."""
    try:
        kubeconfig.load(file)
    except BadTask as problem:
        raise _named(problem, f"name the kubeconfig of a running API server with {option}") from problem


def home(file: str, context: str, namespace: str) -> Home:
    """Return a client of the home cluster that options or environment name. Raises NotAName, NoHomeCluster, BadTask."""
    name_checks.require_namespace(namespace)
    return reached(choose_home(file, context, namespace, os.environ), NoHomeCluster.hint)


def reached(where: HomeAddress, hint: str = "give the home cluster's kubeconfig of now with --home-kubeconfig") -> Home:
    """Return a client of the home cluster at an address that is known already, such as that of an earlier run. Raises BadTask."""
    try:
        return Home(where)
    except BadTask as problem:
        raise _named(problem, hint) from problem


def _named(problem: BadTask, hint: str) -> BadTask:
    """Return the error with `hint` if it has none.

    An unreadable file also gets `hint`, because the error's own is meant for pods.
    """
    own_hint = "" if isinstance(problem.__cause__, OSError) else problem.hint
    return BadTask(str(problem), hint=own_hint or hint)
