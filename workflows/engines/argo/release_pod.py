"""Release of quarantined nodes of a run on Argo, by a pod that has the run store and the kubeconfig of the target cluster.

The pod is made from the judge's template of the stage that quarantined the nodes.
"""

import inspect
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from steps.contract.exit import ExitCode
from steps.errors import StepError
from workflows.engines import node_release as releasing
from workflows.engines.argo import helper_pods
from workflows.engines.argo.home import Home
from workflows.engines.argo.workflow_objects import Workflow
from workflows.render import names


class NotReleased(StepError):
    """The pod could not release the nodes. The message and the exit code are those of the problem that the pod reported."""

    def __init__(self, message: str, hint: str, code: int) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = ExitCode(code)


class _Answer(Struct, frozen=True):
    said: tuple[str, ...] = ()
    problem: str = ""
    hint: str = ""
    code: int = 0


def release(home: Home, workflow: Workflow, stage: str, nodes: Sequence[str], who: str) -> tuple[str, ...]:
    """Release nodes and return one line for each. `stage` is a stage that quarantined one of the nodes.

    Raises NotReleased, HelperPodFailed, NoWorkflow.
    """
    environment = {"BRINGUP_STORE": "/bringup/store", "BRINGUP_SECRETS": "/bringup/secrets", "BRINGUP_RUN": workflow.metadata.name}
    errand = helper_pods.HelperPod(
        purpose="release",
        command=("python", "-c", inspect.getsource(releasing)),
        environment={**environment, "NODES": " ".join(nodes), "WHO": who},
        template=names.template(stage, "judge"),
        store_only=False,
        writes=True,
    )
    answer = _answer(helper_pods.run(home, workflow, errand))
    if answer.problem:
        raise NotReleased(answer.problem, answer.hint, answer.code)
    return answer.said


def _answer(log: bytes) -> _Answer:
    line = next(
        (candidate for candidate in log.decode(errors="replace").splitlines() if candidate.startswith(releasing.ANSWER_PREFIX)),
        "",
    )
    try:
        return msgspec.json.decode(line.removeprefix(releasing.ANSWER_PREFIX), type=_Answer)
    except msgspec.MsgspecError as error:
        raise helper_pods.HelperPodFailed(
            f"the pod that releases nodes gave no answer: {log[-400:].decode(errors='replace')}"
        ) from error
