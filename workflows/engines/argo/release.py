"""Releases nodes of a run on Argo where its store and its cluster's kubeconfig are: by a pod like that of their stage's judge."""

import inspect
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from steps.contract.exit import ExitCode
from steps.errors import StepError
from workflows.engines import release as releasing
from workflows.engines.argo import pods
from workflows.engines.argo.home import Home
from workflows.engines.argo.objects import Workflow
from workflows.render import names


class NotReleased(StepError):
    """The pod could not do it; the message is what it said, the exit code that of the trouble it met."""

    def __init__(self, message: str, hint: str, code: int) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = ExitCode(code)


class _Answer(Struct, frozen=True):
    said: tuple[str, ...] = ()
    problem: str = ""
    hint: str = ""
    code: int = 0


def release(home: Home, workflow: Workflow, stage: str, nodes: Sequence[str], who: str) -> tuple[str, ...]:
    """A line for each node that was released. `stage` set (one of) them aside. Raises NotReleased, ErrandFailed, NoWorkflow."""
    environment = {"BRINGUP_STORE": "/bringup/store", "BRINGUP_SECRETS": "/bringup/secrets", "BRINGUP_RUN": workflow.metadata.name}
    errand = pods.Errand(
        purpose="release",
        command=("python", "-c", inspect.getsource(releasing)),
        environment={**environment, "NODES": " ".join(nodes), "WHO": who},
        template=names.template(stage, "judge"),
        store_only=False,
        writes=True,
    )
    answer = _answer(pods.run(home, workflow, errand))
    if answer.problem:
        raise NotReleased(answer.problem, answer.hint, answer.code)
    return answer.said


def _answer(said: bytes) -> _Answer:
    line = next((one for one in said.decode(errors="replace").splitlines() if one.startswith(releasing.SAID)), "")
    try:
        return msgspec.json.decode(line.removeprefix(releasing.SAID), type=_Answer)
    except msgspec.MsgspecError as error:
        raise pods.ErrandFailed(f"the pod that releases nodes gave no answer: {said[-400:].decode(errors='replace')}") from error
