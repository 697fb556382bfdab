"""Commands about a spec before anything runs: init, validate, plan, render, schema, stages, inventory."""

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steps.contract.exit import ExitCode
from steps.contract.plain_text import count
from workflows.cli import completion, output
from workflows.cli.options import Hosts, Only, Output, Spec, Until, pipeline_of
from workflows.cli.output import Format

if TYPE_CHECKING:
    from collections.abc import Iterable

    from workflows.app.spec_findings import Checked
    from workflows.plan.model import Plan
    from workflows.spec import Issue

EXISTS_HINT = "choose another name, or --force to write over it"


class InventoryFormat(StrEnum):
    """Forms of an exported inventory, as values of `--output`."""

    YAML = "yaml"
    INI = "ini"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add this module's commands to the typer application."""
    for command in (init, validate, plan, render, schema, stages, inventory):
        app.command()(command)


def init(
    path: Annotated[
        Path | None,
        typer.Argument(help="File to write; default: KIND.yaml, as in cluster.yaml. With --image also a shipped recipe."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
    image: Annotated[bool, typer.Option("--image", help="A spec of a node image, for recipe compute or the named one.")] = False,
    stack: Annotated[bool, typer.Option("--stack", help="A spec of a software stack.")] = False,
    factory: Annotated[bool, typer.Option("--factory", help="A spec of a build factory.")] = False,
    source: Annotated[
        Path | None, typer.Option("--from-inventory", metavar="PATH", help="An Ansible inventory: its hosts.")
    ] = None,
    servers: Annotated[str, typer.Option("--servers", metavar="GROUP", help="The inventory's group of RKE2 servers.")] = "",
    group: Annotated[list[str] | None, typer.Option("--group", help="A group to take over; repeat for more.")] = None,
    vault: Annotated[Path | None, typer.Option("--vault-password-file", help="For an inventory with encrypted variables.")] = None,
) -> int:
    """Write a commented starter spec: of a cluster, of a cluster of an Ansible inventory's hosts, or of another kind.

    An inventory is an INI or YAML file, a folder of such files, or the JSON of a dynamic inventory; an executable is run with
    --list. Templates in it are not evaluated. A line is printed for each setting that has no place in a spec.
    """
    kinds = [name for name, chosen in {"image": image, "stack": stack, "factory": factory}.items() if chosen]
    if kinds and (source or servers or group or vault):
        article = "an" if image else "a"
        raise typer.BadParameter(
            f"an inventory has hosts of a cluster, and {article} {kinds[0]} has none: leave out --{kinds[0]} or the others"
        )
    if len(kinds) > 1:
        raise typer.BadParameter(f"--{kinds[0]} and --{kinds[1]} are two specs: name one of them")
    if image:
        from workflows.app.images import shipped_recipes

        output.lines([shipped_recipes.write_spec(path, force=force, hint=EXISTS_HINT)])
        return ExitCode.OK
    usual = f"{kinds[0] if kinds else 'cluster'}.yaml"
    path = path or Path(usual)
    if path.is_dir():
        raise typer.BadParameter(f"{path} is a folder: name a file in it, such as {path / usual}")
    if path.exists() and not force:
        raise typer.BadParameter(f"{path} exists; {EXISTS_HINT}")
    if source is not None:
        from workflows.app import inventory_import

        output.lines(inventory_import.import_inventory(source, path, servers, group or (), vault))
        return ExitCode.OK
    if servers or group or vault:
        raise typer.BadParameter("--servers, --group and --vault-password-file are about an inventory: --from-inventory PATH")
    return _write_starter(path, kinds)


def _write_starter(path: Path, kinds: list[str]) -> int:
    """Write the starter of a spec, a cluster's if `kinds` is empty, and print what to do next."""
    from workflows.app.specs.starter_files import write_starter
    from workflows.spec.starter import factory_starter, stack_starter, starter

    if kinds == ["factory"]:
        files = write_starter(path, factory_starter(), "Factory")
        output.lines([f"wrote {files}; edit the host names, then: bringup validate {path}, and bringup rehearse {path}"])
        return ExitCode.OK
    if kinds == ["stack"]:
        files = write_starter(path, stack_starter(), "Stack")
        output.lines([f"wrote {files}; name your easyconfigs and publish.root, then: bringup stack lock {path}"])
        return ExitCode.OK
    output.lines([f"wrote {write_starter(path, starter())}; edit the host names, then: bringup validate {path}"])
    return ExitCode.OK


def _check(source: str) -> "Checked":
    from workflows.app import spec_findings

    return spec_findings.check(source, _image_issues)


def _image_issues(path: Path) -> "Iterable[Issue]":
    from workflows.app.images import recipes

    return recipes.image_issues(path)


def validate(spec: Spec = "cluster.yaml", form: Output = Format.TABLE) -> int:
    """Check a spec: print every error at once, then the compatibility rules that it breaks."""
    checked = _check(spec)
    if form is not Format.TABLE:
        output.data(checked.data(), form)
    elif checked.unreadable:
        raise checked.unreadable
    else:
        output.prose(f"{issue.block()}\n" for issue in checked.issues)
        counts = f"{count(checked.errors, 'error')}, {count(len(checked.issues) - checked.errors, 'warning')}"
        output.prose([f"{checked.path}: {'not usable' if checked.errors else 'valid'}, {counts}"])
    return ExitCode.USAGE if checked.errors else ExitCode.OK


def plan(
    spec: Spec = "cluster.yaml",
    form: Annotated[str, typer.Option("--output", "-o", help="table, tree, json or yaml.")] = "table",
    only: Only = None,
    until: Until = "",
    against: Annotated[str, typer.Option("--against", help="Another spec: print only what differs from its plan.")] = "",
    operation: Annotated[
        str,
        typer.Option(
            "--operation",
            metavar="NAME",
            help="Plan this operation instead of a bring-up: add-node, replace-node, upgrade, rollback or reset.",
            autocompletion=completion.operations,
        ),
    ] = "",
    hosts: Hosts = None,
) -> int:
    """Show what a run would do: stages, changes, nodes, releases, gates, rollback."""
    from workflows.app.specs import operations
    from workflows.spec import SpecErrors

    if form not in ("table", "tree", "json", "yaml"):
        raise typer.BadParameter(f"{form!r} is no form of output; use table, tree, json or yaml")
    operation_asked = operations.named(operation, hosts or ())
    narrowed = operations.only(operation_asked, only or (), until)
    try:
        new_plan = pipeline_of(spec).plan_of(spec, narrowed, until, operation_asked)
        old_plan = pipeline_of(against).plan_of(against, narrowed, until, operation_asked) if against else None
    except SpecErrors:
        unusable = next((checked for checked in map(_check, filter(None, (spec, against))) if checked.errors), None)
        if form in ("table", "tree") or unusable is None:
            raise
        output.data(unusable.data(), Format(form))
        return ExitCode.USAGE
    if old_plan is not None:
        _show_difference(old_plan, new_plan, form)
    else:
        _show_plan(new_plan, form)
    return ExitCode.OK


def _show_plan(plan: "Plan", form: str) -> None:
    from workflows.app import quarantine_list
    from workflows.plan import show

    if form == "tree":
        output.prose([*show.outline(plan), *show.warnings(plan)])
    elif form == "table":
        target = "" if show.is_targetless(plan) else f", target {plan.target_uid or 'not known yet'}"
        identity = f"{plan.name}, owner {plan.owner}, revision {plan.revision}{target}"
        others = "; the other hosts are only read" if any(host.untouched for host in plan.hosts) else ""
        operation_lines = [f"operation {operation_text}{others}"] if (operation_text := show.operation(plan)) else []
        output.prose([f"plan {plan.digest}", identity, *operation_lines, ""])
        output.table(show.COLUMNS, show.table_rows(plan))
        output.prose(["", *show.release_lines(plan)] if plan.releases else [])
        output.prose(["", *text_lines] if (text_lines := show.untested_lines(plan)) else [])
        output.prose(["", *text_lines] if (text_lines := show.start_lines(plan)) else [])
        output.prose(["", *text_lines] if (text_lines := show.warnings(plan)) else [])
        output.prose(quarantine_list.reminder(plan.name, (host.name for host in plan.hosts)))
    else:
        output.data(show.to_data(plan) | show.starts(plan) | {"issues": show.issues(plan)}, Format(form))


def _show_difference(before: "Plan", after: "Plan", form: str) -> None:
    """Print the differences: lines with old and new value for a person, every value in full for scripts.

    Raises BadParameter for plans of two pipelines.
    """
    import msgspec

    from workflows.plan import diff, show

    if show.is_targetless(before) != show.is_targetless(after):
        raise typer.BadParameter(f"{before.name} and {after.name} are a cluster and an image: they have nothing to compare")
    if form in ("table", "tree"):
        output.lines(diff.differences(before, after) or ["no difference"])
    else:
        changes = msgspec.to_builtins(diff.changes(before, after))
        output.data({"before": before.digest, "after": after.digest, "differences": changes}, Format(form))


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
    they are given. With --out and Slurm, two records lie beside them: slurm-contract and workload-placement, as Markdown and YAML.
    """
    if gitops is not None:
        options = {"--only": bool(only), "--until": bool(until), "--out": out is not None, "--image": bool(image)}
        options |= {"--pipeline": bool(pipeline), "--namespace": namespace != "bringup", "--builder-image": bool(builder)}
        return _gitops(spec, gitops, check, [name for name, is_given in options.items() if is_given])
    if check:
        raise typer.BadParameter("--check compares a folder; name it: --gitops DIR --check")
    from workflows.app.specs import manifests

    own_pipeline = pipeline_of(spec)
    build = manifests.builder(spec, own_pipeline.kind, pipeline)
    plan = own_pipeline.plan_of(spec, tuple(only or ()), until)
    settings = manifests.installation(namespace, image, os.environ, builder or plan.builder)
    files = manifests.rendered(plan, build, settings).files()
    if out is None:
        output.lines("---\n" + text.removeprefix("---\n") for text in files.values())
        return ExitCode.OK
    out.mkdir(parents=True, exist_ok=True)
    files |= plan.records
    for name, text in files.items():
        (out / name).write_text(text)
    output.lines([f"wrote {', '.join(sorted(files))} to {out}"])
    return ExitCode.OK


def _gitops(spec: str, folder: Path, check: bool, others: list[str]) -> int:
    from workflows.app.specs import gitops_checkout

    if others:
        raise typer.BadParameter(f"--gitops renders what Argo CD delivers to the target, all of it: leave out {', '.join(others)}")
    if not check:
        output.lines(gitops_checkout.write(spec, folder))
        return ExitCode.OK
    lines, differing = gitops_checkout.compare(spec, folder)
    output.lines(lines)
    if not differing:
        return ExitCode.OK
    files = count(differing, "file")
    output.error(f"drift: {files} below {folder} differ from {spec}", f"bringup render {spec} --gitops {folder}, and commit it")
    return ExitCode.GATE_FAILED


def schema(kind: Annotated[str, typer.Argument(help="Cluster, Factory, Stack, Image or ImageRecipe.")] = "Cluster") -> int:
    """Print the JSON Schema of cluster.yaml, or of another kind of file, for editors."""
    from workflows.spec.editor_schema import KINDS, json_schema

    if kind not in KINDS:
        raise typer.BadParameter(f"{kind!r} is no kind of file; use {', '.join(KINDS)}")
    output.data(json_schema(kind), Format.JSON)
    return ExitCode.OK


def _simulated(stage: str) -> str:
    """Return the path of the simulator's part of a stage: a module, or a folder if the part has several modules."""
    path = f"workflows/rehearsal/simulator/stages/{stage}"
    return f"{path}/" if (Path(__file__).parents[2] / path).is_dir() else f"{path}.py"


def stages(form: Output = Format.TABLE) -> int:
    """List the stages of all pipelines in running order, with the files that implement each."""
    from workflows.stages import PIPELINES, UNSIMULATED

    rows = [
        (
            pipeline,
            name,
            f"workflows/stages/{name}.py",
            f"steps/stages/{name}/",
            "" if pipeline in UNSIMULATED else _simulated(name),
            f"tests/gates/{name}/",
        )
        for pipeline, names in PIPELINES.items()
        for name in names
    ]
    values = [{"pipeline": pipeline, "stage": name, "files": [file for file in files if file]} for pipeline, name, *files in rows]
    columns = ("pipeline", "stage", "stage data", "contract, probes, gates", "simulator", "gate cases")
    output.listing(columns, rows, values, form)
    return ExitCode.OK


def inventory(
    spec: Spec = "cluster.yaml",
    form: Annotated[
        InventoryFormat, typer.Option("--output", "-o", help="Its form; json is what a dynamic one prints.")
    ] = InventoryFormat.YAML,
    out: Annotated[Path | None, typer.Option("--out", help="File to write; default: to the terminal.")] = None,
) -> int:
    """Write the hosts of a spec as an Ansible inventory: groups, addresses, users, ports, key, jump hosts."""
    from workflows.app.specs import sources
    from workflows.inventory import inventory_export

    path, read = sources.read(spec)
    text = inventory_export.render_inventory(inventory_export.export_inventory(read, sources.beside(spec)), form.value)
    if out is None:
        output.lines([text.rstrip("\n")])
        return ExitCode.OK
    if out.exists() and out.samefile(path):
        raise typer.BadParameter(f"--out {out} is the spec itself: name another file")
    out.write_text(text)
    output.lines([f"wrote {count(len(read.machines), 'host')} to {out}"])
    return ExitCode.OK
