"""Commands about the store of this machine: diff compares two images, gc removes layers, images and packages nobody needs."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from steps.contract.exit import ExitCode
from steps.contract.plain_text import count
from workflows.cli import output
from workflows.cli.images.tree_commands import DAY, NOBODY, LoginOptions
from workflows.cli.options import Output, placed
from workflows.cli.output import Format
from workflows.cli.release_output import DryRun

if TYPE_CHECKING:
    from steps.nodeimage.contract.image_difference import FileDifference, ImageDifference, PackageDifference, Value
    from workflows.app.images.store_cleanup import Cleanup, SpecRoots

_ANY = "A key, or its first digits; a folder with an image; with --tree, NAME (what is published now), NAME/VERSION or NAME/NUMBER."
_MOST_FILES = 40
"""Largest number of files of one package in a table; `-o json` lists all."""
_DIGITS = 19
"""Characters shown of a digest: `sha256:` and twelve hex digits."""
Keep = Annotated[
    list[str] | None,
    typer.Argument(metavar="[RECIPE|SPEC]...", help="What stays buildable; default: shipped recipes, ./image.yaml."),
]
Published = Annotated[
    list[str] | None,
    typer.Option("--published", metavar="TREE|SPEC", help="A published tree, whose images stay buildable; repeat for more."),
]
Pin = Annotated[list[str] | None, typer.Option("--pin", metavar="KEY", help="A key or digest that stays; repeat for more.")]
Packages = Annotated[bool, typer.Option("--packages", help="Packages go too: all that no RECIPE, SPEC or option keeps.")]
Days = Annotated[float, typer.Option("--days", min=0, help="What was used, or belongs to a run that began, so lately stays.")]
_WORDS = {"layers": "layer", "assembled": "image", "oci": "OCI blob", "initrds": "initial RAM disk", "archive": "package"}
_MIB = 1 << 20
_PACKAGES_STAY = "packages stay; --packages removes them too, all but those of each RECIPE or SPEC that is named with it"
_SPEC = "image.yaml"


def register(image: typer.Typer) -> None:
    """Add this module's commands to the typer group `image`."""
    image.command()(diff)
    image.command(name="gc")(placed(collect, LoginOptions))


def diff(
    before: Annotated[str, typer.Argument(help=_ANY)],
    after: Annotated[str, typer.Argument(help="The other image.")],
    tree: Annotated[
        Path | None, typer.Option("--tree", help="A published tree to find versions in: a folder of this machine, not publish.ssh.")
    ] = None,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="End with 65 where the images differ, for scripts.")] = False,
    form: Output = Format.TABLE,
) -> int:
    """Show the differences of two images: packages, files with the package that owns them, kernel, initrd, layers."""
    from workflows.app.images import stored_images

    difference = stored_images.compare(before, after, tree)
    _show_difference(difference, form)
    return ExitCode.GATE_FAILED if exit_code and not difference.same else ExitCode.OK


def _show_difference(difference: "ImageDifference", form: Format) -> None:
    from steps.nodeimage.contract import image_difference

    sentence = image_difference.sentence(difference)
    if form is not Format.TABLE:
        output.data({"sentence": sentence, **msgspec.to_builtins(difference)}, form)
        return
    output.lines([sentence])
    layers = (msgspec.structs.replace(layer, name=f"layer {layer.name}") for layer in difference.layers)
    _table(("what", "before", "after"), [_value(layer) for layer in (*difference.values, *difference.parts, *layers)])
    _table(("package", "before", "after", "layer"), [_package(layer) for layer in difference.packages])
    _table(("file of the root", "how", "bytes", "package"), list(_files(difference.root)))
    _table(("file of the initrd", "how", "bytes", "package"), list(_files(difference.initrd)))


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if rows:
        output.lines([""])
        output.table(columns, rows)


def _value(value: "Value") -> tuple[str, str, str]:
    before, after = ((each[:_DIGITS] if each.startswith("sha256:") else each) or "-" for each in (value.before, value.after))
    return value.name, before, after


def _package(package: "PackageDifference") -> tuple[str, str, str, str]:
    after = f"{package.after} (other bytes)" if package.rebuilt else package.after
    return package.name, package.before or "-", after or "-", package.layer


def _files(files: "Sequence[FileDifference]") -> Iterable[tuple[str, str, str, str]]:
    from steps.nodeimage.contract import image_difference

    for package, owned in image_difference.by_package(files).items():
        for file in owned[:_MOST_FILES]:
            change = f"{file.how}: {', '.join(file.what)}" if file.what else file.how
            yield f"/{file.path}", change, f"{file.grew:+d}" if file.grew else "", package or "-"
        if rest := owned[_MOST_FILES:]:
            yield f"and {len(rest)} more", "", f"{sum(file.grew for file in rest):+d}", package or "-"


def collect(
    keep: Keep = None,
    published: Published = None,
    pin: Pin = None,
    days: Days = 7,
    packages: Packages = False,
    dry_run: DryRun = False,
    form: Output = Format.TABLE,
    place: LoginOptions = NOBODY,
) -> int:
    """Remove layers and images that no recipe, published image or recent run needs; packages only with --packages.

    Files in use are never removed.
    """
    from workflows.app.images import store_cleanup

    if packages and not keep:
        raise typer.BadParameter("--packages goes with every RECIPE or SPEC whose packages stay: name them")
    recent = days * DAY
    cleanup = store_cleanup.collect(
        keep or (), published or (), pin or (), place, recent=recent, packages=packages, dry_run=dry_run
    )
    if form is Format.TABLE:
        _show_cleanup(cleanup, dry_run=dry_run, packages=packages)
        return ExitCode.OK
    lists = {"removed": cleanup.collected.removed, "in_use": cleanup.collected.in_use}
    rows = {name: [{"kind": item.kind, "name": item.name, "bytes": item.size} for item in items] for name, items in lists.items()}
    output.data({**rows, "kept": cleanup.collected.kept}, form)
    return ExitCode.OK


def _show_cleanup(cleanup: "Cleanup", *, dry_run: bool, packages: bool) -> None:
    collected, verb = cleanup.collected, "would go" if dry_run else "removed"
    results = [(item, verb) for item in collected.removed] + [(item, "in use, stays") for item in collected.in_use]
    rows = [(_WORDS.get(item.kind, item.kind), item.name[:24], f"{item.size / _MIB:.1f}", result) for item, result in results]
    if rows:
        output.table(("what", "name", "MiB", "result"), rows)
    size = sum(item.size for item in collected.removed) / _MIB
    summary = f"{count(len(collected.removed), 'thing')} of {size:.1f} MiB {verb}, {collected.kept} kept"
    output.lines([f"{summary}, {len(collected.in_use)} in use" if collected.in_use else summary])
    if not packages:
        output.lines([_PACKAGES_STAY])
    if cleanup.own_spec is not None:
        output.lines([f"{_kept_here(cleanup.own_spec)}; name a RECIPE or SPEC to keep that alone"])


def _kept_here(own_spec: "SpecRoots") -> str:
    published = f"the {count(own_spec.versions, 'version')} that it has published" if own_spec.versions else ""
    if own_spec.unlocked:
        why = f"its lock {own_spec.unlocked} is not there, so it is made of nothing yet"
        return f"kept for {_SPEC}, which lies here: {published or 'nothing'}, as {why}"
    return f"kept for {_SPEC}, which lies here: what it is made of{f' and {published}' if published else ''}"
