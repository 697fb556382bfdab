"""Kubeconfigs that a command line names: errors are raised before any other work, with a hint that names the option."""

import os
from pathlib import Path

from steps.clients.kube import kubeconfig
from steps.errors import BadTask
from workflows.app import name_checks
from workflows.engines.argo.home import Home, NoHomeCluster, choose_home
from workflows.engines.argo.home_address import HomeAddress


def require(file: Path, option: str) -> None:
    """Raise BadTask if the file leads to no API server."""
    try:
        kubeconfig.load(file)
    except BadTask as problem:
        raise _named(problem, f"name the kubeconfig of a running API server with {option}") from problem


def home(given: str, context: str, namespace: str) -> Home:
    """Return the home cluster that the command line or the environment names. Raises NotAName, NoHomeCluster, BadTask."""
    name_checks.require_namespace(namespace)
    return reached(choose_home(given, context, namespace, os.environ), NoHomeCluster.hint)


def reached(where: HomeAddress, hint: str = "give the home cluster's kubeconfig of now with --home-kubeconfig") -> Home:
    """Return a home cluster by an address that is known already, such as that of an earlier run. Raises BadTask."""
    try:
        return Home(where)
    except BadTask as problem:
        raise _named(problem, hint) from problem


def _named(problem: BadTask, hint: str) -> BadTask:
    """Return the error with a hint for this command line: the client's own hint about an unreadable file is for steps in pods."""
    own_hint = "" if isinstance(problem.__cause__, OSError) else problem.hint
    return BadTask(str(problem), hint=own_hint or hint)
