"""Limits of a schedule's builds that no commit may change: Secrets that pods mount, approvers, and files that are read.

A person who may push to the branch decides what is built, but has no rights in the cluster. The limits come from the installed
spec, and are arguments of the schedule's pod.
"""

from dataclasses import dataclass
from pathlib import Path

from steps.contract.exit import ExitCode
from workflows.plan.model import Plan
from workflows.render import from_git

_ANEW = "whoever may, installs the schedule anew with this spec: bringup image build SPEC --engine argo"


class OutOfBounds(ValueError):
    """Error for a commit that asks for more than the schedule was installed with."""

    exit_code = ExitCode.USAGE

    def __init__(self, sentence: str, hint: str = _ANEW) -> None:
        super().__init__(sentence)
        self.hint = hint


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The limits that a schedule was installed with, as `render.from_git` writes them: keys of Secrets, and approvers."""

    secrets: tuple[str, ...] = ()
    approvers: tuple[str, ...] = ()

    def check(self, plan: Plan, spec: Path, folder: Path) -> None:
        """Raise OutOfBounds for a plan that exceeds the limits; `spec` lies in `folder`, and only files there may be read."""
        local_files = [file.name for file in plan.secrets if not file.secret and file.name not in plan.public]
        if local_files:
            raise OutOfBounds(
                f"the spec has {', '.join(local_files)} from a file or a variable, and a schedule has Secrets of the cluster alone",
                "write {secret: {name: NAME, key: KEY}}",
            )
        for file in plan.secrets:
            if file.path and not _lies_in(folder, spec.parent, file.path):
                raise OutOfBounds(
                    f"the spec names {file.path}, which does not lie in its folder of the repository",
                    "put it beside the spec, in Git",
                )
        if unknown_keys := sorted(set(from_git.secrets_of(plan)) - set(self.secrets)):
            raise OutOfBounds(f"the spec names {', '.join(unknown_keys)} of the cluster's Secrets, which the schedule may not use")
        if self.approvers and from_git.approvers_of(plan) != self.approvers:
            names = ", ".join(approver.split()[0] for approver in self.approvers)
            raise OutOfBounds(f"the schedule was installed with an approval by {names}, and the spec has none or others")


def _lies_in(folder: Path, beside: Path, path: str) -> bool:
    return not path.startswith("~") and (beside / path).resolve().is_relative_to(folder.resolve())
