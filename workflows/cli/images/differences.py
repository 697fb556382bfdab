"""Shows how two images differ: a sentence, then tables of what differs in settings, packages, and files by their package."""

from collections.abc import Iterable, Sequence

import msgspec

from steps.contract.image import difference
from steps.contract.image.difference import Difference, FileDifference, PackageDifference, Value
from workflows.cli import output
from workflows.cli.output import Format

_MOST_FILES = 40
"""Files that a table shows of a package: -o json has all."""
_DIGITS = 19
"""Of a digest: `sha256:` and twelve more tell two apart."""


def show(found: Difference, form: Format) -> None:
    """Print it."""
    said = difference.sentence(found)
    if form is not Format.TABLE:
        output.data({"sentence": said, **msgspec.to_builtins(found)}, form)
        return
    output.lines([said])
    layers = (msgspec.structs.replace(one, name=f"layer {one.name}") for one in found.layers)
    _table(("what", "before", "after"), [_value(one) for one in (*found.values, *found.parts, *layers)])
    _table(("package", "before", "after", "layer"), [_package(one) for one in found.packages])
    _table(("file of the root", "how", "bytes", "package"), list(_files(found.root)))
    _table(("file of the initrd", "how", "bytes", "package"), list(_files(found.initrd)))


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if rows:
        output.lines([""])
        output.table(columns, rows)


def _value(one: Value) -> tuple[str, str, str]:
    before, after = ((each[:_DIGITS] if each.startswith("sha256:") else each) or "-" for each in (one.before, one.after))
    return one.name, before, after


def _package(one: PackageDifference) -> tuple[str, str, str, str]:
    after = f"{one.after} (other bytes)" if one.rebuilt else one.after
    return one.name, one.before or "-", after or "-", one.layer


def _files(found: Sequence[FileDifference]) -> Iterable[tuple[str, str, str, str]]:
    for package, files in difference.by_package(found).items():
        for one in files[:_MOST_FILES]:
            how = f"{one.how}: {', '.join(one.what)}" if one.what else one.how
            yield f"/{one.path}", how, f"{one.grew:+d}" if one.grew else "", package or "-"
        if rest := files[_MOST_FILES:]:
            yield f"and {len(rest)} more", "", f"{sum(one.grew for one in rest):+d}", package or "-"
