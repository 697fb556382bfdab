"""What no commit may change of a schedule's builds: which Secrets pods mount, whose approval they need, which files they read.

Whoever may push to the branch decides what is built, and nothing of the cluster in which that happens: who installs the schedule
does, and what the installed spec said of that are arguments of the schedule's pod.
"""

from dataclasses import dataclass
from pathlib import Path

from steps.contract.exit import ExitCode
from workflows.plan.model import Plan
from workflows.render import from_git

_ANEW = "whoever may, installs the schedule anew with this spec: bringup image build SPEC --engine argo"


class OutOfBounds(ValueError):
    """A commit asks for more than the schedule was installed with."""

    exit_code = ExitCode.USAGE

    def __init__(self, sentence: str, hint: str = _ANEW) -> None:
        super().__init__(sentence)
        self.hint = hint


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What a schedule was installed with, in the words of `render.from_git`: keys of Secrets, and approvers."""

    secrets: tuple[str, ...] = ()
    approvers: tuple[str, ...] = ()

    def check(self, plan: Plan, spec: Path, folder: Path) -> None:
        """Raise OutOfBounds for a plan that goes beyond them; `spec` lies in `folder`, which alone may be read."""
        here = [file.name for file in plan.secrets if not file.secret and file.name not in plan.public]
        if here:
            raise OutOfBounds(
                f"the spec has {', '.join(here)} from a file or a variable, and a schedule has Secrets of the cluster alone",
                "write {secret: {name: NAME, key: KEY}}",
            )
        for file in plan.secrets:
            if file.path and not _lies_in(folder, spec.parent, file.path):
                raise OutOfBounds(
                    f"the spec names {file.path}, which does not lie in its folder of the repository",
                    "put it beside the spec, in Git",
                )
        if more := sorted(set(from_git.secrets_of(plan)) - set(self.secrets)):
            raise OutOfBounds(f"the spec names {', '.join(more)} of the cluster's Secrets, which the schedule may not use")
        if self.approvers and from_git.approvers_of(plan) != self.approvers:
            asked = ", ".join(one.split()[0] for one in self.approvers)
            raise OutOfBounds(f"the schedule was installed with an approval by {asked}, and the spec has none or others")


def _lies_in(folder: Path, beside: Path, path: str) -> bool:
    return not path.startswith("~") and (beside / path).resolve().is_relative_to(folder.resolve())
