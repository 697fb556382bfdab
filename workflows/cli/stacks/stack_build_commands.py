"""Commands that build stacks: build makes a published, tested version of a lock, from-git builds a branch's newest commit."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.app.run_options import LOCAL, Wish
from workflows.cli import completion, output
from workflows.cli.options import RunOptions, placed, refuse_for_local

if TYPE_CHECKING:
    from workflows.app.branch_build import Branch
    from workflows.app.stacks.stack_builds import PreparedStack


@dataclass(frozen=True, kw_only=True)
class StackBuildOptions(RunOptions):
    """Options of `stack build`: those of every run, and the image of the pods that build on Argo."""

    builder: Annotated[str, typer.Option("--builder-image", help="The image of pods that build, with argo; default: builder.")] = ""


@dataclass(frozen=True, kw_only=True)
class StackBranchOptions(StackBuildOptions):
    """Options of `stack from-git`: those of a build, and those that only a build on Argo has."""

    cache: Annotated[
        str,
        typer.Option(
            "--cache",
            metavar="oci://REGISTRY/REPOSITORY",
            help="Build cache that the spec must name; without it a spec may have no password from outside; default: any.",
        ),
    ] = ""
    claim: Annotated[
        str, typer.Option("--claim", metavar="CLAIM[/FOLDER]", help="With argo: claim that the spec must publish by; default: any.")
    ] = ""
    approver: Annotated[
        list[str] | None,
        typer.Option("--approver", help="With argo: who must be asked before it is published; default: as the spec says."),
    ] = None
    starter: Annotated[
        str, typer.Option("--starter", help="With argo: Workflow whose pod this is; what it makes ends with that.")
    ] = ""

    def check(self) -> None:
        """Raise BadParameter for options that the chosen engine does not have."""
        super().check()
        if self.engine == LOCAL:
            refuse_for_local({"--claim": self.claim, "--approver": ", ".join(self.approver or ()), "--starter": self.starter})
        elif self.junit is not None:
            raise typer.BadParameter("with --engine argo the build is started and not followed, so there is no --junit")


def register_build(stack: typer.Typer) -> None:
    """Add the command `build` to the group."""
    stack.command(name="build")(placed(build, StackBuildOptions))


def register_from_git(stack: typer.Typer) -> None:
    """Add the command `from-git` to the group; help shows it last."""
    stack.command(name="from-git")(placed(from_git, StackBranchOptions))


def build(
    spec: Annotated[str, typer.Argument(metavar="STACK", help="Stack spec.", autocompletion=completion.specs)] = "stack.yaml",
    until: Annotated[str, typer.Option("--until", help="Up to and with this stage.")] = "",
    again: Annotated[
        bool, typer.Option("--again", help="Build even if nothing changed, or if a rollback left this version.")
    ] = False,
    at_once: Annotated[
        int, typer.Option("--jobs-at-once", min=0, max=1000, help="Packages that are built at once; default: builds_at_once.")
    ] = 0,
    supersede: Annotated[bool, typer.Option("--supersede", help="End builds of the same stack that go on.")] = False,
    *,
    place: StackBuildOptions,
) -> int:
    """Build what the cache lacks, install and test the stack, and publish it. If nothing has changed, write nothing."""
    from workflows.app.stacks import stack_builds

    prepared = stack_builds.prepare(spec, place, Wish(until=until, again=again, supersede=supersede), at_once)
    return _started(spec, prepared, place)


def from_git(
    repository: Annotated[str, typer.Argument(metavar="REPOSITORY", help="Address of the Git repository.")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="Path of the stack spec in it; its lock lies beside it.")],
    branch: Annotated[str, typer.Option("--branch", help="Branch of which the newest commit is built.")] = "main",
    name: Annotated[str, typer.Option("--name", help="Name that the spec must have; default: any.")] = "",
    secrets: Annotated[
        Path | None, typer.Option("--secrets", help="Folder of credentials, known_hosts and ca, as far as there are such files.")
    ] = None,
    root: Annotated[str, typer.Option("--root", help="Folder that the spec must publish to; default: any.")] = "",
    use: Annotated[
        list[str] | None,
        typer.Option(
            "--may-use",
            metavar="ROLE=FILE|ROLE=SECRET/KEY",
            help="File outside the repository that the spec may name, in a role such as stack_sign_key; with argo a Secret.",
        ),
    ] = None,
    *,
    place: StackBranchOptions,
) -> int:
    """Build a Git branch's newest commit, and end older builds of this stack. If nothing has changed, do nothing.

    Started by cron or a systemd timer, it polls the branch without webhooks, and builds on this machine. With --engine argo it
    starts a run in the home cluster and does not follow it, as the pod of a schedule does.
    """
    from workflows.app.branch_build import Branch
    from workflows.app.stacks import stack_branch

    source = Branch(repository=repository, branch=branch, path=path, name=name, secrets=secrets)
    if place.engine != LOCAL:
        return _in_pods(source, root, tuple(use or ()), place)
    allowed = stack_branch.Allowed(root=root, cache=place.cache, files=tuple(use or ()))
    spec, prepared = stack_branch.prepare(source, allowed, place, Wish(supersede=True), 0)
    return _started(spec, prepared, place)


def _in_pods(source: "Branch", root: str, secrets: tuple[str, ...], place: StackBranchOptions) -> int:
    """Start the build of a branch's newest commit on Argo, within the limits of the options."""
    from workflows.app import branch_build, kubeconfigs
    from workflows.app.stacks.stack_branch import PodLimits, stack_product

    product = stack_product(PodLimits(root=root, claim=place.claim, builder=place.builder, cache=place.cache))
    bounds = branch_build.Bounds(secrets=secrets, approvers=tuple(sorted(place.approver or ())))
    home = kubeconfigs.home(place.home_kubeconfig, place.home_context, place.namespace)
    target = branch_build.Target(home=home, image=place.image, builder=place.builder, starter=place.starter)
    return branch_build.build(output, product, source, bounds, target)


def _started(spec: str, prepared: "PreparedStack", place: StackBuildOptions) -> int:
    """Start the build, or say why none is needed."""
    if prepared.unchanged:
        output.lines([prepared.unchanged])
        if place.junit is None:
            return ExitCode.OK
        from workflows.app.runs import run_reports

        return run_reports.keep_nothing_changed(output, place.junit, prepared.loaded.name, prepared.unchanged, "stack")
    from workflows.app.runs import run_start

    output.lines(prepared.notes)
    return run_start.start(output, spec, place, prepared.wish, prepared.pipeline)
