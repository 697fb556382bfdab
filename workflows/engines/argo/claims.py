"""A claim on the Workflow itself: of all who follow a run, from whatever machine, one announces an approval."""

import time

from steps.clients.kube.api import ApiError
from steps.errors import Temporary
from workflows.engines.announce import Claim
from workflows.engines.argo.home import Home, NoWorkflow, Where
from workflows.engines.argo.objects import stamp
from workflows.render.grammar.gotext import fnv1a

PREFIX = "bringup/announced-"
TRIES = 20


def claim(where: Where, run: str) -> Claim:
    """True for the first who asks about a node; the annotation `bringup/announced-HASH` holds when that was.

    Raises Temporary where the Workflow changes so fast that nobody can tell: no announcement is better than two, and a warning
    better than none.
    """

    def ours(node: str) -> bool:
        home, key = Home(where), f"{PREFIX}{fnv1a(node):08x}"
        for _ in range(TRIES):
            try:
                meta = home.workflow(run).metadata
            except NoWorkflow:  # deleted meanwhile: nobody waits any more
                return False
            if key in meta.annotations:
                return False
            patch = {"metadata": {"resourceVersion": meta.resource_version, "annotations": {key: stamp(time.time())}}}
            try:
                home.ask(lambda kube: kube.merge(home.workflows(run), patch))  # noqa: B023  # called within the same turn
                return True
            except ApiError as error:
                if error.status != 409:
                    raise
        raise Temporary(
            f"Workflow {run} changed at each of {TRIES} tries to note that this follower announces it: tell them yourself"
        )

    return ours
