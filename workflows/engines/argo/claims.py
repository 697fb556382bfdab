"""A claim on the Workflow itself: of all who follow a run, from whatever machine, one announces an approval."""

import time

from steps.clients.kube_http import ApiError
from workflows.engines.announce import Claim
from workflows.engines.argo.home import Home, Where
from workflows.engines.argo.objects import stamp
from workflows.render.grammar.gotext import fnv1a

PREFIX = "bringup/announced-"
TRIES = 20


def claim(where: Where, run: str) -> Claim:
    """True for the first who asks about a node; the annotation `bringup/announced-HASH` holds when that was."""

    def ours(node: str) -> bool:
        home, key = Home(where), f"{PREFIX}{fnv1a(node):08x}"
        for _ in range(TRIES):
            meta = home.workflow(run).metadata
            if key in meta.annotations:
                return False
            patch = {"metadata": {"resourceVersion": meta.resource_version, "annotations": {key: stamp(time.time())}}}
            try:
                home.ask(lambda kube: kube.merge(home.workflows(run), patch))  # noqa: B023  # called within the same turn
                return True
            except ApiError as error:
                if error.status != 409:
                    raise
        return False  # the Workflow changes too fast: better no announcement than two

    return ours
