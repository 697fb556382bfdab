"""Output of the difference of two images: a sentence, then tables of settings, packages, and files by package."""

from collections.abc import Iterable, Sequence

import msgspec

from steps.nodeimage.contract import image_difference
from steps.nodeimage.contract.image_difference import FileDifference, ImageDifference, PackageDifference, Value
from workflows.cli import output
from workflows.cli.output import Format

_MOST_FILES = 40
"""Largest number of files of one package in a table; -o json has all."""
_DIGITS = 19
"""Characters shown of a digest: `sha256:` and twelve hex digits."""


def show(difference: ImageDifference, form: Format) -> None:
    """Print the difference."""
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


def _value(value: Value) -> tuple[str, str, str]:
    before, after = ((each[:_DIGITS] if each.startswith("sha256:") else each) or "-" for each in (value.before, value.after))
    return value.name, before, after


def _package(package: PackageDifference) -> tuple[str, str, str, str]:
    after = f"{package.after} (other bytes)" if package.rebuilt else package.after
    return package.name, package.before or "-", after or "-", package.layer


def _files(found: Sequence[FileDifference]) -> Iterable[tuple[str, str, str, str]]:
    for package, files in image_difference.by_package(found).items():
        for one in files[:_MOST_FILES]:
            change = f"{one.how}: {', '.join(one.what)}" if one.what else one.how
            yield f"/{one.path}", change, f"{one.grew:+d}" if one.grew else "", package or "-"
        if rest := files[_MOST_FILES:]:
            yield f"and {len(rest)} more", "", f"{sum(one.grew for one in rest):+d}", package or "-"
