"""Command line of the stand-in as a process of its own (`python -m tests.argo_stand_in`); SIGTERM ends it with its runs."""

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

from tests.argo_stand_in.controller import running_stand_in
from tests.argo_stand_in.pod_host import PodHost
from tests.argo_stand_in.workflow_run import Behaviour
from workflows.engines.argo.home_address import DEFAULT_NAMESPACE, HomeAddress


def main() -> int:
    """Run the stand-in until SIGINT or SIGTERM arrives."""
    parser = argparse.ArgumentParser(prog="python -m tests.argo_stand_in", description=__doc__)
    parser.add_argument("--kubeconfig", required=True, help="of the home cluster, or of an emulated API server")
    parser.add_argument("--namespace", default=DEFAULT_NAMESPACE)
    parser.add_argument("--folder", type=Path, required=True, help="where runs keep what they need")
    parser.add_argument("--store", type=Path, required=True, help="the folder that pods see as the run store")
    parser.add_argument("--backoff", default="", help="replaces every wait between attempts, e.g. 0")
    parser.add_argument("--node", default="", help="a Node without kubelet, on which pods are shown to run")
    parser.add_argument("--pod-logs", type=Path, help="a folder from which somebody serves that node's pod logs")
    parser.add_argument("--pass-on", action="append", default=[], metavar="VARIABLE", help="of this environment to the steps")
    arguments = parser.parse_args()
    passed = {name: os.environ[name] for name in arguments.pass_on if name in os.environ}
    behaviour = Behaviour(
        backoff=arguments.backoff, environment=passed, place=PodHost(node=arguments.node, logs=arguments.pod_logs)
    )
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    address = HomeAddress(kubeconfig=arguments.kubeconfig, namespace=arguments.namespace)
    with running_stand_in(address, arguments.folder, arguments.store, behaviour):
        over.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
