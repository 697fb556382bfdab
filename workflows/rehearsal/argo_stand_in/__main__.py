"""`python -m workflows.rehearsal.argo_stand_in`: the stand-in as a process of its own; SIGTERM ends it with its runs."""

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

from workflows.engines.argo.home import DEFAULT_NAMESPACE, Where
from workflows.rehearsal.argo_stand_in.controller import standing_in
from workflows.rehearsal.argo_stand_in.kubelet import Place
from workflows.rehearsal.argo_stand_in.play import Ways


def main() -> int:
    """Stand in until a signal comes."""
    parser = argparse.ArgumentParser(prog="python -m workflows.rehearsal.argo_stand_in", description=__doc__)
    parser.add_argument("--kubeconfig", required=True, help="of the home cluster, or of an emulated API server")
    parser.add_argument("--namespace", default=DEFAULT_NAMESPACE)
    parser.add_argument("--folder", type=Path, required=True, help="where runs keep what they need")
    parser.add_argument("--store", type=Path, required=True, help="the folder that pods see as the run store")
    parser.add_argument("--backoff", default="", help="replaces every wait between attempts, e.g. 0")
    parser.add_argument("--node", default="", help="a Node without kubelet, on which pods are shown to run")
    parser.add_argument("--pod-logs", type=Path, help="a folder from which somebody serves that node's pod logs")
    parser.add_argument("--pass-on", action="append", default=[], metavar="VARIABLE", help="of this environment to the steps")
    given = parser.parse_args()
    passed = {name: os.environ[name] for name in given.pass_on if name in os.environ}
    ways = Ways(backoff=given.backoff, environment=passed, place=Place(node=given.node, logs=given.pod_logs))
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    where = Where(kubeconfig=given.kubeconfig, namespace=given.namespace)
    with standing_in(where, given.folder, given.store, ways):
        over.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
