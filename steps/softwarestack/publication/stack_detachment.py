"""Detachment of a published stack from the factory, the machine that built it: links, search paths, scripts and texts are read."""

from collections.abc import Iterator
from pathlib import Path

from steps.clients.releases.release_kind import links_out
from steps.clients.releases.release_tree import ReleaseTree
from steps.contract import detachment
from steps.contract.detachment import ExternalLink, Factory
from steps.softwarestack.contract.stack_input import PACKAGES
from steps.softwarestack.contract.stack_release import PackageContent
from steps.softwarestack.publication import package_checks, stack_kind
from steps.softwarestack.tree import tree_scan
from steps.softwarestack.tree.link_checks import TraceRules, TreeFile


def external_links(root: Path, tree: ReleaseTree, factory: Factory) -> Iterator[ExternalLink]:
    """Yield what leads from a stack's versions and their packages into the factory, or out of the published root.

    Every file of the packages is read. Raises a StepError for files that no package may have.
    """
    yield from links_out(tree, factory)
    texts = {path: data.decode(errors="replace") for path, data in tree.contents.items() if path.startswith(f"{tree.product}/")}
    texts |= {path: text for version in tree.versions for path, text in stack_kind.module_texts(tree, version)}
    yield from detachment.mentions_in(texts, factory)
    packages: dict[str, PackageContent] = {}
    for version in tree.versions:
        if (manifest := stack_kind.manifest_of(tree, version)) is not None:
            packages |= manifest.by_folder
            for problem in stack_kind.module_problems(tree, version, manifest):
                yield ExternalLink(place=problem.place, leads_to=manifest.root, why=problem.why)
    for folder, package in sorted(packages.items()):
        if (root / PACKAGES / folder).is_dir():
            yield from _of_package(root, package, factory)


def _of_package(root: Path, package: PackageContent, factory: Factory) -> Iterator[ExternalLink]:
    listing = tree_scan.scan(root, TraceRules(factory=factory), [f"{PACKAGES}/{package.folder}"])
    files = tree_scan.package_files(listing, package.folder)
    yield from package_checks.links_out(package, files, str(root), factory)
    for place, file in sorted(listing.files.items()):
        yield from _of_file(place, file, factory)


def _of_file(place: str, file: TreeFile, factory: Factory) -> Iterator[ExternalLink]:
    for trace in file.traces:
        leads_to, _, why = trace.partition(", ")
        yield ExternalLink(place=place, leads_to=leads_to, why=why)
    paths = [*file.links.folders, file.links.interpreter] if file.links is not None else []
    for path in (*paths, file.shebang.split(" ")[0]):
        if any(detachment.is_below(path, folder) for folder in factory.folders):
            yield ExternalLink(place=place, leads_to=path, why="a folder of the factory")
