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

    An inventory is INI, YAML, a folder of them, or the JSON of a dynamic one; an executable that you name is run with --list.
    Templates in it are not evaluated. What has no place in a spec is said, one line each.
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
    """Check a spec: every error at once, then the compatibility rules."""
    from workflows.cli.specs import checking

    found = checking.check(spec)
    if form is not Format.TABLE:
        output.data(found.data(), form)
    elif found.unreadable:
        raise found.unreadable
    else:
        output.lines(f"{issue.block()}\n" for issue in found.issues)
        counts = f"{output.count(found.errors, 'error')}, {output.count(len(found.issues) - found.errors, 'warning')}"
        output.lines([f"{found.path}: {'not usable' if found.errors else 'valid'}, {counts}"])
    return ExitCode.USAGE if found.errors else ExitCode.OK


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
    work = operations.named(operation, hosts or ())
    narrowed = operations.only(work, only or (), until)
    try:
        made = planning.made(spec, narrowed, until, work)
        before = planning.made(against, narrowed, until, work) if against else None
    except SpecErrors:
        wrong = next((found for found in map(checking.check, filter(None, (spec, against))) if found.errors), None)
        if form in ("table", "tree") or wrong is None:
            raise
        output.data(wrong.data(), Format(form))
        return ExitCode.USAGE
    if before is not None:
        planning.show_difference(before, made, form)
    else:
        planning.show_plan(made, form)
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
    """Render the workflow, its RBAC and its ConfigMaps as YAML, and lint them; or with --gitops what Argo CD delivers.

    All but target-rbac.yaml is what a run installs in home. That one is installed nowhere: it says what each task needs on the
    target, for review, and for a site that makes kubeconfigs of its own; steps act as the user of the kubeconfig they are given.
    """
    if gitops is not None:
        told = {"--only": bool(only), "--until": bool(until), "--out": out is not None, "--image": bool(image)}
        told |= {"--pipeline": bool(pipeline), "--namespace": namespace != "bringup", "--builder-image": bool(builder)}
        return _gitops(spec, gitops, check, [name for name, is_given in told.items() if is_given])
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
    from workflows.spec.schema import KINDS, json_schema

    if kind not in KINDS:
        raise typer.BadParameter(f"{kind!r} is no kind of file; use {', '.join(KINDS)}")
    output.data(json_schema(kind), Format.JSON)
    return ExitCode.OK


def stages(form: Output = Format.TABLE) -> int:
    """List the stages of a bring-up in running order with the files that make them."""
    from workflows.stages import ORDER

    parts = (
        "workflows/stages/{}.py",
        "steps/gates/{}.py",
        "steps/probes/{}.py",
        "workflows/rehearsal/simulator/{}.py",
        "tests/gates/{}/",
    )
    rows = [(name, *(part.format(name) for part in parts)) for name in ORDER]
    if form is Format.TABLE:
        output.table(("stage", "stage data", "gates", "probes", "simulator", "gate cases"), rows)
    else:
        output.data([{"stage": row[0], "files": list(row[1:])} for row in rows], form)
    return ExitCode.OK
