"""Rendered steps as real pods: the step image on the real node, and a stand-in for what Argo does between a template and its pod.

What runs when is decided by the embedded engine's own machine, from the rendered manifest. Each pod that it starts is a plain one
here, without Argo's own containers and their account. In Argo's place, a step with outputs is started by `EMISSARY`, and the last
line of its pod's log tells what the output files hold. `BRINGUP_SIMULATOR` is set, so that steps meet a simulated target.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import msgspec
from kubelab import box
from kubelab.control_plane import ControlPlane
from kubelab.node import Node

from workflows.engines import open_approvals
from workflows.engines.argo.home import Home
from workflows.engines.argo.home_address import HomeAddress
from workflows.engines.argo.resource_watch import ObjectState, ResourceWatch, WatchPace
from workflows.engines.local import state_machine
from workflows.engines.local.calls import with_arguments
from workflows.engines.local.manifest_parser import parse_plan as make_plan
from workflows.engines.local.model import LOCAL, Argument, TemplateCall, TemplateModel, WorkflowPlan
from workflows.engines.local.run_state import (
    RUNNING,
    Action,
    Answer,
    AnyEvent,
    EndPod,
    NodeChanged,
    Operator,
    PodEnded,
    PodStarted,
    RunBegan,
    StartPod,
    TimeCame,
)
from workflows.engines.local.run_state import RunState as Run

Object = dict[str, Any]
Approve = Callable[[str], Mapping[str, str]]
"""Given the stage before which an approval waits, its answer."""

STEP_SECONDS = 120.0
"""A step of a rehearsal takes seconds; on a busy machine a pod's start takes as long."""
SIDE_BY_SIDE = 4
"""Pods at one time."""
PACE = WatchPace(round=1.0)
"""A look at the clock at least once a second, for what the machine does by time."""

TOLD = "of this step's outputs: "
EMISSARY = f"""
import json, os, signal, sys
wanted, command = json.loads(sys.argv[1]), sys.argv[2:]
child = os.spawnvp(os.P_NOWAIT, command[0], command)
signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
found = {{name: open(path).read().removesuffix("\\n") for name, path in wanted.items() if os.path.exists(path)}}
print({TOLD!r} + json.dumps(found))
sys.exit(code if code >= 0 else 128 - code)
"""
"""In place of Argo's emissary: runs a command, then prints what each output file holds that it left. A kubelet's own message, of
which there is one, stays the step's."""


@dataclass(frozen=True)
class Ended:
    """Result of a pod. `message` is its termination message, `runtime` the OCI specification that containerd ran."""

    template: str
    verb: str
    exit_code: int
    outputs: Mapping[str, str]
    message: str
    log: str
    pod: Object
    runtime: Object


@dataclass
class _Begun:
    """A pod that was made, and as it was seen last; `node` is the machine's, empty for a pod that no run asked for."""

    template: TemplateModel
    node: str
    since: float = field(default_factory=time.monotonic)
    latest: Object = field(default_factory=dict)

    @property
    def over(self) -> Object | None:
        """Terminated state of the pod's one container; the pod's phase follows a second later, when its network is removed."""
        found: Object = self.latest.get("status", {})
        assert found.get("phase") != "Failed" or "containerStatuses" in found, found
        return next(
            (row["state"]["terminated"] for row in found.get("containerStatuses", ()) if "terminated" in row["state"]), None
        )


