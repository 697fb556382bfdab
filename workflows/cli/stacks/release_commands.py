"""Commands about published stacks: list, verify, rollback, diff, export, gc, detach-check."""

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from steps.contract.exit import ExitCode
from steps.contract.plain_text import count
from workflows.cli import output, release_output
from workflows.cli.options import Output, read_public_key
from workflows.cli.output import Format
from workflows.cli.release_output import (
    DryRun,
    ExitCodeFlag,
    FactoryFolders,
    FactoryHosts,
    RollbackVersion,
    Signer,
    SignKey,
    Who,
    short,
    when,
)

if TYPE_CHECKING:
    from steps.softwarestack.contract.stack_difference import StackDifference

SPEC = "stack.yaml"
RootOf = Annotated[
    str, typer.Argument(metavar="TREE|SPEC", help="The folder that stacks are published to, or a stack spec (stack.yaml).")
]
RootOption = Annotated[
    str, typer.Option("--tree", metavar="TREE|SPEC", help="The folder that stacks are published to, or a stack spec.")
]
Stack = Annotated[str, typer.Option("--stack", help="Only this stack of the folder.")]
Keep = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TREE|SPEC]...", help="Published folders, or specs that publish there; default: ./stack.yaml."),
]
Days = Annotated[float, typer.Option("--days", min=0, help="What was used or built so lately stays.")]
Packages = Annotated[
    bool, typer.Option("--packages", help="Packages of the build cache go too: all that no version and no lock of a SPEC names.")
]
_DAY = 86400.0
_SIDE = "A version, its number, `current` or `before`; or the path of a lock or of a stack spec, whose lock is meant."


def register(stack: typer.Typer) -> None:
    """Add this module's commands to the typer group `stack`."""
    stack.command(name="list")(show)
    stack.command()(verify)
    stack.command()(rollback)
    stack.command()(diff)
    stack.command()(export)
    stack.command(name="gc")(collect)
    stack.command(name="detach-check")(detach_check)


def show(tree: RootOf = SPEC, stack: Stack = "", form: Output = Format.TABLE) -> int:
    """List the published versions of stacks: which is current, since when and by whom, their packages and signatures."""
    from workflows.app.stacks import stack_releases

    listed = stack_releases.listed(tree, stack)
    cells = [
        (
            row.stack,
            row.version + (" (current)" if row.current else "") + ("" if row.whole else " (not whole)"),
            row.digest[7:19],
            str(row.packages),
            f"{row.size / 1e6:.1f} MB",
            when(row.switched),
            row.by,
            short(row.origin),
            row.signature,
        )
        for row in listed.versions
    ]
    columns = ("stack", "version", "digest", "packages", "size", "switched to", "by", "spec", "signature")
    output.listing(columns, cells, msgspec.to_builtins(listed.versions), form)
    for place, why in listed.pointers:
        output.note(f"warning: {place} {why}; `bringup stack rollback` to a version of the list mends it")
    return ExitCode.OK


def verify(tree: RootOf = SPEC, stack: Stack = "", signer: Signer = None, form: Output = Format.TABLE) -> int:
    """Read every file of published stacks and packages again and compare digests, signatures, pointers. List everything wrong."""
    from workflows.app.stacks import stack_releases

    verified = stack_releases.verify(tree, stack, tuple(map(read_public_key, signer or ())))
    states = [version["signature"] for version in verified.versions]
    unchecked = f", {release_output.UNCHECKED}" if stack_releases.UNCHECKED in states else ""
    versions = f"{count(len(states), 'version')} of {count(verified.stacks, 'stack')} with {count(verified.packages, 'package')}"
    counted = f"{versions} {'is' if len(states) == 1 else 'are'} whole{unchecked}"
    data = {"versions": verified.versions, "packages": verified.packages, "unneeded": verified.unneeded}
    spare = count(len(verified.unneeded), "package")
    notes = [f"{spare} that no version names: `bringup stack gc` removes them"] if verified.unneeded else []
    return release_output.show_verification(verified.location, counted, verified.problems, data, notes, form)


def rollback(
    version: RollbackVersion = "",
    tree: RootOption = SPEC,
    stack: Stack = "",
    who: Who = "",
    signer: Signer = None,
    sign_key: SignKey = None,
    form: Output = Format.TABLE,
) -> int:
    """Go back to an earlier version, by one rename, for everybody who loads modules from now on. Running jobs keep what they use.

    A version is refused if it is incomplete, lacks a package, or is not signed by a key that the spec or --signer trusts. Without
    the publisher's key, the signed statement which version is current is taken away; name the version and the key to sign it later.
    """
    from workflows.app.stacks import stack_releases

    actor, keys = f"rollback by {who or getpass.getuser()}", tuple(map(read_public_key, signer or ()))
    name, switch = stack_releases.roll_back(tree, stack, version, actor, keys, sign_key)
    return release_output.show_rollback("stack", name, switch, form)


def diff(
    before: Annotated[str, typer.Argument(help=_SIDE)] = "before",
    after: Annotated[str, typer.Argument(help="The other side; default: the current version.")] = "current",
    tree: RootOption = SPEC,
    stack: Stack = "",
    exit_code: ExitCodeFlag = False,
    form: Output = Format.TABLE,
) -> int:
    """Show the differences of two versions of a stack, or of a version and a lock: packages added, removed, changed."""
    from workflows.app.stacks import stack_comparison

    old, new, difference = stack_comparison.compare(before, after, tree, stack)
    _show_difference(old.name, new.name, difference, form)
    return ExitCode.GATE_FAILED if exit_code and not difference.same else ExitCode.OK


