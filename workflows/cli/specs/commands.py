"""Commands about a spec before anything runs: init, validate, plan, render, schema, stages."""

import os
from pathlib import Path
from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.output import Format

Spec = Annotated[str, typer.Argument(help="Spec file, or the name of an example.")]
Output = Annotated[Format, typer.Option("--output", "-o", help="Form of the output.")]
Only = Annotated[list[str] | None, typer.Option("--only", help="Only this stage; repeat for more.")]
Until = Annotated[str, typer.Option("--until", help="Up to and with this stage.")]
EXISTS_HINT = "choose another name, or --force to write over it"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (init, validate, plan, render, schema, stages):
        app.command()(command)


def init(
    path: Annotated[
        Path | None,
        typer.Argument(help="File to write; default: cluster.yaml, with --image image.yaml. With --image also a shipped recipe."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
    image: Annotated[bool, typer.Option("--image", help="A spec of a node image, for recipe compute or the named one.")] = False,
    source: Annotated[
        Path | None, typer.Option("--from-inventory", metavar="PATH", help="An Ansible inventory: its hosts.")
    ] = None,
    servers: Annotated[str, typer.Option("--servers", metavar="GROUP", help="The inventory's group of RKE2 servers.")] = "",
    group: Annotated[list[str] | None, typer.Option("--group", help="A group to take over; repeat for more.")] = None,
    vault: Annotated[Path | None, typer.Option("--vault-password-file", help="For an inventory with encrypted variables.")] = None,
) -> int:
    """Write a commented starter spec, one with the hosts of an Ansible inventory, or with --image one of a node image.

    An inventory is an INI or YAML file, a folder of such files, or the JSON of a dynamic inventory; an executable is run with
    --list. Templates in it are not evaluated. A line is printed for each setting that has no place in a spec.
    """
    from workflows.spec.starter import starter

    if image:
        from workflows.cli.images import starting as image_starting

        if source or servers or group or vault:
            raise typer.BadParameter("an inventory has hosts of a cluster, and an image has none: leave out --image or the others")
        image_starting.begin(path, force=force, hint=EXISTS_HINT)
        return ExitCode.OK
    path = path or Path("cluster.yaml")
    if path.exists() and not force:
        raise typer.BadParameter(f"{path} exists; {EXISTS_HINT}")
    if source is not None:
        from workflows.cli.hosts import inventories

        inventories.begin(source, path, servers, group or (), vault)
        return ExitCode.OK
    if servers or group or vault:
        raise typer.BadParameter("--servers, --group and --vault-password-file are about an inventory: --from-inventory PATH")
    path.write_text(starter())
    output.lines([f"wrote {path}; edit the host names, then: bringup validate {path}"])
    return ExitCode.OK


def validate(spec: Spec = "cluster.yaml", form: Output = Format.TABLE) -> int:
    """Check a spec: print every error at once, then the compatibility rules that it breaks."""
    from workflows.cli.specs import checking

    checked = checking.check(spec)
    if form is not Format.TABLE:
        output.data(checked.data(), form)
    elif checked.unreadable:
        raise checked.unreadable
    else:
        output.lines(f"{issue.block()}\n" for issue in checked.issues)
        counts = f"{output.count(checked.errors, 'error')}, {output.count(len(checked.issues) - checked.errors, 'warning')}"
        output.lines([f"{checked.path}: {'not usable' if checked.errors else 'valid'}, {counts}"])
    return ExitCode.USAGE if checked.errors else ExitCode.OK


def plan(
    spec: Spec = "cluster.yaml",
    form: Annotated[str, typer.Option("--output", "-o", help="table, tree, json or yaml.")] = "table",
    only: Only = None,
    until: Until = "",
    against: Annotated[str, typer.Option("--against", help="Another spec: print only what differs from its plan.")] = "",
    operation: Annotated[
        str, typer.Option("--operation", metavar="NAME", help="Of add-node, replace-node, upgrade, rollback or reset, not of run.")
    ] = "",
    hosts: Annotated[list[str] | None, typer.Option("--hosts", metavar="RANGE", help="With --operation: which hosts.")] = None,
) -> int:
    """Show what a run would do: stages, changes, nodes, releases, gates, rollback."""
    from workflows.cli.runs import operations
    from workflows.cli.specs import checking, planning
    from workflows.spec import SpecErrors

    if form not in ("table", "tree", "json", "yaml"):
        raise typer.BadParameter(f"{form!r} is no form of output; use table, tree, json or yaml")
    operation_asked = operations.named(operation, hosts or ())
    narrowed = operations.only(operation_asked, only or (), until)
    try:
        new_plan = planning.made(spec, narrowed, until, operation_asked)
        old_plan = planning.made(against, narrowed, until, operation_asked) if against else None
    except SpecErrors:
        unusable = next((checked for checked in map(checking.check, filter(None, (spec, against))) if checked.errors), None)
        if form in ("table", "tree") or unusable is None:
            raise
        output.data(unusable.data(), Format(form))
        return ExitCode.USAGE
    if old_plan is not None:
        planning.show_difference(old_plan, new_plan, form)
    else:
        planning.show_plan(new_plan, form)
    return ExitCode.OK


def render(
    spec: Spec = "cluster.yaml",
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the files; default: all to the terminal.")] = None,
    pipeline: Annotated[
        str, typer.Option("--pipeline", help="bringup, factory, stack or image; default: what the spec is for.")
    ] = "",
    image: Annotated[str, typer.Option("--image", help="The step image; or BRINGUP_IMAGE.")] = "",
    builder: Annotated[
        str, typer.Option("--builder-image", help="The image of pods that build node images; or BRINGUP_BUILDER_IMAGE.")
    ] = "",
    namespace: Annotated[str, typer.Option("--namespace", help="Namespace of Argo Workflows in home.")] = "bringup",
    only: Only = None,
    until: Until = "",
    gitops: Annotated[Path | None, typer.Option("--gitops", help="Checkout of the repository that Argo CD delivers from.")] = None,
    check: Annotated[bool, typer.Option("--check", help="With --gitops: write nothing, tell what differs (exit code 65).")] = False,
) -> int:
    """Render the workflow, its RBAC and its ConfigMaps as YAML, and lint them; with --gitops the files that Argo CD delivers.

    A run installs all of these in the home cluster but target-rbac.yaml, which is never installed. It lists the rights that each
    task needs on the target, for review and for sites that make their own kubeconfigs. Tasks act as the user of the kubeconfig that
    they are given.
    """
    if gitops is not None:
        given = {"--only": bool(only), "--until": bool(until), "--out": out is not None, "--image": bool(image)}
        given |= {"--pipeline": bool(pipeline), "--namespace": namespace != "bringup", "--builder-image": bool(builder)}
        return _gitops(spec, gitops, check, [name for name, is_given in given.items() if is_given])
    if check:
        raise typer.BadParameter("--check compares a folder; name it: --gitops DIR --check")
    from workflows.cli.specs import kinds
    from workflows.cli.specs.compiling import installation, rendered

    build = kinds.builder(spec, pipeline)
    settings = installation(namespace, image, os.environ, builder)
    files = rendered(kinds.planned(spec, only or (), until), build, settings).files()
    if out is None:
        output.lines("---\n" + text.removeprefix("---\n") for text in files.values())
        return ExitCode.OK
    out.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (out / name).write_text(text)
    output.lines([f"wrote {', '.join(sorted(files))} to {out}"])
    return ExitCode.OK


def _gitops(spec: str, folder: Path, check: bool, others: list[str]) -> int:
    from workflows.cli.specs import gitops

    if others:
        raise typer.BadParameter(f"--gitops renders what Argo CD delivers to the target, all of it: leave out {', '.join(others)}")
    return gitops.check(spec, folder) if check else gitops.write(spec, folder)


def schema(kind: Annotated[str, typer.Argument(help="Cluster, Factory, Stack, Image or ImageRecipe.")] = "Cluster") -> int:
    """Print the JSON Schema of cluster.yaml, or of another kind of file, for editors."""
    from workflows.spec.editor_schema import KINDS, json_schema

    if kind not in KINDS:
        raise typer.BadParameter(f"{kind!r} is no kind of file; use {', '.join(KINDS)}")
    output.data(json_schema(kind), Format.JSON)
    return ExitCode.OK


def stages(form: Output = Format.TABLE) -> int:
    """List the stages of a bring-up in running order, with the files that implement each."""
    from workflows.stages import ORDER

    parts = (
        "workflows/stages/{}.py",
        "steps/stages/{}/",
        "workflows/rehearsal/simulator/{}.py",
        "tests/gates/{}/",
    )
    rows = [(name, *(part.format(name) for part in parts)) for name in ORDER]
    if form is Format.TABLE:
        output.table(("stage", "stage data", "contract, probes, gates", "simulator", "gate cases"), rows)
    else:
        output.data([{"stage": row[0], "files": list(row[1:])} for row in rows], form)
    return ExitCode.OK