@dataclass
class Pods:
    """Makes pods of one rendered WorkflowTemplate, in the namespace that it names."""

    plane: ControlPlane
    node: Node
    template: Object
    run: str
    environment: Mapping[str, str] = field(default_factory=dict)
    patience: float = STEP_SECONDS
    ended: list[Ended] = field(default_factory=list)
    _begun: dict[str, _Begun] = field(default_factory=dict)

    def play(self, approve: Approve) -> Run:
        """Run the pipeline and its exit handler to their end; the run as the machine left it."""
        zero, seen = time.monotonic(), self._seen()
        run, events = state_machine.initial_state(), list[AnyEvent]([RunBegan(at=0.0)])
        while True:
            while events:
                run, actions = state_machine.step(self._plan, run, events.pop(0))
                events += [event for action in actions for event in self._do(action, time.monotonic() - zero, approve)]
            if run.finished:
                return run
            name = next(seen)
            if name and self._begun[name].node:
                node, ended = self._begun[name].node, self.finish(name)
                self.ended.append(ended)
                events.append(_ended(node, ended, time.monotonic() - zero))
            if run.wake is not None and run.wake <= time.monotonic() - zero:
                events.append(TimeCame(at=time.monotonic() - zero))

    def start(self, name: str, given: Mapping[str, str], *command: str) -> Ended:
        """Run one pod of a container template to its end, with these inputs; `command` replaces what it runs."""
        return self.finish(self.begin(name, given, *command))

    def begin(self, name: str, given: Mapping[str, str], *command: str) -> str:
        """Make that pod; its name."""
        return self._make(self._called(name, given), command)

    def finish(self, made: str) -> Ended:
        """Wait until a pod has ended and return its result."""
        if not self._begun[made].over:
            next(name for name in self._seen() if name == made)
        begun = self._begun.pop(made)
        state, called = begun.over or {}, begun.template
        log, _, told = self._home.fetch(f"{self._home.core('pods', made)}/log").decode().partition(TOLD)
        runtime = self.node.runtime(state["containerID"].removeprefix("containerd://"))
        verb = next(iter(self._rendered(called.name)["container"]["args"]), "")
        # a pod's two streams come by two pipes: what it logged before may stand behind what it told last
        found, end = json.JSONDecoder().raw_decode(told or "{}")
        outputs = {one.name: value for one in called.outputs if (value := found.get(one.name, one.default)) is not None}
        return Ended(
            called.name, verb, state["exitCode"], outputs, state.get("message", ""), log + told[end:], begun.latest, runtime
        )

    def placed_without(self, part: str, name: str, given: Mapping[str, str]) -> str:
        """The node that the scheduler chooses for the same pod without one part of its spec; the pod is gone afterwards."""
        body = self._pod(self._called(name, given), ("true",))
        del body["spec"][part]
        made, chosen = self._post(body), ""

        def bound() -> bool:
            nonlocal chosen
            found = self.plane.get(self._home.core("pods", made)) or {"spec": {}}
            chosen = found["spec"].get("nodeName", "")
            return bool(chosen)

        try:
            box.until(bound, f"{self.plane.name}-scheduler")
        finally:
            self.plane.kubectl("-n", self._home.namespace, "delete", f"pod/{made}", "--grace-period=0", "--force")
        return chosen

    @cached_property
    def _home(self) -> Home:
        return Home(HomeAddress(kubeconfig=str(self.plane.kubeconfig), namespace=self.template["metadata"]["namespace"]))

    @cached_property
    def _plan(self) -> WorkflowPlan:
        name, meta = self.template["metadata"]["name"], {"name": self.run, "namespace": self._home.namespace}
        manifest = {"metadata": meta, "spec": {"workflowTemplateRef": {"name": name}}}
        return make_plan(manifest, {name: self.template}, SIDE_BY_SIDE)

    def _do(self, action: Action, at: float, approve: Approve) -> Iterator[AnyEvent]:
        """Perform an action of the state machine and yield the events that follow at once."""
        if isinstance(action, StartPod):
            assert not action.capture, "what a pod prints is no output here"
            self._make(action.template, node=action.node)
            yield PodStarted(at=at, node=action.node)
        elif isinstance(action, EndPod):
            (made,) = (name for name, one in self._begun.items() if one.node == action.node)
            self._home.ask(lambda kube: kube.merge(self._home.core("pods", made), {"spec": {"activeDeadlineSeconds": 1}}))
        elif isinstance(action, NodeChanged) and action.node.type == "Suspend" and action.node.phase == RUNNING:
            answer = approve(action.node.name.removeprefix(open_approvals.PREFIX))
            yield Operator(at=at, verb="approve", node=action.node.path, parameters=dict(answer))
        elif isinstance(action, Answer):
            assert not action.error, action.error

    def _seen(self) -> Iterator[str]:
        """The name of a pod of ours each time that it is seen to have ended; an empty one at least once a second."""
        for seen in ResourceWatch(self._home, self._home.core("pods"), pace=PACE).states():
            pod = msgspec.json.decode(seen.data) if isinstance(seen, ObjectState) else {}
            name = pod.get("metadata", {}).get("name", "")
            if name in self._begun:
                self._begun[name].latest = pod
            for other, one in self._begun.items():
                late = not one.over and time.monotonic() - one.since > self.patience
                assert not late, f"{other} did not end: {json.dumps(one.latest.get('status'))}"
            yield name if name in self._begun and self._begun[name].over else ""

    def _called(self, name: str, given: Mapping[str, str]) -> TemplateModel:
        found = self._plan.template(TemplateCall(name), LOCAL)
        assert found is not None, name
        return with_arguments(found, tuple(Argument(*row) for row in given.items()), dict(self._plan.variables))

    def _make(self, called: TemplateModel, command: Sequence[str] = (), node: str = "") -> str:
        name = self._post(self._pod(called, command))
        self._begun[name] = _Begun(called, node)
        return name

    def _post(self, body: Object) -> str:
        made: str = self.plane.post(self._home.core("pods"), body)["metadata"]["name"]
        return made

    def _pod(self, called: TemplateModel, command: Sequence[str]) -> Object:
        """The pod of a container template; `command` replaces what it runs."""
        spec, one, asked = self.template["spec"], self._rendered(called.name), called.container
        assert asked is not None, called.name
        wanted = {output.name: output.path for output in called.outputs if output.path}
        before = ["python3", "-I", "-S", "-c", EMISSARY, json.dumps(wanted)] if wanted else []
        words = (command, ()) if command else ((*before, *asked.command), asked.args)
        env = [{"name": name, "value": value} for name, value in (*asked.env, *self.environment.items())]
        container = one["container"] | {"name": "main", "env": env, "command": list(words[0]), "args": list(words[1])}
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        pod_level = ("securityContext", "automountServiceAccountToken", "affinity", "nodeSelector", "tolerations")
        body = {key: spec[key] for key in pod_level if key in spec}
        body["volumes"] = [volume for volume in spec["volumes"] if volume["name"] in mounted]  # as Argo does
        account = one.get("serviceAccountName") or spec["serviceAccountName"]
        body |= {"serviceAccountName": account, "activeDeadlineSeconds": one["activeDeadlineSeconds"]}
        meta = {"generateName": f"{self.run}-{called.name}-", "namespace": self._home.namespace}
        made = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
        return made | {"spec": body | {"restartPolicy": "Never", "containers": [container]}}

    def _rendered(self, name: str) -> Object:
        found: Object = next(one for one in self.template["spec"]["templates"] if one["name"] == name)
        return found


def _ended(node: str, ended: Ended, at: float) -> PodEnded:
    """Return the event by which the state machine learns that a pod has ended."""
    return PodEnded(at=at, node=node, exit_code=ended.exit_code, parameters=dict(ended.outputs))