def _show_difference(old: str, new: str, difference: "StackDifference", form: Format) -> None:
    sentence = f"{old} → {new}: {difference.sentence}"
    if form is not Format.TABLE:
        lists = {"added": difference.added, "removed": difference.removed, "changed": difference.changed}
        data = {name: list(lines) for name, lines in lists.items()}
        output.data({"sentence": sentence, "before": old, "after": new, **data, **msgspec.to_builtins(difference)}, form)
        return
    output.lines([sentence])
    if difference.packages:
        output.lines([""])
        rows = [
            (change.name, change.before or "-", f"{change.after} (built anew)" if change.rebuilt else change.after or "-")
            for change in difference.packages
        ]
        output.table(("package", "before", "after"), rows)
    if difference.values:
        output.lines([""])
        output.table(
            ("what", "before", "after"),
            [(row.name, short(row.before) or "-", short(row.after) or "-") for row in difference.values],
        )


def export(
    to: Annotated[Path, typer.Option("--to", metavar="FILE.tar|FOLDER", help="Archive to write, or folder to make.")],
    tree: RootOf = SPEC,
    stack: Stack = "",
    version: Annotated[str, typer.Option("--version", help="Version, its number, `current` or `before`.")] = "current",
    signer: Signer = None,
    form: Output = Format.TABLE,
) -> int:
    """Write a published version as an OCI image: packages and modules at their published paths, in one layer.

    Every byte is compared with the version's manifest, and a version that differs, or is not signed by a trusted key, is refused.
    Equal versions give equal bytes, where zstd is of the same release.
    """
    from workflows.app.stacks import stack_exports, stack_releases

    image = stack_exports.export(tree, stack, version, tuple(map(read_public_key, signer or ())), to)
    if form is not Format.TABLE:
        output.data({"path": str(to), **msgspec.to_builtins(image)}, form)
        return ExitCode.OK
    size = f"{count(image.files, 'file')} of {_mib(image.unpacked)} MiB in a layer of {_mib(image.size)} MiB"
    output.lines([f"{to}: {image.name}, {size}", f"image {image.digest}, {image.architecture}", f"MODULEPATH={image.modulepath}"])
    output.lines([release_output.UNCHECKED] if image.signature == stack_releases.UNCHECKED else [])
    return ExitCode.OK


def collect(
    keep: Keep = None,
    days: Days = 7,
    packages: Packages = False,
    dry_run: DryRun = False,
    form: Output = Format.TABLE,
) -> int:
    """Remove published packages that no version of any stack in the folder names, remains of killed publications, and old trees.

    Versions stay; how many are kept says publish.keep. Packages that a publication at work needs are never removed. Trees are what
    builds assemble and test in the store of this machine; those that nobody used for --days go, except in a build that runs.
    """
    from workflows.app.stacks import stack_cleanup

    actor, recent = f"gc by {getpass.getuser()}", days * _DAY
    done = stack_cleanup.collect(keep or [SPEC], actor, recent=recent, packages=packages, dry_run=dry_run)
    if form is not Format.TABLE:
        output.data(msgspec.to_builtins(done), form)
        return ExitCode.OK
    verb = "would go" if dry_run else "removed"
    rows = [("published package", folder, "", verb) for root in done.roots for folder in root.removed]
    rows += [("tree", tree.name[:24], _mib(tree.size), verb) for tree in done.trees]
    rows += [("cached package", entry.name[:24], _mib(entry.size), verb) for entry in done.packages]
    if rows:
        output.table(("what", "name", "MiB", "result"), rows)
    for root in done.roots:
        remains = f", {count(len(root.leftovers), 'remain')} of killed publications {verb}" if root.leftovers else ""
        output.lines([f"{root.location}: {count(len(root.removed), 'package')} {verb}{remains}, {root.kept} kept"])
    sizes = sum(item.size for item in (*done.trees, *done.packages))
    output.lines(
        [f"store: {count(len(done.trees), 'tree')} and {count(len(done.packages), 'cached package')} of {_mib(sizes)} MiB {verb}"]
    )
    return ExitCode.OK


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f}"


def detach_check(
    tree: RootOf = SPEC,
    stack: Stack = "",
    host: FactoryHosts = None,
    folder: FactoryFolders = None,
    form: Output = Format.TABLE,
) -> int:
    """Prove that published stacks work without the factory: nothing in them leads into the factory or out of the folder.

    Links, library search paths, scripts, module files and texts that programs read are checked. The factory's store is this
    machine's; name its hosts and further folders.
    """
    from workflows.app.stacks import stack_releases

    checked = stack_releases.check_detachment(tree, stack, folder or (), host or ())
    rows = checked.problems
    if form is not Format.TABLE:
        looked_for = {"folders": list(checked.factory.folders), "hosts": list(checked.factory.hosts)}
        output.data({"ok": not rows, "problems": release_output.problem_data(rows), "looked_for": looked_for}, form)
    elif rows:
        output.table(("place", "what is wrong"), rows)
    else:
        output.lines([f"{checked.location} stands by itself: {checked.summary}"])
    return ExitCode.GATE_FAILED if rows else ExitCode.OK
