"""Stage stack_publish: copy the tested tree to the publish root as a new version; renaming one pointer makes users load it."""

from __future__ import annotations

import shlex
from typing import Any, Final

import msgspec

from steps.contract.task import Verb
from workflows.stages import stack_test
from workflows.stages.stack_site import StackSite, stack_stage
from workflows.stages.stage import Change, Stage, Step, task

ID: Final = "stack_publish"
GATE: Final = "stack_publish/version"
TASK: Final = "version"
SECONDS: Final = 3600
"""Time limit in seconds to copy some 100 GB."""


def build(site: StackSite) -> Stage:
    """Return stage stack_publish: one task that publishes the stack. An approval before the stage may hold it back."""
    stack, place = site.stack, site.place
    arguments: dict[str, Any] = {"stack": stack.digest, "gate": GATE, "target": msgspec.to_builtins(place)}
    arguments |= {"tested": [stack_test.ID, stack_test.PART]} | ({"again": True} if site.again else {})
    expectations: dict[str, Any] = {"packages": len(stack.installed), "keep": place.keep}
    expectations |= {"signed": True} if place.key else {}
    location = f"{place.host}:{place.root}" if place.host else place.root
    # only stack.yaml holds a remote host's login and the trusted signers, so those need the file
    tree = "stack.yaml" if place.host or place.signers else shlex.quote(place.root)
    made = task(ID, TASK, Verb.PUBLISH, deadline=SECONDS, arguments=arguments, expectations=expectations)
    return stack_stage(
        ID,
        "Publication",
        GATE,
        Step(task=made, claim=site.claim),
        changes=(Change(what=f"a new version of {stack.name}, if it is another than the published one", where=location),),
        # a publication that fails leaves the pointer in most cases, and then a rollback would leave a good version
        rollback=f"if its version is current: bringup stack rollback --tree {tree} --stack {stack.name}",
    )
